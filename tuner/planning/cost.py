"""What a topology is expected to take, beside another one, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Estimate
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.flops import hardware_flops, per_gpu
from tuner.costmodel.memory import limit, worst_need
from tuner.space.nearest import distance
from tuner.space.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyCost:
    """One topology as the model sees it."""

    topology: Topology
    estimate: Estimate
    seconds: float
    low: float
    high: float
    """Between them 80% of measurements are expected."""
    memory: float
    limit: float
    """Bytes that its worst stage needs, and that a process can have of the card."""
    stage: int
    """The worst stage, from 0."""
    out_of_memory: float
    flops: float
    """FLOP/s of each GPU in use, recompute included."""
    training: float
    """Seconds until the workload's tokens are trained on."""

    @property
    def fits(self) -> bool:
        """Whether running is likelier than running out of memory."""
        return self.out_of_memory < 0.5


def cost(space: Space, topology: Topology, model: CostModel) -> TopologyCost:
    """What the model expects of a topology, legal or not."""
    return cost_of(space.workload, space.cluster, topology, model)


def cost_of(workload: Workload, cluster: Cluster, topology: Topology, model: CostModel) -> TopologyCost:
    """The same for a workload on a cluster."""
    columns = Columns.of([topology], workload, cluster)
    scores, (low, high) = model.score(columns), model.interval(columns)
    return TopologyCost(
        topology=topology,
        estimate=model.estimates(columns)[0],
        seconds=float(scores.seconds[0]),
        low=float(low[0]),
        high=float(high[0]),
        memory=float(scores.memory[0]),
        limit=limit(columns),
        stage=int(worst_need(columns, model.calibration.site).stage[0]),
        out_of_memory=float(scores.out_of_memory[0]),
        flops=float(per_gpu(hardware_flops(columns), scores.seconds, columns)[0]),
        training=float(scores.training[0]),
    )


def difference(ours: TopologyCost, other: TopologyCost) -> list[tuple[str, float]]:
    """By term, the seconds that `other` takes more than `ours`, the largest change first; they add up."""
    terms = ours.estimate.time.terms
    changes = [(name, other.estimate.time.terms[name] - seconds) for name, seconds in terms.items()]
    return sorted((change for change in changes if change[1]), key=lambda change: -abs(change[1]))


def fitting_neighbours(space: Space, topology: Topology, model: CostModel, *, most: int = 3) -> list[TopologyCost]:
    """The legal topologies that fit and differ least from one that does not, the fastest first among equals."""
    one = Columns.of([topology], space.workload, space.cluster)
    found: list[tuple[float, float, int]] = []
    for points in space.blocks():
        columns = space.columns(points)
        scores = model.score(columns)
        far = np.where(scores.fits, distance(columns, one), np.inf)
        first = np.lexsort((scores.seconds, far))[:most]
        found += [(float(far[at]), float(scores.seconds[at]), int(points[at])) for at in first if np.isfinite(far[at])]
    nearest = np.array([point for _, _, point in sorted(found)[:most]], dtype=np.int64)
    return [cost(space, near, model) for near in space.topologies(nearest)] if len(nearest) else []
