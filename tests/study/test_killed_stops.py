"""A tuner that is killed while it stops a job: the next one stores what the first had decided."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.stages import command
from tests.studies import ENVIRONMENT, kept, optimize, url_of
from tests.study.scripted import MEASURED, begun, stored
from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.study import loop
from tuner.study.store.stopped import SYNC_RETRY, record_stop
from tuner.study.store.trial import Trial
from tuner.study.watchdog import StopDecision

DIES = """
import os, signal, sys
from pathlib import Path
from tuner.launch.virtual.simulated import SimulatedLauncher
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.trial_store import TrialStore

moment, runs = sys.argv[1], Path(sys.argv[2])
cancel, end = SimulatedLauncher.cancel, TrialStore.end

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def cancel_and_die(self, handle):
    cancel(self, handle)
    die()

def end_or_die(self, trial, result):
    end(self, trial, result) if result.outcome.value != "PRUNED" else die()

if moment == "before the end":
    TrialStore.end = end_or_die
else:
    SimulatedLauncher.cancel = die if moment == "before the cancel" else cancel_and_die
space = space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,2,4", "recompute=none"))
settings = StudySettings(space=space, limits=Limits(budget=6), study="killed", runs=runs, sampler="random")
with open_loop(settings) as loop:
    loop.run()
"""


WORDS = ("--budget", "6", "--sampler", "random")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """The trials of a study whose tuner is not killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert optimize("--study", "undisturbed", *WORDS, folder=folder).code == 0
    return kept(url_of(folder, "undisturbed"), "undisturbed")


