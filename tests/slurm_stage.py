"""Stages for the Slurm launchers, on the live cluster of `tests/slurm_cluster.py`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import uuid4

from tests import slurm_cluster
from tests.stages import TOPOLOGIES, Behaviour, job_in
from tuner.launch import Job
from tuner.launch.program import ProcessSpec
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.logs import StepPattern

ACTOR = Path(__file__).with_name("actor.py")
ONCE = SiteProfile(tasks="once", gres="")
BY_NODE = SiteProfile(tasks="nodes", gres="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """A program whose behaviour is selected by its topology."""

    measured_by_log: bool = False
    on_host: bool = False
    several_batches: bool = False
    step_pattern: StepPattern | None = None

    def prepare(self, job: Job) -> ProcessSpec:
        """Return the actor's command."""
        behaviour = next(name for name, topology in TOPOLOGIES.items() if topology.tp == job.topology.tp)
        if job.topology == TOPOLOGIES["oom"]:
            behaviour = "oom"
        result = job.folder.resolve() / "result.json"
        words = (sys.executable, "-I", str(ACTOR), behaviour, str(max(job.iterations)), str(result))
        return ProcessSpec(arguments=words, environment={}, cwd=Path("/"), result=result)

    def dumps_on_signal(self, pid: int) -> bool:  # noqa: ARG002 - an actor has no useful stacks
        """Return False."""
        return False


class _Cluster:
    """Base of the stages on the live cluster."""

    looks, look, slack, many = 120, 0.5, 60.0, 20

    def __init__(self, folder: Path, site: SiteProfile = ONCE) -> None:
        self.cluster = slurm_cluster.running()
        self.cluster.clear()
        self.folder, self.site = folder, site
        self._numbers, self._opened = count(), list[SlurmLauncher | SlurmStepLauncher]()

    def job(
        self, behaviour: Behaviour = "good", *, iterations: tuple[int, ...] = (2,), folder: Path | None = None
    ) -> Job:
        """Return a job of one node."""
        number = next(self._numbers)
        folder = folder or self.folder / f"{number:04d}-{behaviour}"
        return job_in(folder, number=number, tag=uuid4().hex, topology=TOPOLOGIES[behaviour], iterations=iterations)

    def queries(self) -> int | None:
        """Return how often the queue was read."""
        return sum(launcher._queue.reads for launcher in self._opened)


class OnSlurm(_Cluster):
    """A stage of real jobs."""

    def open(self) -> SlurmLauncher:
        """Return a new launcher, as of another process."""
        self._opened.append(launcher := SlurmLauncher(Acting(), nodes=4, site=self.site))
        return launcher


class InAllocation(_Cluster):
    """A stage of job steps inside one allocation of all nodes."""

    def __init__(self, folder: Path, site: SiteProfile = BY_NODE) -> None:
        super().__init__(folder, site)
        self.number = self.cluster.allocate()

    def open(self, *, notes: Path | None = None) -> SlurmStepLauncher:
        """Return a new launcher, as of another process."""
        allocation = Allocation(number=self.number, nodes=slurm_cluster.NODES, cores=slurm_cluster.CPUS)
        self._opened.append(steps := SlurmStepLauncher(Acting(), allocation=allocation, site=self.site, notes=notes))
        return steps
