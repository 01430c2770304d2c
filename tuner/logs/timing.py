"""The times of iterations, from whatever figures their lines have."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tuner.logs.log import LogRun
from tuner.logs.records import LAST_ITERATION_ONLY, Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """What a job processes in one iteration; None where unknown."""

    global_batch: int | None = None
    seq: int | None = None
    gpus: int | None = None


def timed(run: LogRun, usual: StepSize) -> list[Iteration]:
    """Return the iterations that have a time: printed, or from a rate and the step's size, or from two clocks."""
    argument = run.arguments.get("train_batch_size") or run.arguments.get("global_batch_size") or ""
    batch_argument = int(argument) if re.fullmatch(r"[0-9]{1,8}", argument) else None
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
            return replace(
                entry, seconds=(entry.clock - before.clock) / steps, seconds_digit=digit, derived="time stamps"
            )
    return None


def precision(chosen: list[Iteration]) -> str:
    """Return how the times were derived and how precise they are; empty where the log prints them."""
    derived = [entry for entry in chosen if entry.derived and entry.seconds]
    if not derived:
        return ""
    worst = max(derived, key=lambda entry: entry.seconds_digit / (entry.seconds or 1.0))
    error = worst.seconds_digit / 2 / (worst.seconds or 1.0)
    return f"seconds are derived from {worst.derived}, precise to about {_percent(error)}"


def _percent(error: float) -> str:
    return f"{100 * max(error, 1e-4):.1g}%" if error < 0.1 else f"{100 * error:.0f}%"


def means(run: LogRun) -> bool:
    """Whether a line of the run that stands for several iterations has their mean."""
    return (run.interval or 1) > 1 and run.source not in LAST_ITERATION_ONLY
