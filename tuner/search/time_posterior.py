"""The posterior of every candidate's seconds, given a study's runs and one linearization of the cost model.

    log seconds = level + slopes x factors + shared residual + own residual

Candidates share a residual as `residual_features` defines it. Coefficients and residuals are one exact Gaussian
posterior, updated after each job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tuner.core.columns import FloatArray, IntArray, chunks
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.normal import truncated
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.search.constants import OUTLIER_DEVIATIONS, RECORD_LENGTH, REPEAT_DEVIATION, TERM_DEVIATIONS
from tuner.search.extrapolation import ReducedRun, ReducedSize, gap_covariance
from tuner.search.incremental_gp import IncrementalGP
from tuner.search.linearized import LinearizedModel
from tuner.search.model_error import Record
from tuner.search.observations import Jobs, Observation, Runs, Surprise
from tuner.search.time_prior import TimePrior, logarithms, moved


def revealed(beside: FloatArray, covariance: FloatArray, job: int, noise: float) -> float:
    """Return the standard deviation by which a job's result is expected to move how jobs compare.

    `beside` has the weight of each job in what is compared, `noise` is the variance of the result by itself:
    `cov(compared, job) / sqrt(var(job) + noise)`.
    """
    return abs(float(beside @ covariance[:, job])) / math.sqrt(float(covariance[job, job]) + noise)


class _Row(NamedTuple):
    """One observation."""

    candidate: int
    """Negative for a calibration's row."""
    residual: float
    noise: float
    """Its variance by itself."""
    doubted: bool
    """Whether it counts for less because it is far from its prediction."""
    seen: Observation | None
    """None: a calibration's row, a lower bound, or an imagined run."""
    gap: float
    """Its distance from the other runs of its candidate where noise does not explain it."""


