"""Each framework's log is read in its own format and measured by its second iteration."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest

from tests.conftest import ROOT
from tests.logs.working import GOOD_LOGS
from tuner.core.errors import InputError
from tuner.logs import Log, LogRun, StepPattern, StepSize, contradiction, of_job, precision, read_log, timed
from tuner.logs.lines import stamp_of, unwrapped

LOGS = ROOT / "tests/data/logs"

STEP = StepSize(global_batch=64, seq=2048, gpus=8)

FRAMEWORKS = {
    "megatron-lm-2026": ("megatron", 2, 8.2123, 0.0),
    "megatron-bridge": ("megatron", 2, 5.1703, 0.0),
    "nemo": ("nemo", 1, 2.505, 0.0),
    "nemo-older": ("nemo", 2, 9.87, 0.0),
    "nanotron": ("nanotron", 2, 2.01, 0.0),
    "torchtitan": ("torchtitan", 2, 64 * 2048 / (8 * 3450), 0.0),
    "torchtitan-2026": ("torchtitan", 2, 64 * 2048 / (8 * 3402), 0.0),
    "torchtitan-ranks": ("torchtitan", 2, 64 * 2048 / (8 * 3402), 0.0),
    "torchtitan-older": ("torchtitan", 10, 64 * 2048 / (8 * 4000), 0.0),
    "torchtune": ("torchtune", 2, 8.0, 0.0),
    "maxtext": ("maxtext", 1, 0.319, 0.0),
    "xtuner": ("mmengine", 20, 2.7937, 0.0),
    "mmengine-epochs": ("mmengine", 20, 0.5029, 0.0),
    "olmo-core": ("olmo-core", 2, 2.0, 0.0),
    "composer": ("composer", 2, 18.0, 0.4),
    "nanogpt": ("nanogpt", 10, 0.8123, 0.0),
    "nanogpt-build": ("nanogpt", 1, 1.024, 0.0),
    "nanogpt-chat": ("nanogpt", 1, 1.024, 0.0),
    "llm-c": ("nanogpt", 2, 1.51234, 0.0),
    "hf-trainer": ("progress bar", 2, 2.52, 0.02),
    "hf-trainer-5": ("progress bar", 2, 2.52, 0.02),
    "hf-trainer-5-no-bar": ("training summary", 10, 2.475, 0.0),
    "hf-trainer-no-bar": ("training summary", 10, 2.475, 0.0),
    "accelerate": ("progress bar", 2, 0.42, 0.02),
    "axolotl": ("progress bar", 2, 2.52, 0.02),
    "lightning": ("progress bar", 2, 0.44, 0.03),
    "lightning-rich": ("progress bar", 2, 1 / 2.27, 1e-9),
    "deepspeed-timer-2021": ("throughput timer", 20, 64 / 127.5, 0.0),
}
"""Reader of each log, and number, seconds and precision of its second iteration."""


def only_run(name: str, pattern: StepPattern | None = None) -> LogRun:
    log: Log = read_log((LOGS / f"{name}.log").read_text().splitlines(), pattern)
    (run,) = log.runs
    return run


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_is_measured_by_its_second_iteration(name: str) -> None:
    source, number, seconds, tolerance = FRAMEWORKS[name]
    run = only_run(name)
    assert (run.source, run.failure) == (source, None)
    entries = timed(run, STEP)
    numbers, reason = of_job(run, (2,), entries)
    assert (numbers, reason) == ((number,), "")
    (chosen,) = [entry for entry in entries if entry.number == number]
    assert chosen.seconds == pytest.approx(seconds, rel=1e-9, abs=tolerance)
    assert bool(precision([chosen])) == bool(chosen.derived)


@pytest.mark.parametrize("name", GOOD_LOGS)
def test_a_pasted_log_is_measured_by_its_second_line(name: str) -> None:
    """Pasted logs are resumed, have a launcher's labels or colours, contain other lines, or run into a progress bar."""
    text, source, number, seconds, tolerance = GOOD_LOGS[name]
    (run,) = read_log(text.splitlines()).runs
    assert (run.source, run.failure) == (source, None)
    entries = timed(run, STEP)
    assert of_job(run, (2,), entries) == ((number,), "")
    (chosen,) = [entry for entry in entries if entry.number == number]
    assert chosen.seconds == pytest.approx(seconds, rel=1e-9, abs=tolerance)
    assert contradiction(entries) == ""


