"""One job of Slurm's as the launcher knows it: what its script has written, and what the queue has said."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.launch.log_tail import LogTail
from tuner.launch.outcome import outcome_of
from tuner.launch.slurm.script import UNWRITABLE
from tuner.launch.slurm.states import QueuedJob, waiting

NOTE: Final = "slurm.json"
"""The launcher's own note in a job's folder."""

LATE: Final = 3.0
"""Seconds by which a file of the job's may come later than the queue's word, through a network file system."""

SETTLED: Final = 30.0
"""Seconds after which a job that was preempted is not started again by itself."""

ABSENT: Final = 2
"""Times that the queue must lack a job before it is lost."""

SIGNALLED: Final = 128
"""Exit codes from here on are a signal's: a job that is to be started again ends so too."""

GONE: Final = "ALLOCATION_ENDED"
"""The state of a step whose allocation is over; no word of Slurm's."""

KILLED: Final = "KILLED"
"""The state of a step whose script was killed; no word of Slurm's either."""

_ENDS: Final = {
    "TIMEOUT": (Outcome.TIMED_OUT, "the job reached its time limit", "a longer time in the site's file gives it more"),
    "DEADLINE": (Outcome.TIMED_OUT, "the job reached its deadline", "it had to be over by then"),
    "PREEMPTED": (Outcome.PREEMPTED, "another job took its place", "it was not started again"),
    "NODE_FAIL": (Outcome.CRASHED, "a node failed", "nothing is sent there any more"),
    "BOOT_FAIL": (Outcome.CRASHED, "a node failed", "it could not be started"),
}


