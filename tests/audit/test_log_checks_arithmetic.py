"""Each finding of a log, whole, from runs that are nothing but these iterations and arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tuner.audit.log_checks import Contradiction, audit_run
from tuner.audit.measure import _rows
from tuner.logs import Iteration, LogRun
from tuner.logs.choice import averaging, of_job
from tuner.logs.records import PeakMemory


def run_of(*iterations: Iteration, source: Any = None, **arguments: str) -> LogRun:
    """A run that starts in line 3."""
    return LogRun(iterations=iterations, source=source, line=3, arguments=arguments, peak=PeakMemory(), failure=None)


def it(number: int, seconds: float | None = 1.0, **fields: Any) -> Iteration:
    """An iteration in line 10 + number."""
    return Iteration(**{"number": number, "seconds": seconds, "line": 10 + number} | fields)


def summaries(run: LogRun, rates: Any = ()) -> list[tuple[Any, ...]]:
    """Check, severity, line and beginnings of the findings."""
    found = audit_run(run, rates)
    assert all(one.row is None and one.suggestion and one.repairs == () for one in found)
    return [(one.check, one.severity, one.line, one.message) for one in found]


DEGREES = {"tensor_model_parallel_size": "2", "data_parallel_size": "4", "world_size": "16"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "tp(2) x pp(1) x cp(1) x dp(4) = 8 GPUs, but a world size of 16"),
        ({"pipeline_model_parallel_size": "2"}, None),
        ({"transformer_pipeline_model_parallel_size": "2"}, None),
        ({"pipeline_model_parallel_size": "2", "transformer_pipeline_model_parallel_size": "4"}, None),
        ({"context_parallel_size": "2"}, None),
        ({"world_size": ""}, None),
        ({"data_parallel_size": ""}, None),
        ({"world_size": "x"}, None),
        ({"tensor_model_parallel_size": ""}, "tp(1) x pp(1) x cp(1) x dp(4) = 4 GPUs, but a world size of 16"),
    ],
)
def test_the_degrees_of_a_log_multiply_to_its_world(arguments: dict[str, str], words: str | None) -> None:
    expected = [("degrees", "error", 3, f"its arguments give {words}")] if words else []
    assert summaries(run_of(**DEGREES | arguments)) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"global_batch_size": "10"}, "10 is not a multiple of micro_batch x dp = 2 x 4 = 8"),
        ({"global_batch_size": "16"}, None),
        ({"global_batch_size": "12"}, "12 is not a multiple of micro_batch x dp = 2 x 4 = 8"),
        ({"global_batch_size": "16", "train_micro_batch_size_per_gpu": "3"}, None),
        ({"global_batch_size": "16", "train_batch_size": "10"}, None),
        ({"train_batch_size": "10"}, "10 is not a multiple of micro_batch x dp = 2 x 4 = 8"),
        ({"train_batch_size": "10", "train_micro_batch_size_per_gpu": "5"}, "10 is not a multiple of"),
        ({}, None),
    ],
)
def test_the_batch_of_a_log_is_a_multiple_of_its_step(arguments: dict[str, str], words: str | None) -> None:
    """Megatron's argument goes before DeepSpeed's."""
    found = summaries(run_of(**{"data_parallel_size": "4", "micro_batch_size": "2"} | arguments))
    assert [one[:3] for one in found] == ([("batch", "error", 3)] if words else [])
    assert words is None or words in found[0][3]
    deepspeed = {"data_parallel_size": "4", "train_micro_batch_size_per_gpu": "2", "train_batch_size": "10"}
    assert [one[0] for one in summaries(run_of(**deepspeed))] == ["batch"]


def test_tflops_are_reported_once_for_each_reason() -> None:
    run = run_of(it(1), it(2), it(3))
    rates = [
        Contradiction(iteration=2, printed=100.0, counted=80.0, reason="older"),
        Contradiction(iteration=3, printed=110.0, counted=90.0, reason="older"),
        Contradiction(iteration=1, printed=50.0, counted=40.0, reason=""),
    ]
    found = summaries(run, rates)
    assert [one[:3] for one in found] == [("tflops", "error", 11), ("tflops", "advice", 12)]
    words = "iteration 2 (and in 1 more) prints 100 TFLOPs, but its time gives 80.00: older"
    assert found[1][3] == words
    assert "iteration 1 prints 50 TFLOPs, but its time gives 40.00: no known formula" in found[0][3]
    assert audit_run(run, rates)[1].suggestion.startswith("tflops=80.00; ")


@pytest.mark.parametrize(("rate", "found"), [(10.14, False), (10.16, True), (9.86, False), (9.84, True)])
def test_samples_a_second_are_the_batch_over_the_seconds(rate: float, found: bool) -> None:
    """20 samples in 2 s, printed to 0.02 s: 1% and half of the last digit make 1.5%."""
    run = run_of(it(1, 2.0, samples_per_second=rate, seconds_digit=0.02, global_batch=20), global_batch_size="99")
    made = summaries(run)
    assert [one[:3] for one in made] == ([("samples", "error", 11)] if found else [])
    if found:
        assert f"{rate:g} samples per second x 2 s are {2 * rate:.4g} samples, but the batch is 20" in made[0][3]
    usual = run_of(it(1, 2.0, samples_per_second=20.0), train_batch_size="20")
    assert [one[0] for one in summaries(usual)] == ["samples"]


def test_losses_that_are_no_numbers_and_skipped_steps_are_found_at_the_first() -> None:
    run = run_of(it(1, loss=2.0), it(2, loss=math.nan, skipped=2), it(3, loss=math.nan), it(4, skipped=1))
    assert summaries(run) == [
        ("loss", "error", 12, "iterations 2 and 3: the loss is NaN"),
        (
            "skipped",
            "warning",
            12,
            "iterations 2 and 4: 3 steps skipped, as after an fp16 overflow, so the time lacks the optimizer",
        ),
    ]


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ([9, 1, 1, 1, 1, 1.09], False),
        ([9, 1, 1, 1, 1, 1.11], True),
        ([9, 1, 1, 1, 1, 0.90], True),
        ([9, 1, 1, 1, 1, 0.92], False),
        ([9, 1, 1, 1, 1.3], False),
        ([9, 1.0, 1.02, 0.98, 1.03, 0.97, 1.16], False),
        ([9, 1.0, 1.02, 0.98, 1.03, 0.97, 1.25], True),
    ],
)
def test_an_outlier_is_10_percent_and_eight_median_distances_off(seconds: list[float], found: bool) -> None:
    """Of five or more after the first, in either direction."""
    run = run_of(*(it(number, time) for number, time in enumerate(seconds, start=1)))
    made = summaries(run)
    assert [one[:3] for one in made] == ([("outlier", "warning", 10 + len(seconds))] if found else [])
    if found:
        assert made[0][3].startswith(f"iteration {len(seconds)} took {seconds[-1]:.4g} s, but the median of ")


def test_several_outliers_are_told_by_the_worst() -> None:
    run = run_of(*(it(number, time) for number, time in enumerate([9, 4, 4, 6, 1, 4, 4, 4], start=1)))
    (found,) = summaries(run)
    assert found[2] == 14
    assert found[3] == "iterations 4 and 5: iteration 5 took 1 s, but the median of 7 is 4 s"
    ramp = run_of(*(it(number, number, global_batch=number // 6) for number in range(1, 6)))
    assert summaries(ramp) == []


def chosen(numbers: list[int], positions: list[int], *, skipped: tuple[int, ...] = (), **more: Any) -> Any:
    """The iterations chosen of a job's lines."""
    lines = [it(number, skipped=int(number in skipped)) for number in numbers]
    return of_job(run_of(*lines, **more), positions, lines)


