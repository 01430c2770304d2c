"""The common base of both Slurm launchers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tuner.core.errors import LaunchError
from tuner.core.text import counted
from tuner.launch.contract import Job, JobResult, JobStatus
from tuner.launch.program import Program
from tuner.launch.slurm.job import TrackedJob
from tuner.launch.slurm.tracker import JobTracker, TrackerOptions, explanation

if TYPE_CHECKING:
    from typing_extensions import Unpack

MIN_FILE_INTERVAL: Final = 0.25
"""Seconds between two checks of the jobs' files."""


class BaseSlurmLauncher(ABC):
    """A launcher of jobs that a `JobTracker` watches; subclasses start them, poll them and cancel them."""

    name = "slurm"
    simulated = False
    outlives = True

    def __init__(self, program: Program, **options: Unpack[TrackerOptions]) -> None:
        self._tracker = JobTracker(program, **options)
        self._queue = self._tracker.queue
        self.on_host, self.several_batches = program.on_host, program.several_batches
        self.now = self._tracker.now

    @property
    @abstractmethod
    def nodes(self) -> int:
        """The number of nodes that jobs can use."""

    @abstractmethod
    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return each job's status."""

    @property
    def excluded(self) -> dict[str, str]:
        """Nodes that have failed, with the reason; no further job uses them."""
        return self._tracker.excluded

    def collect(self, handle: str) -> JobResult:
        """Return the job's result: by its result file, its log, its script's exit, and the queue."""
        tracked = self._tracker.find(handle)
        if tracked is not None and not tracked.state.over:
            self.poll([handle])
        return self._tracker.result(handle)

    def explain(self, handle: str) -> str:
        """Return which nodes of a job have failed, or the file to which every rank has written its stacks."""
        tracked = self._tracker.find(handle)
        if tracked is None or tracked.state.over:
            return ""
        if failed := self._tracker.failed_among(tracked):
            self._tracker.exclude(failed)
            return explanation(failed)
        return self._tracker.write_stacks(tracked, self._step_id)

    def _step_id(self, tracked: TrackedJob) -> str:
        """Return the id of the step in which a job's ranks run."""
        return f"{tracked.job.id}.0"

    def _check_size(self, job: Job) -> None:
        """Raise if a job needs more nodes than there are."""
        if job.topology.nodes > self.nodes:
            needs, usable = counted(job.topology.nodes, "node"), counted(self.nodes, "node")
            raise LaunchError(f"{job.topology.key} needs {needs}, but only {usable} can be used.")
