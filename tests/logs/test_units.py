"""Units of printed times: converted, or the time is not read."""

from __future__ import annotations

import pytest

from tests.logs.test_named_figures import times
from tuner.logs import read_log

WORDS = ("median", "ema", "smoothed", "global", "train", "elapsed", "max", "cuda", "avg")
"""Words after a time that are not units."""
STATISTICS = ("min/max", "max/min", "min/avg/max", "max/avg/min", "max", "avg", "median")

UNITS = {
    "step time 400 (ms)": 0.4,
    "step time: 400 [ms]": 0.4,
    "step time: 400 (ms/step)": 0.4,
    "step time: 400  ms": 0.4,
    "step time: 400 MS": 0.4,
    "step time (MS): 400": 0.4,
    "step time (in ms): 400": 0.4,
    "step time (µs): 400000": 0.4,
    "step_time_us=400000": 0.4,
    "step_time(ns)=400000000": 0.4,
    "time per step: 400000000 ns": 0.4,
    "step time 400 millis": 0.4,
    "step_time: 0.0001 days": 8.64,
    "step time (days): 0.0001": 8.64,
    "step time (h): 0.001": 3.6,
    "speed: 2.5 (it/s)": 0.4,
    "speed (steps per second): 2.5": 0.4,
    "step time (ms / step): 400": 0.4,
    "step time (in ms per step): 400": 0.4,
    "time (s/it): 0.4": 0.4,
    "time 0.4 per step": 0.4,
    "time: 0.4  per step": 0.4,
    "time: 0.4 s per step": 0.4,
    "time: 400 (ms per step)": 0.4,
    "step time: 400 cs": None,
    "step time: 400 ticks": None,
    "step time: 400 ticks.": None,
    "step time: 400 [ticks]": None,
    "step time: 400 [jiffies]": None,
    "step time: 400 cycles": None,
    "step time: 400 clock cycles loss 4.2": None,
    "step time: 400 (clock cycles)": None,
    "step time: 400 (in ticks)": None,
    "step time: 400 (in ms)": None,
    "step time: 400 ms/sample": None,
    "step time: 400 (µs/sample)": None,
    "step time: 0.4 weeks": None,
    "step time: 0.4 fortnights": None,
    "step time: 0.4 (fortnights)": None,
    "step time: 0.4 d": None,
    "step time: 0.4 m": None,
    "step time (ticks): 400": None,
    "step time (in ticks): 400": None,
    "step time (ticks/step): 400": None,
    "step time (ms/sample): 400": None,
    "step time (avg ms): 400": None,  # may be the mean of all steps so far
    "step time (ms mean): 400": None,
    "step time (median ms): 400": None,
    "step time 400_ms": None,
    "step time 150 steps/min": None,
    "µs/step: 400000": None,
    "step time (min): 0.05": None,  # may be a minimum
    "time per 10 steps: 4.0 s": None,
    "time/10 steps: 4.0 s": None,
    "time (last 10 steps): 4.0 s": None,
    "time_per_10_steps: 4.0": None,
    "step time: 4.0 s per 10 steps": None,
    "took 4.0 s for 10 steps": None,
    "step time: 4.0/10 steps": None,
    "step time 0.4": 0.4,
    "step time 0.4 avg": 0.4,
    "step time 0.4 (avg 0.5)": 0.4,
    "step time 0.4 tokens/s 3000": 0.4,
    "step time 0.4 train/loss nan": 0.4,
    "step time 0.4 grad norm 1.2": 0.4,
    "step time 0.4 status: ok": 0.4,
    "step time 0.4 on rank 0": 0.4,
    "step time (s): 0.4 again": 0.4,
    **{f"step time 0.4 ({word})": 0.4 for word in WORDS},
    **{f"step time 0.4 [{word}]": 0.4 for word in WORDS},
    **{f"step time 0.4 {word}": 0.4 for word in WORDS},
    **{f"step time 0.4 {word} | lr 0.1": 0.4 for word in WORDS},
    "step time 0.4 (fwd/bwd 0.1/0.3)": 0.4,
    "step time 0.4 d-loss: 0.5": 0.4,
    "step time 0.4 d loss 0.5": 0.4,
    "step time 0.4 D(x): 0.5": 0.4,
    "step time 0.4 cycle loss 0.5": 0.4,
    **{f"step time ({word}): 0.4": 0.4 for word in STATISTICS},
    "step time (min/max): 0.4/0.5": 0.4,
    "step time (min/avg/max): 0.4/0.5/0.6": 0.4,
    "step time (last day) 0.4": 0.4,
    "step time (us-east) 0.4": 0.4,
    "step time (D/G): 0.4": 0.4,
}


@pytest.mark.parametrize("form", ["step {} loss: 4.{} {}", "step {} loss: 4.{}, {}, lr 0.1"])
@pytest.mark.parametrize("text", UNITS)
def test_a_printed_unit_is_converted_or_the_time_is_not_read(text: str, form: str) -> None:
    lines = [form.format(number, number, text) for number in (1, 2, 3)]
    if (expected := UNITS[text]) is None:
        assert not any(run.iterations for run in read_log(lines).runs)
    else:
        assert times(*lines) == [expected] * 3


def test_a_unit_without_a_delimiter_is_not_taken_for_the_name_of_the_next_figure() -> None:
    assert read_log([f"step {number} step time 400 ticks loss: 4.{number}" for number in (1, 2, 3)]).runs == ()


def test_a_growing_time_per_step_is_not_the_time_of_all_steps() -> None:
    assert times(*(f"step {n} | loss: 2.{n} | time: 2.0{n} per step" for n in (3, 4, 5))) == [2.03, 2.04, 2.05]
    assert times(*(f"step {n} | loss: 2.{n} | time: 2.0{n} (s per step)" for n in (3, 4, 5))) == [2.03, 2.04, 2.05]