@pytest.mark.parametrize("moment", ["before the cancel", "after the cancel", "before the end"])
def test_a_job_pruned_by_a_killed_tuner_is_stored_as_pruned(
    moment: str, undisturbed: list[Trial], tmp_path: Path
) -> None:
    """The trial is that of an undisturbed study, and its topology does not run again."""
    child = [sys.executable, "-c", DIES, moment, str(tmp_path / "runs")]
    assert subprocess.run(child, env=ENVIRONMENT, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    url = url_of(tmp_path, "killed")
    left = next(trial for trial in kept(url, "killed") if trial.result is None)
    said = optimize("--study", "killed", *WORDS, folder=tmp_path)
    assert said.code == 0, said.err
    assert f"{left.proposal.key}: PRUNED" in said.err
    trials = kept(url, "killed")
    assert [trial.proposal.key for trial in trials].count(left.proposal.key) == 1
    pruned, expected = trials[left.number].result, undisturbed[left.number].result
    assert pruned
    assert expected
    assert expected.outcome is Outcome.PRUNED
    assert replace(pruned, clock=0.0) == replace(expected, clock=0.0)


HANGS = """
import os, signal, sys
from tuner.cli import main
from tuner.launch.local.launcher import LocalLauncher
from tuner.study import watchdog

watchdog.DEFAULT_MAX_START = watchdog.MIN_PATIENCE = 0.5
watchdog.MAX_STALLED_ITERATIONS = 0.01
cancel = LocalLauncher.cancel

def cancel_and_die(self, handle):
    cancel(self, handle)
    os.kill(os.getpid(), signal.SIGKILL)

LocalLauncher.cancel = cancel_and_die
main(sys.argv[1:])
"""


def test_a_local_job_that_hung_under_a_killed_tuner_counts_as_hung(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    model = ("--model", "tiny", "--gpus-per-node", "4", "--nodes", "1", "--budget", "1", "--study", "hangs")
    words = ["optimize", "--launcher", "local", *model, "--command", command("hang"), "--runs", str(tmp_path)]
    environment = {**ENVIRONMENT, "DS_ACCELERATOR": "cpu"}
    child = [sys.executable, "-c", HANGS, *words]
    assert subprocess.run(child, env=environment, check=False).returncode == -signal.SIGKILL
    said = run(*words)
    (trial,) = kept(f"sqlite:///{tmp_path / 'hangs' / 'study.db'}", "hangs")
    assert trial.result, said.err
    assert (trial.result.outcome, trial.result.elapsed > 0.5) == (Outcome.HUNG, True)
    assert "no progress for" in trial.result.reason


def reopened(made: loop.StudyLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the running jobs, and adopt them as after a kill."""
    made.running.clear()
    monkeypatch.setattr(loop, "gone", lambda _: True)
    made.reconcile()


@pytest.mark.parametrize(("measured", "outcome"), [(False, Outcome.PRUNED), (True, Outcome.MEASURED)])
def test_a_job_that_was_to_be_stopped_is_cancelled_unless_it_was_measured(
    measured: bool, outcome: Outcome, study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tuner died before it cancelled a job that outlives it."""
    made, launcher, running = begun(study)
    record_stop(running.job.folder, JobResult(outcome=Outcome.PRUNED, least=7.0, elapsed=30.0))
    launcher.result = lambda _: MEASURED if measured else JobResult(outcome=Outcome.CANCELLED)
    reopened(made, monkeypatch)
    assert launcher.cancelled == ["adopted"]
    assert stored(made).outcome is outcome
    assert stored(made).least == (None if measured else 7.0)


def test_the_record_of_another_job_is_not_used(study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, launcher, running = begun(study)
    record_stop(running.job.folder, JobResult(outcome=Outcome.PRUNED))
    path = running.job.folder / "job.json"
    write_object(path, read_object(path) | {"tag": "another"})
    reopened(made, monkeypatch)
    assert (launcher.cancelled, stored(made)) == ([], None)


@pytest.mark.parametrize("state", [JobState.ENDED, JobState.LOST])
def test_a_job_that_ends_after_a_cancel_that_failed_is_stored_as_decided(
    state: JobState, study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller may cancel a job whose tuner got no answer."""
    made, launcher, running = begun(study)

    def refuse(_: str) -> None:
        raise LaunchError("no answer")

    monkeypatch.setattr(launcher, "cancel", refuse)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    assert stored(made) is None
    launcher.status = lambda _: JobStatus(state=state)
    launcher.result = lambda _: JobResult(outcome=Outcome.CANCELLED)
    made._look()
    assert (stored(made).outcome, stored(made).reason) == (Outcome.HUNG, "why")


def test_ctrl_c_keeps_an_earlier_decision(study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a pruned job is being cancelled does not make it one that the user cancelled."""
    made, launcher, running = begun(study)
    launcher.outlives, cancel = False, launcher.cancel

    def interrupted(_: str) -> None:
        monkeypatch.setattr(launcher, "cancel", cancel)
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "cancel", interrupted)
    launcher.result = lambda _: JobResult(outcome=Outcome.CANCELLED)
    with pytest.raises(KeyboardInterrupt):
        made._stop(running, StopDecision(outcome=Outcome.PRUNED, reason="why", least=7.0))
    made.interrupt()
    assert (stored(made).outcome, stored(made).least, launcher.cancelled) == (Outcome.PRUNED, 7.0, ["job1"])


class Killed(BaseException):
    """The end of the tuner at some moment."""


@pytest.mark.parametrize("moment", ["write_job_file", "retried", "submit"])
def test_a_hang_is_retried_by_the_tuner_that_replaces_a_killed_one(
    moment: str, study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry whose job was not submitted is submitted by the next tuner; the first attempt is not lost."""
    made, launcher, running = begun(study, ran=30.0, retry_hang_sync=True)

    def die(*_: Any) -> None:
        raise Killed

    owner: Any = {"write_job_file": loop, "retried": made.store, "submit": launcher}[moment]
    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, die)
        with pytest.raises(Killed):
            made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="first"))
    launcher.found = None
    reopened(made, monkeypatch)
    first, second = launcher.jobs
    assert second.folder.name == f"{first.folder.name}-sync"
    (again,) = made.running.values()
    made._finished(again, MEASURED)
    assert stored(made).reason == f"hung (first) and was {SYNC_RETRY}"
    assert stored(made).elapsed == 120.0


def test_a_retry_that_is_lost_is_charged_with_its_first_attempt(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, launcher, running = begun(study, ran=30.0, retry_hang_sync=True)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="first"))
    (launcher.jobs[1].folder / "ended.json").write_text('{"began": 100.0, "ended": 107.5}', encoding="utf-8")
    launcher.found = None
    reopened(made, monkeypatch)
    assert (stored(made).outcome, stored(made).elapsed) == (Outcome.CANCELLED, 37.5)
