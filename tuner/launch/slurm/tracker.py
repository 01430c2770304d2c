"""Common parts of both Slurm launchers: the controller, a clock, watched jobs, and failed nodes."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypedDict

from tuner.core.atomic_write import open_regular, read_object, write_object
from tuner.core.errors import LaunchError
from tuner.core.text import listed
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.launch.excluded_nodes import excluded_nodes, write_excluded_nodes
from tuner.launch.log_tail import OUTPUTS, size_of
from tuner.launch.outcome import size_note
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.slurm import states
from tuner.launch.slurm.commands import ControllerUnreachable, PollInterval, SlurmCommands
from tuner.launch.slurm.job import MEASURED, NOTE, TrackedJob, result_of
from tuner.launch.slurm.parsing import QueuedJob
from tuner.launch.slurm.queue import SlurmQueue
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainer_log import link_log

SCRIPT: Final = "job.sh"

MAX_OUTAGE: Final = 600.0
"""Seconds without an answer of the controller after which a submission or a cancel fails."""

MAX_CANCEL_SECONDS: Final = 60.0
"""Seconds to wait for Slurm to end a job; a node that is down keeps it COMPLETING for longer."""

STACKS_TIMEOUT: Final = 3.0
"""Seconds to wait until the ranks of a job begin to write their stacks."""

MAX_STACKS_BYTES: Final = 16 << 20
"""Bytes of stacks that are copied."""

_STALE_FILES: Final = ("ended.json", "began.json", "result.json", *OUTPUTS, NOTE)
"""Files that an earlier job may have left in a folder."""


class TrackerOptions(TypedDict, total=False):
    """Optional arguments of a `JobTracker`, which the launchers take too."""

    site: SiteProfile | None
    notes: Path | None
    """Folder of the study's notes, where failed nodes are recorded."""
    commands: SlurmCommands | None
    poll_interval: PollInterval | None
    clock: Callable[[], float]
    sleep: Callable[[float], None]


