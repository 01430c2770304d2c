"""A resumed study knows what the interrupted one knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop


@pytest.mark.parametrize("seed", [6, 7])
def test_results_read_at_once_are_learnt_as_one_by_one(seed: int, tmp_path: Path) -> None:
    """The trust in the model, and with it every estimate, depends on the order of results."""
    settings = StudySettings(
        space=space_for(model="gpt-1.3b", nodes=4), limits=Limits(budget=40), runs=tmp_path, seed=seed, fidelity="full"
    )
    with open_loop(settings) as loop:
        loop.run()
        before = loop.state.surrogate
    with open_loop(settings) as loop:
        loop.state.read()
        after = loop.state.surrogate
    assert after.trust == before.trust
    assert after.error_sizes == before.error_sizes
    assert (after.time.log_seconds() == before.time.log_seconds()).all()
