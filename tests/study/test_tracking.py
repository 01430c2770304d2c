"""A search logs its trials to MLflow or Weights & Biases, and continues without them if they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tests.studies import SMALL
from tuner.core.errors import InputError
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.setup import open_loop
from tuner.study.store import tracking
from tuner.study.store.tracking import Tracker
from tuner.study.store.trial_store import TrialStore

needs_mlflow = pytest.mark.skipif(
    find_spec("mlflow") is None or find_spec("optuna_integration") is None, reason="pip install 'tuner[track]'"
)
needs_wandb = pytest.mark.skipif(
    find_spec("wandb") is None or find_spec("optuna_integration") is None, reason="pip install 'tuner[track]'"
)


def _optimize(tracker: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", "optimize", *SMALL, "--budget", "4", "--study", "s", "--track", tracker]
    return subprocess.run(
        [*command, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


class Recorder:
    """A tracker that records trial numbers and fails at one of them."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at, self.logged, self.closed = fails_at, list[int](), False

    def log(self, store: TrialStore, number: int) -> str | None:
        """Record the number of a finished trial; return an error message at `fails_at`."""
        assert store.trials()[number].result is not None
        self.logged.append(number)
        return "mlflow failed, and the study continues without it" if number == self.fails_at else None

    def close(self) -> None:
        """Record that the tracker was closed."""
        self.closed = True


def test_a_tracker_gets_every_finished_trial_until_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, events = Recorder(fails_at=2), list[StudyEvent]()
    monkeypatch.setattr("tuner.study.setup.Tracker", lambda _kind, _name: recorder)
    monkeypatch.setattr(StudySettings, "check", lambda _self: None)  # mlflow need not be installed
    space = space_for(model="gpt-1.3b", nodes=4)
    limits = Limits(budget=5)
    settings = StudySettings(space=space, limits=limits, runs=tmp_path, track="mlflow", on_event=events.append)
    with open_loop(settings) as loop:
        loop.run()
    assert (recorder.logged, recorder.closed) == ([0, 1, 2], True)
    assert sum(event.kind == "ended" for event in events) == 5
    assert sum("mlflow failed" in event.text for event in events if event.kind == "note") == 1


@pytest.mark.slow
@needs_mlflow
def test_mlflow_has_a_run_per_trial(tmp_path: Path) -> None:
    """Every trial is an MLflow run with its days and its outcome."""
    where = f"sqlite:///{tmp_path / 'mlflow.db'}"
    said = _optimize("mlflow", tmp_path, MLFLOW_TRACKING_URI=where)
    trials = json.loads(said.stdout)["trials"]
    look = (
        "import json, mlflow; client = mlflow.MlflowClient(); experiment = client.get_experiment_by_name('s')\n"
        "runs = client.search_runs([experiment.experiment_id])\n"
        "print(json.dumps({run.info.run_name: [run.data.metrics, run.data.tags['outcome']] for run in runs}))"
    )
    listed = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "MLFLOW_TRACKING_URI": where},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    runs = json.loads(listed.stdout)
    assert len(runs) == len(trials) > 0
    for trial in trials:
        metrics, outcome = runs[str(trial["number"])]
        assert outcome == trial["outcome"]
        assert metrics.get("days") == pytest.approx(trial["objective"])


@pytest.mark.slow
@needs_wandb
def test_weights_and_biases_have_a_run_per_study(tmp_path: Path) -> None:
    """Without a network, wandb writes an offline run to the folder, for `wandb sync`."""
    said = _optimize("wandb", tmp_path, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert json.loads(said.stdout)["jobs_launched"] == 4
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))


@pytest.mark.slow
@needs_mlflow
def test_a_failing_tracker_does_not_end_the_study(tmp_path: Path) -> None:
    """A failing tracker is reported once, and the study continues."""
    (tmp_path / "file").write_text("")
    said = _optimize("mlflow", tmp_path, MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path / 'file' / 'x.db'}")
    assert said.returncode == 0
    assert json.loads(said.stdout)["jobs_launched"] == 4
    assert said.stderr.count("mlflow failed, and the study continues without it") == 1


@pytest.mark.slow
@needs_mlflow
def test_an_unreachable_server_is_given_up_without_its_password(tmp_path: Path) -> None:
    """MLflow alone would retry for four minutes, and its message has the URL as it is."""
    said = _optimize("mlflow", tmp_path, MLFLOW_TRACKING_URI="http://me:pa55word@127.0.0.1:9")
    assert json.loads(said.stdout)["jobs_launched"] == 4
    assert "API request to http://me:***@127.0.0.1:9/" in said.stderr
    assert "pa55word" not in said.stderr + said.stdout


@pytest.mark.parametrize("fails", [False, True])
def test_mlflow_retries_for_seconds_unless_the_user_sets_more(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """The search would not look after its jobs meanwhile; the jobs' own MLflow retries as the user has it."""
    seen: list[dict[str, str]] = []

    def log(*_: Any) -> None:
        seen.append(dict(os.environ))
        if fails:
            raise OSError("refused")

    integration: Any = ModuleType("optuna_integration.mlflow")
    integration.MLflowCallback = lambda **_: log
    monkeypatch.setitem(sys.modules, "optuna_integration", ModuleType("optuna_integration"))
    monkeypatch.setitem(sys.modules, "optuna_integration.mlflow", integration)
    users = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "33"}
    monkeypatch.setattr(os, "environ", dict(users))
    with suppress(OSError):
        tracking._mlflow()(None, None)
    assert seen == [{**users, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}]
    assert os.environ == users


def test_messages_of_a_tracker_have_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("http://me:pa55word@host/api refused\nmore")

    monkeypatch.setattr(tracking, "_mlflow", refused)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:pa55word@host")
    with pytest.raises(InputError) as said:
        Tracker("mlflow", "s")
    assert str(said.value) == "--track mlflow cannot start: http://me:***@host/api refused."


@pytest.mark.skipif(find_spec("optuna_integration") is not None, reason="it is installed here")
def test_a_missing_tracker_is_reported_in_one_sentence(run: Run, tmp_path: Path) -> None:
    said = run("optimize", *SMALL, "--budget", "1", "--runs", str(tmp_path), "--track", "mlflow")
    assert said.code == 3
    assert "pip install optuna-integration mlflow" in said.err


def test_an_unknown_tracker_is_refused(run: Run, tmp_path: Path) -> None:
    said = run("optimize", *SMALL, "--budget", "1", "--runs", str(tmp_path), "--track", "notes")
    assert said.code == 2
    assert "mlflow and wandb" in said.err