@dataclass(slots=True)
class SlurmJob:
    """A job that was submitted."""

    folder: Path
    tag: str
    name: str
    number: str
    follower: LogTail
    measured: tuple[int, ...] = (2,)
    wants: int = 1
    """Nodes."""
    step: bool = False
    """Whether it runs inside an allocation that is there: nobody but us starts it again."""
    waits: str = "queued"
    """Why it has not begun, where the queue says nothing."""
    waited: float | None = None
    """When it was last seen waiting, by the launcher's clock."""
    began: float | None = None
    restart: int = -1
    """How often it had been started again when it began."""
    stale: int = -1
    """Restarts up to this one are over: it was put back into the queue."""
    spent: float = 0.0
    """Seconds for which these have held its nodes."""
    resumed: float = 0.0
    nodes: str = ""
    row: QueuedJob | None = None
    missing: int = 0
    silent: bool = False
    told: dict[str, Any] | None = None
    """What its script said last."""
    final: dict[str, Any] | None = None
    """How the queue says that it ended."""
    ending: str = ""
    """Why we ended it ourselves."""
    over: bool = False
    lost: bool = False
    node_failed: str = ""
    """Nodes of which at least one may have failed, and nobody has asked yet."""
    settling: float | None = None
    failed: str = ""
    """Nodes that failed under it."""

    @classmethod
    def of(cls, folder: Path, tag: str, name: str, number: str) -> SlurmJob:
        """A job by its note."""
        sent = cls(folder, tag, name, number, LogTail(folder / "stdout.log"))
        noted = sent.noted()
        with suppress(TypeError, ValueError):
            sent.measured = tuple(int(each) for each in noted.get("iterations", [2])) or (2,)
            sent.wants = int(noted.get("nodes", 1))
            sent.stale, sent.spent = int(noted.get("stale", -1)), float(noted.get("spent", 0.0))
        sent.step, sent.failed = noted.get("step") is True, str(noted.get("failed", ""))
        sent._recall(noted)
        return sent

    @property
    def last(self) -> int:
        """The iteration after which it is measured."""
        return max(self.measured)

    def mark(self) -> tuple[int, int]:
        """What changes when anything of its files does."""
        if self.began is None:
            return 0, (self.folder / "began.json").exists() + (self.folder / "ended.json").exists()
        grown = size_of(self.folder / "stdout.log") + size_of(self.folder / "stderr.log")
        return grown, (self.folder / "ended.json").exists() + (self.folder / "result.json").exists()

    # -- what its script has written

    def look(self, now: float) -> bool:
        """Read its files; whether it has begun or ended since."""
        if self.over:
            return False
        before = self.restart, self.told is not None
        began = self._mine("began.json")
        if began is not None and began["restart"] != self.restart:
            self.restart, self.nodes = began["restart"], str(began.get("nodes", ""))
            self.began = max(self.waited or 0.0, min(now, float(began["began"])))
            self.follower = LogTail(self.folder / "stdout.log")
        told = self._mine("ended.json")
        if told is not None and self.told is None:
            self.told = told
            if self.step or (not told.get("signalled") and told.get("exit", SIGNALLED) < SIGNALLED):
                self.over = True
        if self.began is not None or self.told is not None:
            self.follower.look(now)
        return before != (self.restart, self.told is not None)

    def _mine(self, name: str) -> dict[str, Any] | None:
        """A file of this job's, of a run that is not over for another to come."""
        told = read_object(self.folder / name)
        right = told.get("tag") == self.tag and told.get("job") == self.number
        whole = isinstance(told.get("restart"), int) and isinstance(told.get("began"), int | float)
        return told if right and whole and told["restart"] > self.stale else None

    # -- what the queue has said

    def queued(self, row: QueuedJob | None, now: float) -> bool:
        """Take the queue's word; whether anything has changed."""
        self.silent = False
        if row is None:
            self.missing += 1
            self.look(now)
            if not self.over and (self.told is not None or self.missing >= ABSENT):
                self.over, self.lost = True, self.told is None
            return True
        self.missing = 0
        changed = row != self.row
        if self.row is not None and self.row.state == "SUSPENDED" != row.state:
            self.resumed = now
        self.row = row
        had_begun = self.began is not None or self.told is not None  # and not since the queue was read
        self.look(now)
        if self.over:
            return True
        if row.where is JobState.WAITING and row.state != "SUSPENDED":
            if had_begun:
                self.node_failed = self.nodes
                self.put_back(now)
            self.waited, self.settling = now, None
        elif row.where in (JobState.ENDED, None):
            self.settling = self.settling if self.settling is not None else now
            self.nodes = row.nodes or self.nodes
            if row.state == "NODE_FAIL":
                self.node_failed = self.nodes
            patience = SETTLED if row.where is None else LATE if self.told is None else 0.0
            if now - self.settling >= patience or row.state == "NODE_FAIL":
                self.close(row.state, row.reason, now)
            changed = True
        else:
            self.nodes, self.settling = row.nodes or self.nodes, None
        return changed

    def put_back(self, now: float) -> None:
        """It is to be started again: what this run has left is not the next one's, but for what it has cost."""
        if self.began is not None:
            self.spent += max(0.0, float((self.told or {}).get("ended", now)) - self.began)
        self.stale = max(self.restart, (self.told or {}).get("restart", -1))
        self.began, self.told, self.over = None, None, False
        self.write({"stale": self.stale, "spent": self.spent})

    def fail_on(self, nodes: str) -> None:
        """Nodes have failed under it."""
        self.failed = nodes
        self.write({"failed": nodes})

    def close(self, state: str, reason: str, now: float) -> None:
        """It is over without a word of its script's, in a state as the queue would say it."""
        self._recall(self.noted())  # another process may have been first
        if not self.over:
            self.over = True
            self.final = {"state": state, "reason": reason, "at": now, "began": self.began}
            self.final |= {"stale": self.stale, "nodes": self.nodes}
            self.write({"final": self.final})

    def gone(self, row: QueuedJob | None, now: float) -> None:
        """It was cancelled, and the queue says that it is gone."""
        self.look(now)
        if not self.over:
            self.row = row or self.row
            self.close(row.state if row is not None else "CANCELLED", row.reason if row is not None else "", now)

    def end_as(self, why: str) -> None:
        """Write down that it is us who end it, and why, before it is done."""
        self.ending = why
        self.write({"ending": why})

    def exited(self, code: int | None) -> None:
        """The exit code of a script that could not say it itself."""
        if self.final is not None and code is not None:
            self.final["exit"] = code
            self.write({"final": self.final})

    def noted(self) -> dict[str, Any]:
        """What the launchers have written of it."""
        noted = read_object(self.folder / NOTE)
        return noted if noted.get("tag") == self.tag and noted.get("job") in (self.number, None) else {}

    def _recall(self, noted: dict[str, Any]) -> None:
        if isinstance(noted.get("ending"), str):
            self.ending = noted["ending"]
        if isinstance(noted.get("final"), dict):
            self.stale = max(self.stale, noted["final"].get("stale", -1))
            self.look(noted["final"].get("at") or 0.0)
            self.nodes = noted["final"].get("nodes") or self.nodes
            self.final, self.over = noted["final"], True

    def write(self, more: dict[str, Any]) -> None:
        """Write more of it down."""
        with suppress(OSError):  # a folder that is gone or full: this process knows it all the same
            write_object(self.folder / NOTE, {**self.noted(), "tag": self.tag, "job": self.number, **more})

    # -- what is told of it

    def status(self, now: float) -> JobStatus:
        """Where it is."""
        done = self.follower.iterations
        if self.over:
            return JobStatus(state=JobState.LOST if self.lost else JobState.ENDED, began=self.began, iterations=done)
        if self.silent:
            return JobStatus(state=JobState.UNKNOWN, reason="Slurm does not answer")
        if self.row is not None and self.row.where is not JobState.RUNNING and (self.began is None or _still(self.row)):
            again = f"to begin anew, for {self.failed} failed: " if self.failed else ""
            return JobStatus(state=JobState.WAITING, reason=again + waiting(self.row))
        if self.began is None:
            running = self.row is not None and self.row.where is JobState.RUNNING
            again = f"to begin anew, for {self.failed} failed: " if self.failed and not running else ""
            return JobStatus(state=JobState.WAITING, reason="starting" if running else again + self.waits)
        since = self.follower.finished or self.began
        return JobStatus(
            state=JobState.RUNNING,
            began=self.began,
            iterations=done,
            seconds_in=max(0.0, now - max(since, self.resumed)),
            share=self.follower.share,
            moved=max(self.follower.moved or self.began, self.resumed),
        )


