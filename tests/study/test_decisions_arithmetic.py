"""Decisions of a study, tested at the exact values where they change."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.stand_in import surrogate_of
from tests.study.test_arithmetic import trial
from tuner.core.outcomes import Measurement, Outcome
from tuner.core.text import DAY
from tuner.costmodel.estimate import INTERVAL
from tuner.costmodel.normal import below
from tuner.launch.contract import JobResult
from tuner.search.acquisition import Suggestion
from tuner.search.observations import Surprise
from tuner.space.build import space_for
from tuner.study import drift
from tuner.study.drift import SpeedPeriod, slowdowns
from tuner.study.limits import Limits
from tuner.study.ranking import RankedTrial, rank, rank_by_own_runs
from tuner.study.scheduler import Scheduler
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.trial import Proposal, Trial, next_repeat

approx: Any = pytest.approx
SMALL = ("nodes=4", "tp=1,4", "zero=1", "recompute=none", "cp=1", "micro_batch=1,2")


def test_a_proposal_has_the_80_percent_interval_of_its_estimate(tmp_path: Path) -> None:
    """A proposal's interval is exp(mean -+ 1.2816 deviations); with trials at reduced sizes it includes the noise."""
    space = space_for(model="gpt-1.3b", nodes=4, settings=SMALL)
    with open_loop(StudySettings(space=space, limits=Limits(budget=2), runs=tmp_path)) as loop:
        assert loop._most_days == math.inf
        mean, deviation = loop.state.surrogate.time.measured([1])
        risk = float(loop.state.surrogate.memory.out_of_memory()[1])
        first = loop.scheduler._proposal(1, why="first")
        loop.scheduler._plan = SimpleNamespace()  # type: ignore[assignment]
        cheap = loop.scheduler._proposal(1, why="cheap")
    assert cheap.estimate_high == approx((first.estimate_sec or 0) * math.exp(1.2816 * math.hypot(deviation[0], 0.012)))
    low, middle, high = first.estimate_low or 0, first.estimate_sec or 0, first.estimate_high or 0
    assert math.log(middle) == approx(float(mean[0]))
    assert math.log(high / middle) == approx(1.2816 * float(deviation[0]))
    assert math.log(middle / low) == approx(1.2816 * float(deviation[0]))
    assert first.out_of_memory == approx(risk)


def ranked(
    candidate: int = 0, *, days: float = 10.0, runs: int = 1, chance: float = 0.0, first: int = 0, wide: float = 0.01
) -> RankedTrial:
    """Return a ranked topology with the key `t<candidate>`."""
    return RankedTrial(
        candidate=candidate,
        key=f"t{candidate}",
        seconds=1.0,
        days=days,
        low=days * (1 - wide),
        high=days * (1 + wide),
        runs=runs,
        trials=(first,),
        chance_sooner=chance,
    )


class Decider:
    """A scheduler over a stand-in of a study's state with the given values."""

    def __init__(self, limits: Limits | None = None, **state: Any) -> None:
        usual: dict[str, Any] = {
            "store": SimpleNamespace(attributes={}, set_attribute=lambda *_: None),
            "launched": 0,
            "node_hours": 0.0,
            "noise": 0.012,
            "ranking": [],
            "trials": [],
            "speed_periods": [],
            "results": 0,
            "pending": [],
            "drift_suspected": False,
            "pool": SimpleNamespace(topology=lambda candidate: SimpleNamespace(nodes=2, key=f"t{candidate}")),
            "surrogate": surrogate_of(log_seconds=lambda: np.log([240.0]), least_need=lambda: (3, 1.5)),
            "overheads": lambda _iterations: [],
        }
        stand_in: Any = SimpleNamespace(**usual | state)
        self.scheduler: Any = Scheduler(stand_in, limits or Limits(), sampler="tpe", iterations=3)
        self.proposed: list[tuple[int, str]] = []
        self.given: dict[str, Any] = {}
        setattr(self.scheduler, "_proposal", self._propose)  # noqa: B010 - replaces a method

    def _propose(self, candidate: int, *, kind: str = "search", **given: Any) -> int:
        self.proposed.append((candidate, kind))
        self.given = given
        return candidate

    def checked(self, elapsed: float = 0.0) -> tuple[str | None, str | None]:
        """Check the limits, and return the reasons for stopping the search and for ending the study."""
        self.scheduler._check_limits(elapsed)
        return self.scheduler.stopping, self.scheduler.finished


