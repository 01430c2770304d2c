"""Acquisition: expected improvement on the best candidate, less the risk of running out of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tuner.core.columns import BoolArray, FloatArray, IntArray
from tuner.costmodel.normal import below, density
from tuner.search.constants import (
    DOUBTED_MODEL,
    FIRST_EVALUATED,
    MAX_FIRST_RISK,
    MIN_EXPECTED_GAIN,
    MIN_NEW_SPLIT_CHANCE,
    OOM_COST,
    UNTRIED_DEGREE_CHANCE,
)
from tuner.search.surrogate import Surrogate


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A candidate that a sampler suggests; the estimates are None if the sampler makes none."""

    candidate: int
    gain: float | None = None
    """Expected saving as a share of the time to finish, if it fits."""
    chance: float | None = None
    """Probability of finishing sooner than the best candidate."""
    out_of_memory: float | None = None
    """Probability of running out of memory."""
    rejected: int = 0
    """Proposals of the sampler that were rejected before this one."""

    @property
    def net_saving(self) -> float:
        """Expected saving less the price of running out of memory; 0 if the sampler makes no estimate."""
        if self.gain is None or self.out_of_memory is None:
            return 0.0
        return float(net_saving(gain=self.gain, risk=self.out_of_memory))


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
    mean = surrogate.time.log_seconds() + surrogate.pool.work
    risk = surrogate.memory.out_of_memory()
    candidates = np.flatnonzero(open_to & (risk < 1.0))
    if not len(candidates):
        return None
    if best is None:
        safe = candidates[risk[candidates] <= MAX_FIRST_RISK]
        candidates = safe if len(safe) else candidates[risk[candidates] <= risk[candidates].min() + 1e-9]
        candidate = int(candidates[np.argmin(mean[candidates] - np.log1p(-np.minimum(risk[candidates], 0.999)))])
        return Suggestion(candidate=candidate, gain=0.0, chance=1.0, out_of_memory=float(risk[candidate]))
    doubted = surrogate.trust.unsure >= DOUBTED_MODEL
    if doubted:
        new = _of_new_splits(surrogate, candidates, mean=mean, best=best)
        if len(new) and (found := _best(surrogate, new, mean=mean, risk=risk, best=best))[1] >= MIN_EXPECTED_GAIN:
            return found[0]
    chosen, saving = _best(surrogate, candidates, mean=mean, risk=risk, best=best)
    if doubted and saving < MIN_EXPECTED_GAIN:
        untried = _of_untried_degree(surrogate, candidates, mean=mean, risk=risk, best=best)
        if untried is not None and untried.net_saving > saving:
            return untried
    return chosen


def shortlist(surrogate: Surrogate, *, best: float, open_to: BoolArray, count: int) -> list[Suggestion]:
    """Return so many open candidates with the best acquisition, the best first, among those that it is evaluated for.

    `best` is the logarithm of the seconds in which the best one known finishes.
    """
    mean = surrogate.time.log_seconds() + surrogate.pool.work
    risk = surrogate.memory.out_of_memory()
    candidates = np.flatnonzero(open_to & (risk < 1.0))
    bound = _most_saving(surrogate, candidates, mean=mean, risk=risk, best=best)
    candidates = candidates[np.argsort(-bound, kind="stable")[:FIRST_EVALUATED]]
    deviation = surrogate.time.deviation(candidates)
    saving = net_saving(gain=improvement(mean[candidates], deviation, best), risk=risk[candidates])
    order = np.argsort(-saving, kind="stable")[:count]
    return [
        _suggestion(int(candidates[row]), deviation=float(deviation[row]), mean=mean, risk=risk, best=best)
        for row in order.tolist()
    ]


def _most_saving(
    surrogate: Surrogate, candidates: IntArray, *, mean: FloatArray, risk: FloatArray, best: float
) -> FloatArray:
    """Return an upper bound of the net saving of each candidate."""
    most = improvement(mean[candidates], surrogate.time.most_deviation[candidates], best)
    return net_saving(gain=most, risk=risk[candidates])


def _suggestion(candidate: int, *, deviation: float, mean: FloatArray, risk: FloatArray, best: float) -> Suggestion:
    """Return a candidate with its estimates."""
    own, spread = mean[candidate : candidate + 1], np.array([deviation])
    return Suggestion(
        candidate=candidate,
        gain=float(improvement(own, spread, best)[0]),
        chance=float(below((best - own) / spread)[0]),
        out_of_memory=float(risk[candidate]),
    )


def _best(
    surrogate: Surrogate, candidates: IntArray, *, mean: FloatArray, risk: FloatArray, best: float
) -> tuple[Suggestion, float]:
    """Return the candidate with the largest net saving, and that saving."""
    bound = _most_saving(surrogate, candidates, mean=mean, risk=risk, best=best)
    look = FIRST_EVALUATED
    while True:
        first = candidates if look >= len(candidates) else candidates[np.argpartition(-bound, look)[:look]]
        deviation = surrogate.time.deviation(first)
        saving = net_saving(gain=improvement(mean[first], deviation, best), risk=risk[first])
        top = int(np.argmax(saving))
        if look >= len(candidates) or saving[top] >= -np.partition(-bound, look)[look]:
            break
        look *= 4
    return _suggestion(int(first[top]), deviation=float(deviation[top]), mean=mean, risk=risk, best=best), float(
        saving[top]
    )


def _of_new_splits(surrogate: Surrogate, candidates: IntArray, *, mean: FloatArray, best: float) -> IntArray:
    """Return those of a split of which nothing has run and that may well be the best's."""
    split = surrogate.pool.splits
    new = candidates[~np.isin(split[candidates], split[surrogate.candidates_seen])]
    return new[below((best - mean[new]) / surrogate.time.deviation(new)) >= MIN_NEW_SPLIT_CHANCE]


def _of_untried_degree(
    surrogate: Surrogate, candidates: IntArray, *, mean: FloatArray, risk: FloatArray, best: float
) -> Suggestion | None:
    """Return the best candidate with a tensor parallel degree of which nothing has run, or None.

    With the chance `UNTRIED_DEGREE_CHANCE` the other degrees say nothing about it: then it compares with the leader as
    before any run, as well as two topologies that share no error.
    """
    seen, degrees = surrogate.candidates_seen, surrogate.pool.column("tp")
    untried = candidates[~np.isin(degrees[candidates], degrees[seen])]
    if not len(untried):
        return None
    before = surrogate.first_log_seconds + surrogate.pool.work
    leader = seen[np.argmin(mean[seen])]
    cases = (
        (1 - UNTRIED_DEGREE_CHANCE, mean[untried], surrogate.time.deviation(untried)),
        (
            UNTRIED_DEGREE_CHANCE,
            best + before[untried] - before[leader],
            np.full(len(untried), surrogate.time.prior.apart),
        ),
    )
    gain = np.sum([share * improvement(at, deviation, best) for share, at, deviation in cases], axis=0)
    chance = np.sum([share * below((best - at) / deviation) for share, at, deviation in cases], axis=0)
    top = int(np.argmax(net_saving(gain=gain, risk=risk[untried])))
    candidate = int(untried[top])
    return Suggestion(
        candidate=candidate,
        gain=float(gain[top]),
        chance=float(chance[top]),
        out_of_memory=float(risk[candidate]),
    )


Shares = TypeVar("Shares", float, FloatArray)


def net_saving(*, gain: Shares, risk: Shares) -> Shares:
    """Return the expected saving less the price of running out of memory, as a share of the time to finish."""
    return gain * (1 - risk) - OOM_COST * risk
