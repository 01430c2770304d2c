"""The contract that every launcher keeps; `tests/test_launchers.py` holds each of them to it.

- `submit` returns at once with a handle, a word from which the job is found again also by another process; a job that
  cannot be started raises `LaunchError` and leaves nothing behind.
- `poll` answers for all handles with one query. What it cannot find out is UNKNOWN, never failed.
- A job that is WAITING is not running: nobody's clock ticks.
- A job ends by itself as soon as the last iteration asked for is measured. `collect` may be called from then on, any
  number of times, and always says the same.
- `cancel` ends a job with all its children, may be called in any state and twice, and waits until the job is gone;
  a handle that nobody knows is no error.
- `adopt` finds a job that an earlier process has submitted, by its tag, whether or not its handle was written down;
  it answers None where there is none.
- Time is the launcher's own: `now` never runs backwards, and `wait` returns when something may have changed, at the
  latest after the seconds given. The simulated launcher waits without sleeping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Failure, Measurement, Outcome


class JobState(str, Enum):
    """Where a job is."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    LOST = "LOST"
    """It is nowhere, and nothing tells how it ended."""
    UNKNOWN = "UNKNOWN"
    """Nobody answers; ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to run: one topology for a few iterations."""

    number: int
    """The trial's."""
    tag: str
    """A word that no other job has."""
    folder: Path
    """Where it leaves its files."""
    workload: Workload
    cluster: Cluster
    topology: Topology
    iterations: tuple[int, ...] = (2,)
    """Which iterations are measured; the last ends the job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its processes find in their environment besides what the program gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job at one moment."""

    state: JobState
    began: float | None = None
    """When it began to run, by the launcher's clock."""
    iterations: int = 0
    """Iterations finished."""
    seconds_in: float = 0.0
    """Seconds since the last of them was finished, or since the job began."""
    share: float | None = None
    """How much of the iteration under way is done, where the job tells."""
    moved: float | None = None
    """When it last showed progress, by the launcher's clock."""
    reason: str = ""
    """Why it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job ended: MEASURED with a measurement, CANCELLED where somebody ended it, anything else with a failure.

    A launcher fills in the fields up to `retried`; the study adds the others when it stores the result.
    """

    outcome: Outcome
    measurement: Measurement | None = None
    failure: Failure | None = None
    """Why there is no measurement; of a measured job, how its first attempt failed."""
    elapsed: float = 0.0
    """Seconds for which the job occupied its nodes."""
    retried: str = ""
    """Why the job was restarted, and which nodes failed under it; empty where it was not."""
    objective: float | None = None
    """Days until training finishes, at equal compute."""
    forecast: float | None = None
    """Predicted seconds per iteration of a pruned job."""
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


class Launcher(Protocol):
    """What the loop knows of a launcher."""

    name: str
    simulated: bool
    """Whether what it answers is invented; it is then labelled wherever it is printed."""
    outlives: bool
    """Whether its jobs go on when nobody watches them, so that who is interrupted leaves them to the next process."""

    @property
    def nodes(self) -> int:
        """The number of nodes that jobs can have together."""

    def now(self) -> float:
        """Seconds, by the launcher's own clock."""

    def wait(self, most: float) -> None:
        """Return when a job may have changed, at the latest after `most` seconds."""

    def submit(self, job: Job) -> str:
        """Start a job and return its handle."""

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Where each of the jobs is, found out with one query."""

    def cancel(self, handle: str) -> None:
        """End a job with all its children; return when it is gone."""

    def collect(self, handle: str) -> JobResult:
        """How an ended job ended."""

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """The handle of a job that an earlier process has submitted, or None where there is none."""

    def explain(self, handle: str) -> str:
        """Have every rank of a job that stands still write down what it is doing; where that stands, or nothing."""

    def close(self) -> None:
        """Give back what the launcher itself holds; jobs go on."""
