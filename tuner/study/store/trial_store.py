"""The study as it is kept: trials are claimed, given their job's handle and ended, each in one step of the database.

Optuna's storage is the one truth. A trial is inserted whole, with its number, its proposal and its state in one
transaction, so that of two processes with one idea the one with the lower number has it, and so that a budget is
counted by numbers alone. What came of a trial is written before its state, so that a process that dies between the
two loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.core.errors import StudyError
from tuner.core.outcomes import Outcome
from tuner.core.text import shown
from tuner.study.store.storage import Storage, open_storage, understood
from tuner.study.store.trial import Ending, Proposal, Trial, ending_document, ending_of, proposal_document, proposal_of

SCHEMA: Final = "tuner/study/1"
_SETTINGS: Final = "settings"
_PATIENCE: Final = 1.0
"""Seconds to wait for the process that created a study to say what it is about."""

STATES: Final[Mapping[Outcome, TrialState]] = {
    Outcome.MEASURED: TrialState.COMPLETE,
    Outcome.PRUNED: TrialState.PRUNED,
    Outcome.REJECTED: TrialState.PRUNED,
}
"""How Optuna sees an outcome; every other one is a failure."""


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
        """The study of that name, created where there is none.

        One that is about something else is refused with the difference named.
        """
        storage = open_storage(url)
        with understood(url), suppress(optuna.exceptions.DuplicatedStudyError):
            created = storage.kept.create_new_study([optuna.study.StudyDirection.MINIMIZE], name)
            storage.kept.set_study_user_attr(created, _SETTINGS, {"schema": SCHEMA, **settings})
        study = cls(storage, name)
        study._begin_what_was_left(settings)
        difference = _difference(study.settings, _as_kept(settings))
        if difference:
            raise StudyError(
                f"study {name!r} was begun with {difference}; give the same arguments to go on with it, or another "
                "name by --study."
            )
        return study

    @classmethod
    def existing(cls, url: str, name: str) -> TrialStore:
        """The study of that name, which must be there."""
        storage = open_storage(url)
        with understood(url):
            names = [study.study_name for study in storage.kept.get_all_studies()]
        if name not in names:
            raise StudyError(f"the storage has no study {name!r}; it has {', '.join(map(shown, names)) or 'none'}.")
        return cls(storage, name)

    @property
    def settings(self) -> dict[str, Any]:
        """What the study is about."""
        found = self.attributes.get(_SETTINGS)
        if not found:
            raise StudyError(f"study {self.name!r} is not one of tuner's.")
        return dict(found)

    def _begin_what_was_left(self, settings: Mapping[str, Any]) -> None:
        """Say what an empty study is about where the process that created it has died before it could."""
        waited = time.monotonic()
        while not self.attributes.get(_SETTINGS):
            with understood(self.url):
                if self.attributes or self.storage.get_all_trials(self._id, deepcopy=False):
                    return  # somebody else's
                if time.monotonic() - waited > _PATIENCE:
                    self.storage.set_study_user_attr(self._id, _SETTINGS, {"schema": SCHEMA, **settings})
            time.sleep(0.05)

    @property
    def attributes(self) -> dict[str, Any]:
        """All that is kept of the study as a whole."""
        with understood(self.url):
            return self.storage.get_study_user_attrs(self._id)

    def note(self, name: str, value: Any) -> None:
        """Keep something of the study as a whole."""
        with understood(self.url):
            self.storage.set_study_user_attr(self._id, name, value)

    def trials(self) -> list[Trial]:
        """All trials by number."""
        with understood(self.url):
            frozen = self.storage.get_all_trials(self._id, deepcopy=False)
        for each in frozen:
            if each.number not in self._over and each.state.is_finished() and "proposal" in each.user_attrs:
                self._over[each.number] = _trial(each)
        return [self._over.get(each.number) or _trial(each) for each in frozen if "proposal" in each.user_attrs]

    def claim(self, proposal: Proposal, distributions: Mapping[str, BaseDistribution]) -> Trial | None:
        """Make it the next trial; None, and nothing claimed, where another process has the same one."""
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
        rivals = [each for each in self.trials() if each.number < number and each.launched]
        if any(each.proposal.claim == proposal.claim for each in rivals):
            self.withdraw(trial, "another process had proposed it first")
            return None
        return trial

    def withdraw(self, trial: Trial, reason: str) -> None:
        """A trial that is not launched after all; it counts in no budget."""
        self.end(trial, Ending(outcome=Outcome.REJECTED, reason=reason))

    def started(self, trial: Trial, handle: str) -> None:
        """Keep the launcher's word for a trial's job."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "handle", handle)

    def taken_over(self, trial: Trial, worker: Mapping[str, Any]) -> None:
        """Keep who watches a trial's job from now on."""
        with understood(self.url):
            self.storage.set_trial_user_attr(self._trial_id(trial), "worker", dict(worker))

    def alive(self, trial: Trial) -> None:
        """A sign of life of whoever watches the trial."""
        with understood(self.url):
            self._database.record_heartbeat(self._trial_id(trial))

    def end(self, trial: Trial, ending: Ending) -> None:
        """Keep what came of a trial: what first, then that it is over. A second time changes nothing."""
        trial_id = self._trial_id(trial)
        state = STATES.get(ending.outcome, TrialState.FAIL)
        values = [ending.objective] if state is TrialState.COMPLETE and ending.objective is not None else None
        with understood(self.url):
            try:
                self.storage.set_trial_user_attr(trial_id, "ending", ending_document(ending))
                self.storage.set_trial_user_attr(trial_id, "outcome", ending.outcome.value)
                self.storage.set_trial_state_values(trial_id, state, values)
            except optuna.exceptions.UpdateFinishedTrialError:
                return  # another process was faster to say the same

    def finish_told(self) -> None:
        """Close trials whose ending was kept by a process that then died."""
        with understood(self.url):
            for frozen in self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,)):
                if "ending" in frozen.user_attrs:
                    trial = _trial(frozen)
                    assert trial.ending is not None  # noqa: S101 - it was just seen
                    self.end(trial, trial.ending)

    def workers(self) -> dict[int, Mapping[str, Any]]:
        """Who watches each running trial, by its number."""
        with understood(self.url):
            running = self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {
            each.number: each.user_attrs.get("worker", each.user_attrs["proposal"]["worker"])
            for each in running
            if "proposal" in each.user_attrs
        }

    def silent(self) -> set[int]:
        """Numbers of running trials that nobody has given a sign of life of for a while."""
        with understood(self.url):
            ids = set(self._database._get_stale_trial_ids(self._id))
            running = self.storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {each.number for each in running if each._trial_id in ids}

    def close(self) -> None:
        """Let go of the database."""
        self._database.remove_session()
        self._database.engine.dispose()

    def _trial_id(self, trial: Trial) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)