@pytest.mark.parametrize(
    ("limits", "state", "elapsed", "why"),
    [
        (Limits(budget=5), {"launched": 5}, 0.0, "the budget of 5 jobs is used up"),
        (Limits(budget=5), {"launched": 4}, 0.0, None),
        (Limits(node_hours=2.0), {"node_hours": 2.0}, 0.0, "2.0 of 2.0 node-hours are used"),
        (Limits(node_hours=2.0), {"node_hours": 1.9}, 0.0, None),
        (Limits(deadline=7200.0), {}, 7200.0, "the deadline of 2.0 hours has passed"),
        (Limits(deadline=7200.0), {}, 7199.0, None),
    ],
)
def test_a_study_ends_at_its_limits(limits: Limits, state: dict[str, Any], elapsed: float, why: str | None) -> None:
    assert Decider(limits, **state).checked(elapsed) == (None, why)


@pytest.mark.parametrize(
    ("launched", "has_ranking", "stops"), [(33, True, False), (34, True, True), (34, False, False)]
)
def test_the_search_ends_at_the_final_round(launched: int, has_ranking: bool, stops: bool) -> None:
    """Of 40 jobs, 6 are for the final round; without any measurement there is no final round."""
    stopping, finished = Decider(Limits(budget=40), launched=launched, ranking=[ranked()] * has_ranking).checked()
    assert (stopping is not None, finished) == (stops, None)


@pytest.mark.parametrize(("patience", "stops"), [(3, False), (2, True)])
def test_patience_counts_search_jobs_after_the_leaders_first_run(patience: int, stops: bool) -> None:
    """Patience counts only search jobs that ended after the leader's first run.

    The leader is trial 1; trials 2 and 4 count, 3 is of the final round, and 5 is still running.
    """
    trials = [trial(number, number, 10.0) for number in range(5)]
    trials[3] = Trial(
        number=3,
        proposal=Proposal(key="3", params={}, topology={}, candidate=3, kind="final"),
        result=trials[3].result,
    )
    trials.append(Trial(number=5, proposal=Proposal(key="5", params={}, topology={}, candidate=5)))
    decider = Decider(Limits(patience=patience), trials=trials, ranking=[ranked(1, first=1)])
    assert decider.scheduler._jobs_since_best() == 2
    assert (decider.checked()[0] == f"no improvement in {patience} consecutive jobs") == stops


@pytest.mark.parametrize(
    ("gain", "risk", "words"),
    [
        (0.00214, 0.2, None),
        (
            0.00211,
            0.2,
            "no job is expected to shorten the training by more than 0.07%: the best remaining trial, t0, by 0.069%",
        ),
        (0.0007, 0.0, None),
        (None, 0.5, None),
    ],
)
def test_a_search_stops_without_an_expected_gain(gain: float | None, risk: float, words: str | None) -> None:
    """The search stops if gain x (1 - risk) - 0.5% x risk is below 0.07%; 0.002125 x 0.8 - 0.001 is exactly that."""
    decider = Decider(ranking=[ranked()])
    assert decider.scheduler._unprofitable(Suggestion(candidate=0, gain=gain, out_of_memory=risk)) == words


@pytest.mark.parametrize(("risk", "hopeless"), [(0.98, False), (0.99, True)])
def test_before_any_measurement_only_hopeless_candidates_are_skipped(risk: float, hopeless: bool) -> None:
    found = Decider().scheduler._unprofitable(Suggestion(candidate=0, gain=0.0, out_of_memory=risk))
    words = "no topology is likely to fit: even t3 would need 1.5 times the memory of a GPU"
    assert found == (words if hopeless else None)


@pytest.mark.parametrize(("gain", "pays"), [(0.0011, True), (0.0009, False)])
def test_a_job_must_save_its_own_cost(gain: float, pays: bool) -> None:
    """A job must save more node-hours than it costs: (120 + 3 x 240) s on 2 nodes are 0.467, 0.1% of 480 are 0.48."""
    decider = Decider(Limits(stop_when_unprofitable=True), ranking=[ranked(days=10.0)])
    assert decider.scheduler._cost(0) == approx(840 * 2 / 3600)
    found = decider.scheduler._unprofitable(Suggestion(candidate=0, gain=gain, out_of_memory=0.0))
    assert (found is None) == pays
    assert pays or "t0, is expected to save 0.4 node-hours and costs 0.5 (0.09% of 10.0 days on 2 nodes)" in str(found)
    start = (120 + 240) * 2 / 3600
    assert decider.scheduler._cost(0, 0.25) == approx(0.75 * 840 * 2 / 3600 + 0.25 * start), "it fails at first"


