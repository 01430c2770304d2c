"""Corrupt trials of a study's database are reported in one sentence with their number; the others are read."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.studies import ENVIRONMENT, SMALL
from tuner.core.errors import StudyError, TunerWarning
from tuner.study.manage import list_studies
from tuner.study.result import open_study
from tuner.study.store.trial_store import TrialStore

Corrupt = Callable[[str], Path]

ENDING = "UPDATE trial_user_attributes SET value_json = {} WHERE key = 'ending' AND trial_id = 2"
PROPOSAL = "UPDATE trial_user_attributes SET value_json = {} WHERE key = 'proposal' AND trial_id = 2"
SETTINGS = "UPDATE study_user_attributes SET value_json = {} WHERE key = 'settings'"

TRIALS = (
    ENDING.format("""'{"outcome": "MEAS'"""),
    ENDING.format("""'"text"'"""),
    ENDING.format("""replace(value_json, '"seconds": ', '"seconds": "a", "x": ')"""),
    ENDING.format("""replace(value_json, '"seconds": ', '"seconds": NaN, "x": ')"""),
    ENDING.format("""replace(value_json, '"seconds": ', '"seconds": 1e999, "x": ')"""),
    ENDING.format("""replace(value_json, '"seconds": ', '"seconds": -3, "x": ')"""),
    ENDING.format("""replace(value_json, '"elapsed": ', '"elapsed": "long", "x": ')"""),
    ENDING.format("""replace(value_json, '"outcome": "', '"outcome": "NONSENSE')"""),
    ENDING.format("x'fffe00'"),
    PROPOSAL.format("""'{"key'"""),
    PROPOSAL.format("""'[1, 2]'"""),
    PROPOSAL.format("""replace(value_json, '"key": "', '"key": 7, "x": "')"""),
    PROPOSAL.format("""replace(value_json, '"tp": ', '"tp": "x", "pp": ')"""),
    PROPOSAL.format("""replace(value_json, '"pp": ', '"pp": 0, "x": ')"""),
    "UPDATE trials SET state = 'WHAT' WHERE trial_id = 2",
    "UPDATE trials SET datetime_start = 'yesterday' WHERE trial_id = 2",
    "UPDATE trial_params SET distribution_json = '{' WHERE trial_id = 2",
)
STUDIES = (
    (SETTINGS.format("""'{"sch'"""), "cannot be read"),
    (SETTINGS.format("'[]'"), "was not created by tuner"),
    (SETTINGS.format("""replace(value_json, '"layers": 24', '"layers": "many"')"""), "cannot be read: model field"),
    (SETTINGS.format("""replace(value_json, '"workload": ', '"workload": 3, "x": ')"""), "the workload of study"),
    ("INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (1, 'eras', '[3]')", "speed periods"),
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three simulated jobs."""
    import tuner

    runs = tmp_path_factory.mktemp("runs")
    tuner.optimize(
        model="gpt-1.3b", nodes=4, settings=["nodes=4", "tp=1,2", "recompute=none"], budget=3, study="s", runs=runs
    )
    return runs


@pytest.fixture
def corrupt(intact: Path, tmp_path: Path) -> Corrupt:
    """A function that applies an SQL statement to a copy of the study and returns its folder of studies."""

    def corrupt(statement: str) -> Path:
        shutil.copytree(intact / "s", tmp_path / "s")
        with closing(sqlite3.connect(tmp_path / "s" / "study.db")) as database:
            assert database.execute(statement).rowcount > 0
            database.commit()
        return tmp_path

    return corrupt


@pytest.mark.parametrize("statement", TRIALS)
def test_a_corrupt_trial_is_named_and_the_others_are_read(statement: str, corrupt: Corrupt) -> None:
    """A corrupt trial is left out with a warning on reading, and is an error on continuing the study."""
    runs = corrupt(statement)
    with pytest.warns(TunerWarning, match=r"trial 1 of study 's' cannot be read .*; it is left out\.") as warned:
        study = open_study("s", runs=runs)
    assert len(warned) == 1
    assert [trial.number for trial in study.trials] == [0, 2]
    assert study.best is not None
    store = TrialStore.existing(study.url, "s")
    store._continues = True
    with pytest.raises(StudyError, match="trial 1 of study 's' cannot be read"):
        store.trials()
    store.close()


