"""Progress bars: undoing tqdm's smoothing, evaluations between prints, final bars, and bars that do not count steps."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm.std import EMA, tqdm  # type: ignore[import-untyped]

from tuner.logs import read_log
from tuner.logs.bars import Bars
from tuner.logs.log import _Reader
from tuner.logs.readers import RecordReader
from tuner.logs.records import Iteration


def bar(number: int, elapsed: float, rate: str, total: int = 100) -> str:
    """Return a line of tqdm."""
    clock = f"{int(elapsed) // 60:02}:{int(elapsed) % 60:02}"
    return f"{100 * number // total:3}%|█         | {number}/{total} [{clock}<99:00, {rate}]"


def read(lines: list[str]) -> list[Iteration]:
    """Return the iterations read from progress bars."""
    bars = Bars()
    return [record.iteration for line, text in enumerate(lines, start=1) for record in bars.read(line, text)]


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("each", [1, 3])
def test_the_smoothing_of_tqdm_is_inverted_exactly(each: int, inverted: bool) -> None:
    """tqdm prints the quotient of two moving averages, of steps and of seconds, each with weight 0.3."""
    seconds = [9.0, 2.5, 4.0, 3.0, 3.5]
    lines, ema_steps, ema_seconds = [], 0.0, 0.0
    for place, (took, elapsed) in enumerate(zip(seconds, accumulate(each * took for took in seconds), strict=True)):
        ema_steps = 0.3 * each + 0.7 * ema_steps
        ema_seconds = 0.3 * each * took + 0.7 * ema_seconds
        rate = f"{ema_steps / ema_seconds:.8f}it/s" if inverted else f"{ema_seconds / ema_steps:.8f}s/it"
        lines.append(bar((place + 1) * each, elapsed, rate))
    found = read(lines)
    assert [one.number for one in found] == [each * place for place in range(1, 6)]
    assert [one.seconds for one in found] == pytest.approx(seconds, rel=1e-5)
    assert {one.derived for one in found} == {"the progress bar's rate"}
    unit = 1e-8 * (9.0**2 if inverted else 1.0)
    assert found[0].seconds_digit == pytest.approx(unit)
    assert found[1].seconds_digit == pytest.approx(
        1e-8 * ((1 - 0.49 + 0.7 * 0.3) / 0.3) * ((ema_rate(seconds[:2], each) ** 2) if inverted else 1.0)
    )


LIGHTNING = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


@pytest.mark.parametrize(
    ("description", "smooths", "options"),
    [
        ("Epoch 0", False, {"bar_format": LIGHTNING}),
        ("Epoch 0", False, {"postfix": "loss=2.3, v_num=0"}),
        ("Epoch 0", False, {"postfix": "loss=2.3"}),
        ("Epoch 0", True, {}),
        ("Epoch 1/3", True, {"postfix": "loss=2.3"}),
        ("", True, {}),
        ("steps", False, {"postfix": "avr_loss=2.3"}),
        ("steps", True, {}),
    ],
)
@given(
    each=st.floats(0.2, 10.0),
    slow=st.sampled_from([1.0, 1.5, 3.0, 8.0]),
    start=st.sampled_from([0, 3, 5, 20]),
    luck=st.lists(st.floats(0.95, 1.05), min_size=26, max_size=26),
)
def test_step_times_of_a_bar_are_as_precise_as_stated(
    description: str,
    smooths: bool,
    options: dict[str, str],
    each: float,
    slow: float,
    start: int,
    luck: list[float],
) -> None:
    """Step times recovered from real tqdm bars are within the stated precision.

    The bars are those of Lightning, of loops over epochs, of HF Trainer and of sd-scripts, with a slow first step, from
    the start or resumed.
    """
    steps, seconds = EMA(0.3), EMA(0.3)
    took, elapsed, lines = [0.0], 0.0, []
    for number, share in enumerate(luck, start=1):
        took.append(each * (slow if number == 1 else share))
        elapsed += took[-1]
        rate = steps(1) / seconds(took[-1])
        if number >= start:
            shown = rate if smooths else None
            lines.append(tqdm.format_meter(number, 96, elapsed, prefix=description, rate=shown, **options))
    for iteration in read(lines)[1:]:
        if iteration.seconds:
            which = took[iteration.number % 96]
            assert abs(iteration.seconds - which) <= max(0.1 * which, 0.75 * iteration.seconds_digit), iteration


@pytest.mark.parametrize("description", ["Epoch 0", "Epoch 1/3", "Epoch 1: ", "steps", "Training", ""])
@pytest.mark.parametrize("postfix", ["", "loss=2.31"])
def test_a_loop_over_epochs_is_smoothed(description: str, postfix: str) -> None:
    """A slow first step of 1.4 s, then 0.4 s: by a mean since the beginning, the second step would take 0.23 s."""
    steps, seconds = EMA(0.3), EMA(0.3)
    lines, elapsed = [], 0.0
    for number in range(1, 9):
        took = 1.4 if number == 1 else 0.4
        elapsed += took
        rate = steps(1) / seconds(took)
        lines.append(tqdm.format_meter(number, 30, elapsed, prefix=description, postfix=postfix, rate=rate))
    assert lines[0].endswith("1.40s/it" + ", " * bool(postfix) + postfix + "]")
    found = read(lines)
    assert [one.seconds for one in found] == pytest.approx([1.4, *[0.4] * 7], abs=0.01)
    assert postfix or all(one.seconds_digit < 0.03 for one in found)


def test_the_header_of_lightning_marks_a_mean() -> None:
    """Without a logger, Lightning's bar has neither `v_num` nor, at more than one step per second, a rate below 1."""
    lines = [
        tqdm.format_meter(number, 30, 0.6 + 0.3 * number, prefix="Epoch 0", bar_format=LIGHTNING)
        for number in range(1, 9)
    ]
    header = "Training: |          | 0/? [00:00<?, ?it/s]"
    found = read([header, *lines])
    assert [one.seconds for one in found] == pytest.approx([0.9, *[0.3] * 7], abs=0.03)
    second = read(lines)[1]
    assert second.seconds is not None
    assert abs(second.seconds - 0.3) <= second.seconds_digit / 2


