"""The loop of one process in a study, with a scripted launcher."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.study.scripted import MEASURED, begun, clocked, running_of, stored
from tuner.core.errors import LaunchError, StudyError
from tuner.core.outcomes import Failure, Outcome
from tuner.core.text import DAY
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.study import loop
from tuner.study.limits import Limits
from tuner.study.watchdog import StopDecision, Watchdog


def test_a_job_is_launched_watched_and_stored(study: Callable[..., Any]) -> None:
    """A job that ends is stored with its objective, node-hours and the launcher's clock, and becomes the leader."""
    made, launcher, events = study()
    assert made.step()
    (job,) = launcher.jobs
    assert made.running == {}
    assert job.folder == made.folder / "jobs" / f"0000-{job.topology.key}"
    document = json.loads((job.folder / "job.json").read_text())
    assert (document["number"], document["key"], document["iterations"]) == (0, job.topology.key, [2])
    (trial,) = made.store.trials()
    assert trial.handle == "job1"
    assert trial.result.objective == pytest.approx(2.0 * math.exp(made.pool.work[trial.proposal.candidate]) / DAY)
    assert trial.result.node_hours == pytest.approx(90.0 * job.topology.nodes / 3600)
    assert trial.result.clock == launcher.clock
    assert [(event.kind, event.text) for event in events] == [("started", trial.proposal.why), ("ended", "")]
    assert all(event.trial.number == 0 for event in events)
    assert events[1].trial.result == trial.result
    (leader,) = made.state.ranking
    assert leader.trials == (0,)


def test_a_loop_waits_for_its_next_poll_within_the_poll_interval(study: Callable[..., Any]) -> None:
    made, launcher, _ = study()
    launcher.status = lambda _: JobStatus(state=JobState.UNKNOWN)
    made.step()
    assert launcher.waited == [loop.MAX_POLL_INTERVAL]
    (running,) = made.running.values()
    running.watch = replace(running.watch, next_look=0.5)
    made.step()
    assert launcher.waited[1] == 0.5
    running.watch = replace(running.watch, next_look=0.01)
    made.step()
    assert launcher.waited[2] == 0.05


def test_a_disappeared_job_is_crashed(study: Callable[..., Any]) -> None:
    made, launcher, events = study()
    launcher.status = lambda _: JobStatus(state=JobState.LOST)
    made.step()
    (trial,) = made.store.trials()
    assert trial.result.outcome is Outcome.CRASHED
    assert events[-1].kind == "ended"
    assert events[-1].text == "the job disappeared without leaving a result"


def test_the_reason_for_waiting_is_reported_once(study: Callable[..., Any]) -> None:
    made, launcher, events = study()
    reasons = iter(["Priority", "Priority", "Resources", "Resources"])
    launcher.status = lambda _: JobStatus(state=JobState.WAITING, reason=next(reasons))
    for _ in range(4):
        made.step()
    assert [(event.kind, event.text) for event in events[1:]] == [("waits", "Priority"), ("waits", "Resources")]
    assert events[1].trial.number == 0


def test_three_failed_launches_in_a_row_end_the_study(study: Callable[..., Any]) -> None:
    """Three failed launches in a row end the study; a successful launch resets the count."""
    made, launcher, events = study()
    launcher.refuses = 2
    made.step()
    assert [event.kind for event in events] == ["note", "note", "started", "ended"]
    assert events[0].text == "not started: no more files."
    assert events[0].trial.number == 0
    assert len(launcher.jobs) == 1
    launcher.refuses = 3
    with pytest.raises(LaunchError, match="3 jobs in a row could not be started; the last error: no more files"):
        made.step()
    refused = [trial for trial in made.store.trials() if not trial.launched]
    assert len(refused) == 5


def test_a_topology_too_large_for_the_launcher_is_no_failed_launch(study: Callable[..., Any]) -> None:
    """A topology that needs more nodes than the launcher still has is closed and does not count as a failed launch."""
    made, launcher, events = study()
    launcher.nodes = 2
    large = int(np.flatnonzero(made.pool.column("nodes") == 4)[0])
    for _ in range(4):
        proposal = made.scheduler._proposal(large, why="large")
        trial = made.store.claim(replace(proposal, repeat=len(events)), made.state.space.distributions)
        made._launch_failed(trial, LaunchError("too few nodes."))
    assert len(events) == 4
    assert not made.state.open[made.pool.column("nodes") == 4].any()
    assert made.state.open[made.pool.column("nodes") == 2].any()
    assert made.tally is not None, "the rules were applied to a grid"


@pytest.mark.parametrize(("budget", "launched"), [(2, 2), (3, 3)])
def test_a_trial_is_withdrawn_if_other_processes_used_up_the_budget(
    budget: int, launched: int, study: Callable[..., Any]
) -> None:
    """A trial is withdrawn if jobs of all processes launched before it have used up the budget."""
    made, launcher, _ = study(Limits(budget=budget))
    for candidate in range(3):
        made._launch(made.scheduler._proposal(candidate, why=""))
    assert len(launcher.jobs) == launched
    withdrawn = [trial.result.reason for trial in made.store.trials() if trial.result and not trial.launched]
    assert withdrawn == ["another process used up the budget"] * (3 - launched)


