"""What a job at a reduced size says of the full one: the cost model's full estimate, corrected by what was measured.

    log seconds(full) = log model(full) + w (log seconds(small) - log model(small)) + gap

Each batch that the job measures has a weight in `w`; they add up to 1. The gap is what the model may misjudge of the
terms whose share differs between the sizes, and of the data parallel degree. The weights make it least likely to matter
(generalised least squares), which with two batches amounts to extrapolating along the batch where that is called for.
What similar topologies share of the gap is learnt from those that ran at both sizes (`Offset`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.fidelity import Fidelity, without_ramp
from tuner.costmodel.calibration import slopes_of
from tuner.costmodel.constants import SHAPE_LENGTH_SCALE
from tuner.costmodel.memory import worst_need
from tuner.costmodel.residual_features import Features
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds, time_terms
from tuner.search.constants import GROWTH_DEVIATIONS, HALVED_DP_DEVIATION, ITERATION_DEVIATION, TERM_DEVIATIONS

NETWORK_TERMS: Final = ("data_parallel", "pipeline", "sharding")
"""Terms that go over the network between nodes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedSize:
    """A topology at a reduced size, beside its full size."""

    full: Columns
    """One row."""
    small: Columns
    """One row for each batch that the job measures."""
    _seconds: dict[SiteFactors, FloatArray] = field(default_factory=dict)
    """What `seconds` has returned: a search comes back to few points of linearisation."""

    @classmethod
    def of(cls, fidelity: Fidelity, topology: Topology, workload: Workload, cluster: Cluster) -> ReducedSize:
        """Return the sizes of a topology's jobs."""
        return cls(
            full=Columns.of([topology], workload, cluster),
            small=Columns.of(fidelity.topologies(topology), without_ramp(workload), cluster),
        )

    @cached_property
    def _gap(self) -> tuple[FloatArray, float]:
        """The weights of the batches, and the variance of the gap."""
        site = SiteFactors()
        full, small = (_shares(columns, site) for columns in (self.full, self.small))
        target, rows = full[0], small
        together = rows @ rows.T + ITERATION_DEVIATION**2 * np.eye(len(rows))
        with_target = rows @ target
        inverse = np.linalg.inv(together)
        weights: FloatArray = inverse @ with_target
        ones = inverse.sum(axis=1)
        weights = weights + ones * (1 - weights.sum()) / ones.sum()
        return weights, float(target @ target - 2 * weights @ with_target + weights @ together @ weights)

    @cached_property
    def halvings(self) -> float:
        """How often the data parallel degree is halved."""
        return float(np.log2(self.full.dp[0] / self.small.dp[0]))

    @cached_property
    def degrees(self) -> FloatArray:
        """Where the full size lies among topologies, in doublings."""
        found: FloatArray = Features.of(self.full).smooth[0]
        return found

    @cached_property
    def growth(self) -> FloatArray:
        """What a shared offset grows with: doublings of ranks, and of nodes times the share of the network's terms."""
        terms = time_terms(self.full, SiteFactors())
        share = sum(float(terms[name][0]) for name in NETWORK_TERMS) / sum(float(term[0]) for term in terms.values())
        ranks = np.log2((self.full.replica * self.full.dp)[0] / (self.small.replica * self.small.dp)[0])
        nodes = np.log2(self.full.nodes[0] / self.small.nodes[0])
        return np.array([ranks, nodes * share])

    @property
    def weights(self) -> FloatArray:
        """The weight of each batch; they add up to 1."""
        return self._gap[0]

    @property
    def variance(self) -> float:
        """Variance of the gap that no other topology shares, noise of whole runs left out."""
        return self._gap[1]

    def level(self, site: SiteFactors) -> float:
        """Return the weighted logarithm of the seconds that the cost model expects of the job."""
        return float(self.weights @ np.log(self.seconds(site)))

    @cached_property
    def slopes(self) -> FloatArray:
        """How `level` follows the logarithm of each time factor."""
        slopes: FloatArray = self.weights @ slopes_of(self.small, SiteFactors())
        return slopes

    def seconds(self, site: SiteFactors) -> FloatArray:
        """Return the seconds that the cost model expects of an iteration at each batch."""
        if site not in self._seconds:
            self._seconds[site] = seconds(self.small, site)
        return self._seconds[site]

    def need(self, site: SiteFactors) -> float:
        """Return the logarithm of the bytes that the job needs on its fullest GPU."""
        return float(np.log(worst_need(self.small, site).total).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedRun:
    """What a job at a reduced size measured."""

    size: ReducedSize
    seconds: tuple[float, ...] = ()
    """Of each batch; empty where it was not measured."""

    @property
    def log_seconds(self) -> float:
        """The weighted logarithm of its seconds."""
        return float(self.size.weights @ np.log(self.seconds))


def _shares(columns: Columns, site: SiteFactors) -> FloatArray:
    """Return the share of each uncertain term in the whole, times its deviation; one row for each of the columns."""
    terms = time_terms(columns, site)
    total = sum(terms.values(), start=np.zeros(len(columns.tp)))
    shares = [terms[name] / total * deviation for name, deviation in TERM_DEVIATIONS.items() if name in terms]
    found: FloatArray = np.stack(shares, axis=1)
    return found


class Offset:
    """The part of the gap that topologies share, learnt from those that were measured at both sizes.

    It is the sum of what grows with a job's size for all alike (linear in `ReducedSize.growth`: stragglers, contention)
    and of what halving the data parallel degree does to topologies of similar degrees, both with a Gaussian prior.
    """

    def __init__(self) -> None:
        self._prior = np.diag(GROWTH_DEVIATIONS) ** 2
        self._sizes: list[ReducedSize] = []
        self._gaps: FloatArray = np.zeros(0)
        self._precision: FloatArray = np.zeros((0, 0))

    def learn(self, sizes: Sequence[ReducedSize], gaps: Sequence[float], variances: Sequence[float]) -> None:
        """Replace what was learnt by that of these pairs: what each took beyond its extrapolation, in logarithms."""
        self._sizes, self._gaps = list(sizes), np.array(gaps)
        own = np.array([[self._halved(one, other) + self._grown(one, other) for other in sizes] for one in sizes])
        self._precision = np.linalg.inv(own + np.diag(variances))

    def of(self, size: ReducedSize) -> tuple[float, float]:
        """Return mean and variance of the offset of a size."""
        across = np.array([self._halved(size, other) + self._grown(size, other) for other in self._sizes])
        alone = self._halved(size, size) + self._grown(size, size)
        return float(across @ self._precision @ self._gaps), float(alone - across @ self._precision @ across)

    def deviation(self, size: ReducedSize) -> float:
        """Return the standard deviation of an extrapolation, but for what grows with all jobs alike."""
        across = np.array([self._halved(size, other) for other in self._sizes])
        halved = self._halved(size, size) - float(across @ self._precision @ across)
        return float(np.sqrt(size.variance + halved))

    def _grown(self, one: ReducedSize, other: ReducedSize) -> float:
        return float(one.growth @ self._prior @ other.growth)

    def _halved(self, one: ReducedSize, other: ReducedSize) -> float:
        apart = float(((one.degrees - other.degrees) ** 2).sum()) / SHAPE_LENGTH_SCALE**2
        return HALVED_DP_DEVIATION**2 * one.halvings * other.halvings * float(np.exp(-0.5 * apart))