@pytest.mark.parametrize("each", [0.15, 0.4, 1.2, 1.9, 3.1, 12.0, 40.0])
@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_the_rate_of_a_rich_bar_excludes_its_first_step(each: float, slow: float) -> None:
    """rich's rate is the mean of the last 30 s without the steps before its first sample; two steps of 1.2 s print
    `1/20 0:00:01 0.00it/s` and `2/20 0:00:02 0.83it/s`."""
    ends = list(accumulate([each * slow, *[each] * 19]))
    lines = ["Epoch 0/-2 ━━━━ 0/20 0:00:00 • -:--:-- 0.00it/s"]
    for number, end in enumerate(ends, start=1):
        sampled = [sample for sample in ends[:number] if sample >= end - 30]
        rate = (len(sampled) - 1) / (end - sampled[0]) if len(sampled) > 1 else 0.0
        clock = f"0:{int(end) // 60:02}:{int(end) % 60:02}"
        lines.append(f"Epoch 0/-2 ━━━━ {number}/20 {clock} • 0:00:22 {rate:.2f}it/s v_num: 0")
    second, *others = read(lines)[-19:]
    assert second.number == 2
    assert second.seconds == pytest.approx(each, abs=min(1.0, 0.04 * each))
    for one in others:
        assert one.seconds == pytest.approx(each, abs=max(0.05 * each, 0.5 * one.seconds_digit))


def ema_rate(seconds: list[float], each: int) -> float:
    """Return the seconds per step that tqdm prints after these steps."""
    steps = spent = 0.0
    for took in seconds:
        steps, spent = 0.3 * each + 0.7 * steps, 0.3 * each * took + 0.7 * spent
    return spent / steps


@pytest.mark.parametrize(
    ("elapsed", "seconds", "digit", "derived"),
    [
        (4, 1.25, 2 * 0.01 * 1.25 / 0.8 * 4 / 2, "the progress bar's rate"),  # 2.5 s from the rate, 2 s from the clock
        (
            3,
            1.25,
            2.4 * 0.01 * 1.25 / 0.8,
            "the progress bar's rate",
        ),  # not a mean: 5 s from the rate, 3 s from the clock
        (9, 3.5, 2 / 2, "the progress bar's clock"),  # 7 s from the clock
        (2, 1.25, 1.25 / 4, "the progress bar's smoothed rate"),  # no time from the clock
    ],
)
def test_a_rate_that_contradicts_the_clock_by_more_than_one_and_a_half_seconds_is_ignored(
    elapsed: int, seconds: float, digit: float, derived: str
) -> None:
    """Lightning's rate is the mean since the start: two steps of 1.25 s follow two of 1.25 s."""
    lines = [f"Epoch 0:  20%|█ | {n}/10 [00:0{t}<00:08,  0.80it/s, v_num=0]" for n, t in ((2, 2), (4, elapsed))]
    found = read(lines)[1]
    assert (found.number, found.derived) == (4, derived)
    assert found.seconds == pytest.approx(seconds)
    assert found.seconds_digit == pytest.approx(digit)


