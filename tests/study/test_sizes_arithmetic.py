"""The size of a trial and the choice of repeats, with stand-ins for the parts of a study's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx  # noqa: PT013

from tests.search.stand_in import surrogate_of
from tests.stages import CLUSTER, WORKLOAD
from tests.study.test_decisions_arithmetic import Decider, ranked
from tests.workers import ONE
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Measurement, Outcome
from tuner.costmodel.normal import below
from tuner.launch.contract import JobResult
from tuner.search.acquisition import Suggestion, improvement
from tuner.search.constants import MAX_FIRST_RISK
from tuner.study.fidelity_plan import (
    MAX_REDUCED_RISK,
    MIN_GAIN,
    SHORTLIST,
    FidelityPlan,
    Size,
    job_of,
)
from tuner.study.limits import Limits
from tuner.study.state import Prospect
from tuner.study.store.trial import Proposal, Trial

SMALL = Fidelity(nodes=2, dp=2, micro_batches=(3, 5))


LARGE = Fidelity(nodes=4, dp=4, micro_batches=(3,))


def ended(
    outcome: Outcome = Outcome.MEASURED,
    *,
    candidate: int = 0,
    number: int = 0,
    fidelity: Fidelity | None = None,
    seconds: float = 10.0,
    **fields: Any,
) -> Trial:
    """Return an ended trial."""
    measurement = Measurement(seconds=seconds) if outcome is Outcome.MEASURED else None
    proposal = Proposal(key=f"t{candidate}", params={}, topology={}, candidate=candidate, nodes=3, fidelity=fidelity)
    result = JobResult(outcome=outcome, **{"measurement": measurement, **fields})
    return Trial(number=number, proposal=proposal, result=result)


class Reduced:
    """A stand-in for a reduced size; the cost model estimates its batches at 4 and 6 s."""

    variance = 0.09

    def level(self, site: str) -> float:
        """Return the logarithm of the cost model's seconds."""
        assert site == "site"
        return math.log(5.0)

    def seconds(self, site: str) -> np.ndarray[Any, Any]:
        """Return the seconds of each batch."""
        assert site == "site"
        return np.array([4.0, 6.0])


