"""The residuals of observations: how far what was measured, at full or at a reduced size, is from the cost model."""

from __future__ import annotations

import math

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.site_factors import SiteFactors
from tuner.search.observations import Observation, Trust
from tuner.search.reduced import Offset, ReducedRun, ReducedSize


class Residuals:
    """The cost model's seconds and slopes at one point of linearisation."""

    reference_site: SiteFactors
    """The factors at which the cost model was evaluated last."""
    trust: Trust
    _level: FloatArray
    """Logarithm of the seconds of each candidate."""
    _slopes: FloatArray
    _sizes: dict[ReducedRun, float]
    """Residual of each run at a reduced size."""
    _offset: Offset
    _observations: list[Observation]

    def modelled(self, candidate: int) -> float:
        """Return the seconds that the cost model alone expects, at the factors of `reference_site`."""
        return math.exp(float(self._level[candidate]))

    def extrapolated(self, candidate: int, run: ReducedRun) -> float:
        """Return the seconds of the full size: those that the model expects, times measured over expected."""
        residual = run.log_seconds - run.size.level(self.reference_site)
        return self.modelled(candidate) * math.exp(residual + self._offset.of(run.size)[0])

    def extrapolation_deviation(self, size: ReducedSize) -> float:
        """Return the standard deviation that a reduced size adds to the logarithm of the full size's seconds."""
        return self._offset.deviation(size)

    def _residual(self, seen: Observation) -> tuple[float, FloatArray, float]:
        """Return an observation's residual, its slopes, and the variance that a reduced size adds."""
        run, candidate = seen.reduced, seen.candidate
        if run is None:
            seconds = np.log(seen.seconds or math.nan)
            return float(seconds - self._level[candidate]), self._slopes[candidate], 0.0
        if run not in self._sizes:
            self._sizes[run] = run.log_seconds - run.size.level(self.reference_site)
        offset, variance = self._offset.of(run.size)
        slopes = np.append(run.size.slopes, self._slopes[candidate][len(run.size.slopes) :])
        return self._sizes[run] + offset, slopes, run.size.variance + variance

    def _pairs(self, seen: Observation) -> bool:
        """Whether an observation is of a topology that was measured at both sizes."""
        own = [other for other in self._observations if other.candidate == seen.candidate and other.timed]
        return seen.timed and len({other.reduced is None for other in own}) == 2

    def _learn_offset(self) -> None:
        """Learn from all topologies that were measured at both sizes."""
        sizes, gaps, variances = [], [], []
        for small in self._observations:
            if small.reduced is None or not small.timed:
                continue
            full = [
                self._residual(other)[0]
                for other in self._observations
                if (other.candidate, other.period) == (small.candidate, small.period) and other.seconds is not None
            ]
            if full:
                size, noise = small.reduced.size, self.trust.repeat**2
                sizes.append(size)
                gaps.append(float(np.mean(full)) - (small.reduced.log_seconds - size.level(self.reference_site)))
                variances.append(size.variance + noise * (1 + 1 / len(full)))
        if gaps:
            self._offset.learn(sizes, gaps, variances)
