"""Observations from trials, answers of replayed rows, and error messages of the storage."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.audit.tables_of import evidence_of
from tests.search.stand_in import surrogate_of
from tests.search.test_extrapolation import SMALL as REDUCED
from tests.search.test_extrapolation import pool
from tuner.core.domain import MemoryKind
from tuner.core.errors import InputError, MissingDependency, NothingUsable, StudyError, UnknownName
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.study.replay_setup import _answer, _answers, replayed
from tuner.study.state import StudyState, observation_of
from tuner.study.store import tracking
from tuner.study.store.storage import understood
from tuner.study.store.storage_url import masked
from tuner.study.store.tracking import Tracker
from tuner.study.store.trial import Proposal, Trial
from tuner.tables import table_of


def trial(result: JobResult | None) -> Trial:
    """Return trial 4, of candidate 7, with this result."""
    proposal = Proposal(key="7", params={}, topology={}, candidate=7)
    return Trial(number=4, proposal=proposal, result=result)


def measured(kind: MemoryKind | None) -> JobResult:
    """Return a result of 2 s and 5 bytes."""
    measurement = Measurement(seconds=2.0, peak_memory=5.0, memory_kind=kind)
    return JobResult(outcome=Outcome.MEASURED, measurement=measurement)


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        (None, None),
        (measured(None), (2.0, 5.0, None, True, False, None)),
        (measured("reserved"), (2.0, 5.0, "reserved", True, False, None)),
        (JobResult(outcome=Outcome.MEASURED), (None, None, None, True, False, None)),
        (JobResult(outcome=Outcome.OOM), (None, None, None, False, False, None)),
        (JobResult(outcome=Outcome.PRUNED, forecast=9.0, least=8.0), (9.0, None, None, True, True, 8.0)),
        (JobResult(outcome=Outcome.PRUNED, least=8.0), (None, None, None, True, False, 8.0)),
        (JobResult(outcome=Outcome.CRASHED), None),
        (JobResult(outcome=Outcome.HUNG), None),
    ],
)
def test_a_trial_is_observed_with_its_time_its_memory_and_whether_it_fits(
    result: JobResult | None, fields: Any
) -> None:
    one = observation_of(trial(result), "june", pool())
    if fields is None:
        assert one is None
        return
    assert one is not None
    assert (one.candidate, one.period) == (7, "june")
    assert (one.seconds, one.memory, one.memory_kind, one.fits, one.forecast, one.least) == fields


def reduced(result: JobResult, fidelity: Fidelity | None = REDUCED) -> Trial:
    """Return a trial at a reduced size."""
    return Trial(
        number=4, proposal=Proposal(key="7", params={}, topology={}, candidate=7, fidelity=fidelity), result=result
    )


@pytest.mark.parametrize(
    ("measurement", "seconds", "figures"),
    [
        (Measurement(seconds=2.0, peak_memory=5.0), (2.0,), (5.0, None)),
        (
            Measurement(seconds=2.0, batch_seconds=(1.0, 2.0), peak_memory=5.0, memory_kind="smi"),
            (1.0, 2.0),
            (5.0, "smi"),
        ),
    ],
)
def test_a_reduced_trial_is_observed_with_the_seconds_of_its_batches(
    measurement: Measurement, seconds: tuple[float, ...], figures: tuple[float, str | None]
) -> None:
    """A reduced trial is observed with the seconds of each batch; only such a trial is extrapolated."""
    one = reduced(JobResult(outcome=Outcome.MEASURED, measurement=measurement))
    found = observation_of(one, "june", pool())
    assert found is not None
    assert found.reduced is not None
    assert (found.candidate, found.period, found.seconds, found.fits) == (7, "june", None, True)
    assert (found.reduced.seconds, found.reduced.size.small.nodes.tolist()) == (seconds, [REDUCED.nodes] * 2)
    assert (found.memory, found.memory_kind) == figures
    state: Any = SimpleNamespace(
        pool=pool(), surrogate=surrogate_of(extrapolated=lambda candidate, run: (candidate, run.seconds))
    )
    extrapolated: Any = StudyState.extrapolated(state, one)
    assert extrapolated == (7, seconds)
    for other in (
        reduced(JobResult(outcome=Outcome.MEASURED, measurement=measurement), None),
        reduced(JobResult(outcome=Outcome.OOM)),
    ):
        assert StudyState.extrapolated(state, other) is None
    full = observation_of(reduced(JobResult(outcome=Outcome.OOM)), "june", pool())
    assert full is not None
    assert (full.fits, full.timed, full.reduced is None) == (False, False, False)


@pytest.mark.parametrize(
    ("cells", "answers", "seconds", "outcome"),
    [
        ({"note": "n"}, True, 1.25, Outcome.MEASURED),
        ({"status": "OOM"}, True, None, Outcome.OOM),
        ({"status": "FAIL", "sec_per_iter": ""}, True, None, Outcome.CRASHED),
        ({"status": "HANG", "sec_per_iter": ""}, True, None, Outcome.HUNG),
        ({"sec_per_iter": "", "mem_gib": "3"}, False, None, Outcome.MEASURED),
    ],
)
def test_a_replayed_row_is_replayed_in_full(
    cells: dict[str, str], answers: bool, seconds: float | None, outcome: Outcome
) -> None:
    (row,) = evidence_of(cells).table.rows
    assert _answers(row) is answers
    if not answers:
        return
    made = _answer(row)
    assert (made.seconds, made.outcome, made.note) == (seconds, outcome, cells.get("note", ""))
    assert row.run is not None
    assert (made.topology, made.workload, made.cluster) == (row.run.topology, row.run.workload, row.run.cluster)


def test_rows_that_cannot_be_replayed_are_named_with_the_reason() -> None:
    table = table_of("group,layers,hidden,tp,sec_per_iter\na,4,1024,1,2.5\nb,4,1024,1,fast\n", "t.csv")
    with pytest.raises(NothingUsable, match=r"^no row of group 'b' of t.csv can be replayed: line 3: .*not 'fast'"):
        replayed(table, "b")
    with pytest.raises(NothingUsable, match=r"^no row of u.csv can be replayed: line 2: layers is missing"):
        replayed(table_of("layers,hidden,tp,sec_per_iter\n,1024,1,2.5\n", "u.csv"))
    with pytest.raises(NothingUsable, match=r"^no row of v.csv can be replayed: none says what was run and how "):
        replayed(table_of("layers,hidden,tp,sec_per_iter\n4,1024,1,\n", "v.csv"))
    with pytest.raises(InputError, match=r"t.csv has no group 'c'; it has a"):
        replayed(table, "c")


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("database or disk is full", "; make room there and run"),
        ("attempt to write a readonly database", f"; make {Path.cwd()} writable or use a copy of it and run"),
        ("database is locked", "is locked."),
    ],
)
def test_a_full_or_read_only_disk_has_a_remedy(cause: str, remedy: str) -> None:
    with pytest.raises(StudyError) as caught, understood("sqlite:///x.db"):
        raise sqlite3.OperationalError(cause)
    assert str(caught.value).startswith(f"the study's storage sqlite:///x.db refused: {cause}")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("url", "free", "end"),
    [
        (
            "sqlite:///x.db",
            24 * 1024,
            "24 KiB free; make room there and run the same command again.",
        ),
        (
            "sqlite:///x.db",
            2**30,
            "disk I/O error; check the disk, its mount and your quota there and run the same command again.",
        ),
        ("postgresql://h/d", 24 * 1024, "disk I/O error."),
    ],
)
def test_an_error_on_a_nearly_full_disk_names_the_cause(
    url: str, free: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    with pytest.raises(StudyError) as caught, understood(url):
        raise sqlite3.OperationalError("disk I/O error")
    assert "refused: disk I/O error" in str(caught.value)
    assert str(caught.value).endswith(end)


@pytest.mark.parametrize("ending", ["", "-wal", "-journal"])
@pytest.mark.parametrize(("below", "named"), [(0, True), (64 * 1024 - 1, True), (64 * 1024, False)])
def test_an_error_at_the_limit_of_file_sizes_names_it(
    ending: str, below: int, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2000 * 1024
    monkeypatch.setattr("tuner.study.store.storage.file_size_limit", lambda: limit)
    with (tmp_path / f"x.db{ending}").open("wb") as file:
        file.truncate(limit - below)
    with pytest.raises(StudyError) as caught, understood(f"sqlite:///{tmp_path}/x.db"):
        raise sqlite3.OperationalError("disk I/O error")
    remedy = (
        ", with files limited to 2,000 KiB; raise the limit of file sizes (ulimit -f)"
        if named
        else "; check the disk, its mount and your quota there"
    )
    assert str(caught.value).endswith(f"disk I/O error{remedy} and run the same command again.")


def test_an_error_without_a_database_does_not_name_the_limit_of_file_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.study.store.storage.file_size_limit", lambda: 10**9)
    with pytest.raises(StudyError, match="disk I/O error; check the disk"), understood(f"sqlite:///{tmp_path}/x.db"):
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize(
    ("url", "driver", "package"),
    [
        ("postgresql://h/d", "psycopg2", "'.[postgres]' in tuner's checkout"),
        ("mysql+pymysql://h/d", "pymysql", "pymysql beside tuner"),
        ("mysql://h/d", "MySQLdb", "mysqlclient beside tuner"),
    ],
)
def test_a_missing_driver_is_named(url: str, driver: str, package: str) -> None:
    with pytest.raises(MissingDependency, match=f"pip install {re.escape(package)}"), understood(url):
        raise ImportError("no driver", name=driver)


def test_a_password_is_masked() -> None:
    assert masked("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert masked("sqlite:///a.db") == "sqlite:///a.db"


def test_a_tracker_gets_the_study_and_the_trial_and_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker's failure is returned as a sentence; at the end only wandb is flushed."""
    logged: list[tuple[Any, Any]] = []
    frozen = [SimpleNamespace(number=number) for number in (3, 4)]
    study = SimpleNamespace(get_trials=lambda deepcopy: frozen if deepcopy is False else [])
    monkeypatch.setattr("tuner.study.store.tracking.optuna.load_study", lambda **_: study)
    monkeypatch.setattr(tracking, "_mlflow", lambda: lambda *given: logged.append(given))
    monkeypatch.setattr(tracking, "_wandb", lambda _: lambda *_: 1 / 0)
    store: Any = SimpleNamespace(name="s", storage="x", url="sqlite:///x")
    assert Tracker("mlflow", "s").log(store, 4) is None
    assert logged == [(study, frozen[1])]
    failing = Tracker("wandb", "s")
    assert failing.log(store, 3) == "wandb failed, and the study continues without it: division by zero"
    flushed: list[int] = []
    monkeypatch.setitem(__import__("sys").modules, "wandb", SimpleNamespace(finish=lambda: flushed.append(1)))
    Tracker("mlflow", "s").close()
    assert flushed == []
    failing.close()
    assert flushed == [1]
    with pytest.raises(UnknownName):
        Tracker("paper", "s")


def test_unrelated_os_errors_pass_through(tmp_path: Path) -> None:
    """An OSError that has nothing to do with the storage passes through unchanged."""
    with pytest.raises(FileNotFoundError), understood("sqlite:///x.db"):
        (tmp_path / "none").read_text()
