"""Calibration: a cluster's own measurements fit ten factors under priors, and a residual with its uncertainty.

    log seconds = log model(factors) + residual + noise

Rows share the residual by speed period, kernel, shape and cliff. Factors and residual are one Gaussian fit: the factors
explain what all rows have in common along the model's slopes, the residual the rest. Without rows both stay at their
priors. Outliers are down-weighted. The residual's scale and length, the noise and the width of the links' priors are
averaged over (`residual_average`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Cluster, Workload
from tuner.costmodel.constants import MEMORY_DEVIATION, NOISE_DEVIATION
from tuner.costmodel.framework_terms import is_estimated_alike
from tuner.costmodel.memory_calibration import MeasuredMemory, weigh
from tuner.costmodel.residual_average import ResidualFit, averaged_fits, bases_of, mean_factors
from tuner.costmodel.residual_features import UNSEEN, Features, Likeness, covariance, joined
from tuner.costmodel.site_factors import PRIOR, TIME_FACTORS, SiteFactors
from tuner.costmodel.time import seconds

ROUNDS: Final = 5
AVERAGES: Final = 2
"""Times that the average over scales, lengths and noise is taken, each at the factors of the one before."""
STEP: Final = 0.02
MAX_NOISE: Final = 2.5
"""Standard deviations beyond which a row's noise is taken for larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRows:
    """Measured rows of one workload and cluster."""

    columns: Columns
    seconds: FloatArray
    period: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The factors of a cluster with their covariance, and the measured rows with their residuals."""

    site: SiteFactors = field(default_factory=SiteFactors)
    spread: FloatArray = field(default_factory=lambda: np.diag(prior_deviations() ** 2), repr=False)
    """Covariance of the logarithms of the time factors."""
    known: Features | None = field(default=None, repr=False)
    slopes: FloatArray = field(default_factory=lambda: np.zeros((0, len(TIME_FACTORS))), repr=False)
    """Of each remembered row, how the logarithm of its seconds follows those of the factors."""
    residual: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)
    noise: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)
    """Variance of each remembered row by itself."""
    period: str = ""
    """The default speed period of estimates."""
    memory_deviation: float = MEMORY_DEVIATION
    """Standard deviation of the logarithm of a GPU's memory."""
    weighed: int = 0
    """Runs whose memory the factors have seen."""
    simulated: bool = False
    """Whether some of the runs were invented by the simulated cluster."""
    measured_on: frozenset[tuple[str, str]] = frozenset()
    """GPU and framework of the runs, an unknown framework being empty; empty without any run."""

    @property
    def is_unplaced(self) -> bool:
        """Whether factors were measured on a GPU that is not recorded."""
        return not self.measured_on and self.site != SiteFactors()

    def elsewhere(self, workload: Workload, cluster: Cluster) -> bool:
        """Return whether all runs were measured on another GPU, one that is not recorded, or in another framework.

        Runs whose framework is not known were estimated as if nothing overlapped. Kernels have no framework.
        """
        by_kernels = self.known is None and not self.weighed
        every = by_kernels or workload.framework is None
        return (bool(self.measured_on) or self.is_unplaced) and not any(
            gpu == cluster.gpu.name and (every or is_estimated_alike(workload.framework, framework))
            for gpu, framework in self.measured_on
        )

    def correction(self, across: Likeness) -> FloatArray:
        """Return the factor on the modelled seconds of rows that are so like the measured ones."""
        found: Any = across.shared @ sum(self._weights.values())
        for length, weights in self._weights.items():
            found = found + across.near(length) @ weights
        factor: FloatArray = np.exp(found)
        return factor

    def deviation(self, features: Features, slopes: FloatArray, across: Likeness | None) -> FloatArray:
        """Return the standard deviation of the logarithm of each row's measurement around its prediction."""
        variance: Any
        if across is None:
            variance = np.full(len(features), UNSEEN**2) + ((slopes @ self.spread) * slopes).sum(axis=1)
        else:
            bases = {fit.length: fit.basis for fit in self._fits}
            rotated = {length: basis @ across.covariance(length).T for length, basis in bases.items()}
            weights = np.array([fit.weight for fit in self._fits])
            predictions = [fit.prediction(slopes, rotated[fit.length]) for fit in self._fits]
            means, variances = (np.stack(part) for part in zip(*predictions, strict=True))
            variance = weights @ (variances + (means - weights @ means) ** 2)
        deviation: FloatArray = np.sqrt(np.maximum(variance, NOISE_DEVIATION**2))
        return deviation

    @cached_property
    def _weights(self) -> dict[float, FloatArray]:
        """By length, the averages of the weights of the measured rows in a residual."""
        found: dict[float, FloatArray] = {}
        for fit in self._fits:
            own = fit.weight * fit.weights_of(self.residual)
            found[fit.length] = found.get(fit.length, np.zeros(len(own))) + own
        return found

    @cached_property
    def _fits(self) -> list[ResidualFit]:
        assert self.known is not None  # noqa: S101 - for the type checker; callers have asked
        factors = np.log([getattr(self.site, name) for name in TIME_FACTORS])
        measured = self.residual + self.slopes @ factors
        bases = bases_of(self.known, self.noise)
        return averaged_fits(bases, self.slopes, measured, prior_deviations())


