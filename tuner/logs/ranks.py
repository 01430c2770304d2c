"""Merge the lines that several ranks print about one iteration."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tuner.logs.records import Iteration

_SAME_TIME: Final = 0.02
"""Relative difference up to which the times of two lines can be those of one iteration on two ranks."""
_REPORTED: Final = (
    *("tflops", "tflops_digit", "global_batch", "samples_per_second", "seq", "loss", "memory_share"),
    *("skipped", "tokens_per_second", "tokens_per_second_per_gpu", "clock", "stamp"),
)


def starts_new_run(
    iteration: Iteration, known: Iteration | None, last: int, *, labelled: bool, own_losses: bool = False
) -> bool:
    """Whether an iteration belongs to another run than the current one of its rank.

    A label may stand for several ranks: `[default7]` is the last one of every node. With `own_losses`, ranks may print
    losses of their own samples.
    """
    if known is not None and not _same_loss(known, iteration) and not (own_losses and iteration.number >= last):
        return True
    if iteration.number > last or (iteration.number == last and not labelled):
        return False
    return known is None or not _same_time(known, iteration)


def _same_time(one: Iteration, other: Iteration) -> bool:
    if not one.seconds or not other.seconds:
        return one.samples_per_second == other.samples_per_second
    return abs(one.seconds / other.seconds - 1) <= _SAME_TIME


def _same_loss(one: Iteration, other: Iteration) -> bool:
    if one.loss is None or other.loss is None or math.isnan(one.loss) or math.isnan(other.loss):
        return True
    return one.loss == other.loss


def merged(known: Iteration, other: Iteration) -> Iteration:
    """Merge two ranks' lines of one iteration; the slower rank determines the time."""
    slow, fast = sorted((known, other), key=_slowness, reverse=True)
    found = {name: _either(slow, fast, name) for name in _REPORTED}
    fastest = min(each.seconds / (1 + each.spread) for each in (slow, fast) if each.seconds) if slow.seconds else None
    spread = slow.seconds / fastest - 1 if slow.seconds and fastest else 0.0
    return replace(slow, **found, spread=spread, line=min(slow.line, fast.line))  # type: ignore[arg-type]


def _slowness(iteration: Iteration) -> tuple[float, ...]:
    """Return a sort key for the slower of two lines, independent of their order."""
    rate = iteration.samples_per_second or iteration.tokens_per_second or iteration.tokens_per_second_per_gpu or 0.0
    return (iteration.seconds or 0.0, -rate, iteration.tflops or 0.0, *(getattr(iteration, n) or 0 for n in _REPORTED))


def _either(slow: Iteration, fast: Iteration, name: str) -> object:
    value = getattr(slow, name)
    return getattr(fast, name) if value is None else value
