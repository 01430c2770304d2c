"""The result of one micro batch, and lines through several: memory and time against batch size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

MIN_SLOWDOWN: Final = 0.15
"""Relative excess over the line through the two smaller batches above which a batch counts as slow."""

NEAR_LIMIT_SHARE: Final = 0.75
"""Fraction of the usable memory above which the allocator is a possible cause of a slow batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Least-squares line `bytes = at_zero + per_sample * batch`."""

    per_sample: float
    at_zero: float
    stderr: float | None
    """Standard error of the slope; None for two points."""
    points: int

    def at(self, batch: float) -> float:
        """Return the bytes of a batch."""
        return self.at_zero + self.per_sample * batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """A batch that takes longer than the line through the two smaller ones predicts."""

    micro_batch: int
    slower: float
    """Relative excess: 0.2 for 20% longer."""
    share: float | None
    """Fraction of the usable memory in use."""

    @property
    def near_limit(self) -> bool:
        """Whether the batch is so close to the limit that the allocator is a possible cause."""
        return self.share is not None and self.share >= NEAR_LIMIT_SHARE


def fitted(results: Iterable[BatchResult]) -> Fit | None:
    """Return the line through the memory of all batches that ran; None for fewer than two, or a falling line."""
    points = [
        (float(result.micro_batch), result.peak_memory) for result in results if result.fits and result.peak_memory
    ]
    count = len(points)
    mean_batch = sum(batch for batch, _ in points) / count if count else 0.0
    spread = sum((batch - mean_batch) ** 2 for batch, _ in points)
    if not spread:
        return None
    mean_memory = sum(memory for _, memory in points) / count
    slope = sum((batch - mean_batch) * (memory - mean_memory) for batch, memory in points) / spread
    if slope <= 0:
        return None
    at_zero = mean_memory - slope * mean_batch
    residual = sum((memory - at_zero - slope * batch) ** 2 for batch, memory in points)
    stderr = sqrt(residual / (count - 2) / spread) if count > 2 else None
    return Fit(per_sample=slope, at_zero=at_zero, stderr=stderr, points=count)


def pressures(results: Iterable[BatchResult], usable: float) -> list[Pressure]:
    """Return every batch that is slower by more than `MIN_SLOWDOWN` than the two smaller ones predict.

    Those of a pipeline are left out: the share of the bubble grows with the batch.
    """
    timed = sorted(
        (result.micro_batch, result.seconds, result.peak_memory)
        for result in results
        if result.fits and result.seconds and result.acc_steps is None
    )
    found = []
    for first, second, third in zip(timed, timed[1:], timed[2:], strict=False):
        slope = (second[1] - first[1]) / (second[0] - first[0])
        expected = second[1] + max(0.0, slope) * (third[0] - second[0])
        slower = third[1] / expected - 1
        if slower > MIN_SLOWDOWN:
            share = third[2] / usable if third[2] else None
            found.append(Pressure(micro_batch=third[0], slower=slower, share=share))
    return found


def ratio_at(claim: float, results: Sequence[BatchResult], digit: float) -> BatchResult | None:
    """Return the batch whose total memory per sample is `claim` bytes to its last digit: a ratio and not a slope."""
    close = [
        result
        for result in results
        if result.fits and result.peak_memory and abs(result.peak_memory / result.micro_batch - claim) <= 0.51 * digit
    ]
    return min(close, key=lambda result: abs((result.peak_memory or 0.0) / result.micro_batch - claim), default=None)


Source = Literal["estimate", "table", "jobs"]
"""The source of results: the cost model, a measured table, or jobs. One search has one source."""

BatchOutcome = Literal["MEASURED", "ESTIMATED", "OOM", "HUNG", "CRASHED", "TIMED_OUT", "CANCELLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The outcome of one micro batch."""

    micro_batch: int
    outcome: BatchOutcome
    peak_memory: float | None = None
    """Bytes; None for a batch that ran out of memory."""
    seconds: float | None = None
    """Duration of one accumulation step: of an iteration without accumulation, or an iteration's over its steps."""
    acc_steps: int | None = None
    """Accumulation steps of the iteration behind these figures, where a pipeline makes them depend on it."""
    evidence: str = ""

    @property
    def fits(self) -> bool:
        """Whether the batch ran."""
        return self.outcome in ("MEASURED", "ESTIMATED")

    @property
    def too_large(self) -> bool:
        """Whether the batch ran out of memory."""
        return self.outcome == "OOM"
