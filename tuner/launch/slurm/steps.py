"""Job steps inside a Slurm allocation that is there: nothing queues between them, and their nodes are ours to choose.

Each job's script runs beside the tuner, in a session of its own, and starts its ranks with `srun` on nodes that no
other job has. It goes on when the tuner is killed, for as long as the allocation does; the next tuner takes it over.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from typing import IO, Any, Final

from tuner.core.atomic_write import read_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.core.text import counted, listed, shown
from tuner.launch import supervisor as keeper
from tuner.launch.contract import Job, JobStatus
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.slurm.allocation import Allocation, hostnames
from tuner.launch.slurm.commands import ControllerUnreachable, PollInterval, SlurmCommands, own_environment
from tuner.launch.slurm.job import GONE, KILLED, LATE, NOTE, SlurmJob, result_of
from tuner.launch.slurm.launcher import FAREWELL, LOOK, SCRIPT, SlurmLauncher
from tuner.launch.slurm.process import NODES, ScriptProcess
from tuner.launch.slurm.script import job_name, step_script
from tuner.launch.slurm.site_profile import SiteProfile

AGAIN: Final = 2
"""Times that a job is begun anew on other nodes, for its own have failed."""

STUBBORN: Final = 10.0
"""Seconds after which a script that was asked to end is killed."""


class SlurmStepLauncher(SlurmLauncher):
    """The nodes of an allocation, each for one job at a time."""

    _marks: Mapping[str, Any] = {"step": True}

    def __init__(
        self,
        program: Program,
        *,
        allocation: Allocation,
        nodes: int | None = None,
        site: SiteProfile | None = None,
        notes: Path | None = None,
        commands: SlurmCommands | None = None,
        pace: PollInterval | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        most = len(allocation.nodes) if nodes is None else nodes
        super().__init__(
            program, nodes=most, site=site, notes=notes, commands=commands, pace=pace, clock=clock, sleep=sleep
        )
        self._allocation, self._most = allocation, most
        self._wanted = self._by_the_site()
        """Nodes of the allocation that the site's file does not exclude."""
        self._scripts: dict[str, ScriptProcess] = {}
        """By the job's tag."""
        self._settled: set[str] = set()
        self._lock: IO[str] | None = None
        self._take_away()

    def check(self, ranks: int = 1) -> None:
        """That the allocation is large enough, for so many ranks on a node."""
        there, cores = len(self._allocation.nodes), self._allocation.cores
        if self._most > there:
            raise InputError(
                f"--nodes {self._most} is more than allocation {self._allocation.number} has, which is "
                f"{counted(there, 'node')}; leave --nodes out to use them all."
            )
        if self._site.tasks == "once":
            raise InputError(
                'tasks = "once" is for a command that calls srun by itself, on nodes that other trials may have: with '
                '--within-allocation it is "ranks" or "nodes".'
            )
        if not self._wanted:
            raise InputError(f"exclude of the site's file leaves no node of allocation {self._allocation.number}.")
        if cores is not None and cores < ranks:
            raise InputError(
                f"allocation {self._allocation.number} has {counted(cores, 'core')} on a node for {ranks} ranks; "
                f"allocate whole nodes (--exclusive), or --ntasks-per-node={ranks}."
            )
        if not self.nodes:
            raise LaunchError(f"all nodes of allocation {self._allocation.number} have failed; begin with another one.")
        self._be_alone()

    def _by_the_site(self) -> tuple[str, ...]:
        """The nodes that the site's `exclude` leaves; refused where its `nodelist` does not name one of them."""
        site, nodes = self._site, self._allocation.nodes
        if site.exclude:
            without = hostnames(",".join(site.exclude), self._commands, "exclude in the site's file")
            nodes = tuple(name for name in nodes if name not in without)
        if site.nodelist:
            named = hostnames(site.nodelist, self._commands, "nodelist in the site's file")
            if other := [name for name in nodes if name not in named]:
                raise InputError(
                    f"allocation {self._allocation.number} has {listed(other)}, which nodelist = "
                    f"{shown(site.nodelist)} of the site's file does not name; exclude them there, or take it out."
                )
        return nodes

    def _be_alone(self) -> None:
        """Keep other tuners out of the allocation, as far as they keep their studies where this one does."""
        if self._notes is None:
            return
        with suppress(OSError):  # a folder that cannot be written is told of elsewhere; a file system without locks
            self._notes.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self._notes.parent / f".allocation-{self._allocation.number}").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise LaunchError(
                    f"another tuner has the nodes of allocation {self._allocation.number}; --jobs 4 runs four trials "
                    "side by side in one."
                ) from None

    def close(self) -> None:
        """Let other tuners into the allocation; the jobs go on."""
        if self._lock is not None:
            self._lock.close()

    # -- submitting

    def submit(self, job: Job) -> str:
        """Write the job's script and start it on nodes that are free, or as soon as some are."""
        if job.topology.nodes > self.nodes:
            raise LaunchError(f"{job.topology.key} cannot have {job.topology.nodes} nodes; there are {self.nodes}.")
        with self._prepared(job, self._note(job, self._allocation.number)):
            handle = self._known(job.folder, job.tag, self._allocation.number, waits=True)
            try:
                self._start_next(self._jobs[handle])
            except OSError as error:
                del self._jobs[handle]
                raise LaunchError(f"{job.topology.key} cannot be started: {error.strerror or error}.") from None
        return handle

    def _text(self, job: Job, start: ProcessSpec) -> str:
        return step_script(job, start, self._site, accelerators=not self._program.on_host)

    def _start_next(self, new: SlurmJob | None = None) -> None:
        """Start the jobs that wait, in their order, as far as there are nodes; where the system cannot, they wait on.

        It raises for the `new` one alone, whose submission then fails.
        """
        for sent in self._open():
            if sent.tag in self._scripts or sent.number != self._allocation.number or not self._waits(sent):
                continue
            if sent.wants > self.nodes:
                self._end(sent, f"never: it wants {counted(sent.wants, 'node')}, and {self.nodes} are left")
                continue
            held = self._held()
            free = [name for name in self._fit() if name not in held]
            if min(len(free), self.nodes - len(held)) < sent.wants:
                sent.waits = f"other jobs have {counted(len(held), 'node')}"
                return
            try:
                self._start(sent, tuple(free[: sent.wants]))
            except OSError as error:
                if sent is new:
                    raise
                sent.waits = f"it cannot be started now: {error.strerror or error}"
                return

    def _start(self, sent: SlurmJob, nodes: tuple[str, ...]) -> None:
        environment = {
            **own_environment(os.environ),
            "SLURM_JOB_ID": sent.number,
            NODES: ",".join(nodes),
            "SLURM_RESTART_COUNT": str(sent.stale + 1),
            keeper.TAG: sent.tag,
        }
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        words = ["/bin/bash", str(sent.folder / SCRIPT)]
        # A session of its own: Ctrl-C is for the tuner.
        pid = os.posix_spawn(words[0], words, environment, file_actions=quiet, setsid=True)
        sent.waits = "starting"
        self._scripts[sent.tag] = ScriptProcess(pid=pid, host=gethostname(), nodes=nodes, own=True)
        sent.write({"script": self._scripts[sent.tag].document()})

    def _waits(self, sent: SlurmJob) -> bool:
        return sent.began is None and sent.told is None and sent.waited is not None

    def _fit(self) -> list[str]:
        return [name for name in self._wanted if name not in self.excluded]

    def _held(self) -> set[str]:
        """Nodes of the jobs that run."""
        scripts = (self._scripts.get(sent.tag) for sent in self._open())
        return {name for script in scripts if script is not None for name in script.nodes}

    # -- where jobs are

    def wait(self, most: float) -> None:
        """Until a job's files have changed or its script has ended."""
        deadline, before = self.now() + most, self._stand()
        while (left := deadline - self.now()) > 0 and self._stand() == before:
            self._sleep(min(LOOK, left))

    def _stand(self) -> list[object]:
        return [(sent.mark(), self._lives(sent)) for sent in self._open()]

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Where each job is: by its files and its script; Slurm is asked only where these say nothing."""
        found = {handle: self._find(handle) for handle in handles}
        for script in self._scripts.values():
            with suppress(ChildProcessError):
                if script.own:
                    os.waitpid(script.pid, os.WNOHANG)  # its last moments are nobody's: it is not left a zombie
        now = self.now()
        due = now >= self._pace.due
        if due:
            self._pace.asked(now, stirred=False)
        for sent in self._jobs.values():
            if sent.tag not in self._settled:
                self._see(sent, now, due=due)
        self._start_next()
        return {handle: self._status(sent) for handle, sent in found.items()}

    def _see(self, sent: SlurmJob, now: float, *, due: bool) -> None:
        """Look at a job's files and at its script, and settle how it ended where it has."""
        if sent.silent and not due:
            return
        if not sent.over:
            lives = self._lives(sent)
            if sent.look(now):  # after that: a script's last act is its word
                self._pace.stir(now)
            if lives or self._waits(sent):
                sent.settling = None
            elif not sent.over and self._script(sent) is None:
                sent.over = sent.lost = True
            elif not sent.over:
                # It may be so young that the system cannot say yet what it runs, or its word may come late.
                sent.settling = now if sent.settling is None else sent.settling
                if due and now - sent.settling >= LATE and not self._still_there(sent):
                    sent.close(KILLED, "", now)
        if sent.over and not sent.lost:
            self._settle(sent)

    def _still_there(self, sent: SlurmJob) -> bool:
        """Whether a step is there whose script is not; here it has lost it, and is ended: nobody would hear of it."""
        script = self._script(sent)
        try:
            ask = self._queue.end_steps if script is not None and script.near else self._queue.steps
            there, sent.silent = bool(ask(sent.number, sent.name)), False
        except ControllerUnreachable:
            there = sent.silent = True
        return there

    def _settle(self, sent: SlurmJob) -> None:
        """Once it has ended: whether its nodes have failed, so that it is begun anew on others."""
        script, noted = self._script(sent), sent.noted()
        if not noted.get("settled") and not sent.ending and script is not None:
            if result_of(sent, on_host=self._program.on_host).outcome is not Outcome.MEASURED:
                there = self._queue.nodes_of(sent.number)
                bad = self._queue.unfit_among(",".join(script.nodes)) if script.nodes else {}
                sent.silent = there is None or bad is None
                if there is None or bad is None:  # whether its nodes have failed cannot be told yet
                    sent.over, sent.told, sent.final = False, None, None
                    return
                if there:
                    bad |= {name: "no longer in its allocation" for name in script.nodes if name not in {*there, *bad}}
                self._leave_out(bad)
                if bad and sent.stale + 1 < AGAIN and there and sent.number == self._allocation.number:
                    self._begin_anew(sent, bad)
                    return
                if there == []:
                    sent.final = {**(sent.final or {}), "state": GONE}
                    sent.write({"final": sent.final})
            sent.write({"settled": True})
        self._settled.add(sent.tag)

    def _begin_anew(self, sent: SlurmJob, bad: Mapping[str, str]) -> None:
        sent.fail_on(", ".join(bad))
        sent.put_back(self.now())
        sent.final, sent.waited = None, self.now()
        del self._scripts[sent.tag]
        sent.write({"script": None, "final": None})

    def _lives(self, sent: SlurmJob) -> bool:
        script = self._script(sent)
        return script is not None and script.lives(sent.folder / SCRIPT)

    def _leave_out(self, bad: Mapping[str, str]) -> None:
        super()._leave_out(bad)
        self._take_away()

    def _take_away(self) -> None:
        """No more nodes than have not failed."""
        self.nodes = min(self._most, len(self._fit()))

    def _script(self, sent: SlurmJob) -> ScriptProcess | None:
        """The process that keeps a job; None before it was started."""
        if sent.tag not in self._scripts:
            noted = ScriptProcess.of(sent.noted().get("script"))
            if noted is not None:
                self._scripts[sent.tag] = noted
        return self._scripts.get(sent.tag)

    # -- ending

    def _end(self, sent: SlurmJob, why: str) -> None:
        """End the script, which ends its step, and the step where it does not; return when both are gone."""
        sent.end_as(why)
        script, began = self._script(sent), self.now()
        deadline = began + FAREWELL
        signals = iter(((0.0, signal.SIGTERM), (STUBBORN, signal.SIGKILL)))
        due, number = next(signals)
        while script is not None and self._lives(sent) and self.now() < deadline:
            if self.now() >= began + due:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(script.pid, number)
                due, number = next(signals, (FAREWELL, number))
            self._sleep(0.05)
        if script is None:
            sent.gone(None, self.now())
        else:
            self._end_steps(sent)

    def _step(self, sent: SlurmJob) -> str:
        return next(iter(self._queue.steps(sent.number, sent.name)), f"{sent.number}.0")

    def adopt(self, job: Job, handle: str | None) -> str | None:  # noqa: ARG002 - the note tells all
        """The job by the note in its folder, or by the script that was started and not yet noted."""
        noted = read_object(job.folder / NOTE)
        if noted.get("tag") != job.tag or not isinstance(noted.get("job"), str):
            return None
        if noted.get("step") is not True:  # an allocation of its own, as the study was begun: none of our nodes
            for _ in self._tries(f"{job.topology.key} cannot be cancelled"):
                with suppress(ControllerUnreachable):
                    self._queue.end(job_name(job.tag))
                    return None
        known = self._known(job.folder, job.tag, noted["job"], waits=False)
        sent = self._jobs[known]
        if self._script(sent) is None and not sent.over and not self._waits(sent):
            script = ScriptProcess.found(job.tag, sent.folder / SCRIPT)
            if script is not None:
                self._scripts[job.tag] = script
            elif sent.stale >= 0:
                sent.waited = self.now()  # it was to be begun anew
            else:
                del self._jobs[known]
                return None
        return known
