"""A job that hung is retried once; a study's time counts from its first process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.study.conftest import SMALL
from tests.study.scripted import MEASURED, begun, running_of, stored
from tuner.core.outcomes import Outcome
from tuner.space.build import space_for
from tuner.study import loop
from tuner.study.limits import Limits
from tuner.study.store.recover import recover_study
from tuner.study.watchdog import StopDecision


def test_a_hung_job_is_retried_once_with_synchronous_kernels(study: Callable[..., Any]) -> None:
    """A hung job is retried once with CUDA_LAUNCH_BLOCKING=1; both attempts are charged and named in the reason."""
    made, launcher, events = study(retry_hang_sync=True)
    running = running_of(made, launcher, ran=30.0)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="first reason"))
    first, second = launcher.jobs
    assert second.folder.name == f"{first.folder.name}-sync"
    assert dict(second.environment) == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert (second.folder / "job.json").is_file()
    assert events[-1].kind == "note"
    assert events[-1].text == "hung (first reason); retried with CUDA_LAUNCH_BLOCKING=1"
    (again,) = made.running.values()
    assert again.handle == "job2"
    again.watch = replace(again.watch, began=launcher.clock - 50.0)
    made._stop(again, StopDecision(outcome=Outcome.HUNG, reason="second reason"))
    assert len(launcher.jobs) == 2
    result = stored(made)
    assert result.reason == "second reason; hung (first reason) and was retried with CUDA_LAUNCH_BLOCKING=1"
    assert (result.elapsed, result.evidence) == (80.0, "stacks")


def test_the_retry_is_adopted_and_not_the_job_that_hung(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, launcher, running = begun(study, retry_hang_sync=True)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    made.running.clear()
    monkeypatch.setattr(loop, "gone", lambda _: True)
    made.reconcile()
    assert launcher.adopted.folder == launcher.jobs[1].folder


@pytest.mark.parametrize(("retry", "outcome"), [(False, Outcome.HUNG), (True, Outcome.CRASHED)])
def test_only_a_hang_is_retried_and_only_on_request(retry: bool, outcome: Outcome, study: Callable[..., Any]) -> None:
    made, launcher, running = begun(study, retry_hang_sync=retry)
    made._stop(running, StopDecision(outcome=outcome, reason="why"))
    assert len(launcher.jobs) == 1
    assert stored(made).outcome is outcome


def test_a_retry_that_cannot_start_leaves_the_hang(study: Callable[..., Any]) -> None:
    made, launcher, running = begun(study, retry_hang_sync=True)
    launcher.refuses = 1
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    result = stored(made)
    assert (result.outcome, result.reason) == (Outcome.HUNG, "why")


def test_a_successful_retry_keeps_the_failure_of_the_first_attempt(study: Callable[..., Any]) -> None:
    made, _launcher, running = begun(study, retry_hang_sync=True)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    (again,) = made.running.values()
    made._finished(again, MEASURED)
    result = stored(made)
    assert (result.outcome, result.seconds) == (Outcome.MEASURED, 2.0)
    assert result.reason == "hung (why) and was retried with CUDA_LAUNCH_BLOCKING=1"
    assert result.evidence == "stacks"


def test_a_retry_that_hangs_again_ends_the_trial_whichever_process_watches_it(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that adopts a retry knows that it is one: it starts no second retry, and charges both attempts."""
    made, launcher, running = begun(study, ran=40.0, retry_hang_sync=True)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="first reason"))
    made.running.clear()
    monkeypatch.setattr(loop, "gone", lambda _: True)
    made.reconcile()
    (adopted,) = made.running.values()
    adopted.watch = replace(adopted.watch, began=launcher.clock - 60.0)
    made._stop(adopted, StopDecision(outcome=Outcome.HUNG, reason="second reason"))
    assert len(launcher.jobs) == 2
    result = stored(made)
    assert (result.outcome, result.elapsed) == (Outcome.HUNG, 100.0)
    assert result.reason == "second reason; hung (first reason) and was retried with CUDA_LAUNCH_BLOCKING=1"


def test_a_recovered_retry_is_not_retried(study: Callable[..., Any]) -> None:
    """The retry's file has the result of the first attempt, also before it ends."""
    made, _launcher, running = begun(study, retry_hang_sync=True)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    (known,) = made.store.trials()
    made.interrupt(release=True)
    made.store.close()
    (made.folder / "study.db").unlink()
    (found,) = recover_study(made.folder.name, runs=made.folder.parent).open
    assert known.hung is not None
    assert found.hung == known.hung


def test_elapsed_time_counts_from_the_start_of_the_study(study: Callable[..., Any]) -> None:
    made, launcher, _ = study()
    assert made._elapsed() == 0.0
    launcher.clock += 25.0
    assert made._elapsed() == 25.0
    assert made.store.attributes["began"] == 1000.0


def test_a_clock_that_is_set_back_gives_no_time_back(study: Callable[..., Any]) -> None:
    """The time of the last result counts, so that a deadline that has passed stays passed."""
    made, launcher, _ = study(Limits(budget=1))
    assert made._elapsed() == 0.0
    launcher.clock -= 300.0
    assert made._elapsed() == 0.0
    launcher.clock += 340.0
    made.run()
    ended = made.state.trials[0].result.clock
    launcher.clock = 500.0
    assert made._elapsed() == ended - 1000.0 > 0.0


def test_the_deadline_of_a_resumed_study_counts_from_its_first_job(study: Callable[..., Any]) -> None:
    """A study begun without a deadline stores when it began; one of an earlier version began with its first job."""
    made, launcher, _ = study()
    began = launcher.clock
    made.step()
    assert made.store.attributes["began"] == began
    made.store.set_attribute("began", None)
    made._began = None
    first = stored(made)
    launcher.clock += 500.0
    assert made._elapsed() == launcher.clock - (first.clock - first.elapsed)


def test_a_deadline_that_has_passed_stops_a_resumed_study(tmp_path: Path) -> None:
    space = space_for(model="gpt-1.3b", nodes=4, settings=SMALL)
    first = tuner.optimize(space, budget=3, study="late", runs=tmp_path, fidelity="full")
    used = max(trial.result.clock for trial in first.launched if trial.result)
    again = tuner.optimize(space, budget=6, deadline=0.9 * used, study="late", runs=tmp_path)
    assert len(again.launched) == len(first.launched)
    assert again.ended.startswith("the deadline of")
    later = tuner.optimize(space, budget=6, deadline=1.1 * used, study="late", runs=tmp_path)
    assert len(later.launched) > len(first.launched)
