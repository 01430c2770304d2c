"""Which size a trial has, which runs are repeated, and what a study's state counts, over stand-ins of its parts."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx  # noqa: PT013

from tests.stages import CLUSTER, WORKLOAD
from tests.study.test_arithmetic import trial
from tests.study.test_decisions_arithmetic import Decider, ranked, surrogate
from tests.workers import ONE
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Measurement, Outcome
from tuner.costmodel.normal import below
from tuner.launch.contract import JobResult
from tuner.search.acquisition import Suggestion, improvement
from tuner.search.observations import Surprise
from tuner.study.fidelity_plan import (
    MAX_REDUCED_RISK,
    MIN_FULL_GAIN,
    MIN_GAIN,
    SHORTLIST,
    FidelityPlan,
    Size,
    job_of,
    plan_of,
    store_plan,
)
from tuner.study.leaderboard import EXTRAPOLATED, _outcome, _words, size
from tuner.study.limits import Limits
from tuner.study.ranking import INTERVAL, RankedTrial, noise, rank, values_of_repeats
from tuner.study.settings import StudySettings
from tuner.study.state import Prospect, StudyState
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
    """A trial that has ended."""
    measurement = Measurement(seconds=seconds) if outcome is Outcome.MEASURED else None
    proposal = Proposal(key=f"t{candidate}", params={}, topology={}, candidate=candidate, nodes=3, fidelity=fidelity)
    result = JobResult(outcome=outcome, **{"measurement": measurement, **fields})
    return Trial(number=number, proposal=proposal, result=result)


class Reduced:
    """A reduced size whose batches take 4 and 6 s by the cost model."""

    variance = 0.09

    def seconds(self, site: str) -> np.ndarray[Any, Any]:
        """Seconds of each batch."""
        assert site == "site"
        return np.array([4.0, 6.0])


def plan(trial_nodes: int | None = None, *, risk: float = 0.1, **state: Any) -> FidelityPlan:
    """A plan over topologies 0 and 1, of 8 and 16 nodes, that are expected to take 20 and 30 s."""
    usual: dict[str, Any] = {
        "pool": SimpleNamespace(
            topology=lambda candidate: SimpleNamespace(nodes=(8, 16)[candidate]), work=np.log([1e6, 2e6])
        ),
        "surrogate": SimpleNamespace(
            reduced_out_of_memory=lambda jobs: np.array([risk] * len(jobs)),
            log_seconds=lambda: np.log([20.0, 30.0]),
            out_of_memory=lambda: np.array([0.25, 0.5]),
            modelled=lambda candidate: (10.0, 30.0)[candidate],
            reference_site="site",
            deviation=lambda candidates: np.array([0.2, 0.3])[candidates],
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


# -- sizes


def test_a_size_costs_its_start_and_all_its_batches_on_its_nodes() -> None:
    """Twice as slow as modelled: 8 and 12 s, 3 iterations each, after 120 s."""
    small, large, full = plan().sizes([0])[0]
    assert small.fidelity is SMALL
    assert small.seconds == approx(12.0)
    assert (small.deviation, small.risk) == approx((0.3, 0.1))
    assert small.node_hours == approx((120 + 3 * 20) * 2 / 3600)
    assert large.node_hours == approx((120 + 3 * 20) * 4 / 3600)
    assert (full.fidelity, full.deviation, full.risk) == (None, 0.0, 0.25)
    assert (full.seconds, full.node_hours) == approx((20.0, (120 + 3 * 20) * 8 / 3600))
    assert full.log_full == approx(math.log(20.0))
    assert small.log_full == full.log_full


@pytest.mark.parametrize(
    ("trial_nodes", "risk", "sizes"),
    [
        (None, MAX_REDUCED_RISK, [SMALL, LARGE, None]),
        (None, MAX_REDUCED_RISK + 0.01, [None]),
        (8, MAX_REDUCED_RISK + 0.01, [None]),
        (7, MAX_REDUCED_RISK + 0.01, [SMALL, LARGE]),
        (7, MAX_REDUCED_RISK, [SMALL, LARGE]),
    ],
)
def test_a_risky_reduced_size_is_tried_only_where_the_full_one_cannot_be(
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


def test_the_start_of_a_job_is_that_of_jobs_with_nearly_as_many_nodes() -> None:
    """4 and 9 nodes are as far from 6 as 6 from either; of 4 nodes, the median."""
    known = [(4, 30.0), (4, 50.0), (4, 90.0), (9, 70.0), (1, 500.0)]
    made = plan()
    assert made._hours(10.0, 4, known) == approx((50.0 + 30.0) * 4 / 3600)
    assert made._hours(10.0, 6, known) == approx((60.0 + 30.0) * 6 / 3600)
    assert made._hours(10.0, 9, known) == approx((70.0 + 30.0) * 9 / 3600)


def test_a_repeat_has_the_size_of_the_last_run() -> None:
    runs = [ended(fidelity=LARGE), ended(fidelity=SMALL), ended(candidate=1)]
    assert plan(trials=runs).repeated(0).fidelity is SMALL  # type: ignore[union-attr]
    assert plan(trials=runs).repeated(1).fidelity is None  # type: ignore[union-attr]
    gone = [ended(fidelity=SMALL), ended(Outcome.OOM, fidelity=LARGE), ended(fidelity=SMALL)]
    assert plan(trials=gone).repeated(0) is None


@pytest.mark.parametrize("log_best", [math.log(2e7), None])
def test_the_size_with_the_most_improvement_for_its_node_hours_is_chosen(log_best: float | None) -> None:
    made = plan(log_best=log_best)
    sizes = made.sizes([0])[0]
    suggestion = Suggestion(candidate=0, gain=0.1)
    choice = made._choice(suggestion, sizes)
    finish = math.log(20.0) + math.log(1e6)

    def gain(size: Size) -> float:
        revealed = 0.2**2 / math.sqrt(0.2**2 + size.deviation**2 + 0.05**2)
        best = finish if log_best is None else log_best
        return (
            float(improvement(np.array([finish]), np.array([revealed]), best)[0]) * (1 - size.risk) - 0.005 * size.risk
        )

    best = max(sizes, key=lambda size: gain(size) / size.node_hours)
    assert choice.suggestion is suggestion
    assert choice.size == best
    assert choice.gain == approx(gain(best))
    assert choice.least == approx(MIN_GAIN * best.node_hours / sizes[-1].node_hours)


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


# -- the end


def prospect(candidate: int, mean: float, *, full: bool, deviation: float = 0.03) -> Prospect:
    """A topology that finishes at this logarithm."""
    return Prospect(candidate, mean, deviation, full)


@pytest.mark.parametrize(
    ("prospects", "runs", "wanted", "words"),
    [
        ([prospect(4, 1.0, full=False), prospect(5, 1.1, full=True)], {}, 4, "leads by extrapolation"),
        ([prospect(4, 1.0, full=True), prospect(5, 2.0, full=False)], {}, 5, "it is the runner-up"),
        (
            [prospect(4, 1.0, full=True), prospect(5, 2.0, full=True), prospect(6, 1.01, full=False)],
            {},
            6,
            "measured at full size because that is expected to save",
        ),
        (
            [prospect(4, 1.0, full=True), prospect(5, 1.01, full=True), prospect(6, 2.0, full=False)],
            {4: 1, 5: 2},
            4,
            "repeated because that is expected to save",
        ),
        (
            [prospect(4, 1.0, full=True), prospect(5, 1.01, full=True)],
            {4: 3, 5: 2},
            5,
            "repeated because that is expected to save",
        ),
        ([prospect(4, 1.0, full=True), prospect(5, 2.0, full=True)], {4: 1, 5: 1}, None, ""),
        ([prospect(4, 1.0, full=True)], {4: 1}, None, ""),
        ([], {}, None, ""),
    ],
)
def test_leader_and_runner_up_are_measured_and_then_whoever_may_win(
    prospects: list[Prospect], runs: dict[int, int], wanted: int | None, words: str
) -> None:
    ranking = [ranked(candidate, runs=count) for candidate, count in runs.items()]
    found = plan(prospects=lambda: prospects, ranking=ranking).next_full()
    assert (found and found[0]) == wanted
    assert found is None or words in found[1]
    assert plan(4, prospects=lambda: prospects, ranking=ranking).next_full() is None


def test_the_regret_is_the_expected_improvement_on_the_leader() -> None:
    leader, other = prospect(4, 1.0, full=True, deviation=0.03), prospect(5, 1.05, full=True, deviation=0.04)
    regret = plan()._regret(leader, other)
    assert regret == approx(float(improvement(np.array([1.05]), np.array([0.05]), 1.0)[0]))
    assert regret > MIN_FULL_GAIN


def test_the_reserve_is_what_the_first_two_take_at_full_size() -> None:
    """20 s on 8 nodes, since only topologies that did not run at full size have to."""
    finish = math.log(20.0) + math.log(1e6)
    first, second = prospect(0, finish, full=False), prospect(1, finish, full=True)
    hours = (120 + 3 * 20.0) * 8 / 3600
    assert plan(prospects=lambda: [first, second]).reserve == approx(hours)
    assert plan(prospects=lambda: [second, second, first]).reserve == 0.0


@pytest.mark.parametrize(("used", "reserved"), [(6.9, 0.0), (7.0, 3.0), (7.1, 3.0)])
def test_the_last_node_hours_are_kept_for_the_leaders(used: float, reserved: float) -> None:
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


@pytest.mark.parametrize(
    ("fidelity", "budget", "trial_nodes", "planned"),
    [("full", 40, None, False), ("auto", 40, None, True), ("auto", 6, None, False), ("auto", 6, 2, True)],
)
def test_a_study_has_sizes_where_a_final_round_confirms_them_or_none_can(
    fidelity: Any, budget: int, trial_nodes: int | None, planned: bool
) -> None:
    space: Any = None
    settings = StudySettings(
        space=space, limits=Limits(budget=budget), fidelity=fidelity, trial_nodes=trial_nodes, iterations=(2, 5, 4)
    )
    launcher: Any = SimpleNamespace(several_batches=True)
    found = plan_of(settings, SimpleNamespace(), launcher)  # type: ignore[arg-type]
    assert (found is not None) == planned
    if found is not None:
        assert (found.iterations, found.several_batches, found.trial_nodes) == (5, True, trial_nodes)
    kept: dict[str, Any] = {}
    store: Any = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__)
    store_plan(settings, store)
    assert kept == ({} if trial_nodes is None else {"extrapolates": True})


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
    assert (job.iterations, job.workload, job.cluster) == ((2, 3), WORKLOAD, CLUSTER)


# -- repeats of surprising runs


def surprise(candidate: int, away: float) -> Surprise:
    """A run that took longer than the others predict."""
    return Surprise(candidate=candidate, away=away, mean=math.log(9.0), deviation=0.03, noise=0.04)


def verifying(*surprises: Surprise, limits: Limits | None = None, sampler: str = "guided", **state: Any) -> Decider:
    """A scheduler of a study whose leader is topology 0, and finishes at log(10e6)."""
    decider = Decider(
        limits,
        ranking=[ranked(0)],
        log_best=math.log(10e6),
        pool=SimpleNamespace(work=np.log([1e6, 1e6, 1.05e6])),
        surrogate=SimpleNamespace(surprises=lambda: list(surprises)),
        **state,
    )
    decider.scheduler._sampler = sampler
    return decider


def test_a_run_that_an_accident_may_have_slowed_is_repeated() -> None:
    """Its chance times its improvement by the other runs; not while it runs again, and not without a final round."""
    slow = surprise(1, 0.4)
    found = verifying(slow)
    assert found.scheduler._verification(0.0) == 1
    assert found.proposed == [(1, "search")]
    assert verifying(surprise(1, -0.4)).scheduler._verification(0.0) is None
    assert verifying(slow, surprise(2, 0.4)).scheduler._verification(0.0) == 1
    assert verifying(surprise(2, 0.4), slow).scheduler._verification(0.0) == 1
    assert verifying(slow, pending=[1]).scheduler._verification(0.0) is None
    assert verifying(slow, sampler="tpe").scheduler._verification(0.0) is None
    assert verifying(slow, limits=Limits(budget=6)).scheduler._verification(0.0) is None
    gain = slow.accident * float(improvement(np.array([math.log(9e6)]), np.array([0.03]), math.log(10e6))[0])
    assert found.scheduler._verification(gain * 0.999) == 1
    assert found.scheduler._verification(gain * 1.001) is None


def test_a_leader_that_is_surprisingly_fast_is_repeated_at_once() -> None:
    """By more than three deviations of hypot(0.03, 0.04)."""
    assert verifying(surprise(0, -0.151)).scheduler._verification(1.0) == 0
    assert verifying(surprise(0, -0.149)).scheduler._verification(0.0) is None
    assert verifying(surprise(0, 0.4)).scheduler._verification(0.0) is None


@pytest.mark.parametrize(("away", "direction"), [(0.2, "longer"), (-0.2, "less")])
def test_a_repeat_says_by_how_much_the_run_differed(away: float, direction: str) -> None:
    decider, asked = Decider(), list[dict[str, Any]]()
    setattr(decider.scheduler, "_proposal", lambda candidate, **given: asked.append(given) or candidate)  # type: ignore[func-returns-value]  # noqa: B010
    assert decider.scheduler._repeat(surprise(1, away)) == 1
    words = f"repeated because it took {direction} than the other jobs predict by 4.0 standard deviations"
    assert asked == [{"why": words, "size": None}]
    decider.scheduler._plan = SimpleNamespace(repeated=lambda candidate: f"size of {candidate}")
    assert decider.scheduler._repeat(surprise(1, away)) == 1
    assert asked[1]["size"] == "size of 1"
    decider.scheduler._plan = SimpleNamespace(repeated=lambda _: None)
    assert decider.scheduler._repeat(surprise(1, away)) is None


def test_what_has_stopped_a_search_is_stored_with_its_limits() -> None:
    kept: dict[str, Any] = {}
    store = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__)
    decider = Decider(Limits(budget=30), store=store, results=4)
    decider.scheduler.stopping, decider.scheduler._results_seen = "why", 4
    decider.scheduler._store_stop()
    assert kept["stopping"] == {"limits": Limits(budget=30).document(), "why": "why"}
    again = Decider(Limits(budget=30), store=store).scheduler
    assert (again.stopping, again._by_estimate, again._results_seen) == ("why", False, 0)
    decider.scheduler._by_estimate = True
    decider.scheduler._store_stop()
    again = Decider(Limits(budget=30), store=store).scheduler
    assert (again.stopping, again._by_estimate, again._results_seen) == ("why", True, 4)
    other = Decider(Limits(budget=31), store=store).scheduler
    assert (other.stopping, other._by_estimate) == (None, False)


# -- ranking


def test_another_run_is_worth_what_it_may_change_of_the_choice() -> None:
    """A run moves what is expected by variance / sqrt(variance + noise^2); the leader's gap is that to the second."""
    ranking = [ranked(0, days=10.0, wide=0.05), ranked(1, days=10.2, wide=0.03), ranked(2, days=12.0, wide=0.1)]
    found = values_of_repeats(ranking, 0.02)
    gaps = [math.log(10.2 / 10.0), math.log(10.2 / 10.0), math.log(12.0 / 10.0)]
    for value, gap, one in zip(found, gaps, ranking, strict=True):
        deviation = math.log(one.high / one.low) / (2 * INTERVAL)
        moved = deviation**2 / math.sqrt(deviation**2 + 0.02**2)
        assert value == approx(float(improvement(np.array([gap]), np.array([moved]), 0.0)[0]))
    assert values_of_repeats(ranking[:1], 0.02) == [0.0]
    assert values_of_repeats([], 0.02) == []