class TimePosterior:
    """The posterior in one speed period."""

    def __init__(
        self, model: LinearizedModel, prior: TimePrior, runs: Runs, *, period: str, calibration: Calibration
    ) -> None:
        self.model, self.prior = model, prior
        self._runs, self._calibration = runs, calibration
        self._features = model.features.during(period)
        self._begin()

    def _begin(self) -> None:
        """Observe nothing but the measured rows that the calibration remembers, as those of no candidate."""
        self._gp = IncrementalGP(len(self._features), self.model.slopes.shape[1] + 1)
        self._observed = self._followed = self._jobs(())
        self._columns: dict[int, int] = {}
        """Column of each followed candidate."""
        self._rows: list[_Row] = []
        self._learnt = 0
        earlier, known = self._calibration, self._calibration.known
        if known is None:
            return
        away = (self.model.reference - logarithms(earlier.site))[: len(TIME_FACTORS)]
        for row, slopes in enumerate(earlier.slopes):
            job = Jobs(known.rows(slice(row, row + 1)), np.array([-1 - row]), (None,))
            levels = [1.0, 0.0]  # of the model, but not the study's own speed
            unknown = np.zeros(len(TERM_DEVIATIONS))
            residual, noise = earlier.residual[row] - slopes @ away, earlier.noise[row] - self.prior.own
            self._observe(job, np.concatenate([slopes, unknown, levels]), float(residual), noise=float(noise))

    # -- learning

    def catch_up(self) -> None:
        """Learn the runs that it lacks."""
        fresh = self._runs.all[self._learnt :]
        if any(self._is_corrected_by(seen) for seen in fresh):
            self._begin()
            fresh = self._runs.all
        for seen in fresh:
            if seen.timed:
                self._learn(seen)
            elif seen.least is not None:
                self._learn_least(seen, seen.least)
        self._learnt = len(self._runs.all)

    def contradicts(self, seen: Observation) -> bool:
        """Return whether the first run is far from the calibration's prediction: the machines have changed."""
        if self._calibration.known is None or self.runs:
            return False
        residual, slopes, gap = self.model.residual(seen)
        before = self.prior.covariance(self._jobs([seen.candidate]), self._observed)[0]
        expected, variance = self._predicted(before, self.prior.residual + self.prior.noise(seen) + gap, slopes)
        return abs(residual - expected) > OUTLIER_DEVIATIONS * math.sqrt(variance)

    def imagine(self, candidate: int) -> None:
        """Treat a candidate as measured, with its expected seconds."""
        residual = float(self.measured([candidate])[0][0] - self.model.level[candidate])
        noise = self.prior.trust.repeat**2
        self._observe(self._jobs([candidate]), self.model.slopes[candidate], residual, noise=noise)

    @property
    def rows(self) -> int:
        """Observations of seconds."""
        return len(self._rows)

    def truncate(self, rows: int) -> None:
        """Remove all but the first observations."""
        self._gp.truncate(rows)
        self._observed = self._observed.rows(slice(rows))
        del self._rows[rows:]

    @property
    def runs(self) -> int:
        """Measured runs."""
        return sum(row.seen is not None for row in self._rows)

    def record(self) -> Record:
        """Return the record of the first `RECORD_LENGTH` measured runs."""
        own = [row for row in self._rows if row.seen is not None][:RECORD_LENGTH]
        variances = np.array([row.noise for row in own]) - self.prior.trust.repeat**2
        runs = [row.seen for row in own if row.seen is not None]
        return Record.of(runs, np.maximum(variances, 0.0), model=self.model, prior=self.prior)

    def _is_corrected_by(self, seen: Observation) -> bool:
        """Return whether a repeat changes the weight of an earlier run of its candidate."""
        return len(self._runs.alike(seen)) > 1 and any(
            row.doubted or row.gap != self._runs.gap(row.seen, self.prior.noise(row.seen))
            for row in self._rows
            if row.seen is not None
            and row.seen.seconds is not None
            and (row.candidate, row.seen.period) == (seen.candidate, seen.period)
        )

    def _learn(self, seen: Observation) -> None:
        residual, slopes, variance = self.model.residual(seen)
        gap = self._runs.gap(seen, self.prior.noise(seen))
        noise = self.prior.noise(seen) + variance + gap**2
        self._observe(self._job(seen), slopes, residual, noise=noise, seen=seen, gap=gap)

    def _learn_least(self, seen: Observation, seconds: float) -> None:
        """Learn that a job would have taken at least these seconds; far more than expected may be by accident."""
        job, slopes = self._job(seen), self.model.slopes[seen.candidate]
        before = self.prior.covariance(job, self._observed)[0]
        noise = self.prior.noise(seen)
        expected, variance = self._predicted(before, self.prior.residual + noise, slopes)
        edge = math.log(seconds) - float(self.model.level[seen.candidate])
        edge = min(edge, expected + OUTLIER_DEVIATIONS * math.sqrt(variance))
        found = truncated(expected, variance, edge, above=True)
        if found is not None:
            value, wide = found
            self._observe(job, slopes, value, noise=noise + wide)

    def _observe(
        self,
        job: Jobs,
        slopes: FloatArray,
        residual: float,
        *,
        noise: float,
        seen: Observation | None = None,
        gap: float = 0.0,
    ) -> None:
        """Add an observation; one far from its prediction counts for less, unless it was repeated.

        Accidents make a run slower: one that is faster than predicted counts for less only where runs are less certain
        than the model.
        """
        before = self.prior.covariance(job, self._observed)[0]
        alone = self.prior.residual + float(gap_covariance(job.sizes, job.sizes)[0, 0])
        expected, variance = self._predicted(before, alone + noise, slopes)
        repeated = seen is not None and seen.reduced is None and len(self._runs.alike(seen)) > 1
        far = (residual - expected) / math.sqrt(max(variance, 1e-12)) if self.runs and not repeated else 0.0
        doubted = far > OUTLIER_DEVIATIONS or (far < -OUTLIER_DEVIATIONS and noise > variance / 2)
        noise = max(noise, REPEAT_DEVIATION**2)
        if doubted:
            noise += variance * ((far / OUTLIER_DEVIATIONS) ** 2 - 1)
        followed = self.prior.covariance(job, self._followed)[0]
        self._observed = self._observed.plus(job)
        self._rows.append(_Row(int(job.candidates[0]), residual, noise, doubted, seen, gap))
        self._gp.add(before, alone + noise, np.append(slopes, residual), followed)

    # -- predictions

    def log_seconds(self) -> FloatArray:
        """Return the posterior mean of log seconds of every candidate, in the current speed period."""
        shift, _ = self._shift()
        left = self._gp.carried[:, -1] - self._gp.carried[:, :-1] @ shift
        residual = left.astype(np.float32) @ self._gp.whitened(self._across)
        mean: FloatArray = self.model.level + self.model.slopes @ shift + residual[self.model.group]
        return mean

    def deviation(self, candidates: IntArray) -> FloatArray:
        """Return the standard deviation of these candidates' log seconds, without the noise of runs."""
        _, spread = self._shift()
        return np.concatenate([self._deviation(candidates[rows], spread) for rows in chunks(len(candidates))])

    def _deviation(self, candidates: IntArray, spread: FloatArray) -> FloatArray:
        """Return the same of some of them, given the covariance of the coefficients."""
        groups, back = np.unique(self.model.group[candidates], return_inverse=True)
        whitened = self._gp.whitened(self._across)[:, groups]
        explained = np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64)
        slopes = self.model.slopes[candidates] - (whitened.T @ self._gp.carried[:, :-1])[back]
        variance = self.prior.residual - explained[back] + ((slopes @ spread) * slopes).sum(axis=1)
        deviation: FloatArray = np.sqrt(np.maximum(variance, self.prior.own))
        return deviation

    def shared(self, candidates: IntArray, other: int) -> FloatArray:
        """Return the covariance of these candidates' log seconds with those of another one, which is none of them."""
        groups, back = np.unique(self.model.group[candidates], return_inverse=True)
        job, whitened = self._jobs([other]), self._gp.whitened(self._across)[:, groups]
        solved = self._gp.solved(self.prior.covariance(self._observed, job)[:, 0])
        carried, (_, spread) = self._gp.carried[:, :-1], self._shift()
        left = self.model.slopes[candidates] - (whitened.T @ carried)[back]
        fading = self.prior.fading(self._features.rows(groups), job.features)[:, 0] - whitened.T @ solved
        shared: FloatArray = fading[back] + left @ spread @ (self.model.slopes[other] - solved @ carried)
        return shared

    def soonest(self, work: FloatArray) -> int | None:
        """Return the observed candidate that is expected to finish soonest, given the logarithms of their work."""
        observed = sorted({row.candidate for row in self._rows if row.candidate >= 0})
        return observed[int(np.argmin(self.measured(observed)[0] + work[observed]))] if observed else None

    @cached_property
    def most_deviation(self) -> FloatArray:
        """An upper bound of `deviation` for every candidate, before any observation."""
        spread = ((self.model.slopes * self.prior.deviations) ** 2).sum(axis=1)
        most: FloatArray = np.sqrt(self.prior.residual + spread)
        return most

    def measured(self, candidates: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of the log seconds of single candidates, their own residuals included."""
        for candidate in candidates:
            if candidate not in self._columns:
                job = self._jobs([candidate])
                self._gp.follow(self.prior.covariance(job, self._observed)[0])
                self._columns[candidate] = len(self._columns)
                self._followed = self._followed.plus(job)
        followed = np.array([self._columns[candidate] for candidate in candidates], dtype=np.int64)
        rows = np.asarray(candidates, dtype=np.int64)
        solved, carried = self._gp.followed[:, followed], self._gp.carried
        shift, spread = self._shift()
        slopes = self.model.slopes[rows] - solved.T @ carried[:, :-1]
        mean: FloatArray = self.model.level[rows] + self.model.slopes[rows] @ shift
        mean += solved.T @ (carried[:, -1] - carried[:, :-1] @ shift)
        variance = self.prior.residual - (solved**2).sum(axis=0) + ((slopes @ spread) * slopes).sum(axis=1)
        return mean, np.sqrt(np.maximum(variance, 1e-8))

    def joint(self, jobs: Sequence[tuple[int, ReducedSize | None]]) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the log seconds of jobs, each of a candidate at full or at a reduced size.

        Those of a reduced size are projected to the full one. The noise of runs is excluded.
        """
        wanted = self._jobs([candidate for candidate, _ in jobs], [size for _, size in jobs])
        solved = self._gp.solved(self.prior.covariance(self._observed, wanted))
        mean, slopes = self.model.level[wanted.candidates], self.model.slopes[wanted.candidates]
        for row, (candidate, size) in enumerate(jobs):
            if size is not None:
                mean[row], slopes[row] = size.level(self.model.site), self.model.reduced_slopes(candidate, size)
        shift, spread = self._shift()
        carried = self._gp.carried
        mean += slopes @ shift + solved.T @ (carried[:, -1] - carried[:, :-1] @ shift)
        left = slopes - solved.T @ carried[:, :-1]
        return mean, self.prior.covariance(wanted, wanted) - solved.T @ solved + left @ spread @ left.T

    def extrapolated(self, candidate: int, run: ReducedRun) -> float:
        """Return the seconds of the full size: measured, times expected at full size over expected at the reduced."""
        mean, _ = self.joint([(candidate, None), (candidate, run.size)])
        return math.exp(run.log_seconds + float(mean[0] - mean[1]))

    def surprises(self) -> list[Surprise]:
        """Return the candidates that ran once, each with the prediction of all other runs."""
        counts = Counter(row.candidate for row in self._rows if row.seen is not None)
        if counts.total() < 2:
            return []
        away, variances = self._gp.left_out(*self._shift())
        return [
            Surprise(
                candidate=row.candidate,
                away=float(away[index]),
                mean=float(self.model.level[row.candidate] + row.residual - away[index]),
                deviation=math.sqrt(max(float(variances[index]) - row.noise, self.prior.own)),
                noise=self.prior.trust.repeat,
            )
            for index, row in enumerate(self._rows)
            if row.seen is not None and counts[row.candidate] == 1
        ]

    # -- coefficients

    @property
    def site(self) -> SiteFactors:
        """The posterior mean of the factors."""
        return moved(self._calibration.site, self.model.reference + self._shift()[0])

    @property
    def point(self) -> tuple[float, ...]:
        """The logarithms of the factors at the point of linearization."""
        return tuple(self.model.reference.tolist())

    @property
    def move(self) -> float:
        """By how much the posterior mean of a factor lies at most from the point of linearization."""
        return float(np.abs(self._shift()[0][: len(TIME_FACTORS)]).max())

    def _shift(self) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean of the coefficients, relative to the reference, and their covariance."""
        return self._gp.coefficients(self.prior.deviations, self.model.reference - self.prior.mean)

    def _predicted(self, before: FloatArray, alone: float, slopes: FloatArray) -> tuple[float, float]:
        """Return mean and variance of a residual, by its covariances with the observations and its prior variance."""
        return self._gp.predicted(before, alone, slopes, *self._shift())

    # -- jobs

    def _jobs(self, candidates: Sequence[int], sizes: Sequence[ReducedSize | None] = ()) -> Jobs:
        """Return jobs of candidates in the current speed period, at full size unless `sizes` are given."""
        rows = np.array(candidates, dtype=np.int64)
        return Jobs(self._features.rows(self.model.group[rows]), rows, tuple(sizes) or (None,) * len(rows))

    def _job(self, seen: Observation) -> Jobs:
        """Return the job of an observation, in its speed period and of its size."""
        job = self._jobs([seen.candidate], [None if seen.reduced is None else seen.reduced.size])
        return job._replace(features=job.features.during(seen.period))

    def _across(self, row: int) -> FloatArray:
        """Return the covariance of an observation with each group."""
        own: FloatArray = self.prior.fading(self._observed.features.rows(slice(row, row + 1)), self._features)[0]
        return own
