"""The legal topologies closest to one that was asked for."""

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
    "heads": 8.0,
    "hidden": 8.0,
    "layers": 8.0,
    "global_batch": 8.0,
}
"""What doubling or halving an axis counts for. What changes the trained model or its batch counts for most."""

_STEPS: Final = {"zero": 0.5, "recompute": 0.5, "sequence_parallel": 0.5}
"""What one step along an axis of choices counts for."""


_OFF_THE_WAY: Final = 8.0
"""How much dearer a step is on an axis that is not one of those to move along, where all of these count for 1."""


def nearest(space: Space, topology: Topology, *, most: int = 3, along: Collection[str] = ()) -> list[Topology]:
    """Up to `most` legal topologies, the closest first; ties go to the one that the grid numbers first.

    Steps on the axes in `along`, where some are named, are preferred to others.
    """
    asked = Columns.of([topology], space.workload, space.cluster)
    best_points: IntArray = np.empty(0, dtype=np.int64)
    best: FloatArray = np.empty(0)
    for points in space.blocks():
        best_points = np.concatenate([best_points, points])
        best = np.concatenate([best, distance(space.columns(points), asked, along=along)])
        keep = np.lexsort((best_points, best))[:most]
        best_points, best = best_points[keep], best[keep]
    return space.topologies(best_points)


def distance(columns: Columns, asked: Columns, *, along: Collection[str] = ()) -> FloatArray:
    """How far each row is from the one row of `asked`."""
    total = np.zeros(columns.nodes.shape)
    for name, weight in {**_DOUBLINGS, **_STEPS}.items():
        here, there = (side.arrays[name].astype(np.float64) for side in (columns, asked))
        steps = np.log2(here / there) if name in _DOUBLINGS else here - there
        total += np.abs(steps) * (_led(name, weight, along) if along else weight)
    return total


def _led(name: str, weight: float, along: Collection[str]) -> float:
    """A step's weight where some axes are to be moved along; dp follows, and comes along with any of them."""
    return 1.0 if name in along else weight * (1.0 if name == "dp" else _OFF_THE_WAY)