def test_runs_that_differ_by_much_more_than_noise_weigh_less() -> None:
    """Iterated weights (3 + 9) / (3 + max(ratio, 9)) of mean squares, and six repeats of the usual noise."""
    runs = [trial(0, 0, 10.0), trial(1, 0, 12.0), trial(2, 0, 11.0), trial(3, 1, 10.0), trial(4, 1, 11.0)]
    squares = np.array([np.var(np.log([10.0, 12.0, 11.0])) * 3, np.var(np.log([10.0, 11.0])) * 2])
    freedom, found = np.array([2, 1]), 0.02
    for _ in range(5):
        weight = 12.0 / (3.0 + np.maximum(squares / freedom / found**2, 9.0))
        found = math.sqrt((6 * 0.02**2 + float((weight * squares).sum())) / (6 + 3))
    assert noise(runs, usual=0.02) == approx(found)
    apart = noise(runs, {0: "a", 1: "b", 2: "c"}, usual=0.02)
    alone, found = squares[1], 0.02
    for _ in range(5):
        found = math.sqrt((6 * 0.02**2 + 12.0 / (3.0 + max(alone / found**2, 9.0)) * alone) / 7)
    assert apart == approx(found)
    assert noise([], usual=0.02) == approx(0.02)


@pytest.mark.parametrize(
    ("extrapolated", "last", "word"),
    [
        (False, None, "MEASURED"),
        (True, None, EXTRAPOLATED),
        (None, None, "RUNNING"),
        (None, Outcome.OOM, "OOM"),
        (None, Outcome.MEASURED, EXTRAPOLATED),
    ],
)
def test_a_row_says_how_its_topology_ended(extrapolated: bool | None, last: Outcome | None, word: str) -> None:
    row: RankedTrial | None = None
    if extrapolated is not None:
        row = RankedTrial(
            candidate=0, key="", seconds=1.0, days=1.0, low=1.0, high=1.0, runs=1, trials=(), extrapolated=extrapolated
        )
    assert _outcome(row, None if last is None else JobResult(outcome=last)) == word


