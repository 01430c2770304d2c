"""Open the database of a study: a SQLite file, or any other database that Optuna supports."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.storages import BaseStorage, RDBStorage, get_storage

from tuner.core.errors import InputError, MissingDependency, StudyError
from tuner.core.text import shown

HEARTBEAT: Final = 20
"""Seconds between heartbeats of the process that watches a job."""

GRACE: Final = 120
"""Seconds without a heartbeat after which a watcher on another machine counts as dead."""

PATIENCE: Final = 30
"""Seconds that a process waits for another process's write to a SQLite file."""


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file, which may have any name."""
    return str(sqlalchemy.URL.create("sqlite", database=str(path.absolute())))


@dataclass(frozen=True, slots=True)
class Storage:
    """An open database."""

    url: str
    database: RDBStorage
    kept: BaseStorage
    """The same database, with finished trials cached in memory."""


def open_storage(url: str) -> Storage:
    """Open the storage at a URL. SQLite uses WAL mode, so that readers and the writer do not block each other."""
    if not re.match(r"[a-z][a-z0-9+]*://", url):
        raise InputError(f"--storage {shown(url)} is not a URL such as sqlite:///study.db or postgresql://host/name.")
    if re.fullmatch(r"sqlite://(/?|/:memory:)", url):
        raise InputError(f"--storage {url} forgets the study at the end; name a file: sqlite:///study.db.")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    arguments: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        arguments["connect_args"] = {"timeout": PATIENCE}
    with understood(url):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # heartbeats, since version 2.9
            database = _opened(url, engine_kwargs=arguments, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
        return Storage(url, database, get_storage(database))


def _opened(url: str, **arguments: Any) -> RDBStorage:
    """Open the database with any installed PostgreSQL driver; the default driver depends on SQLAlchemy's version."""
    scheme, mark, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        for driver in ("psycopg", "psycopg2"):
            with suppress(ImportError):
                return RDBStorage(f"postgresql+{driver}{mark}{rest}", **arguments)
    return RDBStorage(url, **arguments)


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Convert database errors to errors with one-sentence messages."""
    try:
        yield
    except ImportError as error:
        missing = error.__context__ if isinstance(error.__context__, ImportError) else error
        package = "'tuner[postgres]'" if where.startswith("postgresql") else f"{missing.name or 'it'} beside tuner"
        raise MissingDependency(f"{masked(where)} needs a driver that is not here; pip install {package}.") from None
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise InputError(f"--storage {masked(where)} cannot be used: {_first_line(error)}.") from None
    except (sqlalchemy.exc.SQLAlchemyError, sqlite3.Error, optuna.exceptions.StorageInternalError) as error:
        cause = _cause(error)
        remedy = "; make room there and run the same command again" if "full" in cause else ""
        raise StudyError(f"the study's storage {masked(where)} refused: {cause}{remedy}.") from None
    except RuntimeError as error:
        raise StudyError(f"the study's storage {masked(where)} cannot be used: {_first_line(error)}.") from None


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _tune_sqlite(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")


def masked(url: str) -> str:
    """Return a URL with its password masked."""
    return re.sub(r"://([^:/@]*):[^@]*@", r"://\1:***@", url)


def _cause(error: BaseException) -> str:
    """Return the first line of the innermost database error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(getattr(error, "orig", None) or error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
