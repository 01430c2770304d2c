"""What a study's jobs have shown, and jobs as the residual sees them."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.core.columns import IntArray
from tuner.core.domain import MemoryKind
from tuner.costmodel.residual_features import LENGTHS, Features, Lengths, joined
from tuner.search.constants import (
    ACCIDENT_CHANCE,
    ACCIDENT_DEVIATION,
    OUTLIER_DEVIATIONS,
    REPEAT_DEVIATION,
)
from tuner.search.extrapolation import ReducedRun, ReducedSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Reliability of the model and of a single run on a study's machines."""

    repeat: float = REPEAT_DEVIATION
    """Standard deviation of the logarithm of two runs of one topology."""
    unsure: float = 1.0
    """By how much more the model's residual may be off than on the machines that it was made for."""
    factors: float = 1.0
    """By how much more the site factors and the uncertain terms may be off."""
    own: float = 1.0
    """By how much more a topology may differ from all others."""
    lengths: Lengths = LENGTHS
    """Doublings over which what topologies share of the residual fades, each with its share."""
    level: float = 0.0
    """Standard deviation of the common error of the model over all topologies, in addition to its site factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one job of a candidate."""

    candidate: int
    seconds: float | None = None
    memory: float | None = None
    """Bytes on the fullest GPU."""
    memory_kind: MemoryKind | None = None
    """What they count, where they may be of another GPU than the fullest; None: the whole process."""
    fits: bool | None = None
    """None: the job ended for another reason."""
    period: str = ""
    forecast: bool = False
    """The seconds are what the job was heading for when it was stopped."""
    least: float | None = None
    """Seconds that the job would at least have taken, if it has no others."""
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

    @property
    def undisturbed(self) -> tuple[float, float]:
        """Mean and standard deviation of its logarithm if an accident slowed it down.

        Both the other runs tell and its own, less a delay by the positive half of a Gaussian.
        """
        predicted, delayed = self.deviation**2, ACCIDENT_DEVIATION**2
        share = predicted / (predicted + delayed)
        return self.mean + self.away * share, math.sqrt(delayed * share)


class Jobs(NamedTuple):
    """Jobs as the residual sees them, one row each."""

    features: Features
    candidates: IntArray
    """The candidate of each, or another number."""
    sizes: tuple[ReducedSize | None, ...]
    """The reduced size of each, or None."""

    def rows(self, rows: slice) -> Jobs:
        """Return some of the jobs."""
        return Jobs(self.features.rows(rows), self.candidates[rows], self.sizes[rows])

    def plus(self, others: Jobs) -> Jobs:
        """Return these jobs and, after them, others."""
        candidates = np.concatenate([self.candidates, others.candidates])
        return Jobs(joined([self.features, others.features]), candidates, self.sizes + others.sizes)


class Runs:
    """All observations of a study in order, and the runs of each candidate in each speed period."""

    def __init__(self, seen: Iterable[Observation] = ()) -> None:
        self.all: list[Observation] = []
        self._log_seconds: dict[tuple[int, str], list[float]] = {}
        for observation in seen:
            self.add(observation)

    def add(self, seen: Observation) -> None:
        """Add an observation."""
        self.all.append(seen)
        if seen.seconds is not None:
            insort(self._log_seconds.setdefault((seen.candidate, seen.period), []), math.log(seen.seconds))

    def alike(self, seen: Observation) -> Sequence[float]:
        """Return the logarithms of seconds of all runs of its candidate in its speed period, in ascending order."""
        return self._log_seconds.get((seen.candidate, seen.period), ())

    def gap(self, seen: Observation, variance: float) -> float:
        """Return the distance of a run from the others of its candidate if noise does not explain it, otherwise 0.

        Accidents make a run slower, so of two runs the faster one is trusted.
        """
        runs = self.alike(seen)
        if len(runs) < 2 or seen.seconds is None:
            return 0.0
        gap = abs(math.log(seen.seconds) - runs[(len(runs) - 1) // 2])
        return gap if gap > OUTLIER_DEVIATIONS * math.sqrt(2 * variance) else 0.0
