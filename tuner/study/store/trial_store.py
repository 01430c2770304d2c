"""A study in Optuna's storage: trials are claimed, given their job's handle and ended, each in one transaction.

The storage is the single source of truth. A trial is inserted whole, with its number, proposal and state, so that of
two processes with the same proposal the lower number wins and the budget can be counted by trial numbers. A result is
written before the final state, so that a process that dies between the two loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.core.errors import StudyError
from tuner.core.outcomes import Failure, Outcome
from tuner.core.text import shown
from tuner.launch.contract import JobResult
from tuner.study.store.storage import Storage, open_storage, understood
from tuner.study.store.trial import Proposal, Trial, proposal_document, proposal_of, result_document, result_of

SCHEMA: Final = "tuner/study/1"
_SETTINGS: Final = "settings"
_PATIENCE: Final = 1.0
"""Seconds to wait for the process that created a study to store its settings."""

STATES: Final[Mapping[Outcome, TrialState]] = {
    Outcome.MEASURED: TrialState.COMPLETE,
    Outcome.PRUNED: TrialState.PRUNED,
    Outcome.REJECTED: TrialState.PRUNED,
}
"""Optuna's trial state for an outcome; every other outcome is FAIL."""


class TrialStore:
    """One study in a storage."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.name = name
        self.url = storage.url
        self.storage, self._database = storage.kept, storage.database
        with understood(self.url):
            self._id = self.storage.get_study_id_from_name(name)
        self._over: dict[int, Trial] = {}

    @classmethod
    def open(cls, url: str, name: str, settings: Mapping[str, Any]) -> TrialStore:
        """Open the study of that name, created where there is none.

        Raise a `StudyError` that names the difference where its settings differ.
        """
        storage = open_storage(url)
        with understood(url), suppress(optuna.exceptions.DuplicatedStudyError):
            created = storage.kept.create_new_study([optuna.study.StudyDirection.MINIMIZE], name)
            storage.kept.set_study_user_attr(created, _SETTINGS, {"schema": SCHEMA, **settings})
        study = cls(storage, name)
        study._complete_creation(settings)
        difference = _difference(study.settings, _as_stored(settings))
        if difference:
            raise StudyError(
                f"study {name!r} was started with {difference}: repeat the original arguments to continue it, or "
                "choose another name with --study."
            )
        return study

    @classmethod
    def existing(cls, url: str, name: str) -> TrialStore:
        """Open the study of that name, which must exist."""
        storage = open_storage(url)
        with understood(url):
            names = [study.study_name for study in storage.kept.get_all_studies()]
        if name not in names:
            raise StudyError(f"the storage has no study {name!r}; it has {', '.join(map(shown, names)) or 'none'}.")
        return cls(storage, name)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that identify the study."""
        found = self.attributes.get(_SETTINGS)
        if not found:
            raise StudyError(f"study {self.name!r} was not created by tuner.")
        return dict(found)

    def _complete_creation(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of a study whose creator died before it could."""
        waited = time.monotonic()
        while not self.attributes.get(_SETTINGS):
            with understood(self.url):
                if self.attributes or self.storage.get_all_trials(self._id, deepcopy=False):
                    return  # another program's study
                if time.monotonic() - waited > _PATIENCE:
                    self.storage.set_study_user_attr(self._id, _SETTINGS, {"schema": SCHEMA, **settings})
            time.sleep(0.05)

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes of the study."""
        with understood(self.url):
            return self.storage.get_study_user_attrs(self._id)

    def set_attribute(self, name: str, value: Any) -> None:
        """Store an attribute of the study."""
        with understood(self.url):
            self.storage.set_study_user_attr(self._id, name, value)

    @property
    def changed(self) -> datetime | None:
        """When a trial last began or ended."""
        with understood(self.url):
            frozen = self.storage.get_all_trials(self._id, deepcopy=False)
        times = [time for trial in frozen for time in (trial.datetime_start, trial.datetime_complete) if time]
        return max(times, default=None)

    def trials(self) -> list[Trial]:
        """Return all trials, by number."""
        with understood(self.url):
            frozen = self.storage.get_all_trials(self._id, deepcopy=False)
        ours = [trial for trial in frozen if "proposal" in trial.user_attrs]
        for trial in ours:
            if trial.number not in self._over and trial.state.is_finished():
                self._over[trial.number] = _trial(trial)
        return [self._over.get(trial.number) or _trial(trial) for trial in ours]

    def claim(self, proposal: Proposal, distributions: Mapping[str, BaseDistribution]) -> Trial | None:
        """Store a proposal as the next trial; return None where another process claimed the same one first."""
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(proposal.params),
            distributions=dict(distributions),
            user_attrs={"key": proposal.key, "why": proposal.why, "proposal": proposal_document(proposal)},
        )
        with understood(self.url):
            trial_id = self.storage.create_new_trial(self._id, template)
            number = self.storage.get_trial_number_from_id(trial_id)
            self._database.record_heartbeat(trial_id)
        trial = Trial(number=number, proposal=proposal)
        earlier = [other for other in self.trials() if other.number < number and other.launched]
        if any(other.proposal.claim == proposal.claim for other in earlier):
            self.withdraw(trial, "another process proposed it first")
            return None
        return trial

    def withdraw(self, trial: Trial, reason: str) -> None:
        """Close a trial that is not launched; it does not count against the budget."""
        failure = Failure(kind="", evidence="", meaning=reason)
        self.end(trial, JobResult(outcome=Outcome.REJECTED, failure=failure))

    def started(self, trial: Trial, handle: str) -> None:
        """Store the launcher's handle of a trial's job."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "handle", handle)

    def set_owner(self, trial: Trial, owner: Mapping[str, Any]) -> None:
        """Store which process owns a trial's job from now on."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "worker", dict(owner))

    def heartbeat(self, trial: Trial) -> None:
        """Record a heartbeat of the process that owns the trial."""
        with understood(self.url):
            self._database.record_heartbeat(self._trial_id(trial))

    def end(self, trial: Trial, result: JobResult) -> None:
        """Store the result of a trial, then close it. Ending a trial twice changes nothing."""
        trial_id = self._trial_id(trial)
        state = STATES.get(result.outcome, TrialState.FAIL)
        values = [result.objective] if state is TrialState.COMPLETE and result.objective is not None else None
        with understood(self.url):
            try:
                self.storage.set_trial_user_attr(trial_id, "ending", result_document(result))
                self.storage.set_trial_user_attr(trial_id, "outcome", result.outcome.value)
                self.storage.set_trial_state_values(trial_id, state, values)
            except optuna.exceptions.UpdateFinishedTrialError:
                return  # another process was faster

    def close_finished(self) -> None:
        """Close the trials whose result was stored by a process that then died."""
        with understood(self.url):
            for frozen in self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,)):
                if "ending" in frozen.user_attrs:
                    trial = _trial(frozen)
                    assert trial.result is not None  # noqa: S101 - it was just seen
                    self.end(trial, trial.result)

    def owners(self) -> dict[int, Mapping[str, Any]]:
        """Return the process that owns each running trial, by trial number."""
        with understood(self.url):
            running = self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {
            trial.number: trial.user_attrs.get("worker", trial.user_attrs["proposal"]["worker"])
            for trial in running
            if "proposal" in trial.user_attrs
        }

    def silent(self) -> set[int]:
        """Return the numbers of running trials whose owner has sent no heartbeat for a while."""
        with understood(self.url):
            ids = set(self._database._get_stale_trial_ids(self._id))
            running = self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number for trial in running if trial._trial_id in ids}

    def close(self) -> None:
        """Close the database."""
        self._database.remove_session()
        self._database.engine.dispose()

    def _trial_id(self, trial: Trial) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)