def test_bars_are_found_in_the_first_4096_characters_of_a_line() -> None:
    line = bar(2, 5, "2.50s/it")
    assert read([" " * (4096 - len(line)) + line])
    assert not read([" " * 4096 + line])


def test_a_traceback_continues_in_the_next_block_of_lines() -> None:
    """A block that contains only bars is read by the bar reader alone, unless a traceback is open."""
    reader = _Reader(None)
    lines = [bar(1, 2, "2.00s/it"), "Traceback (most recent call last):", '  File "a.py"']
    lines += [bar(2, 4, "2.00s/it"), "mine.Oops: it broke"]
    numbered = list(enumerate(lines, start=1))
    for block in (numbered[:3], numbered[3:]):
        reader.read_block(block, "\n".join(text for _, text in block))
    (run,) = reader.log().runs
    assert [one.number for one in run.iterations] == [1, 2]
    assert run.failure
    assert run.failure.failure.evidence == "mine.Oops: it broke"


def test_a_bar_within_a_step_does_not_count_steps() -> None:
    """A bar whose description numbers the step counts the work within it; a loop over steps numbers its own."""
    within = [f"Running training step {step}: 100%|##########| 8/8 [00:31<00:00,  3.9{step}s/it]" for step in (1, 2, 3)]
    assert not read_log(within).runs
    loop = [f"step {step}:   {step}%|          | {step}/100 [00:{4 * step:02}<06:00,  4.00s/it]" for step in (1, 2, 3)]
    (run,) = read_log(loop).runs
    assert [each.number for each in run.iterations] == [1, 2, 3]


def test_bars_of_trainers_before_2021_have_the_precision_of_both_means() -> None:
    """After 1.16 s and 1.10 s, the unbiased mean of current tqdm gives 1.06 s, and the older mean 0.96 s."""
    log = [
        "Iteration:   0%|          | 1/18594 [00:01<6:00:23,  1.16s/it]",
        "Iteration:   0%|          | 2/18594 [00:02<5:41:43,  1.10s/it]",
    ]
    _, second = read_log(log).runs[0].iterations
    assert second.seconds == pytest.approx((1.10 * (1 - 0.49) - 0.7 * 0.3 * 1.16) / 0.3)
    older = (1.10 - 0.7 * 1.16) / 0.3
    assert second.seconds is not None
    assert second.seconds_digit == pytest.approx(2 * (second.seconds - older))


@given(
    each=st.floats(0.2, 10.0),
    many=st.sampled_from([1, 5, 50]),
    evaluation=st.floats(0.5, 30.0),
    luck=st.lists(st.floats(0.97, 1.03), min_size=12, max_size=12),
)
def test_the_time_of_a_step_excludes_evaluations(each: float, many: int, evaluation: float, luck: list[float]) -> None:
    """An evaluation of at least half the time precedes every fourth print of a real tqdm bar."""
    steps, seconds = EMA(0.3), EMA(0.3)
    elapsed, reader, found = 0.0, RecordReader(), []
    for place, share in enumerate(luck, start=1):
        took = each * many * share
        if evaluates := place % 4 == 0:
            took += evaluation * each * many
            assert not list(
                reader.read(
                    2 * place, f"{{'eval_loss': 0.4, 'eval_runtime': {evaluation * each * many:.4f}, 'epoch': 1}}"
                )
            )
        elapsed += took
        rate = steps(many) / seconds(took)
        line = tqdm.format_meter(place * many, 12 * many, elapsed, rate=rate)
        ((record,), which) = list(reader.read(2 * place + 1, line)), each * share
        found.append((record.iteration, which, evaluates))
    for iteration, took, evaluates in found[1:]:
        assert iteration.seconds is not None
        close = abs(iteration.seconds - took) <= max(0.1 * took, 0.75 * iteration.seconds_digit)
        assert close, (iteration, took, evaluates)


def test_an_evaluation_printed_out_of_place_changes_no_time() -> None:
    """stdout may lag behind a bar on stderr; then the bar's rate shows that no evaluation took place."""
    lines = [bar(10 * place, 10 * place, "1.00s/it") for place in range(1, 5)]
    alone = [each.seconds for each in read_log(lines).runs[0].iterations]
    late = [*lines[:3], "{'eval_loss': 0.4, 'eval_runtime': 5.0, 'epoch': 1}", lines[3]]
    assert [each.seconds for each in read_log(late).runs[0].iterations] == alone