WRAPPED = ("megatron mixtral 2024", "torchtitan mxfp8 2026", "nemo b200", "nanotron tiny", "ms-swift, steps per second")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", WRAPPED)
def test_lines_wrapped_by_a_terminal_are_joined(name: str, columns: int) -> None:
    text, source, number, seconds, tolerance = GOOD_LOGS[name]
    broken = [line[at : at + columns] for line in text.splitlines() for at in range(0, len(line), columns)]
    (run,) = read_log(broken).runs
    assert (run.source, run.failure) == (source, None)
    entries = timed(run, STEP)
    assert of_job(run, (2,), entries) == ((number,), "")
    assert [e.seconds for e in entries if e.number == number] == [pytest.approx(seconds, rel=1e-9, abs=tolerance)]


def test_full_lines_are_joined_only_if_several_show_the_width() -> None:
    full, short = "x" * 60, "y" * 59
    lines = [full, "end", short, "z", full, full, "w"]
    assert unwrapped(enumerate(lines)) == [full + "end", short + " z", full + full + "w"]
    assert unwrapped(enumerate(lines[:-2])) == []
    assert unwrapped(enumerate(["x" * 59] * 3)) == []
    assert unwrapped(enumerate(["x" * 400] * 3)) == ["x" * 1200]
    assert unwrapped(enumerate(["x" * 401] * 3)) == []
    assert unwrapped([]) == []


OWN_LINES = ["No 5001 took 512.5 ms, loss 3.21", "No 5002 took 250.0 ms, loss 3.20, 11.5 GiB", "No 5003 took 251.0 ms"]
OWN_PATTERN = r"No (?P<iteration>\d+) took (?P<ms>[\d.]+) ms(?:, loss (?P<loss>[\d.]+))?(?:, (?P<memory>[\d.]+) GiB)?"


def test_a_step_pattern_reads_the_lines_of_any_trainer() -> None:
    assert read_log(OWN_LINES).runs == ()
    (run,) = read_log(OWN_LINES, StepPattern.parse(OWN_PATTERN)).runs
    assert [(entry.number, entry.seconds, entry.loss) for entry in run.iterations] == [
        (5001, 0.5125, 3.21),
        (5002, 0.25, 3.2),
        (5003, 0.251, None),
    ]
    assert run.peak.reserved == 11.5 * 2**30
    assert of_job(run, (2,), timed(run, STEP)) == ((5002,), "")


def test_unnumbered_lines_are_counted_and_tokens_per_second_need_the_tokens_of_a_step() -> None:
    lines = ["loss=3.1 tok/s=65,536", "nothing", "loss=3.0 tok/s=131,072"]
    (run,) = read_log(lines, StepPattern.parse(r"tok/s=(?P<tokens_per_sec>[\d,]+)")).runs
    assert [(entry.number, entry.seconds) for entry in timed(run, STEP)] == [(1, 2.0), (2, 1.0)]
    assert timed(run, StepSize()) == []


def test_a_step_pattern_reads_thousands_separators_but_no_decimal_commas() -> None:
    """The text of a pattern that includes commas may end with one."""
    pattern = StepPattern.parse(r"step (?P<iteration>[\d,]+) took (?P<seconds>[\d.,]+)")
    (run,) = read_log([f"step 1,00{number} took 1,234.5, loss 3.2" for number in range(3)], pattern).runs
    assert [(each.number, each.seconds) for each in run.iterations] == [(1000 + number, 1234.5) for number in range(3)]
    assert read_log([f"step {number} took 1,23 s" for number in range(3)], pattern).runs == ()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "is not a regular expression"),
        (r"step (?P<iteration>\d+)", "has no group for the time"),
        (r"(?P<seconds>\d+) (?P<epoch>\d+)", "unknown group epoch; the groups are iteration, seconds"),
    ],
)
def test_a_pattern_without_a_measurement_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StepPattern.parse(pattern)


def test_the_time_of_each_step_is_recovered_from_tqdm() -> None:
    """The smoothed rate of the third step still includes the slow first step."""
    run = only_run("hf-trainer")
    assert [entry.number for entry in run.iterations] == [1, 2, 3, 4]
    assert [entry.seconds for entry in run.iterations] == [pytest.approx(s, abs=0.04) for s in (6.4, 2.52, 2.49, 2.5)]
    assert precision([run.iterations[1]]) == "seconds are derived from the progress bar's rate, resolution about 0.5%"


