"""A study in Optuna's storage: trials are claimed, given their job's handle and ended, each in one transaction.

The storage is the single source of truth. A trial is inserted whole, with its number, proposal and state, so that of
two processes with the same proposal the lower number wins and the budget can be counted by trial numbers. A result is
written before the final state, so that a process that dies between the two loses nothing.
"""

from __future__ import annotations

import json
import shlex
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.core.errors import OtherStudy, StudyError, TunerWarning
from tuner.core.interrupts import defer_interrupts
from tuner.core.outcomes import Failure, Outcome
from tuner.core.text import shown
from tuner.launch.contract import JobResult
from tuner.study.store.database_file import DatabaseFile
from tuner.study.store.outages import is_outage
from tuner.study.store.settings_difference import as_options, difference_of, remedy_of
from tuner.study.store.stopped import completed, recorded_end
from tuner.study.store.storage import GRACE, Storage, open_storage, restoration, understood
from tuner.study.store.stored import SCHEMA, UNREADABLE_ERRORS, settings_of, state_of, trial_of
from tuner.study.store.trial import (
    Proposal,
    Trial,
    lost,
    proposal_document,
    record_ending,
    record_owner,
    result_document,
)

_SETTINGS: Final = "settings"
_FOLDER: Final = "folder"
OF_DATABASE: Final = frozenset({_SETTINGS, _FOLDER})
"""Attributes of a study that opening a database for it sets."""

_OWNER: Final = "worker"
_ATTRIBUTES: Final = sqlalchemy.table(
    "trial_user_attributes", *map(sqlalchemy.column, ("trial_id", "key", "value_json"))
)
"""Optuna's table, whose rows are unique by trial and key."""

_MAX_REASON: Final = 120
"""Characters of a reason that a message quotes."""

_PATIENCE: Final = 1.0
"""Seconds to wait for the process that created a study to store its settings."""


