"""The predicted cost of a topology, its difference from another, and its nearest neighbours that fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Estimate
from tuner.core.text import DAY
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import limit
from tuner.space.nearest import distance
from tuner.space.rules import RULES
from tuner.space.space import Space

FITTING_NEIGHBOURS: Final = 3
"""The most topologies that are proposed instead of one that does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyCost:
    """One topology, legal or not, with everything that is known without running it."""

    topology: Topology
    heads: int
    microbatches: int
    bubble: float
    """Idle share of an iteration on a pipeline stage, by the schedule alone."""
    advice: tuple[str, ...]
    """Names of the advice that it does not follow."""
    estimate: Estimate
    """Time and memory by term."""
    seconds: float
    """Predicted seconds per iteration."""
    low: float
    high: float
    """Bounds of the interval that contains 80% of measurements."""
    memory: float
    """Bytes needed on the fullest pipeline stage."""
    limit: float
    """Bytes that a process can use on the GPU."""
    stage: int
    """The fullest pipeline stage, from 0."""
    out_of_memory: float
    """Probability of running out of memory."""
    flops: float
    """FLOP/s per GPU in use, recompute included."""
    mfu: float
    """Model FLOPs utilization, recompute excluded."""
    hfu: float
    """Hardware FLOPs utilization, recompute included."""
    training: float
    """Seconds until the training is finished at equal compute."""

    @property
    def days(self) -> float:
        """Days until the training is finished at equal compute."""
        return self.training / DAY

    @property
    def fits(self) -> bool:
        """Whether fitting is more likely than running out of memory."""
        return self.out_of_memory < 0.5


def impossible(rows: Iterable[TopologyCost]) -> str:
    """Return a sentence if a row executes more FLOPs than the GPU's peak allows; empty if none does."""
    worst = max(rows, key=lambda row: row.hfu, default=None)
    if worst is None or worst.hfu <= 1:
        return ""
    return (
        f"{worst.topology.key} is estimated at HFU {worst.hfu:.1%}, MFU {worst.mfu:.1%}; above 100% of the GPU's peak "
        "is impossible: check the calibration and the GPU."
    )


def cost(space: Space, topology: Topology, model: CostModel) -> TopologyCost:
    """Return the predicted cost of one topology, legal or not."""
    return cost_of(space.workload, space.cluster, topology, model)


def cost_of(workload: Workload, cluster: Cluster, topology: Topology, model: CostModel) -> TopologyCost:
    """Return the predicted cost of one topology of a workload on a cluster."""
    return costs([topology], Columns.of([topology], workload, cluster), model)[0]


def costs(topologies: Sequence[Topology], columns: Columns, model: CostModel) -> list[TopologyCost]:
    """Return the predicted cost of every topology; `columns` has one row for each."""
    scores = model.score(columns)
    low, high = scores.interval
    idle, usable = bubble(columns), limit(columns)
    advice = [rule for rule in RULES if rule.level == "advice" and rule.binding(columns.workload)]
    ignored = [(rule.name, rule.broken_rows(columns)) for rule in advice]
    return [
        TopologyCost(
            topology=topology,
            heads=int(columns.heads[row]),
            microbatches=int(columns.microbatches[row]),
            bubble=float(idle[row]),
            advice=tuple(name for name, broken in ignored if broken[row]),
            estimate=scores.estimate(row),
            seconds=float(scores.seconds[row]),
            low=float(low[row]),
            high=float(high[row]),
            memory=float(scores.memory[row]),
            limit=usable,
            stage=int(scores.stage[row]),
            out_of_memory=float(scores.out_of_memory[row]),
            flops=float(scores.flops[row]),
            mfu=float(scores.mfu[row]),
            hfu=float(scores.flops[row]) / columns.cluster.gpu.peak_flops[columns.workload.precision],
            training=float(scores.training[row]),
        )
        for row, topology in enumerate(topologies)
    ]


def bubble(columns: Columns) -> FloatArray:
    """Return the idle share of an iteration on a pipeline stage: (pp - 1) / (vpp x microbatches + pp - 1).

    Narayanan et al. 2021, arXiv 2104.04473, section 2.2, as a share of the iteration and not of the ideal time.
    """
    waits = columns.pp - 1
    idle: FloatArray = waits / (columns.vpp * columns.microbatches + waits)
    return idle


def difference(first: TopologyCost, other: TopologyCost) -> list[tuple[str, float]]:
    """Return the seconds by term that `other` takes more than `first`, largest change first; they add up."""
    before, after = first.estimate.time.terms, other.estimate.time.terms
    changes = [(name, after.get(name, 0.0) - before.get(name, 0.0)) for name in {**before, **after}]
    return sorted((change for change in changes if change[1]), key=lambda change: -abs(change[1]))


def fitting_neighbours(space: Space, topology: Topology, model: CostModel) -> list[TopologyCost]:
    """Return the legal topologies that fit in memory and differ least from this one, the faster first when tied."""
    one = Columns.of([topology], space.workload, space.cluster)
    found: list[tuple[float, float, int]] = []
    for points in space.blocks():
        columns = space.columns(points)
        scores = model.score(columns)
        steps = np.where(scores.fits, distance(columns, one), np.inf)
        first = np.lexsort((scores.seconds, steps))[:FITTING_NEIGHBOURS]
        found += [
            (float(steps[row]), float(scores.seconds[row]), int(points[row]))
            for row in first
            if np.isfinite(steps[row])
        ]
    nearest = np.array([point for _, _, point in sorted(found)[:FITTING_NEIGHBOURS]], dtype=np.int64)
    return costs(space.topologies(nearest), space.columns(nearest), model) if len(nearest) else []