def joint(jobs: Sequence[tuple[int, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a posterior in which two topologies of 20 and 30 s are independent.

    All small jobs take 10 s and share a gap of variance 0.05.
    """
    own, small = np.array([0.04, 0.09]), np.array([size is not None for _, size in jobs])
    rows = np.array([candidate for candidate, _ in jobs])
    covariance = np.where(rows[:, None] == rows[None, :], own[rows], 0.0) + 0.05 * np.outer(small, small)
    return np.where(small, math.log(10.0), np.log([20.0, 30.0])[rows]), covariance


def plan(trial_nodes: int | None = None, *, risk: float = 0.1, **state: Any) -> FidelityPlan:
    """Return a plan over topologies 0 and 1 on 8 and 16 nodes, with estimates of 20 and 30 s."""
    usual: dict[str, Any] = {
        "pool": SimpleNamespace(
            topology=lambda candidate: SimpleNamespace(
                nodes=(8, 16)[candidate], dp=(8, 16)[candidate], gpus=(32, 64)[candidate]
            ),
            setting=lambda _candidate: (None, SimpleNamespace(gpus_per_node=4)),
            work=np.log([1e6, 2e6]),
        ),
        "surrogate": surrogate_of(
            reduced_out_of_memory=lambda jobs: np.array([risk] * len(jobs)),
            log_seconds=lambda: np.log([20.0, 30.0]),
            out_of_memory=lambda: np.array([0.25, 0.5]),
            joint=joint,
            model=SimpleNamespace(site="site"),
            trust=SimpleNamespace(repeat=0.05),
        ),
        "overheads": lambda _iterations: [],
        "trials": [],
        "ranking": [],
        "log_best": math.log(2e7),
        "prospects": list,
    }
    stand_in: Any = SimpleNamespace(**usual | state)
    reduced: Any = Reduced()
    reductions = {0: [(SMALL, reduced), (LARGE, reduced)], 1: [(SMALL, reduced)]}
    return FidelityPlan(
        state=stand_in, iterations=3, several_batches=True, trial_nodes=trial_nodes, _reductions=reductions
    )


def test_a_size_costs_its_start_and_all_batches_on_its_nodes() -> None:
    """A reduced size costs its start and 4 iterations of each batch, 8 and 12 s, on its nodes.

    Its deviation combines that of the topology and that of the gap.
    """
    small, large, full = plan().sizes([0])[0]
    assert small.fidelity is SMALL
    assert small.seconds == approx(12.0)
    assert (small.expected.deviation, small.risk) == approx((0.3, 0.1))
    assert small.node_hours == approx((120 + 4 * 20) * 2 / 3600)
    assert large.node_hours == approx((120 + 4 * 20) * 4 / 3600)
    assert full.fidelity is None
    assert (full.expected.deviation, full.risk) == approx((0.2, 0.25))
    assert (full.seconds, full.node_hours) == approx((20.0, (120 + 3 * 20) * 8 / 3600))
    assert full.expected.log_full == full.expected.log_seconds == approx(math.log(20.0))
    assert (small.expected.log_full, small.expected.log_seconds) == approx((math.log(20.0), math.log(10.0)))


def test_a_job_reveals_its_covariance_with_the_comparison() -> None:
    """A job y of topology x reveals cov(x - leader, y) / sqrt(var(y) + noise^2) of the comparison with the leader."""
    alone = plan().sizes([0])[0]
    assert alone[0].expected.revealed == approx(0.04 / math.sqrt(0.09 + 0.09 + 0.05**2))
    assert alone[-1].expected.revealed == approx(0.04 / math.sqrt(0.04 + 0.05**2))
    leader = [prospect(1, math.log(6e7), full=True)]
    beside = plan(prospects=lambda: leader).sizes([0, 1])
    assert beside[0][0].expected.revealed == approx(alone[0].expected.revealed), "they share nothing"
    chance = float(below(np.array([math.log(6e7 / 2e7) / math.sqrt(0.04 + 0.09)]))[0])
    assert [size.expected.chance for size in beside[0]] == approx([chance] * 3)
    assert beside[1][-1].expected.chance == approx(0.5), "the leader beside itself"


def test_variance_shared_with_the_leader_is_not_revealed() -> None:
    """The variance that a topology shares with the leader is not counted as revealed."""
    leader = [prospect(1, math.log(6e7), full=False)]
    made = plan(prospects=lambda: leader)
    made.state.surrogate.time.joint = lambda jobs: (joint(jobs)[0], joint(jobs)[1] + 0.5)  # type: ignore[method-assign]
    found = made.sizes([0])[0][-1].expected
    assert found.revealed == approx(0.04 / math.sqrt(0.54 + 0.05**2))
    assert found.deviation == approx(math.sqrt(0.54))


@pytest.mark.parametrize(
    ("trial_nodes", "risk", "sizes"),
    [
        (None, MAX_REDUCED_RISK, [SMALL, LARGE, None]),
        (None, MAX_REDUCED_RISK + 0.01, [None]),
        (8, MAX_REDUCED_RISK + 0.01, [None]),
        (7, MAX_FIRST_RISK, [SMALL, LARGE]),
        (7, MAX_FIRST_RISK + 0.01, []),
        (7, MAX_REDUCED_RISK, [SMALL, LARGE]),
    ],
)
def test_a_risky_reduced_size_is_tried_only_if_the_full_one_cannot_run(
    trial_nodes: int | None, risk: float, sizes: list[Fidelity | None]
) -> None:
    assert [size.fidelity for size in plan(trial_nodes, risk=risk).sizes([0])[0]] == sizes


@pytest.mark.parametrize(
    ("failed", "sizes"),
    [
        (ended(Outcome.OOM, fidelity=SMALL), [LARGE, None]),
        (ended(Outcome.OOM, fidelity=LARGE), [None]),
        (ended(Outcome.OOM), [SMALL, LARGE, None]),
        (ended(Outcome.CRASHED, fidelity=SMALL), [SMALL, LARGE, None]),
        (ended(Outcome.OOM, fidelity=LARGE, candidate=1), [SMALL, LARGE, None]),
    ],
)
def test_a_size_that_ran_out_of_memory_is_not_tried_again(failed: Trial, sizes: list[Fidelity | None]) -> None:
    assert [size.fidelity for size in plan(trials=[failed]).sizes([0])[0]] == sizes


def test_a_repeat_has_the_size_of_the_last_run() -> None:
    runs = [ended(fidelity=LARGE), ended(fidelity=SMALL), ended(candidate=1)]
    small, full = plan(trials=runs).repeated([0, 1])
    assert small is not None
    assert full is not None
    assert (small.fidelity, full.fidelity) == (SMALL, None)
    gone = [ended(fidelity=SMALL), ended(Outcome.OOM, fidelity=LARGE), ended(fidelity=SMALL)]
    assert plan(trials=gone).repeated([0]) == [None]


@pytest.mark.parametrize("log_best", [math.log(2e7), None])
def test_the_size_with_the_most_improvement_per_node_hour_is_chosen(log_best: float | None) -> None:
    made = plan(log_best=log_best)
    sizes = made.sizes([0])[0]
    suggestion = Suggestion(candidate=0, gain=0.1)
    choice = made._choice(suggestion, sizes)
    finish = math.log(20.0) + math.log(1e6)

    def gain(size: Size) -> float:
        revealed = size.expected.revealed
        best = finish if log_best is None else log_best
        return (
            float(improvement(np.array([finish]), np.array([revealed]), best)[0]) * (1 - size.risk) - 0.005 * size.risk
        )

    confirmed = 0.0 if log_best is None else sizes[-1].expected.chance * sizes[-1].node_hours
    best = max(sizes, key=lambda size: gain(size) / (size.node_hours + (confirmed if size.fidelity else 0.0)))
    assert choice.suggestion.candidate == 0
    assert choice.suggestion.chance == (None if log_best is None else sizes[0].expected.chance)
    assert choice.size == best
    assert choice.gain == approx(gain(best))
    assert choice.least == approx(MIN_GAIN * best.node_hours / sizes[-1].node_hours)


def test_a_confirmation_adds_to_the_cost_of_a_reduced_trial() -> None:
    """A topology that would certainly lead runs at full size directly, as it has to be confirmed in any case."""
    made = plan(log_best=math.log(2e7))
    small, *_, full = made.sizes([0])[0]
    for chance, fidelity in ((0.0, SMALL), (1.0, None)):
        sizes = [
            size._replace(risk=0.0, expected=size.expected._replace(chance=chance, revealed=revealed))
            for size, revealed in ((small, 0.18), (full, 0.2))
        ]
        assert made._choice(Suggestion(candidate=0, gain=0.1), sizes).size.fidelity is fidelity


def test_idle_ranks_on_a_single_node_cost_nothing() -> None:
    """On a single node, a reduced job is charged only for the GPUs that it uses."""
    made = plan()
    assert made._share_of_nodes(0, Fidelity(nodes=1, dp=1, micro_batches=(3,))) == 1.0
    made.state.pool.setting = lambda _candidate: (None, SimpleNamespace(gpus_per_node=16))  # type: ignore[assignment,return-value]
    assert made._share_of_nodes(0, Fidelity(nodes=1, dp=1, micro_batches=(3,))) == 0.25


def test_the_choice_is_the_best_of_the_shortlist() -> None:
    asked: list[int] = []

    def shortlist(count: int) -> list[Suggestion]:
        asked.append(count)
        return [Suggestion(candidate=0), Suggestion(candidate=1)]

    made = plan(shortlist=shortlist)
    choices = [made._choice(Suggestion(candidate=index), made.sizes([index])[0]) for index in (0, 1)]
    values = [choice.gain / choice.size.node_hours for choice in choices]
    assert values[0] != approx(values[1])
    assert made.choose() == choices[int(np.argmax(values))]
    assert asked == [SHORTLIST]
    assert plan(shortlist=lambda _count: []).choose() is None


def prospect(candidate: int, mean: float, *, full: bool, moved: float = 0.03) -> Prospect:
    """Return a prospect whose logarithm of time to train is `mean`."""
    return Prospect(candidate, mean, moved, full)


@pytest.mark.parametrize(
    ("prospects", "runs", "wanted", "words"),
    [
        ([prospect(4, 1.0, full=False), prospect(5, 1.1, full=True)], {}, 4, "leads by extrapolation"),
        ([prospect(4, 1.0, full=True), prospect(5, 2.0, full=False)], {}, 5, "it is the runner-up"),
        (
            [prospect(4, 1.0, full=True), prospect(5, 2.0, full=True), prospect(6, 1.01, full=False)],
            {4: 2, 5: 1},
            6,
            "measured at full size because that is expected to save",
        ),
        (
            [prospect(4, 1.0, full=True), prospect(5, 1.01, full=True), prospect(6, 2.0, full=False)],
            {4: 2, 5: 3},
            4,
            "repeated because that is expected to save",
        ),
        (
            [prospect(4, 1.0, full=True), prospect(5, 1.01, full=True), prospect(6, 1.01, full=False)],
            {4: 1, 5: 2},
            4,
            "repeated because the leader has run only once",
        ),
        (
            [prospect(4, 1.0, full=True), prospect(5, 1.01, full=True)],
            {4: 3, 5: 2},
            5,
            "repeated because that is expected to save",
        ),
        ([prospect(4, 1.0, full=True), prospect(5, 2.0, full=True)], {4: 2, 5: 1}, None, ""),
        ([prospect(4, 1.0, full=True)], {4: 1}, 4, "repeated because the leader has run only once"),
        ([prospect(4, 1.0, full=True)], {4: 2}, None, ""),
        ([], {}, None, ""),
    ],
)
def test_leader_and_runner_up_are_measured_before_other_rivals(
    prospects: list[Prospect], runs: dict[int, int], wanted: int | None, words: str
) -> None:
    ranking = [ranked(candidate, runs=count) for candidate, count in runs.items()]
    found = plan(prospects=lambda: prospects, ranking=ranking).next_full()
    assert (found and found[0]) == wanted
    assert found is None or words in found[1]
    assert plan(4, prospects=lambda: prospects, ranking=ranking).next_full() is None


def test_the_saving_of_a_run_is_its_expected_improvement_of_the_choice() -> None:
    leader, other = prospect(4, 1.0, full=True, moved=0.03), prospect(5, 1.05, full=True, moved=0.05)
    saving = plan()._saving(leader, other)
    assert saving == approx(float(improvement(np.array([1.05]), np.array([0.05]), 1.0)[0]))
    assert saving > MIN_GAIN


def test_a_leader_whose_repeat_fails_is_repeated_once_more() -> None:
    leader, failed = prospect(4, 1.0, full=True), {"launched": True, "reduced": False}
    own, small = SimpleNamespace(candidate=4), SimpleNamespace(candidate=4)
    for launches, wanted in ((1, 4), (2, 4), (3, None)):
        trials = [SimpleNamespace(**failed, proposal=own)] * launches
        trials += [SimpleNamespace(launched=True, reduced=True, proposal=small)] * 5
        made = plan(prospects=lambda: [leader], ranking=[ranked(4, runs=1)], trials=trials)
        found = made.next_full()
        assert (found and found[0]) == wanted


def test_the_reserve_covers_the_first_two_at_full_size() -> None:
    """The reserve covers two full-size runs of the leader and one of the runner-up, less those already done."""
    finish = math.log(20.0) + math.log(1e6)
    small, full = prospect(0, finish, full=False), prospect(0, finish, full=True)
    hours = (120 + 3 * 20.0) * 8 / 3600
    assert plan(prospects=lambda: [small, small]).reserve == approx(3 * hours)
    assert plan(prospects=lambda: [small, full], ranking=[ranked(0, runs=1)]).reserve == approx(2 * hours)
    assert plan(prospects=lambda: [full, small], ranking=[ranked(0, runs=1)]).reserve == approx(2 * hours)
    assert plan(prospects=lambda: [full, full, small], ranking=[ranked(0, runs=2)]).reserve == 0.0


@pytest.mark.parametrize(("used", "reserved"), [(6.9, 0.0), (7.0, 3.0), (7.1, 3.0)])
def test_the_last_node_hours_are_reserved_for_the_leaders(used: float, reserved: float) -> None:
    decider = Decider(Limits(node_hours=10.0), node_hours=used)
    assert decider.scheduler._reserved() == 0.0
    decider.scheduler._plan = SimpleNamespace(reserve=3.0)
    assert decider.scheduler._reserved() == reserved
    stopping, _ = decider.checked()
    assert stopping == (
        "the last 3.0 node-hours are reserved to measure the leaders at full size" if reserved else None
    )
    without = Decider(node_hours=used)
    without.scheduler._plan = SimpleNamespace(reserve=3.0)
    assert without.scheduler._reserved() == 0.0


def test_the_nodes_of_a_plan_are_those_of_the_fastest_reduced_topologies() -> None:
    assert plan().nodes == (2, 4)
    without = plan()
    without._reductions[0] = []
    assert without.nodes == (2, 2)


@pytest.mark.parametrize(
    ("fidelity", "nodes", "batch", "batches"),
    [(None, 1, None, ()), (SMALL, 2, 5 * 2 * 4, (3 * 2 * 4, 5 * 2 * 4)), (LARGE, 4, 3 * 4 * 4, ())],
)
def test_a_job_runs_the_largest_batch_of_its_size(
    fidelity: Fidelity | None, nodes: int, batch: int | None, batches: tuple[int, ...]
) -> None:
    pool: Any = SimpleNamespace(setting=lambda _: (WORKLOAD, CLUSTER), topology=lambda _: ONE)
    proposal = Proposal(key="key", params={}, topology={}, candidate=3, tag="t", fidelity=fidelity)
    job = job_of(Trial(number=7, proposal=proposal), pool, Path("folder"), (2, 3))
    assert (job.number, job.tag, job.folder) == (7, "t", Path("folder/jobs/0007-key"))
    assert (job.topology.nodes, job.topology.global_batch, job.batches) == (nodes, batch, batches)
    assert (job.workload, job.cluster) == (WORKLOAD, CLUSTER)
    assert job.iterations == ((2, 3) if fidelity is None else (2, 3, 4)), "of a few microbatches, one more is cheap"


@pytest.mark.parametrize(
    ("gain", "cheap", "resumes"), [(0.0009, False, False), (0.0009, True, True), (0.0015, False, True)]
)
def test_a_search_at_full_size_resumes_only_for_twice_the_saving(gain: float, cheap: bool, resumes: bool) -> None:
    """A search resumes for twice the minimum saving of 0.07% at full size, and for the minimum at reduced sizes."""
    decider = Decider(ranking=[ranked(days=10.0)])
    decider.scheduler._looks_again = True
    choice = SimpleNamespace(gain=gain, least=0.0007, size=SimpleNamespace(node_hours=1.0)) if cheap else None
    suggestion = Suggestion(candidate=0, gain=gain, out_of_memory=0.0)
    assert (decider.scheduler._unprofitable(suggestion, choice) is None) == resumes
