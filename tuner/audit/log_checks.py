"""Check a training log against its own arguments, its rates and its other iterations."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tuner.audit.repair import Finding, Severity
from tuner.core.text import counted, listed
from tuner.logs import Iteration, LogRun

_MAX_RATE_ERROR: Final = 0.01
"""Tolerance of samples per second against batch / time, for rounding."""
_MIN_OUTLIER: Final = 0.10
_OUTLIER_SPREADS: Final = 8.0
"""An outlier is 10% off the median, and this many times the median distance from it."""
_MIN_ITERATIONS: Final = 5
"""Fewer iterations do not define an outlier."""


UNEXPLAINED_TFLOPS: Final = "no known formula, sequence length or batch explains the difference"


class Contradiction(NamedTuple):
    """The TFLOPs that a log prints for an iteration, and those that its time gives."""

    iteration: int
    printed: float
    counted: float
    reason: str
    """The known formula or mistake that gives the printed figure; else empty."""


def audit_run(run: LogRun, rates: Sequence[Contradiction] = ()) -> list[Finding]:
    """Return everything in one run of a log that is impossible or distorts its measurement, by line."""
    found = [*_degrees(run), *_batch(run), *_tflops(run, rates), *_samples(run), *_losses(run)]
    found += [*_skipped(run), *_outliers(run)]
    return sorted(found, key=lambda finding: finding.line or 0)


def _degrees(run: LogRun) -> Iterator[Finding]:
    """The printed degrees multiply to the printed world size."""
    pipeline = "pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"
    degrees = [_argument(run, *names) or 1 for names in (("tensor_model_parallel_size",), pipeline)]
    degrees.append(_argument(run, "context_parallel_size") or 1)
    world, dp = _argument(run, "world_size"), _argument(run, "data_parallel_size")
    if not world or not dp or math.prod(degrees) * dp == world:
        return
    words = " x ".join(f"{name}({size})" for name, size in zip(("tp", "pp", "cp", "dp"), (*degrees, dp), strict=True))
    yield _about(
        line=run.line,
        check="degrees",
        severity="error",
        message=f"its arguments give {words} = {math.prod(degrees) * dp} GPUs, but a world size of {world}",
        suggestion="check how many processes were started; TFLOPs per GPU depend on it",
    )


def _batch(run: LogRun) -> Iterator[Finding]:
    """The global batch is a multiple of micro_batch x dp."""
    batch = _argument(run, "global_batch_size", "train_batch_size")
    micro = _argument(run, "micro_batch_size", "train_micro_batch_size_per_gpu")
    dp = _argument(run, "data_parallel_size")
    if batch and micro and dp and batch % (micro * dp):
        message = f"its batch of {batch} is not a multiple of micro_batch x dp = {micro} x {dp} = {micro * dp}"
        yield _about(
            line=run.line,
            check="batch",
            severity="error",
            message=message,
            suggestion="check all three; the program would have refused them",
        )


def _tflops(run: LogRun, rates: Sequence[Contradiction]) -> Iterator[Finding]:
    """TFLOPs are the FLOPs of an iteration over its time; each deviation is reported once."""
    lines = {iteration.number: iteration.line for iteration in run.iterations}
    by_reason: dict[str, list[Contradiction]] = {}
    for rate in rates:
        by_reason.setdefault(rate.reason, []).append(rate)
    for reason, alike in by_reason.items():
        first = alike[0]
        more = f" (and in {len(alike) - 1} more)" if len(alike) > 1 else ""
        yield _about(
            line=lines[first.iteration],
            check="tflops",
            severity="advice" if reason else "error",
            message=f"iteration {first.iteration}{more} prints {first.printed:,g} TFLOPs, but its time gives "
            f"{first.counted:,.2f}: {reason or UNEXPLAINED_TFLOPS}",
            suggestion=f"tflops={first.counted:.2f}; use this figure to compare with other runs",
        )


def _samples(run: LogRun) -> Iterator[Finding]:
    """Samples per second x seconds equal the batch."""
    usual = _argument(run, "global_batch_size", "train_batch_size")
    off = []
    for iteration in run.iterations:
        batch = iteration.global_batch or usual
        if batch and iteration.seconds and iteration.samples_per_second:
            ratio = iteration.samples_per_second * iteration.seconds / batch
            tolerance = _MAX_RATE_ERROR + 0.5 * iteration.seconds_digit / iteration.seconds
            if abs(ratio - 1) > tolerance:
                off.append((iteration, batch, ratio))
    if off:
        iteration, batch, ratio = off[0]
        yield _about(
            line=iteration.line,
            check="samples",
            severity="error",
            message=f"{_numbers(one for one, _, _ in off)}: {iteration.samples_per_second:g} samples per second x "
            f"{iteration.seconds:.6g} s are {ratio * batch:.4g} samples, but the batch is {batch}",
            suggestion="check the batch, and the seconds against the timestamps",
        )


def _losses(run: LogRun) -> Iterator[Finding]:
    """The loss is a number."""
    bad = [one for one in run.iterations if one.loss is not None and math.isnan(one.loss)]
    if bad:
        yield _about(
            line=bad[0].line,
            check="loss",
            severity="error",
            message=f"{_numbers(bad)}: the loss is NaN",
            suggestion="the times are usable, but nothing was trained: lower the learning rate or train in bf16",
        )


def _skipped(run: LogRun) -> Iterator[Finding]:
    """Every iteration makes its optimizer step; a skipped step shortens the iteration."""
    bad = [one for one in run.iterations if one.skipped]
    if bad:
        yield _about(
            line=bad[0].line,
            check="skipped",
            severity="warning",
            message=f"{_numbers(bad)}: {counted(sum(one.skipped or 0 for one in bad), 'step')} skipped, as after an "
            "fp16 overflow, so the time lacks the optimizer",
            suggestion="measure other iterations: tuner measure --iterations",
        )


def _outliers(run: LogRun) -> Iterator[Finding]:
    """Iterations of equal batch and sequence take equal time, except the first, which includes warm-up."""
    alike: dict[tuple[int | None, int | None], list[Iteration]] = {}
    for iteration in run.iterations[1:]:
        if iteration.seconds:
            alike.setdefault((iteration.global_batch, iteration.seq), []).append(iteration)
    for group in alike.values():
        if len(group) < _MIN_ITERATIONS:
            continue
        logs = [math.log(one.seconds or 1.0) for one in group]
        usual = statistics.median(logs)
        spread = statistics.median(abs(value - usual) for value in logs)
        tolerance = max(math.log1p(_MIN_OUTLIER), _OUTLIER_SPREADS * spread)
        bad = [one for one, value in zip(group, logs, strict=True) if abs(value - usual) > tolerance]
        if bad:
            prefix = f"{_numbers(bad)}: " if len(bad) > 1 else ""
            worst = max(bad, key=lambda one: abs(math.log(one.seconds or 1.0) - usual))
            yield _about(
                line=bad[0].line,
                check="outlier",
                severity="warning",
                message=f"{prefix}iteration {worst.number} took {worst.seconds:.4g} s, but the median of "
                f"{len(group)} is {math.exp(usual):.4g} s",
                suggestion="exclude it: tuner measure --iterations measures the median of those you list",
            )


def _argument(run: LogRun, *names: str) -> int:
    """Return the first of the arguments that the run prints as a number, else 0."""
    values = (run.arguments.get(name, "") for name in names)
    return next((int(value) for value in values if re.fullmatch(r"[0-9]{1,9}", value)), 0)


def _numbers(iterations: Iterable[Iteration]) -> str:
    numbers = [one.number for one in iterations]
    return f"iteration{'s' if len(numbers) > 1 else ''} {listed(numbers, limit=8)}"


def _about(*, line: int, check: str, severity: Severity, message: str, suggestion: str) -> Finding:
    return Finding(row=None, line=line or None, check=check, severity=severity, message=message, suggestion=suggestion)