def test_several_corrupt_trials_are_left_out_with_one_warning(corrupt: Corrupt) -> None:
    runs = corrupt(ENDING.format("""'"text"'""").replace("= 2", "> 1"))
    with pytest.warns(TunerWarning, match=r"trial 1 and 1 more of study 's' cannot be read .*; they are left out\."):
        assert [trial.number for trial in open_study("s", runs=runs).trials] == [0]


@pytest.mark.parametrize(("statement", "words"), STUDIES)
def test_a_corrupt_study_is_reported_in_one_sentence(statement: str, words: str, corrupt: Corrupt) -> None:
    """Unreadable settings or speed periods are one error sentence; the list leaves the study out with a warning."""
    runs = corrupt(statement)
    with pytest.raises(StudyError, match=words):
        open_study("s", runs=runs)
    with pytest.warns(TunerWarning, match=f"study 's' is not listed: .*{words}"):
        assert not list_studies(runs=runs)


def test_commands_print_one_line_for_a_corrupt_trial(corrupt: Corrupt, run: Run) -> None:
    """For a corrupt trial, `list` prints a warning, and `optimize` one error line without a traceback."""
    runs = str(corrupt(TRIALS[0]))
    said = run("list", "--runs", runs)
    assert said.code == 0
    assert said.err.startswith("tuner: warning: trial 1 of study 's' cannot be read")
    continued = run(
        "optimize", *SMALL[:6], "--set", "tp=1,2", "--set", "recompute=none", "--study", "s", "--runs", runs
    )
    assert continued.code == 1
    assert "trial 1 of study 's' cannot be read" in continued.err.splitlines()[-1]
    assert "Traceback" not in continued.err


def test_a_study_of_a_newer_schema_is_refused(corrupt: Corrupt, run: Run) -> None:
    """A study of a newer schema is refused with the schema's name and the remedy."""
    runs = str(corrupt(SETTINGS.format("replace(value_json, 'tuner/study/1', 'tuner/study/7')")))
    for arguments in (("report", "s"), ("optimize", *SMALL, "--study", "s"), ("stop", "s")):
        said = run(*arguments, "--runs", runs)
        assert said.code == 1
        assert "was started by a later version of tuner, with schema tuner/study/7" in said.err
        assert "pip install --upgrade tuner" in said.err


@pytest.mark.parametrize("content", [b"", b"x", None])
def test_an_empty_database_beside_jobs_is_refused(
    content: bytes | None, intact: Path, tmp_path: Path, run: Run
) -> None:
    """A missing or empty database next to jobs is refused; SQLite would take it as new and repeat the whole budget."""
    shutil.copytree(intact / "s", tmp_path / "s")
    file = tmp_path / "s" / "study.db"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    for arguments in (("report", "s"), ("optimize", *SMALL, "--study", "s")):
        said = run(*arguments, "--runs", str(tmp_path))
        assert said.code == 1
        assert ("is missing, but" if content is None else "is empty, but") in said.err
        assert "has the files of 3 jobs" in said.err
    assert (file.read_bytes() if file.exists() else None) == content


def spoil(database: Path, start: int, content: bytes) -> None:
    """Overwrite a part of the database's file."""
    whole = database.read_bytes()
    database.write_bytes(whole[:start] + content + whole[start + len(content) :])


