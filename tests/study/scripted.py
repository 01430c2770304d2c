"""A launcher whose jobs do as a test tells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner.core.errors import LaunchError
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import Job, JobResult, JobState, JobStatus

MEASURED = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=2.0), elapsed=90.0)


class Scripted:
    """A launcher of 4 nodes whose clock stands where a test puts it, and whose jobs have the statuses it gives."""

    name, simulated, outlives = "scripted", False, True
    nodes = 4

    def __init__(self) -> None:
        self.clock = 1000.0
        self.jobs: list[Job] = []
        self.cancelled: list[str] = []
        self.explained: list[str] = []
        self.waited: list[float] = []
        self.refuses = 0
        self.status: Callable[[str], JobStatus] = lambda _: JobStatus(state=JobState.ENDED)
        self.result: Callable[[str], JobResult] = lambda _: MEASURED
        self.found: str | None = "adopted"

    def now(self) -> float:
        """The clock."""
        return self.clock

    def wait(self, most: float) -> None:
        """Let that much time pass."""
        self.waited.append(most)
        self.clock += most

    def submit(self, job: Job) -> str:
        """Start it, unless it refuses."""
        if self.refuses:
            self.refuses -= 1
            raise LaunchError("no more files.")
        self.jobs.append(job)
        return f"job{len(self.jobs)}"

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """As the test says."""
        return {handle: self.status(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Note it."""
        self.cancelled.append(handle)

    def collect(self, handle: str) -> JobResult:
        """As the test says."""
        return self.result(handle)

    def explain(self, handle: str) -> str:
        """Stacks."""
        self.explained.append(handle)
        return "stacks"

    def adopt(self, _job: Job, _handle: str) -> str | None:
        """As the test says."""
        return self.found
