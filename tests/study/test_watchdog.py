"""How long a job may stall, by its estimate or by its measured iterations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobState, JobStatus
from tuner.study.watchdog import (
    FINISHING_SHARE,
    FIRST_RATIO,
    MAX_PATIENCE_RATIO,
    MAX_STALLED_ITERATIONS,
    MIN_PATIENCE,
    Watchdog,
    verdict,
)


def seen(watch: Watchdog, now: float, iterations: int, *, began: float = 0.0, seconds_in: float = 0.0) -> Watchdog:
    """Return the watchdog after a look at a running job."""
    status = JobStatus(state=JobState.RUNNING, began=began, iterations=iterations, moved=now, seconds_in=seconds_in)
    return watch.seen(status, now)


def test_a_job_may_stall_for_as_long_as_its_own_iterations_suggest() -> None:
    """The limit follows from the first iteration with start-up, and later from the longest measured iteration."""
    watch = seen(Watchdog.of(0.06, []), 40.0, 1, seconds_in=2.0)
    assert watch.patience == pytest.approx(FIRST_RATIO * 38.0)
    watch = seen(seen(watch, 60.0, 2), 75.0, 3)
    assert watch.patience == pytest.approx(MAX_STALLED_ITERATIONS * 22.0)


def test_iterations_between_two_polls_count_each() -> None:
    watch = seen(seen(Watchdog.of(1.0, []), 10.0, 1), 40.0, 31)
    assert watch.longest == pytest.approx(1.0)
    assert watch.patience == MIN_PATIENCE


def test_an_adopted_job_is_judged_by_its_mean_iteration() -> None:
    assert seen(Watchdog.of(1.0, []), 9995.0, 100).patience == pytest.approx(FIRST_RATIO * 99.95)


def test_a_restarted_job_is_watched_as_new() -> None:
    """A requeued job has a new start time, and is watched as a new job."""
    watch = seen(seen(Watchdog.of(1.0, []), 10.0, 1), 12.0, 2)
    again = seen(watch, 1012.0, 1, began=1000.0)
    assert [again.first, again.longest] == pytest.approx([12.0, 0.0])
    assert again.patience == MIN_PATIENCE


@pytest.mark.parametrize(("share", "hung"), [(None, True), (0.5, False)])
def test_a_job_whose_output_grows_without_iterations_hangs(share: float | None, hung: bool) -> None:
    """Output that is no progress, such as a monitor's, prolongs the limit tenfold; microbatches are progress."""
    watch = seen(seen(Watchdog.of(1.0, []), 10.0, 1), 12.0, 2)
    limit = MAX_PATIENCE_RATIO * MIN_PATIENCE
    for seconds, over in ((limit - 1, False), (limit + 1, True)):
        status = JobStatus(
            state=JobState.RUNNING, began=0.0, iterations=2, number=2, moved=12.0 + seconds, seconds_in=seconds
        )
        found = verdict(watch.seen(replace(status, share=share), 12.0 + seconds), math.inf, (9,))
        assert (found is not None) == (over and hung)
    assert not hung or (found is not None and found.outcome is Outcome.HUNG)
    assert found is None or found.reason == (
        "its output grows, but no iteration ended for 301 s after iteration 2 (limit 300 s)"
    )


def test_a_job_without_an_iteration_may_print_for_as_long_as_it_starts() -> None:
    watch = seen(Watchdog.of(1.0, []), 5000.0, 0, seconds_in=5000.0)
    assert verdict(watch, math.inf, (2,)) is None


@pytest.mark.parametrize(
    ("seconds", "share", "least", "forecast"),
    [
        (29.0, None, None, None),
        (31.0, None, 31.0, None),
        (29.0, 0.2, None, None),
        (6.0, 0.25, 22.8, 24.0),
    ],
)
def test_an_iteration_whose_end_is_unknown_may_be_slower_for_a_quarter_of_what_the_first_took(
    seconds: float, share: float | None, least: float | None, forecast: float | None
) -> None:
    """The first took 40 s with start-up; more than 20 s are too slow, so that it is stopped after 30 s."""
    watch = seen(Watchdog.of(10.0, []), 40.0, 1)
    assert FINISHING_SHARE * watch.first == 10.0
    status = JobStatus(state=JobState.RUNNING, began=0.0, iterations=1, number=1, moved=40.0, seconds_in=seconds)
    found = verdict(watch.seen(replace(status, share=share), 40.0 + seconds), 20.0, (2,))
    assert (found.least, found.forecast) == pytest.approx((least, forecast)) if found else least is None