def test_bars_of_other_work_and_of_evaluations_are_not_iterations() -> None:
    bars = [
        "Map: 100%|██████████| 1000/1000 [00:01<00:00, 912.31 examples/s]",
        "Loading checkpoint shards: 100%|██████████| 2/2 [00:03<00:00,  1.61s/it]",
        "Validation DataLoader 0:  50%|█████     | 1/2 [00:00<00:00,  4.31it/s]",
        "Downloading shards:  50%|█████     | 1/2 [00:00<00:00,  4.31it/s]",
    ]
    assert read_log(bars).runs == ()
    training = "  1%|          | {0}/100 [00:0{0}<01:30,  1.00s/it]"
    evaluation = " 12%|█         | {0}/8 [00:00<00:00, 14.21it/s]"
    lines = [training.format(1), training.format(2), *map(evaluation.format, (1, 2, 3)), training.format(3)]
    (run,) = read_log(lines).runs
    assert [entry.number for entry in run.iterations] == [1, 2, 3]


def test_lightnings_rich_bar_has_a_loss() -> None:
    bar = "Epoch 0/-2 \u2501\u257a\u2501 {}/30 0:00:0{} \u2022 0:00:16 {}it/s train_loss: {}"
    (run,) = read_log([bar.format(1, 0, "0.00", "6.238"), bar.format(2, 1, "2.00", "6.180")]).runs
    assert run.source == "progress bar"
    assert [entry.loss for entry in run.iterations] == [6.238, 6.18]


def test_a_rich_bar_printed_only_at_its_end_is_a_mean() -> None:
    """Rich before version 14 prints to a file in this way."""
    bar = "Epoch 0/-2 \u2501\u2501\u2501\u2501 20/20 0:00:05 \u2022 0:00:00 4.00it/s train_loss: 6.067"
    (run,) = read_log([bar]).runs
    assert run.source == "training summary"
    entries = timed(run, STEP)
    assert [(entry.number, entry.seconds) for entry in entries] == [(20, 0.25)]
    assert of_job(run, (2,), entries) == ((20,), "")
    assert "warm-up included" in precision(entries)


def test_step_numbers_continue_across_lightning_epochs() -> None:
    line = "Epoch {0}: 100%|██████████| {1}/2 [00:0{1}<00:00,  1.00it/s, v_num=0]"
    (run,) = read_log(line.format(epoch, step) for epoch in (0, 1) for step in (1, 2)).runs
    assert [entry.number for entry in run.iterations] == [1, 2, 3, 4]
    assert [entry.seconds for entry in run.iterations] == [1.0, 1.0, 1.0, 1.0]


def test_ms_swift_logs_its_peak_memory() -> None:
    (run,) = read_log(GOOD_LOGS["ms-swift, steps per second"][0].splitlines()).runs
    assert run.peak.reserved == 5.15 * 2**30


MEMORY = {"torchtitan": 45.67, "nanotron": 21.5e9 / 2**30, "composer": 41.234, "axolotl": 14.5}


@pytest.mark.parametrize("name", MEMORY)
def test_frameworks_log_their_peak_memory(name: str) -> None:
    assert only_run(name).peak.reserved == pytest.approx(MEMORY[name] * 2**30)


NEMO_2 = "Training epoch 0, iteration {0}/9 | lr: 1e-4 | global_step: {0} | {1} | train_step_timing in s: 0.4"


@pytest.mark.parametrize(
    ("printed", "reserved", "allocated"),
    [
        ("max_memory_reserved: 4831838208", 4831838208, None),
        ("max_memory_reserved: 4831838208 | max_memory_allocated: 3221225472", 4831838208, 3221225472),
        ("max_memory_allocated: 4.52 GB", None, None),
        ("max_memory_allocated: 4831838 KB", None, None),
    ],
)
def test_nemo_logs_its_peak_memory_in_bytes(printed: str, reserved: int | None, allocated: int | None) -> None:
    (run,) = read_log(NEMO_2.format(step, printed) for step in range(4)).runs
    assert (run.peak.reserved, run.peak.allocated) == (reserved, allocated)
    assert [each.seconds for each in run.iterations] == [0.4] * 4


@pytest.mark.parametrize("quote", ["", "'"])
def test_axolotl_logs_its_memory_among_the_figures_of_hf_trainer(quote: str) -> None:
    bar = "  {0}%|          | {0}/100 [00:0{1}<03:18,  2.00s/it]"
    figures = "{{'loss': 2.3, 'memory/max_allocated (GiB)': {0}3.5{0}, 'memory/device_reserved (GiB)': {0}4.5{0}}}"
    lines = [line for n in (1, 2, 3) for line in (bar.format(n, 2 * n), figures.format(quote))]
    (run,) = read_log(lines).runs
    assert (run.peak.reserved, run.peak.allocated) == (4.5 * 2**30, 3.5 * 2**30)
    assert [each.seconds for each in run.iterations] == pytest.approx([2.0] * 3)


