"""The times of a bar's steps, from its clock and its rate.

tqdm prints no time of a step but a smoothed rate (`tqdm/std.py`, `EMA`): with n steps in t seconds between two prints,
and s = 0.3,

    ema = s * x + (1 - s) * ema, divided by 1 - (1 - s)^prints, for x = n and x = t; rate = ema(n) / ema(t)

so that two successive rates give back the time between their prints. Lightning switches the smoothing off: its rate is
the mean since the bar began, and the difference of two totals is the time between them. The rate of a bar of an epoch
is such a mean if the log shows a trainer without smoothing, until the rate contradicts the clock. rich prints the mean
of the last half minute, without the steps before its first rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tuner.logs.cut_bars import KEPT, SMOOTHING, Course, CutBar, beyond
from tuner.logs.records import Iteration, digit_of, figure_of

_CLOCK_SLACK: Final = 1.5
"""Maximum difference in seconds between the time of steps and that between two clocks with whole seconds."""

_CLOCK_ERROR: Final = 0.05
"""Maximum difference in seconds between a bar's clock and the time of its rate, besides the truncated fraction."""
_WINDOW: Final = 30.0
"""Seconds over which rich averages its rate."""
RATE: Final = "the progress bar's rate"
"""Source of a time from a rate of these steps alone."""
_COARSE: Final = 10.0
"""Seconds between two clocks below which an agreeing printed rate is more precise."""
_SETTLED: Final = 100
"""Number of prints after which a mean since the beginning approximates the time of the last steps."""
_COARSE_DIGIT: Final = 0.2
"""Share of a step above which the digits of two totals, or of a clock, may be less precise than the rate itself."""


@dataclass(frozen=True, slots=True)
class Unrated:
    """A print of a rich bar before its first rate, which the time up to this print does not affect."""

    done: int
    clock: float


@dataclass(slots=True)
class Bar:
    """A bar's state at its last print."""

    total: int
    is_cut: bool = False
    """Whether the beginning of the bar may be missing in the log."""
    cut: CutBar | None = None
    prints: int = 0
    decay: float = 1.0
    """Weight in the smoothing of everything before the first print: 0.7 to the power of the prints."""
    number: int = 0
    elapsed: float = 0.0
    ema_steps: float = 0.0
    ema_seconds: float = 0.0
    is_mean: bool = True
    """Whether its rate was the mean since its beginning so far."""
    mean_total: float = 0.0
    """Seconds since its beginning by its mean rate."""
    smooths: bool = False
    """Whether its rate cannot be a mean, by its unit."""
    unrated: Unrated | None = None
    """The last print of a rich bar without a rate."""


BarPrint = tuple[str, str, str, str | None]
"""A bar's figures: the step, the total (0 if unknown), the clock and the rate with its unit."""


def follow(bar: Bar, lines: Sequence[int], prints: Sequence[BarPrint], at: int, found: list[Iteration]) -> int:
    """Append the iterations of prints that advance a bar, and return the index of the first print that does not.

    Logs have millions of prints, so missing figures are left to the defaults of the class instead of the constructor.
    """
    if bar.is_cut and bar.cut and (state := bar.cut.begun(int(prints[at][0]) - bar.number)):
        _go_on(bar, state)
    if bar.is_cut:
        found.append(_follow_cut(bar, lines[at], prints[at]))
        return at + 1
    total, before, elapsed = prints[at][1], bar.number, bar.elapsed
    ema_steps, ema_seconds, decay, count = bar.ema_steps, bar.ema_seconds, bar.decay, bar.prints
    for index in range(at, len(prints)):
        printed_number, printed_total, clock, rate = prints[index]
        number = int(printed_number)
        if printed_total != total or number <= before:
            break
        now = _whole_minutes(clock[:-3]) + int(clock[-2:])
        steps, between = number - before, now - elapsed
        before, elapsed = number, now
        iteration = object.__new__(Iteration)
        iteration.number = number
        iteration.line = lines[index]
        inverse, error = inverse_of(rate)
        if inverse:
            earlier, seconds_before = decay, ema_seconds
            decay *= KEPT
            ema_steps = SMOOTHING * steps + KEPT * ema_steps
            ema_seconds = inverse * ema_steps
            of_steps = (ema_seconds - KEPT * seconds_before) / SMOOTHING
            digit = error * (1 - decay + KEPT * (1 - earlier)) / SMOOTHING
            agrees = of_steps > 0 and (count == 0 or -_CLOCK_SLACK <= of_steps - between <= _CLOCK_SLACK)
        else:
            agrees = False
        count += 1
        if inverse and agrees and (between <= 0 or steps * digit <= 2.0):
            iteration.seconds = of_steps / steps
            iteration.seconds_digit = digit
            iteration.derived = RATE
        elif inverse and not agrees and between <= 0 and count > 1:
            iteration.seconds = inverse
            iteration.seconds_digit = inverse / 4
            iteration.derived = "the progress bar's smoothed rate"
        else:
            iteration.seconds, iteration.seconds_digit, iteration.derived = _by_clock(between, steps)
        found.append(iteration)
    else:
        index = len(prints)
    bar.number, bar.elapsed, bar.prints, bar.decay = before, elapsed, count, decay
    bar.ema_steps, bar.ema_seconds = ema_steps, ema_seconds
    return index


