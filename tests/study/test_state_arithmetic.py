"""Counts, labels and suggestions of a study's state, with stand-ins for its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.stand_in import surrogate_of
from tests.study.test_arithmetic import trial
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.study import drift
from tuner.study import state as state_module
from tuner.study.drift import SpeedPeriod
from tuner.study.state import StudyState
from tuner.study.store.trial import Proposal, Trial


def test_only_trials_of_this_pool_are_pending() -> None:
    trials = [trial(0, 1, 10.0), replace(trial(1, 2, 10.0), result=None), replace(trial(2, 9, 10.0), result=None)]
    state: Any = SimpleNamespace(trials=trials, has=lambda trial: trial.proposal.candidate < 9)
    assert StudyState.pending.__get__(state) == [2]


def test_the_start_of_a_job_is_its_time_less_later_iterations() -> None:
    """The start of a job is its elapsed time less all iterations but the first, and never negative."""

    def job(elapsed: float) -> Trial:
        result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=10.0), elapsed=elapsed)
        return Trial(number=0, proposal=Proposal(key="", params={}, topology={}, candidate=0), result=result)

    stand_in: Any = SimpleNamespace(trials=[job(100.0), job(5.0)])
    assert StudyState.start_seconds(stand_in, 3) == [80.0, 0.0]


def test_node_hours_are_those_of_all_ended_jobs() -> None:
    trials = [trial(number, number, 10.0) for number in range(3)]
    trials[0] = replace(trials[0], result=JobResult(outcome=Outcome.OOM, node_hours=2.0))
    trials[1] = replace(trials[1], result=JobResult(outcome=Outcome.CRASHED, node_hours=0.5))
    stand_in: Any = SimpleNamespace(trials=[*trials[:2], replace(trials[2], result=None)])
    assert StudyState.node_hours.__get__(stand_in) == 2.5


def learnt() -> Any:
    """Return a state that has learnt trials 2, 0 and 1, where trial 1 has no observation."""
    trials = [trial(number, number, 10.0) for number in range(3)]
    state: Any = SimpleNamespace(
        trials=trials,
        _observed=[2, 0],
        _first_period="",
    )
    state._labels = lambda periods: StudyState._labels(state, periods)
    return state


def test_observations_are_in_the_order_of_learning_with_their_periods() -> None:
    assert learnt()._labels([SpeedPeriod(first=1, factor=1.1)]) == ["era 2", ""]
    assert learnt()._labels([]) == ["", ""]


@pytest.mark.parametrize(("accident", "index"), [(None, None), (2, 0), (0, 1)])
def test_the_likelihood_is_that_of_the_observations_by_period(accident: int | None, index: int | None) -> None:
    state, asked = learnt(), list[Any]()

    def evidence(labels: list[str], **given: Any) -> float:
        asked.append((labels, given))
        return 7.5

    state.surrogate = SimpleNamespace(evidence=evidence)
    assert StudyState._log_likelihood(state, [1, 2], accident=accident, noise=4.0) == 7.5
    assert asked == [(["era 3", ""], {"accident": index, "noise": 4.0})]


def test_relabelling_forgets_the_prospects() -> None:
    state, calls = learnt(), list[Any]()
    state.speed_periods, state._prospects = [SpeedPeriod(first=2, factor=1.1)], ["old"]
    state.surrogate = SimpleNamespace(relabel=lambda labels, now: calls.append((labels, now)))
    StudyState._relabel(state)
    assert calls == [(["era 2", ""], "era 2")]
    assert state._prospects is None


@pytest.mark.parametrize(
    ("pending", "log_best", "best"),
    [([], None, None), ([], 4.0, 4.0), ([1], None, 3.5), ([1, 2], 4.0, 2.5), ([1], 3.0, 3.0)],
)
def test_a_suggestion_must_beat_the_expectation_of_running_jobs(
    pending: list[int], log_best: float | None, best: float | None
) -> None:
    imagined: list[Any] = []

    @contextmanager
    def imagining(candidates: list[int]) -> Iterator[None]:
        imagined.append(candidates)
        yield
        imagined.append("over")

    state: Any = SimpleNamespace(
        pending=pending,
        log_best=log_best,
        open="open",
        pool=SimpleNamespace(work=np.array([9.0, 0.5, 0.25])),
        surrogate=surrogate_of(
            imagining=imagining, measured=lambda some: (np.array([9.0, 3.0, 2.25])[np.array(some, dtype=int)], None)
        ),
        proposer=SimpleNamespace(next=lambda candidates, best: (candidates, best, list(imagined))),
    )
    state._as_if_ended = partial(StudyState._as_if_ended, state)
    suggested: Any = StudyState.suggest(state)
    assert suggested == ("open", best, [pending])
    assert imagined == [pending, "over"]


@pytest.mark.parametrize(("pending", "best"), [([], 4.0), ([1], 3.5)])
def test_a_shortlist_counts_running_jobs(pending: list[int], best: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shortlist counts running jobs towards the best; before any measurement it is the sampler's suggestion."""
    monkeypatch.setattr(state_module, "shortlist", lambda surrogate, **given: (surrogate, given))
    surrogate = surrogate_of(
        imagining=nullcontext, measured=lambda some: (np.array([9.0, 3.0])[np.array(some, dtype=int)], None)
    )
    state: Any = SimpleNamespace(
        pending=pending, log_best=4.0, open="open", pool=SimpleNamespace(work=np.array([9.0, 0.5])), surrogate=surrogate
    )
    state._as_if_ended = partial(StudyState._as_if_ended, state)
    listed: Any = StudyState.shortlist(state, 6)
    assert listed == (surrogate, {"best": best, "open_to": "open", "count": 6})
    for first, found in ((None, []), ("first", ["first"])):
        unmeasured: Any = SimpleNamespace(log_best=None, suggest=lambda first=first: first)
        listed = StudyState.shortlist(unmeasured, 6)
        assert listed == found


def test_a_speed_period_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations are assigned anew when a speed period is found and whenever its start moves, otherwise not."""
    period, later = SpeedPeriod(first=2, factor=1.1), SpeedPeriod(first=3, factor=1.1)
    relabelled: list[Any] = []
    asked: list[Any] = []
    findings = iter([None, [period], [period], None, [later]])

    def detect(*given: Any, **trust: float) -> Any:
        asked.append((given, trust))
        found = next(findings)
        return SimpleNamespace(speed_periods=found, suspected=found is None)

    monkeypatch.setattr(drift, "detect", detect)
    state: Any = SimpleNamespace(
        _learnt="trials",
        _log_likelihood="likelihood",
        speed_periods=[],
        surrogate=SimpleNamespace(assumed=SimpleNamespace(repeat=0.01), trust=SimpleNamespace(repeat=0.02)),
        _relabel=lambda: relabelled.append(state.speed_periods),
    )
    StudyState._detect_drift(state)
    assert asked == [(("trials", [], "likelihood"), {"usual": 0.01, "assumed": 0.02})]
    assert (state.drift_suspected, relabelled) == (True, [])
    for _ in range(4):
        StudyState._detect_drift(state)
    assert relabelled == [[period], [later]]
    assert state.speed_periods == [later]
