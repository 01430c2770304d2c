"""The surrogate: seconds and memory of every candidate, by the cost model and a study's measurements.

`time` and `memory` are two independent posteriors. That of seconds holds near one point of the cost model's site
factors; when the factors move far from it, the model is evaluated at another point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from tuner.core.columns import IntArray, chunked
from tuner.costmodel.calibration import Calibration, slopes_of
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds, time_terms
from tuner.search.candidates import CandidatePool
from tuner.search.constants import ACCIDENT_DEVIATION, MAX_FACTOR_MOVE, MIN_SHARED_RISK, RECORD_LENGTH, TRUST_STEP
from tuner.search.extrapolation import term_shares
from tuner.search.linearized import LinearizedModel
from tuner.search.memory_posterior import MemoryPosterior
from tuner.search.model_error import Record, Sizes, averaged
from tuner.search.observations import Observation, Runs, Trust
from tuner.search.time_posterior import TimePosterior
from tuner.search.time_prior import LEVELS, TimePrior, logarithms, moved

Point = tuple[float, ...]
"""Logarithms of the factors at which the model is evaluated."""


class Surrogate:
    """Posterior of seconds and memory of every candidate of a pool."""

    def __init__(
        self,
        pool: CandidatePool,
        calibration: Calibration | None = None,
        *,
        period: str = "",
        trust: Trust | None = None,
    ) -> None:
        self.pool, self.period = pool, period
        self.assumed = trust or Trust()
        """How far model and single runs were trusted before any job."""
        self.usual_noise = self.assumed.repeat
        """Standard deviation of log seconds between two runs, before they are compared."""
        self._calibration = calibration or Calibration()
        self.error_sizes: Sizes = ((1.0, 1.0),)
        """How much smaller or larger the model's error may be than `trust` has it."""
        self._recorded = 0
        """Runs whose record the trust follows."""
        self._elsewhere = False
        """Whether the first run shows that the calibration's rows are from faster or slower machines."""
        self._runs = Runs()
        self._models: dict[Point, LinearizedModel] = {}
        """The cost model at every point where it was needed."""
        self.memory = MemoryPosterior(pool, self._calibration)
        self._believe(self.assumed)
        self.first_log_seconds = self.time.log_seconds()
        """Log seconds of every candidate as they were expected before any run."""

    @property
    def trust(self) -> Trust:
        """How far model and single runs are trusted."""
        return self.time.prior.trust

    @property
    def candidates_seen(self) -> IntArray:
        """Candidates with an observation."""
        return np.array([seen.candidate for seen in self._runs.all], dtype=np.int64)

    def learn(self, seen: Sequence[Observation]) -> None:
        """Add observations."""
        for observation in seen:
            self.memory.learn(observation)
            if observation.timed and self.time.contradicts(observation):
                self._elsewhere = True
                self._believe(self.trust)
            self._runs.add(observation)
            self._settle()

    def adapt(self, noise: Callable[[float], float]) -> None:
        """Trust the model and single runs as far as their record allows.

        `noise` returns the deviation of repeated runs, given the one that is assumed beforehand.
        """
        found = self.trust
        if self._recorded < (runs := min(RECORD_LENGTH, self.time.runs)):
            self._recorded = runs
            found, self.error_sizes = self._weighed()
            self.usual_noise = found.repeat
        repeat = noise(self.usual_noise)
        if 1 / TRUST_STEP < repeat / self.trust.repeat < TRUST_STEP:
            repeat = self.trust.repeat
        if (found := replace(found, repeat=repeat)) != self.trust:
            self._believe(found)
            self._settle()

    def _weighed(self) -> tuple[Trust, Sizes]:
        """Return the trust that the record of runs deserves, and the sizes of the model's error.

        Whether all topologies are several times as fast or as slow is judged at the calibration's factors. Without that
        level, factors move so far to explain such runs that a linearization there does not show how unlikely they are.
        """
        first = self._posteriors[self._nearest(self._calibration.site)]
        found = averaged(first.record(), self.assumed)
        return found if found[0].level or first is self.time else averaged(self.time.record(), self.assumed)

    def relabel(self, periods: Sequence[str], now: str) -> None:
        """Assign the observations to other speed periods."""
        self._runs, self.period = self._in_periods(periods), now
        self._believe(self.trust)
        self._settle()

    def evidence(self, periods: Sequence[str], *, accident: int | None = None, noise: float = 1.0) -> float:
        """Return the log likelihood of all measured seconds under this assignment to speed periods.

        The observation with the index `accident` was slow for another reason; noise is larger by a factor.
        """
        model, prior = self.time.model, self.time.prior
        timed = [(index, seen) for index, seen in enumerate(self._in_periods(periods).all) if seen.timed]
        if not timed:
            return 0.0
        variances = np.array([prior.noise(seen) * noise**2 + model.residual(seen)[2] for _, seen in timed])
        if accident is not None:
            variances[[index for index, _ in timed].index(accident)] += ACCIDENT_DEVIATION**2
        record = Record.of([seen for _, seen in timed], variances, model=model, prior=prior)
        return float(record.likelihoods([replace(self.trust, repeat=0.0)])[0])

    @contextmanager
    def imagining(self, candidates: Sequence[int]) -> Iterator[None]:
        """Treat these candidates as measured, each with its expected seconds.

        Those that may run out of memory count as if they had, so that candidates with the same risk wait for them.
        """
        rows = self.time.rows, self.memory.rows
        risk = self.memory.out_of_memory() if candidates else np.zeros(0)
        for candidate in candidates:
            if risk[candidate] >= MIN_SHARED_RISK:
                self.memory.imagine_full(candidate)
            self.time.imagine(candidate)
        try:
            yield
        finally:
            self.time.truncate(rows[0])
            self.memory.truncate(rows[1])

    def _in_periods(self, periods: Sequence[str]) -> Runs:
        """Return the observations in other speed periods."""
        return Runs(replace(seen, period=period) for seen, period in zip(self._runs.all, periods, strict=True))

    # -- the point of linearization

    def _believe(self, trust: Trust) -> None:
        """Return to the calibration's factors, where all observations are to be weighed anew, at this trust."""
        self._prior = TimePrior.of(trust, self.assumed, self._calibration, elsewhere=self._elsewhere)
        first = self._nearest(self._calibration.site)
        self.time = self._posterior(first)
        self._posteriors = {first: self.time}
        """Those of the last search for a point."""

    def _settle(self) -> None:
        """Learn all observations, and choose the point of linearization.

        Starts at the calibration's factors: of several points that suit the observations, it is the same in any order.
        """
        before, self._posteriors = self._posteriors, {}

        def near(site: SiteFactors) -> TimePosterior:
            point = self._nearest(site)
            found = self._posteriors.get(point) or before.get(point) or self._posterior(point)
            found.catch_up()
            self._posteriors[point] = found
            return found

        self.time = settled(near(self._calibration.site), lambda posterior: near(posterior.site))

    def _nearest(self, site: SiteFactors) -> Point:
        """Return the nearest point of a grid around the calibration's factors."""
        first, step = logarithms(self._calibration.site), 2 * MAX_FACTOR_MOVE
        return tuple((first + step * np.round((logarithms(site) - first) / step)).tolist())

    def _posterior(self, point: Point) -> TimePosterior:
        """Return the posterior at a point, before any run."""
        if point not in self._models:
            self._models[point] = self._model(point)
        return TimePosterior(
            self._models[point], self._prior, self._runs, period=self.period, calibration=self._calibration
        )

    def _model(self, point: Point) -> LinearizedModel:
        """Return the cost model at a point; its slopes are those at the first."""
        reference, parts = np.array(point), chunked(self.pool.parts)
        site = moved(self._calibration.site, reference)
        features, group = self.pool.groups
        if self._models:
            slopes = next(iter(self._models.values())).slopes
        else:
            factors = np.concatenate([slopes_of(part, site) for part in parts])
            terms = np.concatenate([term_shares(time_terms(part, site)) for part in parts])
            slopes = np.concatenate([factors, terms, np.ones((len(group), LEVELS))], axis=1)
        return LinearizedModel(
            site=site,
            reference=reference,
            level=np.log(np.concatenate([seconds(part, site) for part in parts])),
            slopes=slopes,
            features=features,
            group=group,
        )


def settled(first: TimePosterior, following: Callable[[TimePosterior], TimePosterior]) -> TimePosterior:
    """Return the posterior whose factors stay at its point, from the first on; if they cycle, where they move least.

    `following` returns the posterior at the point nearest to the mean of another.
    """
    visited: dict[Point, TimePosterior] = {}
    now = first
    for _ in range(_MAX_MOVES):
        if now.point in visited:
            points = list(visited)
            cycle = points[points.index(now.point) :]
            return visited[min(cycle, key=lambda point: (visited[point].move, point))]
        if now.move <= MAX_FACTOR_MOVE:
            return now
        visited[now.point] = now
        now = following(now)
    return now


_MAX_MOVES: Final = 5
"""Maximum evaluations of the model until its factors count as settled."""