def test_counts_and_periods_read_as_words() -> None:
    assert [size(count) for count in (10**12, 180_500_000_000, 10**9, 999_000_000, 10**6, 999_000)] == [
        *("1T", "180B", "1B", "999M", "1M", "999K")
    ]  # fmt: skip
    assert _words(["", "", "era 2", ""]) == "era 1, era 2"


# -- what a study's state counts


def test_overheads_are_what_jobs_took_besides_their_iterations() -> None:
    """100 - 3 x 10 s at full size, 100 - 3 x (4 + 6) s at a reduced one; others do not count."""
    small = Measurement(seconds=6.0, batch_seconds=(4.0, 6.0))
    jobs = [
        ended(elapsed=100.0),
        ended(fidelity=SMALL, measurement=small, elapsed=110.0),
        ended(elapsed=5.0),
        ended(Outcome.OOM, elapsed=50.0),
        Trial(number=9, proposal=Proposal(key="", params={}, topology={})),
    ]
    stand_in: Any = SimpleNamespace(trials=jobs)
    assert StudyState.overheads(stand_in, 3) == [(3, 70.0), (3, 80.0), (3, 0.0)]


class Tried:
    """The parts of a study's state that its counts read."""

    def __init__(self, *trials: Trial) -> None:
        self.trials = self._known = list(trials)
        self.open = np.ones(3, dtype=np.bool_)
        self.pool = SimpleNamespace(work=np.log([1e6, 2e6, 4e6]))
        self.surrogate = SimpleNamespace(
            measured=lambda some: (np.log([30.0, 20.0, 10.0])[some], np.array([0.1, 0.2, 0.3])[some])
        )

    def has(self, trial: Trial) -> bool:
        """Whether the topology is one of three."""
        return 0 <= trial.proposal.candidate < 3

    def _attempts(self, *, reduced: bool) -> Any:
        stand_in: Any = self
        return StudyState._attempts(stand_in, reduced=reduced)

    def closed(self) -> list[int]:
        """Topologies that are not proposed again."""
        stand_in: Any = self
        StudyState._close_tried(stand_in)
        return [int(candidate) for candidate in np.flatnonzero(~self.open)]


