"""Acquisition: expected improvement on the best candidate, less the risk of running out of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, FloatArray, IntArray
from tuner.costmodel.normal import below, density
from tuner.search.surrogate import Surrogate

FIRST_EVALUATED: Final = 4096
"""Candidates whose acquisition is evaluated first; more follow while one of them could be better."""

MAX_OOM_RISK: Final = 0.6
"""Probability of running out of memory above which a candidate is not tried while a safer one is open."""

OOM_COST: Final = 0.01
"""Cost of a job that runs out of memory, as a share of the time to finish."""


MIN_NEW_SPLIT_CHANCE: Final = 0.05
"""On machines that the model was not made for, a split of the model (tp by pp) of which nothing has run goes before
another of a split that has, if one of it is sooner than the best with this probability: there the model says too little
of what splits have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A candidate that a sampler suggests; the estimates are None where the sampler makes none."""

    candidate: int
    gain: float | None = None
    """Expected saving as a share of the time to finish, if it fits."""
    chance: float | None = None
    """Probability of finishing sooner than the best candidate."""
    out_of_memory: float | None = None
    """Probability of running out of memory."""
    rejected: int = 0
    """Proposals of the sampler that were rejected before this one."""


def improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Expected improvement of a logarithm upon the best (Mockus 1978)."""
    z = (best - mean) / deviation
    gain: FloatArray = deviation * (z * below(z) + density(z))
    return gain


def choose(surrogate: Surrogate, *, best: float | None, open_to: BoolArray) -> Suggestion | None:
    """Return the open candidate with the best acquisition, exact over all of them.

    `best` is the logarithm of the seconds in which the best one known finishes; None: nothing is known yet, and what is
    wanted is the soonest that is likely to fit.
    """
    mean = surrogate.log_seconds() + surrogate.pool.work
    risk = surrogate.out_of_memory()
    candidates = np.flatnonzero(open_to & (risk < 1.0))
    if not len(candidates):
        return None
    safe = candidates[risk[candidates] <= MAX_OOM_RISK]
    candidates = safe if len(safe) else candidates[risk[candidates] <= risk[candidates].min() + 1e-9]
    if best is None:
        candidate = int(candidates[np.argmin(mean[candidates] - np.log1p(-np.minimum(risk[candidates], 0.999)))])
        return Suggestion(candidate=candidate, gain=0.0, chance=1.0, out_of_memory=float(risk[candidate]))
    if surrogate.trust.unsure > 1:
        candidates = _of_new_splits(surrogate, candidates, mean, best)
    bound = _utility(improvement(mean[candidates], surrogate.most_deviation()[candidates], best), risk[candidates])
    look = FIRST_EVALUATED
    while True:
        first = candidates if look >= len(candidates) else candidates[np.argpartition(-bound, look)[:look]]
        deviation = surrogate.deviation(first)
        gain = improvement(mean[first], deviation, best)
        utility = _utility(gain, risk[first])
        top = int(np.argmax(utility))
        if look >= len(candidates) or utility[top] >= -np.partition(-bound, look)[look]:
            break
        look *= 4
    candidate = int(first[top])
    z = (best - mean[candidate]) / deviation[top]
    return Suggestion(
        candidate=candidate,
        gain=float(gain[top]),
        chance=float(below(np.array([z]))[0]),
        out_of_memory=float(risk[candidate]),
    )


def _of_new_splits(surrogate: Surrogate, candidates: IntArray, mean: FloatArray, best: float) -> IntArray:
    """Those of a split that has not been run and may well be the best's; all of them where there are none."""
    split = surrogate.pool.splits
    new = candidates[~np.isin(split[candidates], split[surrogate.candidates_seen])]
    likely = below((best - mean[new]) / surrogate.deviation(new)) >= MIN_NEW_SPLIT_CHANCE
    return new[likely] if likely.any() else candidates


def _utility(gain: FloatArray, risk: FloatArray) -> FloatArray:
    utility: FloatArray = gain * (1 - risk) - OOM_COST * risk
    return utility
