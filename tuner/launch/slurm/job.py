"""A Slurm job: its identity, its files (those of its script, and the launcher's note), and its result."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import JobResult, JobStatus
from tuner.launch.log_tail import JobTail, output_size
from tuner.launch.outcome import noted_batches, noted_run, noted_size, outcome_of
from tuner.launch.slurm import states
from tuner.launch.slurm.script import UNWRITABLE, job_name
from tuner.launch.slurm.states import EndReport, Observation, ScriptExit, ScriptFiles, ScriptRun, SlurmState
from tuner.launch.slurm.transitions import next_state, status_of
from tuner.logs import StepPattern, StepSize
from tuner.logs.signature import NODE_FAILED

NOTE: Final = "slurm.json"
"""The file in a job's folder in which launchers record what its script cannot."""

MEASURED: Final = "measured"
"""Cancel reason of a job whose log is complete."""

NEVER_STARTS: Final = "never: "
"""Prefix of the cancel reason of a job that Slurm would never start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as it was submitted."""

    id: str
    """Its id in Slurm; of a job step, the id of its allocation."""
    tag: str
    folder: Path
    iterations: tuple[int, ...] = (2,)
    """The iterations to measure; the last ends the job."""
    batches: int = 1
    """Global batches that it measures."""
    size: StepSize = field(default_factory=StepSize)
    wanted: Mapping[str, int] = field(default_factory=dict)
    """The quantities that its log should state."""
    node_count: int = 1
    step: bool = False
    """Whether it is a step of an allocation, which Slurm never reruns."""

    @property
    def name(self) -> str:
        """Return its name in the queue."""
        return job_name(self.tag)

    def note(self) -> dict[str, Any]:
        """Return the launcher's record of the job."""
        note = read_object(self.folder / NOTE)
        return note if note.get("tag") == self.tag and note.get("job") in (self.id, None) else {}

    def record(self, changes: dict[str, Any]) -> None:
        """Add to the note; if the folder is missing or full, only this process has the record."""
        with suppress(OSError):
            write_object(self.folder / NOTE, {**self.note(), "tag": self.tag, "job": self.id, **changes})

    def files(self, now: float) -> ScriptFiles:
        """Read the files of the job's script."""
        run = exited = None
        began, ended = self._script_file("began.json"), self._script_file("ended.json")
        if began is not None:
            run = ScriptRun(restart=began["restart"], began=float(began["began"]), nodes=str(began.get("nodes", "")))
        if ended is not None:
            code, at = ended.get("exit"), ended.get("ended")
            exited = ScriptExit(
                restart=ended["restart"],
                began=float(ended["began"]),
                ended=float(at) if isinstance(at, int | float) else now,
                code=code if isinstance(code, int) else None,
                signalled=ended.get("signalled") is True,
            )
        return ScriptFiles(now=now, run=run, exit=exited)

    def _script_file(self, name: str) -> dict[str, Any] | None:
        """Return a file of this job's script; None if it is missing, truncated or another job's."""
        document = read_object(self.folder / name)
        own = document.get("tag") == self.tag and document.get("job") == self.id
        whole = isinstance(document.get("restart"), int) and isinstance(document.get("began"), int | float)
        return document if own and whole else None


