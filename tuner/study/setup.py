"""A study begun or gone on with: what is searched, where it is kept, what runs the jobs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.documents import cluster_document, workload_document
from tuner.core.errors import EmptySpace, InputError, StudyError, UnknownName
from tuner.core.text import shown
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.site_file import site_text
from tuner.launch.contract import Job, Launcher
from tuner.launch.ds_config import ds_config
from tuner.launch.local.hostfile import PROGRAMS, HostfileProgram, read_hostfile
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.machine import check_jobs_can_run, computes_on_host, this_machine
from tuner.launch.program import Program, WorkerProgram, program_of
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.commands import SlurmCommands
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.launch.virtual.replay import ReplayLauncher
from tuner.launch.virtual.simulated import SimulatedLauncher, SpeedChange
from tuner.planning.plan import why_empty
from tuner.search.candidates import MOST, CandidatePool
from tuner.search.samplers import SAMPLERS
from tuner.space.space import Space, Tally, as_stored, space_document
from tuner.study.limits import Limits, trust_for
from tuner.study.loop import Setup, StudyEvent
from tuner.study.replay_setup import replayed
from tuner.study.store.storage import sqlite_url
from tuner.study.store.tracking import Tracker
from tuner.study.store.trial_store import TrialStore
from tuner.tables import Table

LAUNCHERS: Final = ("simulated", "replay", "local", "hostfile", "slurm")

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""What a study may be called: it is the name of a folder too."""


SEEDS: Final = 2**32
"""Seeds that every sampler takes."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `tuner optimize` is asked for."""

    space: Space
    limits: Limits
    launcher: str = "simulated"
    table: Table | None = None
    group: str | None = None
    study: str | None = None
    runs: Path = Path("runs")
    storage: str | None = None
    sampler: str = "guided"
    seed: int = 0
    jobs: int = 1
    iterations: tuple[int, ...] = (2,)
    retry_hang_sync: bool = False
    drift: SpeedChange | None = None
    command: str | None = None
    """The user's own trainer, as a template."""
    hostfile: Path | None = None
    over: str = "pdsh"
    """How DeepSpeed's launcher reaches the machines of the hostfile."""
    slurm_site: Path | None = None
    """What the site's Slurm wants of every job."""
    within_allocation: bool = False
    """Whether jobs are steps of the Slurm allocation that this process runs in."""
    calibration: Calibration | None = None
    track: str | None = None
    """A tracker that is told of each trial: mlflow or wandb."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A study that is open."""

    setup: Setup
    tally: Tally | None
    """What became of the grid; None for a replay, which has none."""
    resumed: int
    """Trials that it had already."""


@contextmanager
def begin(request: Request, observe: Callable[[StudyEvent], None]) -> Iterator[Begun]:
    """Open the study that a request names, new or as it was left; closed again at the end."""
    if request.sampler not in SAMPLERS:
        raise UnknownName("sampler", request.sampler, SAMPLERS)
    if request.jobs < 1:
        raise InputError(f"--jobs {request.jobs} runs nothing; give at least 1.")
    if not 0 <= request.seed < SEEDS:
        raise InputError(f"--seed {shown(request.seed)} is not between 0 and {SEEDS - 1:,}.")
    tally = None if request.launcher == "replay" else Tally()
    with ExitStack() as opened:
        # The study comes last: what is refused leaves no empty one behind.
        pool, launcher, about = _cluster(request, tally)
        opened.callback(launcher.close)
        name = study_name(request)
        folder = request.runs / name
        tracker = Tracker(request.track, name) if request.track else None
        if tracker is not None:
            opened.callback(tracker.close)
        with _folder(folder):
            url = sqlite_url(folder / "study.db") if request.storage is None else request.storage
            study = TrialStore.open(url, name, about)
        if tally is not None and (space := as_stored(request.space, study.settings)) is not request.space:
            pool = _whole(space, tally)  # begun before a policy was added
        opened.callback(study.close)
        _keep_site(study, request.calibration)
        trials = study.trials()
        if isinstance(launcher, SimulatedLauncher | ReplayLauncher):
            launcher.resume_at(max((trial.ending.clock for trial in trials if trial.ending), default=0.0))
        setup = Setup(
            pool=pool,
            launcher=launcher,
            study=study,
            folder=folder,
            limits=request.limits,
            sampler=request.sampler,
            seed=request.seed,
            jobs=request.jobs,
            iterations=request.iterations,
            retry_hang_sync=request.retry_hang_sync,
            calibration=request.calibration or Calibration(),
            trust=trust_for(about),
            observe=_tracked(observe, tracker, study) if tracker else observe,
        )
        yield Begun(setup=setup, tally=tally, resumed=len(trials))


