"""Extrapolate a job at a reduced size to full size: the cost model's full estimate, corrected by the measurement.

    seconds(full) = model(full) x sum of w seconds(small) / model(small) x exp(gap)

Each batch that the job measures has a weight in `w`; they add up to 1. The gap is what the model may misjudge of the
terms whose share differs between the sizes, and of the data parallel degree. The weights make it least likely to matter
(generalised least squares), which with two batches amounts to extrapolating along the batch where that is called for.
They weigh seconds, not logarithms: what a batch costs besides its microbatches adds to its seconds, so that it drops
out however much the model misjudges it.
Similar topologies share most of it (`gap_covariance`): siblings at one size are off alike, and a topology that ran at
both sizes tells of the others' gaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from tuner.costmodel.time import seconds as model_seconds
from tuner.costmodel.time import time_terms
from tuner.search.constants import GROWTH_DEVIATIONS, HALVED_DP_DEVIATION, ITERATION_DEVIATION, TERM_DEVIATIONS

NETWORK_TERMS: Final = ("data_parallel", "pipeline", "sharding")
"""Terms that go over the network between nodes."""

_SITE: Final = SiteFactors()
"""The factors at which sizes are compared: those of the cost model before any calibration."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedSize:
    """A topology at a reduced size, with its full size."""

    full: Columns
    """One row."""
    small: Columns
    """One row for each batch that the job measures."""
    iterations: int = 1
    """Measured iterations of each batch."""
    _seconds: dict[SiteFactors, FloatArray] = field(default_factory=dict)
    """What `seconds` has returned: a search comes back to few points of linearisation."""

    @classmethod
    def of(
        cls, fidelity: Fidelity, topology: Topology, workload: Workload, cluster: Cluster, *, iterations: int = 1
    ) -> ReducedSize:
        """Return the sizes of a topology's jobs."""
        return cls(
            full=Columns.of([topology], workload, cluster),
            small=Columns.of(fidelity.topologies(topology), without_ramp(workload), cluster),
            iterations=iterations,
        )

    @cached_property
    def _full_terms(self) -> dict[str, FloatArray]:
        """The terms of the full size."""
        return time_terms(self.full, _SITE)

    @cached_property
    def _full_seconds(self) -> float:
        return float(sum(self._full_terms.values(), start=np.zeros(1))[0])

    @cached_property
    def _shares(self) -> tuple[FloatArray, FloatArray]:
        """The shares of the uncertain terms, of the full size and of each batch."""
        return term_shares(self._full_terms)[0], term_shares(time_terms(self.small, _SITE))

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of each batch; they add up to 1."""
        target, rows = self._shares
        inverse = np.linalg.inv(rows @ rows.T + self._noise * np.eye(len(rows)))
        weights, ones = inverse @ (rows @ target), inverse.sum(axis=1)
        found: FloatArray = weights + ones * (1 - weights.sum()) / ones.sum()
        return found

    @cached_property
    def gap(self) -> FloatArray:
        """By how much the gap follows what topologies share linearly, in standard deviations of it."""
        target, rows = self._shares
        return np.concatenate([self.weights @ rows - target, self.growth * GROWTH_DEVIATIONS])

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
        share = sum(float(self._full_terms[name][0]) for name in NETWORK_TERMS) / self._full_seconds
        ranks = np.log2((self.full.replica * self.full.dp)[0] / (self.small.replica * self.small.dp)[0])
        nodes = np.log2(self.full.nodes[0] / self.small.nodes[0])
        return np.array([ranks, nodes * share])

    @property
    def variance(self) -> float:
        """Variance of the extrapolation that no other topology shares, noise of whole runs left out."""
        return float(self._noise * (self.weights**2).sum())

    @property
    def _noise(self) -> float:
        """Variance of a job's measurement of a batch, without the noise of whole runs."""
        return ITERATION_DEVIATION**2 / self.iterations

    def projected(self, seconds: FloatArray) -> float:
        """Return the logarithm of the full size's seconds as extrapolated from these seconds of the batches.

        The full size, whose batch is larger, takes no less than any of them, unless the model expects it to.
        """
        expected, whole = self.seconds(_SITE), self._full_seconds
        least = float((seconds * np.minimum(1.0, whole / expected)).max())
        return math.log(max(whole * float(self.weights @ (seconds / expected)), least))

    def level(self, site: SiteFactors) -> float:
        """Return the cost model's prediction for the job, projected to the full size."""
        return self.projected(self.seconds(site))

    @cached_property
    def slopes(self) -> FloatArray:
        """How `level` follows the logarithm of each time factor."""
        slopes: FloatArray = self.weights @ slopes_of(self.small, _SITE, base=self.seconds(_SITE))
        return slopes

    def seconds(self, site: SiteFactors) -> FloatArray:
        """Return the seconds that the cost model expects of an iteration at each batch."""
        if site not in self._seconds:
            self._seconds[site] = model_seconds(self.small, site)
        return self._seconds[site]

    def need(self, site: SiteFactors) -> float:
        """Return the logarithm of the bytes that the job needs on its fullest GPU."""
        return float(np.log(worst_need(self.small, site).total).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedRun:
    """The measurement of a job at a reduced size."""

    size: ReducedSize
    seconds: tuple[float, ...] = ()
    """Of each batch; empty if it was not measured."""

    @property
    def log_seconds(self) -> float:
        """The logarithm of its seconds, projected to the full size."""
        return self.size.projected(np.array(self.seconds))


def term_shares(terms: Mapping[str, FloatArray]) -> FloatArray:
    """Return the share of each uncertain term in the whole, times its deviation; one row for each topology."""
    total = sum(terms.values(), start=np.zeros(()))
    shares = [terms.get(name, 0.0 * total) / total * deviation for name, deviation in TERM_DEVIATIONS.items()]
    found: FloatArray = np.stack(shares, axis=1)
    return found


def gap_covariance(left: Sequence[ReducedSize | None], right: Sequence[ReducedSize | None]) -> FloatArray:
    """Return how the gaps of two lists of sizes vary together; a full size (None) has none.

    A gap is the sum of what the model misjudges of the terms, of what grows with a job's size for all alike
    (stragglers, contention), and of what halving the data parallel degree does to topologies of similar degrees.
    """
    found = np.zeros((len(left), len(right)))
    rows, columns = ([index for index, size in enumerate(sizes) if size is not None] for sizes in (left, right))
    if rows and columns:
        own, other = [size for size in left if size is not None], [size for size in right if size is not None]
        together = np.stack([size.gap for size in own]) @ np.stack([size.gap for size in other]).T
        degrees, others = (np.stack([size.degrees for size in sizes]) for sizes in (own, other))
        apart = ((degrees[:, None, :] - others[None, :, :]) ** 2).sum(axis=2) / SHAPE_LENGTH_SCALE**2
        halvings = np.outer([size.halvings for size in own], [size.halvings for size in other])
        found[np.ix_(rows, columns)] = together + HALVED_DP_DEVIATION**2 * halvings * np.exp(-0.5 * apart)
    return found