def result_of(sent: SlurmJob, *, on_host: bool) -> JobResult:
    """How a job ended that is over."""
    told, final = sent.told or {}, sent.final or {}
    code = told.get("exit", final.get("exit"))
    document = {
        "why": "exited",
        "exit": code,
        "began": told.get("began", final.get("began")),
        "ended": told.get("ended", final.get("at", 0.0)),
    }
    found = outcome_of(sent.folder, document, sent.measured, on_host=on_host)
    return replace(_read(sent, found, on_host=on_host), retried=_again(sent), elapsed=found.elapsed + sent.spent)


def _again(sent: SlurmJob) -> str:
    """Why a job was begun anew, if it was."""
    if sent.restart <= 0 and sent.stale < 0:
        return ""
    return f"{sent.failed} failed under it" if sent.failed else "it was put back into the queue"


def _read(sent: SlurmJob, found: JobResult, *, on_host: bool) -> JobResult:
    """The same, by what its result and its log say and by what the queue does."""
    if found.outcome is Outcome.MEASURED:
        return found
    told, final = sent.told or {}, sent.final or {}
    code = told.get("exit", final.get("exit"))
    state = str(final.get("state", ""))

    def failed(outcome: Outcome, kind: str, evidence: str) -> JobResult:
        return JobResult(outcome=outcome, failure=Failure(kind=kind, evidence=evidence), elapsed=found.elapsed)

    if sent.ending.startswith("never: "):
        return failed(Outcome.CANCELLED, "Slurm would never start it", sent.ending.removeprefix("never: "))
    if sent.ending:
        return failed(Outcome.CANCELLED, "cancelled", "ended by the tuner")
    if state in _ENDS:
        outcome, kind, remark = _ENDS[state]
        where = f" on {sent.nodes}" if state == "NODE_FAIL" and sent.nodes else ""
        return failed(outcome, kind, f"Slurm says {state} of job {sent.number}{where}; {remark}")
    if state == GONE:
        return failed(Outcome.CANCELLED, "its allocation ended under it", f"job {sent.number} is over")
    if state == KILLED:
        return failed(Outcome.CRASHED, "killed from outside", "its script was killed, and left no word")
    if state == "CANCELLED":
        return failed(Outcome.CANCELLED, "cancelled from outside", f"Slurm says CANCELLED of job {sent.number}")
    if state == "OUT_OF_MEMORY":
        outcome = Outcome.OOM if on_host else Outcome.CRASHED
        return failed(outcome, "the host ran out of memory", f"Slurm says {state} of job {sent.number}")
    where = f" on {sent.nodes}" if sent.nodes else ""
    if code == UNWRITABLE and sent.told is None:
        return failed(
            Outcome.CRASHED,
            "its folder cannot be written",
            f"{sent.folder} cannot be written{where}: the study's folder must be shared by all nodes (--runs)",
        )
    if state == "FAILED" and sent.told is None and final.get("began") is None:
        again = "" if sent.stale < 0 else " anew"  # what the logs say is the first run's word
        why = final.get("reason", "")
        return failed(
            Outcome.CRASHED,
            "its script was never run",
            f"Slurm says {state} ({why}) of job {sent.number}{where} before its script began{again}; "
            "the log of slurmd there says why",
        )
    return found


def _still(row: QueuedJob) -> bool:
    return row.state == "SUSPENDED"


def size_of(path: Path) -> int:
    """Bytes of a file; none where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
