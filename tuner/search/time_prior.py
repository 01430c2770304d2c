"""What is known of seconds before any run, given how far the cost model and single runs are trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.calibration import Calibration, prior_deviations
from tuner.costmodel.residual_features import SHARED_VARIANCE, SMOOTH, Features, covariance
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.search.constants import ELSEWHERE_DEVIATION, FORECAST_DEVIATION, OWN_DEVIATION
from tuner.search.extrapolation import gap_covariance
from tuner.search.observations import Jobs, Observation, Trust

TRENDS: Final = tuple(SMOOTH.index(name) for name in ("tp", "pp", "micro_batch"))
"""Columns of the smooth features along which the model's error may grow or shrink steadily."""

TREND_MIDDLE: Final = (1.5, 2.0, 1.0)
"""Doublings where a trend is zero: the middle of tp 1 to 8, pp 1 to 16 and micro batch 1 to 4, whatever the pool, so
that a report, which reads the topologies that were tried, believes what the search did."""

LEAST_TREND: Final = 1e-4
"""Deviation of a trend that is as good as none."""

STEADY: Final = len(TRENDS) + 2
"""Coefficients besides the factors: trends and level of the model's error, and the offset from a calibration's rows."""


def trends_of(features: Features) -> FloatArray:
    """Return the doublings of `TRENDS` from their middle."""
    trends: FloatArray = features.smooth[:, TRENDS] - TREND_MIDDLE
    return trends


def moved(site: SiteFactors, coefficients: FloatArray) -> SiteFactors:
    """Return site factors with other time factors, whose logarithms are the first of the coefficients."""
    factors = zip(TIME_FACTORS, np.exp(coefficients).tolist(), strict=False)
    return replace(site, **dict(factors))


def logarithms(site: SiteFactors) -> FloatArray:
    """Return the logarithms of the time factors, and zeros for the other coefficients."""
    return np.append(np.log([getattr(site, name) for name in TIME_FACTORS]), np.zeros(STEADY))


@dataclass(frozen=True, kw_only=True, eq=False)
class TimePrior:
    """The prior of coefficients and residuals."""

    trust: Trust
    own: float
    """Variance of the residual that a candidate shares with no other."""
    mean: FloatArray
    """Of the coefficients: the catalog's factors, or those of a calibration without rows; 0 for trends and levels."""
    deviations: FloatArray
    """Of the coefficients."""

    @classmethod
    def of(cls, trust: Trust, assumed: Trust, calibration: Calibration, *, elsewhere: bool) -> TimePrior:
        """Return the prior under a trust; `assumed` is that before any job.

        `elsewhere` marks that the calibration's rows are from faster or slower machines.
        """
        trend = max(trust.trend, LEAST_TREND)
        offset = ELSEWHERE_DEVIATION if elsewhere else LEAST_TREND
        steady = [*np.full(len(TRENDS), trend), max(trust.level, LEAST_TREND), offset]
        return cls(
            trust=trust,
            own=(OWN_DEVIATION * assumed.unsure * trust.own) ** 2,
            mean=logarithms(calibration.site if calibration.known is None else SiteFactors()),
            deviations=np.concatenate([prior_deviations() * trust.factors, steady]),
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
