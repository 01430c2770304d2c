"""The size of the model's error and of the noise of runs, by the likelihood of a study's own measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray, IntArray
from tuner.costmodel.calibration import prior_deviations
from tuner.costmodel.residual_features import SMOOTH, Features, Likeness, joined
from tuner.costmodel.site_factors import TIME_FACTORS
from tuner.search.constants import (
    ACCIDENT_DEVIATION,
    FACTOR_CHANCES,
    LENGTH_CHANCES,
    LEVEL_CHANCES,
    NOISE_CHANCES,
    RECORD_LENGTH,
    SHARE_STEP,
    TREND_CHANCES,
    TREND_STEP,
    TRUST_STEP,
    UNSURE_CHANCES,
)
from tuner.search.observations import Observation, Trust, row_of
from tuner.search.reduced import gap_covariance
from tuner.search.residuals import Residuals

TRENDS: Final = tuple(SMOOTH.index(name) for name in ("tp", "pp", "micro_batch"))
"""Columns of the smooth features along which the model's error may grow or shrink steadily."""

TREND_MIDDLE: Final = (1.5, 2.0, 1.0)
"""Doublings where a trend is zero: the middle of tp 1 to 8, pp 1 to 16 and micro batch 1 to 4, whatever the pool, so
that a report, which reads the topologies that were tried, believes what the search did."""

LEAST_TREND: Final = 1e-4
"""Deviation of a trend that is as good as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Measured runs, and what the model predicted for them before any run."""

    features: Features
    slopes: FloatArray
    """Change of each run's logarithm with that of each site factor."""
    trends: FloatArray
    """Doublings of `TRENDS`."""
    residual: FloatArray
    """Logarithm of measured over expected seconds."""
    own: FloatArray
    """Covariance of what runs of one topology share with no other, and of the gaps of reduced sizes."""
    variances: FloatArray
    """Variance of each run by itself, beyond the usual noise."""

    def likelihoods(self, trusts: Sequence[Trust]) -> FloatArray:
        """Return the log likelihood of the record under each of these."""
        likeness = Likeness.of(self.features, self.features)
        near = {length: likeness.near(length) for length in {length for trust in trusts for length, _ in trust.lengths}}
        steered = self.slopes * prior_deviations()
        factors, slanted = steered @ steered.T, self.trends @ self.trends.T
        rows = len(self.residual)
        together = np.zeros((len(trusts), rows + 1, rows + 1))
        for case, trust in zip(together, trusts, strict=True):
            fading = sum(share * near[length] for length, share in trust.lengths)
            case[:rows, :rows] = trust.unsure**2 * (likeness.shared + fading) + self.own
            case[:rows, :rows] += trust.factors**2 * factors + trust.trend**2 * slanted + trust.level**2
            case[:rows, :rows] += np.diag(self.variances + trust.repeat**2)
        together[:, rows, :rows] = self.residual
        together[:, rows, rows] = _LARGE
        roots = np.linalg.cholesky(together)  # its last row is the inverse of the others' root times the residual
        size = np.log(np.diagonal(roots, axis1=1, axis2=2)[:, :rows]).sum(axis=1)
        found: FloatArray = -0.5 * (roots[:, rows, :rows] ** 2).sum(axis=1) - size
        return found


_LARGE: Final = 1e12
"""More than the square of any whitened residual."""


def averaged(record: Record, assumed: Trust) -> Trust:
    """Return the scale of the model's error and of the noise: a mean weighted by likelihood.

    Noise and level are those of the likeliest case, since a mean would doubt every run and every estimate a little.
    """
    chances = (NOISE_CHANCES, UNSURE_CHANCES, FACTOR_CHANCES, LENGTH_CHANCES, TREND_CHANCES, LEVEL_CHANCES)
    trusts = [
        Trust(
            repeat=assumed.repeat * noise,
            unsure=assumed.unsure * unsure,
            factors=assumed.factors * factors,
            lengths=((length, 1.0),),
            trend=trend,
            level=level,
        )
        for noise, unsure, factors, length, trend, level in product(*chances)
    ]
    weights = np.array([math.prod(case) for case in product(*(case.values() for case in chances))])
    if len(record.residual):
        found = record.likelihoods(trusts)
        weights = weights * np.exp(found - found.max())
    weights /= weights.sum()
    noisy = weights.reshape(len(NOISE_CHANCES), -1).sum(axis=1)
    levels = weights.reshape(-1, len(LEVEL_CHANCES)).sum(axis=0)

    def mean(name: str) -> float:
        return math.sqrt(float(weights @ np.square([getattr(trust, name) for trust in trusts])))

    shares = np.round(weights.reshape([len(case) for case in chances]).sum(axis=(0, 1, 2, 4, 5)) / SHARE_STEP)
    return Trust(
        repeat=assumed.repeat * list(NOISE_CHANCES)[int(np.argmax(noisy))],
        unsure=assumed.unsure * _rounded(mean("unsure") / assumed.unsure),
        factors=assumed.factors * _rounded(mean("factors") / assumed.factors),
        lengths=tuple(zip(LENGTH_CHANCES, (shares / shares.sum()).tolist(), strict=True)),
        trend=TREND_STEP * round(mean("trend") / TREND_STEP),
        level=list(LEVEL_CHANCES)[int(np.argmax(levels))],
    )


