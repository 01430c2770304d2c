"""The times of iterations, from any figures of their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Final

from tuner.core.text import counted
from tuner.logs.records import LAST_ITERATION_ONLY, Iteration
from tuner.logs.runs import LogRun

_MAX_ABOVE: Final = 3.0
_MAX_BELOW: Final = 30.0
"""Factors by which printed times may exceed the time between their lines, or fall below it, for example because of a
checkpoint. A misread unit changes times by a factor of 60 or more, and a rate of one GPU taken for that of all GPUs by
their number."""

COARSE_CLOCK: Final = 0.05
"""Error, as a share of an iteration's time, above which a clock is too coarse for one iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """The size of a job's iteration; None if unknown."""

    global_batch: int | None = None
    seq: int | None = None
    gpus: int | None = None
    microbatches: int | None = None


def timed(run: LogRun, usual: StepSize) -> list[Iteration]:
    """Return the iterations that have a time: printed, or from a rate and the step's size, or from two clocks."""
    batch_argument = run.batch_argument
    found, before = [], None
    for entry in run.iterations:
        batch = entry.global_batch or usual.global_batch or batch_argument
        size = replace(usual, global_batch=batch, seq=entry.seq or usual.seq)
        if timed_one := _timed(entry, before, size):
            found.append(timed_one)
        before = entry
    return found


def _timed(entry: Iteration, before: Iteration | None, size: StepSize) -> Iteration | None:
    if entry.seconds:
        return entry
    tokens = (size.global_batch or 0) * (size.seq or 0)
    if size.global_batch and entry.samples_per_second:
        return replace(entry, seconds=size.global_batch / entry.samples_per_second)
    rate = entry.tokens_per_second or (entry.tokens_per_second_per_gpu or 0.0) * (size.gpus or 0)
    if tokens and rate:
        seconds = tokens / rate
        return replace(entry, seconds=seconds, seconds_digit=seconds * entry.rate_digit, derived="tokens per second")
    if before is not None and entry.clock is not None and before.clock is not None:
        steps = entry.number - before.number
        if steps > 0 and entry.clock > before.clock:
            digit = 2 * max(entry.clock_digit, before.clock_digit) / steps
            seconds = (entry.clock - before.clock) / steps
            return replace(entry, seconds=seconds, seconds_digit=digit, derived=entry.derived or "timestamps")
    return None


def contradiction(timed: Sequence[Iteration]) -> str:
    """Return how the printed times contradict the timestamps of their lines; empty if they agree.

    An iteration cannot take longer than the time since the previous line. Evaluations and checkpoints extend that time
    between few lines only, so the median reveals a misread unit.
    """
    pairs = [
        (after.seconds * (after.number - before.number), after.stamp - before.stamp, after.stamp_digit)
        for before, after in pairwise(timed)
        if after.seconds and after.stamp is not None and before.stamp is not None
        if after.number > before.number and after.stamp >= before.stamp and after.derived != "timestamps"
    ]
    if not pairs:
        return ""
    printed, between = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    digit = 2 * max(pair[2] for pair in pairs)
    # A line may have only the time of its last iteration, with an evaluation before it.
    most = max(pairs) if len(pairs) > 2 else (0.0, 0.0, 0.0)
    is_long = printed - most[0] > _MAX_ABOVE * (between - most[1]) + digit
    ratio = median((wall + digit) / seconds for seconds, wall, _ in pairs)
    is_short = ratio > _MAX_BELOW and between > printed + digit
    if not (is_long or is_short):
        return ""
    return (
        f"the times of {counted(len(pairs), 'line')} add up to {printed:.4g} s, but their timestamps span "
        f"{between:.4g} s: a unit or the size of a step is misread; give the unit with --step-pattern, or the right "
        "--global-batch."
    )


def precision(chosen: list[Iteration]) -> str:
    """Return how the times were derived and their resolution; empty if the log prints them."""
    derived = [entry for entry in chosen if entry.derived and entry.seconds]
    if not derived:
        return ""
    worst = max(derived, key=_error)
    return f"seconds are derived from {worst.derived}, resolution about {_percent(_error(worst))}"


def _percent(error: float) -> str:
    return f"{100 * max(error, 1e-4):.1g}%" if error < 0.095 else f"{100 * error:.0f}%"


def means(run: LogRun) -> bool:
    """Whether a line that covers several iterations has their mean."""
    return (run.interval or 1) > 1 and run.source not in LAST_ITERATION_ONLY


def over_all(run: LogRun, chosen: list[Iteration]) -> list[Iteration]:
    """Return a chosen iteration with the mean time of all from it on if the clock is too coarse for it alone."""
    if len(chosen) != 1 or derived_error(chosen) <= COARSE_CLOCK or chosen[0].clock is None:
        return chosen
    before = [entry for entry in run.iterations if entry.number < chosen[0].number and entry.clock is not None][-1:]
    last = [entry for entry in run.iterations if entry.clock is not None][-1]
    if not before or last.clock is None or before[0].clock is None or last.clock <= before[0].clock:
        return chosen
    steps = last.number - before[0].number
    digit = 2 * max(last.clock_digit, before[0].clock_digit) / steps
    return [replace(chosen[0], seconds=(last.clock - before[0].clock) / steps, seconds_digit=digit)]


def derived_error(chosen: list[Iteration]) -> float:
    """Return the largest error of derived times as a share, due to the resolution of what they are derived from."""
    return max((_error(entry) for entry in chosen if entry.derived and entry.seconds), default=0.0)


def _error(entry: Iteration) -> float:
    return entry.seconds_digit / 2 / (entry.seconds or 1.0)
