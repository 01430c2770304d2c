"""Jobs on a Slurm cluster, one allocation each.

What a job's own script writes is the first truth, the queue the second, the accounting the third. A controller that
does not answer says nothing: its jobs are UNKNOWN. A job is known by its id and by a name that no other job has, for
controllers that lose their state give an id twice.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.text import counted, listed
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.launch.excluded_nodes import excluded_nodes, keep_excluded
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.slurm.commands import ControllerUnreachable, PollInterval, SlurmCommands
from tuner.launch.slurm.job import NOTE, SlurmJob, result_of, size_of
from tuner.launch.slurm.queue import SlurmQueue
from tuner.launch.slurm.script import batch_script, job_name
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.states import fitting, never, refused

LOOK: Final = 0.25
"""Seconds between two looks at the jobs' files."""

SLOWEST: Final = 2.0
"""The same once nothing has moved for a while."""

OUTAGE: Final = 600.0
"""Seconds for which a controller may be silent before a submission or a cancel is given up."""

FAREWELL: Final = 60.0
"""Seconds that Slurm may take to end a job; a node that is down keeps it COMPLETING for longer."""

SCRIPT: Final = "job.sh"


class SlurmLauncher:
    """The cluster that `sbatch` submits to."""

    name = "slurm"
    simulated = False
    outlives = True
    _marks: Mapping[str, Any] = {}
    """What is in the note of every job."""

    def __init__(
        self,
        program: Program,
        *,
        nodes: int,
        site: SiteProfile | None = None,
        notes: Path | None = None,
        commands: SlurmCommands | None = None,
        pace: PollInterval | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._program, self._site = program, site or SiteProfile()
        self.nodes, self.on_host = nodes, program.on_host
        self._commands, self._pace = commands or SlurmCommands(), pace or PollInterval()
        self._time, self._sleep, self._clock = clock, sleep, 0.0
        self._jobs: dict[str, SlurmJob] = {}
        self._queue = SlurmQueue(self._commands)
        self._hopeless: tuple[int, str] | None = None
        """From how many nodes on a job would wait for ever, and why."""
        self._notes = notes
        self.excluded = excluded_nodes(notes) if notes else {}
        """Nodes that have failed, and how: no job is sent there any more."""

    def check(self) -> None:
        """That the partition is there and large enough."""
        try:
            known, wanted = self._queue.partitions(), self._site.partitions
        except ControllerUnreachable as silence:
            raise LaunchError(f"Slurm does not answer ({silence}); try again, or ask whether it is down.") from None
        absent = [name for name in wanted if name not in known]
        if known and absent:
            raise InputError(f"Slurm has no partition {listed(absent)} that is up; it has {listed(known)}.")
        most = fitting(known, wanted)
        if most is not None and self.nodes > most:
            raise InputError(
                f"no partition has {counted(self.nodes, 'node')}: "
                f"{listed(f'{name} has {count}' for name, count in known.items() if not wanted or name in wanted)}; "
                f"ask for at most {most} with --nodes."
            )

    @property
    def queries(self) -> int:
        """How often the queue was read."""
        return self._queue.read

    # -- the clock

    def now(self) -> float:
        """Seconds since 1970; a clock that is set back stands still."""
        self._clock = max(self._clock, self._time())
        return self._clock

    def wait(self, most: float) -> None:
        """Until a job's files have changed or the queue may be read again."""
        deadline, look = self.now() + most, LOOK
        before = [sent.mark() for sent in self._open()]
        while (left := deadline - self.now()) > 0:
            due = self._pace.due - self.now() if before else left
            if due <= 0:
                return
            self._sleep(min(look, left, max(due, 0.001)))
            if [sent.mark() for sent in self._open()] != before:
                return
            look = min(SLOWEST, 1.2 * look)

    # -- submitting

    def submit(self, job: Job) -> str:
        """Write the job's script and hand it to `sbatch`."""
        if job.topology.nodes > self.nodes:
            raise LaunchError(f"{job.topology.key} cannot have {job.topology.nodes} nodes; jobs have {self.nodes}.")
        if self._hopeless and job.topology.nodes >= self._hopeless[0]:
            raise LaunchError(f"{job.topology.key} cannot begin, as one before it: {self._hopeless[1]}.")
        with self._prepared(job, self._note(job, None)) as script:
            number = self._sent(job, script)
        write_object(job.folder / NOTE, self._note(job, number))
        return self._known(job.folder, job.tag, number, waits=True)

    @contextmanager
    def _prepared(self, job: Job, note: Mapping[str, Any]) -> Iterator[Path]:
        """The job's files written, its script among them; taken away again where it cannot be submitted."""
        there = job.folder.exists()
        try:
            job.folder.mkdir(parents=True, exist_ok=True)
            for name in ("ended.json", "began.json", "result.json", "stdout.log", "stderr.log", NOTE):
                (job.folder / name).unlink(missing_ok=True)
            before = set(job.folder.iterdir())
            start = self._program.prepare(job)
            script = job.folder / SCRIPT
            script.write_text(self._text(job, start), encoding="utf-8")
            write_object(job.folder / NOTE, note)
        except OSError as error:
            raise LaunchError(f"{job.folder} cannot be used: {error.strerror or error}.") from None
        try:
            yield script
        except LaunchError:
            for path in set(job.folder.iterdir()) - before:
                path.unlink()
            if not there:
                job.folder.rmdir()
            raise

    def _text(self, job: Job, start: ProcessSpec) -> str:
        on_host, without = self._program.on_host, sorted(self.excluded)
        return batch_script(job, start, self._site, accelerators=not on_host, exclude=without)

    def _sent(self, job: Job, script: Path) -> str:
        """The id of the job, submitted once even where the controller answers late or not at all for a while."""
        for tried in self._tries(f"{job.topology.key} cannot be submitted"):
            with suppress(ControllerUnreachable), self._sending(job.folder) as lock:
                if tried and (row := self._queue.named(job_name(job.tag))):
                    return row.id  # it had arrived
                said = self._commands.ask("sbatch", "--parsable", str(script.resolve()), lock=lock)
                number = said.out.strip().split(";")[0]
                if said.code or not number.isdigit():
                    raise LaunchError(f"{job.topology.key} cannot be submitted: {refused(said.err or said.out)}.")
                return number
        raise AssertionError  # pragma: no cover - the tries end with an error

    @contextmanager
    def _sending(self, folder: Path) -> Iterator[int | None]:
        """A lock that `sbatch` keeps even when we are killed: who adopts waits until it is through."""
        with (folder / ".sending").open("w") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    def _tries(self, what: str) -> Iterator[int]:
        """Once, and while the controller is silent again and again, ever more seldom."""
        deadline, pause, tried = self.now() + OUTAGE, 2.0, 0
        while True:
            yield tried
            if self.now() > deadline:
                raise LaunchError(f"{what}: Slurm has not answered for {OUTAGE / 60:.0f} minutes.")
            self._sleep(pause)
            pause, tried = min(30.0, 1.5 * pause), tried + 1

    # -- where jobs are

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Where each job is: by its files, and by the queue, which is read once and not more often than it may."""
        found = {handle: self._find(handle) for handle in handles}
        asked = [sent for sent in found.values() if sent is not None]
        now = self.now()
        for sent in asked:
            if sent.look(now):
                self._pace.stir(now)
        if any(not sent.over for sent in asked) and now >= self._pace.due:
            self._read(now)
        return {handle: self._status(sent) for handle, sent in found.items()}

    def _read(self, now: float) -> None:
        """Read the queue: one query for all jobs that are not over."""
        try:
            there = self._queue.every()
        except ControllerUnreachable:
            for sent in self._open():
                sent.silent = True
            self._pace.asked(self.now(), stirred=False)
            return
        stirred = False
        for sent in self._open():
            row = there.get(sent.number)
            stirred |= sent.queued(row if row is not None and row.name == sent.name else None, now)
            if row is None and not sent.over and (old := self._queue.remembered(sent.name, sent.number)):
                sent.queued(old, now)
            if sent.over and sent.told is None and not sent.lost:
                sent.exited(self._queue.exit_code(sent.name, sent.number))
            if not sent.over and row is not None and row.state == "PENDING" and (why := never(row.reason)):
                self._hopeless = (sent.wants, why)
                self._end(sent, f"never: {why}")
        for sent in self._jobs.values():
            if sent.node_failed:
                self._exclude(sent)
        self._pace.asked(self.now(), stirred=stirred)

    def _status(self, sent: SlurmJob | None) -> JobStatus:
        if sent is None:
            return JobStatus(state=JobState.LOST)
        if not sent.over and self._program.measured_by_log and sent.follower.iterations >= sent.last:
            self._end(sent, "measured")
        return sent.status(self.now())

    # -- nodes that fail

    def _exclude(self, sent: SlurmJob) -> None:
        """Ask which nodes of a job have failed, and send nothing there from now on; who hears nothing asks again."""
        bad = self._queue.unfit_among(sent.node_failed)
        if bad is None:
            return
        sent.node_failed = ""
        if not sent.over:  # how one has ended is told once and for all
            sent.fail_on(", ".join(bad))
        self._leave_out(bad)

    def _leave_out(self, bad: Mapping[str, str]) -> None:
        if not set(bad) <= set(self.excluded):
            self.excluded |= bad
            if self._notes is not None:
                keep_excluded(self._notes, self.excluded)

    # -- ending

    def cancel(self, handle: str) -> None:
        """`scancel`, by id and name; return when the job is gone."""
        sent = self._find(handle)
        if sent is None:
            return
        sent.look(self.now())
        if not sent.over:
            self._end(sent, "cancelled")

    def _end(self, sent: SlurmJob, why: str) -> None:
        """End the job and wait until the queue says that it is gone."""
        sent.end_as(why)
        deadline = self.now() + FAREWELL
        for tried in self._tries(f"job {sent.number} cannot be cancelled"):
            with suppress(ControllerUnreachable):
                self._queue.end(sent.name)
                while True:
                    row = self._queue.one(sent.name, sent.number)
                    ended = row is None or row.where is JobState.ENDED or row.state == "PREEMPTED"
                    if ended or self.now() > deadline:
                        sent.gone(row, self.now())
                        return
                    self._sleep(min(1.0, 0.05 * 1.3 ** min(20, tried)))
                    tried += 1

    def collect(self, handle: str) -> JobResult:
        """How the job ended: by its result, its log, its script's word, and the queue's."""
        sent = self._find(handle)
        if sent is not None and not sent.over:
            self.poll([handle])
        if sent is None or not sent.over:
            raise LaunchError("a job that has not ended cannot be collected.")
        return result_of(sent, on_host=self._program.on_host)

    def explain(self, handle: str) -> str:
        """Have every rank write its stacks into the job's stderr."""
        sent = self._find(handle)
        if sent is None or sent.over:
            return ""
        if sent.nodes and (bad := self._queue.unfit_among(sent.nodes)):
            self._leave_out(bad)
            return listed(f"{name} is {why}" for name, why in bad.items())
        if self._program.measured_by_log:
            return ""
        before = size_of(sent.folder / "stderr.log")
        with suppress(ControllerUnreachable):
            self._commands.ask("scancel", "--quiet", "--signal=USR1", self._step(sent))
            deadline = self.now() + 3.0
            while self.now() < deadline and size_of(sent.folder / "stderr.log") == before:
                self._sleep(0.1)
            self._sleep(0.5)
        with suppress(OSError):
            if text := (sent.folder / "stderr.log").read_bytes()[before:]:
                (sent.folder / "stacks.txt").write_bytes(text)
                return f"what its ranks did stands in {sent.folder.name}/stacks.txt"
        return ""

    # -- what an earlier process has left

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """The job by the note in its folder, else by its name in the queue or the accounting."""
        noted = read_object(job.folder / NOTE)
        number = noted.get("job") if noted.get("tag") == job.tag else None
        if number is None and handle is not None:
            with suppress(ValueError, TypeError, KeyError):
                told = json.loads(handle)
                number = told["job"] if told["tag"] == job.tag else None
        if number is None and job.folder.is_dir():
            for _ in self._tries(f"whether {job.topology.key} was submitted cannot be told"):
                with suppress(ControllerUnreachable), self._sending(job.folder):
                    number = self._number(job)
                    break
        if not isinstance(number, str):
            return None
        if noted.get("job") != number:
            with suppress(OSError):
                write_object(job.folder / NOTE, self._note(job, number))
        handle = self._known(job.folder, job.tag, number, waits=False)
        if noted.get("step") is True and not self._jobs[handle].over:
            self._jobs[handle].end_as("cancelled")  # begun with --within-allocation, which this tuner is not
            self._end_steps(self._jobs[handle])
        return handle

    def _end_steps(self, sent: SlurmJob) -> None:
        """End the steps of a job inside an allocation, and wait until they are gone."""
        deadline = self.now() + FAREWELL
        for _ in self._tries(f"the step of {sent.name} cannot be cancelled"):
            with suppress(ControllerUnreachable):
                while self._queue.end_steps(sent.number, sent.name) and self.now() < deadline:
                    self._sleep(0.2)
                break
        sent.gone(None, self.now())

    def _number(self, job: Job) -> str | None:
        noted = read_object(job.folder / NOTE)  # sbatch may have been under way
        if noted.get("tag") == job.tag and isinstance(noted.get("job"), str):
            return str(noted["job"])
        for name in ("ended.json", "began.json"):
            told = read_object(job.folder / name)
            if told.get("tag") == job.tag:
                return str(told.get("job"))
        row = self._queue.named(job_name(job.tag))
        return row.id if row is not None else None

    def _step(self, sent: SlurmJob) -> str:
        """The step that the ranks are."""
        return f"{sent.number}.0"

    def close(self) -> None:
        """Nothing: the jobs go on."""

    # -- jobs that are known

    def _note(self, job: Job, number: str | None) -> dict[str, Any]:
        iterations, nodes = list(job.iterations), job.topology.nodes
        return {"tag": job.tag, "job": number, "iterations": iterations, "nodes": nodes, **self._marks}

    def _open(self) -> list[SlurmJob]:
        return [sent for sent in self._jobs.values() if not sent.over]

    def _known(self, folder: Path, tag: str, number: str, *, waits: bool) -> str:
        """The handle of a job, which is known from here on."""
        handle = json.dumps({"job": number, "tag": tag, "folder": str(folder.resolve())})
        if handle not in self._jobs:
            sent = SlurmJob.of(folder.resolve(), tag, job_name(tag), number)
            if waits:
                sent.waited = self.now()
            self._jobs[handle] = sent
            self._pace.stir(self.now())
        return handle

    def _find(self, handle: str) -> SlurmJob | None:
        if handle in self._jobs:
            return self._jobs[handle]
        try:
            told = json.loads(handle)
            folder, tag, number = Path(told["folder"]), str(told["tag"]), str(told["job"])
        except (ValueError, TypeError, KeyError):
            return None
        return self._jobs[self._known(folder, tag, number, waits=False)]