def test_jobs_run_in_parallel_while_nodes_suffice(study: Callable[..., Any]) -> None:
    """A job starts only if enough of the 4 nodes are free."""
    made, launcher, _ = study(jobs=3)
    sizes: Any = made.pool.column("nodes")
    small, large = (int(np.flatnonzero(sizes == nodes)[0]) for nodes in (2, 4))
    proposals = {nodes: made.scheduler._proposal(at, why="") for nodes, at in ((2, small), (4, large))}
    for busy, wanted, fits in [([], 4, True), ([2], 2, True), ([2], 4, False), ([4], 2, False), ([2, 2], 2, False)]:
        made.running = {
            number: SimpleNamespace(trial=SimpleNamespace(proposal=proposals[nodes]))
            for number, nodes in enumerate(busy)
        }
        assert made._has_nodes_for(proposals[wanted]) is fits
        launcher.queues = True  # a cluster with a queue of its own
        assert made._has_nodes_for(proposals[wanted])
        launcher.queues = False
    made.running = {}
    assert launcher.jobs == []


@pytest.mark.parametrize(("outcome", "evidence"), [(Outcome.HUNG, "stacks"), (Outcome.PRUNED, "")])
def test_a_stopped_job_is_explained_only_if_it_hung(outcome: Outcome, evidence: str, study: Callable[..., Any]) -> None:
    """A stopped job is cancelled and charged since its start; its stack traces are collected only if it hung."""
    made, launcher, running = begun(study, ran=30.0)
    made._stop(running, StopDecision(outcome=outcome, reason="why", forecast=7.5, least=7.0))
    assert launcher.cancelled == ["job1"]
    assert launcher.explained == (["job1"] if evidence else [])
    result = stored(made)
    assert (result.outcome, result.reason, result.evidence) == (outcome, "why", evidence)
    assert (result.elapsed, result.forecast, result.least) == (30.0, 7.5, 7.0)


def test_a_job_that_never_started_used_no_node_hours(study: Callable[..., Any]) -> None:
    made, _launcher, running = begun(study)
    made._stop(running, StopDecision(outcome=Outcome.HUNG, reason="why"))
    assert stored(made).elapsed == 0.0


def test_three_unreadable_logs_in_a_row_end_the_search(study: Callable[..., Any]) -> None:
    made, launcher, _ = study(Limits(budget=30))
    unreadable = JobResult(outcome=Outcome.UNREADABLE, failure=Failure(kind="", evidence="no line", meaning="no log"))
    results = [unreadable, unreadable, MEASURED, unreadable, unreadable, unreadable]
    launcher.end_with(results)
    for number in range(1, 6):
        made.step()
        assert (len(launcher.jobs), made.scheduler.finished) == (number, None)
    made.step()
    assert made.scheduler.finished == "the last 3 jobs succeeded, but none could be measured: no line"
    assert not made.step()


@pytest.mark.parametrize(("kind", "stops"), [("search", True), ("final", False)])
def test_only_search_jobs_are_pruned(kind: str, stops: bool, study: Callable[..., Any]) -> None:
    """A search job whose seconds x e^work exceed the best is pruned; a job of the final round is not."""
    made, _launcher, running = begun(study)
    running.trial = replace(running.trial, proposal=replace(running.trial.proposal, kind=kind))  # type: ignore[arg-type]
    made._most_days = 10.3
    seconds = 10.3 * DAY / math.exp(made.pool.work[running.trial.proposal.candidate])
    assert made._longest(running.trial) == pytest.approx(seconds if stops else math.inf)


def test_a_job_without_a_logging_interval_is_watched_by_its_estimate(study: Callable[..., Any]) -> None:
    made, _launcher, running = begun(study)
    high = running.trial.proposal.estimate_high or 0.0
    assert running.watch == Watchdog.of(high, [])
    trial = replace(running.trial, proposal=replace(running.trial.proposal, estimate_high=None))
    made._watch(trial, running.job, "job9")
    estimate = math.exp(float(made.state.surrogate.time.log_seconds()[trial.proposal.candidate]))
    assert made.running[0].watch == Watchdog.of(estimate, [])
    assert made.running[0].trial.handle == made.running[0].handle == "job9"


def test_the_watchdog_stops_a_running_job(study: Callable[..., Any]) -> None:
    """A running job without progress beyond its limit is stopped as HUNG."""
    made, launcher, _ = begun(study)
    launcher.status = lambda _: JobStatus(state=JobState.RUNNING, began=1000.0)
    launcher.clock = 1e6
    made.step()
    assert stored(made).outcome is Outcome.HUNG
    assert stored(made).elapsed == pytest.approx(launcher.clock - 1000.0)


