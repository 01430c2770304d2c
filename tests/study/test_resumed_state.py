"""A resumed study knows what the interrupted one knew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.launch.virtual.simulated import SpeedChange
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.setup import open_loop


def assert_alike(after: StudyLoop, before: StudyLoop) -> None:
    """Assert that a resumed study knows and plans what another one does."""
    first, second = before.state.surrogate, after.state.surrogate
    assert second.trust == first.trust
    assert second.error_sizes == first.error_sizes
    assert (second.time.log_seconds() == first.time.log_seconds()).all()
    assert after.state.speed_periods == before.state.speed_periods
    assert after.state.drift_suspected == before.state.drift_suspected
    ranked = [[(trial.key, trial.trials) for trial in each.state.ranking] for each in (after, before)]
    assert ranked[0] == ranked[1]


@pytest.mark.parametrize("seed", [6, 7])
def test_results_read_at_once_are_learnt_as_one_by_one(seed: int, tmp_path: Path) -> None:
    """The trust in the model, and with it every estimate, depends on the order of results."""
    settings = StudySettings(
        space=space_for(model="gpt-1.3b", nodes=4), limits=Limits(budget=40), runs=tmp_path, seed=seed, fidelity="full"
    )
    with open_loop(settings) as before:
        before.run()
    with open_loop(settings) as after:
        after.state.read()
    assert_alike(after, before)


def drifting(seed: int, runs: Path) -> StudySettings:
    """Return the settings of a study on a cluster that becomes 5% slower after eight jobs."""
    return StudySettings(
        space=space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,2,4", "recompute=none"), framework="any"),
        limits=Limits(budget=40),
        runs=runs,
        seed=seed,
        fidelity="full",
        drift=SpeedChange(factor=1.05, after_jobs=8),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_change_of_speed_is_found_at_the_same_results(seed: int, tmp_path: Path) -> None:
    """The results before the one that shows the change are learnt as of one speed, also by a resumed study."""
    settings = drifting(seed, tmp_path)
    with open_loop(settings) as before:
        before.run()
    assert before.state.speed_periods
    with open_loop(settings) as after:
        assert after.state.read() is None, "no period that is new"
    assert_alike(after, before)


class Killed(BaseException):
    """The end of a process."""


def test_a_study_that_is_killed_after_each_of_its_jobs_launches_the_same(tmp_path: Path) -> None:
    def die(event: StudyEvent) -> None:
        if event.kind in ("ended", "era"):
            raise Killed

    settings = drifting(3, tmp_path / "whole")
    with open_loop(settings) as whole:
        whole.run()
    killed, ends = replace(settings, runs=tmp_path / "killed", on_event=die), 0
    while True:
        with open_loop(killed) as loop:
            try:
                loop.run()
            except Killed:
                ends += 1
                continue
            break
    launched = [
        [(trial.proposal.claim, trial.proposal.kind) for trial in each.store.trials() if trial.launched]
        for each in (loop, whole)
    ]
    assert launched[0] == launched[1]
    assert ends >= len(launched[0])
    assert_alike(loop, whole)


def test_a_change_of_speed_that_was_not_stored_is_found_again(tmp_path: Path) -> None:
    """A process may be killed between the result that shows it and its period."""
    settings = drifting(3, tmp_path)
    with open_loop(settings) as before:
        before.run()
        before.store.set_attribute("eras", [])
    with open_loop(settings) as after:
        assert after.state.read() == before.state.speed_periods[-1]
        assert after.store.attributes["eras"] == [period.document() for period in before.state.speed_periods]
    assert_alike(after, before)


def test_the_speed_periods_of_another_process_are_taken_over(tmp_path: Path) -> None:
    """It may have learnt the results in another order."""
    settings = drifting(3, tmp_path)
    with open_loop(settings) as before:
        before.run()
        periods = [{"first": 5, "factor": 1.2}]
        before.store.set_attribute("eras", periods)
        before.state.read()
    with open_loop(settings) as after:
        after.state.read()
        stored = after.store.attributes["eras"]
    assert stored[0]["first"] >= 5
    assert [period.document() for period in after.state.speed_periods] == stored