@pytest.mark.parametrize(
    ("trials", "closed"),
    [
        ([ended()], [0]),
        ([ended(Outcome.OOM, candidate=2)], [2]),
        ([ended(Outcome.OOM, fidelity=SMALL)], []),
        ([ended(fidelity=SMALL)], [0]),
        ([ended(Outcome.CRASHED)], []),
        ([ended(Outcome.CRASHED), ended(Outcome.HUNG)], [0]),
        ([ended(Outcome.CRASHED), ended(Outcome.HUNG, candidate=1)], []),
        ([ended(Outcome.TIMED_OUT), ended(Outcome.UNREADABLE, fidelity=SMALL)], [0]),
        ([ended(Outcome.CANCELLED), ended(Outcome.PREEMPTED), ended(Outcome.CANCELLED)], []),
        ([ended(Outcome.REJECTED)], []),
        ([Trial(number=0, proposal=Proposal(key="", params={}, topology={}, candidate=1))], [1]),
    ],
)
def test_a_topology_is_tried_until_a_result_or_two_failures(trials: list[Trial], closed: list[int]) -> None:
    assert Tried(*trials).closed() == closed


def test_prospects_are_those_measured_at_some_size_that_have_not_failed_at_full_size() -> None:
    stand_in: Any = Tried(
        ended(candidate=1, fidelity=SMALL),
        ended(candidate=0),
        ended(Outcome.OOM, candidate=0),
        ended(candidate=2, fidelity=SMALL),
        ended(Outcome.OOM, candidate=2),
    )
    found = StudyState.prospects(stand_in)
    assert [(each.candidate, each.deviation, each.full) for each in found] == [(0, 0.1, True), (1, 0.2, False)]
    assert [each.mean for each in found] == approx([math.log(30.0e6), math.log(40.0e6)])


