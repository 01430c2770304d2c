"""Open the database of a study: a SQLite file, or any other database that Optuna supports."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.storages import BaseStorage, RDBStorage, get_storage

from tuner.core.atomic_write import RAISE_LIMIT, file_size_limit, read_object
from tuner.core.errors import InputError, MissingDependency, StudyError
from tuner.core.text import counted, shown
from tuner.study.store.folders import files_in
from tuner.study.store.outages import Patient, is_lock, wait_out_outages
from tuner.study.store.storage_url import masked, parse, without_secrets

HEARTBEAT: Final = 20
"""Optuna's interval of heartbeats, which marks that trials have them; the study loop sends them itself."""

GRACE: Final = 120
"""Seconds without a heartbeat after which a watcher on another machine counts as dead."""

PATIENCE: Final = 30
"""Seconds that a process waits for another process's write to a SQLite file before it says so."""

MAX_BUSY: Final = 1.0
"""Seconds of that in one call of SQLite, which Ctrl-C does not end."""

CREATION_ATTEMPTS: Final = 5
"""Times that a process tries to create the tables of an empty database."""


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file, which may have any name in UTF-8."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{shown(str(path))} is not UTF-8, which SQLite requires; choose another --runs DIR."
        ) from None
    return str(sqlalchemy.URL.create("sqlite", database=str(path.absolute())))


MIN_SQLITE_BYTES: Final = 512
"""Size of the smallest database that SQLite writes; it takes a shorter file for an empty database."""


STUDY_FILE: Final = "study.json"
"""The file in a study's folder from which its database can be rebuilt."""

STORED_AT: Final = "storage"
"""Its entry that names a database elsewhere."""


def refuse_lost(file: Path) -> None:
    """Raise a `StudyError` if a study's database is elsewhere, or is missing or empty beside a folder with jobs."""
    if file.exists() and not (file.is_file() and file.stat().st_size < MIN_SQLITE_BYTES):
        return
    remedy, jobs = recovery_command(file.parent), sum(map(len, files_in(file.parent / "jobs", "job.json")))
    if elsewhere := read_object(file.parent / STUDY_FILE).get(STORED_AT):
        raise StudyError(
            f"study {shown(file.parent.name)} is stored in {str(elsewhere)!r}: pass --storage with that URL. "
            f"If that database is lost, rebuild it with '{remedy}'."
        )
    if jobs:
        lost = "is empty" if file.exists() else "is missing"
        raise StudyError(
            f"{file} {lost}, but {file.parent / 'jobs'} has the files of {counted(jobs, 'job')}: rebuild the "
            f"database with '{remedy}', or move the folder away to start the study again."
        )


def recovery_command(folder: Path) -> str:
    """Return the command that rebuilds the database of the study in a folder."""
    runs = folder.parent
    there = [] if runs.absolute() == Path("runs").absolute() else ["--runs", str(runs)]
    return shlex.join(["tuner", "recover", folder.name, *there])


def restoration(url: str, study: str = "STUDY") -> str:
    """Return how to repair a damaged database, as a clause; `study` is the name of the study, if it is one."""
    file = sqlite_file(url)
    if file is None:
        return "restore the database from a backup"
    if file.name != "study.db":
        command = shlex.join(["tuner", "recover", study])
        return f"restore the file from a backup, or move it away, rebuild it with '{command}' and leave out --storage"
    if not any((file.parent / "jobs").glob("*/job.json")):
        return "restore the file from a backup"
    return f"restore the file from a backup, or move it away and rebuild it with '{recovery_command(file.parent)}'"


def refuse_second(folder: Path, storage: str | None) -> None:
    """Raise a `StudyError` if the jobs of a study's folder belong to another database: both would use its files."""
    if not (document := read_object(folder / STUDY_FILE)):
        return
    own = sqlite_url(folder / "study.db")
    stored, asked = str(document.get(STORED_AT) or own), located(storage or own)
    if not _is_same(stored, asked):
        remedy = "pass --storage with that URL" if document.get(STORED_AT) else "leave out --storage"
        raise StudyError(
            f"the jobs in {folder} belong to the study in {masked(stored)!r}, not in {asked!r}: {remedy} to "
            f"continue it, or choose another --study or --runs. If that database has moved, delete "
            f"{folder / STUDY_FILE} first."
        )


def located(url: str) -> str:
    """Return a storage's URL without its password, and a SQLite file by its absolute path."""
    parts = parse(url)
    if parts.get_backend_name() == "sqlite" and parts.database and not parts.database.startswith("file:"):
        url = parts.set(database=str(Path(parts.database).resolve())).render_as_string(hide_password=False)
    return masked(url)


