"""Calibrate on measurements from before a study: a table's rows, or the trials of another study."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.audit import period_labels
from tuner.core.catalog import kind_of_path
from tuner.core.columns import Columns
from tuner.core.documents import cluster_of, topology_of, workload_of
from tuner.core.domain import Topology
from tuner.core.errors import InputError, NothingUsable, StudyError
from tuner.core.text import shown
from tuner.costmodel.calibration import Calibration, MeasuredRows
from tuner.costmodel.calibration import calibrate as fit
from tuner.costmodel.evaluation import CalibrationReport, learn
from tuner.study import drift
from tuner.study.store.folders import study_files
from tuner.study.store.storage import recovery_command, refuse_lost, sqlite_url
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore
from tuner.tables import Table


def calibrate(table: Table, *, period: str | None = None) -> Calibration:
    """Return the calibration that a table's rows support, with speed periods by the column `period` or as audited.

    >>> import tuner
    >>> calibration = tuner.calibrate(tuner.read_table("corpus/enoki-h100.csv"))
    """
    return calibration_report(table, period=period).calibration


def calibration_report(table: Table, *, period: str | None = None) -> CalibrationReport:
    """Return the calibration of `calibrate` with its effect on the errors."""
    if period is not None and period not in table.columns:
        raise InputError(f"{table.name} has no column {period!r}.")
    return learn(table, [row.cells.get(period, "") for row in table.rows] if period else period_labels(table.rows))


def calibration_from_study(name: str, *, runs: Path, storage: str | None) -> Calibration:
    """Return the calibration that a study's measurements support, for the speed at which the study ended."""
    with closing(existing(name, runs=runs, storage=storage, or_table=True)) as store:
        settings = store.settings
        trials = [trial for trial in store.trials() if trial.measured or trial.measured_reduced]
        if "workload" not in settings:
            raise InputError(f"study {name} replayed a table: give the table itself to --from.")
        if not trials:
            raise NothingUsable(f"study {name} has no measured trial yet.")
        periods = drift.stored_periods(store.attributes)
        labels = [drift.label(trial.number, periods, "") for trial in trials]
        columns = Columns.of(
            (_as_run(trial) for trial in trials),
            workload_of(settings["workload"]),
            cluster_of(settings["cluster"]),
        )
        seconds = np.array([trial.seconds for trial in trials])
        fitted = fit([MeasuredRows(columns=columns, seconds=seconds, period=tuple(labels))])
        return replace(fitted, period=labels[-1], simulated=settings.get("launcher") == "simulated")


def _as_run(trial: Trial) -> Topology:
    """Return the topology of a trial at the size at which it ran."""
    topology = topology_of(trial.proposal.topology)
    return topology if trial.proposal.fidelity is None else trial.proposal.fidelity.topologies(topology)[-1]


def existing(name: str, *, runs: Path, storage: str | None, or_table: bool = False) -> TrialStore:
    """Open an existing study by its name; with `or_table`, errors say that a table's file would do as well."""
    file = runs / name / "study.db"
    if storage is None:
        refuse_lost(file)
    if storage is None and file.is_dir():
        raise StudyError(
            f"{file} is a folder, not a database: move it away, and restore the database of the study from a backup or "
            f"rebuild it with '{recovery_command(file.parent)}'."
        )
    if storage is None and not file.is_file():
        known = [path.parent.name for path in study_files(runs)]
        have = ", ".join(known) if known else "none"
        if there := kind_of_path(name):
            wanted = "a table or a study's name" if or_table else "a study's name"
            raise InputError(f"{shown(name)} is a {there}, not {wanted}; studies in {runs}: {have}.")
        nothing = "neither a file nor a study" if or_table else "no study"
        raise InputError(f"there is {nothing} called {shown(name)}; studies in {runs}: {have}.")
    return TrialStore.existing(sqlite_url(file) if storage is None else storage, name)
