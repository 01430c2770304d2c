"""Which topologies of a very large space a search considers: the most promising, and some of every region.

Time and memory of each topology are taken at the optimistic end of what the cost model expects, block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from tuner.core.columns import AXES, Columns, FloatArray, IntArray, chunked
from tuner.core.offload import OFFLOAD
from tuner.core.recompute import RECOMPUTE
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import memory_deviation
from tuner.costmodel.flops import equal_iterations
from tuner.costmodel.memory import limit, worst_need
from tuner.costmodel.normal import CERTAIN, below
from tuner.costmodel.time import seconds
from tuner.search.constants import MAX_CANDIDATES, MEMORY_MARGIN, OPTIMISM, SAMPLED_CANDIDATES
from tuner.space.space import Space

_RADIX: Final = 1 << 12
"""More than any degree of tp, pp, cp or ep in use."""
_KERNELS: Final = len(RECOMPUTE) * 2 * 2 * len(OFFLOAD)
"""Number of combinations of recompute, sequence parallelism, full sharding or not, and offload."""


class Selection(NamedTuple):
    """The points of a space that a search considers."""

    points: IntArray
    """In ascending order."""
    values: Mapping[str, IntArray] | None
    """What each column may be in the whole space, where only some of its points are selected."""


def selected(
    space: Space,
    blocks: Iterable[IntArray],
    calibration: Calibration | None = None,
    *,
    most: int = MAX_CANDIDATES,
    sampled: int = SAMPLED_CANDIDATES,
) -> Selection:
    """Return the points of a space, given in blocks, that a search considers.

    Of more than `most` points these are the best by `bound`, and among the others `sampled` ones: the best of each
    region, then the second best of each, and so on.
    """
    waiting: list[IntArray] = []
    kept = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64))
    values: dict[str, IntArray] = {}
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) > most:
            kept, waiting = _thinned(_joined(space, waiting, kept, values, calibration), most, sampled), []
    if not values:
        return Selection(np.concatenate([kept[0], *waiting]), None)
    return Selection(_thinned(_joined(space, waiting, kept, values, calibration), most, sampled)[0], values)


def bound(columns: Columns, calibration: Calibration | None = None) -> FloatArray:
    """Return the logarithm of the least seconds of training that are credible, up to what all have in common.

    Memory is taken at `OPTIMISM` standard deviations below its expectation, and what is then unlikely to fit counts as
    longer by the probability of fitting. All deviations of time are alike and change no order.
    """
    known = calibration or Calibration()
    deviation = float(np.hypot(memory_deviation(columns, known), MEMORY_MARGIN[1]))
    needs = [worst_need(chunk, known.site).total for chunk in chunked([columns])]
    beyond = np.log(np.concatenate(needs) / limit(columns)) + MEMORY_MARGIN[0]
    beyond = beyond / deviation - OPTIMISM
    unlikely = np.maximum(0.0, beyond - CERTAIN) - np.log(np.maximum(below(-beyond), _MIN_CHANCE))
    longest: FloatArray = np.log(seconds(columns, known.site) * equal_iterations(columns)) + unlikely
    return longest


_MIN_CHANCE: Final = 1e-19
"""Of fitting, at `CERTAIN` deviations."""

_Scored = tuple[IntArray, FloatArray, IntArray]
"""Points, their bounds and their regions."""


def _joined(
    space: Space,
    blocks: Iterable[IntArray],
    kept: _Scored,
    values: dict[str, IntArray],
    calibration: Calibration | None,
) -> _Scored:
    """Score the blocks, append them to the kept ones, and record the values of their columns."""
    scored = [kept]
    open_axes = {axis for axis in AXES if len(space.axes[axis]) > 1}
    names = [name for name in Columns.names if ("shape" if name in ("hidden", "layers") else name) in open_axes]
    for block in blocks:
        columns = space.columns(block)
        scored.append((block, bound(columns, calibration), _region(columns)))
        for name in names:
            found = np.flatnonzero(np.bincount(columns.arrays[name]))
            values[name] = np.union1d(values[name], found) if name in values else found
    points, bounds, regions = (np.concatenate(parts) for parts in zip(*scored, strict=True))
    return points, bounds, regions


def _region(columns: Columns) -> IntArray:
    """Return a number for each way to split the model with each set of kernels."""
    split = ((columns.tp * _RADIX + columns.pp) * _RADIX + columns.cp) * _RADIX + columns.ep
    kernel = (columns.recompute * 2 + columns.sequence_parallel) * 2 + (columns.zero == 3)
    region: IntArray = split * _KERNELS + kernel * len(OFFLOAD) + columns.offload
    return region


def _thinned(scored: _Scored, most: int, sampled: int) -> _Scored:
    """Keep the best, and of each region the best among the others."""
    points, bounds, regions = scored
    if len(points) <= most:
        return scored
    best, others = np.split(np.argpartition(bounds, most - sampled), [most - sampled])
    by_region = others[np.lexsort((points[others], bounds[others], regions[others]))]
    first = np.flatnonzero(np.diff(regions[by_region], prepend=regions[by_region[0]] - 1))
    rank = np.arange(len(by_region)) - np.repeat(first, np.diff(first, append=len(by_region)))
    sample = by_region[np.lexsort((bounds[by_region], rank))[:sampled]]
    rows = np.sort(np.concatenate([best, sample]))
    return points[rows], bounds[rows], regions[rows]