def calibrate(rows: Sequence[MeasuredRows], weighed: Sequence[MeasuredMemory] = ()) -> Calibration:
    """The calibration that the rows support; with none, the priors."""
    timed = _timed(rows) if sum(len(part.seconds) for part in rows) else Calibration()
    site, deviation = weigh(weighed, timed.site)
    runs = sum(int((part.fitted | part.failed).sum()) for part in weighed)
    parts = [*(part.columns for part in rows), *(part.columns for part in weighed)]
    measured_on = frozenset((part.cluster.gpu.name, part.workload.framework or "") for part in parts)
    return replace(timed, site=site, memory_deviation=deviation, weighed=runs, measured_on=measured_on)


def _timed(rows: Sequence[MeasuredRows]) -> Calibration:
    """Factors and residual of time."""
    known = joined([Features.of(part.columns, part.period) for part in rows])
    measured = np.log(np.concatenate([part.seconds for part in rows]))
    together = covariance(known, known)
    prior = np.diag(prior_deviations() ** 2)
    noise = np.full(len(measured), NOISE_DEVIATION**2)
    factors = np.zeros(len(TIME_FACTORS))
    for _ in range(ROUNDS):
        site = _site(factors)
        slopes = np.concatenate([slopes_of(part.columns, site) for part in rows])
        residual = measured - _log_seconds(rows, site)
        gram = together + np.diag(noise)
        gain = prior @ slopes.T @ np.linalg.inv(gram + slopes @ prior @ slopes.T)
        factors = gain @ (residual + slopes @ factors)
        left = measured - _log_seconds(rows, _site(factors))
        own = noise * np.linalg.solve(gram, left)  # what of each row neither factors nor neighbours explain
        noise = NOISE_DEVIATION**2 * np.maximum(1.0, (own / (MAX_NOISE * NOISE_DEVIATION)) ** 2)
    bases, spread = bases_of(known, noise), prior
    for _ in range(AVERAGES):
        site = _site(factors)
        slopes = np.concatenate([slopes_of(part.columns, site) for part in rows])
        target = measured - _log_seconds(rows, site) + slopes @ factors
        factors, spread = mean_factors(averaged_fits(bases, slopes, target, prior_deviations()))
    site = _site(factors)
    return Calibration(
        site=site,
        spread=spread,
        known=known,
        slopes=np.concatenate([slopes_of(part.columns, site) for part in rows]),
        residual=measured - _log_seconds(rows, site),
        noise=noise,
    )


def _log_seconds(rows: Sequence[MeasuredRows], site: SiteFactors) -> FloatArray:
    logs: FloatArray = np.log(np.concatenate([seconds(part.columns, site) for part in rows]))
    return logs


def slopes_of(columns: Columns, site: SiteFactors, *, base: FloatArray | None = None) -> FloatArray:
    """Return d log(seconds) / d log(factor) for each time factor; `base` is `seconds(columns, site)` where known."""
    base = np.log(seconds(columns, site) if base is None else base)
    moved = [replace(site, **{name: getattr(site, name) * np.exp(STEP)}) for name in TIME_FACTORS]
    slopes: FloatArray = np.stack([(np.log(seconds(columns, each)) - base) / STEP for each in moved], axis=1)
    return slopes


def _site(factors: FloatArray) -> SiteFactors:
    return SiteFactors(**{name: float(np.exp(value)) for name, value in zip(TIME_FACTORS, factors, strict=True)})


def prior_deviations() -> FloatArray:
    """Standard deviations of the logarithms of the time factors before anything is measured."""
    prior: FloatArray = np.array([getattr(PRIOR, name) for name in TIME_FACTORS])
    return prior