def _trial(frozen: FrozenTrial) -> Trial:
    attributes = frozen.user_attrs
    ending = attributes.get("ending")
    if ending is None and frozen.state.is_finished():  # closed by hand, as in the dashboard
        ending = {"outcome": Outcome.CANCELLED.value, "reason": "closed by someone else"}
    return Trial(
        number=frozen.number,
        proposal=proposal_of(attributes["proposal"], frozen.params),
        ending=ending_of(ending) if ending else None,
        handle=attributes.get("handle"),
    )


def _as_kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a storage gives them back."""
    kept: dict[str, Any] = json.loads(json.dumps(settings))
    return kept


def _difference(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The first thing in which two settings differ, as words; empty where they do not."""
    begun, asked = _comparable(begun), _comparable(asked)
    for name in sorted({*begun, *asked} - {"schema"}, key=lambda name: (name not in _FIRST, name)):
        if begun.get(name) != asked.get(name):
            return _first_difference(name, begun.get(name), asked.get(name))
    return ""


def _comparable(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings without the names of the policies that there were: a study goes on under its own."""
    rules = {name: value for name, value in settings.get("rules", {}).items() if name != "policies"}
    return {**settings, "rules": rules} if rules else settings


_FIRST: Final = ("cluster", "workload", "rules")
"""What the axes follow from, so that it is named before them."""


def _first_difference(name: str, begun: Any, asked: Any) -> str:
    if isinstance(begun, Mapping) and isinstance(asked, Mapping):
        differ = [each for each in sorted({*begun, *asked}) if begun.get(each) != asked.get(each)]
        inner = "name" if "name" in differ else differ[0]  # a GPU's says more than its first figure
        return _first_difference(f"{name}.{inner}", begun.get(inner), asked.get(inner))
    return f"{name} {_words(begun)}, not {_words(asked)}"


def _words(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value[:8])) + (",..." if len(value) > 8 else "")
    return "none" if value is None else str(value)
