"""Publish notes, graphs and files of a study to Optuna Dashboard.

They are stored as attributes of the study even if they belong to a trial, because finished trials are immutable. The
layout is that of optuna-dashboard 0.21 (`_note.py`, `_custom_plot_data.py`, `artifact/_backend.py`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.exceptions import ExperimentalWarning

from tuner.core.atomic_write import unwritten
from tuner.study.store.storage import make_writable, understood
from tuner.study.store.trial_store import TrialStore

LONGEST: Final = 2045
"""Maximum number of characters of one attribute."""

LARGEST: Final = 5_000_000
"""Maximum size of a published file in bytes."""


class DashboardPublisher:
    """Writes a study's notes, graphs and files for Optuna Dashboard."""

    def __init__(self, study: TrialStore) -> None:
        self._study = study
        with understood(study.url):
            self._id = study.storage.get_study_id_from_name(study.name)
            self._kept: dict[str, Any] = dict(study.storage.get_study_system_attrs(self._id))
            self._ids = {
                trial.number: trial._trial_id for trial in study.storage.get_all_trials(self._id, deepcopy=False)
            }

    @property
    def study_id(self) -> int:
        """Return the number by which the dashboard's pages name the study."""
        return self._id

    def name_objective(self, name: str) -> None:
        """Set the name of the objective, which the dashboard's plots and tables show."""
        with understood(self._study.url), warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.Study(self._study.name, self._study.storage).set_metric_names([name])

    def note(self, text: str, trial: int | None = None) -> None:
        """Write a Markdown note of the study or of a trial, unless it is unchanged."""
        owner = "" if trial is None else f"{self._ids[trial]}:"
        prefix = f"dashboard:{owner}note_str:"
        if self._joined(prefix) == text:
            return
        version = f"dashboard:{owner}note_ver"
        self._set(version, int(self._kept.get(version, 0)) + 1)
        self._split(prefix, text)

    def graph(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a Plotly figure, given as its JSON document."""
        prefix = f"dashboard:plot_data:{name}:"
        text = json.dumps(document)
        if self._joined(prefix) != text:
            self._split(prefix, text)

    def files(self, trial: int, paths: Sequence[Path], store: Path) -> None:
        """Copy files of a trial's job to the dashboard's artifact store."""
        for path in paths:
            if not path.is_file() or path.stat().st_size > LARGEST:
                continue
            word = hashlib.sha256(f"{trial}/{path.name}".encode()).hexdigest()[:32]
            try:
                store.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, store / word)
            except OSError as error:
                raise unwritten(store, error, remedy=make_writable(store.parent)) from None
            artifact = {"artifact_id": word, "filename": path.name, "mimetype": "text/plain", "encoding": None}
            self._set(f"dashboard:artifacts:{self._ids[trial]}:{word}", json.dumps(artifact))

    def _joined(self, prefix: str) -> str:
        parts: list[str] = []
        while f"{prefix}{len(parts)}" in self._kept:
            parts.append(str(self._kept[f"{prefix}{len(parts)}"]))
        return "".join(parts)

    def _split(self, prefix: str, text: str) -> None:
        parts = [text[start : start + LONGEST] for start in range(0, len(text), LONGEST)]
        count = 0
        for count, part in enumerate(parts, start=1):
            self._set(f"{prefix}{count - 1}", part)
        while f"{prefix}{count}" in self._kept:  # remaining parts of an earlier, longer text
            self._set(f"{prefix}{count}", "")
            count += 1

    def _set(self, name: str, value: Any) -> None:
        if self._kept.get(name) != value:
            with understood(self._study.url):
                self._study.storage.set_study_system_attr(self._id, name, value)
            self._kept[name] = value
