"""`tuner recover`: a study whose database is lost, rebuilt from the files of its jobs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tuner
from tests.studies import kept, optimize, run_tuner, url_of
from tests.study.test_resumed_state import drifting
from tuner.core.errors import InputError, StudyError, TunerWarning
from tuner.study.limits import Limits
from tuner.study.setup import open_loop
from tuner.study.store.recover import RecoveredStudy, write_study_file
from tuner.study.store.storage import refuse_lost
from tuner.study.store.trial import Trial


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of six jobs."""
    folder = tmp_path_factory.mktemp("begun")
    assert optimize("--study", "lost", "--budget", "6", folder=folder).code == 0
    return folder


@pytest.fixture
def lost(begun: Path, tmp_path: Path) -> Path:
    """The folder of a copy of the study without its database."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    for file in (tmp_path / "runs/lost").glob("study.db*"):
        file.unlink()
    return tmp_path / "runs/lost"


def recover(folder: Path) -> RecoveredStudy:
    """Recover the study in a folder."""
    return tuner.recover_study(folder.name, runs=folder.parent)


def of(folder: Path) -> list[Trial]:
    """Return the launched trials of the study in a folder, without handles, which the jobs' files do not contain."""
    return [
        replace(trial, handle=None)
        for trial in kept(url_of(folder.parents[1], folder.name), folder.name)
        if trial.launched
    ]


def job_files(folder: Path) -> list[Path]:
    """Return the files of a study's jobs, sorted by number."""
    return sorted(folder.glob("jobs/*/job.json"))


def test_every_launched_trial_is_recovered_unchanged(begun: Path, lost: Path) -> None:
    recover(lost)
    assert of(lost) == of(begun / "runs/lost")
    assert len(of(lost)) == 6
    before, after = (tuner.open_study("lost", runs=runs) for runs in (begun / "runs", lost.parent))
    assert after.best == before.best
    assert [trial.key for trial in after.ranking] == [trial.key for trial in before.ranking]


def test_the_same_command_continues(begun: Path, lost: Path) -> None:
    recover(lost)
    said = optimize("--study", "lost", "--budget", "9", folder=lost.parents[1])
    assert said.code == 0, said.err
    assert of(lost)[:6] == of(begun / "runs/lost")
    assert len(of(lost)) > 6


def test_what_the_search_found_out_is_recovered_with_it(tmp_path: Path) -> None:
    """Only the database has the speed periods, the reason for stopping and the sizes of trials."""
    settings = replace(drifting(3, tmp_path), study="lost")
    with open_loop(settings) as loop:
        loop.run()
        attributes = loop.store.attributes
    before = tuner.open_study("lost", runs=tmp_path)
    assert before.speed_periods
    for file in settings.folder.glob("study.db*"):
        file.unlink()
    recover(settings.folder)
    after = tuner.open_study("lost", runs=tmp_path)
    assert after.speed_periods == before.speed_periods
    assert [(ranked.key, ranked.days) for ranked in after.ranking] == [
        (ranked.key, ranked.days) for ranked in before.ranking
    ]
    with open_loop(settings) as again:
        assert again.store.attributes == attributes
        again.run()
    assert len(again.state.trials) == len(before.trials), "the search had stopped"


def test_the_speed_periods_of_a_file_without_them_are_found_again(tmp_path: Path) -> None:
    """Earlier versions wrote no attributes but the settings and the calibration."""
    settings = replace(drifting(3, tmp_path), study="lost")
    with open_loop(settings) as loop:
        loop.run()
    file = settings.folder / "study.json"
    document = json.loads(file.read_text())
    del document["attributes"]
    file.write_text(json.dumps(document))
    for database in settings.folder.glob("study.db*"):
        database.unlink()
    recover(settings.folder)
    with open_loop(settings) as again:
        again.state.read()
    assert again.state.speed_periods == loop.state.speed_periods


def test_a_study_file_that_cannot_be_written_does_not_end_a_search(tmp_path: Path) -> None:
    settings = replace(drifting(3, tmp_path), study="lost", limits=Limits(budget=2))
    with open_loop(settings) as loop:
        (settings.folder / "study.json").unlink()
        (settings.folder / "study.json").mkdir()
        loop.run()
        assert loop.store.attributes["stopping"]


def test_only_a_missing_or_empty_database_is_rebuilt(lost: Path) -> None:
    (lost / "study.db").write_bytes(b"\0")
    recover(lost)
    whole = (lost / "study.db").read_bytes()
    with pytest.raises(InputError, match=r"study\.db exists"):
        recover(lost)
    assert (lost / "study.db").read_bytes() == whole


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_list_names_a_lost_database_without_creating_one(lost: Path, is_empty: bool) -> None:
    """`tuner list` names a lost database and does not create tables, which would make the study look new."""
    if is_empty:
        (lost / "study.db").touch()
    with pytest.warns(TunerWarning, match="study 'lost' is not listed: .* rebuild the database"):
        assert tuner.list_studies(runs=lost.parent) == []
    assert [path.stat().st_size for path in lost.glob("study.db*")] == [0] * is_empty
    recover(lost)
    assert [study.name for study in tuner.list_studies(runs=lost.parent)] == ["lost"]


