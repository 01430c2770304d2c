"""Wait for a database server that is away, restarting, failing over or cut off, and for a locked SQLite file."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import optuna
import sqlalchemy.exc
from optuna.storages import RDBStorage

from tuner.core.errors import TunerWarning
from tuner.core.interrupts import defer_interrupts, was_interrupted
from tuner.study.store.storage_url import masked

MAX_OUTAGE: Final = 600.0
"""Seconds that a call waits for the database."""

FIRST_PAUSE: Final = 0.5
MAX_PAUSE: Final = 15.0
"""Seconds between two attempts; the pause doubles from the first to the longest."""

LOCK_PAUSE: Final = 0.02
"""Seconds between two attempts to write to a locked SQLite file, each of which waits too."""

_CALLS: Final = (
    *("create_new_study", "set_study_user_attr", "get_study_id_from_name", "get_study_user_attrs", "get_all_studies"),
    *("set_study_system_attr", "get_study_system_attrs", "get_study_name_from_id", "get_study_directions"),
    *("_create_new_trial", "set_trial_param", "_set_trial_param", "set_trial_state_values", "set_trial_user_attr"),
    *("set_trial_system_attr", "set_trial_intermediate_value", "get_trial_id_from_study_id_trial_number", "get_trial"),
    *("get_all_trials", "_get_trials", "_get_best_trial_id", "_get_stale_trial_ids"),
)
"""Optuna's methods that are one transaction each, public or called by its cache."""

_REFUSED_CONNECTION: Final = (2002, 2003, 2006, 2013)
"""MySQL's numbers of errors of the connection."""


Patient = Callable[[Callable[[], Any]], Any]
"""Calls a function, again and again while the server is away."""


def wait_out_outages(database: RDBStorage, url: str, *, silent: float = 0.0) -> Patient:
    """Make every call of the storage wait for its server; return a wrapper that does the same for other transactions.

    Only heartbeats do not wait, because others follow. A lock of another process is reported after `silent` seconds.
    Ctrl-C waits until the call is over; after it no call waits, so that a search can end.
    """
    patience = _Patience(database, url, silent)
    for name in _CALLS:
        setattr(database, name, patience.method(getattr(database, name)))
    database.record_heartbeat = patience.method(database.record_heartbeat, limit=0.0)  # type: ignore[method-assign]
    return patience.call


def is_outage(error: BaseException | None) -> bool:
    """Whether the server is unreachable, or a SQLite file locked, rather than refusing the request."""
    if isinstance(error, optuna.exceptions.StorageInternalError):
        error = error.__cause__
    if isinstance(error, sqlalchemy.exc.PendingRollbackError):
        return True  # the connection was lost before a transaction's rollback
    if not isinstance(error, sqlalchemy.exc.OperationalError | sqlalchemy.exc.InterfaceError):
        return False
    if error.connection_invalidated:
        return True
    if is_lock(error):
        return True
    module = type(error.orig).__module__.partition(".")[0]
    if module in ("psycopg", "psycopg2"):
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        return state is None or state == "53300" or state[:2] == "08" or state[:4] == "57P0"
    return bool(error.orig and error.orig.args and error.orig.args[0] in _REFUSED_CONNECTION)


def is_lock(error: BaseException) -> bool:
    """Whether another process, such as a backup, has locked a SQLite file for longer than a connection waits."""
    return "database is locked" in str(error.__cause__ or error)


class _Patience:
    def __init__(self, database: RDBStorage, url: str, silent: float) -> None:
        self._database, self._url, self._silent = database, masked(url), silent
        self._inside = False

    def method(self, call: Callable[..., Any], limit: float = MAX_OUTAGE) -> Callable[..., Any]:
        """Return the method, made patient."""

        @functools.wraps(call)
        def patient(*args: Any, **kwargs: Any) -> Any:
            return self.call(lambda: call(*args, **kwargs), limit)

        return patient

    def call(self, call: Callable[[], Any], limit: float = MAX_OUTAGE) -> Any:
        """Call the function until the server answers; within another such call it fails at once."""
        if self._inside:
            return call()
        self._inside = True
        try:
            return self._repeat(call, limit)
        finally:
            self._inside = False

    def _repeat(self, call: Callable[[], Any], limit: float) -> Any:
        pause, began = FIRST_PAUSE, time.monotonic()
        while True:
            try:
                with defer_interrupts():
                    return call()
            except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
                waited = time.monotonic() - began
                if not is_outage(error) or waited >= limit or was_interrupted():
                    raise
                if is_lock(error) and waited < self._silent:
                    self._disconnect()
                    time.sleep(LOCK_PAUSE)
                    continue
                problem = "locked by another process" if is_lock(error) else "unreachable"
            if pause == FIRST_PAUSE:
                minutes = f"{limit / 60:.0f} minutes"
                warnings.warn(f"{self._url} is {problem}; waiting up to {minutes}.", TunerWarning, stacklevel=2)
            self._disconnect()
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _disconnect(self) -> None:
        """Forget the broken connection."""
        with suppress(sqlalchemy.exc.SQLAlchemyError):
            self._database.remove_session()
