"""The cost of a job, and the limit of node-hours, beyond which no job starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.study.test_arithmetic import trial
from tests.study.test_decisions_arithmetic import Decider
from tests.study.test_fidelity import cheap
from tests.study.test_scheduler import searched
from tuner.core.fidelity import EXTRA_ITERATIONS, Fidelity
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobResult
from tuner.study.job_costs import JobCosts, shown_hours
from tuner.study.limits import Limits
from tuner.study.state import StudyState
from tuner.study.store.trial import Proposal

NEXT = Proposal(key="t9", candidate=9, nodes=2, params={}, topology={}, estimate_sec=160.0)
"""A job of 120 + 3 x 160 = 600 s on two nodes, a third of a node-hour, given three iterations and 120 s besides."""


def test_the_cost_of_a_job_is_its_overhead_and_its_iterations() -> None:
    """A job costs 120 s and its iterations; with probability `risk` only the first of them."""
    costs = JobCosts(iterations=3)
    assert costs.node_hours(seconds=30.0, nodes=4) == pytest.approx((120 + 3 * 30) * 4 / 3600)
    assert costs.node_hours(seconds=30.0, nodes=4, extra=2) == pytest.approx((120 + 5 * 30) * 4 / 3600)
    for risk in (0.25, 1.0):
        expected = (1 - risk) * (120 + 3 * 30) + risk * (120 + 30)
        assert costs.node_hours(seconds=30.0, nodes=4, risk=risk) == pytest.approx(expected * 4 / 3600)


def test_the_overhead_of_a_job_is_that_of_jobs_of_similar_size() -> None:
    """The overhead of a job is the median overhead of the jobs with the closest number of nodes."""
    costs = JobCosts(iterations=3, overheads=[(4, 30.0), (4, 50.0), (4, 90.0), (9, 70.0), (1, 500.0)])
    assert costs.node_hours(seconds=10.0, nodes=4) == pytest.approx((50.0 + 30.0) * 4 / 3600)
    assert costs.node_hours(seconds=10.0, nodes=6) == pytest.approx((60.0 + 30.0) * 6 / 3600)
    assert costs.node_hours(seconds=10.0, nodes=9) == pytest.approx((70.0 + 30.0) * 9 / 3600)


def test_before_a_measurement_the_time_of_other_jobs_is_their_overhead() -> None:
    """A job that waits has none, and one that is measured replaces the time of failed ones."""
    failed = replace(trial(0, 0, 0.0), result=JobResult(outcome=Outcome.OOM, elapsed=30.0))
    state: Any = SimpleNamespace(trials=[failed, replace(trial(1, 1, 0.0), result=None)])
    assert StudyState.overheads(state, 3) == [(failed.proposal.nodes, 30.0)]
    measured = trial(2, 2, 10.0)
    assert measured.result is not None
    state.trials.append(replace(measured, result=replace(measured.result, elapsed=50.0)))
    assert StudyState.overheads(state, 3) == [(measured.proposal.nodes, 20.0)]


def test_a_reduced_job_costs_all_its_batches() -> None:
    """A job of 4 and 12 microbatches, with 160 s for the latter, takes 160 x 16 / 12 s an iteration of both."""
    small = replace(NEXT, nodes=1, fidelity=Fidelity(nodes=1, dp=1, micro_batches=(4, 12)))
    expected = 120 + (3 + EXTRA_ITERATIONS) * 160 * 16 / 12
    assert JobCosts(iterations=3).of_proposal(small) == pytest.approx(expected / 3600)


def decided(limit: float | None, *, used: float, launched: int = 1, running: int = 0, **more: Any) -> tuple[bool, Any]:
    """Return whether the next job starts, and the reason for ending the study."""
    pending = [replace(trial(number, number, 0.0), proposal=NEXT, result=None) for number in range(running)]
    given = {"overheads": lambda _iterations: [(2, 120.0)], "trials": pending, **more}
    decider = Decider(Limits(node_hours=limit), node_hours=used, launched=launched, **given)
    starts = decider.scheduler._within_node_hours(NEXT) is NEXT
    return starts, decider.scheduler.finished


def test_a_job_starts_only_with_enough_node_hours_left() -> None:
    """A job starts only if the remaining node-hours cover its estimated cost; the first job always starts."""
    assert decided(None, used=1e6) == (True, None)
    assert decided(2.0, used=1.6) == (True, None)
    over = "1.7 of 2.0 node-hours are used, and the next job would need about 0.33"
    assert decided(2.0, used=1.7) == (False, over)
    assert decided(0.1, used=0.0, launched=0) == (True, None)


def test_running_jobs_count_as_used_and_are_waited_for() -> None:
    assert decided(2.0, used=1.3, running=1) == (True, None)
    assert decided(2.0, used=1.4, running=1) == (False, None)


def test_a_study_stays_within_its_node_hours(tmp_path: Path) -> None:
    """A study exceeds its limit of node-hours by less than 10%, although it only estimates the cost of jobs."""
    found = searched(tmp_path, Limits(budget=40, node_hours=1.0))
    assert 2 < len(found.launched) < 40
    assert found.node_hours < 1.1
    assert "of 1.0 node-hours are used, and the next job would need about" in found.ended


@pytest.mark.parametrize(("hours", "text"), [(0.0312, "0.031"), (0.96, "1.0"), (4.25, "4.2"), (1234.0, "1,234.0")])
def test_few_node_hours_are_printed_with_two_digits(hours: float, text: str) -> None:
    assert shown_hours(hours) == text


@pytest.mark.slow
def test_reduced_trials_leave_the_node_hours_for_the_leader(tmp_path: Path) -> None:
    """Reduced trials leave the node-hours for the leader at full size; only that job may exceed a very low limit."""
    unlimited = cheap(tmp_path / "a", budget=30)
    limit = 0.6 * unlimited.node_hours
    study = cheap(tmp_path / "b", budget=30, node_hours=limit)
    assert study.node_hours <= limit
    small = cheap(tmp_path / "c", budget=30, node_hours=0.05 * unlimited.node_hours)
    assert sum(trial.measured for trial in small.launched) == 1
