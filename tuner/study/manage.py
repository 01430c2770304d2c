"""List the studies of a folder or storage, and stop the jobs that an interrupted study left running."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from tuner.core.documents import cluster_of
from tuner.core.errors import TunerError, TunerWarning
from tuner.core.text import ResultTable, Tabular, node_time, shown, span
from tuner.launch.contract import Job, JobState, Launcher
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import program_of
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.study.fidelity_plan import job_of
from tuner.study.result import pool_of_tried, read_result
from tuner.study.store.folders import files_in, study_files
from tuner.study.store.owner import gone, grace, running, this_worker
from tuner.study.store.stopped import completed, recorded_end
from tuner.study.store.storage import STUDY_FILE, open_storage
from tuner.study.store.stored import parts_of
from tuner.study.store.trial import Trial, cancelled, record_ending
from tuner.study.store.trial_store import TrialStore
from tuner.study.warm_start import existing

StudyActivity = Literal["running", "orphaned", "idle"]
"""Whether a tuner process watches jobs of the study, trials are open without such a process, or none is open."""


CANCELLED_JOB: Final = "cancelled by tuner stop"
"""Why a trial ended whose job `stop_study` has cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """One study of a list."""

    name: str
    state: StudyActivity
    launcher: str
    trials: int
    """Launched jobs."""
    best: str | None
    """Key of the leader."""
    days: float | None
    """Days in which the leader finishes training."""
    node_hours: float
    changed: datetime | None
    """When a trial last began or ended."""
    simulated: bool
    """Whether the measurements come from the simulated cluster, if only through a table of it that was replayed."""


HEADERS: Final = ("Study", "State", "Launcher", "Trials", "Best", "Training time", "Cost", "Changed")
WORDS: Final = frozenset({"Study", "State", "Launcher", "Best", "Changed"})
"""The columns of text."""


class StudyList(Tabular, list[StudySummary]):
    """Studies, the one that changed last first; `print` and notebooks show a table."""

    def _shown(self) -> ResultTable:
        return ResultTable(title="Studies", headers=HEADERS, words=WORDS, rows=[cells_of(summary) for summary in self])


def cells_of(summary: StudySummary) -> tuple[str, ...]:
    """Return a study as the texts of `HEADERS`."""
    return (
        summary.name,
        summary.state,
        "SIMULATED" if summary.launcher == "simulated" else summary.launcher + " (SIMULATED)" * summary.simulated,
        str(summary.trials),
        summary.best or "-",
        "-" if summary.days is None else span(summary.days),
        node_time(summary.node_hours),
        "-" if summary.changed is None else f"{summary.changed:%Y-%m-%d %H:%M}",
    )


def list_studies(*, runs: str | Path = "runs", storage: str | None = None) -> StudyList:
    """Return all studies of a folder, or of a storage, the one that changed last first.

    Warn of a study in the folder whose database cannot be read, is lost or is elsewhere.

    >>> import tempfile, tuner
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     _ = tuner.optimize(model="gpt-1.3b", nodes=4, settings=["tp=1,2"], budget=2, study="small", runs=runs)
    ...     [(study.name, study.state, study.trials) for study in tuner.list_studies(runs=runs)]
    [('small', 'idle', 2)]
    """
    runs = Path(runs)
    if storage is None:
        files, _ = files_in(runs, STUDY_FILE)  # which a study keeps whose database is lost or elsewhere
        names = sorted({file.parent.name for file in (*study_files(runs), *files)})
    else:
        with closing(open_storage(storage)) as opened:
            names = opened.study_names()
    found = StudyList(summary for name in names if (summary := _listed(name, runs, storage)) is not None)
    found.sort(key=lambda summary: summary.changed.timestamp() if summary.changed else 0.0, reverse=True)
    return found


def _listed(name: str, runs: Path, storage: str | None) -> StudySummary | None:
    """Return the study of that name; None if it cannot be read, with a warning if it is in the folder."""
    try:
        with closing(existing(name, runs=runs, storage=storage)) as store:
            return _summary(store, runs / name)
    except TunerError as error:
        if storage is None:  # a database may also have studies of other programs
            warnings.warn(f"study {shown(name)} is not listed: {error}", TunerWarning, stacklevel=3)
        return None


