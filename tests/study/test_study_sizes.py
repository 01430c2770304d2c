"""The sizes of a study's trials, by its options and by how it was started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.stand_in import surrogate_of
from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.search.candidates import CandidatePool
from tuner.space.build import space_for
from tuner.space.rules.ruleset import POLICIES
from tuner.study.fidelity_plan import FidelityPlan, plan_of
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.store.trial import Trial


def planned(
    *,
    trials: Sequence[Trial] = (),
    stored: dict[str, Any] | None = None,
    nodes: int = 4,
    split: tuple[str, ...] = ("tp=1,2",),
    batch: int = 256,
    budget: int = 40,
    seconds: float = 1.0,
    **given: Any,
) -> tuple[FidelityPlan | None, dict[str, Any]]:
    """Return the plan of a gpt-1.3b study with iterations of `seconds`, and its stored attributes."""
    settings = [*split, "recompute=none"]
    space = space_for(
        model="gpt-1.3b", nodes=nodes, global_batch=batch, exact_nodes=True, settings=settings, allow=POLICIES
    )
    kept = dict(stored or {})
    store = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__, trials=lambda: list(trials))
    state: Any = SimpleNamespace(store=store, pool=CandidatePool.of_space(space), overheads=lambda _iterations: [])
    state.surrogate = surrogate_of(log_seconds=lambda: np.full(len(state.pool), math.log(seconds)))
    state.open = np.ones(len(state.pool), dtype=np.bool_)
    launcher: Any = SimpleNamespace(several_batches=True)
    described = StudySettings(space=space, limits=Limits(budget=budget), iterations=(2, 5, 4), **given)
    return plan_of(described, state, launcher), kept


@pytest.mark.parametrize(
    ("given", "mode", "reduces"),
    [
        ({"seconds": 155.0}, "full", False),  # (120 s + 5 x 155 s) on 4 nodes are 0.99 node-hours
        ({"seconds": 157.0}, "auto", True),
        ({"seconds": 157.0, "sampler": "tpe"}, "full", False),
        ({"seconds": 157.0, "fidelity": "full"}, "full", False),
        ({"seconds": 157.0, "stored": {"fidelity": "full"}}, "full", False),
        ({"seconds": 157.0, "trials": [ended()]}, "full", False),
        ({"seconds": 155.0, "stored": {"fidelity": "auto"}}, "auto", True),
        ({"fidelity": "auto"}, "auto", True),
        ({"fidelity": "full"}, "full", False),
        ({"fidelity": "auto", "budget": 6}, "auto", False),
        ({"budget": 6, "trial_nodes": 2}, "auto", True),
        ({"nodes": 1, "fidelity": "auto"}, "auto", True),
        ({"trials": [ended()]}, "full", False),
        ({"trials": [ended(), ended(fidelity=SMALL)]}, "auto", True),
        ({"trials": [ended()], "stored": {"fidelity": "auto"}}, "auto", True),
        ({"trials": [ended(fidelity=SMALL)], "stored": {"fidelity": "full"}}, "full", False),
        ({"stored": {"fidelity": "full"}, "fidelity": "auto"}, "auto", True),
        ({"stored": {"fidelity": "full"}, "trial_nodes": 2}, "auto", True),
    ],
)
def test_a_study_has_the_requested_or_original_sizes(given: dict[str, Any], mode: str, reduces: bool) -> None:
    """A study uses reduced sizes if asked to, if it was started with them, or by default if its jobs are expensive.

    They need a final round or `--trial-nodes`.
    """
    found, kept = planned(**given)
    assert (found is not None) == reduces
    trial_nodes = given.get("trial_nodes")
    assert kept == {"fidelity": mode} | ({} if trial_nodes is None else {"extrapolates": True})
    if found is not None:
        assert (found.iterations, found.several_batches, found.trial_nodes) == (5, True, trial_nodes)


@pytest.mark.parametrize(("batch", "given", "reduces"), [(4, {}, False), (16, {}, True), (4, {"trial_nodes": 1}, True)])
def test_topologies_that_cannot_be_reduced_run_at_full_size(batch: int, given: dict[str, Any], reduces: bool) -> None:
    """Topologies that cannot be reduced, with one replica and few microbatches, run at full size."""
    found, kept = planned(nodes=2, split=("tp=8", "pp=2"), batch=batch, fidelity="auto", **given)
    assert (found is not None, kept["fidelity"]) == (reduces, "auto")
