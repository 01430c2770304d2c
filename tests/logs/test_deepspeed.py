"""DeepSpeed's iteration lines, and what preceding lines add to them."""

from __future__ import annotations

import pytest

from tuner.logs.deepspeed import DeepSpeed
from tuner.logs.records import LogRecord


def records(text: str, before: str = "") -> list[LogRecord]:
    """Return the records of a line that follows another one."""
    reader = DeepSpeed()
    assert not list(reader.read(6, before))
    return list(reader.read(7, text))


def only(text: str, before: str = "") -> LogRecord:
    """Return the only record of a line."""
    (found,) = records(text, before)
    return found


def test_deepspeed_lines_are_read() -> None:
    """The pipeline engine prints seconds, the timer current and mean samples/s, and the breakdown three times in ms."""
    pipe = only("rank0: steps: 2 loss: 5.5000 iter time (s): 0.046 samples/sec: 87.500")
    assert (pipe.source, pipe.speaker) == ("pipeline engine", "rank0:")
    assert (pipe.iteration.number, pipe.iteration.seconds, pipe.iteration.loss) == (2, 0.046, 5.5)
    assert pipe.iteration.seconds_digit == pytest.approx(1e-3)
    assert pipe.iteration.samples_per_second == 87.5
    timer = only("global_step=3, RunningAvgSamplesPerSec=20.5, CurrSamplesPerSec=21.25, MemAllocated=1GB")
    assert (timer.source, timer.iteration.number) == ("throughput timer", 3)
    assert (timer.iteration.samples_per_second, timer.iteration.seconds) == (21.25, None)
    assert only("0/4, SamplesPerSec=8.5,").iteration.samples_per_second == 8.5
    parts = only("w1: time (ms) | fwd: 100.00 | bwd_microstep: 1.0 | bwd: 250.50 | step: 49.50")
    assert (parts.source, parts.speaker, parts.counted) == ("wall-clock breakdown", "w1:", True)
    assert parts.iteration.seconds == pytest.approx(0.4)


@pytest.mark.parametrize(("unit", "seconds"), [("m", 2.5e-3), ("u", 2.5e-6), ("n", 2.5e-9)])
def test_the_latency_of_the_flops_profiler_has_a_unit(unit: str, seconds: float) -> None:
    found = only(f"iter latency:                    2.5 {unit}s", "Profile Summary at step 4:")
    assert (found.source, found.iteration.number) == ("flops profiler", 4)
    assert found.iteration.seconds == pytest.approx(seconds)
    assert not records(f"iter latency: 2.5 {unit}s")
    assert not records(f"iter latency: 2.5 {unit}s", "step 4:")


def test_a_line_of_the_older_timer_belongs_to_the_step_of_the_rates_before_it() -> None:
    rates = "[2022-08-29 06:58:56,121] [INFO] [logging.py:68:log_dist] [Rank 0] step=20, skipped=17, lr=[5e-05]"
    timer = "[2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/80, SamplesPerSec=8.5, MemAllocated=0.36GB"
    after, alone = only(timer, rates).iteration, only(timer).iteration
    assert (after.number, alone.number, alone.clock) == (20, 80, None)
    assert after.clock is not None
    assert after.clock % 60 == pytest.approx(56.121)
    assert after.clock_digit == pytest.approx(1e-3)