def _summary(store: TrialStore, folder: Path) -> StudySummary:
    study = read_result(store, folder)
    return StudySummary(
        name=study.name,
        state=_state(store),
        launcher=study.launcher,
        trials=len(study.launched),
        best=study.best.key if study.best else None,
        days=study.best.days if study.best else None,
        node_hours=study.node_hours,
        changed=store.changed,
        simulated=study.simulated,
    )


def _state(store: TrialStore) -> StudyActivity:
    owners = store.owners()
    if not owners:
        return "idle"
    return "orphaned" if all(_abandoned(store, number, owner) for number, owner in owners.items()) else "running"


def _abandoned(store: TrialStore, number: int, owner: Any) -> bool:
    """Return whether the process that owns a trial is gone; one of another machine is, once it is silent."""
    dead = gone(owner)
    return number in store.silent(grace(owner)) if dead is None else dead


def stop_study(name: str, *, runs: str | Path = "runs", storage: str | None = None) -> list[Trial]:
    """Cancel the jobs that an interrupted study left running, and close their trials; return those trials, closed.

    Jobs are found by their tags and are gone when this returns; the reason of a trial is `CANCELLED_JOB` unless its job
    was gone before. A job that has finished meanwhile is left for the next
    `optimize` to read. Raise a `StudyError` while a tuner process still runs the study.
    """
    folder = Path(runs) / name
    with ExitStack() as opened:
        store = opened.enter_context(closing(existing(name, runs=Path(runs), storage=storage)))
        store.folder = folder
        store.close_finished()
        owners = store.owners()
        for number, owner in owners.items():
            if not _abandoned(store, number, owner):
                raise running(name, owner)
        launcher = _launcher(store.settings, folder)
        if launcher is not None:
            store.keep_folder(folder, moves=storage is None)
            opened.callback(launcher.close)
        stopped = {
            trial.number
            for trial in store.trials()
            if trial.number in owners
            and store.take_over(trial, owners[trial.number], this_worker())
            and _stop(store, launcher, trial, folder)
        }
        if isinstance(launcher, SlurmLauncher):
            launcher.cancel_left(trial.proposal.tag for trial in store.trials() if trial.result is not None)
        return [trial for trial in store.trials() if trial.number in stopped]


def _stop(store: TrialStore, launcher: Launcher | None, trial: Trial, folder: Path) -> bool:
    """Cancel a trial's job and close the trial; return False for a job that has finished by itself."""
    job = _job(store, trial, folder)
    handle = None if launcher is None else launcher.adopt(job, trial.handle)
    if launcher is None or handle is None:
        clock = 0.0 if launcher is None else launcher.now()
        store.close_gone(trial, job.folder, "stopped; its job is gone", clock=clock)
        return True
    status = launcher.poll([handle])[handle]
    if status.state is JobState.ENDED:
        return False
    launcher.cancel(handle)
    now = launcher.now()
    if (decided := recorded_end(job.folder, trial).stop) is not None:
        result = completed(trial, decided, clock=now)
    else:
        elapsed = 0.0 if status.began is None else now - status.began
        result = cancelled(trial, CANCELLED_JOB, elapsed=elapsed, clock=now)
    record_ending(job.folder, result)
    store.end(trial, result)
    return True


def _job(store: TrialStore, trial: Trial, folder: Path) -> Job:
    settings = store.settings
    pool, (tried,) = pool_of_tried(parts_of(settings, store.name), [trial])
    return job_of(tried, pool, folder, tuple(settings.get("iterations", (2,))))


def _launcher(settings: dict[str, Any], folder: Path) -> Launcher | None:
    """Return a launcher that finds the study's jobs; None where jobs are no processes."""
    if settings["launcher"] not in ("slurm", "local", "hostfile"):
        return None
    cluster = cluster_of(settings["cluster"])
    program = program_of(  # without the trainer, whose files may be gone: no job is launched
        settings.get("command"),
        accelerator=settings["accelerator"],
        seed=settings["seed"],
        step_pattern=settings.get("step_pattern"),
        log=settings.get("log"),
    )
    if settings["launcher"] == "slurm":
        return SlurmLauncher(program, nodes=cluster.nodes, notes=folder)
    return LocalLauncher(program, ranks=cluster.gpus_per_node)