def _tracked(
    observe: Callable[[StudyEvent], None], tracker: Tracker, study: TrialStore
) -> Callable[[StudyEvent], None]:
    """Tell the tracker of each trial that ends, until it cannot be told."""
    silent: list[str] = []

    def told(event: StudyEvent) -> None:
        observe(event)
        if event.kind == "ended" and event.trial is not None and not silent:
            why = tracker.tell(study, event.trial.number)
            if why is not None:
                silent.append(why)
                observe(StudyEvent(kind="note", text=why))

    return told


def _keep_site(study: TrialStore, calibration: Calibration | None) -> None:
    """Keep what was known before the first job, so that who reads the study believes what it does."""
    text = site_text(calibration, source=f"study {study.name}") if calibration else ""
    if study.attributes.get("site", "") != text:
        study.note("site", text)


def study_name(request: Request) -> str:
    """The study's name: as given, else one that the same command finds again."""
    if request.study is not None:
        if not NAME.fullmatch(request.study):
            raise InputError(
                f"--study {shown(request.study)} is no name for a study: letters, digits, dots, dashes and underscores."
            )
        return request.study
    if request.launcher == "replay":
        assert request.table is not None  # noqa: S101 - `_cluster` has asked
        words = [request.launcher, Path(request.table.name).stem, request.group or ""]
    else:
        space = request.space
        words = [request.launcher, space.workload.model.name, f"{space.cluster.nodes}x{space.cluster.gpus_per_node}"]
    words = [re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-.") for word in (*words, f"seed{request.seed}")]
    return "-".join(word for word in words if word)[:100]


def _cluster(request: Request, tally: Tally | None) -> tuple[CandidatePool, Launcher, dict[str, Any]]:
    """What can be proposed, what runs it, and what the study is about."""
    about: dict[str, Any] = {"launcher": request.launcher, "iterations": list(request.iterations)}
    if request.launcher == "replay":
        if request.table is None:
            raise InputError("--launcher replay wants the measured table that answers: --table FILE.")
        pool, answers = replayed(request.table, request.group)
        lines = repr([(answer.topology, answer.outcome, answer.seconds) for answer in answers])
        about |= {"group": request.group, "rows": hashlib.sha256(lines.encode()).hexdigest()[:16]}
        about["parts"] = [
            {"workload": workload_document(part.workload), "cluster": cluster_document(part.cluster)}
            for part in pool.parts
        ]
        return pool, ReplayLauncher(answers), about
    if request.launcher not in LAUNCHERS:
        raise UnknownName("launcher", request.launcher, LAUNCHERS)
    if request.table is not None:
        raise InputError(f"--table answers for --launcher replay, not for {request.launcher}.")
    if request.slurm_site is not None and request.launcher != "slurm":
        raise InputError(f"--slurm-site is for --launcher slurm, not for {request.launcher}.")
    if request.within_allocation and request.launcher != "slurm":
        raise InputError(f"--within-allocation is for --launcher slurm, not for {request.launcher}.")
    about |= space_document(request.space)
    if request.hostfile is not None and request.launcher != "hostfile":
        raise InputError(f"--hostfile is for --launcher hostfile, not for {request.launcher}.")
    if request.launcher in ("local", "hostfile"):
        local, what = _local(request) if request.launcher == "local" else _hosts(request)
        return _whole(request.space, tally), local, about | what
    if request.launcher == "slurm":
        slurm, what = _slurm(request)
        return _whole(request.space, tally), slurm, about | what
    if request.command is not None:
        raise InputError("--command runs real jobs: give --launcher local or slurm with it.")
    about |= {"seed": request.seed, "drift": None if request.drift is None else repr(request.drift)}
    return (
        _whole(request.space, tally),
        SimulatedLauncher(request.space.cluster.nodes, seed=request.seed, drift=request.drift),
        about,
    )


def _local(request: Request) -> tuple[LocalLauncher, dict[str, Any]]:
    """This machine, and what is run on it."""
    machine = this_machine()
    if request.command is None:
        check_jobs_can_run()
    program, about = _program(request, machine.accelerator)
    return LocalLauncher(program, ranks=request.space.cluster.gpus_per_node), about


def _hosts(request: Request) -> tuple[LocalLauncher, dict[str, Any]]:
    """The machines of a hostfile, on which the shipped worker runs."""
    if request.hostfile is None or request.command is not None:
        raise InputError("--launcher hostfile runs the shipped worker on the machines of --hostfile FILE.")
    machine, cluster = this_machine(), request.space.cluster
    check_jobs_can_run(reached_by=PROGRAMS.get(request.over))
    worker = WorkerProgram(configure=_configure, accelerator=machine.accelerator, seed=request.seed)
    program = HostfileProgram(worker=worker, hosts=read_hostfile(request.hostfile), over=request.over)
    about = {"over": request.over, "accelerator": machine.accelerator, "seed": request.seed}
    return LocalLauncher(program, ranks=cluster.gpus_per_node, nodes=cluster.nodes, name="hostfile"), about


def _slurm(request: Request) -> tuple[Launcher, dict[str, Any]]:
    """The cluster that sbatch submits to, or the allocation that we are in, and what is run on it."""
    program, about = _program(request, "cpu" if computes_on_host() else "cuda")
    site = SiteProfile.read(request.slurm_site) if request.slurm_site is not None else SiteProfile()
    notes = request.runs / study_name(request)
    if request.within_allocation:
        steps = SlurmStepLauncher(
            program,
            allocation=Allocation.current(os.environ, commands := SlurmCommands()),
            nodes=request.space.cluster.nodes,
            site=site,
            notes=notes,
            commands=commands,
        )
        steps.check(request.space.cluster.gpus_per_node)
        return steps, about
    slurm = SlurmLauncher(program, nodes=request.space.cluster.nodes, site=site, notes=notes)
    slurm.check()
    return slurm, about


def _program(request: Request, accelerator: str) -> tuple[Program, dict[str, Any]]:
    """The shipped worker or the user's own command, and what of it the study is about."""
    about = {"command": request.command, "accelerator": accelerator, "seed": request.seed}
    program = program_of(request.command, configure=_configure, accelerator=accelerator, seed=request.seed)
    return program, about


def _configure(job: Job) -> dict[str, Any]:
    return ds_config(job.workload, job.topology)


def _whole(space: Space, tally: Tally | None) -> CandidatePool:
    counted = tally if tally is not None else Tally()
    blocks = []
    for block in space.blocks(counted):
        blocks.append(block)
        if counted.legal > MOST:
            raise InputError(f"more than {MOST:,} topologies are legal, too many to search; pin axes with --set.")
    if not blocks:
        raise EmptySpace(why_empty(space, counted))
    return CandidatePool.of_points(space, blocks)


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """The study's folder, for one process at a time while the study is opened."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".opening").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StudyError(f"{folder} cannot be used: {error.strerror or error}.") from None


def iterations_of(text: str) -> tuple[int, ...]:
    """`2` or `2-5` as the iterations that are measured."""
    if not (match := re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text.strip())):
        raise InputError(f"--iterations {shown(text)} is neither a number nor a range such as 2-5.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InputError(f"--iterations: the range {first}-{last} runs backwards; write {last}-{first}.")
    if first < 2:
        raise InputError(f"--iterations {text}: the first one warms up and is never measured; begin with 2.")
    return tuple(range(first, last + 1))


def duration(text: str, option: str) -> float:
    """`90m`, `4h`, `2d` as seconds."""
    units: dict[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if not (match := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([smhd])", text.strip())):
        raise InputError(f"{option} {shown(text)} is no duration such as 90m, 4h or 2d.")
    return float(match[1]) * units[match[2]]


def drift_of(text: str | None) -> SpeedChange | None:
    """`1.05@20` as a cluster that is 5% slower from its 21st job on."""
    if text is None:
        return None
    if not (match := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)@([0-9]{1,6})", text.strip())):
        raise InputError(f"--drift {shown(text)} is not FACTOR@JOBS such as 1.05@20.")
    return SpeedChange(factor=float(match[1]), after_jobs=int(match[2]))
