"""Repeats of surprising runs, ranks and the counts of a study's state, with stand-ins for its parts."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx  # noqa: PT013

from tests.search.stand_in import surrogate_of
from tests.study.test_arithmetic import trial
from tests.study.test_decisions_arithmetic import Decider, ranked, surrogate
from tests.study.test_sizes_arithmetic import LARGE, SMALL, ended, prospect
from tuner.core.outcomes import Measurement, Outcome
from tuner.core.text import DAY
from tuner.costmodel.estimate import INTERVAL
from tuner.costmodel.normal import below
from tuner.launch.contract import JobResult
from tuner.search.acquisition import improvement
from tuner.search.constants import ACCIDENT_DEVIATION
from tuner.search.observations import Surprise
from tuner.study.drift import periods_of
from tuner.study.leaderboard import EXTRAPOLATED, _outcome, _words
from tuner.study.limits import Limits
from tuner.study.ranking import RankedTrial, gain_of_repeat, noise, rank, values_of_repeats
from tuner.study.state import Prospect, StudyState
from tuner.study.store.trial import Proposal, Trial


def surprise(candidate: int, away: float) -> Surprise:
    """Return a run whose logarithm is `away` above the prediction from the other runs."""
    return Surprise(candidate=candidate, away=away, mean=math.log(9.0), deviation=0.03, noise=0.04)


def verifying(*surprises: Surprise, limits: Limits | None = None, sampler: str = "guided", **state: Any) -> Decider:
    """Return a scheduler whose leader, topology 0, takes 10e6 s to train."""
    decider = Decider(
        limits,
        ranking=[ranked(0)],
        log_best=math.log(10e6),
        pool=SimpleNamespace(work=np.log([1e6, 1e6, 1.05e6])),
        surrogate=surrogate_of(surprises=lambda: list(surprises)),
        **state,
    )
    decider.scheduler._sampler = sampler
    return decider


def test_a_possibly_accidental_slow_run_is_repeated() -> None:
    """A possibly accidental slow run is repeated if its chance times its expected improvement exceeds the best saving.

    It is not repeated while it already runs again, with another sampler, or without a final round.
    """
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
    gain = slow.accident * expected_improvement(slow, math.log(10e6 / 1e6))
    assert found.scheduler._verification(gain * 0.999) == 1
    assert found.scheduler._verification(gain * 1.001) is None


def expected_improvement(slow: Surprise, best: float) -> float:
    """Sum up the improvement on the best over the run's possible logarithms without the accident."""
    possible = np.linspace(best - 4, slow.mean + slow.away, 400_001)
    predicted = -0.5 * ((possible - slow.mean) / slow.deviation) ** 2
    delayed = -0.5 * ((slow.mean + slow.away - possible) / ACCIDENT_DEVIATION) ** 2
    chances = np.exp(predicted + delayed)
    return float((chances * np.maximum(0.0, best - possible)).sum() / chances.sum())


@pytest.mark.parametrize("deviation", [0.03, 0.3])
@pytest.mark.parametrize("away", [0.05, 0.4, 0.8])
def test_the_gain_of_a_repeat_is_that_of_a_run_without_its_accident(away: float, deviation: float) -> None:
    """The gain weighs what the other runs predict with how long an accident would have been.

    A run that took twice as long as the best is not repeated because its prediction is vague.
    """
    slow = Surprise(candidate=0, away=away, mean=0.1, deviation=deviation, noise=0.012)
    gain = gain_of_repeat(slow, 0.1, np.zeros(1))
    assert gain == approx(slow.accident * expected_improvement(slow, 0.1), rel=1e-3, abs=1e-12)
    if (away, deviation) == (0.8, 0.3):
        assert gain < 0.1 * slow.accident * float(improvement(np.array([0.1]), np.array([0.3]), 0.1)[0])
    assert gain_of_repeat(replace(slow, away=-away), 0.1, np.zeros(1)) == 0


def test_a_surprisingly_fast_leader_is_repeated_at_once() -> None:
    """A leader that is faster than predicted by more than three deviations, hypot(0.03, 0.04), is repeated at once."""
    assert verifying(surprise(0, -0.151)).scheduler._verification(1.0) == 0
    assert verifying(surprise(0, -0.149)).scheduler._verification(0.0) is None
    assert verifying(surprise(0, 0.4)).scheduler._verification(0.0) is None


@pytest.mark.parametrize(("away", "direction"), [(0.2, "longer"), (-0.2, "less")])
def test_a_repeat_states_the_difference_of_the_run(away: float, direction: str) -> None:
    decider, asked = Decider(), list[dict[str, Any]]()
    setattr(decider.scheduler, "_proposal", lambda candidate, **given: asked.append(given) or candidate)  # type: ignore[func-returns-value]  # noqa: B010
    assert decider.scheduler._repeat(surprise(1, away)) == 1
    words = f"repeated because it took {direction} than the other jobs predict by 4.0 standard deviations"
    assert asked == [{"why": words, "size": None}]
    decider.scheduler._plan = SimpleNamespace(repeated=lambda some: [f"size of {one}" for one in some])
    assert decider.scheduler._repeat(surprise(1, away)) == 1
    assert asked[1]["size"] == "size of 1"
    decider.scheduler._plan = SimpleNamespace(repeated=lambda _: [None])
    assert decider.scheduler._repeat(surprise(1, away)) is None


