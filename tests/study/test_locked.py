"""Ctrl-C while another process has locked the SQLite file of a study."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import Run, Said
from tests.launch.test_local import alive, until
from tests.stages import command
from tests.studies import ENVIRONMENT, finish, kept
from tuner.core.outcomes import Outcome
from tuner.launch.supervisor import members
from tuner.study.store.outages import MAX_OUTAGE
from tuner.study.store.storage import sqlite_url


@pytest.fixture(autouse=True)
def _processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Lock a database as a backup does."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        yield
        backup.execute("ROLLBACK")


def interrupted(words: list[str], database: Path, ready: Callable[[], bool]) -> Said:
    """Start a study, lock its database once it has a running job, and press Ctrl-C when `ready`; return its output once
    it has ended, which it must do while the database is locked."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        env={**ENVIRONMENT, "DS_ACCELERATOR": "cpu"},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(lambda: any(path.stat().st_size for path in database.parent.glob("jobs/*/stdout.log")), 60)
    with locked(database):
        until(ready, 60)
        process.send_signal(signal.SIGINT)
        return finish(process, MAX_OUTAGE / 4)


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [("hang", Outcome.CANCELLED), ("slow", Outcome.MEASURED), ("slow_oom", Outcome.OOM)],
)
def test_ctrl_c_ends_a_study_whose_database_is_locked(
    behaviour: str, outcome: Outcome, tmp_path: Path, run: Run
) -> None:
    """It ends with code 130 and without a job while the database is locked; the next command stores the lost result."""
    folder = tmp_path / "locked"
    model = ("--model", "tiny", "--gpus-per-node", "4", "--nodes", "1", "--budget", "1", "--study", "locked")
    words = ["optimize", "--launcher", "local", *model, "--command", command(behaviour), "--runs", str(tmp_path)]

    def has_result() -> bool:
        return any("ending" in json.loads(path.read_text()) for path in folder.glob("jobs/*/job.json"))

    said = interrupted(words, folder / "study.db", (lambda: True) if behaviour == "hang" else has_result)
    assert said.code == 130, said.err
    assert said.err.splitlines()[-1] == "tuner: interrupted."
    assert "database is locked" in said.err
    assert "Traceback" not in said.err
    (noted,) = folder.glob("jobs/*/keeper.json")
    job = json.loads(noted.read_text())
    assert not members(job["tag"])
    assert not alive(job["keeper"])
    (left,) = kept(sqlite_url(folder / "study.db"), "locked")
    assert left.result is None
    again = run(*words)
    (trial,) = kept(sqlite_url(folder / "study.db"), "locked")
    assert trial.result, again.err
    assert (trial.result.outcome, trial.proposal.tag) == (outcome, left.proposal.tag)
