"""Lines through what was seen: memory against batch, time against batch, and what leaves them.

What came of one micro batch, whoever says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

SLOWER: Final = 0.15
"""By which share a batch must be slower than the line through the two before it to be told."""

NEAR: Final = 0.75
"""Share of what a process can have of the card from which on the allocator is the likely cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Bytes against samples, by least squares."""

    per_sample: float
    at_zero: float
    stderr: float | None
    """Of the slope; two points have none."""
    points: int

    def at(self, batch: float) -> float:
        """Bytes with so many samples."""
        return self.at_zero + self.per_sample * batch

    def largest(self, room: float) -> float:
        """Samples that fill `room` bytes, as the line has it."""
        return (room - self.at_zero) / self.per_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """A batch that takes longer than the line through the two before it."""

    micro_batch: int
    slower: float
    """By which share."""
    share: float | None
    """Of the usable memory that it fills."""

    @property
    def near_limit(self) -> bool:
        """Whether it is the allocator that is short of memory, by all that can be seen."""
        return self.share is not None and self.share >= NEAR


def fitted(seen: Iterable[BatchResult]) -> Fit | None:
    """The line through the memory of all that ran; None where fewer than two batches show theirs, or it falls."""
    points = [(float(each.micro_batch), each.peak_memory) for each in seen if each.fits and each.peak_memory]
    count = len(points)
    middle = sum(batch for batch, _ in points) / count if count else 0.0
    spread = sum((batch - middle) ** 2 for batch, _ in points)
    if not spread:
        return None
    level = sum(memory for _, memory in points) / count
    slope = sum((batch - middle) * (memory - level) for batch, memory in points) / spread
    if slope <= 0:
        return None
    at_zero = level - slope * middle
    left = sum((memory - at_zero - slope * batch) ** 2 for batch, memory in points)
    stderr = sqrt(left / (count - 2) / spread) if count > 2 else None
    return Fit(per_sample=slope, at_zero=at_zero, stderr=stderr, points=count)


def pressures(seen: Iterable[BatchResult], usable: float) -> list[Pressure]:
    """Every batch that is slower by more than `SLOWER` than the two before it make expect."""
    timed = sorted((each.micro_batch, each.seconds, each.peak_memory) for each in seen if each.fits and each.seconds)
    found = []
    for first, second, third in zip(timed, timed[1:], timed[2:], strict=False):
        slope = (second[1] - first[1]) / (second[0] - first[0])
        expected = second[1] + max(0.0, slope) * (third[0] - second[0])
        slower = third[1] / expected - 1
        if slower > SLOWER:
            share = third[2] / usable if third[2] else None
            found.append(Pressure(micro_batch=third[0], slower=slower, share=share))
    return found


def ratio_at(claim: float, seen: Sequence[BatchResult], digit: float) -> BatchResult | None:
    """The batch whose whole memory over its samples is `claim` bytes to its last digit, which is not a slope."""
    close = [
        each
        for each in seen
        if each.fits and each.peak_memory and abs(each.peak_memory / each.micro_batch - claim) <= 0.51 * digit
    ]
    return min(close, key=lambda each: abs((each.peak_memory or 0.0) / each.micro_batch - claim), default=None)


Source = Literal["estimate", "table", "jobs"]
"""Who says so: the model, a measured table, or jobs that ran. Never mixed in one search."""

Word = Literal["MEASURED", "ESTIMATED", "OOM", "HUNG", "CRASHED", "TIMED_OUT", "CANCELLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """One micro batch and what came of it."""

    micro_batch: int
    outcome: Word
    peak_memory: float | None = None
    """Bytes; of one that ran out of memory there is none."""
    seconds: float | None = None
    """Of one iteration without accumulation."""
    evidence: str = ""

    @property
    def fits(self) -> bool:
        """Whether it ran."""
        return self.outcome in ("MEASURED", "ESTIMATED")

    @property
    def too_large(self) -> bool:
        """Whether memory was the reason, and nothing else."""
        return self.outcome == "OOM"