def test_the_reason_for_stopping_is_stored_with_the_limits() -> None:
    kept: dict[str, Any] = {}
    store = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__)
    decider = Decider(Limits(budget=30), store=store, results=4)
    decider.scheduler.stopping, decider.scheduler._results_seen = "why", 4
    decider.scheduler._store_stop()
    assert kept["stopping"] == {"limits": Limits(budget=30).document(), "why": "why", "speed_periods": []}
    again = Decider(Limits(budget=30), store=store).scheduler
    assert (again.stopping, again._by_estimate, again._results_seen) == ("why", False, 0)
    decider.scheduler._by_estimate = True
    decider.scheduler._store_stop()
    again = Decider(Limits(budget=30), store=store).scheduler
    assert (again.stopping, again._by_estimate, again._results_seen) == ("why", True, 4)
    other = Decider(Limits(budget=31), store=store).scheduler
    assert (other.stopping, other._by_estimate) == (None, False)


@pytest.mark.parametrize(("periods", "stopping"), [([], "why"), ([{"first": 3, "factor": 1.1}], None)])
def test_a_speed_period_found_since_the_search_stopped_resumes_it_in_another_process(
    periods: list[dict[str, Any]], stopping: str | None
) -> None:
    """A process that found a period may be killed before it proposes the next job."""
    kept: dict[str, Any] = {}
    store = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__)
    decider = Decider(Limits(budget=30), store=store)
    decider.scheduler.stopping = "why"
    decider.scheduler._store_stop()
    kept["eras"] = periods
    again = Decider(Limits(budget=30), store=store, speed_periods=periods_of(periods)).scheduler
    again._search = again._final = lambda: None
    again.next(0.0)
    assert again.stopping == stopping


def test_the_stop_of_a_study_of_an_earlier_version_is_that_of_its_present_speed_period() -> None:
    periods = [{"first": 3, "factor": 1.1}]
    kept = {"stopping": {"limits": Limits(budget=30).document(), "why": "why"}, "eras": periods}
    store = SimpleNamespace(attributes=kept, set_attribute=kept.__setitem__)
    again = Decider(Limits(budget=30), store=store, speed_periods=periods_of(periods)).scheduler
    again._search = again._final = lambda: None
    again.next(0.0)
    assert again.stopping == "why"


def test_the_value_of_a_repeat_is_its_possible_effect_on_the_choice() -> None:
    """The value of a repeat is the expected improvement of a mean that it moves by variance / sqrt(variance + noise^2).

    The gap of the leader is that to the runner-up.
    """
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
    """Noise averages six repeats of the usual noise and the runs, with weights (3 + 9) / (3 + max(ratio, 9))."""
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
def test_a_row_has_the_end_of_its_topology(extrapolated: bool | None, last: Outcome | None, word: str) -> None:
    row: RankedTrial | None = None
    if extrapolated is not None:
        row = RankedTrial(
            candidate=0, key="", seconds=1.0, days=1.0, low=1.0, high=1.0, runs=1, trials=(), extrapolated=extrapolated
        )
    assert _outcome(row, None if last is None else JobResult(outcome=last)) == word


def test_periods_read_as_words() -> None:
    assert _words(["", "", "era 2", ""]) == "era 1, era 2"


def test_the_overhead_of_a_job_is_its_time_without_iterations() -> None:
    """The overhead of a measured job is its elapsed time less all iterations: 100 - 3 x 10 s, 120 - 4 x (4 + 6) s."""
    small = Measurement(seconds=6.0, batch_seconds=(4.0, 6.0))
    jobs = [
        ended(elapsed=100.0),
        ended(fidelity=SMALL, measurement=small, elapsed=120.0),
        ended(elapsed=5.0),
        ended(Outcome.OOM, elapsed=50.0),
        Trial(number=9, proposal=Proposal(key="", params={}, topology={})),
    ]
    stand_in: Any = SimpleNamespace(trials=jobs)
    assert StudyState.overheads(stand_in, 3) == [(3, 70.0), (3, 80.0), (3, 0.0)]


def alike(candidates: list[int]) -> Any:
    """Return the covariance of deviations 0.1, 0.2 and 0.3 with correlations of one half."""
    deviations = np.array([0.1, 0.2, 0.3])[candidates]
    return np.outer(deviations, deviations) * (0.5 + 0.5 * np.eye(len(candidates)))