@pytest.mark.parametrize(
    ("prospects", "ranking", "best"),
    [([], [], None), ([], [ranked(days=2.0)], math.log(2 * 86400.0)), ([prospect(1, 7.0, full=False)], [], 7.0)],
)
def test_the_best_is_the_leader_or_what_leads_by_extrapolation(
    prospects: list[Prospect], ranking: list[RankedTrial], best: float | None
) -> None:
    known = [ended(fidelity=SMALL)] if prospects else [ended()]
    stand_in: Any = SimpleNamespace(_known=known, prospects=lambda: prospects, ranking=ranking)
    assert StudyState.log_best.fget(stand_in) == (best if best is None else approx(best))  # type: ignore[attr-defined]


def test_a_trial_counts_by_what_it_measured() -> None:
    found = [
        (one.launched, one.reduced, one.measured, one.measured_reduced)
        for one in (ended(), ended(fidelity=SMALL), ended(Outcome.OOM), ended(Outcome.REJECTED, fidelity=SMALL))
    ]
    assert found == [
        (True, False, True, False),
        (True, True, False, True),
        (True, False, False, False),
        (False, True, False, False),
    ]


@pytest.mark.parametrize(("extrapolates", "keys"), [(True, ["t2", "t1", "t0"]), (False, ["t1", "t0"])])
def test_what_ran_at_a_reduced_size_alone_is_ranked_where_the_answer_may_be_extrapolated(
    extrapolates: bool, keys: list[str]
) -> None:
    """Or where nothing else was measured; its spread is that of the prediction, of others that of their runs."""
    trials = [
        ended(candidate=0, number=0),
        ended(candidate=1, number=1),
        ended(candidate=1, number=2, fidelity=SMALL),
        ended(candidate=2, number=3, fidelity=SMALL),
        ended(Outcome.OOM, candidate=2, number=4, fidelity=LARGE),
    ]
    known = surrogate([10.0, 4.0, 3.0], [0.05, 0.001, 0.02])
    found = rank(known, trials, extrapolates=extrapolates)
    assert [one.key for one in found] == keys
    assert [(one.extrapolated, one.runs) for one in found] == [(True, 1)] * extrapolates + [(False, 1)] * 2
    if extrapolates:
        spread = noise(trials, usual=0.01)
        z = (math.log(4.0 * 2) - math.log(3.0)) / math.hypot(spread, 0.02)
        assert found[1].chance_sooner == approx(float(below(np.array([-z]))[0]))
        assert math.log(found[0].high / found[0].days) == approx(INTERVAL * 0.02)
    (alone,) = rank(known, trials[3:])
    assert (alone.key, alone.extrapolated) == ("t2", True)
    assert rank(known, trials[4:]) == []
