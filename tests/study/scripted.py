"""A launcher that is scripted by a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tuner.core.errors import LaunchError
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.study.loop import StudyLoop
from tuner.study.watchdog import RunningTrial

MEASURED = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=2.0), elapsed=90.0)


class Scripted:
    """A launcher of 4 nodes whose clock and job statuses are set by a test."""

    name, simulated, outlives, queues = "scripted", False, True, False
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
        self.adopted: Any = None

    def end_with(self, results: Sequence[JobResult]) -> None:
        """Give the jobs these results, in the order of submission."""
        self.result = lambda handle: results[int(handle.removeprefix("job")) - 1]

    def now(self) -> float:
        """The clock."""
        return self.clock

    def wait(self, most: float) -> None:
        """Record the wait and advance the clock by it."""
        self.waited.append(most)
        self.clock += most

    def submit(self, job: Job) -> str:
        """Start the job, or raise LaunchError while `refuses` is positive."""
        if self.refuses:
            self.refuses -= 1
            raise LaunchError("no more files.")
        self.jobs.append(job)
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "start.json").write_text("{}", encoding="utf-8")
        return f"job{len(self.jobs)}"

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status set by the test for each handle."""
        return {handle: self.status(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Record the handle."""
        self.cancelled.append(handle)

    def collect(self, handle: str) -> JobResult:
        """Return the result set by the test."""
        return self.result(handle)

    def explain(self, handle: str) -> str:
        """Record the handle and return a fake stack trace."""
        self.explained.append(handle)
        return "stacks"

    def adopt(self, job: Job, _handle: str) -> str | None:
        """Return the handle set by the test."""
        self.adopted = job
        return self.found


def running_of(made: StudyLoop, launcher: Scripted, *, ran: float | None = None) -> RunningTrial:
    """Start a job that does not end, and return it; it began `ran` seconds ago."""
    launcher.status = lambda _: JobStatus(state=JobState.UNKNOWN)
    made.step()
    (running,) = made.running.values()
    if ran is not None:
        running.watch = replace(running.watch, began=launcher.clock - ran)
    return running


def begun(
    study: Callable[..., Any], *, ran: float | None = None, **settings: Any
) -> tuple[StudyLoop, Scripted, RunningTrial]:
    """Return a study, its launcher, and its one running job."""
    made, launcher, _ = study(**settings)
    return made, launcher, running_of(made, launcher, ran=ran)


def stored(made: StudyLoop) -> Any:
    """Return the stored result of a study's only trial."""
    (trial,) = made.store.trials()
    return trial.result


def clocked(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Replace the clock of the loop by one that starts at 500 s, and return it."""
    clock = {"now": 500.0}
    monkeypatch.setattr("tuner.study.loop.time.monotonic", lambda: clock["now"])
    return clock
