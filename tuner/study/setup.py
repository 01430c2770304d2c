"""Open a study, new or as it was left: build its candidates and launcher, and open its storage."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns
from tuner.core.documents import cluster_document, topology_of, workload_document
from tuner.core.errors import EmptySpace, InputError, StudyError, TunerWarning
from tuner.core.interrupts import remember_interrupts
from tuner.core.stack import Stack
from tuner.core.text import either, shown
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.site_file import site_of, site_text
from tuner.launch.contract import Launcher
from tuner.launch.local.hostfile import PROGRAMS, HostfileProgram, read_hostfile
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.machine import check_jobs_can_run, computes_on_host, this_machine
from tuner.launch.program import CommandTemplate, Program, WorkerProgram, axes_not_passed, program_of
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.commands import SlurmCommands
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.launch.virtual.replay import ReplayLauncher
from tuner.launch.virtual.run_noise import RunNoise
from tuner.launch.virtual.simulated import SimulatedLauncher
from tuner.planning.plan import why_empty
from tuner.search.candidates import CandidatePool
from tuner.search.selection import selected
from tuner.space.space import Space, Tally, as_stored, space_document
from tuner.study.loop import StudyLoop
from tuner.study.replay_setup import replayed
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.store.recover import write_study_file
from tuner.study.store.settings_difference import (
    COMMAND_STACK,
    FORMERLY_ADAM,
    STACK_OPTIONS,
    TOKENS_FROM,
    TRAINER_FILES,
    keeps_default_length,
    keeps_usual_stack,
)
from tuner.study.store.storage import refuse_lost, refuse_second, sqlite_url
from tuner.study.store.tracking import Tracker
from tuner.study.store.trial_store import TrialStore


@contextmanager
def open_loop(settings: StudySettings) -> Iterator[StudyLoop]:
    """Open the study that the settings name, creating it if needed, and close it on exit."""
    settings.check()
    tally = None if settings.launcher == "replay" else Tally()
    with ExitStack() as opened:
        opened.enter_context(remember_interrupts())
        # The storage comes last, so that refused settings leave no empty study behind.
        pool, launcher, identity = _cluster(settings, tally)
        opened.callback(launcher.close)
        if settings.command is not None and settings.trainer is None and settings.limits.budget > 1:
            _warn_of_axes_not_passed(settings.command, pool)
        if settings.launcher == "local" and settings.jobs > 1:
            warnings.warn(
                f"--launcher local runs one job at a time, so --jobs {settings.jobs} has no effect.",
                TunerWarning,
                stacklevel=2,
            )
        if settings.launcher == "slurm" and settings.limits.budget > 1:
            _refuse_shared_log(settings, pool)
        tracker = Tracker(settings.track, settings.name) if settings.track is not None else None
        if tracker is not None:
            opened.callback(tracker.close)
        with _locked(settings.folder):
            refuse_second(settings.folder, settings.storage)
            if settings.storage is None:
                refuse_lost(settings.folder / "study.db")
            url = sqlite_url(settings.folder / "study.db") if settings.storage is None else settings.storage
            store = TrialStore.open(url, settings.name, identity)
        opened.callback(store.close)
        store.folder = settings.folder
        if settings.launcher not in ("simulated", "replay"):
            store.keep_folder(settings.folder, moves=settings.storage is None)
        if tally is not None and (space := _as_begun(settings.space, store.settings, identity)) is not settings.space:
            limits = replace(settings.limits, stop_when_unprofitable=bool(space.workload.tokens))
            settings = replace(settings, space=space, limits=limits)
            pool = _legal(settings, tally)
        if settings.calibration is not None:
            _store_calibration(store, settings.calibration)
        elif stored := store.attributes.get("site"):
            settings = replace(settings, calibration=site_of(stored, f"the study {store.name}"))
            if pool.values is not None:
                pool = _legal(settings, None)  # the most promising topologies by this calibration
        if pool.values is not None:
            pool = pool.extended(topology_of(trial.proposal.topology) for trial in store.trials())
        if settings.command is not None:
            _store_directory(store)
        if isinstance(launcher, SimulatedLauncher | ReplayLauncher):
            launcher.resume_at(max((trial.result.clock for trial in store.trials() if trial.result), default=0.0))
        if tracker is not None:
            settings = replace(settings, on_event=_tracked(settings.on_event, tracker, store))
        loop = StudyLoop(settings, pool=pool, launcher=launcher, store=store, tally=tally)
        with _locked(settings.folder):
            refuse_second(settings.folder, settings.storage)  # which a process may have written meanwhile
            write_study_file(settings.folder, store, loop.state.space.distributions, storage=settings.storage)
        store.on_attribute = partial(_update_study_file, loop)
        yield loop


def _update_study_file(loop: StudyLoop) -> None:
    """Write the study's attributes to its file too. A failure loses nothing yet, because the database has them."""
    with suppress(StudyError):
        distributions, storage = loop.state.space.distributions, loop.settings.storage
        write_study_file(loop.folder, loop.store, distributions, storage=storage)


