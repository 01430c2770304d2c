"""What a search for the largest batch comes to: the limit, the line, a safe batch, and what each batch is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tuner.sizing.fit import BatchResult, Fit, Pressure, Source, fitted, pressures
from tuner.sizing.strategies import Found

DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchThroughput:
    """One batch in a training."""

    micro_batch: int
    step_batch: int
    """Sequences of all ranks together, without accumulation."""
    acc_steps: int
    """Steps that reach the global batch."""
    exact: bool
    """Whether they reach it exactly."""
    tokens_per_second: float | None
    days: float | None
    """Until the training's tokens are read, accumulation taken for free of its own cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxBatchResult:
    """The whole answer."""

    source: Source
    strategy: str
    found: Found
    fit: Fit | None
    pressures: tuple[Pressure, ...]
    card: float
    """Bytes as the data sheet has them."""
    usable: float
    """Of them, what a process can have."""
    safe: int
    margin: float
    worth: tuple[BatchThroughput, ...]

    @property
    def peak(self) -> float | None:
        """Bytes that the largest batch has shown."""
        return next(
            (each.peak_memory for each in self.found.attempts if each.fits and each.micro_batch == self.found.largest),
            None,
        )


def worth_of(seen: BatchResult, *, dp: int, seq: int, global_batch: int | None, tokens: float) -> BatchThroughput:
    """What a batch is worth, by its own time."""
    step = seen.micro_batch * dp
    steps = ceil(global_batch / step) if global_batch else 1
    rate = step * seq / seen.seconds if seen.seconds else None
    return BatchThroughput(
        micro_batch=seen.micro_batch,
        step_batch=step,
        acc_steps=steps,
        exact=not global_batch or global_batch % step == 0,
        tokens_per_second=rate,
        days=tokens / rate / DAY if rate else None,
    )


def answer(
    found: Found,
    *,
    source: Source,
    strategy: str,
    batches: Sequence[int],
    card: float,
    usable: float,
    margin: float,
    dp: int,
    seq: int,
    global_batch: int | None,
    tokens: float,
) -> MaxBatchResult:
    """Put a search's attempts together.

    A batch is safe where its memory, by the line, is less by the margin than what is known to be too much: what the
    smallest batch that failed would have shown, and never more than the card.
    """
    line = fitted(found.attempts)
    failed, ran = found.smallest_failed, [each for each in found.attempts if each.fits]
    ceiling = min(usable, line.at(failed)) if line and failed else usable
    safe = found.largest
    if line:
        room = (1 - margin) * ceiling
        safe = max((batch for batch in batches if batch <= found.largest and line.at(batch) <= room), default=0)
    unique = {each.micro_batch: each for each in sorted(ran, key=lambda each: each.micro_batch)}
    return MaxBatchResult(
        source=source,
        strategy=strategy,
        found=found,
        fit=line,
        pressures=() if source == "estimate" else tuple(pressures(unique.values(), usable)),
        card=card,
        usable=usable,
        safe=safe,
        margin=margin,
        worth=tuple(
            worth_of(each, dp=dp, seq=seq, global_batch=global_batch, tokens=tokens) for each in unique.values()
        ),
    )
