"""The errors that count as an outage of the database server, and how long a call waits for it."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import sqlalchemy.exc

from tuner.core.errors import StudyError, TunerWarning
from tuner.core.interrupts import remember_interrupts
from tuner.study.store import outages, storage
from tuner.study.store.outages import is_outage
from tuner.study.store.trial import Proposal
from tuner.study.store.trial_store import TrialStore

psycopg = pytest.importorskip("psycopg")


class Sqlite3Error(Exception):
    """An error of a driver without a server."""


def operational(original: Exception) -> sqlalchemy.exc.OperationalError:
    """Return a driver's error as SQLAlchemy raises it."""
    return sqlalchemy.exc.OperationalError("SELECT 1", {}, original)


def wrapped(error: Exception) -> Exception:
    """Return an SQLAlchemy error as Optuna raises it."""
    outer = optuna.exceptions.StorageInternalError("in a commit")
    outer.__cause__ = error
    return outer


AWAY = [
    operational(psycopg.OperationalError("connection failed: No such file or directory")),
    operational(psycopg.errors.AdminShutdown("terminating connection due to administrator command")),
    operational(psycopg.errors.CannotConnectNow("the database system is starting up")),
    operational(psycopg.errors.TooManyConnections("sorry, too many clients already")),
    operational(psycopg.errors.ConnectionFailure("server closed the connection")),
    operational(sqlite3.OperationalError("database is locked")),
    sqlalchemy.exc.PendingRollbackError("can't reconnect until invalid transaction is rolled back"),
]
REFUSED = [
    operational(psycopg.errors.DiskFull("could not extend file")),
    operational(psycopg.errors.QueryCanceled("canceling statement due to statement timeout")),
    sqlalchemy.exc.IntegrityError("INSERT", {}, psycopg.errors.UniqueViolation("duplicate key")),
    operational(Sqlite3Error("database or disk is full")),
    ValueError("not of a database"),
]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(getattr(error, "orig", error)).__name__)
def test_a_lost_connection_is_an_outage(error: Exception) -> None:
    assert is_outage(error)
    assert is_outage(wrapped(error))


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(getattr(error, "orig", error)).__name__)
def test_an_error_of_a_reachable_server_is_no_outage(error: Exception) -> None:
    assert not is_outage(error)
    assert not is_outage(wrapped(error))


class Flaky:
    """A call that fails a given number of times."""

    def __init__(self, fails: int, error: BaseException = AWAY[0]) -> None:
        self.left, self.error, self.calls = fails, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.left:
            raise self.error
        return "answer"


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> tuple[outages.Patient, list[float]]:
    """The wrapper that waits out outages, and a list of its pauses, with a fake clock."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    database = optuna.storages.RDBStorage("sqlite:///:memory:")
    return outages.wait_out_outages(database, "postgresql://me:secret@db/studies"), pauses


def test_a_call_is_repeated_with_growing_pauses(patience: tuple[outages.Patient, list[float]]) -> None:
    call = Flaky(7)
    with pytest.warns(
        TunerWarning, match=r"^postgresql://me:\*\*\*@db/studies is unreachable; waiting up to 10 minutes\.$"
    ) as said:
        assert patience[0](call) == "answer"
    assert patience[1] == [0.5, 1, 2, 4, 8, 15, 15]
    assert len(said) == 1


def test_a_call_waits_at_most_ten_minutes(patience: tuple[outages.Patient, list[float]]) -> None:
    call = Flaky(10_000)
    with pytest.warns(TunerWarning), pytest.raises(sqlalchemy.exc.OperationalError):
        patience[0](call)
    assert 600 < sum(patience[1]) < 600 + outages.MAX_PAUSE + 1


def test_other_errors_are_not_repeated(patience: tuple[outages.Patient, list[float]]) -> None:
    call = Flaky(1, REFUSED[0])
    with pytest.raises(sqlalchemy.exc.OperationalError):
        patience[0](call)
    assert call.calls == 1


def test_a_nested_call_fails_at_once(patience: tuple[outages.Patient, list[float]]) -> None:
    """Only the outer of two nested calls, the whole transaction, is repeated."""
    inner = Flaky(2)
    with pytest.warns(TunerWarning):
        assert patience[0](lambda: patience[0](inner)) == "answer"
    assert patience[1] == [0.5, 1]


def test_a_locked_sqlite_file_is_waited_for_and_its_heartbeats_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process, such as a backup, may write for longer than a connection waits."""
    monkeypatch.setattr(storage, "PATIENCE", 0.01)
    store = TrialStore.open(f"sqlite:///{tmp_path}/s.db", "s", {})
    topology = {"nodes": 1, "tp": 1, "pp": 1, "dp": 1, "micro_batch": 1}
    trial = store.claim(Proposal(key="k", params={}, topology=topology, repeat=0, nodes=1, tag="t"), {})
    assert trial is not None
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        pauses: list[float] = []

        def ends(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                backup.execute("COMMIT")

        monkeypatch.setattr(time, "sleep", ends)
        store.heartbeat(trial)
        assert pauses == []
        with pytest.warns(TunerWarning, match=r"s\.db is locked by another process; waiting up to 10 minutes\.$"):
            store.started(trial, "handle")
    assert pauses == [0.5, 1, 2]
    store.close()


def test_a_short_lock_is_not_reported(tmp_path: Path) -> None:
    """Calls of SQLite end after a second, so that Ctrl-C is handled, and are repeated."""
    store = TrialStore.open(f"sqlite:///{tmp_path}/s.db", "s", {})
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        ends = threading.Timer(storage.MAX_BUSY + 0.5, lambda: backup.execute("COMMIT"))
        ends.start()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.set_attribute("name", "value")
        ends.join()
    assert store.attributes["name"] == "value"
    store.close()


def test_a_database_that_is_locked_as_it_is_created_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)) as backup:
        backup.execute("CREATE TABLE another (number INTEGER)")
        backup.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(storage, "PATIENCE", 0.01)
        with pytest.raises(StudyError, match="database is locked"):
            TrialStore.open(f"sqlite:///{tmp_path}/s.db", "s", {})
        monkeypatch.setattr(storage, "PATIENCE", 30)
        ends = threading.Timer(storage.MAX_BUSY + 0.5, lambda: backup.execute("COMMIT"))
        ends.start()
        TrialStore.open(f"sqlite:///{tmp_path}/s.db", "s", {}).close()
        ends.join()


@pytest.mark.parametrize("place", ["in the call", "as the warning is written", "in the pause"])
def test_after_ctrl_c_calls_fail_at_once(
    patience: tuple[outages.Patient, list[float]], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """After Ctrl-C at any point of a wait, later calls fail without waiting."""

    def interrupted(*_given: object, **_named: object) -> str:
        signal.raise_signal(signal.SIGINT)
        return ""

    if place == "as the warning is written":
        monkeypatch.setattr(warnings, "warn", interrupted)
    if place == "in the pause":
        monkeypatch.setattr(time, "sleep", interrupted)
    with remember_interrupts():
        warnings.simplefilter("ignore", TunerWarning)
        with pytest.raises(KeyboardInterrupt):
            patience[0](interrupted if place == "in the call" else Flaky(1))
        call = Flaky(1)
        with pytest.raises(sqlalchemy.exc.OperationalError):
            patience[0](call)
        assert call.calls == 1
