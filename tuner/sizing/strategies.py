"""Three ways to find the largest micro batch that runs. Each asks for one batch after the other and is told the answer.

All rest on one law: where a batch fits, every smaller one does. Batches are numbered along a lattice; `low` is the
place of the largest that is known to run, `high` that of the smallest known to run out of memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tuner.core.errors import InputError
from tuner.sizing.fit import BatchResult, fitted

Asks = Generator[int, BatchResult, None]
"""Yields places of the lattice, receives what came of them, and ends when the limit is between two neighbours."""

PREDICTIONS: Final = 4
"""Times that the line is asked before halves are taken instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGrid:
    """The batches that may be tried, ascending, and how the search goes through them."""

    batches: Sequence[int]
    start: int = 1
    """The first to try; the largest on the lattice that does not exceed it."""
    increment: int = 16
    """What `ramp` adds."""
    room: float = inf
    """Bytes that may be used, as far as they are known: where the line is held against."""
    lost: float = 0.0
    """Share of what grows with the batch that is needed beside what the peaks show."""
    beside: float = 0.0
    """Bytes needed beside what the peaks show, whatever the batch."""

    def __post_init__(self) -> None:
        if not len(self.batches):
            raise InputError("there is no batch to try; widen --step and --most.")

    @property
    def top(self) -> int:
        """The last place."""
        return len(self.batches) - 1

    def place(self, batch: float) -> int:
        """The place of the largest batch that does not exceed this one; the first where all do."""
        return max(0, bisect_right(self.batches, batch) - 1)


@dataclass(slots=True)
class BatchBounds:
    """What is known of the limit while a strategy runs."""

    lattice: BatchGrid
    low: int = -1
    high: int = 0

    def __post_init__(self) -> None:
        self.high = self.lattice.top + 1

    @property
    def found(self) -> bool:
        """Whether the limit lies between two neighbours."""
        return self.high - self.low <= 1

    def learn(self, place: int, seen: BatchResult) -> None:
        """Take in an answer."""
        if seen.fits:
            self.low = max(self.low, place)
        else:
            self.high = min(self.high, place)

    def inside(self, place: int) -> int:
        """The nearest place that is still open."""
        return min(max(place, self.low + 1), self.high - 1)


def bisect(lattice: BatchGrid) -> Asks:
    """Doubled until one runs out of memory, then halved between the two."""
    known = BatchBounds(lattice)
    place = lattice.place(lattice.start)
    while not known.found:
        known.learn(place, (yield place))
        if known.high <= lattice.top:
            place = (known.low + known.high) // 2
        else:
            place = known.inside(lattice.place(2 * lattice.batches[place]))


def ramp(lattice: BatchGrid) -> Asks:
    """From the start by increments until one runs out of memory; a start that does is halved; then refined.

    The E1 report's. Where an increment has found a batch that runs, its half is known to run and is not tried.
    """
    known = BatchBounds(lattice)
    place = lattice.place(lattice.start)
    while not known.found:
        known.learn(place, (yield place))
        batch = lattice.batches[place]
        if known.low < 0:
            place = known.inside(lattice.place(batch // 2))
        elif known.high > lattice.top:
            place = known.inside(lattice.place(batch + lattice.increment))
        else:
            place = (known.low + known.high) // 2


def model(lattice: BatchGrid) -> Asks:
    """The line through the first two runs predicts the limit; that and one above are run.

    What a prediction misses moves the line; after a few, and where nobody shows memory, halves are taken.
    """
    known, asked = BatchBounds(lattice), 0
    seen: list[BatchResult] = []
    place = lattice.place(lattice.start)
    while not known.found:
        answer = yield place
        seen.append(answer)
        known.learn(place, answer)
        if known.low < 0:
            place = known.inside(lattice.place(lattice.batches[place] // 2))
        elif asked < PREDICTIONS and (line := fitted(seen)):
            room = (lattice.room - lattice.beside - line.at_zero) / (line.per_sample * (1 + lattice.lost))
            place = known.inside(max(lattice.place(room), known.low + 1))  # one above what is confirmed
            asked += 1
        else:
            place = _onward(known)


def _onward(known: BatchBounds) -> int:
    """Double while nothing has run out of memory, else the middle."""
    lattice = known.lattice
    if known.high <= lattice.top:
        return (known.low + known.high) // 2
    return known.inside(lattice.place(2 * lattice.batches[known.low]))


STRATEGIES: Final[Mapping[str, Callable[[BatchGrid], Asks]]] = {"model": model, "bisect": bisect, "ramp": ramp}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where a search has come to."""

    attempts: tuple[BatchResult, ...]
    """In the order in which they were made."""
    stopped: BatchResult | None = None
    """The attempt that failed for another cause than memory, and ended the search."""
    open_end: bool = False
    """Whether the largest batch of the lattice ran, so that a larger one might."""

    @property
    def largest(self) -> int:
        """The largest micro batch that ran; 0 where none did."""
        return max((each.micro_batch for each in self.attempts if each.fits), default=0)

    @property
    def smallest_failed(self) -> int | None:
        """The smallest that ran out of memory."""
        return min((each.micro_batch for each in self.attempts if each.too_large), default=None)


def look_for(strategy: str, lattice: BatchGrid, probe: Callable[[int], BatchResult]) -> Found:
    """Let a strategy ask and `probe` answer until the limit is found.

    A failure that is not for want of memory says nothing of the limit: that batch is tried once more, and if it fails
    again the search ends there.
    """
    attempts: list[BatchResult] = []
    asks = STRATEGIES[strategy](lattice)
    try:
        place = next(asks)
        while True:
            answer = probe(lattice.batches[place])
            attempts.append(answer)
            if not (answer.fits or answer.too_large):
                answer = probe(lattice.batches[place])
                attempts.append(answer)
            if not (answer.fits or answer.too_large):
                return Found(attempts=tuple(attempts), stopped=answer)
            place = asks.send(answer)
    except StopIteration:
        pass
    top = lattice.batches[lattice.top]
    return Found(attempts=tuple(attempts), open_end=any(each.fits and each.micro_batch == top for each in attempts))
