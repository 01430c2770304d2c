"""Read progress bars: tqdm as HF Trainer, accelerate, torchtune and Lightning print it, and Lightning's rich bar.

`  2%|▏         | 2/100 [00:05<04:05,  2.50s/it]`, on stderr and ended by a carriage return. tqdm prints no time of a
step but a smoothed rate (`tqdm/std.py`, `EMA`): with n steps in t seconds between two prints, and s = 0.3,

    ema = s * x + (1 - s) * ema, divided by 1 - (1 - s)^prints, for x = n and x = t; rate = ema(n) / ema(t)

so that two successive rates give back the time between their prints. Lightning switches the smoothing off: its rate is
the mean since the bar began, and the difference of two totals is the time between them. A bar of an epoch is taken for
Lightning's until its rate contradicts its clock; rich prints the rate of the last half minute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tuner.logs.cut_bars import KEPT, SMOOTHING, Course, CutBar, beyond
from tuner.logs.lines import speaker
from tuner.logs.records import Iteration, LogRecord, digit_of, figure_of, loss_of

_CLOCK_SLACK: Final = 1.5
"""Seconds by which the time of steps may differ from that between two clocks that print whole seconds."""

_CLOCK_ERROR: Final = 0.05
"""Seconds by which a bar's clock may differ from the time of its rate, beside the fraction that it does not print."""
_COARSE: Final = 10.0
"""Seconds between two clocks below which they say less of a step than a printed rate with which they agree."""
_FAR: Final = 100
"""Number of prints after which a mean since the beginning is that of the last steps."""
_COARSE_DIGIT: Final = 0.2
"""Share of a step above which the digits of two totals may say less of it than the rate itself."""

_STEPS: Final = r"(?:it|steps?|iters?|ba(?:tch(?:es)?)?)"
"""Units of bars."""
_BAR: Final = re.compile(
    r"(?:[0-9]{1,3}%(?:\|[^|]{0,400}\|)?|: \|[^|]{0,400}\|) *([0-9]{1,9})/([0-9]{1,9}|\?) "
    r"\[([0-9:]{1,9}:[0-9]{2})<[0-9:?]{1,12}"
    rf"(?:, *((?:[0-9.]{{1,12}}|\?) ?(?:{_STEPS}/s|s/{_STEPS})))?"
    r"([^\]]{0,2000})(?:\]|$)"
)
"""A notebook's has no bar, and one of unknown length no percentage; a terminal may cut its end off."""
_PLAIN: Final = re.compile(
    r"^[ \r]{0,8}[0-9]{1,3}%\|[^|\n]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[([0-9:]{1,9}:[0-9]{2})<[0-9:?]{1,12}"
    r", *([0-9.]{1,12} ?(?:it/s|s/it))\]\s*?$",
    re.MULTILINE,
)
"""A bar alone on its line."""
_RICH: Final = re.compile(
    r"Epoch [0-9]{1,9}/[-0-9]{1,9} [^0-9]{1,400}([0-9]{1,9})/([0-9]{1,9}|--) ([0-9]{1,4}:[0-9]{2}:[0-9]{2}) • "
    r"[-0-9:]{4,12} ([0-9.]{1,12}it/s)([^\n]{0,2000})"
)
_UNBOUNDED: Final = re.compile(
    r"Epoch [0-9]{1,9}: : ([0-9]{1,9})it (\[)([0-9:]{1,9}:[0-9]{2}), *([0-9.]{1,12}(?:it/s|s/it))([^\]]{0,2000})"
    r"(?:\]|$)"
)
"""Lightning's of unknown length, with a bracket instead of the total."""
_EPOCH: Final = re.compile(r"\bEpoch {1,8}([0-9]{1,9})\b")
_INNER: Final = re.compile(r"\bstep {1,4}([0-9]{1,12})[: ]*$", re.IGNORECASE)
"""A description with the number of a step, whose parts the bar counts."""
_NEMO_SECONDS: Final = re.compile(r"train_step_timing in s=([0-9.]{1,20})\b")
_LOSS: Final = re.compile(r"\b(?:train_|reduced_train_)?loss(?:_step)?(?:=|: )([-+0-9.eE]{1,24}|nan|inf)\b")
OTHER_WORK: Final = re.compile(
    r"load|fetch|\bmap\b|filter|token|generat|sav|group|cast|captur|eval|valid|predict|sanity|test|pack|prepar"
    r"|process|shard|convert|split|build|extract|calibrat|quantiz|materializ|cach|weights|compil|warm|import|read",
    re.IGNORECASE,
)
"""What a bar, or a line, that is not of training steps says before its figures."""
_MAX_HEAD: Final = 200
"""Characters before a bar in which its description is searched."""
_MAX_TEXT: Final = 1 << 12
"""Characters of a line in which bars are searched: a carriage return separates one print from the next."""
_END: Final = re.compile(r"\[[0-9:]{4,12}<[^\]]{1,2000}\]\s*$")