@pytest.mark.parametrize(
    ("numbers", "positions", "skipped", "more", "found"),
    [
        ([1, 2, 3], [2], (), {}, (2,)),
        ([1, 2, 3], [2, 3], (), {}, (2, 3)),
        ([5001, 5002], [2], (), {}, (5002,)),
        ([2, 3, 4], [2], (), {}, (2,)),
        ([2, 3, 4], [2], (2,), {}, (3,)),
        ([1, 2, 3, 4], [2], (2,), {}, (3,)),
        ([10, 20], [2], (), {"log_interval": "10"}, (20,)),
        ([2, 4], [2], (), {"log_interval": "2"}, (4,)),
        ([10, 20], [2], (), {"source": "throughput timer"}, (20,)),
        ([10, 20], [3], (), {"source": "throughput timer"}, (20,)),
        ([10], [2], (), {"source": "throughput timer"}, (10,)),
        ([1], [2], (), {}, ()),
        ([1, 2], [2], (2,), {}, ()),
    ],
)
def test_a_jobs_iterations_are_chosen_by_their_position(
    numbers: list[int], positions: list[int], skipped: tuple[int, ...], more: Any, found: tuple[int, ...]
) -> None:
    made, reason = chosen(numbers, positions, skipped=skipped, **more)
    assert made == found
    assert bool(reason) == (not found)
    assert not skipped or found or "skipped" in reason


def test_steps_skipped_after_the_chosen_ones_are_not_mentioned() -> None:
    lines = [it(1), it(2, skipped=1), it(3), it(4, skipped=1)]
    words = averaging(run_of(*lines), [3], lines)
    assert "2" in words
    assert "4" not in words
    assert averaging(run_of(it(1), it(2)), [2], [it(1), it(2)]) == ""


@pytest.mark.parametrize(
    ("batch", "seconds", "rate", "arguments", "said"),
    [
        (8, 2.0, 4.0, {}, None),
        (8, 2.0, 5.0, {}, "5 samples per second x 2 s are 10 samples, but the batch is 8"),
        (None, 2.0, 5.0, {"global_batch_size": "8"}, "5 samples per second x 2 s are 10 samples, but the batch is 8"),
        (16, 2.0, 5.0, {"train_batch_size": "8"}, "5 samples per second x 2 s are 10 samples, but the batch is 16"),
        (None, 2.0, 5.0, {}, None),
        (8, None, 5.0, {}, None),
        (8, 2.0, None, {}, None),
    ],
)
def test_samples_a_second_are_compared_with_a_batch_that_is_known(
    batch: int | None, seconds: float | None, rate: float | None, arguments: dict[str, str], said: str | None
) -> None:
    run = run_of(it(1, seconds, global_batch=batch, samples_per_second=rate), **arguments)
    found = [(line, message) for check, _, line, message in summaries(run) if check == "samples"]
    assert found == ([(11, f"iteration 1: {said}")] if said else [])


@pytest.mark.parametrize(
    ("given", "arguments", "batches"),
    [
        (None, {}, [8, None]),
        (64, {}, [8, 64]),
        (None, {"train_batch_size": "32"}, [8, 32]),
        (None, {"global_batch_size": "16"}, [8, 16]),
        (64, {"global_batch_size": "16"}, [8, 64]),
    ],
)
def test_an_iteration_has_its_own_batch_or_the_usual_one(
    given: int | None, arguments: dict[str, str], batches: list[int | None]
) -> None:
    """That is given, or named by the arguments."""
    run = run_of(it(1, 2.0, global_batch=8), it(2, 2.0), **arguments)
    assert [row.global_batch for row in _rows(run, None, given)] == batches
