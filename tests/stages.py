"""Stages: launchers under test, set up so that the contract's tests can request jobs with a given behaviour."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from tuner.core import catalog
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Outcome
from tuner.launch import Job, Launcher
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import CommandTemplate
from tuner.launch.virtual.replay import ReplayedRun, ReplayLauncher
from tuner.launch.virtual.run_noise import Faults
from tuner.launch.virtual.simulated import SimulatedLauncher

Behaviour = Literal["good", "oom", "crash", "hang"]

WORKLOAD = Workload(model=catalog.model("gpt-1.3b"), global_batch=64)
CLUSTER = replace(catalog.cluster("bloom-48"), name="four", nodes=4)
TOPOLOGIES: dict[Behaviour, Topology] = {
    "good": Topology(nodes=1, tp=2, pp=1, dp=4, micro_batch=1),
    "oom": Topology(nodes=1, tp=2, pp=1, dp=4, micro_batch=8),
    "crash": Topology(nodes=1, tp=4, pp=1, dp=2, micro_batch=1),
    "hang": Topology(nodes=1, tp=8, pp=1, dp=1, micro_batch=1),
}
OUTCOMES: dict[Behaviour, Outcome] = {
    "good": Outcome.MEASURED,
    "oom": Outcome.OOM,
    "crash": Outcome.CRASHED,
    "hang": Outcome.HUNG,
}


def job_in(
    folder: Path,
    *,
    number: int = 0,
    tag: str = "t",
    topology: Topology = TOPOLOGIES["good"],
    workload: Workload = WORKLOAD,
    cluster: Cluster = CLUSTER,
    **more: Any,
) -> Job:
    """Return a job with this folder."""
    return Job(number=number, tag=tag, folder=folder, workload=workload, cluster=cluster, topology=topology, **more)


class Stage(Protocol):
    """A launcher under test, as the contract's tests see it."""

    folder: Path
    """Folder of the jobs' files."""
    looks: int
    """Maximum number of polls until a job has ended, with waits of at most `look` seconds."""
    look: float
    slack: float
    """Seconds by which `wait` may overrun, and that `submit` may take: long where the machine may be busy."""
    many: int
    """Number of jobs that are queued at once."""

    def open(self) -> Launcher:
        """Return a new launcher of the same cluster, as another process would open it."""

    def job(
        self, behaviour: Behaviour = "good", *, iterations: tuple[int, ...] = (2,), folder: Path | None = None
    ) -> Job:
        """Return a new job of one node."""

    def queries(self) -> int | None:
        """Return the number of queries to the machines so far, or None if there are none."""


class Virtual:
    """A stage in virtual time."""

    looks, look, slack, many = 100, 1000.0, 0.0, 200
    tags = "study"

    def __init__(self, folder: Path, launcher: Callable[[], Launcher]) -> None:
        self.folder = folder
        self.open = launcher
        self._numbers = count()

    def job(
        self, behaviour: Behaviour = "good", *, iterations: tuple[int, ...] = (2,), folder: Path | None = None
    ) -> Job:
        number = next(self._numbers)
        folder = folder or self.folder / f"{number:04d}-{behaviour}"
        tag, topology = f"{self.tags}-{number}", TOPOLOGIES[behaviour]
        return job_in(folder, number=number, tag=tag, topology=topology, iterations=iterations)

    def queries(self) -> int | None:
        return None


def simulated(folder: Path) -> Stage:
    planted = {TOPOLOGIES[name].key: OUTCOMES[name] for name in TOPOLOGIES if name != "good"}
    return Virtual(folder, lambda: SimulatedLauncher(4, seed=3, faults=Faults(hangs=0, crashes=0, planted=planted)))


def answer(
    behaviour: Behaviour, seconds: float | None = None, workload: Workload = WORKLOAD, cluster: Cluster = CLUSTER
) -> ReplayedRun:
    return ReplayedRun(
        workload=workload,
        cluster=cluster,
        topology=TOPOLOGIES[behaviour],
        outcome=OUTCOMES[behaviour],
        seconds=seconds,
        memory=30e9 if seconds else None,
        note="as tabled",
    )


def replay(folder: Path) -> Stage:
    rows = [answer("good", 10.0), answer("good", 11.0), answer("oom"), answer("crash"), answer("hang")]
    return Virtual(folder, lambda: ReplayLauncher(rows, nodes=4))


class Real(Virtual):
    """A stage of real processes on this machine, with small scripts as trainers."""

    looks, look, slack, many = 100, 0.3, 60.0, 6
    tags = f"study-{os.getpid()}"  # unique, because the end of a job kills all processes with its tag


TRAINER = Path(__file__).parent / "trainer.py"
"""A program in plain Python with selectable behaviour, which prints as Megatron does."""


def command(*words: str) -> str:
    """Return a `--command` that runs the trainer."""
    return shlex.join([sys.executable, "-I", "-S", str(TRAINER), *words])


def template(*words: str, on_host: bool = False) -> CommandTemplate:
    """Return the trainer's command as a launcher's program."""
    return CommandTemplate.parse(command(*words), configure=lambda _: {}, cwd=Path("/"), on_host=on_host)


def local(folder: Path) -> Stage:
    behaviours = ",".join(f"{chosen.key}={name}" for name, chosen in TOPOLOGIES.items())
    program = template("--by", "{key}", behaviours, "--iterations", "{iterations}")
    return Real(folder, lambda: LocalLauncher(program, ranks=8))


def slurm(folder: Path) -> Stage:
    from tests.slurm_stage import OnSlurm  # it starts a cluster

    return OnSlurm(folder)


def slurm_steps(folder: Path) -> Stage:
    from tests.slurm_stage import InAllocation

    return InAllocation(folder)


STAGES: dict[str, Callable[[Path], Stage]] = {
    "simulated": simulated,
    "replay": replay,
    "local": local,
    "slurm": slurm,
    "slurm-steps": slurm_steps,
}
"""The stage of each launcher."""

MARKED = {"slurm": pytest.mark.cluster, "slurm-steps": pytest.mark.cluster}
"""Markers of stages that do not run on every machine."""