@pytest.mark.parametrize(("repeats", "launched", "words"), [(5, 40, None), (6, 40, "the final round has no jobs left")])
def test_the_final_round_ends_with_its_share(repeats: int, launched: int, words: str | None) -> None:
    """The final round ends after 6 of 40 jobs, or earlier if the leader is statistically separated."""
    final = Proposal(key="1", params={}, topology={}, candidate=1, kind="final")
    result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=1.0))
    trials = [Trial(number=number, proposal=final, result=result) for number in range(repeats)]
    decider = Decider(ranking=[ranked(1), ranked(2, chance=0.3)], trials=trials, launched=launched)
    assert (decider.scheduler._final() is None) == (words is not None)
    assert decider.scheduler.finished == words
    trials.append(trial(repeats, 2, 1.0))
    resumed = Decider(ranking=[ranked(2), ranked(1, chance=0.3)], trials=trials, launched=launched)
    assert resumed.scheduler._final() == 2, "repeats before a search job are of a smaller budget"
    alone = Decider(ranking=[ranked(1, runs=2)], launched=launched)
    assert alone.scheduler._final() is None
    assert alone.scheduler.finished == "the leader is statistically separated from all others"
    early = Decider(ranking=[ranked(1, runs=2)], launched=33)
    early.scheduler.stopping = "no improvement"
    assert (early.scheduler._final(), early.scheduler.finished) == (None, "no improvement")


def test_the_leader_runs_twice_before_a_study_ends() -> None:
    decider = Decider(ranking=[ranked(1), ranked(2)])
    assert (decider.scheduler._final(), decider.proposed) == (1, [(1, "final")])
    assert Decider(Limits(budget=6), ranking=[ranked(1)]).scheduler._final() is None, "so small a budget reserves none"


@pytest.mark.parametrize(
    ("fields", "measured", "why"),
    [
        ({}, True, "proposed by the tpe sampler"),
        ({"rejected": 3}, True, "proposed by the tpe sampler after 3 rejected proposals"),
        ({"gain": 0.25, "chance": 0.5}, False, "fastest by estimate among those likely to fit"),
        ({"gain": 0.0123, "chance": 0.504}, True, "50% chance to beat the best, expected gain 1.23%"),
    ],
)
def test_a_search_job_has_the_reason_of_its_choice(fields: dict[str, Any], measured: bool, why: str) -> None:
    assert Decider(ranking=[ranked()] * measured).scheduler._reason(Suggestion(candidate=0, **fields)) == why


def searching(gain: float, pending: list[int], results: int = 3) -> Decider:
    """Return a scheduler whose sampler expects this gain."""
    return Decider(
        ranking=[ranked(1, runs=2)],
        results=results,
        pending=pending,
        log_best=0.0,
        suggest=lambda: Suggestion(candidate=0, gain=gain, out_of_memory=0.0),
    )


def test_a_search_does_not_stop_while_jobs_run() -> None:
    """The search does not stop for lack of gain while jobs run, because their results may change the estimates."""
    running, alone = searching(0.0, [4]), searching(0.0, [])
    assert (running.scheduler._search(), running.scheduler.stopping) == (None, None)
    assert alone.scheduler._search() is None
    assert "by 0.000%" in alone.scheduler.stopping
    hopeless = Decider(pending=[4], suggest=lambda: Suggestion(candidate=0, gain=0.0, out_of_memory=0.999))
    assert (hopeless.scheduler._search(), hopeless.scheduler.stopping) == (None, None)


@pytest.mark.parametrize(("pending", "risk"), [([], 0.25), ([4], None)])
def test_a_risk_that_assumes_running_jobs_to_fit_is_not_stored(pending: list[int], risk: float | None) -> None:
    suggestion = Suggestion(candidate=7, gain=0.5, chance=0.4, out_of_memory=0.25)
    decider = Decider(pending=pending, suggest=lambda: suggestion, log_best=None)
    assert decider.scheduler._search() == 7
    why = "fastest by estimate among those likely to fit"
    assert decider.given == {"why": why, "out_of_memory": risk, "size": None, "chance": 0.4}


def test_a_stopped_search_continues_only_after_a_new_result() -> None:
    """A search that stopped for lack of gain continues only after a new result changes the estimates."""
    decider = searching(0.0, [])
    scheduler = decider.scheduler
    setattr(scheduler, "_reference", lambda: None)  # noqa: B010 - replaces a method
    setattr(scheduler, "_verification", lambda _saving: None)  # noqa: B010
    assert scheduler.next(0.0) is None
    assert scheduler.stopping is not None
    scheduler.finished = None
    scheduler._state.suggest = lambda: Suggestion(candidate=7, gain=0.5, chance=0.5, out_of_memory=0.0)
    assert scheduler.next(0.0) is None
    scheduler.finished = None
    scheduler._state.results = 4
    assert scheduler.next(0.0) == 7
    assert scheduler.stopping is None


