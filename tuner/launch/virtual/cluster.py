"""A cluster in virtual time: what the simulated and the replayed one have in common.

Nobody sleeps: `wait` sets the clock to the next moment at which anything changes. Jobs begin in the order in which they
were submitted, each as soon as its nodes are free. What becomes of a job is decided when it is submitted (`life.py`)
and written into its folder; so a cluster that is opened in another process, or after a kill, answers the same.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core.errors import LaunchError
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
        """Whether it holds no nodes any more and waits for none."""
        return self.cancelled is not None or (self.began is not None and now >= self.began + self.life.ends)


class VirtualLauncher(ABC):
    """A launcher whose jobs take no time of ours; subclasses decide what becomes of a job."""

    name: str
    simulated: bool
    outlives = True

    def __init__(self, nodes: int, *, cluster: str, clock: float = 0.0) -> None:
        self.nodes = nodes
        self._cluster = cluster
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._open: list[str] = []  # those that run or wait, in the order in which they were submitted
        self._counted: defaultdict[Path, set[str]] = defaultdict(set)  # names of folders, by the folder they are in
        self._earlier: Counter[str] = Counter()

    @abstractmethod
    def _decide(self, job: Job, run: str, earlier: int, before: int) -> VirtualJob:
        """What becomes of a job, `earlier` runs of its topology and `before` jobs of any kind after the first."""

    @abstractmethod
    def _run_word(self, job: Job) -> str:
        """What two runs of one topology have in common."""

    def now(self) -> float:
        """Virtual seconds."""
        return self._clock

    def wait(self, most: float) -> None:
        """Set the clock to the next moment at which a job changes, at the latest `most` seconds on."""
        latest = self._clock + max(0.0, most)
        moment = min((at for run in self._open for at in self._changes(self._runs[run])), default=math.inf)
        moment = min(moment, latest)
        if moment < math.inf:  # without any job there may be nothing to wait for, ever
            self._clock = max(self._clock, moment)
        self._settle()

    def resume_at(self, seconds: float) -> None:
        """Set the clock on to where an earlier process left it; never back."""
        while self._clock < seconds:
            self.wait(seconds - self._clock)

    def submit(self, job: Job) -> str:
        """Queue a job and write down what becomes of it; `LaunchError` where that is impossible."""
        self._check(job)
        self._look_around(job.folder.parent)
        word = self._run_word(job)
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
            why = getattr(error, "strerror", None) or str(error)
            raise LaunchError(
                f"the job of {job.topology.key} cannot be written to {shown(str(job.folder))}: {why}; "
                "name a folder that can be written."
            ) from error
        self._count(job.folder, word)
        return handle

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Where each of the jobs is at this moment of the clock."""
        runs = {handle: self._find(handle) for handle in handles}
        self._settle()  # what was adopted begins only now, when all that holds nodes has been adopted too
        return {handle: self._status(run) for handle, run in runs.items()}

    def cancel(self, handle: str) -> None:
        """End a job at this moment, unless it has ended."""
        run = self._find(handle)
        if run is None or run.over(self._clock):
            return
        run.cancelled = self._clock
        self._note(run)
        self._settle()

    def collect(self, handle: str) -> JobResult:
        """How a job ended; CANCELLED where it was cancelled before it could end by itself."""
        run = self._find(handle)
        if run is None:
            raise LaunchError(f"no job of the {self.name} cluster is called {shown(handle)}.")
        if not run.over(self._clock):
            raise LaunchError(f"the job {run.life.tag} has not ended; poll it until it has, or cancel it.")
        if run.cancelled is None:
            return run.life.result()
        evidence = f"{'SIMULATED ' if self.simulated else ''}job {run.life.tag} was cancelled"
        held = 0.0 if run.began is None else run.cancelled - run.began
        return JobResult(
            outcome=Outcome.CANCELLED, failure=Failure(kind=Outcome.CANCELLED.value, evidence=evidence), elapsed=held
        )

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """The job as its handle, or else its folder, knows it; the clock is set on to where it has been seen."""
        for record in (self._recorded(handle, job.folder), read(self._path(job.folder))):
            if record and (record.life.cluster, record.life.tag) == (self._cluster, job.tag):
                return self._take(record, job.folder)
        return None

    def explain(self, handle: str) -> str:  # noqa: ARG002 - nothing runs that could tell
        """Nothing: there is no process."""
        return ""

    def close(self) -> None:  # noqa: B027 - the law is kept by doing nothing
        """Nothing is held."""

    def _check(self, job: Job) -> None:
        wanted = job.topology.nodes
        if wanted > self.nodes:
            raise LaunchError(
                f"{job.topology.key} takes {counted(wanted, 'node')}, and the {self.name} cluster has {self.nodes}."
            )
        if not job.iterations or min(job.iterations) < 1:
            raise LaunchError(f"iterations {job.iterations} cannot be measured; the first is 1.")

    def _changes(self, run: _Run) -> list[float]:
        """The moments ahead at which something can be seen of a job."""
        if run.began is None:
            return []
        return [at for moment in run.life.moments if (at := run.began + moment) > self._clock]

    def _settle(self) -> None:
        """Forget what has ended, and begin what waits as far as nodes are free; nobody overtakes."""
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
        if run.cancelled is not None:
            return self._at_its_end(run, run.cancelled)
        if run.began is None:
            return JobStatus(state=JobState.WAITING, reason=f"{counted(run.life.nodes, 'node')} wanted, fewer are free")
        return run.life.status(run.began, self._clock)

    def _at_its_end(self, run: _Run, cancelled: float) -> JobStatus:
        if run.began is None:
            return JobStatus(state=JobState.ENDED)
        last = run.life.status(run.began, cancelled)
        return JobStatus(
            state=JobState.ENDED,
            began=last.began,
            iterations=last.iterations,
            seconds_in=last.seconds_in,
            moved=last.moved,
        )

    def _find(self, handle: str) -> _Run | None:
        """The job of a handle, also of one that another process was given."""
        if handle not in self._runs:
            record = self._recorded(handle, None)
            if record is None or record.life.cluster != self._cluster:
                return None
            self._take(record, Path(record.life.folder))
        return self._runs[handle]

    def _recorded(self, handle: str | None, folder: Path | None) -> VirtualJobRecord | None:
        """What a handle says, and what its folder adds: when the job began, and when it was cancelled."""
        life = VirtualJob.of_text(handle) if handle else None
        if life is None:
            return None
        there = read(self._path(Path(life.folder) if folder is None else folder))
        return there if there and there.life == life else VirtualJobRecord(life=life)

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
        self._open.sort(key=lambda each: (self._runs[each].life.submitted, self._runs[each].life.order))
        return handle

    def _look_around(self, folder: Path) -> None:
        """Count the jobs beside this one that earlier processes have submitted to this cluster."""
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
        """Write down what has happened to a job; where that fails, it has happened nevertheless."""
        try:
            self._write(run)
        except OSError:
            return

    def _write(self, run: _Run) -> None:
        written(self._path(run.folder), VirtualJobRecord(life=run.life, began=run.began, cancelled=run.cancelled))