def _is_same(stored: str, asked: str) -> bool:
    """Whether two URLs are of one database. Earlier versions stored relative paths: only their names are compared."""
    try:
        first, second = parse(stored), parse(asked)
    except InputError:
        return False
    if first.get_backend_name() == second.get_backend_name() == "sqlite":
        one, other = Path(first.database or ""), Path(second.database or "")
        return one.resolve() == other.resolve() if one.is_absolute() else one.name == other.name
    places = [
        (url.get_backend_name(), url.host, url.port, url.database, url.query.get("host")) for url in (first, second)
    ]
    return places[0] == places[1]


class _WalConnection(sqlite3.Connection):
    """A connection in WAL mode, in which readers and the writer do not block each other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def _read_only(url: sqlalchemy.URL) -> sqlalchemy.URL | None:
    """Return the URL that opens a SQLite file read-only; None if it, and the folder of its journal, can be written."""
    if url.get_backend_name() != "sqlite" or not url.database or url.query:
        return None
    path = Path(url.database).absolute()
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    journal = path.with_name(f"{path.name}-wal")
    options = {"uri": "true", "mode": "ro"}
    if not journal.exists() or not journal.stat().st_size:
        options["immutable"] = "1"  # no other process can write it either, and its journal holds nothing
    return url.set(database=f"file:{quote(str(path))}", query=options)


@dataclass(frozen=True, slots=True)
class Storage:
    """An open database."""

    url: str = field(repr=False)
    database: RDBStorage
    cached: BaseStorage
    """The same database, with finished trials cached in memory."""
    patient: Patient = field(repr=False)
    """Runs a transaction of the caller's, waiting for a server that is away as the storages do."""

    def close(self) -> None:
        """Close all connections to the database."""
        self.database.remove_session()
        self.database.engine.dispose()

    def study_names(self) -> list[str]:
        """Return the names of all studies."""
        with understood(self.url):
            return [str(name) for (name,) in self.select("SELECT study_name FROM studies ORDER BY study_id")]

    def select(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, for content that Optuna cannot decode."""

        def rows() -> list[tuple[Any, ...]]:
            with self.database.engine.connect() as connection:
                return [tuple(row) for row in connection.execute(sqlalchemy.text(query), values)]

        found: list[tuple[Any, ...]] = self.patient(rows)
        return found


def open_storage(url: str, *, create: bool = False) -> Storage:
    """Open the storage at a URL, a SQLite file in WAL mode unless this process may not write it.

    Without `create`, a SQLite file must exist.
    """
    parsed = parse(url)
    if _is_in_memory(parsed):
        raise InputError(
            f"--storage {masked(url)} is in memory and would lose the study; use a file: sqlite:///study.db."
        )
    file = parsed.database if parsed.get_backend_name() == "sqlite" and "file:" not in (parsed.database or "") else None
    if file and not create and not Path(file).exists():
        raise InputError(f"there is no database {file}; check the path in --storage.")
    if file and not Path(file).parent.is_dir():
        raise InputError(f"there is no folder {Path(file).parent} for the database; create it, or correct --storage.")
    read_only = _read_only(parsed)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    arguments: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        arguments["connect_args"] = {"timeout": min(MAX_BUSY, PATIENCE)}
        if read_only is None:
            arguments["connect_args"]["factory"] = _WalConnection
    with understood(url):
        if "+" in parsed.drivername and parsed.get_dialect().is_async:
            raise InputError(
                f"--storage {masked(url)} names an asynchronous driver, which Optuna does not support; write "
                f"{parsed.get_backend_name()}:// for another one."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # heartbeats, since version 2.9
            try:
                opened = url if read_only is None else read_only.render_as_string()
                database = _created(opened, engine_kwargs=arguments, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
            except UnicodeDecodeError:
                raise
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"--storage {masked(url)} has an option that cannot be used: {_cause(error, url)}."
                ) from None
        patient = wait_out_outages(database, url, silent=PATIENCE)
        return Storage(url, database, get_storage(database), patient)


def _is_in_memory(url: sqlalchemy.URL) -> bool:
    """Whether a SQLite database is in memory, and lost when this process ends."""
    name = url.database or ""
    return url.get_backend_name() == "sqlite" and (
        name in ("", ":memory:") or name.startswith("file::memory:") or url.query.get("mode") == "memory"
    )


def _created(url: str, **arguments: Any) -> RDBStorage:
    """Open the database; retry if several processes create the tables of an empty one, or one has locked it."""
    attempts, deadline = 0, time.monotonic() + PATIENCE
    while True:
        try:
            return _opened(url, **arguments)
        except (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError):
            attempts += 1
            if attempts == CREATION_ATTEMPTS:
                raise
        except (sqlalchemy.exc.OperationalError, optuna.exceptions.StorageInternalError) as error:
            if not is_lock(error) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - no secret


def _opened(url: str, **arguments: Any) -> RDBStorage:
    """Open the database, with any installed PostgreSQL driver; the default driver depends on SQLAlchemy's version."""
    scheme, mark, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        for driver in ("psycopg", "psycopg2"):
            with suppress(ImportError):
                return RDBStorage(f"postgresql+{driver}{mark}{rest}", **arguments)
    return RDBStorage(url, **arguments)


_PACKAGES: Final = {"MySQLdb": "mysqlclient"}
"""Packages of drivers that are imported by another name."""


MIN_FREE_BYTES: Final = 2**20
"""Free bytes below which a disk is too full for SQLite, which then fails to map or extend the index of its journal."""


_NEAR_LIMIT: Final = 64 * 2**10
"""Bytes below the limit of file sizes from which the next write of SQLite may exceed it."""


def sqlite_file(url: str) -> Path | None:
    """Return the SQLite file of a URL; None for another database."""
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    return Path(parsed.database).absolute()


def _limit_reached(file: Path) -> int | None:
    """Return the limit of file sizes in bytes if a SQLite file or one of its logs is close to it."""
    if (limit := file_size_limit()) is None:
        return None
    for path in (file, Path(f"{file}-wal"), Path(f"{file}-journal")):
        with suppress(OSError):
            if path.stat().st_size > limit - _NEAR_LIMIT:
                return limit
    return None


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Convert database errors to errors with one-sentence messages."""
    try:
        yield
    except ImportError as error:
        missing = error.__context__ if isinstance(error.__context__, ImportError) else error
        package = "'.[postgres]' in tuner's checkout"
        if re.match(r"postgres(ql)?(\+psycopg)?://", url) is None:
            package = f"{_PACKAGES.get(missing.name or '', missing.name or 'it')} beside tuner"
        raise MissingDependency(f"{masked(url)} needs a driver that is not installed; pip install {package}.") from None
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise InputError(f"--storage {masked(url)} cannot be used: {_cause(error, url)}.") from None
    except (
        sqlalchemy.exc.SQLAlchemyError,
        sqlite3.Error,
        optuna.exceptions.StorageInternalError,
        UnicodeDecodeError,  # of damaged content
    ) as error:
        cause = _cause(error, url)
        detail, remedy = _remedy(cause, url)
        again = f"; {remedy} and run the same command again" if remedy else ""
        raise StudyError(f"the study's storage {masked(url)} refused: {cause}{detail}{again}.") from None
    except RuntimeError as error:
        raise StudyError(f"the study's storage {masked(url)} cannot be used: {_cause(error, url)}.") from None


_DAMAGE: Final = r"malformed|file is not a database|Could not decode to UTF-8|codec can't decode"
"""How SQLite and its driver name a damaged database."""


def _remedy(cause: str, url: str) -> tuple[str, str]:
    """Return what is known about the disk, and what to do; both are empty for other errors."""
    if re.search(_DAMAGE, cause):
        wrong_path = "file is not a database" in cause and (file := sqlite_file(url)) and file.name != "study.db"
        return "", "correct the path in --storage, " * bool(wrong_path) + restoration(url) + ","
    if re.search(r"\bfull\b|No space left", cause):
        return "", "make room there"
    file = sqlite_file(url)
    if "readonly database" in cause and file is not None:
        return "", make_writable(file.parent)
    if "unable to open database file" in cause and file is not None and file.exists():
        return "", f"make {file} readable"
    if "disk I/O error" not in cause or file is None:
        return "", ""
    try:
        free = shutil.disk_usage(file.parent).free
    except OSError:
        return "", ""
    if free < MIN_FREE_BYTES:
        return f", with {free / 1024:.0f} KiB free", "make room there"
    if (limit := _limit_reached(file)) is not None:
        return f", with files limited to {limit / 1024:,.0f} KiB", RAISE_LIMIT
    return "", "check the disk, its mount and your quota there"


def make_writable(folder: Path) -> str:
    """Return the remedy for a folder of a study that cannot be written to."""
    return f"make {folder} writable or use a copy of it"


def _cause(error: BaseException, url: str) -> str:
    """Return the first line of the innermost error, without the secrets of the URL."""
    while error.__cause__ is not None:
        error = error.__cause__
    message = str(getattr(error, "orig", None) or error).strip()
    message = re.sub(r"(Could not decode to UTF-8 column '[^']*') with text .*", r"\1", message, flags=re.DOTALL)
    return without_secrets((message.splitlines() or [type(error).__name__])[0].rstrip("."), url)
