"""Jobs on a Slurm cluster, each in an allocation of its own.

A job's own script is the first source of its state, the queue the second, the accounting the third. While the
controller does not answer, its jobs are UNKNOWN. A job is identified by its id and a unique name, because a controller
that loses its state reuses ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.text import counted, listed
from tuner.launch.contract import Job, JobState, JobStatus
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.slurm import states
from tuner.launch.slurm.base import MIN_FILE_INTERVAL, BaseSlurmLauncher
from tuner.launch.slurm.commands import ControllerUnreachable, no_answer
from tuner.launch.slurm.job import NEVER_STARTS, NOTE, TrackedJob
from tuner.launch.slurm.parsing import QueuedJob, largest_partition, printed_job_id, refusal, why_never_starts
from tuner.launch.slurm.script import batch_script, job_name
from tuner.launch.slurm.tracker import MAX_CANCEL_SECONDS, TrackerOptions, first_note, not_cancelled, submitted_id

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_FILE_INTERVAL: Final = 2.0
"""Seconds between two checks of the jobs' files once nothing has changed for a while."""


class SlurmLauncher(BaseSlurmLauncher):
    """The cluster that `sbatch` submits to."""

    queues = True

    def __init__(self, program: Program, *, nodes: int, **options: Unpack[TrackerOptions]) -> None:
        super().__init__(program, **options)
        self._nodes = nodes
        self._interval = self._tracker.poll_interval
        self._unstartable: tuple[int, str] | None = None
        """Minimum number of nodes for which Slurm would never start a job, and why."""

    @property
    def nodes(self) -> int:
        """The number of nodes that all jobs can use together."""
        return self._nodes

    def check(self) -> None:
        """Check that the partition exists and is large enough."""
        wanted = self._tracker.site.partitions
        try:
            found = self._queue.partitions()
        except ControllerUnreachable as error:
            raise no_answer(error) from None
        absent = [name for name in wanted if name not in found]
        if found and absent:
            raise InputError(f"Slurm has no partition {listed(absent)} that is up; it has {listed(found)}.")
        most = largest_partition(found, wanted)
        if most is not None and self.nodes > most:
            sizes = listed(f"{name} has {count}" for name, count in found.items() if not wanted or name in wanted)
            raise InputError(
                f"no partition has {counted(self.nodes, 'node')}: {sizes}; request at most {most} with --nodes."
            )

    # -- submitting

    def submit(self, job: Job) -> str:
        """Write the job's script and submit it with `sbatch`."""
        self._check_size(job)
        if self._unstartable and job.topology.nodes >= self._unstartable[0]:
            raise LaunchError(f"{job.topology.key} would never start, like an earlier job: {self._unstartable[1]}.")
        with self._tracker.prepared(job, lambda start: self._text(job, start), first_note(job, None)) as script:
            job_id = self._sbatch(job, script)
        write_object(job.folder / NOTE, first_note(job, job_id))
        return self._tracker.track(job.folder, job.tag, job_id, submitted=True)

    def _text(self, job: Job, start: ProcessSpec) -> str:
        return batch_script(
            job, start, self._tracker.site, accelerators=not self.on_host, exclude=sorted(self.excluded)
        )

    def _sbatch(self, job: Job, script: Path) -> str:
        """Submit a script exactly once, even if the controller answers late or is down for a while; return the id."""
        failure = f"cannot submit {job.topology.key}"
        for attempt in self._tracker.attempts(failure):
            with suppress(ControllerUnreachable), self._tracker.submission_lock(job.folder) as lock:
                if attempt and (row := self._queue.newest(job_name(job.tag))):
                    return row.id  # an earlier attempt has arrived
                output = self._tracker.commands.run("sbatch", "--parsable", str(script.resolve()), lock=lock)
                if not output.code and (job_id := printed_job_id(output.out)):
                    return job_id
                if row := self._queue.newest(job_name(job.tag)):
                    return row.id  # a site's wrapper or hook hid the id, or failed after the submission
                raise LaunchError(f"{failure}: {refusal(output.err or output.out)}.")
        raise AssertionError  # pragma: no cover - the attempts end with an error

    # -- watching

    def wait(self, most: float) -> None:
        """Wait until a job's files change, or the queue may be read again."""
        deadline, interval = self.now() + most, MIN_FILE_INTERVAL
        before = self._file_marks()
        while (left := deadline - self.now()) > 0:
            due = self._interval.due - self.now() if before else left
            if due <= 0:
                return
            self._tracker.sleep(min(interval, left, max(due, 0.001)))
            if self._file_marks() != before:
                return
            interval = min(MAX_FILE_INTERVAL, 1.2 * interval)

    def _file_marks(self) -> list[tuple[int, int]]:
        return [tracked.file_marks() for tracked in self._tracker.open_jobs()]

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return each job's status: by its files, and by the queue, which is read at most once and only when due."""
        found = {handle: self._tracker.find(handle) for handle in handles}
        jobs = [tracked for tracked in found.values() if tracked is not None]
        now = self.now()
        for tracked in jobs:
            if tracked.read_files(now):
                self._interval.reset(now)
        if any(not tracked.state.over for tracked in jobs) and now >= self._interval.due:
            self._read_queue(now)
        return {handle: self._tracker.status(tracked, self._cancel) for handle, tracked in found.items()}

    def _read_queue(self, now: float) -> None:
        """Read the queue: one query for all jobs that are not over."""
        try:
            queue = self._queue.all()
        except ControllerUnreachable:
            for tracked in self._tracker.open_jobs():
                tracked.observe(states.ControllerQueried(answered=False), now)
            self._interval.polled(self.now(), changed=False)
            return
        changed = False
        for tracked in self._tracker.open_jobs():
            row = queue.get(tracked.job.id)
            changed |= self._observe_row(
                tracked, row if row is not None and row.name == tracked.job.name else None, now
            )
        for tracked in self._tracker.jobs.values():
            if tracked.state.suspect_nodes:
                self._examine_nodes(tracked)
        self._interval.polled(self.now(), changed=changed)

    def _observe_row(self, tracked: TrackedJob, row: QueuedJob | None, now: float) -> bool:
        """Take a job's row of the queue into account; whether it has changed."""
        job, before = tracked.job, tracked.state.queue.row

        def observe(row: QueuedJob | None) -> None:
            tracked.observe(states.QueueRead(row=row, files=job.files(now)), now)

        observe(row)
        if row is None and not tracked.state.over and (old := self._queue.accounted(job.name, job.id)):
            observe(old)
        state = tracked.state
        unreported = state.report is not None and state.exit is None
        if unreported and (code := self._queue.exit_code(job.name, job.id)) is not None:
            tracked.observe(states.ExitCodeRead(code=code), now)
        if not state.over and row is not None and row.state == "PENDING" and (why := why_never_starts(row.reason)):
            self._unstartable = (job.node_count, why)
            self._cancel(tracked, NEVER_STARTS + why)
        return row is None or row != before or state.over or state.queue.over_since is not None

    # -- nodes that fail

    def _examine_nodes(self, tracked: TrackedJob) -> None:
        """Query which suspect nodes of a job have failed, and exclude them; without an answer, retry later."""
        failed = self._queue.failed_among(tracked.state.suspect_nodes)
        if failed is not None:
            tracked.observe(states.NodesExamined(failed=", ".join(failed)), self.now())
            self._tracker.exclude(failed)

    # -- ending

    def cancel(self, handle: str) -> None:
        """Cancel the job by id and name, and return when it is gone."""
        tracked = self._tracker.find(handle)
        if tracked is None:
            return
        tracked.read_files(self.now())
        if not tracked.state.over:
            self._cancel(tracked, "cancelled")

    def _cancel(self, tracked: TrackedJob, reason: str) -> None:
        job = tracked.job
        tracked.observe(states.CancelRequested(reason=reason), self.now())
        deadline = self.now() + MAX_CANCEL_SECONDS
        for _ in self._tracker.attempts(f"cannot cancel job {job.id}"):
            pause = 0.05
            with suppress(ControllerUnreachable):
                error = self._queue.cancel(job.name)
                while True:
                    row = self._queue.one(job.name, job.id)
                    ended = row is None or row.job_state is JobState.ENDED or row.state == "PREEMPTED"
                    late = self.now() > deadline
                    if ended or (late and row is not None and row.state == "COMPLETING"):
                        self._tracker.confirm_cancel(tracked, row)
                        return
                    if late:
                        raise not_cancelled(f"job {job.id}", row.state if row else "", error)
                    self._tracker.sleep(pause)
                    pause = min(1.0, 1.3 * pause)
                    if error:
                        error = self._queue.cancel(job.name)

    def cancel_left(self, tags: Iterable[str]) -> None:
        """Cancel the jobs of trials that are over, such as one requeued by an administrator after its end."""
        with suppress(ControllerUnreachable):
            for name in self._queue.open_names() & {job_name(tag) for tag in tags}:
                self._queue.cancel(name)

    def close(self) -> None:
        """Do nothing: the jobs keep running."""

    # -- adopting

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """Return the handle of an earlier process's job: by its note, else by its name in the queue or accounting."""
        note = read_object(job.folder / NOTE)
        job_id = submitted_id(job, handle)
        if job_id is None and job.folder.is_dir():
            for _ in self._tracker.attempts(f"cannot determine whether {job.topology.key} was submitted"):
                with suppress(ControllerUnreachable), self._tracker.submission_lock(job.folder):
                    job_id = self._found_id(job)
                    break
        if job_id is None:
            return None
        if note.get("job") != job_id:
            with suppress(OSError):
                write_object(job.folder / NOTE, first_note(job, job_id))
        handle = self._tracker.track(job.folder, job.tag, job_id, submitted=False)
        tracked = self._tracker.jobs[handle]
        if tracked.job.step and not tracked.state.over:  # begun with --within-allocation, unlike this study
            tracked.observe(states.CancelRequested(reason="cancelled"), self.now())
            self._tracker.cancel_steps(tracked)
        return handle

    def _found_id(self, job: Job) -> str | None:
        """Return the id of a job that was perhaps submitted, while no submission is in progress."""
        if (noted := submitted_id(job, None)) is not None:
            return noted
        for name in ("ended.json", "began.json"):
            document = read_object(job.folder / name)
            if document.get("tag") == job.tag:
                return str(document.get("job"))
        row = self._queue.newest(job_name(job.tag))
        return row.id if row is not None else None
