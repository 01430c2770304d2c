"""A database that is deleted or replaced while a study runs, which SQLite does not notice."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.studies import finish, start
from tuner.core.errors import StudyError
from tuner.space.build import space_for
from tuner.study import api
from tuner.study.limits import Limits
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.database_file import DatabaseFile
from tuner.study.store.owner import released, this_worker
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial_store import TrialStore

SMALL = ("nodes=4", "tp=1,2,4", "recompute=none")
SPACE = space_for(model="gpt-1.3b", nodes=4, settings=SMALL)


def move(database: Path) -> None:
    """Move the database to another folder."""
    database.rename(database.parent.parent / "moved.db")


def overwrite(database: Path) -> None:
    """Put an earlier copy in place of the database, as restoring a backup does."""
    shutil.copy(database, database.parent / "copy")
    (database.parent / "copy").rename(database)


def at(event: str, count: int, action: Callable[[], None]) -> Callable[[StudyEvent], None]:
    """Return a receiver of events that acts at one of them."""
    seen = [0]

    def on_event(found: StudyEvent) -> None:
        seen[0] += found.kind == event
        if found.kind == event and seen[0] == count:
            action()

    return on_event


@pytest.mark.parametrize(
    ("lose", "happened", "first"),
    [
        (Path.unlink, "deleted or moved", ""),
        (move, "deleted or moved", ""),
        (overwrite, "replaced by another file", "move that file away, "),
    ],
)
@pytest.mark.parametrize("event", ["started", "ended"])
def test_a_study_ends_when_its_database_is_gone_and_is_recovered_whole(
    event: str, lose: Callable[[Path], None], happened: str, first: str, tmp_path: Path
) -> None:
    """It launches no other job; the result of one that runs is in its file."""
    file = tmp_path / "s/study.db"
    given: dict[str, Any] = {"budget": 8, "sampler": "grid", "study": "s", "runs": tmp_path}
    with pytest.raises(StudyError) as refused:
        api.optimize(SPACE, **given, on_event=at(event, 3, lambda: lose(file)))
    assert str(refused.value) == (
        f"{file} was {happened} while the study ran: {first}rebuild the database with 'tuner recover s --runs "
        f"{tmp_path}', and run the same command again."
    )
    file.unlink(missing_ok=True)
    found = tuner.recover_study("s", runs=tmp_path)
    assert [trial.result is not None for trial in found.trials] == [True] * 3
    study = api.optimize(SPACE, **given)
    assert len(study.launched) >= 6
    assert tuple(study.launched[:3]) == found.trials


def test_a_database_that_is_gone_after_the_last_job_is_noticed(tmp_path: Path) -> None:
    """A result that is not saved is not reported as saved."""
    settings = StudySettings(space=SPACE, limits=Limits(budget=1), study="s", runs=tmp_path)
    with open_loop(settings) as loop:
        loop.run()
        loop.result()
        settings.folder.joinpath("study.db").unlink()
        with pytest.raises(StudyError, match="was deleted or moved while the study ran"):
            loop.result()


def test_a_whole_folder_that_is_gone_cannot_be_recovered(tmp_path: Path) -> None:
    settings = StudySettings(space=SPACE, limits=Limits(budget=1), study="s", runs=tmp_path)
    with open_loop(settings) as loop:
        shutil.rmtree(settings.folder)
        with pytest.raises(StudyError, match=r"no file of a job is there .*: run the same command again to start"):
            loop.run()
    assert not settings.folder.exists()


def test_a_database_elsewhere_is_rebuilt_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that its message names works."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "other.db"
    given: dict[str, Any] = {"budget": 4, "sampler": "grid", "study": "s"}
    message = "rebuild the database with 'tuner recover s', and run the same command again without --storage."
    with pytest.raises(StudyError, match=re.escape(message)):
        api.optimize(SPACE, **given, storage="sqlite:///other.db", on_event=at("ended", 2, file.unlink))
    tuner.recover_study("s")
    assert len(api.optimize(SPACE, **given).launched) >= 3


def test_a_command_prints_that_its_database_is_gone(tmp_path: Path) -> None:
    """Exit code 1 and one sentence instead of a summary."""
    process = start("--study", "s", "--budget", "60", "--sampler", "grid", folder=tmp_path)
    assert process.stderr is not None
    process.stderr.readline()
    (tmp_path / "runs/s/study.db").unlink()
    said = finish(process)
    assert (said.code, said.out) == (1, "")
    assert "study.db was deleted or moved while the study ran" in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


def test_a_file_whose_identity_is_unknown_is_not_called_lost(tmp_path: Path) -> None:
    """Reading it may fail for a while, as on a file system over a network."""
    file = tmp_path / "study.db"
    file.touch()
    opened = DatabaseFile.of(sqlite_url(file))
    opened.check(None)
    file.unlink()
    file.symlink_to(file)  # fails with ELOOP
    opened.check(None)
    assert DatabaseFile.of(sqlite_url(file)).identity is None
    DatabaseFile.of(sqlite_url(tmp_path / "none.db")).check(None)
    DatabaseFile.of("postgresql://host/studies").check(None)


@pytest.fixture
def open_trial(tmp_path: Path) -> Path:
    """The folder of a study without its database, one of whose jobs has no result."""
    settings = StudySettings(space=SPACE, limits=Limits(budget=2), sampler="grid", study="s", runs=tmp_path)
    with open_loop(settings) as loop:
        loop.run()
    file = sorted(settings.folder.glob("jobs/*/job.json"))[-1]
    document = json.loads(file.read_text())
    del document["ending"]
    file.write_text(json.dumps(document))
    settings.folder.joinpath("study.db").unlink()
    return settings.folder


def own(folder: Path, **changed: Any) -> None:
    """Change the owner of the job that has no result."""
    file = sorted(folder.glob("jobs/*/job.json"))[-1]
    document = json.loads(file.read_text())
    document["proposal"]["worker"] |= changed.pop("launched", {})
    file.write_text(json.dumps(document | changed))


def test_a_study_that_runs_is_not_recovered(open_trial: Path) -> None:
    """Its process would go on without the new database."""
    with pytest.raises(StudyError, match=f"is being run by process {os.getpid()} on .*: stop that one with Ctrl-C"):
        tuner.recover_study("s", runs=open_trial.parent)
    assert not list(open_trial.glob("study.db*"))


@pytest.mark.parametrize(
    "changed",
    [
        {"launched": {"born": 1}},
        {"launched": {"host": "elsewhere"}},
        {"launched": {"pid": 10**30}},
        {"worker": {**this_worker(), "born": 1}},
        {"worker": released()},
    ],
)
def test_a_study_whose_process_has_ended_is_recovered(changed: dict[str, Any], open_trial: Path) -> None:
    """The last owner of a job counts; a process of another machine cannot be seen."""
    own(open_trial, **changed)
    (trial,) = tuner.recover_study("s", runs=open_trial.parent).open
    store = TrialStore.existing(sqlite_url(open_trial / "study.db"), "s")
    owners = store.owners()
    store.close()
    assert owners == {trial.number: changed.get("worker", trial.proposal.worker)}


def test_the_process_that_adopts_a_job_is_noted_in_its_file(tmp_path: Path) -> None:
    """The database that is lost knows it as well."""
    settings = StudySettings(space=SPACE, limits=Limits(budget=2), sampler="grid", study="s", runs=tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = {**this_worker(), "pid": ended.pid}
    with open_loop(settings) as loop:
        proposal = loop.scheduler.next(0.0)
        assert proposal is not None
        trial = loop.store.claim(replace(proposal, worker=dead), loop.state.space.distributions)
        assert trial is not None
        folder = trial.job_folder(settings.folder)
        folder.mkdir(parents=True)
        (folder / "job.json").write_text("{}")
        assert loop.store.take_over(trial, dead, this_worker())
        assert "worker" not in json.loads((folder / "job.json").read_text()), "a damaged file stays as it is"
        (folder / "job.json").write_text('{"key": "k"}')
        assert loop.store.take_over(trial, this_worker(), released())
        assert not loop.store.take_over(trial, dead, this_worker())
    assert json.loads((folder / "job.json").read_text()) == {"key": "k", "worker": released()}
