"""What a training log can contradict: its own arguments, its own rates, and the iterations beside an iteration."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tuner.audit.repair import Finding, Severity
from tuner.core.text import counted, listed
from tuner.logs import Iteration, LogRun

_RATE_OFF: Final = 0.01
"""By which share samples a second may miss the batch over the time: they are printed after rounding."""
_OUTLIER: Final = 0.10
_SPREADS: Final = 8.0
"""An iteration is an outlier that is a tenth off the median, and so many times the usual distance from it."""
_FEWEST: Final = 5
"""Iterations that tell what is usual."""


UNEXPLAINED_TFLOPS: Final = "no known formula, sequence length or batch explains the difference"


class Contradiction(NamedTuple):
    """TFLOPs that a log prints for an iteration and those that its own time gives."""

    iteration: int
    printed: float
    counted: float
    reason: str
    """What the printed figure is, where a known formula or mistake fits it; else nothing."""


def audit_run(run: LogRun, rates: Sequence[Contradiction] = ()) -> list[Finding]:
    """Everything in one run of a log that cannot be true or that spoils its measurement, by line."""
    found = [*_degrees(run), *_batch(run), *_tflops(run, rates), *_samples(run), *_losses(run)]
    found += [*_skipped(run), *_outliers(run)]
    return sorted(found, key=lambda finding: finding.line or 0)


def _degrees(run: LogRun) -> Iterator[Finding]:
    """The degrees that a run prints multiply to the GPUs that it prints."""
    pipeline = "pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"
    degrees = [_argument(run, *names) or 1 for names in (("tensor_model_parallel_size",), pipeline)]
    degrees.append(_argument(run, "context_parallel_size") or 1)
    world, dp = _argument(run, "world_size"), _argument(run, "data_parallel_size")
    if not world or not dp or math.prod(degrees) * dp == world:
        return
    words = " x ".join(f"{name}({size})" for name, size in zip(("tp", "pp", "cp", "dp"), (*degrees, dp), strict=True))
    yield _about(
        run.line,
        "degrees",
        "error",
        f"its arguments say {words} = {math.prod(degrees) * dp} GPUs, and a world of {world}",
        "look up how many processes were started; TFLOPs a GPU depend on it",
    )


def _batch(run: LogRun) -> Iterator[Finding]:
    """A batch is shared out evenly."""
    batch = _argument(run, "global_batch_size", "train_batch_size")
    micro = _argument(run, "micro_batch_size", "train_micro_batch_size_per_gpu")
    dp = _argument(run, "data_parallel_size")
    if batch and micro and dp and batch % (micro * dp):
        message = f"its batch of {batch} does not divide by micro_batch x dp = {micro} x {dp} = {micro * dp}"
        yield _about(run.line, "batch", "error", message, "look up the three; the program would have refused them")


def _tflops(run: LogRun, rates: Sequence[Contradiction]) -> Iterator[Finding]:
    """TFLOPs are the operations of an iteration over its time; each way to be off is told once."""
    lines = {iteration.number: iteration.line for iteration in run.iterations}
    by_reason: dict[str, list[Contradiction]] = {}
    for rate in rates:
        by_reason.setdefault(rate.reason, []).append(rate)
    for reason, alike in by_reason.items():
        first = alike[0]
        more = f", and likewise in {len(alike) - 1} more" if len(alike) > 1 else ""
        yield _about(
            lines[first.iteration],
            "tflops",
            "advice" if reason else "error",
            f"iteration {first.iteration} says {first.printed:g} TFLOPs, and its time gives {first.counted:.2f}{more}: "
            f"{reason or UNEXPLAINED_TFLOPS}",
            f"tflops={first.counted:.2f}; compare it with others by this count alone",
        )


def _samples(run: LogRun) -> Iterator[Finding]:
    """Samples a second times seconds are the batch."""
    usual = _argument(run, "global_batch_size", "train_batch_size")
    off = []
    for iteration in run.iterations:
        batch = iteration.global_batch or usual
        if batch and iteration.seconds and iteration.samples_per_second:
            ratio = iteration.samples_per_second * iteration.seconds / batch
            room = _RATE_OFF + 0.5 * iteration.seconds_digit / iteration.seconds
            if abs(ratio - 1) > room:
                off.append((iteration, batch, ratio))
    if off:
        iteration, batch, ratio = off[0]
        yield _about(
            iteration.line,
            "samples",
            "error",
            f"{_numbers(each for each, _, _ in off)}: {iteration.samples_per_second:g} samples a second x "
            f"{iteration.seconds:.6g} s are {ratio * batch:.4g} samples, and the batch has {batch}",
            "believe the seconds where a clock beside them agrees, and look up the batch",
        )


def _losses(run: LogRun) -> Iterator[Finding]:
    """A loss is a number."""
    bad = [each for each in run.iterations if each.loss is not None and math.isnan(each.loss)]
    if bad:
        yield _about(
            bad[0].line,
            "loss",
            "error",
            f"{_numbers(bad)}: the loss is no number",
            "the times may stand, but nothing was trained: lower the learning rate, or train in bf16",
        )


def _skipped(run: LogRun) -> Iterator[Finding]:
    """An iteration that is skipped makes no step, so that its time is not a whole one."""
    bad = [each for each in run.iterations if each.skipped]
    if bad:
        yield _about(
            bad[0].line,
            "skipped",
            "warning",
            f"{_numbers(bad)}: {counted(sum(each.skipped or 0 for each in bad), 'step')} left out, as after an "
            "overflow of fp16, so that the time lacks the optimizer",
            "measure iterations that made their step: tuner measure --iterations",
        )


def _outliers(run: LogRun) -> Iterator[Finding]:
    """Iterations of one batch and sequence take one time, but for the first, which pays for warm-up."""
    alike: dict[tuple[int | None, int | None], list[Iteration]] = {}
    for iteration in run.iterations[1:]:
        if iteration.seconds:
            alike.setdefault((iteration.global_batch, iteration.seq), []).append(iteration)
    for own in alike.values():
        if len(own) < _FEWEST:
            continue
        logs = [math.log(each.seconds or 1.0) for each in own]
        usual = statistics.median(logs)
        spread = statistics.median(abs(value - usual) for value in logs)
        room = max(math.log1p(_OUTLIER), _SPREADS * spread)
        bad = [each for each, value in zip(own, logs, strict=True) if abs(value - usual) > room]
        if bad:
            worst = max(bad, key=lambda each: abs(math.log(each.seconds or 1.0) - usual))
            yield _about(
                bad[0].line,
                "outlier",
                "warning",
                f"{_numbers(bad)}: iteration {worst.number} took {worst.seconds:.4g} s, where the median of "
                f"{len(own)} is {math.exp(usual):.4g} s",
                "leave it out: tuner measure --iterations takes the median of those that you name",
            )


def _argument(run: LogRun, *names: str) -> int:
    """The first of the arguments that the run prints as a number, else 0."""
    values = (run.arguments.get(name, "") for name in names)
    return next((int(value) for value in values if re.fullmatch(r"[0-9]{1,9}", value)), 0)


def _numbers(iterations: Iterable[Iteration]) -> str:
    numbers = [each.number for each in iterations]
    return f"iteration{'s' if len(numbers) > 1 else ''} {listed(numbers, limit=8)}"


def _about(line: int, check: str, severity: Severity, message: str, suggestion: str) -> Finding:
    return Finding(row=None, line=line or None, check=check, severity=severity, message=message, suggestion=suggestion)
