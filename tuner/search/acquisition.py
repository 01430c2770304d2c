"""What a job of each candidate is worth: the chance that it beats the best, by how much, against its risk and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, FloatArray, IntArray
from tuner.costmodel.normal import below, density
from tuner.search.surrogate import Surrogate

FIRST_LOOK: Final = 4096
"""Candidates whose worth is worked out at first; more follow while one of them may be worth more."""

RISK: Final = 0.6
"""Probability of running out of memory beyond which a job is not tried while a safer one is open."""

LOSS: Final = 0.01
"""What a job that runs out of memory costs, as a share of the time to finish: a gain is weighed against it."""


FIRST_OF_EACH: Final = 0.05
"""On machines that the model was not made for, a split of the model (tp by pp) of which nothing has run goes before
another of a split that has, if one of it is sooner than the best with this probability: there the model says too little
of what splits have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The job that is worth most."""

    candidate: int
    gain: float
    """Expected saving as a share of the time to finish, if it fits."""
    chance: float
    """That it is sooner than the best."""
    out_of_memory: float


def improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Expected improvement of a logarithm upon the best (Mockus 1978)."""
    z = (best - mean) / deviation
    gain: FloatArray = deviation * (z * below(z) + density(z))
    return gain


def choose(belief: Surrogate, *, best: float | None, open_to: BoolArray) -> Choice | None:
    """The candidate that is worth most among those that are open; exact over all of them.

    `best` is the logarithm of the seconds in which the best one known finishes; None: nothing is known yet, and what is
    wanted is the soonest that is likely to fit.
    """
    mean = belief.log_seconds() + belief.pool.work
    risk = belief.out_of_memory()
    places = np.flatnonzero(open_to & (risk < 1.0))
    if not len(places):
        return None
    safe = places[risk[places] <= RISK]
    places = safe if len(safe) else places[risk[places] <= risk[places].min() + 1e-9]
    if best is None:
        candidate = int(places[np.argmin(mean[places] - np.log1p(-np.minimum(risk[places], 0.999)))])
        return Choice(candidate=candidate, gain=0.0, chance=1.0, out_of_memory=float(risk[candidate]))
    if belief.trust.unsure > 1:
        places = _of_new_splits(belief, places, mean, best)
    bound = _worth(improvement(mean[places], belief.most_deviation()[places], best), risk[places])
    look = FIRST_LOOK
    while True:
        first = places if look >= len(places) else places[np.argpartition(-bound, look)[:look]]
        deviation = belief.deviation(first)
        gain = improvement(mean[first], deviation, best)
        worth = _worth(gain, risk[first])
        top = int(np.argmax(worth))
        if look >= len(places) or worth[top] >= -np.partition(-bound, look)[look]:
            break
        look *= 4
    candidate = int(first[top])
    z = (best - mean[candidate]) / deviation[top]
    return Choice(
        candidate=candidate,
        gain=float(gain[top]),
        chance=float(below(np.array([z]))[0]),
        out_of_memory=float(risk[candidate]),
    )


def _of_new_splits(belief: Surrogate, places: IntArray, mean: FloatArray, best: float) -> IntArray:
    """Those of a split that has not been run and may well be the best's; all of them where there are none."""
    split = belief.pool.splits
    new = places[~np.isin(split[places], split[belief.candidates_seen])]
    likely = below((best - mean[new]) / belief.deviation(new)) >= FIRST_OF_EACH
    return new[likely] if likely.any() else places


def _worth(gain: FloatArray, risk: FloatArray) -> FloatArray:
    worth: FloatArray = gain * (1 - risk) - LOSS * risk
    return worth
