"""`guided`: the sampler of ours, the next candidate chosen over the whole pool by what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from tuner.core.columns import BoolArray
from tuner.search.axes import ParameterSpace
from tuner.search.belief import Belief
from tuner.search.worth import Choice, choose


class GuidedSampler(BaseSampler):
    """Proposes the candidate that is worth most by a belief that whoever runs the study keeps up to date.

    `best` and `open_to` say what is known: the logarithm of the soonest finish, and which candidates may be proposed.
    """

    def __init__(self, belief: Belief, space: ParameterSpace) -> None:
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