def _follow_cut(bar: Bar, line: int, printed: BarPrint) -> Iteration:
    """Return the iteration of a bar whose beginning may be missing in the log."""
    number, now = int(printed[0]), clock_of(printed[2])
    steps, between = number - bar.number, now - bar.elapsed
    inverse, error = inverse_of(printed[3])
    found = _by_clock(between, steps)
    if bar.cut is None:
        done = (number - 1) % bar.total + 1 if bar.total else number
        bar.cut = CutBar(done=done, rate=inverse or 0.0, clock=now)
        if inverse:
            found = inverse, error, RATE
    elif inverse and bar.cut.rate:
        took, apart = bar.cut.take(steps, inverse, now)
        digit = error * (1 + KEPT) / SMOOTHING
        is_better = steps * digit <= 2.0 and (steps == 1 or apart <= 1.0)
        if took > 0 and abs(took - between) <= _CLOCK_SLACK and (between <= 0 or is_better):
            found = took / steps, max(digit, 2 * apart / steps), RATE
        if state := bar.cut.settled(took, apart):
            _go_on(bar, state)
    bar.number, bar.elapsed, bar.prints = number, now, bar.prints + 1
    return Iteration(number=number, seconds=found[0], seconds_digit=found[1], derived=found[2], line=line)


def _go_on(bar: Bar, state: Course) -> None:
    """Continue with a known state as if the beginning of the bar were in the log."""
    bar.is_cut = False
    bar.ema_steps, bar.ema_seconds, bar.decay = state.steps, state.seconds, state.decay


def since_beginning(
    bar: Bar, *, steps: int, between: float, first: bool, rate: str | None
) -> tuple[float | None, float, str] | None:
    """Return seconds per step from a mean since the start of the bar, with precision and source; None if not a mean.

    A rich bar's mean starts at its last print without a rate.
    """
    inverse, error = inverse_of(rate)
    if not inverse:
        return None
    start = bar.unrated or Unrated(0, 0.0)
    done = _done(bar, steps) - start.done
    of_steps = done * inverse - bar.mean_total
    bar.mean_total += of_steps
    off = done * error + _CLOCK_ERROR
    least = -off - (bar.unrated is not None)  # both clocks are truncated
    bar.is_mean &= of_steps > -2 * done * error and least <= done * inverse - (bar.elapsed - start.clock) <= 1 + off
    if not bar.is_mean:
        return None
    digit = 2 * error * done / steps
    agrees = of_steps > 0 and (first or abs(of_steps - between) <= _CLOCK_SLACK)
    if agrees and (first or between <= 0 or digit <= 2.0 / steps):
        share = digit * steps / of_steps
        nearer = beyond(of_steps, between) - digit * steps / 2 <= beyond(steps * inverse, between)
        if first or share <= _COARSE_DIGIT or (share <= 1 and nearer):
            return of_steps / steps, digit, RATE
    found, digit, derived = by_rate(inverse, between=between, steps=steps, first=first)
    if found and done < _SETTLED * steps:  # a slow first step has a large weight
        most = max(found - (between - 1) / steps, (between + 1) / steps - found)
        digit = max(digit, 2 * min(most, found))
    return found, digit, derived


