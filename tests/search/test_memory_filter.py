"""The memory filter of samplers that do not model memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.search.test_search_arithmetic import pool
from tuner.core.outcomes import Outcome
from tuner.search.constants import LIKELY_OOM
from tuner.search.observations import Observation
from tuner.search.parameter_space import ParameterSpace
from tuner.search.samplers import proposer
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for
from tuner.study import api


@pytest.mark.parametrize("name", ["tpe", "random", "grid", "plan"])
def test_candidates_likely_to_run_out_of_memory_are_never_proposed(name: str) -> None:
    """A filtered sampler proposes every candidate that is likely to fit once, and never one that is not."""
    surrogate, space = Surrogate(pool()), ParameterSpace(pool())
    likely = surrogate.memory.out_of_memory() >= LIKELY_OOM
    assert 0 < likely.sum() < len(likely), "a pool that shows nothing"
    some = np.flatnonzero(likely)[:5].tolist() + np.flatnonzero(~likely)[:5].tolist()
    open_to = np.isin(np.arange(len(pool())), some)
    sampler = proposer(name, surrogate, space, seed=0, memory_filter=True)
    found = []
    while (suggestion := sampler.next(open_to, None)) is not None:
        found.append(suggestion.candidate)
        open_to[suggestion.candidate] = False
        sampler.tell(space.values(suggestion.candidate), 1.0)
    assert sorted(found) == some[5:]


def test_the_filter_learns_from_jobs() -> None:
    """A job that runs out of memory rules out its topology, which is not proposed again."""
    surrogate = Surrogate(pool())
    sampler = proposer("grid", surrogate, ParameterSpace(pool()), seed=0, memory_filter=True)
    open_to = np.ones(len(pool()), dtype=np.bool_)
    first = sampler.next(open_to, None)
    assert first is not None
    surrogate.learn([Observation(candidate=first.candidate, fits=False)])
    second = sampler.next(open_to, None)
    assert second is not None
    assert second.candidate != first.candidate
    assert surrogate.memory.ruled_out[first.candidate]


def test_a_filtered_study_runs_out_of_memory_less_often(tmp_path: Path) -> None:
    """With the filter, fewer jobs of a study run out of memory; the study can be resumed without the filter."""
    space = space_for(model="llama-13b", nodes=2, framework="any")
    failed = {}
    for memory_filter in (False, True):
        study = api.optimize(
            *(space,), sampler="random", memory_filter=memory_filter, budget=8, study=str(memory_filter), runs=tmp_path
        )
        failed[memory_filter] = sum(
            trial.result is not None and trial.result.outcome is Outcome.OOM for trial in study.launched
        )
    assert failed[False] >= 4
    assert failed[True] <= failed[False] - 3
    resumed = api.optimize(space, sampler="random", budget=12, study="True", runs=tmp_path)
    assert len(resumed.launched) > 8
