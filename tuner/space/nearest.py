"""Find the legal topologies closest to a given one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import Topology
from tuner.space.space import Space

_DOUBLINGS: Final = {
    "tp": 1.0,
    "pp": 1.0,
    "dp": 1.0,
    "micro_batch": 1.0,
    "vpp": 1.0,
    "cp": 1.0,
    "nodes": 1.0,
    "hsdp": 1.0,
    "ep": 1.0,
    "etp": 1.0,
    "heads": 8.0,
    "hidden": 8.0,
    "layers": 8.0,
    "global_batch": 8.0,
}
"""Cost of doubling or halving an axis; changes of the trained model or its batch cost most."""

_STEPS: Final = dict.fromkeys(("zero", "recompute", "sequence_parallel", "offload", "dispatcher", "moe_overlap"), 0.5)
"""Cost of one step along an axis of choices."""


_UNPREFERRED_FACTOR: Final = 8.0
"""Cost multiplier of axes that are not preferred; each step on a preferred axis costs 1."""


def nearest(space: Space, topology: Topology, *, most: int = 3, along: Collection[str] = ()) -> list[Topology]:
    """Return up to `most` legal topologies, closest first; ties are in grid order.

    Steps on the axes in `along`, if any, are preferred to others.
    """
    target = Columns.of([topology], space.workload, space.cluster)
    best_points: IntArray = np.empty(0, dtype=np.int64)
    best: FloatArray = np.empty(0)
    for points in space.blocks():
        best_points = np.concatenate([best_points, points])
        best = np.concatenate([best, distance(space.columns(points), target, along=along)])
        keep = np.lexsort((best_points, best))[:most]
        best_points, best = best_points[keep], best[keep]
    return space.topologies(best_points)


def distance(columns: Columns, asked: Columns, *, along: Collection[str] = ()) -> FloatArray:
    """Return the distance of each row from the only row of `asked`."""
    total = np.zeros(columns.nodes.shape)
    for name, weight in {**_DOUBLINGS, **_STEPS}.items():
        total += _steps(name, columns, asked) * (_step_cost(name, weight, along) if along else weight)
    return total


def _steps(name: str, columns: Columns, asked: Columns) -> FloatArray:
    """Return how far each row is on an axis: in doublings, or in places of the choice."""
    if name == "recompute":  # another set of modules is half a place away
        places = np.abs(columns.granularity - asked.granularity)
        steps: FloatArray = np.where(places, places, 0.5 * (columns.modules != asked.modules))
    else:
        values, target = (side.arrays[name].astype(np.float64) for side in (columns, asked))
        steps = np.abs(np.log2(values / target) if name in _DOUBLINGS else values - target)
    return steps


def _step_cost(name: str, weight: float, along: Collection[str]) -> float:
    """Return the cost of a step when some axes are preferred; dp, being derived, is not penalized."""
    return 1.0 if name in along else weight * (1.0 if name == "dp" else _UNPREFERRED_FACTOR)
