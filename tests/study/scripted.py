"""A launcher that a test scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tuner.core.errors import LaunchError
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.study.loop import RunningTrial, StudyLoop

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

    def end_with(self, results: Sequence[JobResult]) -> None:
        """Let the jobs have these results, in the order in which they are submitted."""
        self.result = lambda handle: results[int(handle.removeprefix("job")) - 1]

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


def running_of(made: StudyLoop, launcher: Scripted, *, ran: float | None = None) -> RunningTrial:
    """The one running job of a study whose jobs do not end; it began `ran` seconds ago."""
    launcher.status = lambda _: JobStatus(state=JobState.UNKNOWN)
    made.step()
    (running,) = made.running.values()
    if ran is not None:
        running.watch = replace(running.watch, began=launcher.clock - ran)
    return running


def begun(
    study: Callable[..., Any], *, ran: float | None = None, **settings: Any
) -> tuple[StudyLoop, Scripted, RunningTrial]:
    """A study, its launcher, and its one running job."""
    made, launcher, _ = study(**settings)
    return made, launcher, running_of(made, launcher, ran=ran)


def stored(made: StudyLoop) -> Any:
    """The stored result of a study's one trial."""
    (trial,) = made.store.trials()
    return trial.result


def clocked(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The clock of the loop, at 500 seconds."""
    clock = {"now": 500.0}
    monkeypatch.setattr("tuner.study.loop.time.monotonic", lambda: clock["now"])
    return clock
