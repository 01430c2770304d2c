"""A cluster in virtual time: the base of the simulated and the replayed one.

`wait` does not sleep: it advances the clock to the next event. Jobs start in the order of their submission, each as
soon as its nodes are free. A job's course is decided at its submission (`job.py`) and recorded in its folder,
so that another process, or one after a kill, returns the same results.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.errors import LaunchError, reason_of
from tuner.core.outcomes import Failure, Outcome
from tuner.core.text import counted, shown
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.launch.virtual.job import VirtualJob, VirtualJobRecord, read, written


@dataclass(slots=True)
class _Run:
    life: VirtualJob
    folder: Path
    began: float | None = None
    cancelled: float | None = None

    def over(self, now: float) -> bool:
        """Whether the job has ended or was cancelled."""
        return self.cancelled is not None or (self.began is not None and now >= self.began + self.life.ends)


class VirtualLauncher(ABC):
    """A launcher whose jobs take no real time; subclasses decide the course of a job."""

    name: str
    simulated: bool
    queues = False
    outlives = True
    several_batches = False

    def __init__(self, nodes: int, *, cluster: str, clock: float = 0.0) -> None:
        self.nodes = nodes
        self._cluster = cluster
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._open: list[str] = []  # running or waiting jobs, in the order of their submission
        self._counted: defaultdict[Path, set[str]] = defaultdict(set)  # names of job folders, by parent
        self._earlier: Counter[str] = Counter()

    @abstractmethod
    def _decide(self, job: Job, run: str, earlier: int, before: int) -> VirtualJob:
        """Return the course of a job after `earlier` runs of its topology, and `before` jobs in all."""

    @abstractmethod
    def _run_key(self, job: Job) -> str:
        """Return a key that all runs of one topology share."""

    def now(self) -> float:
        """Return the virtual seconds."""
        return self._clock

    def wait(self, most: float) -> None:
        """Advance the clock to the next event of a job, by at most `most` seconds."""
        latest = self._clock + max(0.0, most)
        moment = min((at for run in self._open for at in self._changes(self._runs[run])), default=math.inf)
        moment = min(moment, latest)
        if moment < math.inf:  # without a job there may be no event at all
            self._clock = max(self._clock, moment)
        self._settle()

    def resume_at(self, seconds: float) -> None:
        """Advance the clock to the time at which an earlier process left it."""
        while self._clock < seconds:
            self.wait(seconds - self._clock)

    def submit(self, job: Job) -> str:
        """Queue a job and record its course; raise `LaunchError` if that is impossible."""
        self._check(job)
        self._count_siblings(job.folder.parent)
        word = self._run_key(job)
        life = self._decide(job, word, self._earlier[word], self._earlier.total())
        handle = life.text()
        self._runs[handle] = _Run(life, job.folder)
        self._open.append(handle)
        self._settle()
        try:
            self._write(self._runs[handle])
        except (OSError, ValueError) as error:  # ValueError: no file can have such a name
            del self._runs[handle]
            self._open.remove(handle)
            raise LaunchError(
                f"cannot write the job of {job.topology.key} to {shown(str(job.folder))}: {reason_of(error)}; "
                "choose a writable folder."
            ) from error
        self._count(job.folder, word)
        return handle

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each job at the current virtual time."""
        runs = {handle: self._find(handle) for handle in handles}
        self._settle()  # adopted jobs start only now that all of them are known
        return {handle: self._status(run) for handle, run in runs.items()}

    def cancel(self, handle: str) -> None:
        """Cancel a job at the current virtual time, unless it has ended."""
        run = self._find(handle)
        if run is None or run.over(self._clock):
            return
        run.cancelled = self._clock
        self._note(run)
        self._settle()

    def collect(self, handle: str) -> JobResult:
        """Return the result of a job; CANCELLED if it was cancelled before its end."""
        run = self._find(handle)
        if run is None:
            raise LaunchError(f"the {self.name} cluster has no job {shown(handle)}.")
        if not run.over(self._clock):
            raise LaunchError(f"job {run.life.tag} has not ended; poll it until it has, or cancel it.")
        if run.cancelled is None:
            return run.life.result()
        evidence = f"{'SIMULATED ' if self.simulated else ''}job {run.life.tag} was cancelled"
        elapsed = 0.0 if run.began is None else run.cancelled - run.began
        return JobResult(
            outcome=Outcome.CANCELLED, failure=Failure(kind=Outcome.CANCELLED.value, evidence=evidence), elapsed=elapsed
        )

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """Return the handle of a job by its handle or its folder, and advance the clock to its last recorded event."""
        for record in (self._recorded(handle, job.folder), read(self._path(job.folder))):
            if record and (record.life.cluster, record.life.tag) == (self._cluster, job.tag):
                return self._take(record, job.folder)
        return None

    def explain(self, handle: str) -> str:  # noqa: ARG002 - there is no process
        """Return an empty sentence: there is no process."""
        return ""

    def close(self) -> None:  # noqa: B027 - there is nothing to release
        """Do nothing: the launcher has no resources."""

    def _check(self, job: Job) -> None:
        wanted = job.topology.nodes
        if wanted > self.nodes:
            raise LaunchError(
                f"{job.topology.key} needs {counted(wanted, 'node')}; the {self.name} cluster has {self.nodes}."
            )
        if not job.iterations or min(job.iterations) < 1:
            raise LaunchError(f"iterations {job.iterations} cannot be measured; the first is 1.")

    def _changes(self, run: _Run) -> list[float]:
        """Return the times of a job's future events."""
        if run.began is None:
            return []
        return [at for moment in run.life.moments if (at := run.began + moment) > self._clock]

    def _settle(self) -> None:
        """Remove jobs that have ended, and start waiting ones in their order while nodes are free."""
        self._open = [handle for handle in self._open if not self._runs[handle].over(self._clock)]
        waiting = [run for handle in self._open if (run := self._runs[handle]).began is None]
        free = self.nodes - sum(
            run.life.nodes for handle in self._open if (run := self._runs[handle]).began is not None
        )
        for run in waiting:
            if run.life.nodes > free:
                return
            free -= run.life.nodes
            run.began = self._clock
            if run.folder.name in self._counted[run.folder.parent]:  # else `submit` is about to
                self._note(run)

    def _status(self, run: _Run | None) -> JobStatus:
        if run is None:
            return JobStatus(state=JobState.LOST)
        if run.cancelled is not None and run.began is not None:
            return replace(run.life.status(run.began, run.cancelled), state=JobState.ENDED, share=None)
        if run.cancelled is not None:
            return JobStatus(state=JobState.ENDED)
        if run.began is None:
            return JobStatus(state=JobState.WAITING, reason=f"{counted(run.life.nodes, 'node')} needed, fewer are free")
        return run.life.status(run.began, self._clock)

    def _find(self, handle: str) -> _Run | None:
        """Return the job of a handle, of this process or another one."""
        if handle not in self._runs:
            record = self._recorded(handle, None)
            if record is None or record.life.cluster != self._cluster:
                return None
            self._take(record, Path(record.life.folder))
        return self._runs[handle]

    def _recorded(self, handle: str | None, folder: Path | None) -> VirtualJobRecord | None:
        """Return the job of a handle, with the start and the cancel that its folder records."""
        life = VirtualJob.of_text(handle) if handle else None
        if life is None:
            return None
        recorded = read(self._path(Path(life.folder) if folder is None else folder))
        return recorded if recorded and recorded.life == life else VirtualJobRecord(life=life)

    def _take(self, record: VirtualJobRecord, folder: Path) -> str:
        handle = record.life.text()
        if handle in self._runs:
            return handle
        self._runs[handle] = _Run(record.life, folder, record.began, record.cancelled)
        seen = (record.life.submitted, record.began, record.cancelled)
        self._clock = max(self._clock, *(moment for moment in seen if moment is not None))
        if folder.name not in self._counted[folder.parent]:
            self._count(folder, record.life.run)
        self._open.append(handle)
        self._open.sort(key=lambda handle: (self._runs[handle].life.submitted, self._runs[handle].life.order))
        return handle

    def _count_siblings(self, folder: Path) -> None:
        """Count the jobs in the same folder that earlier processes have submitted to this cluster."""
        try:
            beside = set(os.listdir(folder)) - self._counted[folder]  # noqa: PTH208 - names, of very many folders
        except OSError:
            return
        for name in beside:
            record = read(self._path(folder / name))
            if record and record.life.cluster == self._cluster:
                self._count(folder / name, record.life.run)

    def _count(self, folder: Path, run: str) -> None:
        self._counted[folder.parent].add(folder.name)
        self._earlier[run] += 1

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def _note(self, run: _Run) -> None:
        """Record an event of a job, if its folder is writable."""
        with suppress(OSError):
            self._write(run)

    def _write(self, run: _Run) -> None:
        written(self._path(run.folder), VirtualJobRecord(life=run.life, began=run.began, cancelled=run.cancelled))