class TrackedJob:
    """A job that this process watches: its state, and the tail of its log."""

    def __init__(
        self,
        folder: Path,
        tag: str,
        job_id: str,
        *,
        last_seen_waiting: float | None = None,
        pattern: StepPattern | None = None,
    ) -> None:
        self._pattern = pattern
        self.job = SlurmJob(id=job_id, tag=tag, folder=folder)
        note = self.job.note()
        state = SlurmState(phase=states.Waiting(last_seen=last_seen_waiting), failed_nodes=str(note.get("failed", "")))
        with suppress(TypeError, ValueError):
            iterations = tuple(int(number) for number in note.get("iterations", [2])) or (2,)
            self.job = replace(self.job, iterations=iterations, node_count=int(note.get("nodes", 1)))
            self.job = replace(self.job, size=noted_size(note), batches=noted_batches(note), wanted=noted_run(note))
            state = replace(
                state,
                last_requeued=int(note.get("stale", -1)),
                earlier_seconds=float(note.get("spent", 0.0)),
            )
        self.job = replace(self.job, step=note.get("step") is True)
        self.state = replace(state, requeueable=not self.job.step)
        self.log = JobTail(folder, pattern)
        self._apply(next_state(self.state, self._note_read(note)), 0.0)

    def read_files(self, now: float) -> bool:
        """Read the script's files and its log; return whether the script has started or exited since."""
        if self.state.over:
            return False
        before = self.state.restart, self.state.exit is None
        self.observe(states.FilesRead(files=self.job.files(now)), now)
        return before != (self.state.restart, self.state.exit is None)

    def observe(self, observation: Observation, now: float) -> None:
        """Advance the state, and record it for later processes."""
        before, after = self.state, next_state(self.state, observation)
        if not before.finished and after.report is not None:  # another process may have cancelled it, or seen its end
            noted = next_state(before, self._note_read(self.job.note()))
            after = noted if noted.over else next_state(noted, observation)
        self._apply(after, now)
        recorded_before, recorded_after = _recorded(before), _recorded(after)
        if changes := {key: value for key, value in recorded_after.items() if value != recorded_before[key]}:
            self.job.record(changes)

    def status(self, now: float) -> JobStatus:
        """Return the job's status."""
        return status_of(self.state, self.log.progress, now)

    def file_marks(self) -> tuple[int, int]:
        """Return a value that changes with any of the job's files."""
        folder = self.job.folder
        if self.state.run is None:
            return 0, (folder / "began.json").exists() + (folder / "ended.json").exists()
        return output_size(folder), (folder / "ended.json").exists() + (folder / "result.json").exists()

    def _apply(self, state: SlurmState, now: float) -> None:
        """Enter a state; each run has its own log, which is complete once the job has ended."""
        run, over = self.state.run, self.state.over
        if state.run is not None and (run is None or run.restart != state.run.restart):
            self.log = JobTail(self.job.folder, self._pattern)
        self.state = state
        if not over and (state.run is not None or state.exit is not None):
            self.log.read(now, whole=state.over)

    def _note_read(self, note: dict[str, Any]) -> states.NoteRead:
        noted = note.get("final")
        final = noted if isinstance(noted, dict) else {}
        report, at = None, final.get("at") or 0.0
        if final is noted:
            report = EndReport(
                state=str(final.get("state", "")),
                reason=str(final.get("reason", "")),
                at=at,
                began=final.get("began"),
                exit_code=final.get("exit"),
            )
        return states.NoteRead(
            cancel_reason=note["ending"] if isinstance(note.get("ending"), str) else "",
            report=report,
            last_requeued=final.get("stale", -1),
            nodes=final.get("nodes") or "",
            files=self.job.files(at),
        )


def _recorded(state: SlurmState) -> dict[str, Any]:
    """Return the state that a job's note records."""
    report = state.report
    final = None if report is None else {
        "state": report.state,
        "reason": report.reason,
        "at": report.at,
        "began": report.began,
        "stale": state.last_requeued,
        "nodes": state.nodes,
        **({"exit": report.exit_code} if report.exit_code is not None else {}),
    }  # fmt: skip
    return {
        "stale": state.last_requeued,
        "spent": state.earlier_seconds,
        "failed": state.failed_nodes,
        "ending": state.cancel_reason,
        "final": final,
    }


# -- the result

_ENDS: Final = {
    "TIMEOUT": (Outcome.TIMED_OUT, "the job reached its time limit", "raise `time` in the site profile"),
    "DEADLINE": (Outcome.TIMED_OUT, "the job reached its deadline", "move the deadline, or shorten the job"),
    "PREEMPTED": (Outcome.PREEMPTED, "the job was preempted", "Slurm did not requeue it"),
    "NODE_FAIL": (Outcome.CRASHED, NODE_FAILED, "no further job is sent to that node"),
    "BOOT_FAIL": (Outcome.CRASHED, NODE_FAILED, "the node could not be booted"),
}


