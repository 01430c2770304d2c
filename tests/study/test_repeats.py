"""The value of repeating a measured topology."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.stand_in import surrogate_of
from tests.study.test_arithmetic import trial
from tests.study.test_decisions_arithmetic import Decider, ranked
from tuner.search.observations import Surprise
from tuner.study.limits import Limits
from tuner.study.ranking import values_of_repeats

approx: Any = pytest.approx


def test_the_value_of_a_repeat_is_its_expected_improvement() -> None:
    """The value is the expected improvement of a mean that moves by v / sqrt(v + n^2), for variance v and noise n."""
    equal = values_of_repeats([ranked(1, wide=0.012816), ranked(2, wide=0.012816)], noise=0.01)
    assert equal == approx([0.01 / math.sqrt(2) / math.sqrt(2 * math.pi)] * 2, rel=1e-3)
    assert values_of_repeats([ranked(1)], noise=0.01) == [0.0]
    far = values_of_repeats([ranked(1), ranked(2, days=11.0)], noise=0.01)
    assert max(far) < 1e-12


def test_a_contender_is_repeated_before_a_trial_that_saves_less() -> None:
    """A search repeats the topology whose next run improves the choice most, unless another trial saves more.

    Where no repeat saves 0.07%, or while another job runs, there is none.
    """
    tied = [ranked(1, runs=2, wide=0.01), ranked(2, days=10.02, wide=0.005), ranked(3, days=10.02, wide=0.012)]
    values = values_of_repeats(tied, noise=0.012)
    assert values[2] > values[0] > values[1]
    for ranking, pending, saving, repeated in (
        (tied, [], 0.0, 3),
        (tied, [], values[2] * 1.01, None),
        (tied, [7], 0.0, None),
        ([ranked(1, wide=0.005), ranked(2, days=10.5, wide=0.005)], [], 0.0, None),
        (tied[:1], [], 0.0, None),
    ):
        stand_in = surrogate_of(surprises=list)
        decider = Decider(surrogate=stand_in, pending=pending, ranking=ranking, log_best=0.0)
        decider.scheduler._sampler = "guided"
        assert decider.scheduler._verification(saving) == repeated
        assert decider.proposed == ([] if repeated is None else [(repeated, "search")])


def test_the_final_round_repeats_the_topology_with_the_highest_value() -> None:
    """Of two equally close rivals the less certain one is repeated, and none if no repeat can change the leader."""
    tied = [ranked(1, runs=2), ranked(2, days=10.02, chance=0.3, wide=0.005), ranked(3, days=10.02, chance=0.3)]
    assert Decider(ranking=tied).scheduler._final() == 3
    sure = [ranked(1, runs=2, wide=0.001), ranked(2, days=10.2, chance=0.03, wide=0.005)]
    decider = Decider(ranking=sure)
    decider.scheduler.stopping = "no improvement"
    assert (decider.scheduler._final(), decider.scheduler.finished) == (None, "no improvement")
    decider = Decider(ranking=sure, launched=40)
    assert decider.scheduler._final() is None
    assert decider.scheduler.finished == "no repeat is expected to improve the choice by more than 0.07%"


def test_a_reduced_run_is_repeated_if_that_saves_more_than_the_next_trial() -> None:
    """A reduced run is repeated if that saves more per node-hour than the next trial.

    Topologies that cannot win, repeats that cost too much, and the leader are not repeated.
    """

    def surprise(candidate: int, mean: float) -> Surprise:
        return Surprise(candidate=candidate, away=0.1, mean=mean, deviation=0.02, noise=0.012)

    slow, hopeless = surprise(5, -0.01), surprise(6, 0.5)
    next_trial = SimpleNamespace(gain=0.1, size=SimpleNamespace(node_hours=1.0))
    for surprises, hours, choice, repeated in (
        ([hopeless, slow], 1.0, None, 5),
        ([slow], 1.0, next_trial, None),
        ([slow], 0.01, next_trial, 5),
        ([slow], 100.0, None, None),
        ([surprise(1, -0.01)], 1.0, None, None),
        ([hopeless], 1.0, None, None),
    ):
        plan = SimpleNamespace(
            repeated=lambda found, cost=hours: [SimpleNamespace(node_hours=cost) for _ in found],
            least_gain=lambda _candidate, size: 0.0002 * size.node_hours,
        )
        decider = Decider(
            surrogate=surrogate_of(surprises=lambda found=surprises: found),
            pool=SimpleNamespace(work=np.zeros(8)),
            ranking=[ranked(1)],
            log_best=0.0,
            prospects=lambda: [SimpleNamespace(candidate=1)],
        )
        decider.scheduler._sampler, decider.scheduler._plan = "guided", plan
        assert decider.scheduler._cheap_verification(choice, plan) == repeated


def test_a_surprising_run_is_repeated_if_that_is_worth_a_job() -> None:
    """A surprisingly slow run is repeated if its predicted gain is worth it, a surprisingly fast one only if it leads.

    Nothing is repeated that already runs again.
    """

    def surprise(candidate: int, away: float, mean: float) -> Surprise:
        return Surprise(candidate=candidate, away=away, mean=mean, deviation=0.02, noise=0.012)

    slow, hopeless, fast = surprise(5, 0.1, -0.01), surprise(6, 0.1, 0.5), surprise(1, -0.1, 0.2)
    for surprises, pending, saving, repeated in (
        ([hopeless, slow], [], 0.0, 5),
        ([slow], [], 0.05, None),
        ([slow], [5], 0.0, None),
        ([hopeless], [], 0.0, None),
        ([surprise(5, 0.02, -0.01)], [], 0.001, None),
        ([surprise(7, 0.1, -0.01)], [], 0.0, None),
        ([fast], [], 0.05, 1),
        ([surprise(6, -0.1, 0.2)], [], 0.0, None),
    ):
        stand_in = surrogate_of(surprises=lambda found=surprises: found)
        pool = SimpleNamespace(work=np.array([0.0] * 7 + [0.5]))
        decider = Decider(surrogate=stand_in, pool=pool, pending=pending, ranking=[ranked(1)], log_best=0.0)
        decider.scheduler._sampler = "guided"
        assert decider.scheduler._verification(saving) == repeated


@pytest.mark.parametrize(("used", "ran", "launched"), [(9.54, True, False), (9.53, True, True), (9.9, False, True)])
def test_only_a_repeat_must_fit_into_the_node_hours(used: float, ran: bool, launched: bool) -> None:
    """A repeat starts only if the remaining node-hours cover its 0.467; the first full-size run starts in any case."""
    proposal, result = SimpleNamespace(candidate=0 if ran else 1), SimpleNamespace(elapsed=120.0)
    trials = [SimpleNamespace(measured=True, launched=True, result=result, proposal=proposal)]
    decider = Decider(Limits(node_hours=10.0), node_hours=used, trials=trials)
    decider.scheduler._plan = SimpleNamespace(next_full=lambda: (0, "why"))
    decider.scheduler.stopping = "stopped"
    assert decider.scheduler._final() == (0 if launched else None)
    assert decider.proposed == [(0, "final")] * launched
    assert decider.scheduler.finished == (
        None if launched else "9.5 of 10.0 node-hours are used, and a repeat needs more than the rest"
    )


@pytest.mark.parametrize(("launched", "ended"), [(8, "no further repeat is worth its cost; 2 of"), (7, "stopped")])
def test_a_study_at_reduced_sizes_ends_because_no_repeat_is_worth_its_cost(launched: int, ended: str) -> None:
    """Unless its search had stopped before its share of the budget was used."""
    decider = Decider(Limits(budget=10), ranking=[ranked()], launched=launched)
    decider.scheduler._plan = SimpleNamespace(next_full=lambda: None, reserve=0.0, trial_nodes=None)
    stopping, _ = decider.checked()
    assert stopping == ("8 of 10 jobs are used; the other 2 are reserved for repeats" if launched == 8 else None)
    decider.scheduler.stopping = stopping or "stopped"
    assert decider.scheduler._final() is None
    assert decider.scheduler.finished.startswith(ended)


def test_no_jobs_are_reserved_where_nothing_runs_at_full_size() -> None:
    decider = Decider(Limits(budget=10), ranking=[ranked()], launched=8)
    decider.scheduler._plan = SimpleNamespace(next_full=lambda: None, reserve=0.0, trial_nodes=2)
    assert decider.checked() == (None, None)


@pytest.mark.parametrize(("suspected", "kind"), [(True, "reference"), (False, "final")])
def test_a_suspicion_is_examined_before_the_final_round(suspected: bool, kind: str) -> None:
    """Where the search has stopped, a suspected change of speed is examined first: it concerns all earlier runs."""
    trials = [trial(number, number, 10.0) for number in range(8)]
    ranking = [ranked(4, first=4), ranked(2, first=2)]
    decider = Decider(Limits(budget=40), trials=trials, ranking=ranking, drift_suspected=suspected)
    decider.scheduler.stopping = "stopped"
    assert decider.scheduler.next(0.0) == 4
    assert decider.proposed == [(4, kind)]
