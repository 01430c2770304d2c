"""The transitions of a Slurm job's state: pure functions without clock, files or commands.

    Waiting -> Running -> Exited -> Ended      Waiting, Running, Exited -> Ended   (cancelled, or reported by Slurm)
       ^          |          |        |        Waiting, Running         -> Lost    (gone from the queue)
       +----------+----------+--------+        Ended <-> Unsettled                 (a step whose nodes may have failed)
                         runs again

Two sources report on a job: the files that its script writes (`began.json`, `ended.json`), and Slurm's queue. The
script takes precedence: the queue decides only where the script has reported no final exit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tuner.launch.contract import JobState, JobStatus
from tuner.launch.log_tail import LogProgress
from tuner.launch.slurm.parsing import QueuedJob, waiting_reason
from tuner.launch.slurm.states import (
    ALLOCATION_ENDED,
    SCRIPT_KILLED,
    AllocationEnded,
    CancelConfirmed,
    CancelRequested,
    ControllerQueried,
    EndChecked,
    Ended,
    EndReport,
    ExitCodeRead,
    Exited,
    FilesRead,
    Lost,
    NodesExamined,
    NoteRead,
    NothingFound,
    Observation,
    Phase,
    QueueRead,
    RestartedElsewhere,
    Running,
    ScriptAlive,
    ScriptExit,
    ScriptFiles,
    ScriptGone,
    ScriptRun,
    SlurmState,
    StillWaiting,
    Unsettled,
    Waiting,
)

EXIT_FILE_DELAY: Final = 3.0
"""Seconds by which a network file system may show a file of the job later than the queue reports the job's end."""

REQUEUE_DELAY: Final = 30.0
"""Seconds after which Slurm is not expected to requeue a preempted job any more."""

MAX_ABSENCES: Final = 2
"""Consecutive readings of the queue without a job before the job is lost."""


def next_state(state: SlurmState, observation: Observation) -> SlurmState:
    """Return the state after an observation."""
    match observation:
        case FilesRead(files=files):
            return _after_files(state, files)
        case QueueRead(row=row, files=files):
            return _after_queue(state, row, files)
        case ControllerQueried(answered=answered):
            return _in_queue(state, reachable=answered)
        case StillWaiting(reason=reason, last_seen=last_seen):
            if not isinstance(state.phase, Waiting):
                return state
            last_seen = state.phase.last_seen if last_seen is None else last_seen
            return replace(state, phase=Waiting(last_seen=last_seen, reason=reason))
        case CancelRequested(reason=reason):
            return replace(state, cancel_reason=reason)
        case CancelConfirmed(row=row, files=files):
            return _after_cancel(state, row, files)
        case ScriptAlive():
            return _in_queue(state, over_since=None)
        case ScriptGone(now=now, confirmed=confirmed):
            state = _in_queue(state, over_since=_first(state.queue.over_since, now))
            return _reported(state, SCRIPT_KILLED, "", now) if confirmed and not state.finished else state
        case NothingFound():
            return state if state.finished else replace(state, phase=Lost(run=state.run))
        case ExitCodeRead(code=code) if isinstance(state.phase, Ended) and state.report is not None:
            return _with_report(state, replace(state.report, exit_code=code))
        case NodesExamined(failed=failed):
            return replace(state, suspect_nodes="", failed_nodes=state.failed_nodes if state.over else failed)
        case EndChecked():
            return _after_end_check(state, observation)
        case AllocationEnded() if isinstance(state.phase, Ended):
            return _with_report(state, replace(state.report or EndReport(state=""), state=ALLOCATION_ENDED))
        case RestartedElsewhere(failed_nodes=failed, now=now):
            return replace(_requeued(state, now), failed_nodes=failed)
        case NoteRead():
            return _after_note(state, observation)
        case ExitCodeRead() | AllocationEnded():
            return state


def _after_files(state: SlurmState, files: ScriptFiles) -> SlurmState:
    """Return the state after the script's files; a newer run replaces the current one and its exit."""
    if state.finished:
        return state
    run, exited, nodes = state.run, state.exit, state.nodes
    found = files.run
    if found is not None and found.restart > max(state.last_requeued, run.restart if run is not None else -1):
        last_seen = state.phase.last_seen if isinstance(state.phase, Waiting) else None
        run, nodes = replace(found, began=max(last_seen or 0.0, min(files.now, found.began))), found.nodes
        exited = exited if exited is not None and exited.restart >= run.restart else None
    ended = files.exit
    if exited is None and ended is not None and ended.restart > state.last_requeued:
        exited = ended if run is None or ended.restart >= run.restart else None
    return replace(state, nodes=nodes, phase=_phase(state, run, exited))


def _phase(state: SlurmState, run: ScriptRun | None, exited: ScriptExit | None) -> Phase:
    """Return the phase of a job that has not ended, from its script's reports."""
    if exited is not None:
        over = exited.final or not state.requeueable
        return Ended(run=run, exit=exited) if over else Exited(run=run, exit=exited)
    return state.phase if run is None else Running(run=run)


