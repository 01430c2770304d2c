"""What is known of seconds before any run, given how far the cost model and single runs are trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.calibration import Calibration, prior_deviations
from tuner.costmodel.residual_features import SHARED_VARIANCE, Features, covariance
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.search.constants import ELSEWHERE_DEVIATION, FORECAST_DEVIATION, OWN_DEVIATION, TERM_DEVIATIONS
from tuner.search.extrapolation import gap_covariance
from tuner.search.observations import Jobs, Observation, Trust

MIN_DEVIATION: Final = 1e-4
"""Deviation of a coefficient that is as good as known."""

FACTORS: Final = len(TIME_FACTORS) + len(TERM_DEVIATIONS)
"""Coefficients that may lie several times as far from the model's as assumed: site factors, and errors of terms."""

LEVELS: Final = 2
"""Coefficients besides these: the level of the model's error, and the offset from a calibration's rows."""


def moved(site: SiteFactors, coefficients: FloatArray) -> SiteFactors:
    """Return site factors with other time factors, whose logarithms are the first of the coefficients."""
    factors = zip(TIME_FACTORS, np.exp(coefficients).tolist(), strict=False)
    return replace(site, **dict(factors))


def logarithms(site: SiteFactors) -> FloatArray:
    """Return the logarithms of the time factors, and zeros for the other coefficients."""
    logs = np.log([getattr(site, name) for name in TIME_FACTORS])
    return np.concatenate([logs, np.zeros(FACTORS - len(logs) + LEVELS)])


def factor_deviations() -> FloatArray:
    """Return the assumed deviations of the factors, and of the errors of terms, whose slopes are in units of theirs."""
    return np.concatenate([prior_deviations(), np.ones(len(TERM_DEVIATIONS))])


@dataclass(frozen=True, kw_only=True, eq=False)
class TimePrior:
    """The prior of coefficients and residuals."""

    trust: Trust
    own: float
    """Variance of the residual that a candidate shares with no other."""
    mean: FloatArray
    """Of the coefficients: the catalog's factors, or those of a calibration without rows; 0 for others."""
    deviations: FloatArray
    """Of the coefficients."""

    @classmethod
    def of(cls, trust: Trust, assumed: Trust, calibration: Calibration, *, elsewhere: bool) -> TimePrior:
        """Return the prior under a trust; `assumed` is that before any job.

        `elsewhere` marks that the calibration's rows are from faster or slower machines.
        """
        offset = ELSEWHERE_DEVIATION if elsewhere else MIN_DEVIATION
        levels = [max(trust.level, MIN_DEVIATION), offset]
        return cls(
            trust=trust,
            own=(OWN_DEVIATION * assumed.unsure * trust.own) ** 2,
            mean=logarithms(calibration.site if calibration.known is None else SiteFactors()),
            deviations=np.concatenate([factor_deviations() * trust.factors, levels]),
        )

    @property
    def scale(self) -> float:
        """Variance of the shared residual beside that of the machines that the model was made for."""
        return self.trust.unsure**2

    @property
    def residual(self) -> float:
        """Variance of a candidate's whole residual."""
        return SHARED_VARIANCE * self.scale + self.own

    @property
    def apart(self) -> float:
        """Standard deviation of the difference of two candidates whose model errors are independent."""
        return math.sqrt(2 * self.residual)

    def noise(self, seen: Observation) -> float:
        """Return the variance of an observation's noise."""
        return max(FORECAST_DEVIATION, self.trust.repeat) ** 2 if seen.forecast else self.trust.repeat**2

    def fading(self, left: Features, right: Features) -> FloatArray:
        """Return the covariance of the residuals that candidates share."""
        return self.scale * covariance(left, right, self.trust.lengths)

    def covariance(self, left: Jobs, right: Jobs) -> FloatArray:
        """Return the covariance of the whole residuals of jobs, projected to full size."""
        own = self.own * np.equal.outer(left.candidates, right.candidates)
        return self.fading(left.features, right.features) + own + gap_covariance(left.sizes, right.sizes)