class JobTracker:
    """The jobs of one launcher, by their handles."""

    def __init__(
        self,
        program: Program,
        *,
        site: SiteProfile | None = None,
        notes: Path | None = None,
        commands: SlurmCommands | None = None,
        poll_interval: PollInterval | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.program, self.site, self.notes = program, site or SiteProfile(), notes
        self.commands = commands or SlurmCommands()
        self.queue = SlurmQueue(self.commands)
        self.poll_interval = poll_interval or PollInterval()
        self.excluded: dict[str, str] = excluded_nodes(notes) if notes else {}
        """Nodes that have failed, with the reason; no further job uses them."""
        self.jobs: dict[str, TrackedJob] = {}
        self.sleep, self._clock, self._last_time = sleep, clock, 0.0

    def now(self) -> float:
        """Return the seconds since 1970; never less than the last call returned."""
        self._last_time = max(self._last_time, self._clock())
        return self._last_time

    def open_jobs(self) -> list[TrackedJob]:
        """Return the jobs that are not over."""
        return [tracked for tracked in self.jobs.values() if not tracked.state.over]

    def track(self, folder: Path, tag: str, job_id: str, *, submitted: bool) -> str:
        """Watch a job from now on, and return its handle; `submitted` means that this process has just queued it."""
        handle = json.dumps({"job": job_id, "tag": tag, "folder": str(folder.resolve())})
        if handle not in self.jobs:
            last_seen = self.now() if submitted else None
            self.jobs[handle] = TrackedJob(
                folder.resolve(), tag, job_id, last_seen_waiting=last_seen, pattern=self.program.step_pattern
            )
            self.poll_interval.reset(self.now())
        return handle

    def find(self, handle: str) -> TrackedJob | None:
        """Return the job of a handle, of this process or of another one."""
        if handle in self.jobs:
            return self.jobs[handle]
        try:
            document = json.loads(handle)
            folder, tag, job_id = Path(document["folder"]), str(document["tag"]), str(document["job"])
        except (ValueError, TypeError, KeyError):
            return None
        return self.jobs[self.track(folder, tag, job_id, submitted=False)]

    def status(self, tracked: TrackedJob | None, cancel: Callable[[TrackedJob, str], None]) -> JobStatus:
        """Return a job's status; a job that is measured by its log is cancelled after its last iteration."""
        if tracked is None:
            return JobStatus(state=JobState.LOST)
        complete = tracked.log.progress.complete(max(tracked.job.iterations))
        if not tracked.state.over and self.program.measured_by_log and complete:
            try:
                cancel(tracked, MEASURED)
            except LaunchError as error:  # retried at the next poll
                return JobStatus(state=JobState.WAITING, reason=str(error))
        return tracked.status(self.now())

    def result(self, handle: str) -> JobResult:
        """Return the result of a job that is over."""
        tracked = self.find(handle)
        if tracked is None or not tracked.state.over:
            raise LaunchError("a job that has not ended has no result to collect.")
        program = self.program
        return result_of(
            tracked.job,
            tracked.state,
            on_host=program.on_host,
            by_log=program.measured_by_log,
            pattern=program.step_pattern,
        )

    # -- submitting

    @contextmanager
    def prepared(self, job: Job, text: Callable[[ProcessSpec], str], note: Mapping[str, Any]) -> Iterator[Path]:
        """Write a job's files and yield its script; remove them if the submission fails."""
        existed = job.folder.exists()
        try:
            job.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in _STALE_FILES:
                (job.folder / name).unlink(missing_ok=True)
            before = set(job.folder.iterdir())
            script = job.folder / SCRIPT
            start = self.program.prepare(job)
            script.write_text(text(start), encoding="utf-8")
            if start.log is not None:
                link_log(job.folder, start.log)
            write_object(job.folder / NOTE, note)
        except OSError as error:
            raise LaunchError(f"cannot write to {job.folder}: {error.strerror or error}.") from None
        try:
            yield script
        except LaunchError:
            for path in set(job.folder.iterdir()) - before:
                path.unlink()
            if not existed:
                job.folder.rmdir()
            raise

    def attempts(self, action: str) -> Iterator[int]:
        """Yield attempt numbers at increasing intervals, until the controller has been silent for too long."""
        deadline, pause, attempt = self.now() + MAX_OUTAGE, 2.0, 0
        while True:
            yield attempt
            if self.now() > deadline:
                raise LaunchError(f"{action}: Slurm has not answered for {MAX_OUTAGE / 60:.0f} minutes.")
            self.sleep(pause)
            pause, attempt = min(30.0, 1.5 * pause), attempt + 1

    @contextmanager
    def submission_lock(self, folder: Path) -> Iterator[int | None]:
        """Lock a job's folder; `sbatch` inherits the lock, so that an adopting process waits until it has finished."""
        with (folder / ".sending").open("w") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    # -- cancelling

    def cancel_steps(self, tracked: TrackedJob) -> None:
        """Cancel the steps of a job inside an allocation, and return when they are gone."""
        job, deadline = tracked.job, self.now() + MAX_CANCEL_SECONDS
        for _ in self.attempts(f"cannot cancel the step of {job.name}"):
            with suppress(ControllerUnreachable):
                while (errors := self.queue.cancel_steps(job.id, job.name)) and self.now() < deadline:
                    self.sleep(0.2)
                if any(errors.values()):
                    step, error = next((step, error) for step, error in errors.items() if error)
                    raise not_cancelled(f"step {step}", "in the queue", error)
                break
        self.confirm_cancel(tracked, None)

    def confirm_cancel(self, tracked: TrackedJob, row: QueuedJob | None) -> None:
        """Record that a cancelled job is gone."""
        now = self.now()
        tracked.observe(states.CancelConfirmed(row=row, files=tracked.job.files(now)), now)

    # -- nodes and ranks

    def exclude(self, nodes: Mapping[str, str]) -> None:
        """Exclude these nodes from further jobs."""
        if not set(nodes) <= set(self.excluded):
            self.excluded |= nodes
            if self.notes is not None:
                write_excluded_nodes(self.notes, self.excluded)

    def write_stacks(self, tracked: TrackedJob, step_of: Callable[[TrackedJob], str]) -> str:
        """Signal every rank to write its stacks into the job's stderr; return the file that they are copied to."""
        if self.program.measured_by_log:
            return ""
        folder = tracked.job.folder
        before = size_of(folder / "stderr.log")
        with suppress(ControllerUnreachable):
            self.commands.run("scancel", "--quiet", "--signal=USR1", step_of(tracked))
            deadline = self.now() + STACKS_TIMEOUT
            while self.now() < deadline and size_of(folder / "stderr.log") == before:
                self.sleep(0.1)
            self.sleep(0.5)
        with suppress(OSError):
            with open_regular(folder / "stderr.log") as file:
                file.seek(before)
                text = file.read(MAX_STACKS_BYTES)
            if text:
                (folder / "stacks.txt").write_bytes(text)
                return f"stacks of its ranks: {folder.name}/stacks.txt"
        return ""

    def failed_among(self, tracked: TrackedJob) -> dict[str, str]:
        """Return the nodes of a job that have failed, and how; none if Slurm does not answer."""
        return (self.queue.failed_among(tracked.state.nodes) or {}) if tracked.state.nodes else {}


def not_cancelled(name: str, state: str, error: str) -> LaunchError:
    """Return the error for a job or step that still exists after its cancel."""
    after = f"after {MAX_CANCEL_SECONDS:.0f} s it is still {state}{f' (scancel: {error})' if error else ''}"
    return LaunchError(f"{name} cannot be cancelled: {after}; ask your site's administrators to end it.")


def explanation(nodes: Mapping[str, str]) -> str:
    """Return why a job on failed nodes makes no progress."""
    return listed(f"{name} is {reason}" for name, reason in nodes.items())


def first_note(job: Job, job_id: str | None) -> dict[str, Any]:
    """Return the first note of a job; its id is unknown until `sbatch` has returned."""
    return {
        "tag": job.tag,
        "job": job_id,
        "iterations": list(job.iterations),
        **size_note(job),
        "nodes": job.topology.nodes,
    }


def submitted_id(job: Job, handle: str | None) -> str | None:
    """Return the id under which an earlier process submitted a job, by its note or else its handle."""
    note = read_object(job.folder / NOTE)
    if note.get("tag") == job.tag and note.get("job") is not None:
        return str(note["job"])
    with suppress(ValueError, TypeError, KeyError):
        document = json.loads(handle or "")
        return str(document["job"]) if document["tag"] == job.tag else None
    return None
