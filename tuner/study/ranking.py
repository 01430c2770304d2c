"""Who is ahead, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.costmodel.normal import below
from tuner.search.surrogate import REPEAT, Surrogate
from tuner.study.store.trial import Trial

WORTH: Final = 6.0
"""Repeats that the noise known before is worth."""

UNLIKELY: Final = 0.025
"""A topology that is the better one with less probability than this is told apart: who leads is seen afterwards, so
that of two equal ones either may seem the better, and both chances together are 5%."""

INTERVAL: Final = 1.2816
"""Deviations on either side that hold 80%."""

DAY: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTrial:
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


def standings(belief: Surrogate, trials: Sequence[Trial]) -> list[RankedTrial]:
    """All measured topologies, the best first."""
    runs: dict[int, list[Trial]] = {}
    for trial in trials:
        if trial.measured:
            runs.setdefault(trial.proposal.candidate, []).append(trial)
    if not runs:
        return []
    candidates, spread = list(runs), noise(trials, usual=belief.trust.repeat)
    mean, deviation = belief.measured(candidates)
    many = np.array([len(own) for own in runs.values()])
    finish = mean + belief.pool.work[candidates]
    width = INTERVAL * np.maximum(deviation, spread / np.sqrt(many))
    order = np.lexsort((np.array([own[0].number for own in runs.values()]), finish))
    leader = order[0]
    apart = (finish - finish[leader]) / (spread * np.sqrt(1 / many + 1 / many[leader]))
    rival = below(-apart)
    return [
        RankedTrial(
            candidate=candidates[place],
            key=runs[candidates[place]][0].proposal.key,
            seconds=math.exp(mean[place]),
            days=math.exp(finish[place]) / DAY,
            low=math.exp(finish[place] - width[place]) / DAY,
            high=math.exp(finish[place] + width[place]) / DAY,
            runs=int(many[place]),
            trials=tuple(trial.number for trial in runs[candidates[place]]),
            rival=0.0 if place == leader else float(rival[place]),
        )
        for place in order.tolist()
    ]


def rivals(places: Sequence[RankedTrial]) -> list[RankedTrial]:
    """Those that cannot be told apart from the leader, the likeliest first."""
    near = [place for place in places[1:] if place.rival >= UNLIKELY]
    return sorted(near, key=lambda place: -place.rival)


def noise(trials: Sequence[Trial], eras: Mapping[int, str] | None = None, *, usual: float = REPEAT) -> float:
    """Standard deviation of the logarithm of a run's seconds, from repeats of one topology within one era."""
    runs: dict[tuple[int, str], list[float]] = {}
    for trial in trials:
        if trial.measured:
            era = (eras or {}).get(trial.number, "")
            runs.setdefault((trial.proposal.candidate, era), []).append(math.log(trial.seconds))
    again = [own for own in runs.values() if len(own) > 1]
    squares = sum(float(np.var(own)) * len(own) for own in again)
    free = sum(len(own) - 1 for own in again)
    return math.sqrt((WORTH * usual**2 + squares) / (WORTH + free))
