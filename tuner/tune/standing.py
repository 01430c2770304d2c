"""Who is ahead, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.physics.normal import below
from tuner.search.belief import REPEAT, Belief
from tuner.search.record import Trial

WORTH: Final = 6.0
"""Repeats that the noise known before is worth."""

UNLIKELY: Final = 0.025
"""A topology that is the better one with less probability than this is told apart: who leads is seen afterwards, so
that of two equal ones either may seem the better, and both chances together are 5%."""

INTERVAL: Final = 1.2816
"""Deviations on either side that hold 80%."""

DAY: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One measured topology, as it stands in the present era."""

    candidate: int
    key: str
    seconds: float
    """Of one iteration: what its runs and all others make likely."""
    days: float
    low: float
    high: float
    """Days between which the truth is with 80%."""
    runs: int
    trials: tuple[int, ...]
    rival: float = 0.0
    """Probability that it finishes sooner than the leader."""


def standings(belief: Belief, trials: Sequence[Trial]) -> list[Place]:
    """All measured topologies, the best first."""
    runs: dict[int, list[Trial]] = {}
    for trial in trials:
        if trial.measured:
            runs.setdefault(trial.proposal.candidate, []).append(trial)
    spread = noise(trials)
    places = []
    for candidate, own in runs.items():
        mean, deviation = belief.measured(candidate)
        finish = mean + float(belief.pool.work[candidate])
        width = INTERVAL * max(deviation, spread / math.sqrt(len(own)))
        places.append(
            Place(
                candidate=candidate,
                key=own[0].proposal.key,
                seconds=math.exp(mean),
                days=math.exp(finish) / DAY,
                low=math.exp(finish - width) / DAY,
                high=math.exp(finish + width) / DAY,
                runs=len(own),
                trials=tuple(trial.number for trial in own),
            )
        )
    places.sort(key=lambda place: (place.days, place.trials))
    return [_against(place, places[0], spread) for place in places]


def rivals(places: Sequence[Place]) -> list[Place]:
    """Those that cannot be told apart from the leader, the likeliest first."""
    near = [place for place in places[1:] if place.rival >= UNLIKELY]
    return sorted(near, key=lambda place: -place.rival)


def noise(trials: Sequence[Trial], eras: Mapping[int, str] | None = None) -> float:
    """Standard deviation of the logarithm of a run's seconds, from repeats of one topology within one era."""
    runs: dict[tuple[int, str], list[float]] = {}
    for trial in trials:
        if trial.measured:
            era = (eras or {}).get(trial.number, "")
            runs.setdefault((trial.proposal.candidate, era), []).append(math.log(trial.seconds))
    squares = sum(float(np.var(own)) * len(own) for own in runs.values())
    free = sum(len(own) - 1 for own in runs.values())
    return math.sqrt((WORTH * REPEAT**2 + squares) / (WORTH + free))


def _against(place: Place, leader: Place, spread: float) -> Place:
    from dataclasses import replace

    if place is leader:
        return place
    apart = math.log(place.days / leader.days) / (spread * math.sqrt(1 / place.runs + 1 / leader.runs))
    return replace(place, rival=float(below(np.array([-apart]))[0]))