@dataclass(slots=True)
class _Bar:
    """A bar's state at its last print."""

    total: int
    is_cut: bool = False
    """Whether its beginning may not be in the log."""
    cut: CutBar | None = None
    prints: int = 0
    decay: float = 1.0
    """Weight that smoothing leaves to what was before its first print: 0.7 to the power of the prints."""
    number: int = 0
    elapsed: float = 0.0
    ema_steps: float = 0.0
    ema_seconds: float = 0.0
    is_mean: bool = True
    """Whether its rate was the mean since its beginning so far."""
    mean_total: float = 0.0
    """Seconds since its beginning by its mean rate."""


_Print = tuple[str, str, str, str | None]
"""What a bar prints: the step, the total (0 if unknown), the clock and the rate with its unit."""

BAR_WORDS: Final = ("%|", " • ", "s/it]", "it/s]", "/? [", ": : ")
"""Each line with a training bar contains one of them."""


class Bars:
    """Follows the training bar of a log."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}
        self._inner: set[str] = set()
        """Descriptions of bars within a step."""
        self._done = False

    def finish(self) -> None:
        """Ignore the bars that follow: training is over, and what comes is an evaluation."""
        self._done = True

    def read_plain(self, block: Sequence[tuple[int, str]], whole: str) -> list[Iteration] | None:
        """Return the iterations of numbered lines, `whole` in one text, if every bar is alone on its line.

        So HF Trainer prints them; they are searched together. None where a line has more than a bar.
        """
        numbers = [number for number, text in block if "%|" in text]
        plain = [] if self._done or " • " in whole else _PLAIN.findall(whole)
        if not plain or len(plain) != len(numbers):
            return None
        found: list[Iteration] = []
        at = 0
        while at < len(plain):
            bar = self._moved("", None, plain[at])
            at = _follow(bar, numbers, plain, at, found) if bar else at + 1
        return found

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line of training bars."""
        if self._done:
            return
        if "%" in text or "/? [" in text:
            text = text[:_MAX_TEXT]
            for found in _BAR.finditer(text):
                start = found.start()
                head = text[max(0, start - _MAX_HEAD) : start].rpartition("]")[2]
                name, epoch = _head(head)
                if name is None or self._is_inner(name, head, found):
                    continue
                if record := self._advance(line, name, epoch, found[5], _print(found)):
                    yield record
        if ": : " in text:
            for found in _UNBOUNDED.finditer(text[:_MAX_TEXT]):
                if record := self._advance(line, "", _head(found[0][:20])[1], found[5], _print(found)):
                    yield record
        if " • " in text:
            for found in _RICH.finditer(text[:_MAX_TEXT]):
                if record := self._advance(line, "", _head(found[0])[1], found[5], _print(found), is_rich=True):
                    yield record

    def _is_inner(self, name: str, head: str, found: re.Match[str]) -> bool:
        """Whether a bar counts the parts of a step that its description numbers, and not steps."""
        step = _INNER.search(head)
        if step and abs(int(step[1]) - int(found[1])) > 1:
            self._inner.add(name)
        return name in self._inner

    def _advance(
        self, line: int, name: str, epoch: int | None, rest: str, printed: _Print, *, is_rich: bool = False
    ) -> LogRecord | None:
        bar = self._moved(name, epoch, printed)
        if bar is None:
            return None
        earlier, clock, prints = bar.number, bar.elapsed, bar.prints
        rate_before = bar.ema_seconds / bar.ema_steps if bar.ema_steps else None
        number = int(printed[0]) + (epoch or 0) * bar.total
        found: list[Iteration] = []
        _follow(bar, (line,), ((str(number), *printed[1:]),), 0, found)
        iteration, steps = found[0], number - earlier
        if epoch is not None:
            between, first = bar.elapsed - clock, prints == 0
            by_mean = _since_beginning(bar, steps=steps, between=between, first=first, rate=printed[3])
            if by_mean is None and is_rich and (inverse := _inverse(printed[3])[0]):
                by_mean = _by_rate(inverse, steps=steps, between=between, first=first)
            if by_mean is not None:
                smoothed = iteration.seconds
                iteration.seconds, iteration.seconds_digit, iteration.derived = by_mean
                a_mean = "v_num=" in rest or "avr_loss=" in rest  # Lightning, sd-scripts; others may smooth
                if by_mean[0] and smoothed and not a_mean and not first:
                    iteration.seconds_digit = max(by_mean[1], 2 * abs(by_mean[0] - smoothed))
        inverse = _inverse(printed[3])[0]
        if name.startswith("Iteration") and iteration.seconds and inverse and rate_before:  # tqdm's mean until 2020
            older = (inverse - KEPT * rate_before) / SMOOTHING / steps
            iteration.seconds_digit = max(iteration.seconds_digit, 2 * abs(iteration.seconds - older))
        loss = _LOSS.search(rest)
        exact = _NEMO_SECONDS.search(rest)
        iteration.loss = loss_of(loss[1]) if loss else None
        if exact:
            iteration.seconds_digit = digit_of(exact[1])
            if seconds_of_nemo := figure_of(exact[1]):
                iteration.seconds, iteration.derived = seconds_of_nemo, ""
        elif epoch is not None and bar.prints == 1 and steps == bar.total > 1:  # rich prints its end to a file
            iteration.derived = "the progress bar's mean, warm-up included"
            return LogRecord(source="training summary", speaker="", iteration=iteration)
        return LogRecord(source="nemo" if exact else "progress bar", speaker=name, iteration=iteration)

    def _moved(self, name: str, epoch: int | None, printed: _Print) -> _Bar | None:
        """Return the bar that a print moves on; None where it is printed again, or is an evaluation's in training."""
        number, total = int(printed[0]), int(printed[1])
        offset = (epoch or 0) * total
        number += offset
        bar = self._bars.get(name)
        if bar is not None and bar.total != total and bar.number < bar.total and not _of_a_cut_log(bar, total):
            return None
        if (
            bar is None
            or bar.total != total
            or (number - offset <= 1 and number < bar.number)  # started again
            or (epoch is not None and number > bar.number and _is_next(bar, epoch, _clock(printed[2])))
        ):
            bar = self._bars[name] = _Bar(total=total, number=offset, is_cut=number - offset > 1)
        return bar if number > bar.number else None


