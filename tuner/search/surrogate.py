"""The surrogate: the cost model's seconds and memory of every candidate, updated by a study's measurements.

    log seconds = log model(reference) + slopes x factors + shared residual + own residual

Candidates share a residual as `residual_features` defines it. Factors and residual are one exact Gaussian posterior,
updated after each job; when the factors move far from the reference, the model is evaluated there again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, FloatArray, IntArray
from tuner.costmodel.calibration import Calibration, prior_deviations, slopes_of
from tuner.costmodel.constants import (
    CLIFF_DEVIATION,
    KERNEL_DEVIATION,
    PERIOD_DEVIATION,
    SHAPE_DEVIATION,
)
from tuner.costmodel.residual_features import Features, covariance, joined
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.costmodel.time import seconds
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    ACCIDENT_DEVIATION,
    FORECAST_DEVIATION,
    MAX_FACTOR_MOVE,
    MIN_TRUST_EVIDENCE,
    NOISE_FACTORS,
    OUTLIER_DEVIATIONS,
    OWN_DEVIATION,
    RECORD_LENGTH,
    REPEAT_DEVIATION,
    TRUST_STEP,
    UNSURE_FACTORS,
)
from tuner.search.incremental_gp import IncrementalGP, SingleArray
from tuner.search.memory_posterior import MemoryPosterior, chunked
from tuner.search.observations import Observation, Observations, Surprise, Trust, gap_of, row_of, runs_of


class Surrogate(MemoryPosterior):
    """Posterior of seconds and memory of every candidate of a pool."""

    def __init__(
        self,
        pool: CandidatePool,
        calibration: Calibration | None = None,
        *,
        period: str = "",
        trust: Trust | None = None,
    ) -> None:
        self.pool = pool
        self.assumed = trust or Trust()
        """How far model and single runs were trusted before any job."""
        self._noise_factor, self._record = 1.0, 0
        self._set_trust(self.assumed)
        self._memory_common = 1.0
        self.period = period
        self._calibration = calibration or Calibration()
        self._features, self._group = pool.groups
        self._observations: list[Observation] = []
        self._weigh()
        self._refer(self._calibration.site)

    # -- observations

    def learn(self, seen: Sequence[Observation]) -> None:
        """Add observations."""
        rebuild = False
        for observation in seen:
            rebuild |= self._unexpectedly_full(observation)
            self._observations.append(observation)
            rebuild |= self._corrects(observation)
            self._take(observation)
        if rebuild or (seen and float(np.abs(self._shift()[0]).max()) > MAX_FACTOR_MOVE):
            self._refer(self.site)

    @property
    def usual_noise(self) -> float:
        """Standard deviation of log seconds between two runs, before they are compared."""
        return self.assumed.repeat * self._noise_factor

    def adapt(self, noise: Callable[[float], float]) -> None:
        """Trust the model and single runs as far as their record allows.

        `noise` returns the deviation of repeated runs, given the one that is assumed beforehand.
        """
        unsure = self.trust.unsure
        if self._record < (known := min(RECORD_LENGTH, sum(candidate >= 0 for candidate, _ in self._variances))):
            (unsure, self._noise_factor), self._record = self._likeliest_factors(), known
        repeat = noise(self.usual_noise)
        if not 1 / TRUST_STEP < repeat / self.trust.repeat < TRUST_STEP or unsure != self.trust.unsure:
            self._set_trust(Trust(repeat=repeat, unsure=unsure))
            self._most = self._greatest_deviation()
            self._refer(self.site)

    def _likeliest_factors(self) -> tuple[float, float]:
        """Return how far the model may be off, and by how much noisier runs are than assumed, by what was measured.

        Other factors than those assumed need evidence of `MIN_TRUST_EVIDENCE`; accidents are none.
        """
        periods = [observation.period for observation in self._observations]
        factors = [(self.assumed.unsure * unsure, noise) for unsure in UNSURE_FACTORS for noise in NOISE_FACTORS]
        found = [self.evidence(periods, unsure=unsure, noise=noise) for unsure, noise in factors]
        best = int(np.argmax(found))
        return factors[best] if found[best] > found[0] + MIN_TRUST_EVIDENCE else factors[0]

    @contextmanager
    def imagining(self, candidates: Sequence[int]) -> Iterator[None]:
        """Treat these candidates as measured, each with the seconds that are expected of it."""
        rows = self._time.rows
        for candidate in candidates:
            features = self._kind_features(candidate)
            mean, _ = self.measured([candidate])
            residual = float(mean[0] - self._level[candidate])
            self._observe(features, candidate, self._slopes[candidate], residual, self.trust.repeat**2)
        try:
            yield
        finally:
            self._time.truncate(rows)
            self._observed.truncate(rows)
            del self._variances[rows:], self._residuals[rows:]

    def relabel(self, periods: Sequence[str], now: str) -> None:
        """Assign the observations to other speed periods."""
        self._observations = [
            replace(observation, period=period) for observation, period in zip(self._observations, periods, strict=True)
        ]
        self.period = now
        self._refer(self.site)

    @property
    def candidates_seen(self) -> IntArray:
        """Candidates with an observation."""
        return np.array([observation.candidate for observation in self._observations], dtype=np.int64)

    @property
    def site(self) -> SiteFactors:
        """The posterior mean of the factors."""
        factors = self._reference + self._shift()[0]
        found = {name: float(np.exp(value)) for name, value in zip(TIME_FACTORS, factors, strict=True)}
        return replace(self._calibration.site, **found)

    def surprises(self) -> list[Surprise]:
        """Return the candidates whose only run is beyond `OUTLIER_DEVIATIONS` of what all other runs predict."""
        rows = [(row, candidate) for row, (candidate, _) in enumerate(self._variances) if candidate >= 0]
        counts = Counter(candidate for _, candidate in rows)
        if len(rows) < 2:
            return []
        shift, spread = self._shift()
        carried = self._time.carried
        slopes = self._time.unwhitened(carried[:, :-1])
        weights = self._time.unwhitened(carried[:, -1] - carried[:, :-1] @ shift)
        precision = self._time.precision() - ((slopes @ spread) * slopes).sum(axis=1)
        found = []
        for row, candidate in rows:
            if counts[candidate] > 1:
                continue
            away, noise = float(weights[row] / precision[row]), self._variances[row][1]
            variance = max(1 / float(precision[row]) - noise, self._own)
            deviations = away / math.sqrt(variance + self.trust.repeat**2)
            if abs(deviations) > OUTLIER_DEVIATIONS:
                measured = self._level[candidate] + self._residuals[row]
                surprise = Surprise(
                    candidate=candidate,
                    deviations=deviations,
                    mean=float(measured) - away,
                    deviation=math.sqrt(variance),
                )
                found.append(surprise)
        return found

    def evidence(
        self, periods: Sequence[str], *, accident: int | None = None, noise: float = 1.0, unsure: float | None = None
    ) -> float:
        """Return the log likelihood of all measured seconds under this assignment to speed periods.

        The observation with the index `accident` was slow for another reason; noise is larger by a factor. With
        `unsure` the model may be off by that much more, runs far from their prediction count as in the posterior, and
        the first `RECORD_LENGTH` count.
        """
        indices = [index for index, seen in enumerate(self._observations) if seen.seconds is not None]
        if unsure is not None:
            indices = indices[:RECORD_LENGTH]
        if not indices:
            return 0.0
        if unsure is None:
            unsure = self.trust.unsure
            variances = [self._noise(self._observations[index]) * noise**2 for index in indices]
        else:
            least = (noise * self.assumed.repeat) ** 2
            variances = [max(variance, least) for candidate, variance in self._variances if candidate >= 0]
            variances = variances[:RECORD_LENGTH]
        if accident is not None:
            variances[indices.index(accident)] += ACCIDENT_DEVIATION**2
        timed = [self._observations[index] for index in indices]
        features = [self._kind_features(seen.candidate) for seen in timed]
        rows = replace(joined(features), period=tuple(periods[index] for index in indices))
        candidates = np.array([seen.candidate for seen in timed])
        slopes = self._slopes[candidates]
        residual = np.log([seen.seconds or math.nan for seen in timed]) - self._level[candidates]
        residual -= slopes @ (self._expected - self._reference)
        together = covariance(rows, rows) + (slopes * prior_deviations() ** 2) @ slopes.T
        together = together * unsure**2 + self._own * (candidates[:, None] == candidates[None, :]) + np.diag(variances)
        whitened = np.linalg.solve(np.linalg.cholesky(together), residual)
        return -0.5 * float(whitened @ whitened + np.linalg.slogdet(together)[1])

    # -- posterior

    def log_seconds(self) -> FloatArray:
        """Return the posterior mean of log seconds of every candidate, in the current speed period."""
        shift, _ = self._shift()
        left = self._time.carried[:, -1] - self._time.carried[:, :-1] @ shift
        residual = left.astype(np.float32) @ self._time.whitened
        mean: FloatArray = self._level + self._slopes @ shift + residual[self._group]
        return mean

    def deviation(self, candidates: IntArray) -> FloatArray:
        """Standard deviation of these candidates' logarithms of seconds, measuring noise left out."""
        groups, back = np.unique(self._group[candidates], return_inverse=True)
        whitened = self._time.whitened[:, groups]
        explained = np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64)
        slopes = self._slopes[candidates] - (whitened.T @ self._time.carried[:, :-1])[back]
        _, spread = self._shift()
        variance = self._shared + self._own - explained[back] + ((slopes @ spread) * slopes).sum(axis=1)
        deviation: FloatArray = np.sqrt(np.maximum(variance, self._own))
        return deviation

    def most_deviation(self) -> FloatArray:
        """Return an upper bound of `deviation` for every candidate, whatever is observed."""
        most: FloatArray = self._most
        return most

    def measured(self, candidates: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Means and deviations of the logarithms of seconds of single candidates, with what is each one's own."""
        for candidate in candidates:
            if candidate not in self._followed:
                features = self._kind_features(candidate)
                self._time.follow(self._together(self._observed, features, candidate))
                self._followed[candidate] = len(self._followed)
                self._followed_as.add(features, candidate)
        followed = np.array([self._followed[candidate] for candidate in candidates], dtype=np.int64)
        rows = np.asarray(candidates, dtype=np.int64)
        solved, carried = self._time.followed[:, followed], self._time.carried
        shift, spread = self._shift()
        slopes = self._slopes[rows] - solved.T @ carried[:, :-1]
        mean: FloatArray = self._level[rows] + self._slopes[rows] @ shift
        mean += solved.T @ (carried[:, -1] - carried[:, :-1] @ shift)
        variance = self._shared + self._own - (solved**2).sum(axis=0) + ((slopes @ spread) * slopes).sum(axis=1)
        return mean, np.sqrt(np.maximum(variance, 1e-8))

    # -- the parts

    def _refer(self, site: SiteFactors) -> None:
        """Evaluate the model at these factors, and add all observations again."""
        self._reference = np.log([getattr(site, name) for name in TIME_FACTORS])
        chunks = list(chunked(self.pool.parts))
        self._level = np.log(np.concatenate([seconds(part, site) for part in chunks]))
        if not hasattr(self, "_slopes"):
            self._slopes = np.concatenate([slopes_of(part, site) for part in chunks])
            self._most = self._greatest_deviation()
        groups = len(self._features)
        self._time = IncrementalGP(groups, len(TIME_FACTORS) + 1)
        self._memory = IncrementalGP(groups, 1)
        self._observed, self._followed_as = Observations(), Observations()
        self._followed: dict[int, int] = {}
        self._variances: list[tuple[int, float]] = []
        """Candidate and variance by itself of each observation of seconds."""
        self._residuals: list[float] = []
        self._weighed, self._margins = Observations(), list[float]()
        self.ruled_out: BoolArray = np.zeros(len(self.pool), dtype=np.bool_)
        self._recall()
        for observation in self._observations:
            self._take(observation)

    def _recall(self) -> None:
        """Add a calibration's measured rows as observations of no candidate."""
        known, rows = self._calibration.known, self._calibration
        if known is None:
            return
        there = np.log([getattr(rows.site, name) for name in TIME_FACTORS])
        for row in range(len(known)):
            features = row_of(known, row)
            residual = rows.residual[row] - rows.slopes[row] @ (self._reference - there)
            self._observe(features, -1 - row, rows.slopes[row], residual, rows.noise[row] - self._own)

    def _set_trust(self, trust: Trust) -> None:
        self.trust = trust
        self._scale = trust.unsure**2
        self._shared, self._own = _RESIDUAL * self._scale, (OWN_DEVIATION * self.assumed.unsure) ** 2
        self._prior = prior_deviations() * trust.unsure

    def _greatest_deviation(self) -> FloatArray:
        spread = ((self._slopes * self._prior) ** 2).sum(axis=1)
        most: FloatArray = np.sqrt(self._shared + self._own + spread)
        return most

    def _noise(self, seen: Observation) -> float:
        """Variance of a figure by itself."""
        return max(FORECAST_DEVIATION, self.trust.repeat) ** 2 if seen.forecast else self.trust.repeat**2

    def _corrects(self, seen: Observation) -> bool:
        """Whether a repeat changes how far an earlier run of its candidate is believed."""
        if seen.seconds is None or len(runs_of(seen, self._observations)) < 2:
            return False
        alike = (run for run in self._observations if (run.candidate, run.period) == (seen.candidate, seen.period))
        doubted = any(
            variance > TRUST_STEP * max(self._noise(seen), REPEAT_DEVIATION**2)
            for candidate, variance in self._variances
            if candidate == seen.candidate
        )
        return doubted or any(gap_of(run, self._observations, self._noise(run)) > 0 for run in alike)

    def _take(self, seen: Observation) -> None:
        candidate = seen.candidate
        features = self._kind_features(candidate)
        if seen.seconds is not None:
            residual = np.log(seen.seconds) - self._level[candidate]
            own = replace(features, period=(seen.period,))
            self._observe(
                own,
                candidate,
                self._slopes[candidate],
                residual,
                self._noise(seen) + gap_of(seen, self._observations, self._noise(seen)) ** 2,
                repeated=len(runs_of(seen, self._observations)) > 1,
            )
        if seen.fits is not None:
            self._take_memory(seen, features)

    def _observe(
        self,
        features: Features,
        candidate: int,
        slopes: FloatArray,
        residual: float,
        noise: float,
        *,
        repeated: bool = False,
    ) -> None:
        """Add an observation of seconds; one far from its prediction counts for less, unless it was repeated."""
        before = self._together(self._observed, features, candidate)
        solved = self._time.solved(before)
        shift, spread = self._shift()
        carried = self._time.carried
        left = slopes - solved @ carried[:, :-1]
        expected = slopes @ shift + solved @ (carried[:, -1] - carried[:, :-1] @ shift)
        variance = float(self._shared + self._own + noise - solved @ solved + left @ spread @ left)
        far = 0.0 if repeated else float(abs(residual - expected)) / math.sqrt(max(variance, 1e-12))
        noise = max(noise, REPEAT_DEVIATION**2) + (
            variance * ((far / OUTLIER_DEVIATIONS) ** 2 - 1) if far > OUTLIER_DEVIATIONS else 0.0
        )
        across = self._to_kinds(features)
        followed = self._together(self._followed_as, features, candidate)
        self._time.add(across, before, self._shared + self._own + noise, np.append(slopes, residual), followed)
        self._observed.add(features, candidate)
        self._variances.append((candidate, noise))
        self._residuals.append(residual)

    def _shift(self) -> tuple[FloatArray, FloatArray]:
        """How far the factors are from the reference, and their covariance."""
        prior = 1 / self._prior**2
        carried = self._time.carried
        spread = np.linalg.inv(np.diag(prior) + carried[:, :-1].T @ carried[:, :-1])
        away = self._reference - self._expected
        shift: FloatArray = spread @ (carried[:, :-1].T @ carried[:, -1] - prior * away)
        return shift, spread

    @property
    def _expected(self) -> FloatArray:
        """The factors before anything is seen: the catalog's, or those of a calibration that remembers no rows."""
        if self._calibration.known is not None:
            return np.zeros(len(TIME_FACTORS))
        return np.log([getattr(self._calibration.site, name) for name in TIME_FACTORS])

    def _kind_features(self, candidate: int) -> Features:
        return replace(row_of(self._features, int(self._group[candidate])), period=(self.period,))

    def _together(self, others: Observations, features: Features, candidate: int) -> FloatArray:
        """Covariance of a candidate's time with those of others."""
        return others.covariance(features, candidate, self._own / self._scale) * self._scale

    def _to_kinds(self, features: Features) -> SingleArray:
        period = PERIOD_DEVIATION**2 if features.period[0] == self.period else 0.0
        unlabelled = replace(features, period=("\0",))
        across: SingleArray = ((covariance(unlabelled, self._features)[0] + period) * self._scale).astype(np.float32)
        return across


_RESIDUAL: Final = PERIOD_DEVIATION**2 + CLIFF_DEVIATION**2 + KERNEL_DEVIATION**2 + SHAPE_DEVIATION**2
"""Variance of what candidates share."""
