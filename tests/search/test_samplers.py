"""The candidates that each sampler proposes, and the parameter space of a pool."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from tests.search.test_search_arithmetic import pool, two_parts
from tuner.core.columns import BoolArray
from tuner.core.errors import UnknownName
from tuner.search.acquisition import choose
from tuner.search.constants import LIKELY_OOM
from tuner.search.parameter_space import ParameterSpace, _distribution
from tuner.search.samplers import TRIES, Proposer, _Optunas, proposer
from tuner.search.surrogate import Surrogate


def order(sampler: Proposer, space: ParameterSpace, open_to: BoolArray) -> list[int]:
    """All proposals of a sampler, in order, until no candidate is open."""
    found = []
    while (suggestion := sampler.next(open_to, None)) is not None:
        assert open_to[suggestion.candidate]
        found.append(suggestion.candidate)
        open_to[suggestion.candidate] = False
        sampler.tell(space.values(suggestion.candidate), None if len(found) % 2 else 1.0)
    return found


def some(*candidates: int) -> BoolArray:
    """The mask in which exactly these candidates are open."""
    return np.isin(np.arange(len(pool())), candidates)


def test_grid_and_plan_samplers_keep_their_order() -> None:
    surrogate, space = Surrogate(pool()), ParameterSpace(pool())
    assert order(proposer("grid", surrogate, space, seed=0), space, some(9, 4, 7)) == [4, 7, 9]
    finish, risk = surrogate.time.log_seconds() + pool().work, surrogate.memory.out_of_memory()
    chosen = list(range(0, len(pool()), 5))
    assert {bool(risk[one] >= LIKELY_OOM) for one in chosen} == {False, True}
    expected = sorted(chosen, key=lambda one: (risk[one] >= LIKELY_OOM, finish[one]))
    assert order(proposer("plan", surrogate, space, seed=0), space, some(*chosen)) == expected


def test_a_seed_determines_the_order() -> None:
    surrogate, space = Surrogate(pool()), ParameterSpace(pool())
    first, again, other = (
        order(proposer("random", surrogate, space, seed=seed), space, some(*range(12))) for seed in (1, 1, 2)
    )
    assert sorted(first) == sorted(other) == list(range(12))
    assert first == again != other


def test_the_guided_sampler_takes_the_best_acquisition() -> None:
    surrogate, space = Surrogate(pool()), ParameterSpace(pool())
    sampler, open_to = proposer("guided", surrogate, space, seed=0), some(*range(0, len(pool()), 3))
    best = float((surrogate.time.log_seconds() + pool().work).min())
    for known in (None, best):
        assert sampler.next(open_to, known) == choose(surrogate, best=known, open_to=open_to)
    assert sampler.next(some(), best) is None


def test_rejected_proposals_of_optuna_are_counted_and_pruned() -> None:
    """Optuna's proposals of closed candidates are counted as rejected and marked PRUNED in its study.

    After `TRIES` of them, the open candidate nearest to the last proposal is chosen.
    """
    space = ParameterSpace(pool())
    sampler = _Optunas(optuna.samplers.RandomSampler(seed=3), space, 0)
    target = len(pool()) - 1
    sampler.tell(space.values(target), 2.5)
    sampler.tell(space.values(target), None)
    found = sampler.next(some(target), None)
    assert found is not None
    assert found.candidate == target
    finished, *_ = trials = sampler._study.trials
    assert (finished.state, finished.value, finished.params) == (TrialState.COMPLETE, 2.5, space.values(target))
    assert trials[1].state == TrialState.PRUNED
    ended = [trial.state for trial in trials[2:]]
    assert found.rejected == min(len(ended) - (ended[-1] == TrialState.FAIL), TRIES)
    assert ended[: found.rejected] == [TrialState.PRUNED] * found.rejected
    assert sampler.next(some(), None) is None


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(UnknownName, match="sampler"):
        proposer("annealing", Surrogate(pool()), ParameterSpace(pool()), seed=0)


def test_only_varying_axes_are_searched() -> None:
    space = ParameterSpace(two_parts())
    assert list(space.distributions) == ["micro_batch", "zero", "global_batch", "setting"]
    assert space.distributions["micro_batch"] == CategoricalDistribution((1, 2, 4))
    assert space.axes == 4
    assert space.values(1) == {
        "micro_batch": 2,
        "zero": 1,
        "global_batch": two_parts().workload.global_batch,
        "setting": 0,
    }
    assert space.values(4) == {"micro_batch": 4, "zero": 1, "global_batch": 64, "setting": 1}
    assert space.agreeing(space.values(1)).tolist() == [3, 4, 2, 2, 1, 1]
    assert space.agreeing({"zero": 3}).tolist() == [0, 0, 0, 1, 0, 0]


def test_contiguous_nodes_are_a_range_and_codes_have_words() -> None:
    assert _distribution("nodes", [2, 3, 4]) == IntDistribution(2, 4)
    assert _distribution("nodes", [2, 4]) == CategoricalDistribution((2, 4))
    assert _distribution("tp", [1, 2]) == CategoricalDistribution((1, 2))
    assert _distribution("recompute", [0, 2]) == CategoricalDistribution(("none", "full"))
    assert _distribution("sequence_parallel", [0, 1]) == CategoricalDistribution((False, True))
