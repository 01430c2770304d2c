"""Acquisition: expected improvement on the best candidate, less the risk of running out of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

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


MIN_VARIANCE: Final = 1e-8
"""Of a logarithm: below it, rounding decides."""


def moved_by_run(variance: FloatArray, shared: FloatArray | float, noise: float) -> FloatArray:
    """Return the standard deviation by which a run of each candidate is expected to move it beside another one.

    `variance` is that of its logarithm, `shared` its covariance with the other's, `noise` the variance of a run.
    """
    moved: FloatArray = np.maximum(np.abs(variance - shared), MIN_VARIANCE) / np.sqrt(variance + noise)
    return moved


def choose(surrogate: Surrogate, *, best: float | None, open_to: BoolArray) -> Suggestion | None:
    """Return the open candidate with the best acquisition, exact over all of them.

    `best` is the logarithm of the seconds in which the best one known finishes; None: nothing is known yet, and what is
    wanted is the soonest that is likely to fit.
    """
    risk = surrogate.memory.out_of_memory()
    candidates = np.flatnonzero(open_to & (risk < 1.0))
    if not len(candidates):
        return None
    if best is None:
        mean = surrogate.time.log_seconds() + surrogate.pool.work
        safe = candidates[risk[candidates] <= MAX_FIRST_RISK]
        candidates = safe if len(safe) else candidates[risk[candidates] <= risk[candidates].min() + 1e-9]
        candidate = int(candidates[np.argmin(mean[candidates] - np.log1p(-np.minimum(risk[candidates], 0.999)))])
        return Suggestion(candidate=candidate, gain=0.0, chance=1.0, out_of_memory=float(risk[candidate]))
    outlook = _Outlook.of(surrogate, best, risk)
    doubted = surrogate.trust.unsure >= DOUBTED_MODEL
    if doubted:
        new = outlook.of_new_splits(candidates)
        if len(new) and (found := outlook.best_of(new)).net_saving >= MIN_EXPECTED_GAIN:
            return found
    chosen = outlook.best_of(candidates)
    if doubted and chosen.net_saving < MIN_EXPECTED_GAIN:
        untried = outlook.of_untried_degree(candidates)
        if untried is not None and untried.net_saving > chosen.net_saving:
            return untried
    return chosen


def shortlist(surrogate: Surrogate, *, best: float, open_to: BoolArray, count: int) -> list[Suggestion]:
    """Return so many open candidates with the best acquisition, the best first, among those that it is evaluated for.

    `best` is the logarithm of the seconds in which the best one known finishes.
    """
    risk = surrogate.memory.out_of_memory()
    outlook, candidates = _Outlook.of(surrogate, best, risk), np.flatnonzero(open_to & (risk < 1.0))
    candidates = candidates[np.argsort(-outlook.most_saving(candidates), kind="stable")[:FIRST_EVALUATED]]
    deviation = surrogate.time.deviation(candidates)
    order = np.argsort(-outlook.saving(candidates, deviation), kind="stable")[:count]
    return [outlook.suggestion(int(candidates[row]), float(deviation[row])) for row in order.tolist()]


class _Outlook(NamedTuple):
    """What the surrogate expects of all candidates, beside the best one known."""

    surrogate: Surrogate
    mean: FloatArray
    """Logarithms of the seconds in which they finish."""
    risk: FloatArray
    """Probabilities of running out of memory."""
    best: float
    leader: int | None
    """The candidate that others are compared with: the best that has run, or runs; None if none has."""

    @classmethod
    def of(cls, surrogate: Surrogate, best: float, risk: FloatArray) -> _Outlook:
        """Return what the surrogate expects beside the logarithm of the seconds in which the best one finishes."""
        time, work = surrogate.time, surrogate.pool.work
        return cls(surrogate, time.log_seconds() + work, risk, best, time.soonest(work))

    def gain(self, candidates: IntArray, deviation: FloatArray) -> FloatArray:
        """Return the expected improvement of the choice by a run, averaged over how large the model's error may be.

        A run tells a candidate from the leader only so far as noise and errors that both share allow.
        """
        shared: FloatArray | float = 0.0
        if self.leader is not None:
            shared = self.surrogate.time.shared(candidates, self.leader)
        noise = self.surrogate.trust.repeat**2
        return self._averaged(
            candidates, lambda ratio: moved_by_run((ratio * deviation) ** 2, ratio**2 * shared, noise)
        )

    def _averaged(self, candidates: IntArray, moved: Callable[[float], FloatArray]) -> FloatArray:
        """Return the expected improvement by candidates that move by `moved` at each size of the model's error."""
        mean, sizes = self.mean[candidates], self.surrogate.error_sizes
        gain: FloatArray = np.sum(
            [share * improvement(mean, moved(ratio), self.best) for ratio, share in sizes], axis=0
        )
        return gain

    def chance(self, mean: FloatArray, deviation: FloatArray) -> FloatArray:
        """Return the probability of finishing sooner than the best, averaged likewise."""
        away, sizes = (self.best - mean) / deviation, self.surrogate.error_sizes
        chance: FloatArray = np.sum([share * below(away / ratio) for ratio, share in sizes], axis=0)
        return chance

    def saving(self, candidates: IntArray, deviation: FloatArray) -> FloatArray:
        """Return the net saving of each candidate, given the deviations of their logarithms."""
        return net_saving(gain=self.gain(candidates, deviation), risk=self.risk[candidates])

    def most_saving(self, candidates: IntArray) -> FloatArray:
        """Return an upper bound of the net saving of each candidate: no run moves it by more than it is uncertain."""
        time = self.surrogate.time
        apart = time.most_deviation[candidates]
        if self.leader is not None:
            apart = apart + float(time.measured([self.leader])[1][0])
        return net_saving(gain=self._averaged(candidates, lambda ratio: ratio * apart), risk=self.risk[candidates])

    def suggestion(self, candidate: int, deviation: float) -> Suggestion:
        """Return a candidate with its estimates."""
        row, spread = np.array([candidate]), np.array([deviation])
        return self._suggested(candidate, self.gain(row, spread)[0], self.chance(self.mean[row], spread)[0])

    def _suggested(self, candidate: int, gain: float, chance: float) -> Suggestion:
        risk = float(self.risk[candidate])
        return Suggestion(candidate=candidate, gain=float(gain), chance=float(chance), out_of_memory=risk)

    def best_of(self, candidates: IntArray) -> Suggestion:
        """Return the candidate with the largest net saving."""
        bound = self.most_saving(candidates)
        look = FIRST_EVALUATED
        while True:
            first = candidates if look >= len(candidates) else candidates[np.argpartition(-bound, look)[:look]]
            deviation = self.surrogate.time.deviation(first)
            saving = self.saving(first, deviation)
            top = int(np.argmax(saving))
            if look >= len(candidates) or saving[top] >= -np.partition(-bound, look)[look]:
                return self.suggestion(int(first[top]), float(deviation[top]))
            look *= 4

    def of_new_splits(self, candidates: IntArray) -> IntArray:
        """Return those of a split of which nothing has run and that may well be the best's."""
        split = self.surrogate.pool.splits
        new = candidates[~np.isin(split[candidates], split[self.surrogate.candidates_seen])]
        return new[self.chance(self.mean[new], self.surrogate.time.deviation(new)) >= MIN_NEW_SPLIT_CHANCE]

    def of_untried_degree(self, candidates: IntArray) -> Suggestion | None:
        """Return the best candidate with a tensor parallel degree of which nothing has run, or None.

        With the chance `UNTRIED_DEGREE_CHANCE` the other degrees say nothing about it: then it compares with the leader
        as before any run, as well as two topologies that share no error.
        """
        surrogate = self.surrogate
        seen, degrees = surrogate.candidates_seen, surrogate.pool.column("tp")
        untried = candidates[~np.isin(degrees[candidates], degrees[seen])]
        if not len(untried):
            return None
        first = surrogate.first_log_seconds + surrogate.pool.work
        before = self.best + first[untried] - first[seen[np.argmin(self.mean[seen])]]
        apart, fresh = np.full(len(untried), surrogate.time.prior.apart), UNTRIED_DEGREE_CHANCE
        mean, deviation = self.mean[untried], surrogate.time.deviation(untried)
        gain = (1 - fresh) * self.gain(untried, deviation) + fresh * improvement(before, apart, self.best)
        chance = (1 - fresh) * self.chance(mean, deviation) + fresh * below((self.best - before) / apart)
        top = int(np.argmax(net_saving(gain=gain, risk=self.risk[untried])))
        return self._suggested(int(untried[top]), gain[top], chance[top])


Shares = TypeVar("Shares", float, FloatArray)


def net_saving(*, gain: Shares, risk: Shares) -> Shares:
    """Return the expected saving less the price of running out of memory, as a share of the time to finish."""
    return gain * (1 - risk) - OOM_COST * risk
