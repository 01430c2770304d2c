"""What Optuna Dashboard shows beside its own pages: notes, graphs and files, kept with the study.

They are attributes of the study, also where they belong to a trial, so that a trial that is over can have them: the
layout is optuna-dashboard 0.21's (`_note.py`, `_custom_plot_data.py`, `artifact/_backend.py`).
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

from tuner.study.store.storage import understood
from tuner.study.store.trial_store import TrialStore

LONGEST: Final = 2045
"""Characters of one attribute."""

LARGEST: Final = 5_000_000
"""Bytes of a file that is shown."""


class DashboardPublisher:
    """The dashboard's part of a study."""

    def __init__(self, study: TrialStore) -> None:
        self._study = study
        with understood(study.url):
            self._id = study.storage.get_study_id_from_name(study.name)
            self._kept: dict[str, Any] = dict(study.storage.get_study_system_attrs(self._id))
            self._ids = {each.number: each._trial_id for each in study.storage.get_all_trials(self._id, deepcopy=False)}

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
        """Markdown, of the study or of a trial; what says the same already is left as it is."""
        owner = "" if trial is None else f"{self._ids[trial]}:"
        prefix = f"dashboard:{owner}note_str:"
        if self._joined(prefix) == text:
            return
        version = f"dashboard:{owner}note_ver"
        self._set(version, int(self._kept.get(version, 0)) + 1)
        self._split(prefix, text)

    def graph(self, name: str, document: Mapping[str, Any]) -> None:
        """A Plotly figure, as its JSON."""
        prefix = f"dashboard:plot_data:{name}:"
        text = json.dumps(document)
        if self._joined(prefix) != text:
            self._split(prefix, text)

    def files(self, trial: int, paths: Sequence[Path], store: Path) -> None:
        """Files of a trial's job, copied to where the dashboard reads them."""
        store.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if not path.is_file() or path.stat().st_size > LARGEST:
                continue
            word = hashlib.sha256(f"{trial}/{path.name}".encode()).hexdigest()[:32]
            shutil.copyfile(path, store / word)
            told = {"artifact_id": word, "filename": path.name, "mimetype": "text/plain", "encoding": None}
            self._set(f"dashboard:artifacts:{self._ids[trial]}:{word}", json.dumps(told))

    def _joined(self, prefix: str) -> str:
        parts: list[str] = []
        while f"{prefix}{len(parts)}" in self._kept:
            parts.append(str(self._kept[f"{prefix}{len(parts)}"]))
        return "".join(parts)

    def _split(self, prefix: str, text: str) -> None:
        parts = [text[start : start + LONGEST] for start in range(0, len(text), LONGEST)]
        place = 0
        for place, part in enumerate(parts, start=1):
            self._set(f"{prefix}{place - 1}", part)
        while f"{prefix}{place}" in self._kept:  # of a longer text before
            self._set(f"{prefix}{place}", "")
            place += 1

    def _set(self, name: str, value: Any) -> None:
        if self._kept.get(name) != value:
            with understood(self._study.url):
                self._study.storage.set_study_system_attr(self._id, name, value)
            self._kept[name] = value
