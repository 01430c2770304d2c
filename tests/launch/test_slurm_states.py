"""The state machine of a Slurm job: every phase under every observation, and exact values of the transitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.launch.contract import JobState, JobStatus
from tuner.launch.log_tail import LogProgress
from tuner.launch.slurm import states, transitions
from tuner.launch.slurm.parsing import QueuedJob
from tuner.launch.slurm.states import (
    Ended,
    EndReport,
    Exited,
    Lost,
    Observation,
    QueueView,
    Running,
    ScriptExit,
    ScriptFiles,
    ScriptRun,
    SlurmState,
    Unsettled,
    Waiting,
)
from tuner.launch.slurm.transitions import next_state, status_of

RUN = ScriptRun(restart=0, began=100.0, nodes="n1")
SECOND = ScriptRun(restart=1, began=300.0, nodes="n2")
DONE = ScriptExit(restart=0, began=100.0, ended=150.0, code=0)
KILLED = ScriptExit(restart=0, began=100.0, ended=150.0, code=143, signalled=True)
REPORT = EndReport(state="TIMEOUT", at=160.0, began=100.0)


def row(state: str, nodes: str = "", reason: str = "None") -> QueuedJob:
    return QueuedJob(id="12", state=state, nodes=nodes, reason=reason, name="tuner-1")


def files(now: float = 200.0, run: ScriptRun | None = None, exited: ScriptExit | None = None) -> ScriptFiles:
    return ScriptFiles(now=now, run=run, exit=exited)


def read(state: str | None, now: float = 200.0, run: ScriptRun | None = None, exited: ScriptExit | None = None,
         nodes: str = "") -> states.QueueRead:  # fmt: skip
    return states.QueueRead(row=None if state is None else row(state, nodes), files=files(now, run, exited))


def after(state: SlurmState, *observations: Observation) -> SlurmState:
    for observation in observations:
        state = next_state(state, observation)
    return state


STATES = {
    "waiting": SlurmState(phase=Waiting(last_seen=90.0)),
    "running": SlurmState(phase=Running(run=RUN), nodes="n1"),
    "exited": SlurmState(phase=Exited(run=RUN, exit=KILLED), nodes="n1"),
    "ended": SlurmState(phase=Ended(run=RUN, exit=DONE), nodes="n1"),
    "unsettled": SlurmState(phase=Unsettled(ended=Ended(run=RUN, report=REPORT)), nodes="n1", requeueable=False),
    "lost": SlurmState(phase=Lost(run=RUN)),
}

OBSERVATIONS: dict[str, tuple[Observation, str]] = {
    # observation, and the phase after it for each of STATES in order
    "no file": (states.FilesRead(files=files()), "W R X E U L"),
    "began": (states.FilesRead(files=files(run=RUN)), "R R X E U L"),
    "began again": (states.FilesRead(files=files(run=SECOND)), "R R R E U L"),
    "ended": (states.FilesRead(files=files(run=RUN, exited=DONE)), "E E X E U L"),
    "ended by a signal": (states.FilesRead(files=files(run=RUN, exited=KILLED)), "X X X E U L"),
    "absent": (read(None), "W R E E U L"),
    "pending": (read("PENDING"), "W W W E U L"),
    "running in the queue": (read("RUNNING"), "W R X E U L"),
    "suspended": (read("SUSPENDED"), "W R X E U L"),
    "completed": (read("COMPLETED"), "W R E E U L"),
    "node failed": (read("NODE_FAIL"), "E E E E U L"),
    "preempted": (read("PREEMPTED"), "W R X E U L"),
    "silence": (states.ControllerQueried(answered=False), "W R X E U L"),
    "answer": (states.ControllerQueried(answered=True), "W R X E U L"),
    "still waiting": (states.StillWaiting(reason="2 nodes in use"), "W R X E U L"),
    "cancel requested": (states.CancelRequested(reason="cancelled"), "W R X E U L"),
    "cancel confirmed": (states.CancelConfirmed(row=None, files=files()), "E E E E E L"),
    "script alive": (states.ScriptAlive(), "W R X E U L"),
    "script gone": (states.ScriptGone(now=200.0, confirmed=False), "W R X E U L"),
    "script gone for good": (states.ScriptGone(now=200.0, confirmed=True), "E E E E U L"),
    "nothing found": (states.NothingFound(), "L L L E U L"),
    "exit code": (states.ExitCodeRead(code=1), "W R X E U L"),
    "nodes examined": (states.NodesExamined(failed="n1"), "W R X E U L"),
    "end not checked": (states.EndChecked(answered=False), "W R X U U L"),
    "end checked": (states.EndChecked(answered=True), "W R X E E L"),
    "end checked too early": (states.EndChecked(answered=True, final=False), "W R X U U L"),
    "allocation ended": (states.AllocationEnded(), "W R X E U L"),
    "restarted elsewhere": (states.RestartedElsewhere(failed_nodes="n1", now=200.0), "W W W W W W"),
    "empty note": (
        states.NoteRead(cancel_reason="", report=None, last_requeued=-1, nodes="", files=files()),
        "W R X E U L",
    ),
    "note of an end": (
        states.NoteRead(cancel_reason="", report=REPORT, last_requeued=-1, nodes="n1", files=files()),
        "E E E E E E",
    ),
}
LETTERS = {Waiting: "W", Running: "R", Exited: "X", Ended: "E", Unsettled: "U", Lost: "L"}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_phase_has_a_successor_for_every_observation(name: str) -> None:
    observation, expected = OBSERVATIONS[name]
    found = [LETTERS[type(next_state(state, observation).phase)] for state in STATES.values()]
    assert dict(zip(STATES, found, strict=True)) == dict(zip(STATES, expected.split(), strict=True))


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_ended_phase_keeps_its_report_except_for_amendments(name: str) -> None:
    ended = replace(STATES["ended"], phase=Ended(run=RUN, report=REPORT))
    found = next_state(ended, OBSERVATIONS[name][0])
    amended = {
        "exit code": replace(REPORT, exit_code=1),
        "allocation ended": replace(REPORT, state=states.ALLOCATION_ENDED),
        "restarted elsewhere": None,
    }
    assert found.report == amended.get(name, REPORT)


# -- the script's files


@pytest.mark.parametrize(
    ("code", "signalled", "requeueable", "phase"),
    [
        (0, False, True, Ended),
        (127, False, True, Ended),
        (128, False, True, Exited),
        (None, False, True, Exited),
        (0, True, True, Exited),
        (143, True, False, Ended),
    ],
)
def test_an_exit_by_signal_is_final_only_if_slurm_cannot_requeue(
    code: int | None, signalled: bool, requeueable: bool, phase: type
) -> None:
    state = replace(STATES["running"], requeueable=requeueable)
    exited = replace(DONE, code=code, signalled=signalled)
    assert type(after(state, states.FilesRead(files=files(run=RUN, exited=exited))).phase) is phase


@pytest.mark.parametrize(("waited", "now", "began"), [(90.0, 200.0, 100.0), (120.0, 200.0, 120.0), (90.0, 95.0, 95.0)])
def test_a_run_starts_between_its_last_wait_and_now(waited: float, now: float, began: float) -> None:
    state = after(SlurmState(phase=Waiting(last_seen=waited)), states.FilesRead(files=files(now, RUN)))
    assert state.run == replace(RUN, began=began)
    assert state.nodes == "n1"


def test_files_of_a_requeued_run_are_stale() -> None:
    waiting = after(STATES["running"], read("PENDING", 200.0))
    assert after(waiting, states.FilesRead(files=files(210.0, RUN, KILLED))).phase == Waiting(last_seen=200.0)
    assert after(waiting, states.FilesRead(files=files(400.0, SECOND, KILLED))).phase == Running(run=SECOND)


def test_a_new_run_forgets_the_exit_of_the_previous_one() -> None:
    assert after(STATES["exited"], states.FilesRead(files=files(400.0, SECOND, KILLED))).phase == Running(run=SECOND)


# -- requeues


@pytest.mark.parametrize(("name", "seconds"), [("waiting", 0.0), ("running", 100.0), ("exited", 50.0)])
def test_a_requeue_adds_the_seconds_of_the_run_and_suspects_its_nodes(name: str, seconds: float) -> None:
    state = after(replace(STATES[name], earlier_seconds=7.0), read("PENDING", 200.0))
    assert state.earlier_seconds == 7.0 + seconds
    assert state.phase == Waiting(last_seen=200.0)
    assert (state.last_requeued, state.suspect_nodes) == ((-1, "") if name == "waiting" else (0, "n1"))


def test_a_job_that_starts_during_a_query_is_not_requeued() -> None:
    assert after(STATES["waiting"], read("PENDING", 200.0, RUN)).phase == Running(run=RUN)
    assert after(STATES["exited"], read("PENDING", 400.0, SECOND)).phase == Running(run=SECOND)


def test_a_rerun_step_names_the_failed_nodes() -> None:
    state = after(STATES["running"], states.RestartedElsewhere(failed_nodes="n1, n3", now=250.0))
    assert (state.failed_nodes, state.earlier_seconds, state.last_requeued) == ("n1, n3", 150.0, 0)
    assert state.phase == Waiting(last_seen=250.0)


# -- the end by the queue


def test_a_job_missing_from_two_consecutive_queries_is_lost() -> None:
    state = after(STATES["running"], read(None), read("RUNNING"), read(None))
    assert state.phase == Running(run=RUN)
    assert after(state, read(None)).phase == Lost(run=RUN)


@pytest.mark.parametrize(
    ("name", "slurm", "delay"),
    [
        ("running", "COMPLETED", transitions.EXIT_FILE_DELAY),
        ("exited", "COMPLETED", 0.0),
        ("running", "PREEMPTED", transitions.REQUEUE_DELAY),
        ("exited", "PREEMPTED", transitions.REQUEUE_DELAY),
        ("running", "A_NEW_STATE", transitions.REQUEUE_DELAY),
        ("running", "NODE_FAIL", 0.0),
    ],
)
def test_the_state_in_the_queue_counts_after_a_delay(name: str, slurm: str, delay: float) -> None:
    state = after(STATES[name], read(slurm, 200.0))
    if delay:
        state = after(state, read(slurm, 200.0 + delay - 0.1))
        assert not state.over
        state = after(state, read(slurm, 200.0 + delay))
    assert state.report == EndReport(state=slurm, reason="None", at=200.0 + delay, began=100.0)


def test_the_delay_restarts_when_the_job_runs_again() -> None:
    state = after(STATES["running"], read("PREEMPTED", 200.0), read("RUNNING", 210.0), read("PREEMPTED", 225.0))
    assert not after(state, read("PREEMPTED", 254.0)).over
    assert after(state, read("PREEMPTED", 255.0)).over


def test_a_late_exit_report_takes_precedence_over_the_queue() -> None:
    state = after(STATES["running"], read("COMPLETED", 200.0), read("COMPLETED", 203.0, RUN, DONE))
    assert state.phase == Ended(run=RUN, exit=DONE)


def test_nodes_are_those_of_the_queue_if_it_names_any() -> None:
    assert after(STATES["running"], read("RUNNING", nodes="n[1-2]")).nodes == "n[1-2]"
    assert after(STATES["running"], read("RUNNING")).nodes == "n1"
    assert after(STATES["running"], read("NODE_FAIL", nodes="n7")).suspect_nodes == "n7"


def test_nodes_that_fail_after_the_end_do_not_change_the_outcome() -> None:
    examined = states.NodesExamined(failed="n1")
    assert after(STATES["running"], examined).failed_nodes == "n1"
    assert after(STATES["ended"], examined).failed_nodes == ""
    assert after(replace(STATES["running"], suspect_nodes="n1"), examined).suspect_nodes == ""


# -- cancelling


def test_a_cancelled_job_ends_as_slurm_reports_unless_its_script_ended_first() -> None:
    state = after(STATES["running"], states.CancelRequested(reason="measured"))
    assert state.cancel_reason == "measured"
    gone = after(state, states.CancelConfirmed(row=row("TIMEOUT"), files=files(210.0)))
    assert gone.report == EndReport(state="TIMEOUT", reason="None", at=210.0, began=100.0)
    gone = after(state, states.CancelConfirmed(row=None, files=files(210.0)))
    assert gone.report == EndReport(state="CANCELLED", reason="", at=210.0, began=100.0)
    first = after(state, states.CancelConfirmed(row=None, files=files(210.0, RUN, DONE)))
    assert first.phase == Ended(run=RUN, exit=DONE)


def test_a_note_carries_the_findings_of_another_process() -> None:
    note = states.NoteRead(
        cancel_reason="cancelled", report=REPORT, last_requeued=0, nodes="n9", files=files(400.0, SECOND)
    )
    state = after(STATES["waiting"], note)
    assert state.phase == Ended(run=SECOND, report=REPORT)
    assert (state.cancel_reason, state.last_requeued, state.nodes) == ("cancelled", 0, "n9")


# -- the status


def status(state: SlurmState, log: LogProgress | None = None, now: float = 200.0) -> JobStatus:
    return status_of(state, log or LogProgress(), now)


def test_the_status_of_each_phase() -> None:
    found = {name: status(state).state.value for name, state in STATES.items()}
    assert found == {
        "waiting": "WAITING",
        "running": "RUNNING",
        "exited": "RUNNING",
        "ended": "ENDED",
        "unsettled": "WAITING",
        "lost": "LOST",
    }
    silent = {name: next_state(state, states.ControllerQueried(answered=False)) for name, state in STATES.items()}
    assert [status(state).state.value for state in silent.values()] == [
        *("UNKNOWN", "UNKNOWN", "UNKNOWN", "ENDED", "UNKNOWN", "LOST")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("slurm", "failed", "reason"),
    [
        (None, "", "queued"),
        (None, "n1", "restarting after n1 failed: queued"),
        ("PENDING", "", "Priority"),
        ("PENDING", "n1", "restarting after n1 failed: Priority"),
        ("RUNNING", "", "starting"),
        ("RUNNING", "n1", "starting"),
    ],
)
def test_a_waiting_job_has_a_reason(slurm: str | None, failed: str, reason: str) -> None:
    queued = None if slurm is None else row(slurm, reason="Priority")
    state = replace(STATES["waiting"], failed_nodes=failed, queue=QueueView(row=queued))
    assert status(state) == JobStatus(state=JobState.WAITING, reason=reason)


def test_a_running_job_has_the_time_of_its_iteration() -> None:
    log = LogProgress(iterations=3, number=3, interval=1, finished=180.0, share=0.25, moved=190.0)
    assert status(STATES["running"], log) == JobStatus(
        state=JobState.RUNNING, began=100.0, iterations=3, number=3, seconds_in=20.0, share=0.25, moved=190.0
    )
    assert status(STATES["running"]) == JobStatus(
        state=JobState.RUNNING, began=100.0, interval=None, seconds_in=100.0, moved=100.0
    )


def test_the_clock_of_an_iteration_restarts_after_a_suspension() -> None:
    suspended = after(STATES["running"], read("SUSPENDED", 150.0))
    assert status(suspended) == JobStatus(state=JobState.WAITING, reason="suspended")
    resumed = after(suspended, read("RUNNING", 195.0))
    found = status(resumed, LogProgress(iterations=1, finished=140.0, moved=145.0))
    assert (found.state, found.seconds_in, found.moved) == (JobState.RUNNING, 5.0, 195.0)
    assert after(resumed, read("RUNNING", 199.0)).queue.resumed == 195.0
