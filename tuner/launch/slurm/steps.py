"""Job steps inside an existing Slurm allocation: nothing queues between them, and the tuner chooses their nodes.

Each job's script runs beside the tuner, in a session of its own, and starts its ranks with `srun` on nodes that no
other job has. It outlives the tuner, for as long as the allocation lasts, and the next tuner adopts it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from socket import gethostname
from typing import IO, TYPE_CHECKING, Any, Final

from tuner.core.atomic_write import read_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.core.text import counted
from tuner.launch import supervisor
from tuner.launch.command_line import wait_until_shown
from tuner.launch.contract import Job, JobStatus
from tuner.launch.program import Program
from tuner.launch.slurm import states
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.base import MIN_FILE_INTERVAL, BaseSlurmLauncher
from tuner.launch.slurm.commands import ControllerUnreachable, tuner_environment
from tuner.launch.slurm.job import NEVER_STARTS, NOTE, TrackedJob, result_of
from tuner.launch.slurm.process import NODES, ScriptProcess
from tuner.launch.slurm.script import job_name, step_script
from tuner.launch.slurm.tracker import MAX_CANCEL_SECONDS, SCRIPT, TrackerOptions, first_note
from tuner.launch.slurm.transitions import EXIT_FILE_DELAY
from tuner.logs.signature import NODE_FAILED

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_RERUNS: Final = 2
"""Maximum number of reruns of a job on other nodes after its own have failed."""

KILL_DELAY: Final = 10.0
"""Seconds from SIGTERM to SIGKILL of a script."""

NODE_REPORT_DELAY: Final = 240.0
"""Seconds by which Slurm may report a failed node later than its step ends: by default Slurm checks every 100 s for
nodes that have been silent for 100 s."""


class SlurmStepLauncher(BaseSlurmLauncher):
    """The nodes of an allocation, each for one job at a time."""

    queues = False

    def __init__(
        self, program: Program, *, allocation: Allocation, nodes: int | None = None, **options: Unpack[TrackerOptions]
    ) -> None:
        super().__init__(program, **options)
        self._allocation = allocation
        self._max_nodes = len(allocation.nodes) if nodes is None else nodes
        self._site_nodes = allocation.nodes_by_site(self._tracker.site, self._tracker.commands)
        """Nodes of the allocation that the site profile does not exclude."""
        self._scripts: dict[str, ScriptProcess] = {}
        """By the job's tag."""
        self._settled: set[str] = set()
        """Tags of the jobs whose end needs no further checks."""
        self._lock: IO[str] | None = None

    @property
    def nodes(self) -> int:
        """The number of nodes that jobs can have: those of the allocation that have not failed."""
        return min(self._max_nodes, len(self._healthy_nodes()))

    def check(self, ranks: int = 1) -> None:
        """Check that the allocation is large enough for so many ranks a node."""
        number, count, cores = self._allocation.number, len(self._allocation.nodes), self._allocation.cores
        if self._max_nodes > count:
            raise InputError(
                f"--nodes {self._max_nodes} exceeds the {counted(count, 'node')} of allocation {number}; leave --nodes "
                "out to use them all."
            )
        if self._tracker.site.tasks == "once":
            raise InputError(
                'tasks = "once" is for a command that calls srun itself, which could use the nodes of other trials; '
                'with --within-allocation, use "ranks" or "nodes".'
            )
        if not self._site_nodes:
            raise InputError(f"`exclude` in the site profile leaves no node of allocation {number}.")
        if cores is not None and cores < ranks:
            raise InputError(
                f"allocation {number} has {counted(cores, 'core')} on a node for {ranks} ranks; "
                f"allocate whole nodes (--exclusive), or --ntasks-per-node={ranks}."
            )
        if not self.nodes:
            raise LaunchError(f"all nodes of allocation {number} have failed; start again in another allocation.")
        if self._tracker.notes is not None:
            self._lock = self._allocation.lock(self._tracker.notes.parent)

    def close(self) -> None:
        """Let other tuners into the allocation; the jobs keep running."""
        if self._lock is not None:
            self._lock.close()

    # -- submitting

    def submit(self, job: Job) -> str:
        """Write the job's script and start it as soon as enough nodes are free."""
        self._check_size(job)
        number, site = self._allocation.number, self._tracker.site
        with self._tracker.prepared(
            job,
            lambda start: step_script(job, start, site, accelerators=not self.on_host),
            {**first_note(job, number), "step": True},
        ):
            handle = self._tracker.track(job.folder, job.tag, number, submitted=True)
            try:
                self._start_next(self._tracker.jobs[handle])
            except OSError as error:
                del self._tracker.jobs[handle]
                raise LaunchError(f"cannot start {job.topology.key}: {error.strerror or error}.") from None
        return handle

    def _start_next(self, new: TrackedJob | None = None) -> None:
        """Start the waiting jobs in their order, while there are nodes; after a failure to start they keep waiting.

        It raises for the `new` job alone, whose submission then fails.
        """
        for tracked in self._tracker.open_jobs():
            job = tracked.job
            if job.id != self._allocation.number or not self._unstarted(tracked):
                continue
            if job.node_count > self.nodes:
                needs, left = counted(job.node_count, "node"), counted(self.nodes, "node")
                self._cancel(tracked, f"{NEVER_STARTS}it needs {needs}, but the allocation has {left} left")
                continue
            busy = self._busy_nodes()
            free = [name for name in self._healthy_nodes() if name not in busy]
            if min(len(free), self.nodes - len(busy)) < job.node_count:
                self._observe(tracked, states.StillWaiting(reason=f"{counted(len(busy), 'node')} in use"))
                return
            try:
                self._start(tracked, tuple(free[: job.node_count]))
            except OSError as error:
                if tracked is new:
                    raise
                self._observe(tracked, states.StillWaiting(reason=f"cannot start now: {error.strerror or error}"))
                return

    def _start(self, tracked: TrackedJob, nodes: tuple[str, ...]) -> None:
        job = tracked.job
        environment = {
            **tuner_environment(os.environ),
            "SLURM_JOB_ID": job.id,
            NODES: ",".join(nodes),
            "SLURM_RESTART_COUNT": str(tracked.state.last_requeued + 1),
            supervisor.TAG: job.tag,
        }
        devnull = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        command = ["/bin/bash", str(job.folder / SCRIPT)]
        # A session of its own: Ctrl-C is for the tuner.
        pid = os.posix_spawn(command[0], command, environment, file_actions=devnull, setsid=True)
        wait_until_shown(pid, job.folder / SCRIPT)  # or another tuner would take it for gone
        self._observe(tracked, states.StillWaiting(reason="starting"))
        self._scripts[job.tag] = script = ScriptProcess(pid=pid, host=gethostname(), nodes=nodes, child=True)
        job.record({"script": script.document()})

    def _unstarted(self, tracked: TrackedJob) -> bool:
        """Whether this process has yet to start the job."""
        phase = tracked.state.phase
        waits = isinstance(phase, states.Waiting) and phase.last_seen is not None
        return waits and tracked.job.tag not in self._scripts

    def _healthy_nodes(self) -> list[str]:
        return [name for name in self._site_nodes if name not in self.excluded]

    def _busy_nodes(self) -> set[str]:
        scripts = (self._scripts.get(tracked.job.tag) for tracked in self._tracker.open_jobs())
        return {name for script in scripts if script is not None for name in script.nodes}

    # -- watching

    def wait(self, most: float) -> None:
        """Wait until a job's files change or its script ends."""
        deadline, before = self.now() + most, self._marks()
        while (left := deadline - self.now()) > 0 and self._marks() == before:
            self._tracker.sleep(min(MIN_FILE_INTERVAL, left))

    def _marks(self) -> list[object]:
        return [(tracked.file_marks(), self._alive(tracked)) for tracked in self._tracker.open_jobs()]

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return each job's status from its files and its script; Slurm is queried only if these are inconclusive."""
        found = {handle: self._tracker.find(handle) for handle in handles}
        for script in self._scripts.values():
            with suppress(ChildProcessError):
                if script.child:
                    os.waitpid(script.pid, os.WNOHANG)  # reap it: its exit code is in ended.json
        now, interval = self.now(), self._tracker.poll_interval
        due = now >= interval.due
        if due:
            interval.polled(now, changed=False)
        for tracked in self._tracker.jobs.values():
            if tracked.job.tag not in self._settled:
                self._update(tracked, now, due=due)
        self._start_next()
        return {handle: self._tracker.status(tracked, self._cancel) for handle, tracked in found.items()}

    def _update(self, tracked: TrackedJob, now: float, *, due: bool) -> None:
        """Observe a job's files and its script, and settle its outcome if it has ended."""
        if not due and (not tracked.state.queue.reachable or isinstance(tracked.state.phase, states.Unsettled)):
            return
        if not tracked.state.finished:
            alive = self._alive(tracked)
            if tracked.read_files(now):  # after the process: the exit file is the last that a script writes
                self._tracker.poll_interval.reset(now)
            if not tracked.state.over:
                self._update_process(tracked, now, alive=alive, due=due)
        if isinstance(tracked.state.phase, states.Unsettled | states.Ended):
            self._settle(tracked)

    def _update_process(self, tracked: TrackedJob, now: float, *, alive: bool, due: bool) -> None:
        """Observe the process of a job whose files report no exit.

        A process without its command line may be so young that the system does not show it yet, and the exit file may
        come late: the process is gone only after `EXIT_FILE_DELAY`, and once Slurm has no step of it.
        """
        if alive or self._unstarted(tracked):
            self._observe(tracked, states.ScriptAlive())
        elif self._script(tracked) is None:
            self._observe(tracked, states.NothingFound())
        else:
            since = tracked.state.queue.over_since
            late = due and since is not None and now - since >= EXIT_FILE_DELAY
            confirmed = late and not self._step_remains(tracked)
            self._observe(tracked, states.ScriptGone(now=now, confirmed=confirmed))

    def _step_remains(self, tracked: TrackedJob) -> bool:
        """Whether a step is left whose script is gone; where the script ran here, the step is cancelled."""
        job, script = tracked.job, self._script(tracked)
        query = self._queue.cancel_steps if script is not None and script.on_this_host else self._queue.steps
        try:
            remains = bool(query(job.id, job.name))
        except ControllerUnreachable:
            self._observe(tracked, states.ControllerQueried(answered=False))
            return True
        self._observe(tracked, states.ControllerQueried(answered=True))
        return remains

    def _settle(self, tracked: TrackedJob) -> None:
        """Once a job has ended: rerun it on other nodes if its own have failed."""
        job, script, note = tracked.job, self._script(tracked), tracked.job.note()
        if not note.get("settled") and not tracked.state.cancel_reason and script is not None:
            result = result_of(job, tracked.state, on_host=self.on_host)
            if result.outcome is not Outcome.MEASURED and self._reran(
                tracked, script, node_failed=result.reason == NODE_FAILED
            ):
                return
            self._mark_settled(tracked)
        self._settled.add(job.tag)

    def _mark_settled(self, tracked: TrackedJob) -> None:
        tracked.job.record({"settled": True})
        self._settled.add(tracked.job.tag)

    def _reran(self, tracked: TrackedJob, script: ScriptProcess, *, node_failed: bool) -> bool:
        """Rerun a job whose nodes have failed; return whether its end is not settled, because of this or a missing
        answer, or because by its log a node failed that Slurm does not report yet."""
        job, state = tracked.job, tracked.state
        allocated = self._queue.nodes_of(job.id)
        failed = self._queue.failed_among(",".join(script.nodes)) if script.nodes else {}
        if allocated is None or failed is None:
            self._observe(tracked, states.EndChecked(answered=False))
            return True
        if allocated:
            gone = [name for name in script.nodes if name not in {*allocated, *failed}]
            failed |= dict.fromkeys(gone, "no longer in its allocation")
        recent = state.exit is not None and self.now() < state.exit.ended + NODE_REPORT_DELAY
        unreported = bool(node_failed and allocated and not failed and recent)
        self._observe(tracked, states.EndChecked(answered=True, final=not unreported))
        if unreported:
            return True
        self._tracker.exclude(failed)
        if failed and state.last_requeued + 1 < MAX_RERUNS and allocated and job.id == self._allocation.number:
            self._observe(tracked, states.RestartedElsewhere(failed_nodes=", ".join(failed), now=self.now()))
            del self._scripts[job.tag]
            job.record({"script": None})
            return True
        if not allocated:
            self._observe(tracked, states.AllocationEnded())
        return False

    def _observe(self, tracked: TrackedJob, observation: states.Observation) -> None:
        tracked.observe(observation, self.now())

    def _alive(self, tracked: TrackedJob) -> bool:
        script = self._script(tracked)
        return script is not None and script.alive(tracked.job.folder / SCRIPT)

    def _script(self, tracked: TrackedJob) -> ScriptProcess | None:
        """Return the process that runs a job's script; None before it was started."""
        tag = tracked.job.tag
        if tag not in self._scripts and (noted := ScriptProcess.of(tracked.job.note().get("script"))) is not None:
            self._scripts[tag] = noted
        return self._scripts.get(tag)

    # -- ending

    def cancel(self, handle: str) -> None:
        """Cancel the job, and return when it is gone."""
        tracked = self._tracker.find(handle)
        if tracked is None:
            return
        tracked.read_files(self.now())
        if isinstance(tracked.state.phase, states.Unsettled):
            self._observe(tracked, states.EndChecked(answered=True))  # its nodes matter no more: it does not run again
            self._mark_settled(tracked)
        elif not tracked.state.over:
            self._cancel(tracked, "cancelled")

    def _cancel(self, tracked: TrackedJob, reason: str) -> None:
        """End the script, which ends its step, and the step where it does not; return when both are gone."""
        self._observe(tracked, states.CancelRequested(reason=reason))
        script, began = self._script(tracked), self.now()
        signals = iter(((0.0, signal.SIGTERM), (KILL_DELAY, signal.SIGKILL)))
        due, number = next(signals)
        while script is not None and self._alive(tracked) and self.now() < began + MAX_CANCEL_SECONDS:
            if self.now() >= began + due:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(script.pid, number)
                due, number = next(signals, (MAX_CANCEL_SECONDS, number))
            self._tracker.sleep(0.05)
        if script is None:
            self._tracker.confirm_cancel(tracked, None)
        else:
            self._tracker.cancel_steps(tracked)

    def _step_id(self, tracked: TrackedJob) -> str:
        return next(iter(self._queue.steps(tracked.job.id, tracked.job.name)), super()._step_id(tracked))

    def adopt(self, job: Job, handle: str | None) -> str | None:  # noqa: ARG002 - the note suffices
        """Return the handle of an earlier process's job: by its note, or by a script started and not yet noted."""
        note: dict[str, Any] = read_object(job.folder / NOTE)
        if note.get("tag") != job.tag or not isinstance(note.get("job"), str):
            return None
        if note.get("step") is not True:  # it has an allocation of its own: the study was begun that way
            for _ in self._tracker.attempts(f"cannot cancel {job.topology.key}"):
                with suppress(ControllerUnreachable):
                    self._queue.cancel(job_name(job.tag))
                    return None
        known = self._tracker.track(job.folder, job.tag, note["job"], submitted=False)
        tracked = self._tracker.jobs[known]
        if self._script(tracked) is None and not tracked.state.over and not self._unstarted(tracked):
            script = ScriptProcess.found(job.tag, tracked.job.folder / SCRIPT)
            if script is not None:
                self._scripts[job.tag] = script
            elif tracked.state.last_requeued >= 0:  # it was to run again
                self._observe(tracked, states.StillWaiting(last_seen=self.now()))
            else:
                del self._tracker.jobs[known]
                return None
        return known