def result_of(
    job: SlurmJob, state: SlurmState, *, on_host: bool, by_log: bool = False, pattern: StepPattern | None = None
) -> JobResult:
    """Return the result of a job that is over: by its result file, its log, its script's exit, and the queue."""
    exited, report = state.exit, state.report
    code = exited.code if exited is not None else report.exit_code if report is not None else None
    document = {"why": "exited", "exit": code, "began": None, "ended": 0.0}
    if exited is not None:
        document |= {"began": exited.began, "ended": exited.ended}
    elif report is not None:
        document |= {"began": report.began, "ended": report.at}
    result = outcome_of(
        *(job.folder, document, job.iterations),
        on_host=on_host,
        by_log=by_log,
        batches=job.batches,
        size=job.size,
        wanted=job.wanted,
        pattern=pattern,
    )
    if result.outcome is not Outcome.MEASURED and (cause := _cause(job, state, code, on_host=on_host)):
        outcome, kind, evidence = cause
        result = JobResult(outcome=outcome, failure=Failure(kind=kind, evidence=evidence), elapsed=result.elapsed)
    return replace(result, retried=_why_rerun(state), elapsed=result.elapsed + state.earlier_seconds)


def _why_rerun(state: SlurmState) -> str:
    """Return why the job ran more than once; empty if it did not."""
    if state.restart <= 0 and state.last_requeued < 0:
        return ""
    return f"{state.failed_nodes} failed" if state.failed_nodes else "Slurm requeued it"


def _cause(job: SlurmJob, state: SlurmState, code: int | None, *, on_host: bool) -> tuple[Outcome, str, str] | None:
    """Return the outcome, its meaning and its evidence, if Slurm or the launcher knows more than the logs."""
    exited, report = state.exit, state.report
    slurm_state = report.state if report is not None else ""
    on_nodes = f" on {state.nodes}" if state.nodes else ""
    reported = f"Slurm reports {slurm_state} for job {job.id}"
    if state.cancel_reason.startswith(NEVER_STARTS):
        return Outcome.CANCELLED, "Slurm would never start it", state.cancel_reason.removeprefix(NEVER_STARTS)
    if state.cancel_reason == MEASURED:
        return None  # its log was complete, and determines the result
    if state.cancel_reason:
        return Outcome.CANCELLED, "cancelled", "ended by `tuner stop` or by another tuner of the study"
    if slurm_state in _ENDS:
        outcome, kind, remark = _ENDS[slurm_state]
        return outcome, kind, f"{reported}{on_nodes if slurm_state == 'NODE_FAIL' else ''}; {remark}"
    if slurm_state == states.ALLOCATION_ENDED:
        return Outcome.CANCELLED, "its allocation ended", f"allocation {job.id} is over"
    if slurm_state == states.SCRIPT_KILLED:
        return Outcome.CRASHED, "killed from outside", "the job's script was killed before it could write ended.json"
    if slurm_state == "CANCELLED":
        return Outcome.CANCELLED, "cancelled from outside", reported
    if slurm_state == "OUT_OF_MEMORY":
        return Outcome.OOM if on_host else Outcome.CRASHED, "the host ran out of memory", reported
    if code == UNWRITABLE and exited is None:
        evidence = f"cannot write to {job.folder}{on_nodes}: put the study in a folder that all nodes share (--runs)"
        return Outcome.CRASHED, "its folder is not writable", evidence
    if slurm_state == "FAILED" and exited is None and report is not None and report.began is None:
        again = "" if state.last_requeued < 0 else " again"  # the logs are those of the first run
        evidence = f"{reported} ({report.reason}){on_nodes} before its script started{again}; see slurmd's log there"
        return Outcome.CRASHED, "its script never ran", evidence
    return None
