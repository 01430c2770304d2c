"""The features of observations, one row each, in growing arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray, IntArray
from tuner.costmodel.constants import SHAPE_LENGTH_SCALE
from tuner.costmodel.residual_features import LENGTHS, SMOOTH, Features, Lengths, covariance, same
from tuner.search.constants import (
    ACCIDENT_CHANCE,
    ACCIDENT_DEVIATION,
    OUTLIER_DEVIATIONS,
    REPEAT_DEVIATION,
)
from tuner.search.reduced import ReducedRun, ReducedSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Reliability of the model and of a single run on a study's machines."""

    repeat: float = REPEAT_DEVIATION
    """Standard deviation of the logarithm of two runs of one topology."""
    unsure: float = 1.0
    """By how much more the model's residual may be off than on the machines that it was made for."""
    factors: float = 1.0
    """By how much more the site factors may be off."""
    lengths: Lengths = LENGTHS
    """Doublings over which what topologies share of the residual fades, each with its share."""
    trend: float = 0.0
    """Standard deviation of the change of the model's error with each doubling of tp, of pp and of the micro batch."""
    level: float = 0.0
    """Standard deviation of the common error of the model over all topologies, in addition to its site factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one job of a candidate."""

    candidate: int
    seconds: float | None = None
    memory: float | None = None
    """Bytes on the fullest GPU, of the whole process."""
    least_memory: float | None = None
    """Bytes on some GPU: the fullest one used at least as much."""
    fits: bool | None = None
    """None: the job ended for another reason."""
    period: str = ""
    forecast: bool = False
    """The seconds are what the job was heading for when it was stopped."""
    reduced: ReducedRun | None = None
    """The job ran at a reduced size, whose seconds are here; memory and `fits` are of that size too."""

    @property
    def timed(self) -> bool:
        """Whether it has seconds, at whichever size."""
        return self.seconds is not None or bool(self.reduced and self.reduced.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """A candidate's only run, and the prediction of all other runs."""

    candidate: int
    away: float
    """Logarithm of its seconds over those predicted."""
    mean: float
    """Logarithm of the seconds that the other runs predict."""
    deviation: float
    noise: float
    """Standard deviation of the logarithm of two runs of one topology."""

    @property
    def deviations(self) -> float:
        """By how many standard deviations it took longer than predicted."""
        return self.away / math.hypot(self.deviation, self.noise)

    @property
    def accident(self) -> float:
        """Probability that an accident slowed it down.

        The delay by an accident is the positive half of a Gaussian; with the Gaussian prediction it adds up to a
        skewed one (Azzalini 1985).
        """
        usual = math.hypot(self.deviation, self.noise)
        whole = math.hypot(usual, ACCIDENT_DEVIATION)
        steep = self.away / whole * ACCIDENT_DEVIATION / usual
        slowed = ACCIDENT_CHANCE * 2 * math.exp(-0.5 * (self.away / whole) ** 2) / whole
        slowed *= 0.5 * math.erfc(-steep / math.sqrt(2))
        steady = (1 - ACCIDENT_CHANCE) * math.exp(-0.5 * (self.away / usual) ** 2) / usual
        return slowed / max(slowed + steady, 1e-300)


class Observations:
    """The features and the candidate, or another number, of each observation."""

    def __init__(self) -> None:
        self._rows = 0
        self._numbers = np.zeros((_ROOM, 3 + len(SMOOTH)))
        self._candidates: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self._words: tuple[list[str], list[str]] = ([], [])
        self.sizes: list[ReducedSize | None] = []
        """The reduced size of each, or None."""

    def __len__(self) -> int:
        return self._rows

    @property
    def features(self) -> Features:
        """The features of all observations."""
        numbers = self._numbers[: self._rows]
        kernel, period = self._words
        return Features(smooth=numbers[:, 3:], cliff=numbers[:, :3], kernel=tuple(kernel), period=tuple(period))

    @property
    def candidates(self) -> IntArray:
        """The candidate of each."""
        return self._candidates[: self._rows]

    def add(self, features: Features, candidate: int, size: ReducedSize | None = None) -> None:
        """Add an observation."""
        rows = self._rows
        self.sizes.append(size)
        if rows == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            self._candidates = np.concatenate([self._candidates, np.zeros_like(self._candidates)])
        self._numbers[rows] = np.concatenate([features.cliff[0], features.smooth[0]])
        self._candidates[rows] = candidate
        for words, new in zip(self._words, (features.kernel, features.period), strict=True):
            words.extend(new)
        self._rows = rows + 1

    def truncate(self, rows: int) -> None:
        """Remove all but the first rows."""
        self._rows = rows
        for found in (*self._words, self.sizes):
            del found[rows:]

    def covariance(self, features: Features, candidate: int, own: float, lengths: Lengths = LENGTHS) -> FloatArray:
        """Return the covariance of a candidate's time with each observation.

        `own` is the variance of the residual that no other candidate shares; the shared one fades over `lengths`.
        """
        across: FloatArray = covariance(features, self.features, lengths)[0]
        across += own * (self._candidates[: self._rows] == candidate)
        return across


_ROOM: Final = 16


def memory_covariance(left: Features, right: Features, common: float = 1.0) -> FloatArray:
    """Return the covariance of the memory residuals of two lists, in units of the variance that they have at first.

    `common` is the weight of what all candidates share; that of kernels and that of distance are 1.
    """
    apart = ((left.smooth[:, None, :] - right.smooth[None, :, :]) / SHAPE_LENGTH_SCALE) ** 2
    near = np.exp(-0.5 * apart.sum(axis=2))
    together: FloatArray = (common + same(left.kernel, right.kernel) + near) / 3
    return together


def row_of(features: Features, row: int) -> Features:
    """Return the features of one row."""
    return Features(
        smooth=features.smooth[row : row + 1],
        cliff=features.cliff[row : row + 1],
        kernel=features.kernel[row : row + 1],
        period=features.period[row : row + 1],
    )


def runs_of(seen: Observation, observations: Sequence[Observation]) -> list[float]:
    """Return the logarithms of seconds of all runs of its candidate in its speed period, in ascending order."""
    alike = (run for run in observations if (run.candidate, run.period) == (seen.candidate, seen.period))
    return sorted(math.log(run.seconds) for run in alike if run.seconds is not None)


def gap_of(seen: Observation, observations: Sequence[Observation], variance: float) -> float:
    """Return the distance of a run from the others of its candidate if noise does not explain it, otherwise 0.

    Accidents make a run slower, so of two runs the faster one is trusted.
    """
    runs = runs_of(seen, observations)
    if len(runs) < 2 or seen.seconds is None:
        return 0.0
    gap = abs(math.log(seen.seconds) - runs[(len(runs) - 1) // 2])
    return gap if gap > OUTLIER_DEVIATIONS * math.sqrt(2 * variance) else 0.0
