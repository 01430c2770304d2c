"""Samplers: each suggests the next candidate.

`guided` maximizes the acquisition over all open candidates. Optuna's samplers work on a copy of the study in memory; a
proposal that breaks a rule or repeats a trial is reported to them as pruned and costs nothing. After `TRIES` rejections
in a row, the open candidate that agrees with the last proposal on most axes is suggested.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import optuna
from optuna.trial import TrialState

from tuner.core.columns import BoolArray, IntArray
from tuner.core.errors import MissingDependency, UnknownName
from tuner.search.acquisition import Suggestion, choose
from tuner.search.constants import LIKELY_OOM
from tuner.search.parameter_space import ParameterSpace
from tuner.search.surrogate import Surrogate

SAMPLERS: Final = ("guided", "tpe", "gp", "random", "grid", "plan")

TRIES: Final = 50
"""Proposals that may be refused in a row."""


class Proposer(Protocol):
    """The interface of a sampler to the study loop."""

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Record a finished trial: its days, or None without a measurement."""

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        """Return the next open candidate, or None if none is left.

        `best` is the logarithm of the seconds in which the best one known finishes.
        """


def proposer(
    name: str, surrogate: Surrogate, space: ParameterSpace, *, seed: int, memory_filter: bool = False
) -> Proposer:
    """Return the sampler of that name; with `memory_filter`, none of its candidates is likely to run out of memory."""
    if memory_filter:
        return _MemoryFiltered(proposer(name, surrogate, space, seed=seed), surrogate)
    if name == "guided":
        return _Guided(surrogate)
    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # groups, since version 2.8
            return _Optunas(optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True), space, seed)
    if name == "gp":
        return _Optunas(optuna.samplers.GPSampler(seed=seed), space, seed)
    if name == "random":
        return _Random(seed)
    if name == "grid":
        return _Ordered(np.arange(len(surrogate.pool)))
    if name == "plan":
        finish = surrogate.time.log_seconds() + surrogate.pool.work
        return _Ordered(np.lexsort((finish, surrogate.memory.out_of_memory() >= LIKELY_OOM)))
    raise UnknownName("sampler", name, SAMPLERS)


class _Guided:
    """Suggests the open candidate with the best acquisition; learns through the surrogate."""

    def __init__(self, surrogate: Surrogate) -> None:
        self._surrogate = surrogate

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Do nothing; the surrogate has the observation."""

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        return choose(self._surrogate, best=best, open_to=open_to)


class _MemoryFiltered:
    """Another sampler, restricted to candidates that are likely to fit given the study's measurements."""

    def __init__(self, sampler: Proposer, surrogate: Surrogate) -> None:
        self._sampler, self._surrogate = sampler, surrogate

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        self._sampler.tell(values, objective)

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        return self._sampler.next(open_to & (self._surrogate.memory.out_of_memory() < LIKELY_OOM), best)


class _Ordered:
    """Suggests candidates in a fixed order."""

    def __init__(self, order: IntArray) -> None:
        self._order = order

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Do nothing."""

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        still = open_to[self._order]
        return Suggestion(candidate=int(self._order[np.argmax(still)])) if still.any() else None


class _Random:
    """Suggests a random open candidate."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Do nothing."""

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        candidates = np.flatnonzero(open_to)
        return Suggestion(candidate=int(self._random.choice(candidates))) if len(candidates) else None


class _Optunas:
    """Adapts a sampler of Optuna."""

    def __init__(self, sampler: optuna.samplers.BaseSampler, space: ParameterSpace, seed: int) -> None:
        self._study, self._space = optuna.create_study(sampler=sampler), space
        self._random = np.random.default_rng(seed)

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        self._study.add_trial(
            optuna.create_trial(
                state=TrialState.PRUNED if objective is None else TrialState.COMPLETE,
                value=objective,
                params=dict(values),
                distributions=self._space.distributions,
            )
        )

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        if not open_to.any():
            return None
        try:
            return self._ask(open_to)
        except ImportError as error:
            raise MissingDependency(f"this sampler needs {error.name or error}; install it with pip.") from None

    def _ask(self, open_to: BoolArray) -> Suggestion:
        agreed = np.zeros(len(open_to), dtype=np.int64)
        for rejected in range(TRIES):
            trial = self._study.ask(self._space.distributions)
            agreed = self._space.agreeing(trial.params)
            exact = np.flatnonzero(open_to & (agreed == self._space.axes))
            if len(exact):
                self._study.tell(trial, state=TrialState.FAIL)  # `tell` adds the one that ran
                return Suggestion(candidate=int(exact[0]), rejected=rejected)
            self._study.tell(trial, state=TrialState.PRUNED)
        nearest = np.flatnonzero(open_to & (agreed == agreed[open_to].max()))
        return Suggestion(candidate=int(self._random.choice(nearest)), rejected=TRIES)