@pytest.mark.parametrize("stamp", ["2024-02-28 23:59:58,250", "2023-12-31T23:59:58.250", "2026-03-04 11:00:00.250000"])
def test_time_stamps_continue_across_days_and_years(stamp: str) -> None:
    moment = datetime.fromisoformat(stamp.replace(",", "."))
    later = moment + timedelta(days=2, seconds=3)
    (before, digit), (after, _) = stamp_of(stamp), stamp_of(later.isoformat(sep=" "))
    assert before is not None
    assert after is not None
    assert after - before == 2 * 86400 + 3
    assert digit == pytest.approx(10 ** -len(stamp[20:]))


def stamped(*seconds: float, wall: float, pause: float = 0.0) -> list[str]:
    """Return lines that print `seconds`, stamped every `wall` seconds, with a pause before the last."""
    start, lines = datetime(2026, 3, 4, 10, 0, tzinfo=timezone.utc), []
    for number, printed in enumerate(seconds, start=1):
        end = start + timedelta(seconds=number * wall + (pause if number == len(seconds) else 0.0))
        lines.append(f"[{end:%Y-%m-%d %H:%M:%S}] it {number} took {printed} s")
    return lines


SECONDS = StepPattern.parse(r"it (?P<iteration>\d+) took (?P<seconds>[\d.]+) s")
MILLISECONDS = StepPattern.parse(r"it (?P<iteration>\d+) took (?P<ms>[\d.]+) s")


@pytest.mark.parametrize(
    ("lines", "pattern", "words"),
    [
        (stamped(2.0, 2.0, 2.0, 2.0, wall=2.0), SECONDS, ""),
        (
            stamped(2.0, 2.0, 2.0, 2.0, wall=2.0),
            MILLISECONDS,
            "3 lines add up to 0.006 s, but their timestamps span 6 s",
        ),
        (stamped(2e3, 2e3, 2e3, wall=2.0), SECONDS, "2 lines add up to 4000 s, but their timestamps span 4 s"),
        (stamped(2e3, 2e3, wall=2.0), SECONDS, "times of 1 line add up to 2000 s, but their timestamps span 2 s"),
        (stamped(16.0, 16.0, 16.0, wall=2.0), SECONDS, "2 lines add up to 32 s, but their timestamps span 4 s"),
        (stamped(2.0, 2.0, 2.0, 2.0, wall=2.0, pause=600.0), SECONDS, ""),
        (stamped(0.2, 0.2, 0.2, wall=0.2), SECONDS, ""),
        (OWN_LINES, StepPattern.parse(OWN_PATTERN), ""),
    ],
    ids=["seconds", "ms", "seconds for ms", "one line", "eight times", "checkpoint", "coarse stamps", "no stamps"],
)
def test_times_that_contradict_the_time_stamps_are_refused(lines: list[str], pattern: StepPattern, words: str) -> None:
    (run,) = read_log(lines, pattern).runs
    found = contradiction(timed(run, STEP))
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_logs_of_frameworks_agree_with_their_time_stamps(name: str) -> None:
    assert contradiction(timed(only_run(name), STEP)) == ""


def test_deepspeeds_timer_without_a_batch_is_measured_by_its_time_stamps() -> None:
    lines = [
        f"[2023-11-07 02:{minutes}:{seconds},400] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * step}/global_step="
        f"{step}, RunningAvgSamplesPerSec=25.7, CurrSamplesPerSec=25.8, MemAllocated=4.32GB, MaxMemAllocated=38.49GB"
        for minutes, seconds, step in (("13", "41", 450), ("14", "06", 460), ("14", "31", 470))
    ]
    (run,) = read_log(lines).runs
    without, with_batch = timed(run, StepSize()), timed(run, StepSize(global_batch=64))
    assert [(one.number, one.seconds) for one in without] == [(460, 2.5), (470, 2.5)]
    assert precision(without) == "seconds are derived from timestamps, resolution about 0.01%"
    assert [one.seconds for one in with_batch] == [64 / 25.8] * 3
    old = [re.sub(r"epoch=0/micro_step=(\d+)/global_step=\d+", r"0/\1", line) for line in lines]
    assert timed(read_log(old).runs[0], StepSize()) == []  # of micro batches