def _rounded(ratio: float) -> float:
    """Return a ratio rounded to steps, because every change repeats all observations."""
    return float(TRUST_STEP ** round(math.log(ratio, TRUST_STEP)))


def trends_of(features: Features) -> FloatArray:
    """Return the doublings of `TRENDS` from their middle."""
    trends: FloatArray = features.smooth[:, TRENDS] - TREND_MIDDLE
    return trends


class TimeRecord(Residuals):
    """The measured runs of a study, and how likely they were."""

    assumed: Trust
    _features: Features
    _group: IntArray
    _observations: list[Observation]
    _variances: list[tuple[int, float]]
    _reference: FloatArray
    _own: float

    def evidence(self, periods: Sequence[str], *, accident: int | None = None, noise: float = 1.0) -> float:
        """Return the log likelihood of all measured seconds under this assignment to speed periods.

        The observation with the index `accident` was slow for another reason; noise is larger by a factor.
        """
        indices = [index for index, seen in enumerate(self._observations) if seen.timed]
        if not indices:
            return 0.0
        timed = [self._observations[index] for index in indices]
        variances = np.array([self._noise(seen) * noise**2 + self._residual(seen)[2] for seen in timed])
        if accident is not None:
            variances[indices.index(accident)] += ACCIDENT_DEVIATION**2
        record = self._record_of(indices, variances, periods)
        return float(record.likelihoods([replace(self.trust, repeat=0.0)])[0])

    def _record_of(self, indices: Sequence[int], variances: FloatArray, periods: Sequence[str]) -> Record:
        """Return measured runs, and what the model predicted for them before any run."""
        timed = [self._observations[index] for index in indices]
        candidates = np.array([seen.candidate for seen in timed])
        features = joined([row_of(self._features, int(self._group[candidate])) for candidate in candidates.tolist()])
        found = [self._residual(seen) for seen in timed]
        sizes = [None if seen.reduced is None else seen.reduced.size for seen in timed]
        slopes, residual = np.stack([own for _, own, _ in found]), np.array([own for own, _, _ in found])
        return Record(
            features=replace(features, period=tuple(periods[index] for index in indices)),
            slopes=slopes[:, : len(TIME_FACTORS)],
            trends=slopes[:, len(TIME_FACTORS) : len(TIME_FACTORS) + len(TRENDS)],
            residual=residual - slopes @ (self._expected - self._reference),
            own=self._own * (candidates[:, None] == candidates[None, :]) + gap_covariance(sizes, sizes),
            variances=variances,
        )

    def _by_record(self) -> Trust:
        """Return how far model and single runs can be trusted, by the first `RECORD_LENGTH` measured runs."""
        indices = [index for index, seen in enumerate(self._observations) if seen.timed][:RECORD_LENGTH]
        variances = np.array([variance for candidate, variance in self._variances if candidate >= 0][:RECORD_LENGTH])
        variances = np.maximum(variances - self.trust.repeat**2, 0.0)
        periods = [observation.period for observation in self._observations]
        return averaged(self._record_of(indices, variances, periods), self.assumed)

    @property
    def _expected(self) -> FloatArray:
        """Prior mean of the logarithms of the factors; 0 for trends and levels."""
        raise NotImplementedError

    def _noise(self, seen: Observation) -> float:
        """Return the variance of an observation's noise."""
        raise NotImplementedError