def _after_queue(state: SlurmState, row: QueuedJob | None, files: ScriptFiles) -> SlurmState:
    """Return the state after the queue and then the files were read; an end in the files takes precedence."""
    before, queue, now = state, state.queue, files.now
    if row is None:
        absences = queue.absences + 1
        state = _after_files(_in_queue(state, absences=absences, reachable=True), files)
        if state.finished or (state.exit is None and absences < MAX_ABSENCES):
            return state
        return replace(
            state, phase=Lost(run=state.run) if state.exit is None else Ended(run=state.run, exit=state.exit)
        )
    ceased = queue.row is not None and queue.row.suspended and not row.suspended
    resumed = now if ceased else queue.resumed
    state = _after_files(_in_queue(state, row=row, absences=0, reachable=True, resumed=resumed), files)
    if state.finished:
        return state
    if row.job_state is JobState.WAITING and not row.suspended:
        state = _in_queue(state, over_since=None)
        if isinstance(state.phase, Waiting):
            return replace(state, phase=replace(state.phase, last_seen=now))
        begun_before = not isinstance(before.phase, Waiting) and before.restart == state.restart
        return replace(_requeued(state, now), suspect_nodes=state.nodes) if begun_before else state
    nodes = row.nodes or state.nodes
    if row.job_state in (JobState.RUNNING, JobState.WAITING):
        return _in_queue(replace(state, nodes=nodes), over_since=None)
    return _after_end_in_queue(replace(state, nodes=nodes), row, now)


def _after_end_in_queue(state: SlurmState, row: QueuedJob, now: float) -> SlurmState:
    """Return the state once the queue reports the job as over or preempted: its files, or a requeue, may be late."""
    since = _first(state.queue.over_since, now)
    state = _in_queue(state, over_since=since)
    node_failed = row.state == "NODE_FAIL"
    if node_failed:
        state = replace(state, suspect_nodes=state.nodes)
    delay = REQUEUE_DELAY if row.job_state is None else EXIT_FILE_DELAY if state.exit is None else 0.0
    return _reported(state, row.state, row.reason, now) if node_failed or now - since >= delay else state


def _after_cancel(state: SlurmState, row: QueuedJob | None, files: ScriptFiles) -> SlurmState:
    if isinstance(state.phase, Unsettled):
        return replace(state, phase=state.phase.ended)
    state = _after_files(state, files)
    if state.finished:
        return state
    if row is None:
        return _reported(state, "CANCELLED", "", files.now)
    return _reported(_in_queue(state, row=row), row.state, row.reason, files.now)


def _after_end_check(state: SlurmState, check: EndChecked) -> SlurmState:
    phase, settled = state.phase, check.answered and check.final
    if settled and isinstance(phase, Unsettled):
        phase = phase.ended
    elif not settled and isinstance(phase, Ended):
        phase = Unsettled(ended=phase)
    return _in_queue(replace(state, phase=phase), reachable=check.answered)


def _after_note(state: SlurmState, note: NoteRead) -> SlurmState:
    state = replace(state, cancel_reason=note.cancel_reason or state.cancel_reason)
    if note.report is None:
        return state
    state = _after_files(replace(state, last_requeued=max(state.last_requeued, note.last_requeued)), note.files)
    return replace(
        state,
        nodes=note.nodes or state.nodes,
        phase=Ended(run=state.run, exit=state.exit, report=note.report),
    )


def _requeued(state: SlurmState, now: float) -> SlurmState:
    """Return the state of a job that runs again; the cost of its previous run is kept."""
    run, exited = state.run, state.exit
    seconds = max(0.0, (exited.ended if exited is not None else now) - run.began) if run is not None else 0.0
    return replace(
        state,
        phase=Waiting(last_seen=now),
        last_requeued=max(state.restart, state.last_requeued),
        earlier_seconds=state.earlier_seconds + seconds,
        queue=replace(state.queue, over_since=None),
    )


def _reported(state: SlurmState, name: str, reason: str, now: float) -> SlurmState:
    """Return the state of a job that ends by a report of the queue or the launcher."""
    report = EndReport(state=name, reason=reason, at=now, began=state.run.began if state.run is not None else None)
    return _with_report(state, report)


def _with_report(state: SlurmState, report: EndReport) -> SlurmState:
    return replace(state, phase=Ended(run=state.run, exit=state.exit, report=report))


def _in_queue(state: SlurmState, **changes: Any) -> SlurmState:
    return replace(state, queue=replace(state.queue, **changes))


def _first(earlier: float | None, now: float) -> float:
    return now if earlier is None else earlier


# -- for the study


def status_of(state: SlurmState, log: LogProgress, now: float) -> JobStatus:
    """Return the status of a job for the study's loop."""
    began = state.run.began if state.run is not None else None
    row = state.queue.row
    if state.over:
        job_state = JobState.LOST if isinstance(state.phase, Lost) else JobState.ENDED
        return JobStatus(state=job_state, began=began, iterations=log.iterations, number=log.number)
    if not state.queue.reachable:
        return JobStatus(state=JobState.UNKNOWN, reason="Slurm does not answer")
    if isinstance(state.phase, Unsettled):
        return JobStatus(state=JobState.WAITING, reason="a node seems to have failed; Slurm has not reported which")
    runs_in_queue = row is not None and row.job_state is JobState.RUNNING
    if began is None or (row is not None and row.suspended):
        return JobStatus(state=JobState.WAITING, reason="starting" if runs_in_queue else _why_it_waits(state))
    return log.status(began=began, now=now, resumed=state.queue.resumed)


def _why_it_waits(state: SlurmState) -> str:
    row = state.queue.row
    fallback = state.phase.reason if isinstance(state.phase, Waiting) else "queued"
    reason = waiting_reason(row) if row is not None else fallback
    return f"restarting after {state.failed_nodes} failed: {reason}" if state.failed_nodes else reason