class TrialStore:
    """One study in a storage."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.name = name
        self.url = storage.url
        self.storage, self._database, self._select = storage.cached, storage.database, storage.select
        self._close, self._patient = storage.close, storage.patient
        with understood(self.url):
            self._id = self.storage.get_study_id_from_name(name)
        self.file = DatabaseFile.of(self.url)
        self.folder: Path | None = None
        """The study's folder, if jobs are launched or stopped."""
        self._over: dict[int, Trial] = {}
        self._continues = False
        """Whether jobs are launched for the study, which must then be read completely."""
        self._unreadable: dict[int, str] = {}
        """The reason for each trial that cannot be read."""
        self.on_attribute: Callable[[], None] = lambda: None
        """Called after an attribute of the study was stored."""

    @classmethod
    def open(cls, url: str, name: str, settings: Mapping[str, Any]) -> TrialStore:
        """Open the study of that name, creating it if needed.

        Raise a `StudyError` with the difference if its settings differ.
        """
        storage = open_storage(url, create=True)
        with ExitStack() as refused:
            refused.callback(storage.close)
            with understood(url), suppress(optuna.exceptions.DuplicatedStudyError):
                created = storage.cached.create_new_study([optuna.study.StudyDirection.MINIMIZE], name)
                storage.cached.set_study_user_attr(created, _SETTINGS, {"schema": SCHEMA, **settings})
            study = cls(storage, name)
            study._continues = True
            study._complete_creation(settings)
            difference = difference_of(study.settings, _as_stored(settings))
            if difference:
                remedy = remedy_of(difference, name, study.settings)
                raise OtherStudy(f"study {name!r} was started with {as_options(difference)}{remedy}.")
            refused.pop_all()
        return study

    @classmethod
    def existing(cls, url: str, name: str) -> TrialStore:
        """Open the study of that name, which must exist."""
        storage = open_storage(url)
        with ExitStack() as refused:
            refused.callback(storage.close)
            names = storage.study_names()
            if name not in names:
                raise StudyError(f"the storage has no study {name!r}; it has {', '.join(map(shown, names)) or 'none'}.")
            study = cls(storage, name)
            refused.pop_all()
        return study

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that identify the study."""
        return settings_of(self.attributes.get(_SETTINGS), self.name)

    def keep_folder(self, folder: Path, *, moves: bool) -> None:
        """Store the folder of the study's jobs, by whose files another process adopts them.

        Raise a `StudyError` if the study has another one on this machine, unless it `moves` with its database.
        """
        found = {"host": socket.gethostname(), "path": str(folder.resolve())}
        stored = self.attributes.get(_FOLDER)
        if not isinstance(stored, Mapping) or moves:
            if stored != found:
                self.set_attribute(_FOLDER, found)
        elif stored.get("host") == found["host"] and stored.get("path") != found["path"]:
            former = Path(str(stored.get("path")))
            raise StudyError(
                f"the jobs of study {self.name!r} are in {former}, not in {found['path']}: pass --runs "
                f"{shlex.quote(str(former.parent))}."
            )

    def _complete_creation(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of a study whose creator died before it could."""
        waited = time.monotonic()
        while not self.attributes.get(_SETTINGS):
            with understood(self.url):
                if self.attributes or self._frozen():
                    return  # another program's study
                if time.monotonic() - waited > _PATIENCE:
                    self.storage.set_study_user_attr(self._id, _SETTINGS, {"schema": SCHEMA, **settings})
            time.sleep(0.05)

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes of the study."""
        with understood(self.url):
            try:
                return self.storage.get_study_user_attrs(self._id)
            except UNREADABLE_ERRORS as error:
                raise StudyError(
                    f"the settings of study {self.name!r} cannot be read ({error}): {restoration(self.url, self.name)}."
                ) from None

    def set_attribute(self, name: str, value: Any) -> None:
        """Store an attribute of the study."""
        with understood(self.url):
            self.storage.set_study_user_attr(self._id, name, value)
        self.on_attribute()

    @property
    def changed(self) -> datetime | None:
        """When a trial last began or ended."""
        times = [time for trial in self._frozen() for time in (trial.datetime_start, trial.datetime_complete) if time]
        return max(times, default=None)

    def trials(self) -> list[Trial]:
        """Return all trials, by number. One that cannot be read is left out with a warning.

        Raise a `StudyError` instead if the study is being continued: its budget must count every trial.
        """
        found: list[Trial] = []
        before = len(self._unreadable)
        for frozen in self._frozen():
            if frozen.number in self._over:
                found.append(self._over[frozen.number])
            elif "proposal" in frozen.user_attrs:
                try:
                    found.append(trial_of(frozen))
                except ValueError as error:
                    self._unreadable[frozen.number] = str(error)
                    continue
                if frozen.state.is_finished():
                    self._over[frozen.number] = found[-1]
        if len(self._unreadable) > before or (self._unreadable and self._continues):
            self._report_unreadable()
        return found

    def _frozen(self, *states: TrialState) -> list[FrozenTrial]:
        """Return Optuna's trials in these states; all if none is given. Note the trials that Optuna cannot read."""
        with understood(self.url):
            try:
                return self.storage.get_all_trials(self._id, deepcopy=False, states=states or None)
            except (*UNREADABLE_ERRORS, AssertionError):
                found = [self._readable(trial_id, number) for trial_id, number in self._database_rows()]
        return [trial for trial in found if trial is not None and (not states or trial.state in states)]

    def _readable(self, trial_id: int, number: int) -> FrozenTrial | None:
        """Return a trial of the database; None, with a note, if Optuna cannot read it."""
        try:
            return self._database.get_trial(trial_id)
        except (*UNREADABLE_ERRORS, AssertionError) as error:
            self._unreadable[number] = f"{type(error).__name__}: {error}"
            return None

    def _database_rows(self) -> list[tuple[int, int]]:
        """Return each trial's id in the database and its number."""
        query = "SELECT trial_id, number FROM trials WHERE study_id = :study ORDER BY trial_id"
        rows = self._select(query, study=self._id)
        return [(trial_id, index if number is None else number) for index, (trial_id, number) in enumerate(rows)]

    def _report_unreadable(self) -> None:
        number, reason = min(self._unreadable.items())
        reason = " ".join(reason.split())[:_MAX_REASON]
        more = f" and {len(self._unreadable) - 1} more" if len(self._unreadable) > 1 else ""
        problem = f"trial {number}{more} of study {self.name!r} cannot be read ({reason})"
        if self._continues:
            raise StudyError(f"{problem}: {restoration(self.url, self.name)}, or start another study with --study.")
        they_are = "they are" if more else "it is"
        warnings.warn(f"{problem}; {they_are} left out.", TunerWarning, stacklevel=3)

    def claim(self, proposal: Proposal, distributions: Mapping[str, BaseDistribution]) -> Trial | None:
        """Store a proposal as the next trial; return None if another process claimed the same one first."""
        self.file.check(self.folder)
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(proposal.params),
            distributions=dict(distributions),
            user_attrs={"key": proposal.key, "why": proposal.why, "proposal": proposal_document(proposal)},
        )
        with understood(self.url), defer_interrupts():
            trial_id = self._created(template)
            number = self.storage.get_trial_number_from_id(trial_id)
            self._record_heartbeat(trial_id)
            trial = Trial(number=number, proposal=proposal)
            twin = next((other for other in self._earlier(trial) if other.proposal.tag == proposal.tag), None)
            if twin is not None:  # stored before an outage of the server, which did not say so
                self.withdraw(trial, "stored twice")
                trial = twin
            return None if self.withdraw_second(trial) else trial

    def _created(self, template: optuna.trial.FrozenTrial) -> int:
        """Store a trial; raise a `StudyError` if the study began with other values of an axis."""
        try:
            return self.storage.create_new_trial(self._id, template)
        except ValueError as error:  # Optuna's, which accepts no other values of a parameter
            if "dynamic value space" not in str(error):
                raise
            raise StudyError(
                f"study {self.name!r} was started by a version of tuner that searches other topologies of this model: "
                f"continue it with that version, or start another with --study NAME --from {self.name}, which uses its "
                "measurements."
            ) from None

    def withdraw_second(self, trial: Trial) -> bool:
        """Close a trial if an earlier one has the same proposal; return whether it is closed."""
        second = any(other.proposal.claim == trial.proposal.claim for other in self._earlier(trial))
        if second:
            self.withdraw(trial, "another process proposed it first")
        return second

    def close_gone(self, trial: Trial, folder: Path, reason: str, *, clock: float) -> bool:
        """Close a trial whose job is gone; return whether the job was launched, so that it counts."""
        if self.withdraw_second(trial):
            return False
        if not trial.was_submitted(folder):
            self.withdraw(trial, "its job was not started")
            return False
        found = recorded_end(folder, trial)
        stopped = found.stop and completed(trial, found.stop, clock=clock)
        result = found.ending or stopped or lost(trial, folder, reason, clock=clock)
        record_ending(folder, result)
        self.end(trial, result)
        return True

    def _earlier(self, trial: Trial) -> list[Trial]:
        """Return the launched trials before a trial."""
        return [other for other in self.trials() if other.number < trial.number and other.launched]

    def restore(self, trials: Sequence[FrozenTrial | None]) -> None:
        """Store recovered trials in the order of their numbers; None is a trial whose content is lost."""
        lost = optuna.trial.create_trial(state=TrialState.FAIL)
        with understood(self.url):
            for trial in trials:
                self.storage.create_new_trial(self._id, lost if trial is None else trial)

    def withdraw(self, trial: Trial, reason: str) -> None:
        """Close a trial that is not launched; it does not count against the budget."""
        self.end(trial, JobResult(outcome=Outcome.REJECTED, failure=Failure.because(reason)))

    def started(self, trial: Trial, handle: str) -> None:
        """Store the launcher's handle of a trial's job."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "handle", handle)

    def retried(self, trial: Trial, hung: JobResult) -> None:
        """Store the result of a trial's first attempt, which hung; the job is not retried a second time."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "hung", result_document(hung))

    def take_over(self, trial: Trial, former: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
        """Make a process the owner of a trial's job; return False if another process was faster.

        Optuna has no operation that compares and sets, so its table is written: a trial's attribute is stored once, and
        only a process that knows the former owner replaces it.
        """
        attribute = {"trial_id": self._trial_id(trial), "key": _OWNER}
        value = json.dumps(dict(owner))
        row = [_ATTRIBUTES.c[name] == wanted for name, wanted in attribute.items()]
        known = _ATTRIBUTES.c.value_json == json.dumps(dict(former))

        def replace_owner() -> None:
            with suppress(sqlalchemy.exc.IntegrityError), self._database.engine.begin() as connection:
                if not connection.execute(_ATTRIBUTES.update().where(*row, known).values(value_json=value)).rowcount:
                    connection.execute(_ATTRIBUTES.insert().values(**attribute, value_json=value))

        with understood(self.url):
            self._patient(replace_owner)
        is_owner = self.owners().get(trial.number) == owner
        if is_owner and self.folder is not None:
            record_owner(trial.job_folder(self.folder), owner)
        return is_owner

    def heartbeat(self, trial: Trial) -> None:
        """Record a heartbeat of the process that owns the trial, unless the database is away or locked."""
        with understood(self.url):
            self._record_heartbeat(self._trial_id(trial))

    def _record_heartbeat(self, trial_id: int) -> None:
        try:
            self._database.record_heartbeat(trial_id)
        except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            if not is_outage(error):
                raise

    def end(self, trial: Trial, result: JobResult) -> None:
        """Store the result of a trial, then close it. Ending a trial twice changes nothing."""
        trial_id = self._trial_id(trial)
        state, objective = state_of(result)
        with understood(self.url):
            try:
                self.storage.set_trial_user_attr(trial_id, "ending", result_document(result))
                self.storage.set_trial_user_attr(trial_id, "outcome", result.outcome.value)
                self.storage.set_trial_state_values(trial_id, state, None if objective is None else [objective])
            except optuna.exceptions.UpdateFinishedTrialError:
                return  # another process was faster

    def close_finished(self) -> None:
        """Close the trials whose result was stored by a process that then died."""
        with understood(self.url):
            running = self._frozen(TrialState.RUNNING)
            stored = {frozen.number for frozen in running if "ending" in frozen.user_attrs}
            for trial in self.trials() if stored else ():
                if trial.number in stored and trial.result is not None:
                    self.end(trial, trial.result)

    def owners(self) -> dict[int, Mapping[str, Any]]:
        """Return the process that owns each running trial, by trial number."""
        running = {trial.number: trial.user_attrs for trial in self._frozen(TrialState.RUNNING)}
        return {
            trial.number: running[trial.number].get(_OWNER, trial.proposal.worker)
            for trial in (self.trials() if running else ())
            if trial.number in running
        }

    def silent(self, seconds: int = GRACE) -> set[int]:
        """Return the numbers of running trials whose owner has sent no heartbeat for so long."""
        with understood(self.url):
            self._database.grace_period = seconds
            ids = set(self._database._get_stale_trial_ids(self._id))
            running = self._frozen(TrialState.RUNNING)
        return {trial.number for trial in running if trial._trial_id in ids}

    def close(self) -> None:
        """Close the database."""
        self._close()

    def _trial_id(self, trial: Trial) -> int:
        with understood(self.url):
            return self.storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)


def _as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a storage returns them."""
    kept: dict[str, Any] = json.loads(json.dumps(settings))
    return kept
