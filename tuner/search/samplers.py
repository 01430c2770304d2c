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
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

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
        return _Guided(surrogate, space)
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

    def __init__(self, surrogate: Surrogate, space: ParameterSpace) -> None:
        self._sampler, self._surrogate, self._space = GuidedSampler(surrogate, space), surrogate, space
        self._study = optuna.create_study(sampler=self._sampler)

    def tell(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Do nothing; the surrogate has the observation."""

    def next(self, open_to: BoolArray, best: float | None) -> Suggestion | None:
        if not self._space.distributions:  # with one value on every axis Optuna asks its sampler nothing
            return choose(self._surrogate, best=best, open_to=open_to)
        self._sampler.best, self._sampler.open_to = best, open_to
        self._study.ask(self._space.distributions)
        return self._sampler.suggestion


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


class GuidedSampler(BaseSampler):
    """Optuna sampler that suggests the candidate with the best acquisition under a surrogate that the caller updates.

    The caller also sets `best`, the logarithm of the soonest finish, and `open_to`, the candidates to choose from.
    """

    def __init__(self, surrogate: Surrogate, space: ParameterSpace) -> None:
        self._surrogate, self._space = surrogate, space
        self.best: float | None = None
        self.open_to: BoolArray = np.ones(len(surrogate.pool), dtype=np.bool_)
        self.suggestion: Suggestion | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all axes: they are sampled jointly."""
        return dict(self._space.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of the suggested candidate; empty if nothing is open."""
        self.suggestion = choose(self._surrogate, best=self.best, open_to=self.open_to)
        return {} if self.suggestion is None else self._space.values(self.suggestion.candidate)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the first value, for an axis that is not the pool's."""
        return optuna.samplers.RandomSampler(seed=0).sample_independent(study, trial, param_name, param_distribution)
