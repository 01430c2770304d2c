"""Joint distribution of the seconds of several jobs, for any topologies and sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.residual_features import Features, covariance, joined
from tuner.search.incremental_gp import IncrementalGP
from tuner.search.model_error import TimeRecord
from tuner.search.observations import Observations, Surprise
from tuner.search.reduced import ReducedRun, ReducedSize, gap_covariance


def revealed(beside: FloatArray, covariance: FloatArray, job: int, noise: float) -> float:
    """Return the standard deviation by which a job's result is expected to move how jobs compare.

    `beside` has the weight of each job in what is compared, `noise` is the variance of the result by itself:
    `cov(compared, job) / sqrt(var(job) + noise)`.
    """
    return abs(float(beside @ covariance[:, job])) / math.sqrt(float(covariance[job, job]) + noise)


class JointPosterior(TimeRecord):
    """The joint posterior of jobs that have not run, given those that have."""

    _time: IncrementalGP
    _observed: Observations
    _residuals: list[float]
    """Of each observation of seconds, from the model at `_reference`."""
    _prior: FloatArray
    """Standard deviations of the factors, the trends and the levels."""
    _scale: float
    """Variance of the residual beside that of the machines that the model was made for."""
    _shared: float
    """Variance that a candidate shares with others."""

    @property
    def apart(self) -> float:
        """Standard deviation of the difference of two candidates whose model errors are independent."""
        return math.sqrt(2 * (self._shared + self._own))

    def joint(self, jobs: Sequence[tuple[int, ReducedSize | None]]) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the log seconds of jobs, each of a candidate at full or at a reduced size.

        Those of a reduced size are projected to the full one. The noise of runs is excluded.
        """
        rows, sizes = np.array([candidate for candidate, _ in jobs], dtype=np.int64), [size for _, size in jobs]
        features = joined([self._features_of(candidate) for candidate in rows.tolist()])
        own = self._own * (rows[:, None] == rows[None, :])
        together = self._scale * covariance(features, features, self.trust.lengths) + own + gap_covariance(sizes, sizes)
        seen = self._observed
        across = self._scale * covariance(features, seen.features, self.trust.lengths)
        across += self._own * (rows[:, None] == seen.candidates[None, :]) + gap_covariance(sizes, seen.sizes)
        solved = self._time.solved(across.T)
        mean, slopes = self._level[rows], self._slopes[rows]
        for row, (candidate, size) in enumerate(jobs):
            if size is not None:
                mean[row], slopes[row] = size.level(self.reference_site), self._reduced_slopes(candidate, size)
        shift, spread = self._shift()
        carried = self._time.carried
        mean += slopes @ shift + solved.T @ (carried[:, -1] - carried[:, :-1] @ shift)
        left = slopes - solved.T @ carried[:, :-1]
        return mean, together - solved.T @ solved + left @ spread @ left.T

    def extrapolated(self, candidate: int, run: ReducedRun) -> float:
        """Return the seconds of the full size: measured, times expected at full size over expected at the reduced."""
        mean, _ = self.joint([(candidate, None), (candidate, run.size)])
        return math.exp(run.log_seconds + float(mean[0] - mean[1]))

    def surprises(self) -> list[Surprise]:
        """Return the candidates that ran once, each with the prediction of all other runs."""
        counts = Counter(candidate for candidate, _ in self._variances if candidate >= 0)
        if counts.total() < 2:
            return []
        away, variances = self._time.left_out(*self._shift())
        return [
            Surprise(
                candidate=candidate,
                away=float(away[row]),
                mean=float(self._level[candidate] + self._residuals[row] - away[row]),
                deviation=math.sqrt(max(float(variances[row]) - noise, self._own)),
                noise=self.trust.repeat,
            )
            for row, (candidate, noise) in enumerate(self._variances)
            if counts[candidate] == 1
        ]

    def _expected_of(self, before: FloatArray, alone: float, slopes: FloatArray) -> tuple[float, float]:
        """Return mean and variance of a residual, by its covariances with the observations and its prior variance."""
        solved, carried = self._time.solved(before), self._time.carried
        shift, spread = self._shift()
        left = slopes - solved @ carried[:, :-1]
        mean = float(slopes @ shift + solved @ (carried[:, -1] - carried[:, :-1] @ shift))
        return mean, float(alone - solved @ solved + left @ spread @ left)

    def _shift(self) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean of the factors, relative to the reference, and their covariance."""
        prior = 1 / self._prior**2
        carried = self._time.carried
        spread = np.linalg.inv(np.diag(prior) + carried[:, :-1].T @ carried[:, :-1])
        away = self._reference - self._expected
        shift: FloatArray = spread @ (carried[:, :-1].T @ carried[:, -1] - prior * away)
        return shift, spread

    def _features_of(self, candidate: int) -> Features:
        """Return the features of a candidate at the present speed."""
        raise NotImplementedError
