"""The surrogate: the cost model's seconds and memory of every candidate, updated by a study's measurements.

    log seconds = log model(reference) + slopes x factors + shared residual + own residual

Candidates share a residual as `residual_features` defines it. Factors and residual are one exact Gaussian posterior,
updated after each job; when the factors move far from the reference, the model is evaluated there again.
"""

from __future__ import annotations

import math
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
from tuner.costmodel.residual_features import Features, covariance
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.costmodel.time import seconds
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    ELSEWHERE_DEVIATION,
    FORECAST_DEVIATION,
    MAX_FACTOR_MOVE,
    MIN_SHARED_RISK,
    OUTLIER_DEVIATIONS,
    OWN_DEVIATION,
    RECORD_LENGTH,
    REPEAT_DEVIATION,
    TRUST_STEP,
)
from tuner.search.incremental_gp import IncrementalGP, SingleArray
from tuner.search.joint_posterior import JointPosterior
from tuner.search.memory_posterior import MemoryPosterior, chunked
from tuner.search.model_error import LEAST_TREND, TRENDS, trends_of
from tuner.search.observations import Observation, Observations, Trust, gap_of, row_of, runs_of
from tuner.search.recalled import recalled
from tuner.search.reduced import ReducedSize, gap_covariance


class Surrogate(MemoryPosterior, JointPosterior):
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
        self._usual_noise, self._record = self.assumed.repeat, 0
        self._elsewhere = False
        """Whether the first run shows that the calibration's rows are from faster or slower machines."""
        self._set_trust(self.assumed)
        self._memory_common = 1.0
        self.period = period
        self._calibration = calibration or Calibration()
        self._features, self._group = pool.groups
        self._observations = list[Observation]()
        self._weigh()
        self._refer(self._calibration.site)
        self.first_log_seconds = self.log_seconds()
        """Log seconds of every candidate as they were expected before any run."""

    def learn(self, seen: Sequence[Observation]) -> None:
        """Add observations."""
        rebuild = False
        for observation in seen:
            rebuild |= self._unexpectedly_full(observation)
            if observation.timed and self._is_elsewhere(observation):
                self._elsewhere = True
                self._set_trust(self.trust)
                self._most = self._greatest_deviation()
                self._refer(self._calibration.site)
            self._observations.append(observation)
            rebuild |= self._corrects(observation)
            self._take(observation)
        self._settle(rebuild=rebuild)

    @property
    def usual_noise(self) -> float:
        """Standard deviation of log seconds between two runs, before they are compared."""
        return self._usual_noise

    def adapt(self, noise: Callable[[float], float]) -> None:
        """Trust the model and single runs as far as their record allows.

        `noise` returns the deviation of repeated runs, given the one that is assumed beforehand.
        """
        found = self.trust
        if self._record < (known := min(RECORD_LENGTH, sum(candidate >= 0 for candidate, _ in self._variances))):
            found, self._record = self._by_record(), known
            self._usual_noise = found.repeat
        repeat = noise(self._usual_noise)
        if 1 / TRUST_STEP < repeat / self.trust.repeat < TRUST_STEP:
            repeat = self.trust.repeat
        if (found := replace(found, repeat=repeat)) != self.trust:
            self._set_trust(found)
            self._most = self._greatest_deviation()
            self._settle(rebuild=True)

    def _settle(self, *, rebuild: bool = False) -> None:
        """Re-evaluate the model while its factors move far; if they cycle, at the point where they move least.

        Starts at the calibration's factors: of several points that suit the observations, it is the same in any order.
        """
        if rebuild or (self._reference != self._nearest(self._calibration.site)).any():
            self._refer(self._calibration.site)
        visited: dict[tuple[float, ...], tuple[float, SiteFactors]] = {}
        for _ in range(_MOST_MOVES):
            point = tuple(self._reference)
            if point in visited:
                points = list(visited)
                cycle = points[points.index(point) :]
                self._refer(visited[min(cycle, key=lambda known: (visited[known][0], known))][1])
                return
            move = float(np.abs(self._shift()[0][: len(TIME_FACTORS)]).max())
            if move <= MAX_FACTOR_MOVE:
                return
            visited[point] = move, self.reference_site
            self._refer(self.site)

    @contextmanager
    def imagining(self, candidates: Sequence[int]) -> Iterator[None]:
        """Treat these candidates as measured, each with its expected seconds.

        Those that may run out of memory count as if they had, so that candidates with the same risk wait for them.
        """
        rows, weighed = self._time.rows, self._memory.rows
        risk = self.out_of_memory() if candidates else np.zeros(0)
        for candidate in candidates:
            features = self._features_of(candidate)
            if risk[candidate] >= MIN_SHARED_RISK:
                self._weigh_limit(candidate, features, float(self._need[candidate]), fits=False)
            mean, _ = self.measured([candidate])
            residual = float(mean[0] - self._level[candidate])
            self._observe(
                features,
                candidate=candidate,
                slopes=self._slopes[candidate],
                residual=residual,
                noise=self.trust.repeat**2,
            )
        try:
            yield
        finally:
            self._time.truncate(rows)
            self._observed.truncate(rows)
            del self._variances[rows:], self._residuals[rows:]
            self._forget_memory(weighed)

    def relabel(self, periods: Sequence[str], now: str) -> None:
        """Assign the observations to other speed periods."""
        self._observations = [
            replace(observation, period=period) for observation, period in zip(self._observations, periods, strict=True)
        ]
        self.period = now
        self._settle(rebuild=True)

    @property
    def candidates_seen(self) -> IntArray:
        """Candidates with an observation."""
        return np.array([observation.candidate for observation in self._observations], dtype=np.int64)

    @property
    def site(self) -> SiteFactors:
        """The posterior mean of the factors."""
        return self._site_of(self._reference + self._shift()[0])

    def _site_of(self, factors: FloatArray) -> SiteFactors:
        found = {name: float(np.exp(value)) for name, value in zip(TIME_FACTORS, factors, strict=False)}
        return replace(self._calibration.site, **found)

    def log_seconds(self) -> FloatArray:
        """Return the posterior mean of log seconds of every candidate, in the current speed period."""
        shift, _ = self._shift()
        left = self._time.carried[:, -1] - self._time.carried[:, :-1] @ shift
        residual = left.astype(np.float32) @ self._time.whitened
        mean: FloatArray = self._level + self._slopes @ shift + residual[self._group]
        return mean

    def deviation(self, candidates: IntArray) -> FloatArray:
        """Return the standard deviation of these candidates' log seconds, without the noise of runs."""
        groups, back = np.unique(self._group[candidates], return_inverse=True)
        whitened = self._time.whitened[:, groups]
        explained = np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64)
        slopes = self._slopes[candidates] - (whitened.T @ self._time.carried[:, :-1])[back]
        _, spread = self._shift()
        variance = self._shared + self._own - explained[back] + ((slopes @ spread) * slopes).sum(axis=1)
        deviation: FloatArray = np.sqrt(np.maximum(variance, self._own))
        return deviation

    def most_deviation(self) -> FloatArray:
        """Return an upper bound of `deviation` for every candidate, before any observation."""
        most: FloatArray = self._most
        return most

    def measured(self, candidates: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of the log seconds of single candidates, their own residuals included."""
        for candidate in candidates:
            if candidate not in self._followed:
                features = self._features_of(candidate)
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

    def _nearest(self, site: SiteFactors) -> FloatArray:
        """Return the logarithms of factors at the nearest point of a grid around the calibration's."""
        first, now = (np.log([getattr(at, name) for name in TIME_FACTORS]) for at in (self._calibration.site, site))
        step = 2 * MAX_FACTOR_MOVE
        return np.append(first + step * np.round((now - first) / step), np.zeros(_STEADY))

    def _refer(self, site: SiteFactors) -> None:
        """Evaluate the model near these factors, and repeat all observations."""
        self._reference, self._sizes = self._nearest(site), {}
        self.reference_site = site = self._site_of(self._reference)
        chunks = list(chunked(self.pool.parts))
        self._level = np.log(np.concatenate([seconds(part, site) for part in chunks]))
        if not hasattr(self, "_slopes"):
            slopes = np.concatenate([slopes_of(part, site) for part in chunks])
            self._slopes = np.concatenate(
                [slopes, trends_of(self._features)[self._group], np.ones((len(slopes), 2))], axis=1
            )
            self._most = self._greatest_deviation()
        groups = len(self._features)
        self._time = IncrementalGP(groups, len(self._reference) + 1)
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
        for row, earlier in enumerate(recalled(self._calibration, self._reference[: len(TIME_FACTORS)])):
            self._observe(
                earlier.features,
                candidate=-1 - row,
                slopes=earlier.slopes,
                residual=earlier.residual,
                noise=earlier.noise - self._own,
            )

    def _set_trust(self, trust: Trust) -> None:
        self.trust = trust
        self._scale = trust.unsure**2
        self._shared, self._own = _RESIDUAL * self._scale, (OWN_DEVIATION * self.assumed.unsure) ** 2
        trend = max(trust.trend, LEAST_TREND)
        elsewhere = ELSEWHERE_DEVIATION if self._elsewhere else LEAST_TREND
        steady = [*np.full(len(TRENDS), trend), max(trust.level, LEAST_TREND), elsewhere]
        self._prior = np.concatenate([prior_deviations() * trust.factors, steady])

    def _greatest_deviation(self) -> FloatArray:
        spread = ((self._slopes * self._prior) ** 2).sum(axis=1)
        most: FloatArray = np.sqrt(self._shared + self._own + spread)
        return most

    def _noise(self, seen: Observation) -> float:
        """Return the variance of an observation's noise."""
        return max(FORECAST_DEVIATION, self.trust.repeat) ** 2 if seen.forecast else self.trust.repeat**2

    def _corrects(self, seen: Observation) -> bool:
        """Return whether a repeat changes the weight of an earlier run of its candidate."""
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
        features = self._features_of(candidate)
        if seen.timed:
            residual, slopes, gap = self._residual(seen)
            own = replace(features, period=(seen.period,))
            noise = self._noise(seen) + gap + gap_of(seen, self._observations, self._noise(seen)) ** 2
            repeated = seen.reduced is None and len(runs_of(seen, self._observations)) > 1
            self._observe(
                own,
                candidate=candidate,
                slopes=slopes,
                residual=residual,
                noise=noise,
                repeated=repeated,
                size=None if seen.reduced is None else seen.reduced.size,
            )
        if seen.fits is not None:
            self._take_memory(seen, features)

    def _observe(
        self,
        features: Features,
        *,
        candidate: int,
        slopes: FloatArray,
        residual: float,
        noise: float,
        repeated: bool = False,
        size: ReducedSize | None = None,
    ) -> None:
        """Add an observation of seconds; one far from its prediction counts for less, unless it was repeated.

        Accidents make a run slower: one that is faster than predicted counts for less only where runs are less certain
        than the model.
        """
        before = self._together(self._observed, features, candidate)
        before += gap_covariance([size], self._observed.sizes)[0]
        alone = self._shared + self._own + float(gap_covariance([size], [size])[0, 0])
        expected, variance = self._expected_of(before, alone + noise, slopes)
        far = 0.0 if repeated or self._has_no_run else (residual - expected) / math.sqrt(max(variance, 1e-12))
        doubted = far > OUTLIER_DEVIATIONS or (far < -OUTLIER_DEVIATIONS and noise > variance / 2)
        noise = max(noise, REPEAT_DEVIATION**2)
        if doubted:
            noise += variance * ((far / OUTLIER_DEVIATIONS) ** 2 - 1)
        across = self._across_groups(features)
        followed = self._together(self._followed_as, features, candidate)
        self._time.add(across, before, alone + noise, np.append(slopes, residual), followed)
        self._observed.add(features, candidate, size)
        self._variances.append((candidate, noise))
        self._residuals.append(residual)

    @property
    def _has_no_run(self) -> bool:
        return not any(seen >= 0 for seen, _ in self._variances)

    def _is_elsewhere(self, seen: Observation) -> bool:
        """Return whether the first run is far from the calibration's prediction: the machines have changed."""
        if self._elsewhere or self._calibration.known is None or not self._has_no_run:
            return False
        residual, slopes, gap = self._residual(seen)
        before = self._together(self._observed, self._features_of(seen.candidate), seen.candidate)
        alone = self._shared + self._own + self._noise(seen) + gap
        expected, variance = self._expected_of(before, alone, slopes)
        return abs(residual - expected) > OUTLIER_DEVIATIONS * math.sqrt(variance)

    @property
    def _expected(self) -> FloatArray:
        """The prior mean of the factors: the catalog's, or that of a calibration without rows."""
        expected = np.zeros(len(TIME_FACTORS) + _STEADY)
        if self._calibration.known is None:
            expected[: len(TIME_FACTORS)] = np.log([getattr(self._calibration.site, name) for name in TIME_FACTORS])
        return expected

    def _features_of(self, candidate: int) -> Features:
        return replace(row_of(self._features, int(self._group[candidate])), period=(self.period,))

    def _together(self, others: Observations, features: Features, candidate: int) -> FloatArray:
        """Return the covariance of a candidate's time with those of others."""
        return others.covariance(features, candidate, self._own / self._scale, self.trust.lengths) * self._scale

    def _across_groups(self, features: Features) -> SingleArray:
        period = PERIOD_DEVIATION**2 if features.period[0] == self.period else 0.0
        unlabelled = replace(features, period=("\0",))
        across: SingleArray = (
            (covariance(unlabelled, self._features, self.trust.lengths)[0] + period) * self._scale
        ).astype(np.float32)
        return across


_RESIDUAL: Final = PERIOD_DEVIATION**2 + CLIFF_DEVIATION**2 + KERNEL_DEVIATION**2 + SHAPE_DEVIATION**2
"""Variance of the residual that candidates share."""

_STEADY: Final = len(TRENDS) + 2
"""Further coefficients: trends and level of the model's error, and the offset from a calibration's rows."""

_MOST_MOVES: Final = 5
"""Maximum evaluations of the model until its factors count as settled."""