def reference(number: int) -> Trial:
    """A reference run."""
    proposal = Proposal(key="0", params={}, topology={}, candidate=0, kind="reference", repeat=1)
    result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=1.0))
    return Trial(number=number, proposal=proposal, result=result)


@pytest.mark.parametrize(("jobs", "due"), [(14, False), (15, False), (16, True)])
def test_a_reference_run_is_due_after_its_interval(jobs: int, due: bool) -> None:
    """With 40 jobs, reference runs are 34 // 4 = 8 jobs apart; the last one is trial 7."""
    trials = [reference(number) if number == 7 else trial(number, number, 10.0) for number in range(jobs)]
    decider = Decider(Limits(budget=40), trials=trials, ranking=[ranked(4, first=4)])
    assert decider.scheduler._reference() == (4 if due else None)
    assert decider.proposed == ([(4, "reference")] if due else [])


def test_a_reference_is_of_the_present_period_and_not_of_the_last_job() -> None:
    trials = [trial(number, number, 10.0) for number in range(16)]
    ranking = [ranked(2, first=2), ranked(15, first=15), ranked(5, first=5), ranked(9, first=9, runs=2)]
    decider = Decider(Limits(budget=40), trials=trials, ranking=ranking, speed_periods=[SpeedPeriod(first=5, factor=1)])
    assert decider.scheduler._reference() == 5
    ranking[2] = ranked(5, first=5, runs=3)
    suspected = Decider(Limits(budget=6), trials=trials, ranking=ranking[2:], drift_suspected=True)
    assert suspected.scheduler._reference() == 9, "the one with the fewest runs"
    calm = Decider(Limits(budget=6), trials=trials, ranking=ranking).scheduler
    assert calm._reference() is None, "without a final round there is no reference run"


def test_a_repeat_has_the_next_free_number() -> None:
    trials = [trial(0, 1, 10.0), trial(1, 1, 10.0, repeat=3), trial(2, 2, 10.0, repeat=7)]
    assert [next_repeat(candidate, trials) for candidate in (1, 2, 3)] == [4, 8, 0]


def candidates() -> Any:
    """Return a stand-in pool of three candidates, of which the second has twice the work."""
    return SimpleNamespace(work=np.log([1e6, 2e6, 1e6]))


def surrogate(means: list[float], deviations: list[float], *surprises: Surprise) -> Any:
    """Return a stand-in surrogate with these seconds and deviations."""

    def measured(asked: list[int]) -> tuple[Any, Any]:
        return np.log(np.array(means)[asked]), np.array(deviations)[asked]

    return surrogate_of(usual_noise=0.01, pool=candidates(), measured=measured, surprises=lambda: list(surprises))


def test_rank_intervals_use_the_larger_of_posterior_and_repeats() -> None:
    """A ranked trial's interval uses the larger of the posterior's deviation and noise / sqrt(runs)."""
    trials = [trial(0, 0, 10.0), trial(1, 1, 4.0), trial(2, 1, 4.0, repeat=1), trial(3, 2, 9.0)]
    leader, second, third = rank(surrogate([10.0, 4.0, 9.0], [0.05, 0.001, 0.02]), trials)
    found = [(one.candidate, one.days * DAY) for one in (leader, second, third)]
    assert found == [(1, approx(8e6)), (2, approx(9e6)), (0, approx(10e6))]
    spread = 0.01 * math.sqrt(6 / 7)
    assert math.log(leader.high / leader.days) == approx(INTERVAL * spread / math.sqrt(2))
    assert math.log(third.days / third.low) == approx(INTERVAL * 0.05)
    assert (leader.runs, leader.trials, leader.chance_sooner) == (2, (1, 2), 0.0)
    z = -math.log(9 / 8) / (spread * math.sqrt(1 + 1 / 2))
    assert second.chance_sooner == approx(float(below(np.array([z]))[0]))