def _is_next(bar: _Bar, epoch: int, clock: float) -> bool:
    """Whether a print that moves a bar on is of a later epoch, whose bar begins anew."""
    return clock < bar.elapsed or (bar.total > 0 and bar.number > 0 and epoch > (bar.number - 1) // bar.total)


def _of_a_cut_log(bar: _Bar, total: int) -> bool:
    """Whether only the end of a bar that is not of training is in the log, and a longer bar follows."""
    return bar.prints == 1 and bar.number > 1 and bar.total < total


def _follow(bar: _Bar, lines: Sequence[int], prints: Sequence[_Print], at: int, found: list[Iteration]) -> int:
    """Append the iterations of a bar's prints, from one that moves it on to the first that does not; return that one.

    Logs have millions of them: figures that a print lacks are left to the class, as the constructor would set them all.
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
        inverse, error = _inverse(rate)
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
            iteration.derived = "the progress bar's rate"
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


def _follow_cut(bar: _Bar, line: int, printed: _Print) -> Iteration:
    """Return the iteration of a bar whose beginning may not be in the log."""
    number, now = int(printed[0]), _clock(printed[2])
    steps, between = number - bar.number, now - bar.elapsed
    inverse, error = _inverse(printed[3])
    found = _by_clock(between, steps)
    if bar.cut is None:
        done = (number - 1) % bar.total + 1 if bar.total else number
        bar.cut = CutBar(done=done, rate=inverse or 0.0, clock=now)
        if inverse:
            found = inverse, error, "the progress bar's rate"
    elif inverse and bar.cut.rate:
        took, apart = bar.cut.take(steps, inverse, now)
        digit = error * (1 + KEPT) / SMOOTHING
        if took > 0 and abs(took - between) <= _CLOCK_SLACK and (between <= 0 or steps * digit <= 2.0):
            found = took / steps, max(digit, 2 * apart / steps), "the progress bar's rate"
        if state := bar.cut.settled(took, apart):
            _go_on(bar, state)
    bar.number, bar.elapsed, bar.prints = number, now, bar.prints + 1
    return Iteration(number=number, seconds=found[0], seconds_digit=found[1], derived=found[2], line=line)


def _go_on(bar: _Bar, state: Course) -> None:
    """Follow a bar from a state that is known as if its beginning were in the log."""
    bar.is_cut = False
    bar.ema_steps, bar.ema_seconds, bar.decay = state.steps, state.seconds, state.decay


def _since_beginning(
    bar: _Bar, *, steps: int, between: float, first: bool, rate: str | None
) -> tuple[float | None, float, str] | None:
    """Return the seconds of each of some steps by a mean since the beginning, their digit and source; else None."""
    inverse, error = _inverse(rate)
    if not inverse:
        return None
    before = bar.number - steps
    done = (before % bar.total if bar.total else before) + steps
    of_steps = done * inverse - bar.mean_total
    bar.mean_total += of_steps
    off = done * error / 2 + _CLOCK_ERROR
    bar.is_mean &= of_steps > -2 * done * error and -off <= done * inverse - bar.elapsed <= 1 + off
    if not bar.is_mean:
        return None
    digit = 2 * error * done / steps
    agrees = of_steps > 0 and (first or abs(of_steps - between) <= _CLOCK_SLACK)
    if agrees and (first or between <= 0 or digit <= 2.0 / steps):
        share = digit * steps / of_steps
        nearer = beyond(of_steps, between) - digit * steps / 2 <= beyond(steps * inverse, between)
        if first or share <= _COARSE_DIGIT or (share <= 1 and nearer):
            return of_steps / steps, digit, "the progress bar's rate"
    found, digit, derived = _by_rate(inverse, between=between, steps=steps, first=first)
    if found and done < _FAR * steps:  # a slow first step weighs much
        most = max(found - (between - 1) / steps, (between + 1) / steps - found)
        digit = max(digit, 2 * min(most, found))
    return found, digit, derived


def _by_rate(inverse: float, *, between: float, steps: int, first: bool) -> tuple[float | None, float, str]:
    """Return the seconds of each of some steps by a rate of more than these, unless the clock is better."""
    if not first and (between <= 0 or (between < _COARSE and abs(steps * inverse - between) <= _CLOCK_SLACK)):
        return inverse, inverse / 4, "the progress bar's smoothed rate"
    return _by_clock(between, steps)


def _by_clock(between: float, steps: int) -> tuple[float | None, float, str]:
    """Return the seconds of each of some steps between two clocks."""
    return (between / steps, 2.0 / steps, "the progress bar's clock") if between > 0 else (None, 0.0, "")


def _print(found: re.Match[str]) -> _Print:
    return found[1], found[2] if found[2].isdecimal() else "0", found[3], found[4]


@lru_cache(4096)
def _inverse(printed: str | None) -> tuple[float | None, float]:
    """Return the seconds of a step by a printed rate with its unit, and the value of their last digit."""
    figure = (printed or "").rstrip("abcdefghijklmnopqrstuvwxyz/ ")
    rate = figure_of(figure)
    if not printed or not rate:
        return None, 0.0
    if printed.endswith("/s"):
        return 1 / rate, digit_of(figure) / rate / rate
    return rate, digit_of(figure)


@lru_cache(4096)
def _head(head: str) -> tuple[str | None, int | None]:
    """Return which bar has this text before it, None for one that is not of training steps, and the epoch it names."""
    epoch = _EPOCH.search(head)
    if epoch or OTHER_WORK.search(head):
        return None if OTHER_WORK.search(head) else "", int(epoch[1]) if epoch else None
    # sd-scripts switches the smoothing off, as Lightning does.
    return speaker(re.sub(r"[0-9.]+", "0", head)), 0 if head.strip() == "steps:" else None


def is_whole_bar(text: str) -> bool:
    """Whether a line without an end is a bar that was printed completely."""
    return "%|" in text and _END.search(text) is not None


def _clock(text: str) -> float:
    """Return the seconds of `01:02` or `1:02:03`."""
    return _whole_minutes(text[:-3]) + int(text[-2:])


@lru_cache(4096)
def _whole_minutes(text: str) -> float:
    """Return the seconds of `01` or `1:02`."""
    minutes = 0.0
    for part in text.split(":"):
        minutes = 60 * minutes + int(part or 0)
    return 60 * minutes
