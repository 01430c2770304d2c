"""The iteration of a log that is measured: the second, if the log shows which one that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.logs.choice import asked, averaging, first_steady, of_job, second
from tuner.logs.records import Iteration, PeakMemory, Source
from tuner.logs.runs import LogRun


def run(source: Source | None = None, **arguments: str) -> LogRun:
    """Return a run without iterations whose settings state these arguments."""
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


def test_the_throughput_timer_excludes_the_warm_up() -> None:
    """The timer's only line is measured, although it covers all iterations so far."""
    assert second(run("throughput timer", steps_per_print="10"), (10,)) == ((10,), "")
    assert second(run(steps_per_print="10"), (10,))[0] == ()


def lines(*numbers: int, skipped: tuple[int, ...] = ()) -> tuple[Iteration, ...]:
    return tuple(Iteration(number=number, seconds=1.0, skipped=int(number in skipped)) for number in numbers)


def logged(*numbers: int, skipped: tuple[int, ...] = (), source: Source | None = None) -> LogRun:
    found = lines(*numbers, skipped=skipped)
    return LogRun(iterations=found, source=source, line=1, arguments={}, peak=PeakMemory(), failure=None)


def test_if_the_first_line_has_no_time_the_first_timed_line_is_the_second() -> None:
    """With times from timestamps, iterations 2 to 10 are the second line of a log of 1, 10, 20."""
    assert second(logged(1, 10, 20), (10, 20)) == ((10,), "")
    assert second(logged(10, 20, 30), (10, 20, 30)) == ((20,), "")


def test_an_iteration_without_an_optimizer_step_is_not_the_second() -> None:
    assert second(logged(1, 2, 3, 4, skipped=(1, 2, 3)), (1, 2, 3, 4)) == ((4,), "")
    assert second(logged(2, 3, skipped=(2,)), (2, 3)) == ((3,), "")
    assert second(logged(1, 2, 3, skipped=(2, 3)), (1, 2, 3)) == (
        (),
        "iterations 2 to 3 skipped the optimizer step (fp16 loss scaling); run the job for longer, or lower the "
        "initial loss scale.",
    )


@pytest.mark.parametrize(
    ("numbers", "skipped", "positions", "chosen"),
    [
        ((1, 2, 3), (), (2,), (2,)),
        ((10, 20, 30), (), (2,), (20,)),
        ((5001, 5002), (), (2,), (5002,)),
        ((5010, 5020, 5030), (), (2, 3), (5020, 5030)),
        ((1, 10, 20), (), (2,), (10,)),
        ((2, 3), (), (2,), (2,)),
        ((2,), (), (2,), (2,)),
        ((2, 4), (), (2,), (4,)),
        ((2, 3), (2,), (2,), (3,)),
        ((1, 2, 3, 4), (1, 2, 3), (2,), (4,)),
        ((1, 2, 3), (2,), (2, 3), ()),
        ((5001,), (), (2,), ()),
        ((10,), (), (2,), ()),
        ((), (), (2,), ()),
    ],
)
def test_a_job_is_measured_by_position(
    numbers: tuple[int, ...], skipped: tuple[int, ...], positions: tuple[int, ...], chosen: tuple[int, ...]
) -> None:
    found, reason = of_job(logged(*numbers, skipped=skipped), positions, lines(*numbers, skipped=skipped))
    assert found == chosen
    assert bool(reason) == (not chosen)


def test_a_job_is_measured_by_a_single_line_of_the_throughput_timer() -> None:
    """The timer excludes the warm-up; if there is a second line, it is measured as in every log."""
    for numbers, chosen in (((10,), 10), ((10, 20), 20)):
        assert of_job(logged(*numbers, source="throughput timer"), (2,), lines(*numbers)) == ((chosen,), "")


def test_a_measurement_notes_averages_and_skipped_steps() -> None:
    assert averaging(logged(1, 2), (2,), lines(1, 2)) == ""
    assert averaging(logged(10, 20), (20,), lines(10, 20)) == "each time is a mean of 10 iterations"
    assert averaging(logged(10, 20, source="throughput timer"), (20,), lines(10, 20)) == ""
    found = averaging(logged(1, 2, 3, 4), (3,), lines(1, 2, 3, 4, skipped=(2, 4)))
    assert found == "iteration 2 skipped the optimizer step (fp16 loss scaling)"


def timed(*seconds: float, skipped: tuple[int, ...] = ()) -> list[Iteration]:
    return [
        Iteration(number=number, seconds=each, skipped=int(number in skipped))
        for number, each in enumerate(seconds, start=1)
    ]


@pytest.mark.parametrize(
    ("seconds", "skipped", "chosen", "note"),
    [
        ((60.0, 2.0, 2.1, 2.0), (), 2, ""),
        ((60.0, 9.0, 4.0, 2.0, 2.1), (), 4, "iteration 4 is measured, the first whose time agrees"),
        ((60.0, 9.0, 4.0, 2.0), (), 2, "no two successive iterations agree within 10%; iteration 2 is measured."),
        ((60.0, 2.0), (), 2, ""),
        ((60.0, 9.0, 8.9, 2.0, 2.0), (3,), 4, "iteration 4 is measured"),
        ((60.0, 2.19, 2.0), (), 2, ""),
        ((60.0, 2.21, 2.0, 2.0), (), 3, "iteration 3 is measured"),
    ],
)
def test_the_first_iteration_that_agrees_with_its_successor_is_measured(
    seconds: tuple[float, ...], skipped: tuple[int, ...], chosen: int, note: str
) -> None:
    found, reason = first_steady(2, timed(*seconds, skipped=skipped))
    assert found == chosen
    assert reason.startswith(note)
    assert bool(reason) == bool(note)


class Counted(int):
    """A number that counts its comparisons."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        return self.__class__(other) < self

    def __ge__(self, other: int) -> bool:
        return self.__class__(other) <= self


@given(
    numbers=st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted),
    wanted=st.lists(st.integers(1, 40), min_size=1, unique=True),
)
def test_iterations_one_by_one_are_all_logged_or_none_is_measured(numbers: list[int], wanted: list[int]) -> None:
    chosen, problem = asked(run(log_interval="1"), numbers, [(number, number) for number in wanted])
    assert chosen == (tuple(sorted(wanted)) if set(wanted) <= set(numbers) else ())
    assert bool(problem) == (not chosen)


def test_many_iterations_are_looked_up_and_not_searched() -> None:
    """Choosing all of n iterations one by one takes a multiple of n log n comparisons, not n^2."""
    numbers = [Counted(number) for number in range(1, 2001)]
    Counted.comparisons = 0
    assert len(asked(run(log_interval="1"), numbers, [(number, number) for number in range(1, 2001)])[0]) == 2000
    assert Counted.comparisons < 2000 * 40