class Tried:
    """A stand-in with the parts of a study's state that its counts use."""

    def __init__(self, *trials: Trial) -> None:
        self.trials = self._known = list(trials)
        self._timed = [trial for trial in trials if trial.measured or trial.measured_reduced]
        self.open = np.ones(3, dtype=np.bool_)
        self._tried = set[int]()
        self.pool = SimpleNamespace(work=np.log([1e6, 2e6, 4e6]))
        self.surrogate = surrogate_of(
            joint=lambda jobs: (np.log([30.0, 20.0, 10.0])[[one for one, _ in jobs]], alike([one for one, _ in jobs])),
            trust=SimpleNamespace(repeat=0.05),
        )

    def has(self, trial: Trial) -> bool:
        """Whether the trial's candidate is one of the three."""
        return 0 <= trial.proposal.candidate < 3

    def _attempts(self, *, reduced: bool) -> Any:
        stand_in: Any = self
        return StudyState._attempts(stand_in, reduced=reduced)

    def closed(self) -> list[int]:
        """Return the candidates that are not proposed again."""
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
def test_a_topology_is_closed_by_a_result_or_two_failures(trials: list[Trial], closed: list[int]) -> None:
    assert Tried(*trials).closed() == closed


@pytest.mark.parametrize(
    "ending", [ended(Outcome.OOM, fidelity=SMALL), ended(Outcome.CANCELLED), ended(Outcome.REJECTED)]
)
def test_a_topology_is_closed_while_its_job_runs(ending: Trial) -> None:
    tried = Tried(Trial(number=0, proposal=ending.proposal))
    assert tried.closed() == [0]
    tried.trials = [ending]
    assert tried.closed() == []
    tried.open[0] = False  # by a launch that failed
    assert tried.closed() == ([] if ending.launched else [0])


def test_prospects_are_measured_topologies_that_did_not_fail_at_full_size() -> None:
    stand_in: Any = Tried(
        ended(candidate=1, fidelity=SMALL),
        ended(candidate=0),
        ended(Outcome.OOM, candidate=0),
        ended(candidate=2, fidelity=SMALL),
        ended(Outcome.OOM, candidate=2),
    )
    found = StudyState._find_prospects(stand_in)
    own, other = (0.2**2 - 0.01) / math.hypot(0.2, 0.05), (0.1**2 - 0.01) / math.hypot(0.1, 0.05)
    assert [(each.candidate, each.full) for each in found] == [(0, True), (1, False)]
    assert found[1].moved == approx(max(own, other)), "the run that moves more of how they compare"
    assert [each.mean for each in found] == approx([math.log(30.0e6), math.log(40.0e6)])


@pytest.mark.parametrize(
    ("prospects", "ranking", "best"),
    [([], [], None), ([], [ranked(days=2.0)], math.log(2 * 86400.0)), ([prospect(1, 7.0, full=False)], [], 7.0)],
)
def test_the_best_topology_is_the_leader_or_leads_by_extrapolation(
    prospects: list[Prospect], ranking: list[RankedTrial], best: float | None
) -> None:
    known = [ended(fidelity=SMALL)] if prospects else [ended()]
    stand_in: Any = SimpleNamespace(_known=known, prospects=lambda: prospects, ranking=ranking)
    assert StudyState.log_best.fget(stand_in) == (best if best is None else approx(best))  # type: ignore[attr-defined]


def test_a_trial_counts_by_its_measurement() -> None:
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
def test_reduced_topologies_are_ranked_if_the_answer_may_be_extrapolated(extrapolates: bool, keys: list[str]) -> None:
    """Topologies measured only at a reduced size are ranked if `extrapolates`, or if nothing else was measured.

    The interval of such a topology is that of the prediction.
    """
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


def test_a_change_of_speed_is_no_noise() -> None:
    """Runs of one topology on either side of a change of speed do not widen the intervals; within a period they do."""
    trials = [trial(0, 0, 10.0), trial(1, 1, 10.1), trial(2, 0, 12.0, repeat=1)]
    known = surrogate([12.0, 12.1], [0.001, 0.001])
    steady, drifted = (rank(known, trials, periods)[0] for periods in ({}, {2: "era 2"}))
    assert math.log(drifted.high / drifted.days) == approx(INTERVAL * 0.01 / math.sqrt(2))
    assert steady.high / steady.days > 1.02


@pytest.mark.parametrize(("away", "days"), [(0.06, 8.0), (0.1, 8.8), (-0.1, 8.0)])
def test_a_surprisingly_slow_run_ranks_by_itself_until_it_is_repeated(away: float, days: float) -> None:
    """A run more than three deviations slower than the others predict counts alone, not that prediction."""
    slow = Surprise(candidate=1, away=away, mean=math.log(4.4) - away, deviation=0.02, noise=0.01)
    trials = [trial(0, 0, 8.5), trial(1, 1, 4.4)]
    ranking = rank(surrogate([8.5, 4.0], [0.01, 0.01], slow), trials)
    found = {one.candidate: one.days * DAY / 1e6 for one in ranking}
    assert found == {0: approx(8.5), 1: approx(days)}
    assert ranking[0].candidate == (1 if days < 8.5 else 0)