def test_runs_are_scaled_to_the_present_speed() -> None:
    """Earlier runs are scaled by the factors of later periods: 10 s before a factor of 1.02 count as 10.2 s."""
    trials = [trial(0, 0, 10.0), trial(2, 1, 8.0), trial(3, 0, 10.2, repeat=1)]
    found = rank_by_own_runs(candidates(), trials, slowdowns(trials, [SpeedPeriod(first=2, factor=1.02)]), 0.012)
    days = [(one.candidate, one.runs, one.days * DAY) for one in found]
    assert days == [(0, 2, approx(10.2e6)), (1, 1, approx(16e6))]
    widths = [math.log(found[0].high / found[0].days), math.log(found[0].days / found[0].low)]
    assert widths == approx([INTERVAL * 0.012 / math.sqrt(2)] * 2)
    assert [(one.key, one.trials) for one in found] == [
        (trials[0].proposal.key, (0, 3)),
        (trials[1].proposal.key, (2,)),
    ]


def test_repeats_are_compared_with_the_mean_of_earlier_runs() -> None:
    """A repeat's difference from the mean of n earlier runs has the deviation of a run times sqrt(1 + 1/n)."""
    runs = [trial(0, 1, 1.0), trial(3, 1, math.exp(0.2), repeat=1), trial(5, 1, math.exp(0.4), repeat=2)]
    first, second = drift._differences([*runs, trial(6, 2, 9.0)], 0.01)
    assert (first.earlier, first.repeat, first.log_ratio) == (0, 3, approx(0.2))
    assert (second.earlier, second.repeat, second.log_ratio) == (3, 5, approx(0.3))
    assert first.deviation == approx(0.01 * math.sqrt(2))
    assert second.deviation == approx(0.01 * math.sqrt(1.5))
    assert drift._weighted_mean([first, second]) == approx((0.2 / 2 + 0.3 / 1.5) / (1 / 2 + 1 / 1.5))


def test_a_factor_weights_topologies_by_their_runs_on_both_sides() -> None:
    """The factor is a mean over topologies with runs on both sides, weighted by 1 / (1/n_before + 1/n_after).

    The trial at which the period starts counts as after.
    """
    runs = [trial(0, 1, 1.0), trial(1, 2, 1.0), trial(2, 2, 1.0, repeat=1), trial(3, 3, 5.0)]
    after = [trial(4, 1, math.exp(0.3)), trial(5, 2, math.exp(0.1))]
    expected = (0.5 * 0.3 + (2 / 3) * 0.1) / (0.5 + 2 / 3)
    assert math.log(drift._factor([*runs, *after], 4)) == approx(expected)


def test_the_last_three_repeats_do_not_count_as_noise() -> None:
    runs = [trial(0, 1, 1.0), *(trial(number, 1, 1.0, repeat=number) for number in range(1, 6))]
    assert [one.number for one in drift._without_last_repeats(runs)] == [0, 1, 2]


@pytest.mark.parametrize(("factor", "words"), [(1.05, "5.0% slower"), (0.9, "10.0% faster")])
def test_a_speed_period_is_described_by_its_change(factor: float, words: str) -> None:
    assert SpeedPeriod(first=4, factor=factor).sentence() == f"The cluster became {words} at trial 4."


@pytest.mark.parametrize(("ratio", "found", "suspected"), [(1.014, False, False), (1.016, True, False)])
def test_a_change_below_one_and_a_half_percent_is_no_drift(ratio: float, found: bool, suspected: bool) -> None:
    """A change of speed below 1.5% is not drift, even without noise."""
    runs = [trial(0, 1, 10.0), trial(1, 2, 10.0)]
    runs += [trial(number + 1, number, 10.0 * ratio, repeat=1) for number in (1, 2)]
    finding = drift.detect(runs, [], lambda firsts, **_: 4.0 * len(firsts), usual=0.001)
    assert (finding.speed_periods is not None, finding.suspected) == (found, suspected)


@pytest.mark.parametrize(("gain", "pays"), [(0.0021, True), (0.0019, False)])
def test_a_reduced_job_must_save_its_own_cost(gain: float, pays: bool) -> None:
    """A job at a reduced size must save its own cost of 0.96 node-hours, 0.2% of 10 days on 2 nodes."""
    decider = Decider(Limits(stop_when_unprofitable=True), ranking=[ranked(days=10.0)])
    choice = SimpleNamespace(gain=gain, least=0.001, size=SimpleNamespace(node_hours=0.96))
    found = decider.scheduler._unprofitable(Suggestion(candidate=0, gain=0.5, out_of_memory=0.0), choice)
    assert (found is None) == pays
    assert pays or "is expected to save 0.9 node-hours and costs 1.0" in str(found)
    choice.least = gain * 1.01
    assert "no job is expected to shorten" in str(
        decider.scheduler._unprofitable(Suggestion(candidate=0, gain=0.5, out_of_memory=0.0), choice)
    )
