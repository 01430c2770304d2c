"""Which iteration of a log is measured: the second, as far as the log tells it apart from the first."""

from __future__ import annotations

import pytest

from tuner.logs.choice import second
from tuner.logs.log import LogRun
from tuner.logs.records import PeakMemory, Source


def run(source: Source | None = None, **arguments: str) -> LogRun:
    """A start of a program without iterations, but with what its settings state."""
    return LogRun(iterations=(), source=source, line=1, arguments=arguments, peak=PeakMemory(), failure=None)


@pytest.mark.parametrize(
    ("numbers", "interval", "chosen"),
    [
        ((1, 2, 3), "1", (2,)),
        ((2, 3), "1", (2,)),
        ((5, 6), "1", (6,)),
        ((10, 20), "10", (20,)),
        ((1,), "1", ()),
        ((10,), "10", ()),
        ((20,), "10", (20,)),
        ((3,), "1", (3,)),
    ],
)
def test_the_second_iteration_is_measured(numbers: tuple[int, ...], interval: str, chosen: tuple[int, ...]) -> None:
    found, reason = second(run(log_interval=interval), numbers)
    assert found == chosen
    assert bool(reason) == (not chosen)


def test_the_throughput_timer_leaves_out_the_warm_up_by_itself() -> None:
    """Its only line is measured, although it stands for all iterations up to it."""
    assert second(run("throughput timer", steps_per_print="10"), (10,)) == ((10,), "")
    assert second(run(steps_per_print="10"), (10,))[0] == ()
