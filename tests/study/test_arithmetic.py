"""Drift, noise, pruning, cost and the watchdog, compared with values calculated by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.study import drift
from tuner.study.drift import SpeedPeriod
from tuner.study.limits import Limits
from tuner.study.ranking import RankedTrial, noise, rivals
from tuner.study.store.trial import Proposal, Trial
from tuner.study.watchdog import Watchdog, verdict


def trial(number: int, candidate: int, seconds: float, repeat: int = 0) -> Trial:
    """A measured trial."""
    proposal = Proposal(key=str(candidate), params={}, topology={}, candidate=candidate, repeat=repeat)
    return Trial(
        number=number,
        proposal=proposal,
        result=JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=seconds)),
    )


def test_a_speed_period_starts_with_its_first_trial() -> None:
    """A speed period contains its first trial, not the one before; the next trial belongs to the last period."""
    periods = [SpeedPeriod(first=3, factor=1.1), SpeedPeriod(first=7, factor=0.9)]
    names = [drift.label(number, periods, "") for number in (0, 2, 3, 6, 7, 99)]
    assert names == ["", "", "era 2", "era 2", "era 3", "era 3"]
    assert drift.label(4, periods, "june") == "june 2"
    assert drift.present(periods, "june") == "june 3"
    assert drift.present([], "june") == "june"


def test_the_assumed_noise_weighs_as_much_as_six_repeats() -> None:
    """Two runs at exp(-0.02) and exp(0.02) have a noise of sqrt((6 x 0.01^2 + 2 x 0.02^2) / (6 + 1))."""
    runs = [trial(0, 1, math.exp(-0.02)), trial(1, 1, math.exp(0.02)), trial(2, 2, 5.0)]
    assert noise(runs, usual=0.01) == pytest.approx(math.sqrt((6 * 0.01**2 + 2 * 0.02**2) / 7))
    assert noise(runs, {0: "a", 1: "b"}, usual=0.01) == pytest.approx(math.sqrt(6 * 0.01**2 / 6))


def test_drift_is_found_if_repeats_are_slower_by_more_than_three_deviations() -> None:
    """At 1% noise, two repeats that are 10% slower start a period with this factor.

    One that is 3.5% slower raises a suspicion, and 2% is noise.
    """
    first = [trial(0, 1, 10.0), trial(1, 2, 20.0)]
    slower = [trial(2, 1, 11.0, repeat=1), trial(3, 2, 22.0, repeat=1)]
    found = drift.detect([*first, *slower], [], lambda firsts, **_: 4.0 * sum(firsts), usual=0.01)
    assert found.speed_periods is not None
    (period,) = found.speed_periods
    assert period.first == 2
    assert period.factor == pytest.approx(1.1)
    calm = drift.detect([*first, trial(2, 1, 10.2, repeat=1)], [], lambda _firsts, **_: 0.0, usual=0.01)
    assert (calm.speed_periods, calm.suspected) == (None, False)
    doubt = drift.detect([*first, trial(2, 1, 10.35, repeat=1)], [], lambda _firsts, **_: 0.0, usual=0.01)
    assert (doubt.speed_periods, doubt.suspected) == (None, True)


def test_rivals_have_a_chance_of_at_least_a_fortieth() -> None:
    """Rivals have a chance of at least 1/40 to beat the leader and are listed by descending chance."""
    ranking = [
        RankedTrial(
            candidate=i, key=str(i), seconds=1, days=1, low=1, high=1, runs=1, trials=(i,), chance_sooner=chance
        )
        for i, chance in enumerate((0.0, 0.024, 0.025, 0.4))
    ]
    assert [ranked.key for ranked in rivals(ranking)] == ["3", "2"]


def test_the_watchdog_waits_for_six_iterations_and_three_starts() -> None:
    """With iterations of 10 s the limit is 60 s, and 60 + 3 x 50 s for the first; it is never below 30 s."""
    watch = Watchdog.of(10.0, [50.0, 20.0])
    assert (watch.step, watch.start) == (60.0, 210.0)
    assert (Watchdog.of(1.0, []).step, Watchdog.of(1.0, []).start) == (30.0, 930.0)
    seen = watch.seen(JobStatus(state=JobState.RUNNING, began=0.0, iterations=1, seconds_in=8.0, share=0.5, moved=5), 9)
    assert (seen.stalled, seen.next_look) == (4.0, 2.5)
    assert verdict(seen, 0.95 * 16.0, (2,)) is None
    decided = verdict(seen, 0.95 * 16.0 - 1e-9, (2,))
    assert decided is not None
    assert (decided.outcome, decided.forecast) == (Outcome.PRUNED, 16.0)


@pytest.mark.parametrize(
    ("iterations", "interval", "patience"),
    [(0, None, 200.0), (0, 1, 200.0), (0, 10, 740.0), (3, None, 200.0), (3, 1, 60.0), (3, 10, 600.0)],
)
def test_a_job_may_be_silent_for_as_long_as_its_log(iterations: int, interval: int | None, patience: float) -> None:
    """The limit is 200 s for the first iteration, plus 60 s for each further one until the next line of the log."""
    watch = Watchdog(start=200.0, step=60.0, iterations=iterations, number=2 * iterations, interval=interval)
    assert watch.patience == patience
    assert verdict(replace(watch, stalled=patience), math.inf, ()) is None
    stopped = verdict(replace(watch, stalled=patience + 1), math.inf, ())
    assert stopped is not None
    where = "after iteration 6" if iterations else "before the end of iteration 1"
    limit = f"(limit {patience:.0f} s)"
    assert (stopped.outcome, stopped.reason) == (Outcome.HUNG, f"no progress for {patience + 1:.0f} s {where} {limit}")


def test_measured_iterations_replace_the_estimate() -> None:
    """Measured iterations replace the estimate of 1 s: 40 s for the first allow 60 s, then 20 s allow 120 s."""
    watch = Watchdog.of(1.0, [])

    def look(now: float, iterations: int, ended: float) -> None:
        nonlocal watch
        running = JobStatus(
            state=JobState.RUNNING, began=100.0, iterations=iterations, seconds_in=now - ended, moved=ended
        )
        watch = watch.seen(running, now)

    look(141.0, 1, 140.0)
    assert watch.patience == 1.5 * 40
    look(161.0, 2, 160.0)
    assert watch.patience == 6 * 20
    look(166.0, 3, 165.0)
    assert watch.patience == 6 * 20
    look(280.0, 3, 165.0)
    assert verdict(watch, math.inf, ()) is None
    look(286.0, 3, 165.0)
    stopped = verdict(watch, math.inf, ())
    assert stopped is not None
    assert (stopped.outcome, stopped.reason) == (Outcome.HUNG, "no progress for 121 s after iteration 3 (limit 120 s)")


def test_a_forecast_starts_at_a_quarter_of_an_iteration() -> None:
    """A job is forecast from its current iteration only once a quarter of it is done."""
    watch = Watchdog(start=9.0, step=9.0, iterations=2, number=20, interval=10, seconds_in=4.0)
    for share, least in ((None, 0.4), (0.24, 0.4), (0.25, 0.95 * 1.6)):
        longest = (least - 1e-9, least + 1e-9)
        stopped = [verdict(replace(watch, share=share), limit, (3,)) is not None for limit in longest]
        assert stopped == [True, False]
    found = [verdict(replace(watch, share=share), 0.0, (3,)) for share in (None, 0.24, 0.25)]
    assert [one.forecast for one in found if one] == [None, None, pytest.approx(1.6)]
    words = "iterations 21 to 30 take at least 1.5 s each, too slow to beat the best"
    assert [one.reason for one in found if one][-1] == words
    one_line = verdict(replace(watch, interval=1, number=2, share=0.5), 0.0, (3,))
    assert one_line is not None
    assert one_line.reason == "iteration 3 takes at least 7.6 s, too slow to beat the best"
    for other in (replace(watch, interval=None), replace(watch, iterations=3)):
        assert verdict(other, 0.0, (3,)) is None
    assert verdict(watch, 0.0, (2, 3)) is None
    assert verdict(watch, math.inf, (3,)) is None


def test_the_final_round_has_15_percent_of_the_budget() -> None:
    """The final round has 15% of the budget: 6 of 40 jobs, 2 of 7, and none of 6."""
    assert [(Limits(budget=n).final, Limits(budget=n).search) for n in (6, 7, 40)] == [(0, 6), (2, 5), (6, 34)]
    assert [Limits(budget=n).reference_interval for n in (7, 40)] == [6, 8]


def test_one_slow_run_or_more_noise_is_no_drift() -> None:
    """Drift is found only if it explains the measurements better than one slow run and better than more noise."""
    runs = [trial(0, 1, 13.0), trial(1, 2, 13.0), trial(2, 1, 10.0, repeat=1), trial(3, 2, 10.0, repeat=1)]

    def likelihood(better: str) -> Any:
        def value(firsts: Any, **why: Any) -> float:
            return 9.0 if better in why and why[better] not in (None, 1.0) else 5.0 if firsts else 0.0

        return value

    for better, found in (("accident", False), ("noise", False), ("", True)):
        finding = drift.detect(runs, [], likelihood(better), usual=0.01)
        assert (finding.speed_periods is not None) == found


@pytest.mark.parametrize("seconds", [5.0, 13.0, 1e3])
def test_one_repeat_alone_only_raises_a_suspicion(seconds: float) -> None:
    """However far a single repeat is off, and however likely a change, another repeat has to confirm it."""
    runs = [trial(0, 1, 10.0), trial(1, 2, 10.0), trial(2, 1, seconds, repeat=1)]
    finding = drift.detect(runs, [], lambda firsts, **_: 99.0 * len(firsts), usual=0.01)
    assert (finding.speed_periods, finding.suspected) == (None, True)
    confirmed = [*runs, trial(3, 2, seconds, repeat=1)]
    assert drift.detect(confirmed, [], lambda firsts, **_: 99.0 * len(firsts), usual=0.01).speed_periods is not None


CONFIRMED = [trial(0, 1, 10.0), trial(1, 2, 10.0), trial(2, 1, 13.0, repeat=1), trial(3, 2, 13.0, repeat=1)]
"""Two topologies that take 30% longer when they are repeated."""


@pytest.mark.parametrize(("evidence", "found"), [(3.6, False), (3.8, True)])
def test_a_speed_period_needs_evidence_against_odds_of_twenty_to_one(evidence: float, found: bool) -> None:
    """A new period needs evidence of ln 20 + ln 2 = 3.689 at two repeats; moving its start needs only more evidence."""
    runs = CONFIRMED
    finding = drift.detect(runs, [], lambda firsts, **_: evidence * len(firsts), usual=0.01)
    assert (finding.speed_periods is not None, finding.suspected) == (found, not found)
    known = [SpeedPeriod(first=0, factor=1.2)]
    moved = drift.detect(runs, known, lambda firsts, **_: 0.1 * (firsts == [2]), usual=0.01)
    assert moved.speed_periods is not None
    assert [period.first for period in moved.speed_periods] == [2]


@pytest.mark.parametrize(("evidence", "found"), [(4.0, False), (4.2, True)])
def test_each_repeat_has_an_equal_share_of_the_odds_of_drift(evidence: float, found: bool) -> None:
    """The evidence needed at the third repeat is ln 20 + ln 3 = 4.094."""
    runs = [trial(0, 1, 10.0), *(trial(number, 1, 10.0, repeat=number) for number in (1, 2)), trial(3, 1, 13.0, 3)]
    finding = drift.detect(runs, [], lambda firsts, **_: evidence * len(firsts), usual=0.01)
    assert (finding.speed_periods is not None) == found


def test_a_change_of_speed_is_weighed_with_the_noise_without_it() -> None:
    """The likelihood of a change of speed uses the noise without the change, 1% instead of 2%."""
    asked = list[float]()

    def likelihood(firsts: Any, *, noise: float = 1.0, **_: Any) -> float:
        asked.append(noise)
        return 9.0 * len(firsts)

    assert drift.detect(CONFIRMED, [], likelihood, usual=0.01, assumed=0.02).speed_periods is not None
    assert min(asked) == pytest.approx(0.5)
