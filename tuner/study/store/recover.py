"""Rebuild a study's lost database from the files of its jobs.

The settings are in `study.json` beside the database, with what the search found out about the whole study, such as its
speed periods; `job.json` in each job's folder has the proposal and, once the job is over, its result. Trials without a
job's folder were never launched: their numbers are kept, their content is lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState

from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, StudyError, TunerWarning
from tuner.core.text import shown
from tuner.study.store.folders import files_in
from tuner.study.store.owner import gone, running
from tuner.study.store.storage import MIN_SQLITE_BYTES, STORED_AT, STUDY_FILE, located, sqlite_url
from tuner.study.store.stored import settings_of, state_of, trial_of
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import OF_DATABASE, TrialStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredStudy:
    """The rebuilt study."""

    trials: tuple[Trial, ...]
    unreadable: tuple[Path, ...]
    """Files of jobs that could not be read."""

    @property
    def open(self) -> tuple[Trial, ...]:
        """Trials without a result: the next `optimize` looks for their jobs."""
        return tuple(trial for trial in self.trials if trial.result is None)


def write_study_file(
    folder: Path, store: TrialStore, distributions: Mapping[str, BaseDistribution], *, storage: str | None = None
) -> None:
    """Write the attributes of the study that otherwise only the database has, readable by the owner only.

    `storage` is the URL of a database elsewhere, which is written without its password.
    """
    attributes = {name: value for name, value in store.attributes.items() if name not in OF_DATABASE}
    document = {
        "schema": "tuner/recovery/1",
        "name": store.name,
        **({STORED_AT: located(storage)} if storage else {}),
        "settings": store.settings,
        "site": attributes.pop("site", ""),
        "attributes": attributes,
        "distributions": {name: distribution_to_json(found) for name, found in distributions.items()},
    }
    path = folder / STUDY_FILE
    if read_object(path) == document:
        return
    try:
        write_object(path, document, private=True)
    except OSError as error:
        raise StudyError(f"{path} cannot be written: {error.strerror or error}.") from None


def recover_study(name: str, *, runs: str | Path = "runs") -> RecoveredStudy:
    """Rebuild `study.db` of a study from `study.json` and `jobs/*/job.json`; an existing database is not changed.

    Trials whose results the files do not record are left open, for the next `optimize` to look for their jobs. Raise a
    `StudyError` if a process on this machine still watches one of them.
    """
    folder = Path(runs) / name
    database = folder / "study.db"
    if database.is_file() and database.stat().st_size >= MIN_SQLITE_BYTES:
        raise InputError(f"{database} exists: move it away first to rebuild it from {folder / 'jobs'}.")
    files, unreachable = files_in(folder / "jobs", "job.json")
    if not (folder / "jobs").is_dir():
        raise InputError(
            f"{folder} has no folder of jobs to recover study {shown(name)} from; correct STUDY or --runs."
        )
    document = read_object(folder / STUDY_FILE)
    try:
        settings = settings_of(document["settings"], name)
        attributes = {"site": str(document.get("site", "")), **document.get("attributes", {})}
        distributions = {key: json_to_distribution(found) for key, found in document["distributions"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{folder / STUDY_FILE}, which has the study's settings, is missing or damaged: start the study again with "
            f"'tuner optimize' and another --study; its measurements are in the logs of {folder / 'jobs'}."
        ) from None
    frozen, unreadable = _trials(files, distributions)
    unreadable.extend(unreachable)
    if not frozen:
        raise InputError(f"no job in {folder / 'jobs'} records its proposal: there is nothing to recover.")
    for trial in frozen.values():
        owner = trial.user_attrs.get("worker", trial.user_attrs["proposal"].get("worker", {}))
        if not trial.state.is_finished() and gone(owner) is False:
            raise running(name, owner)
    partial = database.with_name("study.db.recovering")
    _remove(partial)
    try:
        trials = _write(partial, name, settings, attributes, frozen)
        if document.pop(STORED_AT, None):
            write_object(folder / STUDY_FILE, document, private=True)
        _remove(database)
        partial.rename(database)
    except OSError as error:
        raise StudyError(f"{database} cannot be written: {error.strerror or error}.") from None
    finally:
        _remove(partial)
    for path in unreadable:
        warnings.warn(f"{path} cannot be read; its trial is lost.", TunerWarning, stacklevel=2)
    return RecoveredStudy(trials=tuple(trials), unreadable=tuple(unreadable))


def _trials(
    files: Sequence[Path], distributions: Mapping[str, BaseDistribution]
) -> tuple[dict[int, FrozenTrial], list[Path]]:
    """Return the trials that the jobs' files record, by number, and the files that cannot be read."""
    found: dict[int, FrozenTrial] = {}
    unreadable = []
    for path in files:
        try:
            trial = _trial(read_object(path), distributions)
            if not path.parent.name.startswith(f"{trial.number:04d}-"):
                raise ValueError("the number is not that of the folder")
        except (AttributeError, KeyError, TypeError, ValueError):
            unreadable.append(path)
            continue
        first = found.get(trial.number)
        if first is None or trial.state.is_finished() or not first.state.is_finished():  # the second is of a retry
            found[trial.number] = trial
    return found, unreadable


def _trial(document: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return the trial of a job's file; raise what reading it raises."""
    proposal = dict(document["proposal"])
    params = {name: value for name, value in proposal.pop("params").items() if name in distributions}
    ending = document.get("ending")
    attributes = {"key": proposal["key"], "why": proposal["why"], "proposal": proposal}
    if "hung" in document:
        attributes["hung"] = document["hung"]
    if isinstance(document.get("worker"), Mapping):
        attributes["worker"] = document["worker"]
    if ending is not None:
        attributes |= {"ending": ending, "outcome": ending["outcome"]}
    trial = optuna.trial.create_trial(
        state=TrialState.RUNNING,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs=attributes,
    )
    trial.number = document["number"]
    result = trial_of(trial).result
    if result is not None:
        trial.state, objective = state_of(result)
        trial.value = objective
        trial.datetime_complete = trial.datetime_start
    return trial


def _write(
    path: Path,
    name: str,
    settings: Mapping[str, Any],
    attributes: Mapping[str, Any],
    frozen: Mapping[int, FrozenTrial],
) -> list[Trial]:
    """Write the trials into a new database, with an empty one for each lost number; return those with content."""
    with closing(TrialStore.open(sqlite_url(path), name, settings)) as store:
        for attribute, value in attributes.items():
            if value != "":
                store.set_attribute(attribute, value)
        store.restore([frozen.get(number) for number in range(max(frozen, default=-1) + 1)])
        return store.trials()


def _remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