def test_a_trial_without_a_result_is_recovered_as_open(lost: Path) -> None:
    """A trial whose job file has no result is recovered as open, so that the next `optimize` looks for its job."""
    last = job_files(lost)[-1]
    document = json.loads(last.read_text())
    del document["ending"]
    last.write_text(json.dumps(document))
    assert [trial.number for trial in recover(lost).open] == [document["number"]]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"number": 0}', '{"number": 0, "proposal": {}}', '{"number": "x", "proposal": 3}']
)
def test_an_unreadable_job_file_is_named_and_the_rest_is_recovered(lost: Path, content: str) -> None:
    damaged = job_files(lost)[2]
    damaged.write_text(content)
    with pytest.warns(TunerWarning, match=f"{damaged.parent.name}/job.json cannot be read"):
        found = recover(lost)
    assert len(found.trials) == len(of(lost)) == 5
    assert found.unreadable == (damaged,)


def test_a_job_whose_folder_cannot_be_read_is_named(lost: Path) -> None:
    """Its trial would otherwise be lost in silence."""
    damaged = job_files(lost)[2]
    shutil.rmtree(damaged.parent)
    damaged.parent.symlink_to(damaged.parent)
    with pytest.warns(TunerWarning, match=f"{damaged.parent.name}/job.json cannot be read"):
        assert recover(lost).unreadable == (damaged,)


def test_a_study_whose_jobs_cannot_be_read_is_not_begun_again(lost: Path) -> None:
    (lost / "jobs").rename(lost / "away")
    (lost / "jobs").symlink_to(lost / "jobs")
    said = optimize("--study", "lost", "--budget", "6", folder=lost.parents[1])
    assert said.code != 0
    assert "jobs cannot be read: Too many levels of symbolic links" in said.err
    assert not list(lost.glob("study.db*"))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"settings": {}, "distributions": {}}'])
def test_a_study_without_its_settings_is_not_recovered(lost: Path, content: str | None) -> None:
    (lost / "study.json").unlink()
    if content is not None:
        (lost / "study.json").write_text(content)
    with pytest.raises((InputError, StudyError)):
        recover(lost)
    assert not list(lost.glob("study.db*"))


def test_the_settings_are_readable_only_by_their_owner(begun: Path) -> None:
    assert (begun / "runs/lost/study.json").stat().st_mode & 0o777 == 0o600


def test_recover_prints_a_summary_and_explains_errors(lost: Path) -> None:
    there = lost.parents[1]
    refused = optimize("--study", "lost", "--budget", "6", folder=there)
    assert refused.code != 0
    assert "'tuner recover lost'" in refused.err
    with pytest.raises(StudyError, match=f"'tuner recover lost --runs {lost.parent}'"):
        refuse_lost(lost / "study.db")
    said = run_tuner("recover", "lost", folder=there)
    assert said.out.startswith("Study lost: 6 trials rebuilt.\n")
    again = run_tuner("recover", "lost", folder=there)
    assert again.code == 2
    assert again.err.count("\n") == 1


@pytest.mark.parametrize("number", [10**9, 0, -1, "2", True])
def test_a_job_file_with_the_number_of_another_trial_is_damaged(lost: Path, number: Any) -> None:
    """The number of a job's folder counts: one file with a billion would otherwise make a billion trials."""
    (*before, damaged) = job_files(lost)[:3]
    after = job_files(lost)[3:]
    damaged.write_text(json.dumps({**json.loads(damaged.read_text()), "number": number}))
    with pytest.warns(TunerWarning, match="job.json cannot be read"):
        found = recover(lost)
    assert found.unreadable == (damaged,)
    assert [trial.number for trial in found.trials] == [
        json.loads(file.read_text())["number"] for file in before + after
    ]


def test_a_study_stored_elsewhere_is_not_called_lost(begun: Path, tmp_path: Path) -> None:
    """A second database in its folder would fork it; the URL is kept without its password."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(begun / "runs/lost", copy)
    for file in copy.glob("study.db*"):
        file.unlink()
    store: Any = SimpleNamespace(name="elsewhere", settings={}, attributes={})
    write_study_file(copy, store, {}, storage="postgresql://me:secret@host/studies")
    assert "secret" not in (copy / "study.json").read_text()
    with pytest.raises(StudyError, match=r"is stored in 'postgresql://me:\*\*\*@host/studies': pass --storage"):
        refuse_lost(copy / "study.db")
    with pytest.warns(TunerWarning, match="study 'elsewhere' is not listed: .* pass --storage"):
        assert tuner.list_studies(runs=tmp_path) == []