@pytest.mark.parametrize(
    ("outlives", "cancelled", "found", "outcome"),
    [
        (True, [], Outcome.MEASURED, None),
        (False, ["job1"], Outcome.CRASHED, Outcome.CANCELLED),
        (False, ["job1"], Outcome.MEASURED, Outcome.MEASURED),
    ],
)
def test_an_interrupted_study_leaves_jobs_that_outlive_it(
    outlives: bool, cancelled: list[str], found: Outcome, outcome: Outcome | None, study: Callable[..., Any]
) -> None:
    """The others are cancelled; one that had run its measured iteration by then counts as measured."""
    made, launcher, _ = begun(study)
    launcher.outlives = outlives
    launcher.result = lambda _: MEASURED if found is Outcome.MEASURED else JobResult(outcome=found)
    made.interrupt()
    assert launcher.cancelled == cancelled
    assert made.running == {}
    (trial,) = made.store.trials()
    assert (trial.result.outcome if trial.result else None) is outcome


def test_a_job_whose_folder_cannot_be_written_uses_no_part_of_the_budget(study: Callable[..., Any]) -> None:
    made, launcher, _ = study()
    (made.folder / "jobs").write_text("", encoding="utf-8")
    with pytest.raises(StudyError, match="cannot be written"):
        made.step()
    (trial,) = made.store.trials()
    assert (trial.launched, launcher.jobs) == (False, [])


def test_an_adopted_job_is_watched_and_a_lost_one_is_ended(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, launcher, events = study()
    running_of(made, launcher)
    made.running.clear()
    monkeypatch.setattr(loop, "gone", lambda _: False)
    made.reconcile()
    assert made.running == {}
    monkeypatch.setattr(loop, "gone", lambda _: True)
    made.reconcile()
    assert made.running[0].handle == "adopted"
    assert events[-1].kind == "adopted"
    assert events[-1].trial.number == 0
    job = made.running[0].job
    made.running.clear()
    launcher.found = None
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "ended.json").write_text('{"began": 100.0, "ended": 107.5}')
    made.reconcile()
    assert (events[-1].kind, events[-1].text) == ("lost", "the tuner that ran it exited, and its job is gone")
    result = stored(made)
    assert (result.outcome, result.clock, result.elapsed) == (Outcome.CANCELLED, launcher.clock, 7.5)
    assert result.node_hours == pytest.approx(7.5 * job.topology.nodes / 3600)
    candidate = made.state.trials[0].proposal.candidate
    assert made.state.open[candidate], "the next job may be of the same topology"


def test_a_trial_claimed_after_the_trials_were_read_is_adopted_later(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _launcher, _ = study()
    monkeypatch.setattr(loop, "gone", lambda _: True)
    proposal, read = made.scheduler.next(made._elapsed()), made.read
    claimed: list[Any] = []

    def read_before_another_claims(*, now: bool = False) -> None:
        read(now=now)
        if not claimed:
            claimed.append(made.store.claim(proposal, made.state.space.distributions))

    monkeypatch.setattr(made, "read", read_before_another_claims)
    made.reconcile()
    assert (len(claimed), made.running) == (1, {})
    made.reconcile()
    assert made.running[0].handle == "adopted"


def test_an_owner_on_another_host_is_gone_once_it_is_silent(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _launcher, _ = begun(study)
    made.running.clear()
    monkeypatch.setattr(loop, "gone", lambda _: None)
    made.reconcile()
    assert made.running == {}
    monkeypatch.setattr(made.store, "silent", lambda _: {0})
    made.reconcile()
    assert made.running[0].handle == "adopted"


def test_a_process_reports_once_for_which_owners_it_waits(
    study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so where it has nothing else to do, not as it starts."""
    made, launcher, events = study(Limits(budget=1))
    running_of(made, launcher)
    made.running.clear()
    events.clear()
    monkeypatch.setattr(loop, "gone", lambda _: None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made.reconcile()
    assert events == []
    assert made.step()
    assert made.step()
    (event,) = events
    assert (event.kind, event.trial.number) == ("waits", 0)
    assert event.text == (
        f"process {os.getpid()} on {socket.gethostname()} may still run it; its job is adopted after 120 s without a "
        "heartbeat"
    )


def test_heartbeats_are_ten_seconds_apart(study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, launcher, _ = study()
    beats: list[int] = []
    clock = clocked(monkeypatch)
    monkeypatch.setattr(made.store, "heartbeat", lambda trial: beats.append(trial.number))
    running_of(made, launcher)
    assert beats == [0]
    for now, expected in [(510.0, 1), (510.1, 2), (515.0, 2)]:
        clock["now"] = now
        made._look()
        assert len(beats) == expected


def test_a_study_is_read_at_most_once_per_interval(study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, events = study()
    clock = clocked(monkeypatch)
    reads: list[float] = []
    drift = SimpleNamespace(sentence=lambda: "It is slower.")
    monkeypatch.setattr(made.state, "read", lambda: reads.append(clock["now"]) or drift)  # type: ignore[func-returns-value]
    made.read()
    clock["now"] += loop.READ_INTERVAL * 0.9
    made.read()
    assert reads == [500.0]
    made.read(now=True)
    clock["now"] += loop.READ_INTERVAL
    made.read()
    assert len(reads) == 3
    assert (events[0].kind, events[0].text) == ("era", "It is slower. Earlier measurements are rescaled.")