def undecodable(database: Path) -> None:
    """Make the definition of a table undecodable, which SQLite quotes in its error."""
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("PRAGMA writable_schema=ON")
        broken = "UPDATE sqlite_master SET sql = CAST(x'435245415445205441424c4520fe28' AS TEXT) WHERE name = 'trials'"
        assert opened.execute(broken).rowcount
        opened.commit()


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda file: spoil(file, 0, b"x" * 4096), "file is not a database"),
        (lambda file: spoil(file, 100, b"\xfe" * 3996), "database disk image is malformed"),
        (lambda file: file.write_bytes(file.read_bytes()[:20_000]), "database disk image is malformed"),
        (lambda file: spoil(file, file.read_bytes().index(b'"gpt-1.3b"'), b'"\xff'), "decode"),
        (undecodable, ""),
    ],
)
def test_a_damaged_database_is_rebuilt_by_the_command_that_its_error_names(
    damage: Callable[[Path], None], cause: str, intact: Path, tmp_path: Path, run: Run
) -> None:
    shutil.copytree(intact / "s", tmp_path / "s")
    file = tmp_path / "s/study.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(file)
    remedy = f"or move it away and rebuild it with 'tuner recover s --runs {tmp_path}'"
    for arguments in (("report", "s"), ("stop", "s"), ("list",), ("optimize", *SMALL, "--study", "s")):
        said = run(*arguments, "--runs", str(tmp_path))
        assert said.code == (arguments != ("list",))
        assert remedy in said.err
        assert cause in said.err
        assert max(map(len, said.err.splitlines())) < 300 + 2 * len(str(tmp_path))
    file.rename(tmp_path / "moved.db")
    assert run("recover", "s", "--runs", str(tmp_path)).code == 0
    assert run("report", "s", "--runs", str(tmp_path)).code == 0


def test_a_damaged_database_elsewhere_is_rebuilt_in_the_folder(tmp_path: Path) -> None:
    """Without --storage, the rebuilt one is used."""
    (tmp_path / "x.db").write_bytes(b"x" * 4096)
    with pytest.raises(
        StudyError,
        match=r"refused: file is not a database; correct the path in --storage, restore the file from a backup, or "
        r"move it away, rebuild it with 'tuner recover STUDY' and leave out --storage, and run the same command again",
    ):
        open_study("s", storage=f"sqlite:///{tmp_path}/x.db")


def test_a_damaged_database_without_files_of_jobs_is_restored_from_a_backup(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/study.db").write_bytes(b"x" * 4096)
    with pytest.raises(StudyError, match=r"; restore the file from a backup, and run the same command again\.$"):
        open_study("s", runs=tmp_path)


MOUNTS = ["unshare", "--mount", "sh", "-c"]
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


@pytest.mark.slow
@pytest.mark.parametrize("journal", [False, True])
def test_a_read_only_study_is_reported(intact: Path, tmp_path: Path, *, journal: bool) -> None:
    """A study on a read-only file system is reported with -o; with `journal`, its last process was killed."""
    runs = tmp_path / "runs"
    shutil.copytree(intact / "s", runs / "s")
    mount = [*MOUNTS, READ_ONLY, str(runs)]
    if subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("wants to mount")
    with closing(sqlite3.connect(runs / "s" / "study.db")) as database:
        if journal:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("UPDATE studies SET study_name = 's'")
            database.commit()
            shutil.copytree(runs / "s", runs / "killed")  # the state that a killed process leaves
    report = [sys.executable, "-m", "tuner", "report", "s", "--runs", str(runs), "-o", str(tmp_path / "report")]
    if journal:
        shutil.rmtree(runs / "s")
        (runs / "killed").rename(runs / "s")
    made = subprocess.run([*mount, *report], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "report" / "report.md").is_file()
    beside = subprocess.run([*mount, *report[:-2]], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert beside.returncode == 2
    assert "cannot be written: Read-only file system" in beside.stderr
    assert "-o DIR" in beside.stderr
    check = [*report[:3], "dashboard", *report[4:-2], "--check"]
    noted = subprocess.run([*mount, *check], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert noted.returncode
    assert f"; make {runs / 's'} writable or use a copy of it" in noted.stderr
