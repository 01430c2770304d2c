"""Where proposals come from: one of the samplers.

Optuna's samplers work on a copy of the study in memory, where a trial has the values on its axes. A proposal that the
rules refuse, or that was made before, is told to them as a pruned trial and costs nothing; after `TRIES` of them in a
row the open candidate is taken that agrees with the last on most axes.

`guided`: the sampler of ours, the next candidate chosen over the whole pool by what it is worth.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.core.columns import BoolArray, IntArray
from tuner.core.errors import MissingDependency, UnknownName
from tuner.search.acquisition import Choice, choose
from tuner.search.parameter_space import ParameterSpace
from tuner.search.surrogate import Surrogate

SAMPLERS: Final = ("guided", "tpe", "gp", "random", "grid", "plan")

TRIES: Final = 50
"""Proposals that may be refused in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """A candidate, and what was thought of it."""

    candidate: int
    choice: Choice | None = None
    rejected: int = 0
    """Proposals that were refused before it."""


class Proposer(Protocol):
    """What the loop knows of a sampler."""

    def told(self, values: Mapping[str, Any], objective: float | None) -> None:
        """A trial is over: its days, or None where it has none."""

    def next(self, open_to: BoolArray, best: float | None) -> Idea | None:
        """A candidate that is open, or None where none is left.

        `best` is the logarithm of the seconds in which the best one known finishes.
        """


def proposer(name: str, belief: Surrogate, space: ParameterSpace, *, seed: int) -> Proposer:
    """The sampler of that name."""
    if name == "guided":
        return _Guided(belief, space)
    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # groups, since version 2.8
            return _Optunas(optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True), space, seed)
    if name == "gp":
        return _Optunas(optuna.samplers.GPSampler(seed=seed), space, seed)
    if name == "random":
        return _Random(seed)
    if name == "grid":
        return _Ordered(np.arange(len(belief.pool)))
    if name == "plan":
        finish = belief.log_seconds() + belief.pool.work
        return _Ordered(np.lexsort((finish, belief.out_of_memory() >= 0.5)))
    raise UnknownName("sampler", name, SAMPLERS)


class _Guided:
    """Over the whole pool, by what a job is worth; it learns through the belief."""

    def __init__(self, belief: Surrogate, space: ParameterSpace) -> None:
        self._sampler, self._space = GuidedSampler(belief, space), space
        self._study = optuna.create_study(sampler=self._sampler)

    def told(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Nothing: the belief was told."""

    def next(self, open_to: BoolArray, best: float | None) -> Idea | None:
        self._sampler.best, self._sampler.open_to = best, open_to
        self._study.ask(self._space.distributions)
        choice = self._sampler.choice
        return None if choice is None else Idea(candidate=choice.candidate, choice=choice)


class _Ordered:
    """One after the other."""

    def __init__(self, order: IntArray) -> None:
        self._order = order

    def told(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Nothing is learnt."""

    def next(self, open_to: BoolArray, best: float | None) -> Idea | None:
        still = open_to[self._order]
        return Idea(candidate=int(self._order[np.argmax(still)])) if still.any() else None


class _Random:
    """Any open candidate, each as likely."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def told(self, values: Mapping[str, Any], objective: float | None) -> None:
        """Nothing is learnt."""

    def next(self, open_to: BoolArray, best: float | None) -> Idea | None:
        places = np.flatnonzero(open_to)
        return Idea(candidate=int(self._random.choice(places))) if len(places) else None


class _Optunas:
    """One of Optuna's own."""

    def __init__(self, sampler: optuna.samplers.BaseSampler, space: ParameterSpace, seed: int) -> None:
        self._study, self._space = optuna.create_study(sampler=sampler), space
        self._random = np.random.default_rng(seed)

    def told(self, values: Mapping[str, Any], objective: float | None) -> None:
        self._study.add_trial(
            optuna.create_trial(
                state=TrialState.PRUNED if objective is None else TrialState.COMPLETE,
                value=objective,
                params=dict(values),
                distributions=self._space.distributions,
            )
        )

    def next(self, open_to: BoolArray, best: float | None) -> Idea | None:
        if not open_to.any():
            return None
        try:
            return self._ask(open_to)
        except ImportError as error:
            raise MissingDependency(f"this sampler needs {error.name or error}; pip install it beside tuner.") from None

    def _ask(self, open_to: BoolArray) -> Idea:
        agreed = np.zeros(len(open_to), dtype=np.int64)
        for rejected in range(TRIES):
            trial = self._study.ask(self._space.distributions)
            agreed = self._space.agreeing(trial.params)
            exact = np.flatnonzero(open_to & (agreed == self._space.axes))
            if len(exact):
                self._study.tell(trial, state=TrialState.FAIL)  # `told` adds the one that was run
                return Idea(candidate=int(exact[0]), rejected=rejected)
            self._study.tell(trial, state=TrialState.PRUNED)
        nearest = np.flatnonzero(open_to & (agreed == agreed[open_to].max()))
        return Idea(candidate=int(self._random.choice(nearest)), rejected=TRIES)


class GuidedSampler(BaseSampler):
    """Proposes the candidate that is worth most by a belief that whoever runs the study keeps up to date.

    `best` and `open_to` say what is known: the logarithm of the soonest finish, and which candidates may be proposed.
    """

    def __init__(self, belief: Surrogate, space: ParameterSpace) -> None:
        self._belief, self._space = belief, space
        self.best: float | None = None
        self.open_to: BoolArray = np.ones(len(belief.pool), dtype=np.bool_)
        self.choice: Choice | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All axes together: no axis is chosen by itself."""
        return dict(self._space.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The values of the candidate that is worth most; none where nothing is open."""
        self.choice = choose(self._belief, best=self.best, open_to=self.open_to)
        return {} if self.choice is None else self._space.values(self.choice.candidate)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """An axis that is none of the pool's: its first value."""
        return optuna.samplers.RandomSampler(seed=0).sample_independent(study, trial, param_name, param_distribution)
