"""The jobs in a study's folder belong to the study of one database."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import tuner
from tuner.core.errors import StudyError
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.storage import refuse_second


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudySettings:
    """Settings of a small study, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    space = space_for(model="gpt-1.3b", nodes=1, settings=["tp=1", "recompute=none"])
    return StudySettings(space=space, limits=Limits(budget=1), study="s", runs=tmp_path / "runs")


def run(settings: StudySettings) -> None:
    """Run or continue a study."""
    with open_loop(settings) as loop:
        loop.run()


def test_a_second_database_is_refused_and_changes_no_file(
    settings: StudySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relative URL of a SQLite file names another database in another directory."""
    stored = replace(settings, storage="sqlite:///s.db")
    run(stored)
    files = {file: file.read_bytes() for file in (tmp_path / "runs/s").rglob("*.json")}
    assert files
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(StudyError, match=re.escape(f"'sqlite:///{tmp_path}/s.db', not in 'sqlite:///{tmp_path}/sub/")):
        run(stored)
    assert not (tmp_path / "sub/s.db").exists()
    assert {file: file.read_bytes() for file in files} == files
    run(replace(stored, storage="sqlite:///../s.db"))


def test_a_database_elsewhere_does_not_continue_a_study_of_the_folder(settings: StudySettings, tmp_path: Path) -> None:
    """The database in the folder is the same one by its URL."""
    run(settings)
    with pytest.raises(StudyError, match="leave out --storage to continue it"):
        run(replace(settings, storage="sqlite:///other.db"))
    run(replace(settings, storage=f"sqlite:///{tmp_path}/runs/s/study.db"))
    run(settings)


def test_a_recovered_study_is_continued_in_its_folder(settings: StudySettings, tmp_path: Path) -> None:
    run(replace(settings, storage="sqlite:///s.db"))
    tuner.recover_study("s", runs=tmp_path / "runs")
    run(settings)


def test_of_two_new_databases_the_one_that_is_recorded_first_launches_jobs(settings: StudySettings) -> None:
    with open_loop(settings):
        (settings.folder / "study.json").unlink()  # as before the first process wrote it
        with open_loop(replace(settings, storage="sqlite:///other.db")):
            pass
        with pytest.raises(StudyError, match="belong to the study in"), open_loop(settings):
            pass


@pytest.mark.parametrize(
    ("stored", "asked", "is_same"),
    [
        ("postgresql://me:***@host/studies", "postgresql+psycopg://you:secret@host/studies?sslmode=require", True),
        ("postgresql://me:***@host/studies", "postgresql://me:secret@host/others", False),
        ("postgresql://me:***@host/studies", "postgresql://me:secret@other/studies", False),
        ("postgresql:///studies?host=/run/one", "postgresql:///studies?host=/run/other", False),
        ("sqlite:///s.db", "sqlite:////elsewhere/s.db", True),
        ("sqlite:///s.db", "sqlite:////elsewhere/other.db", False),
        ("no URL", "sqlite:///s.db", False),
    ],
)
def test_a_database_is_identified_without_credentials(
    stored: str, asked: str, *, is_same: bool, tmp_path: Path
) -> None:
    """Earlier versions stored the relative path of a SQLite file, whose directory is unknown."""
    (tmp_path / "study.json").write_text(json.dumps({"storage": stored}))
    if is_same:
        refuse_second(tmp_path, asked)
        return
    with pytest.raises(StudyError, match="belong to the study in") as refused:
        refuse_second(tmp_path, asked)
    assert "secret" not in str(refused.value)
