"""Residuals of observations, at full or reduced size, relative to the cost model."""

from __future__ import annotations

import math

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.site_factors import SiteFactors
from tuner.search.observations import Observation, Trust
from tuner.search.reduced import ReducedRun, ReducedSize


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
    _observations: list[Observation]

    def modelled(self, candidate: int) -> float:
        """Return the seconds that the cost model alone expects, at the factors of `reference_site`."""
        return math.exp(float(self._level[candidate]))

    def _residual(self, seen: Observation) -> tuple[float, FloatArray, float]:
        """Return an observation's residual, its slopes, and the variance that a reduced size adds by itself."""
        run, candidate = seen.reduced, seen.candidate
        if run is None:
            seconds = np.log(seen.seconds or math.nan)
            return float(seconds - self._level[candidate]), self._slopes[candidate], 0.0
        if run not in self._sizes:
            self._sizes[run] = run.log_seconds - run.size.level(self.reference_site)
        return self._sizes[run], self._reduced_slopes(candidate, run.size), run.size.variance

    def _reduced_slopes(self, candidate: int, size: ReducedSize) -> FloatArray:
        """Return the slopes of a candidate at a reduced size."""
        return np.append(size.slopes, self._slopes[candidate][len(size.slopes) :])
