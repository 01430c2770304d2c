"""The contract of every launcher; `tests/launch/test_launchers.py` tests each against it.

- `submit` returns at once with a handle by which this or another process finds the job; a job that cannot be started
  raises `LaunchError` and leaves nothing behind.
- `poll` finds out the status of all handles with one query. What it cannot determine is UNKNOWN, never failed.
- A job that is WAITING is not running, and its time limits do not count.
- A job ends as soon as its last iteration is measured. From then on `collect` may be called any number of times and
  always returns the same.
- Iterations are counted from the start of the job, by the lines of its log: one that resumes at iteration 5,001 and
  prints every tenth one is measured at 5,020, its second line.
- `cancel` ends a job with all its children and waits until it is gone; it may be called in any state, twice, and with
  an unknown handle.
- `adopt` finds a job that an earlier process has submitted by its tag, even where its handle was not recorded, and
  returns None if there is none.
- Each launcher has its own clock: `now` never runs backwards, and `wait` returns when something may have changed, at
  the latest after the given seconds. The simulated launcher waits without sleeping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Failure, Measurement, Outcome

STEPS: Final = "steps.log"
"""The file in a job's folder that `tuner.step` writes."""


class JobState(str, Enum):
    """The state of a job."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    LOST = "LOST"
    """The job is gone, and nothing reports how it ended."""
    UNKNOWN = "UNKNOWN"
    """The machines do not answer; poll again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job to run: one topology for a few iterations."""

    number: int
    """Number of its trial."""
    tag: str
    """Unique among all jobs."""
    folder: Path
    """The folder for the job's files."""
    workload: Workload
    cluster: Cluster
    topology: Topology
    iterations: tuple[int, ...] = (2,)
    """The iterations to measure, counted from the start of the job; the last ends it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its processes, besides those of the program."""
    batches: tuple[int, ...] = ()
    """Global batches to measure one after the other, each for all `iterations`; empty: only the workload's own. The
    last of them is the topology's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a job at one moment."""

    state: JobState
    began: float | None = None
    """When it started to run, by the launcher's clock."""
    iterations: int = 0
    """Iterations finished, counted from the start of the job; of a log with one line per ten, the lines."""
    number: int = 0
    """Number that the job gives to the last of them; different if it resumes a training."""
    interval: int | None = 1
    """Iterations from one line of the log to the next; None while unknown."""
    seconds_in: float = 0.0
    """Seconds since the last of them, or since the start."""
    share: float | None = None
    """Completed fraction of the current iteration, if the job reports it."""
    moved: float | None = None
    """When it last showed progress, by the launcher's clock."""
    reason: str = ""
    """The reason for waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job: MEASURED with a measurement, any other outcome with a failure.

    A launcher fills in the fields up to `retried`; the study adds the others when it stores the result.
    """

    outcome: Outcome
    measurement: Measurement | None = None
    failure: Failure | None = None
    """Why there is no measurement; of a measured job, how its first attempt failed."""
    elapsed: float = 0.0
    """Seconds for which the job occupied its nodes."""
    retried: str = ""
    """Why the job was restarted, and which nodes failed under it; empty if it was not."""
    objective: float | None = None
    """Days until training finishes, at equal compute."""
    forecast: float | None = None
    """Predicted seconds per iteration at full size, of a job that was pruned or ran at a reduced size."""
    least: float | None = None
    """Seconds that an iteration takes at least, of a job that was pruned."""
    node_hours: float = 0.0
    clock: float = 0.0
    """When the job ended, by the launcher's clock."""
    simulated: bool = False

    @property
    def seconds(self) -> float | None:
        """Measured seconds per iteration."""
        return self.measurement.seconds if self.measurement else None

    @property
    def tflops(self) -> float | None:
        """TFLOPs per GPU that the job itself logged."""
        return self.measurement.tflops if self.measurement else None

    @property
    def note(self) -> str:
        """A note on the measurement."""
        return self.measurement.note if self.measurement else ""

    @property
    def peak_memory(self) -> float | None:
        """Measured bytes on the fullest GPU."""
        return self.measurement.peak_memory if self.measurement else None

    @property
    def reason(self) -> str:
        """Why the job ended without a measurement, in plain words."""
        return self.failure.meaning or self.failure.kind if self.failure else ""

    @property
    def evidence(self) -> str:
        """The log line, or file, that explains the failure."""
        return self.failure.evidence if self.failure else ""

    @property
    def explanation(self) -> str:
        """The evidence of the failure, after its reason where a log line may not tell it; the reason without any."""
        tells = self.outcome not in (Outcome.CRASHED, Outcome.HUNG) or self.reason in ("", self.outcome, self.evidence)
        return (self.evidence or self.reason) if tells or not self.evidence else f"{self.reason}: {self.evidence}"


class Launcher(Protocol):
    """Starts jobs and watches them."""

    name: str
    simulated: bool
    """Whether its measurements are simulated, and labelled so wherever they are printed."""
    queues: bool
    """Whether more jobs than fit wait in a queue of the cluster's own, at no cost."""
    outlives: bool
    """Whether its jobs outlive the tuner, so that an interrupted study leaves them to the next process."""

    several_batches: bool
    """Whether one job can measure several global batches."""

    @property
    def nodes(self) -> int:
        """The number of nodes that all jobs can use together."""

    def now(self) -> float:
        """Return the seconds on the launcher's clock."""

    def wait(self, most: float) -> None:
        """Return when a job may have changed, or after `most` seconds."""

    def submit(self, job: Job) -> str:
        """Start a job and return its handle."""

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each job, with one query."""

    def cancel(self, handle: str) -> None:
        """End a job with all its children; return when it is gone."""

    def collect(self, handle: str) -> JobResult:
        """Return the result of a job that has ended."""

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """Return the handle of a job that an earlier process has submitted; None if there is none."""

    def explain(self, handle: str) -> str:
        """Have every rank of a hung job write its stack; return a sentence that names the file, or an empty one."""

    def close(self) -> None:
        """Release the launcher's own resources."""
