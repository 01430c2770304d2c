"""Three strategies to find the largest micro batch that runs; each requests one batch after the other.

All assume that where a batch fits, every smaller one does. Batches are numbered along a grid: `low` is the index of the
largest that is known to run, `high` that of the smallest known to run out of memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tuner.core.errors import InputError
from tuner.sizing.fit import BatchResult, fitted

Strategy = Generator[int, BatchResult, None]
"""Yields indices of the grid, receives their results, and ends when the limit lies between two neighbours."""

MAX_PREDICTIONS: Final = 4
"""Predictions by the line before the search falls back to bisection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGrid:
    """The batches to try, in ascending order, and how the search proceeds through them."""

    batches: Sequence[int]
    start: int = 1
    """The first batch to try, rounded down to the grid."""
    increment: int = 16
    """Increment of `ramp`."""
    room: float = inf
    """Usable bytes, where known: the limit that the line is compared with."""
    lost: float = 0.0
    """Fraction by which memory per sample exceeds the measured peaks."""
    beside: float = 0.0
    """Bytes needed beyond the measured peaks, at every batch."""

    def __post_init__(self) -> None:
        if not len(self.batches):
            raise InputError("no batch to try; raise --most, or lower --step.")

    @property
    def top(self) -> int:
        """The last index."""
        return len(self.batches) - 1

    def index(self, batch: float) -> int:
        """Return the index of the largest batch that does not exceed this one; 0 if all do."""
        return max(0, bisect_right(self.batches, batch) - 1)


@dataclass(slots=True)
class BatchBounds:
    """The bounds of the limit while a strategy runs."""

    grid: BatchGrid
    low: int = -1
    high: int = 0

    def __post_init__(self) -> None:
        self.high = self.grid.top + 1

    @property
    def found(self) -> bool:
        """Whether the limit lies between two neighbours."""
        return self.high - self.low <= 1

    def update(self, index: int, result: BatchResult) -> None:
        """Narrow the bounds by a result."""
        if result.fits:
            self.low = max(self.low, index)
        else:
            self.high = min(self.high, index)

    def clamp(self, index: int) -> int:
        """Return the nearest index inside the bounds."""
        return min(max(index, self.low + 1), self.high - 1)

    def bisected(self) -> int:
        """Return the next index of a bisection: double while no batch has run out of memory."""
        if self.high <= self.grid.top:
            return (self.low + self.high) // 2
        return self.clamp(self.grid.index(2 * self.grid.batches[self.low]))


def bisect(grid: BatchGrid) -> Strategy:
    """Double until a batch runs out of memory, then bisect."""
    bounds = BatchBounds(grid)
    index = grid.index(grid.start)
    while not bounds.found:
        bounds.update(index, (yield index))
        index = bounds.bisected()


def ramp(grid: BatchGrid) -> Strategy:
    """Increment from the start until a batch runs out of memory, halving a start that does; then bisect.

    The procedure of the E1 report, without batches that are known to run.
    """
    bounds = BatchBounds(grid)
    index = grid.index(grid.start)
    while not bounds.found:
        bounds.update(index, (yield index))
        batch = grid.batches[index]
        if bounds.low < 0:
            index = bounds.clamp(grid.index(batch // 2))
        elif bounds.high > grid.top:
            index = bounds.clamp(grid.index(batch + grid.increment))
        else:
            index = bounds.bisected()


def model(grid: BatchGrid) -> Strategy:
    """Predict the limit by the line through all runs, then run the predicted batch and the next one.

    Each miss corrects the line; after `MAX_PREDICTIONS`, or without memory figures, bisect.
    """
    bounds, predictions = BatchBounds(grid), 0
    results: list[BatchResult] = []
    index = grid.index(grid.start)
    while not bounds.found:
        result = yield index
        results.append(result)
        bounds.update(index, result)
        if bounds.low < 0:
            index = bounds.clamp(grid.index(grid.batches[index] // 2))
        elif predictions < MAX_PREDICTIONS and (line := fitted(results)):
            room = (grid.room - grid.beside - line.at_zero) / (line.per_sample * (1 + grid.lost))
            index = bounds.clamp(max(grid.index(room), bounds.low + 1))
            predictions += 1
        else:
            index = bounds.bisected()


STRATEGIES: Final[Mapping[str, Callable[[BatchGrid], Strategy]]] = {"model": model, "bisect": bisect, "ramp": ramp}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSearch:
    """The attempts of a search."""

    attempts: tuple[BatchResult, ...]
    """In chronological order."""
    stopped: BatchResult | None = None
    """The attempt that ended the search by failing for another cause than memory."""
    open_end: bool = False
    """Whether the largest batch of the grid ran, so that a larger one may run too."""

    @property
    def largest(self) -> int:
        """Return the largest micro batch that ran; 0 if none did."""
        return max((result.micro_batch for result in self.attempts if result.fits), default=0)

    @property
    def smallest_failed(self) -> int | None:
        """Return the smallest micro batch that ran out of memory."""
        return min((result.micro_batch for result in self.attempts if result.too_large), default=None)


def look_for(strategy: str, grid: BatchGrid, probe: Callable[[int], BatchResult]) -> BatchSearch:
    """Run a strategy with `probe` until the limit is found.

    A batch that fails for another cause than memory is tried once more; if it fails again, the search ends.
    """
    attempts: list[BatchResult] = []
    search = STRATEGIES[strategy](grid)
    try:
        index = next(search)
        while True:
            result = probe(grid.batches[index])
            attempts.append(result)
            if not (result.fits or result.too_large):
                result = probe(grid.batches[index])
                attempts.append(result)
            if not (result.fits or result.too_large):
                return BatchSearch(attempts=tuple(attempts), stopped=result)
            index = search.send(result)
    except StopIteration:
        pass
    top = grid.batches[grid.top]
    return BatchSearch(
        attempts=tuple(attempts), open_end=any(result.fits and result.micro_batch == top for result in attempts)
    )
