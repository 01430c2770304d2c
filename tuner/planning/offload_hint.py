"""Whether a plan would be faster with the optimizer in main memory, by the fastest topologies that need it to fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import Topology
from tuner.core.frameworks import record_of
from tuner.core.offload import Offload
from tuner.core.quantity import GIB
from tuner.costmodel.estimate import CostModel, Scores
from tuner.space.rules.quantities import host_bytes, stepped
from tuner.space.space import Space

_VALUES: Final[tuple[Offload, ...]] = ("optimizer-50", "optimizer")
_KEPT: Final = 500
"""Topologies that are tried with offload."""
_STATE_BYTES: Final = 12.0
"""Bytes of a parameter that leave a GPU: Adam's moments and an fp32 weight."""
_WORTH: Final = 0.95
"""Time over that without offload from which offload is worth a search."""


class OffloadHint:
    """Collects the topologies of a space that offload may let fit, and compares the fastest with the plan's first."""

    def __init__(self, space: Space) -> None:
        record = record_of(space.workload)
        known = () if record is None or space.cluster.gpu.is_host else record.offload.value
        self._space = space
        self._values = [value for value in _VALUES if value in known and space.axes["offload"] == ("none",)]
        self._points: IntArray = np.empty(0, dtype=np.int64)
        self._training: FloatArray = np.empty(0)

    def add(self, block: IntArray, columns: Columns, scores: Scores) -> None:
        """Keep those topologies of a block that fit only without the optimizer's states."""
        if not self._values:
            return
        left = scores.memory - _STATE_BYTES * stepped(columns)
        tight = ~scores.fits & (left < columns.cluster.gpu.memory) & (columns.zero > 0)
        self._points = np.concatenate([self._points, block[tight]])
        self._training = np.concatenate([self._training, scores.training[tight]])
        if len(self._points) > 2 * _KEPT:
            first = np.argpartition(self._training, _KEPT)[:_KEPT]
            self._points, self._training = self._points[first], self._training[first]

    def words(self, first: float, expected: float, model: CostModel) -> str:
        """Return what offload would gain over the first row.

        Both are seconds of the first row's training, the second divided by the probability of fitting.
        """
        space = self._space
        tried: list[Topology] = [
            replace(topology, offload=value)
            for topology in space.topologies(self._points[self._training < _WORTH * first])
            for value in self._values
        ]
        if not tried:
            return ""
        columns = Columns.of(tried, space.workload, space.cluster)
        scores = model.score(columns)
        training = scores.training
        legal = ~np.any([rule.broken_rows(columns) for rule in space.rules.in_force(space.workload)], axis=0)
        better = np.flatnonzero(legal & scores.fits & (training < _WORTH * first))
        risky = training[better] / (1 - scores.out_of_memory[better])
        if not np.any(risky <= expected):
            return ""
        best = int(better[np.argmin(risky)])
        needed = float(host_bytes(columns)[best]) / GIB
        return (
            f"--set offload={','.join(('none', *self._values))} also tries to keep the optimizer in main memory: "
            f"{tried[best].key} would take {1 - training[best] / first:.0%} less time than the first row, and "
            f"{needed:,.0f} GiB of a node's main memory."
        )
