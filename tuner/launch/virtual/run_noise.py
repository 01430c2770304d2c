"""Differences between two runs of one topology on a virtual cluster: noise of the speed, and random faults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tuner.core.errors import InputError
from tuner.core.outcomes import Outcome
from tuner.launch.virtual.hash_rng import normal, uniform

TAIL_FREEDOM: Final = 3
"""Degrees of freedom of the Student distribution of heavy-tailed noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Random faults that no topology causes; the next run of the same topology succeeds."""

    hangs: float = 0.007
    """Fraction of jobs."""
    crashes: float = 0.007
    planted: Mapping[str, Outcome] = field(default_factory=dict)
    """Topologies, by key, whose jobs always end so: OOM, HUNG or CRASHED."""

    def of_run(self, seed: int, run: str, earlier: int) -> Outcome | None:
        """Return how the run of a topology fails after `earlier` others, or None if it does not."""
        if earlier and self._drawn(seed, run, earlier - 1):
            return None
        return self._drawn(seed, run, earlier)

    def _drawn(self, *words: object) -> Outcome | None:
        drawn = uniform(*words, "fault")
        if drawn < self.hangs:
            return Outcome.HUNG
        return Outcome.CRASHED if drawn < self.hangs + self.crashes else None


NO_FAULTS: Final = Faults(hangs=0.0, crashes=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNoise:
    """Log-normal or heavy-tailed noise of a run's seconds."""

    deviation: float = 0.0
    """Standard deviation of the logarithm."""
    heavy_tailed: bool = False
    """Whether the logarithm has a Student distribution, scaled to the same standard deviation."""

    def __post_init__(self) -> None:
        if not 0 <= self.deviation < 1:
            raise InputError(f"--noise must be at least 0 and below 1 (got {self.deviation}); 0.01 is 1%.")

    def factor(self, *words: object) -> float:
        """Return the factor on a run's seconds, determined by the words."""
        if not self.deviation:
            return 1.0
        drawn = normal(*words)
        if self.heavy_tailed:
            squares = sum(normal(*words, "tail", number) ** 2 for number in range(TAIL_FREEDOM))
            drawn /= math.sqrt(squares / TAIL_FREEDOM) * math.sqrt(TAIL_FREEDOM / (TAIL_FREEDOM - 2))
        return math.exp(self.deviation * drawn)
