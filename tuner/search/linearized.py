"""The cost model of every candidate, linearized in the site factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tuner.core.columns import FloatArray, IntArray
from tuner.costmodel.residual_features import Features
from tuner.costmodel.site_factors import SiteFactors
from tuner.search.extrapolation import ReducedRun, ReducedSize
from tuner.search.observations import Observation


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearizedModel:
    """The cost model near one point of its site factors.

    log seconds(factors) = level + slopes x (factors - reference)
    """

    site: SiteFactors
    """The factors at which the cost model is evaluated."""
    reference: FloatArray
    """Their logarithms, and zeros for the other coefficients."""
    level: FloatArray
    """Logarithm of the seconds of each candidate."""
    slopes: FloatArray
    """By candidate and coefficient."""
    features: Features
    """Of each group of candidates."""
    group: IntArray
    """The group of each candidate."""
    _projected: dict[ReducedRun, float] = field(default_factory=dict)
    """Residual of each run at a reduced size."""

    def residual(self, seen: Observation) -> tuple[float, FloatArray, float]:
        """Return an observation's residual, its slopes, and the variance that a reduced size adds by itself."""
        run, candidate = seen.reduced, seen.candidate
        if run is None:
            seconds = np.log(seen.seconds or math.nan)
            return float(seconds - self.level[candidate]), self.slopes[candidate], 0.0
        if run not in self._projected:
            self._projected[run] = run.log_seconds - run.size.level(self.site)
        return self._projected[run], self.reduced_slopes(candidate, run.size), run.size.variance

    def reduced_slopes(self, candidate: int, size: ReducedSize) -> FloatArray:
        """Return the slopes of a candidate at a reduced size."""
        return np.append(size.slopes, self.slopes[candidate][len(size.slopes) :])