def _trial(frozen: FrozenTrial) -> Trial:
    attributes = frozen.user_attrs
    result = attributes.get("ending")
    if result is None and frozen.state.is_finished():  # closed by hand, as in the dashboard
        result = {"outcome": Outcome.CANCELLED.value, "reason": "closed outside of tuner"}
    return Trial(
        number=frozen.number,
        proposal=proposal_of(attributes["proposal"], frozen.params),
        result=result_of(result) if result else None,
        handle=attributes.get("handle"),
    )


def _as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a storage returns them."""
    kept: dict[str, Any] = json.loads(json.dumps(settings))
    return kept


def _difference(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return the first difference between two settings, in words; empty where they agree."""
    begun, asked = _comparable(begun), _comparable(asked)
    for name in sorted({*begun, *asked} - {"schema"}, key=lambda name: (name not in _FIRST, name)):
        if begun.get(name) != asked.get(name):
            return _first_difference(name, begun.get(name), asked.get(name))
    return ""


def _comparable(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings without the names of the policies at that time: a study continues under its own."""
    rules = {name: value for name, value in settings.get("rules", {}).items() if name != "policies"}
    return {**settings, "rules": rules} if rules else settings


_FIRST: Final = ("cluster", "workload", "rules")
"""Settings that the axes follow from, and that are therefore named first."""


def _first_difference(name: str, begun: Any, asked: Any) -> str:
    if isinstance(begun, Mapping) and isinstance(asked, Mapping):
        differ = [key for key in sorted({*begun, *asked}) if begun.get(key) != asked.get(key)]
        inner = "name" if "name" in differ else differ[0]  # a GPU's says more than its first figure
        return _first_difference(f"{name}.{inner}", begun.get(inner), asked.get(inner))
    return f"{name} {_words(begun)}, not {_words(asked)}"


def _words(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value[:8])) + (",..." if len(value) > 8 else "")
    return "none" if value is None else str(value)
