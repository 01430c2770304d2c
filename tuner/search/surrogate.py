"""The surrogate: the cost model's seconds and memory of every candidate, updated by a study's measurements.

    log seconds = log model(reference) + slopes x factors + shared residual + own residual

Candidates share a residual as `residual_features` defines it. Factors and residual are one exact Gaussian posterior,
updated after each job; when the factors move far from the reference, the model is evaluated there again. Memory is the
model's need plus a residual of three parts: common to all, by kernels and recompute, and fading with distance. How much
a cluster's cards can really allocate is uncertain too: an out-of-memory run needed more than that, a run that fitted
needed less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray
from tuner.costmodel.calibration import Calibration, prior_deviations, slopes_of
from tuner.costmodel.constants import (
    CLIFF_DEVIATION,
    KERNEL_DEVIATION,
    PERIOD_DEVIATION,
    SHAPE_DEVIATION,
)
from tuner.costmodel.estimate import CHUNK, memory_deviation
from tuner.costmodel.memory import worst_need
from tuner.costmodel.normal import below, truncated
from tuner.costmodel.residual_features import Features, covariance, joined
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.costmodel.time import seconds
from tuner.search.candidates import CandidatePool
from tuner.search.incremental_gp import IncrementalGP, SingleArray
from tuner.search.observations import Observations, memory_covariance, row_of

OWN: Final = 0.022
"""Standard deviation of the logarithm of what is a topology's own and no other's."""

REPEAT: Final = 0.012
"""Of two runs of one topology: BLOOM's own repeats differ by about 1%."""

FAR: Final = 3.0
"""Deviations beyond which an observation is taken for noisier than others."""

MOVED: Final = 0.1
"""How far a factor's logarithm may go from the reference before the model is asked again."""

WEIGHING: Final = 0.015
"""Standard deviation of a memory figure's logarithm."""


MARGIN: Final = (0.02, 0.03)
"""Mean and standard deviation of what a cluster's cards hold less than the limit, as a logarithm. The fullest published
runs, printed to the GB or half of it, had 95% to 100% of an A100 (BLOOM), 98% of a V100 (the 104B tune-up) and 94% to
100% of two V100s (a 1.3B model); what stopped the next one is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Reliability of the model and of a single run on a study's machines."""

    repeat: float = REPEAT
    """Standard deviation of the logarithm of two runs of one topology."""
    unsure: float = 1.0
    """By how much more the model may be off than on the machines that it was made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one job of a candidate."""

    candidate: int
    seconds: float | None = None
    memory: float | None = None
    """Bytes on the fullest GPU, all that the process held."""
    fits: bool | None = None
    """None: the job ended for another reason."""
    period: str = ""
    forecast: bool = False
    """The seconds are what the job was heading for when it was stopped."""