def _as_begun(space: Space, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> Space:
    """Return the space of a study that began before policies, frameworks, or a command's tokens and software were
    recorded."""
    space = as_stored(space, begun)
    if keeps_usual_stack(begun, asked):
        workload = space.workload
        kept = Stack(**{name: getattr(workload.stack or Stack(), name) for name in STACK_OPTIONS})
        optimizer = "adam" if workload.optimizer == FORMERLY_ADAM else workload.optimizer
        found = replace(workload, stack=None if kept == Stack() else kept, optimizer=optimizer)
        space = space if found == workload else replace(space, workload=found)
    if keeps_default_length(begun, asked):
        space = replace(space, workload=replace(space.workload, tokens=0.0))
    return space


def _tracked(
    on_event: Callable[[StudyEvent], None], tracker: Tracker, store: TrialStore
) -> Callable[[StudyEvent], None]:
    """Send every finished trial to the tracker as well, until the tracker fails."""
    failed = False

    def forward(event: StudyEvent) -> None:
        nonlocal failed
        on_event(event)
        if event.kind == "ended" and event.trial is not None and not failed:
            problem = tracker.log(store, event.trial.number)
            if problem is not None:
                failed = True
                on_event(StudyEvent(kind="note", text=problem))

    return forward


def _store_calibration(store: TrialStore, calibration: Calibration) -> None:
    """Store the calibration that the study starts from, so that every reader ranks its trials identically."""
    text = site_text(calibration, source=f"study {store.name}")
    if (stored := store.attributes.get("site", "")) == text:
        return
    store.set_attribute("site", text)
    if stored or store.trials():
        which = "a different calibration" if stored else "a calibration that it began without"
        warnings.warn(
            f"study {store.name} continues with {which} and keeps it: its estimates and ranking change.",
            TunerWarning,
            stacklevel=4,
        )


def _store_directory(store: TrialStore) -> None:
    """Store the directory in which the study's command runs; warn of another one, whose files it would use."""
    here = str(Path.cwd())
    there = store.attributes.get("directory")
    if there is None:
        store.set_attribute("directory", here)
    elif there != here:
        warnings.warn(
            f"study {store.name} was started in {there}, and new jobs run in {here}: relative paths in --command "
            "now name other files.",
            TunerWarning,
            stacklevel=4,
        )


def _cluster(settings: StudySettings, tally: Tally | None) -> tuple[CandidatePool, Launcher, dict[str, Any]]:
    """Return the candidates, the launcher, and the settings that identify the study when it is resumed."""
    identity: dict[str, Any] = {"launcher": settings.launcher, "iterations": list(settings.iterations)}
    if settings.launcher == "replay":
        pool, replay, replay_identity = _replay(settings)
        return pool, replay, identity | replay_identity
    start = {"local": _local, "hostfile": _hosts, "slurm": _slurm, "simulated": _simulated}[settings.launcher]
    launcher, launcher_identity = start(settings)
    return _legal(settings, tally), launcher, identity | space_document(settings.space) | launcher_identity


def _replay(settings: StudySettings) -> tuple[CandidatePool, Launcher, dict[str, Any]]:
    """Play a measured table back."""
    assert settings.table is not None  # noqa: S101 - `StudySettings.check` has refused it
    pool, runs = replayed(settings.table, settings.group)
    rows = repr([(run.topology, run.outcome, run.seconds) for run in runs])
    parts = [
        {"workload": workload_document(part.workload), "cluster": cluster_document(part.cluster)} for part in pool.parts
    ]
    digest = hashlib.sha256(rows.encode()).hexdigest()[:16]
    noise = RunNoise(deviation=settings.noise)
    drawn = {"noise": settings.noise, "seed": settings.seed} if settings.noise else {}
    invented = {"simulated": True} if settings.table.simulated else {}
    launcher = ReplayLauncher(runs, seed=settings.seed, noise=noise, simulated=bool(invented))
    return pool, launcher, {"group": settings.group, "rows": digest, "parts": parts, **drawn, **invented}


def _simulated(settings: StudySettings) -> tuple[Launcher, dict[str, Any]]:
    """Simulate the cluster."""
    launcher = SimulatedLauncher(settings.space.cluster.nodes, seed=settings.seed, drift=settings.drift)
    return launcher, {"seed": settings.seed, "drift": None if settings.drift is None else repr(settings.drift)}


def _local(settings: StudySettings) -> tuple[Launcher, dict[str, Any]]:
    """Run jobs on this machine."""
    machine = this_machine()
    if settings.command is None:
        check_jobs_can_run()
    program, identity = _program(settings, machine.accelerator)
    return LocalLauncher(program, ranks=settings.space.cluster.gpus_per_node), identity


def _hosts(settings: StudySettings) -> tuple[Launcher, dict[str, Any]]:
    """Run tuner's worker on the machines of a hostfile."""
    assert settings.hostfile is not None  # noqa: S101 - `StudySettings.check` has refused it
    machine, cluster = this_machine(), settings.space.cluster
    check_jobs_can_run(reached_by=PROGRAMS.get(settings.over))
    worker = WorkerProgram(accelerator=machine.accelerator, seed=settings.seed)
    program = HostfileProgram(worker=worker, hosts=read_hostfile(settings.hostfile), over=settings.over)
    identity = {"over": settings.over, "accelerator": machine.accelerator, "seed": settings.seed}
    return LocalLauncher(program, ranks=cluster.gpus_per_node, nodes=cluster.nodes, name="hostfile"), identity


def _slurm(settings: StudySettings) -> tuple[Launcher, dict[str, Any]]:
    """Submit jobs with sbatch, or run them as steps of the allocation around this process."""
    program, identity = _program(settings, "cpu" if computes_on_host() else "cuda")
    profile = SiteProfile.read(settings.site_profile) if settings.site_profile is not None else SiteProfile()
    nodes = settings.space.cluster.nodes
    if settings.within_allocation:
        commands = SlurmCommands()
        steps = SlurmStepLauncher(
            program,
            allocation=Allocation.current(os.environ, commands),
            nodes=nodes,
            site=profile,
            notes=settings.folder,
            commands=commands,
        )
        steps.check(settings.space.cluster.gpus_per_node)
        return steps, identity
    slurm = SlurmLauncher(program, nodes=nodes, site=profile, notes=settings.folder)
    slurm.check()
    return slurm, identity


def _program(settings: StudySettings, accelerator: str) -> tuple[Program, dict[str, Any]]:
    """Return the program of a job: tuner's worker or the user's command."""
    program = program_of(
        settings.command,
        accelerator=accelerator,
        seed=settings.seed,
        step_pattern=settings.step_pattern,
        log=settings.log,
        trainer=settings.trainer,
    )
    identity: dict[str, Any] = {"command": settings.command, "accelerator": accelerator, "seed": settings.seed}
    if settings.step_pattern is not None:  # studies begun before have no such key
        identity["step_pattern"] = settings.step_pattern
    for name in ("log", "trainer", TOKENS_FROM):
        if getattr(settings, name) is not None:
            identity[name] = getattr(settings, name)
    if isinstance(program, CommandTemplate) and program.trainer is not None:
        identity |= {TRAINER_FILES: program.trainer.digests, COMMAND_STACK: True}
    return program, identity


def _legal(settings: StudySettings, tally: Tally | None) -> CandidatePool:
    """Return the legal topologies of the space, of a very large one the most promising."""
    space, counted = settings.space, tally if tally is not None else Tally()
    found = selected(space, space.blocks(counted), settings.calibration)
    if not len(found.points):
        raise EmptySpace(why_empty(space, counted))
    return replace(CandidatePool.of_points(space, [found.points]), values=found.values)


_LAUNCHED: Final = {"nodes", "dp", "partition"}
"""Columns that follow from the processes that are started, or from other axes."""


def _varied(pool: CandidatePool) -> list[str]:
    """Return the axes that the search varies."""
    return [name for name in Columns.names if name not in _LAUNCHED and np.ptp(pool.column(name))]


def _refuse_shared_log(settings: StudySettings, pool: CandidatePool) -> None:
    """Raise an `InputError` if Slurm jobs of this process or of others would write the same log at once."""
    log = settings.log
    if log is None or "{number}" in log or (settings.within_allocation and settings.jobs == 1):
        return
    if axes_not_passed(shlex.quote(log), _varied(pool)):
        raise InputError(
            f"--log {shown(log)} names the same file for several jobs, which Slurm may run at once: add {{key}} or "
            "{number}."
        )


def _warn_of_axes_not_passed(command: str, pool: CandidatePool) -> None:
    """Warn if jobs of different topologies would run identically."""
    missing = axes_not_passed(command, _varied(pool))
    if missing:
        fields = " ".join(f"{{{axis}}}" for axis in missing)
        warnings.warn(
            f"the command passes no {either(missing)} to its jobs, and the search varies "
            f"{'it' if len(missing) == 1 else 'them'}: topologies that differ only in these would run identically; add "
            f"{fields} to --command, or pin one value with --set.",
            TunerWarning,
            stacklevel=3,
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create the study's folder, and let one process at a time open the study."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".opening").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StudyError(f"{folder} cannot be used: {error.strerror or error}; choose a folder with --runs.") from None