def test_the_first_print_after_an_evaluation_is_read_separately() -> None:
    """Bars on lines of their own are read in one pass, except directly after other output."""
    bars, line = Bars(), bar(20, 80, "4.35s/it")
    list(bars.read(1, bar(10, 20, "2.00s/it")))
    bars.evaluate(40.0)
    assert bars.read_plain([(2, line)], line) is None
    (record,) = bars.read(2, line)
    assert record.iteration.seconds == pytest.approx(2.0, abs=0.7)
    assert bars.read_plain([(3, line)], line) is not None


def test_a_bar_truncated_late_is_smoothed_print_by_print() -> None:
    """After a minute, a rate that agrees with the clock is not that of a resumed run with unknown smoothing."""
    late = [bar(2086, 1561, "1.49it/s", 2120), bar(2087, 1562, "1.48it/s", 2120), bar(2088, 1562, "1.47it/s", 2120)]
    second = read(late)[1]
    assert second.seconds == pytest.approx((1 / 1.48 - 0.7 / 1.49) / 0.3)
    assert second.seconds_digit < 0.05


def test_final_bars_are_two_runs_if_the_clock_falls() -> None:
    """When a bar closes, its final print appears twice; the second time includes evaluation and saving."""
    end = "1|25880|Loss: 0.84: 100%|####| 25880/25880 [{}<00:00, {}it/s]"
    first, second = read_log([end.format("4:59:53", "1.44"), end.format("2:30:00", "2.88")]).runs
    assert first.iterations[0].seconds == pytest.approx(1 / 1.44)
    assert second.iterations[0].seconds == pytest.approx(1 / 2.88)
    (run,) = read_log([end.format("2:30:00", "2.88"), end.format("4:31:00", "1.59")]).runs
    assert run.iterations[0].seconds == pytest.approx(1 / 2.88)


def test_a_bar_is_preferred_to_a_breakdown_that_omits_generation() -> None:
    """The passes and the step account for only 232 s of 380 s."""
    breakdown = "[Rank 0] time (ms) | fwd: 114577.10 | bwd: 117430.12 | bwd_inner: 117138.34 | step: 105.42"
    (run,) = read_log([breakdown, "  0%|          | 3/1562 [18:48<164:33:29, 379.99s/it]"]).runs
    assert run.source == "progress bar"
    (run,) = read_log([breakdown, "  0%|          | 3/1562 [11:48<99:33:29, 240.99s/it]"]).runs
    assert run.source == "wall-clock breakdown"


@pytest.mark.parametrize(
    ("printed", "seconds", "digit"),
    [
        ("[ 375/6912 1:03:31 < 31:02:18, 0.06 it/s, Epoch 0.16/3]", 111738 / 6537, 2 / 6537),  # resumed at 200
        ("[6500/6912 1:03:31 < 1:57:20, 0.06 it/s, Epoch 2.9/3]", 7040 / 412, 2 / 412),  # resumed at 6300
        ("[ 500/1000 10:00 < 09:59, 0.83 it/s, Epoch 0.5/1]", 1.2, 2 / 500),
        ("[ 900/1000 18:00 < 02:01, 0.83 it/s, Epoch 0.9/1]", 1.2, 2 / 900),  # the remaining time has fewer digits
        ("[600/600 15:08, Epoch 0/1]", 908 / 600, 2 / 600),
    ],
)
def test_a_notebook_bar_gives_the_mean_of_the_steps_of_this_job(printed: str, seconds: float, digit: float) -> None:
    (run,) = read_log(["<progress value='375' max='6912'></progress>", printed, "Step Training Loss"]).runs
    (iteration,) = run.iterations
    assert iteration.seconds == pytest.approx(seconds)
    assert iteration.seconds_digit == pytest.approx(digit)


def test_a_bar_of_epochs_does_not_count_steps() -> None:
    """A bar whose description repeats its number counts epochs; one in a loop over epochs counts batches."""
    line = "Epoch {0}/1000:  46%|████      | {0}/1000 [14:{1:02}<16:28,  1.84s/it, v_num=1, train_loss_step=2.36e+3]"
    assert not read_log([line.format(462 + n, 9 + 2 * n) for n in range(3)]).runs
    line = "Epoch 2/1000:  46%|████      | {0}/1000 [14:{1:02}<16:28,  1.84s/it, loss=2.36]"
    assert read_log([line.format(462 + n, 9 + 2 * n) for n in range(3)]).runs