FORECAST: Final = 0.03
"""Standard deviation of such a figure's logarithm."""


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
        self.pool = pool
        self.trust = trust or Trust()
        self._scale = self.trust.unsure**2
        self._shared, self._own = _RESIDUAL * self._scale, OWN**2 * self._scale
        self._prior = prior_deviations() * self.trust.unsure
        self.period = period
        self._calibration = calibration or Calibration()
        self._features, self._group = pool.groups
        self._observations: list[Observation] = []
        self._weigh()
        self._refer(self._calibration.site)

    # -- observations

    def learn(self, seen: Sequence[Observation]) -> None:
        """Add observations."""
        for observation in seen:
            self._observations.append(observation)
            self._take(observation)
        if seen and float(np.abs(self._shift()[0]).max()) > MOVED:
            self._refer(self.site)

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

    def evidence(self, periods: Sequence[str]) -> float:
        """Return the log likelihood of all measured seconds under this assignment to speed periods."""
        timed = [
            (observation, period)
            for observation, period in zip(self._observations, periods, strict=True)
            if observation.seconds is not None
        ]
        rows = joined(
            [replace(self._kind_features(observation.candidate), period=(period,)) for observation, period in timed]
        )
        candidates = np.array([observation.candidate for observation, _ in timed])
        slopes = self._slopes[candidates]
        residual = np.log([observation.seconds or math.nan for observation, _ in timed]) - self._level[candidates]
        residual -= slopes @ (self._expected - self._reference)
        together = covariance(rows, rows) * self._scale + self._own * (candidates[:, None] == candidates[None, :])
        together += (slopes * self._prior**2) @ slopes.T
        together += np.diag([self._noise(observation) for observation, _ in timed])
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

    def out_of_memory(self) -> FloatArray:
        """Return the probability that each candidate runs out of memory."""
        beyond, deviation = self._overfull()
        chance = below(beyond / deviation)
        found: FloatArray = np.where(self.ruled_out, 1.0, chance)
        return found

    def least_need(self) -> tuple[int, float]:
        """The candidate that overfills its card least, and how many times what the card holds it is thought to need."""
        beyond, _ = self._overfull()
        candidate = int(np.argmin(beyond))
        return candidate, math.exp(beyond[candidate])

    # -- the parts

    def _overfull(self) -> tuple[FloatArray, FloatArray]:
        """Logarithms of what candidates need over what their cards hold: means and deviations."""
        mean, variance = self._memory_of(self._memory.whitened)
        beyond = self._need - self.pool.room + MARGIN[0] + (mean * self._memory_deviation)[self._group]
        return beyond, (np.sqrt(variance) * self._memory_deviation)[self._group]

    def _weigh(self) -> None:
        site, parts = self._calibration.site, self.pool.parts
        self._need = np.log(np.concatenate([worst_need(part, site).total for part in _chunked(parts)]))
        deviation = np.concatenate([np.full(len(part.tp), memory_deviation(part, self._calibration)) for part in parts])
        first = np.zeros(len(self._features), dtype=np.int64)
        first[self._group] = np.arange(len(self._group))
        self._memory_deviation: FloatArray = deviation[first]

    def _refer(self, site: SiteFactors) -> None:
        """Evaluate the model at these factors, and add all observations again."""
        self._reference = np.log([getattr(site, name) for name in TIME_FACTORS])
        chunks = list(_chunked(self.pool.parts))
        self._level = np.log(np.concatenate([seconds(part, site) for part in chunks]))
        if not hasattr(self, "_slopes"):
            self._slopes = np.concatenate([slopes_of(part, site) for part in chunks])
            spread = ((self._slopes * self._prior) ** 2).sum(axis=1)
            self._most = np.sqrt(self._shared + self._own + spread)
        groups = len(self._features)
        self._time = IncrementalGP(groups, len(TIME_FACTORS) + 1)
        self._memory = IncrementalGP(groups, 1)
        self._observed, self._followed_as = Observations(), Observations()
        self._followed: dict[int, int] = {}
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

    def _noise(self, seen: Observation) -> float:
        """Variance of a figure by itself."""
        return max(FORECAST, self.trust.repeat) ** 2 if seen.forecast else self.trust.repeat**2

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
                self._noise(seen),
            )
        if seen.fits is not None:
            self._take_memory(seen, features)

    def _observe(self, features: Features, candidate: int, slopes: FloatArray, residual: float, noise: float) -> None:
        before = self._together(self._observed, features, candidate)
        solved = self._time.solved(before)
        shift, spread = self._shift()
        carried = self._time.carried
        left = slopes - solved @ carried[:, :-1]
        expected = slopes @ shift + solved @ (carried[:, -1] - carried[:, :-1] @ shift)
        variance = float(self._shared + self._own + noise - solved @ solved + left @ spread @ left)
        far = float(abs(residual - expected)) / math.sqrt(max(variance, 1e-12))
        noise = max(noise, REPEAT**2) + (variance * ((far / FAR) ** 2 - 1) if far > FAR else 0.0)
        across = self._to_kinds(features)
        followed = self._together(self._followed_as, features, candidate)
        self._time.add(across, before, self._shared + self._own + noise, np.append(slopes, residual), followed)
        self._observed.add(features, candidate)

    def _take_memory(self, seen: Observation, features: Features) -> None:
        """Add a job's memory figure, and whether it fitted, by moment matching."""
        columns, row = self.pool.at(seen.candidate)
        deviation = float(self._memory_deviation[self._group[seen.candidate]])
        need = float(self._need[seen.candidate])
        if not seen.fits:
            self._rule_out(columns, row, seen.candidate)
        elif seen.memory is not None:
            before = self._memory_across(features, 0.0)
            self._weigh_in(
                features,
                0.0,
                before,
                (math.log(seen.memory) - need) / deviation,
                (WEIGHING / deviation) ** 2,
            )
        margin = MARGIN[1] / deviation
        before = self._memory_across(features, margin)
        solved = self._memory.solved(before)
        mean = float(solved @ self._memory.carried[:, 0])
        variance = max(1.0 + margin**2 - float(solved @ solved), 1e-6)
        edge = (float(self.pool.room[seen.candidate]) - MARGIN[0] - need) / deviation
        found = truncated(mean, variance, edge, above=not seen.fits)
        if found is not None:
            self._weigh_in(features, margin, before, *found)

    def _memory_across(self, features: Features, margin: float) -> FloatArray:
        """Covariance of an observation of memory with those before it."""
        together: FloatArray = memory_covariance(features, self._weighed.features)[0]
        return together + margin * np.array(self._margins)

    def _weigh_in(self, features: Features, margin: float, before: FloatArray, value: float, noise: float) -> None:
        """Take an observation of what a job needs, or with a margin of what it needs beside what its card holds."""
        across = memory_covariance(features, self._features)[0] + margin * MARGIN[1] / self._memory_deviation
        self._memory.add(across.astype(np.float32), before, 1.0 + margin**2 + noise, np.array([value]))
        self._weighed.add(features, 0)
        self._margins.append(margin)

    def _rule_out(self, columns: Columns, row: int, candidate: int) -> None:
        """Rule out what needs no less: the same but for a larger micro batch, less sharding or less recompute."""
        start = candidate - row
        same = np.ones(len(columns.tp), dtype=np.bool_)
        for name in ("tp", "pp", "cp", "vpp", "partition", "heads", "hidden", "layers", "global_batch"):
            values = columns.arrays[name]
            same &= values == values[row]
        same &= columns.micro_batch >= columns.micro_batch[row]
        for name in ("zero", "dp", "sequence_parallel", "recompute"):
            values = columns.arrays[name]
            same &= values <= values[row]
        self.ruled_out[start : start + len(same)] |= same

    def _memory_of(self, whitened: SingleArray) -> tuple[FloatArray, FloatArray]:
        values = self._memory.carried[:, 0].astype(np.float32)
        mean = (values @ whitened).astype(np.float64)
        own = 1.0 + (MARGIN[1] / self._memory_deviation) ** 2
        variance = np.maximum(own - np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64), 1e-4)
        return mean, variance

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
        return others.covariance(features, candidate, OWN**2) * self._scale

    def _to_kinds(self, features: Features) -> SingleArray:
        period = PERIOD_DEVIATION**2 if features.period[0] == self.period else 0.0
        unlabelled = replace(features, period=("\0",))
        across: SingleArray = ((covariance(unlabelled, self._features)[0] + period) * self._scale).astype(np.float32)
        return across


_RESIDUAL: Final = PERIOD_DEVIATION**2 + CLIFF_DEVIATION**2 + KERNEL_DEVIATION**2 + SHAPE_DEVIATION**2
"""Variance of what candidates share."""


def _chunked(parts: Sequence[Columns]) -> list[Columns]:
    """The parts cut so that the arrays between stay in the processor's cache."""
    return [part.rows(slice(start, start + CHUNK)) for part in parts for start in range(0, len(part.tp), CHUNK)]