def since_first(
    bar: Bar, *, steps: int, between: float, first: bool, rate: str | None
) -> tuple[float | None, float, str] | None:
    """Return seconds per step from the rate of a rich bar, with precision and source; None without a rate.

    The rate is the mean of the last half minute and starts at the end of the first step, so that `1/20 ... 0.00it/s`
    and `2/20 ... 0.83it/s` give 1.2 s for the second step.
    """
    inverse, error = inverse_of(rate)
    if not inverse:
        bar.unrated, bar.mean_total, bar.is_mean = Unrated(_done(bar, steps), bar.elapsed), 0.0, True
        return None
    if bar.unrated is not None and bar.elapsed - bar.unrated.clock <= _WINDOW:
        by_mean = since_beginning(bar, steps=steps, between=between, first=first, rate=rate)
        if by_mean is not None:
            return by_mean
    bar.is_mean = False
    if first and 2.0 / steps > _COARSE_DIGIT * inverse:
        return inverse, error, RATE
    return by_rate(inverse, steps=steps, between=between, first=first)


def _done(bar: Bar, steps: int) -> int:
    """Return the steps of a bar up to its last print, which advanced it by so many."""
    before = bar.number - steps
    return (before % bar.total if bar.total else before) + steps


def choose(
    iteration: Iteration, by_mean: tuple[float | None, float, str], bar: Bar, *, first: bool, is_mean: bool
) -> None:
    """Set the time of an iteration, read from a smoothed rate, to that from a mean rate if it is one or the likelier.

    If both are possible, they bound the precision.
    """
    smoothed = iteration.seconds
    if is_mean or first or not smoothed or not by_mean[0]:
        iteration.seconds, iteration.seconds_digit, iteration.derived = by_mean
    elif not bar.smooths:
        digit = by_mean[1] + 2 * abs(by_mean[0] - smoothed)
        if iteration.derived != RATE:
            iteration.seconds, iteration.seconds_digit, iteration.derived = by_mean
        iteration.seconds_digit = max(iteration.seconds_digit, digit)


def without_evaluation(iteration: Iteration, evaluated: float, rate: float | None) -> None:
    """Subtract an evaluation from the time of a step if the rest is closer to the bar's earlier rate.

    Lines may be out of order, because stdout often lags behind a bar on stderr.
    """
    if not iteration.seconds or rate is None:
        return
    seconds = iteration.seconds - evaluated
    if seconds > 0 and abs(seconds - rate) < abs(iteration.seconds - rate):
        iteration.seconds = seconds
        iteration.derived += ", without the evaluation"


def by_rate(inverse: float, *, between: float, steps: int, first: bool) -> tuple[float | None, float, str]:
    """Return seconds per step from a rate over more than these steps, unless the clock is more precise."""
    if not first and (between <= 0 or (between < _COARSE and abs(steps * inverse - between) <= _CLOCK_SLACK)):
        return inverse, inverse / 4, "the progress bar's smoothed rate"
    return _by_clock(between, steps)


def _by_clock(between: float, steps: int) -> tuple[float | None, float, str]:
    """Return seconds per step from two clocks."""
    return (between / steps, 2.0 / steps, "the progress bar's clock") if between > 0 else (None, 0.0, "")


@lru_cache(4096)
def inverse_of(printed: str | None) -> tuple[float | None, float]:
    """Return seconds per step from a printed rate with its unit, and the value of the last digit."""
    figure = (printed or "").rstrip("abcdefghijklmnopqrstuvwxyz/ ")
    rate = figure_of(figure)
    if not printed or not rate:
        return None, 0.0
    if printed.endswith("/s"):
        return 1 / rate, digit_of(figure) / rate / rate
    return rate, digit_of(figure)


def clock_of(text: str) -> float:
    """Return the seconds of `01:02` or `1:02:03`."""
    return _whole_minutes(text[:-3]) + int(text[-2:])


@lru_cache(4096)
def _whole_minutes(text: str) -> float:
    """Return the seconds of `01` or `1:02`."""
    minutes = 0.0
    for part in text.split(":"):
        minutes = 60 * minutes + int(part or 0)
    return 60 * minutes
