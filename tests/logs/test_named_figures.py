"""Logs of unknown trainers are read by the names of their figures, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.launch.log_tail import LogProgress, after_line
from tuner.logs import Iteration, read_log, timed
from tuner.logs.figures import Figure, figures
from tuner.logs.named_figures import Interpretation, LiveFigures
from tuner.logs.timing import StepSize, precision


def read(*lines: str) -> list[Iteration]:
    """Return the timed iterations of the only run, which is read by the names of its figures."""
    (run,) = read_log(lines).runs
    assert run.source == "named figures"
    return timed(run, StepSize())


def times(*lines: str) -> list[float]:
    return [round(each.seconds or 0.0, 9) for each in read(*lines)]


SPOKEN = {
    "step 1, loss: 10.8, time: 644.64 ms, tokens/sec: 1588.47": (1, 0.64464),
    "iter=1 loss=1.35 dt=22.5 dtd=0.0004 dt/max=30.1": (1, 22.5),
    "step:1 - train/loss:0.80 - train/lr(1e-3):0.0002 - train/step_time(s):14.7": (1, 14.7),
    "global_step: 10, lr: 5e-06, loss: 69.3, avg_reader_cost: 0.009 s, avg_batch_cost: 0.18 s, ips: 355.1 samples/s": (
        *(10, 0.18),
    ),
    "global_step: 1, loss: 69.3, avg_batch_cost: 0.18 s": None,
    "step 1 lr 0.001 loss 3.21 sec/step 1.010": (1, 1.01),
    "step 1 loss 3.21 steps/sec 0.500": (1, 2.0),
    "step 1 loss 3.1 lr 1.0e-04 s/step 1.01": (1, 1.01),
    "step 1 loss 3.1 memory 1.5 s/it 0.50": (1, 0.5),
    "step 1 loss 3.1 ms: 500": (1, 0.5),
    "step 1 loss 3.1 step time 0.5 s 1234 tok/s": (1, 0.5),
    "step 1 loss 3.2 step time 0.05 min": (1, 3.0),
    "step 1 loss 3.2 step time 250000 us": (1, 0.25),
    "step 1 loss 3.2 step time 1m02.5s": (1, 62.5),
    "step 1 loss 3.2 step time 0:01:02": (1, 62.0),
    "batch 1 of 9 loss 3.2 in 1.01s": (1, 1.01),
    "step 1 val_loss 3.4 step_time 20.00s": None,
    "step 1 | valid ppl 30.1 | step time 20.00s": None,
    "step 1 test accuracy 0.5 step time 20.00s": None,
    "global step 1, epoch: 28, loss: 0.005, speed: 1.6 step/s": (1, 0.625),
    "[mine] update 1 | 250 ms/update": (1, 0.25),
    "it 1: 1.5 sec/step, loss 3.2": (1, 1.5),
    '{"step": 1, "loss": 2.31, "step_time_ms": 512.5}': (1, 0.5125),
    "Training Iteration 1/9 | loss 3.2 | seconds per iteration 0.25": (1, 0.25),
    "train step 1 of 9: loss 3.2, 2.5 it/s": (1, 0.4),
    "num_updates=1 ppl=12.1 train_wall_time_per_step=3.5": None,
    "loss/step 1 is 3.2, took 0.5 s": None,
    "eval step 1, loss: 10.8, time: 644.64 ms": None,
    "Validation: iter 1 loss 3.2 step time 0.5 s": None,
    "[1/9] Downloading shard, 2.5 it/s": None,
    "step 1 loss 3.2 data_time: 0.5 s": None,
    "step 1 loss 3,21 step_time 1,23 s": None,  # decimal commas: neither 1 s nor 23 s
    "step 1 loss 3.2 step_time 12.5,1 s": None,
    "step 1 loss 3.2 forward time 0.5 s": None,
    "step 1 loss 3.2 eta: 0.5 s": None,
    "step 1 loss 3.2": None,
    "warmup steps: 1, step size 2, time per sample 0.5 s, loss 1": None,
}


@pytest.mark.parametrize("line", SPOKEN)
def test_steps_and_step_times_are_recognised_by_name(line: str) -> None:
    """Two lines that differ in the step are read, or are not lines of a step with a time."""
    lines = [line, line.replace("1", "2", 1) if "step:1 " not in line else line.replace("step:1 ", "step:2 ")]
    expected = SPOKEN[line]
    if expected is None:
        assert not any(run.iterations for run in read_log(lines).runs)
        return
    first = read(*lines)[0]
    assert first.number == expected[0]
    assert first.seconds == pytest.approx(expected[1])


@pytest.mark.parametrize("word", ["nan", "NaN", "-nan", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_read_and_names_no_other_figure(word: str) -> None:
    """The time after it keeps its name, and a time that is no number is no time."""
    lost = [f"step {n} loss {word} grad norm {word} time 1.5 s" for n in (1, 2)]
    assert times(*lost) == [1.5, 1.5]
    assert all(str(each.loss) == "nan" for each in read(*lost))
    later = [f"step {n} loss {3.0 if n < 3 else word} time 1.5 s" for n in (1, 2, 3)]
    assert [str(each.loss) for each in read(*later)] == ["3.0", "3.0", "nan"]
    assert read_log([f"step {n} loss 3.2 step time {word}" for n in (1, 2)]).runs == ()
    assert [figure.text for figure in figures(f"{word} 3, info 2, nano 1")] == ["3", "2", "1"]


def test_a_single_line_is_not_read() -> None:
    assert read_log(["step 1, loss: 10.8, time: 644.64 ms"]).runs == ()


def test_steps_that_do_not_increase_are_not_read() -> None:
    assert read_log(["iter 9, loss 2.1, time 5 ms", "iter 8, loss 2.1, time 5 ms"]).runs == ()


def test_a_time_that_only_grows_may_be_cumulative() -> None:
    """Without timestamps, growing times are ambiguous; times that fall once are per step and assumed to be seconds."""
    grows = [f"step {n} loss 3.2 time {t}" for n, t in ((1, 2.5), (2, 5.1), (3, 7.6))]
    assert read_log(grows).runs == ()
    lines = [f"step {n} loss 3.2 time {t}" for n, t in ((1, 9.5), (2, 2.5), (3, 2.6))]
    assert times(*lines) == [9.5, 2.5, 2.6]
    assert precision(read(*lines)) == (
        "seconds are derived from the figure 'time' of each line, assumed to be seconds, resolution about 2%"
    )


def test_a_time_between_lines_of_several_steps_is_ambiguous() -> None:
    assert read_log([f"step {n} loss 3.2 time {t} s" for n, t in ((10, 9.5), (20, 2.5), (30, 2.6))]).runs == ()


def stamped(second: float, text: str) -> str:
    return f"2026-03-04 05:{int(second) // 60:02}:{second % 60:06.3f} {text}"


def test_time_stamps_distinguish_milliseconds_from_seconds() -> None:
    lines = [stamped(0.25 * n, f"step {n} loss 3.2 time {250 + n % 2}") for n in range(1, 9)]
    assert times(*lines)[1] == 0.25


def test_time_stamps_distinguish_the_time_of_a_step_from_that_of_a_line() -> None:
    """Both logs print a line for ten steps; the time is that of one step in the first, and of all ten in the second."""
    one = [stamped(5 * n, f"step {10 * n} loss 3.2 time {0.5 + n % 2 / 100}") for n in range(1, 6)]
    ten = [stamped(5 * n, f"step {10 * n} loss 3.2 time {5 + n % 2 / 10}") for n in range(1, 6)]
    assert times(*one) == [0.51, 0.5, 0.51, 0.5, 0.51]
    assert times(*ten) == [0.5, 0.51, 0.5, 0.51]


def test_time_stamps_distinguish_the_time_of_a_step_from_a_cumulative_one() -> None:
    lines = [stamped(5 * n, f"step {n} loss 3.2 time {5 * n + 100.5}") for n in range(1, 6)]
    assert times(*lines) == [5.0] * 4


def test_time_stamps_take_precedence_over_a_contradicting_figure() -> None:
    """The printed 49 to 45 "steps/sec" contradict stamps that are 5 s apart."""
    lines = [stamped(5 * n, f"Epoch 0, Step [{n}/9], loss 3.2, Speed: {50 - n} steps/sec") for n in range(1, 6)]
    assert times(*lines) == [5.0] * 4


@pytest.mark.parametrize("stamp", ["[03/18 11:39:{}] ", "11:39:{}.00 ", "2026/03/18 11:39:{} "])
def test_time_stamps_of_any_format_give_step_times(stamp: str) -> None:
    lines = [stamp.format(10 + 8 * n) + f"iter: {20 * n}  total_loss: 2.3  lr: 0.002" for n in range(1, 5)]
    assert times(*lines) == [0.4] * 3


def test_two_lines_with_only_time_stamps_are_too_few() -> None:
    assert read_log([stamped(5 * n, f"step {n} loss 3.2") for n in (1, 2)]).runs == ()


def test_a_printed_clock_may_start_at_any_time() -> None:
    lines = [f"step {n}/99 loss 3.2 elapsed time 0:01:{10 + 4 * n} eta 1:02:03" for n in range(1, 5)]
    assert times(*lines) == [4.0] * 3


def test_a_clock_is_read_in_its_unit() -> None:
    """The lines are 4,010 ms apart; without a unit, timestamps distinguish milliseconds from seconds."""
    lines = [f"step {n} loss 3.2 elapsed_ms {4010 * n}" for n in range(1, 5)]
    assert times(*lines) == [4.01] * 3
    lines = [f"step {n} loss 3.2 elapsed {4000 * n}" for n in range(1, 5)]
    assert times(*(stamped(4 * n, line) for n, line in enumerate(lines))) == [4.0] * 3
    assert precision(read(*lines)) == (
        "seconds are derived from the figure 'elapsed' of each line, assumed to be seconds, resolution about 0.03%"
    )


def test_a_running_mean_is_not_the_time_of_a_step() -> None:
    """A running mean that starts with a slow step is read only with timestamps."""
    lines = [f"step {n} loss 3.2 avg step time {1 + 3 / n:.3f} s" for n in range(1, 6)]
    assert read_log(lines).runs == ()
    assert times(*(stamped(n, line) for n, line in enumerate(lines))) == [1.0] * 4


def test_lines_of_an_evaluation_are_not_steps() -> None:
    lines = [
        line
        for n in range(1, 5)
        for line in (f"step {n} train_loss 3.2 time {0.3 - n / 50:.2f}s", f"step {n} val_loss 3.4 time 2.00s")
    ]
    assert times(*lines) == [0.28, 0.26, 0.24, 0.22]


def test_steps_are_numbered_across_epochs() -> None:
    lines = [f"Epoch [{epoch}][{n}/5]  lr: 0.1, time: {0.5 - n / 100:g}" for epoch in (1, 2) for n in (2, 4)]
    stamps = [stamped(second, line) for second, line in zip((0, 1, 2, 3), lines, strict=True)]
    assert [each.number for each in read(*stamps)] == [2, 4, 7, 9]


def test_ranks_report_a_step_once() -> None:
    lines = [f"[rank {rank}] step {n}, loss 3.2, time {500 + rank} ms" for n in (1, 2, 3) for rank in (0, 1)]
    (run,) = read_log(lines).runs
    assert [each.number for each in run.iterations] == [1, 2, 3]
    assert {each.seconds for each in run.iterations} == {0.501}


def test_a_framework_reader_takes_precedence() -> None:
    lines = [
        *(f"step {n}, loss: 10.8, time: 9 ms" for n in (1, 2, 3)),
        *(f" iteration {n}/ 9 | elapsed time per iteration (ms): 500.0 |" for n in (1, 2)),
    ]
    (run,) = read_log(lines).runs
    assert run.source == "megatron"


def test_a_nan_loss_is_a_failure() -> None:
    (run,) = read_log([f"step {n}, loss: nan, time: 9{n % 2} ms" for n in (1, 2, 3)]).runs
    assert run.failure
    assert run.failure.meaning == "the loss is not a number"


def test_a_figure_has_the_words_before_it_and_the_unit_after_it() -> None:
    found = figures("Epoch: [2]  [1480/1504]  lr: 5e-06, iter_time: 1.599s, speed 2 it/s, 1:02:03")
    assert found == [
        Figure(name="epoch", text="2", start=8),
        Figure(name="/", text="1480", start=13, total=1504),
        Figure(name="lr", text="5e-06", start=29),
        Figure(name="iter_time", text="1.599", start=47, unit="s"),
        Figure(name="speed", text="2", start=61, unit="it/s"),
        Figure(name="", text="1:02:03", start=69, seconds=3723.0),
    ]


def test_a_running_job_is_read_line_by_line() -> None:
    """Records start with the second line and include the first."""
    lines = [f"step {n}, loss: 10.8, time: {500 + n} ms" for n in range(1, 6)]
    live = LiveFigures()
    seen = [[record.iteration.number for record in live.read(0, line)] for line in ("loading", *lines)]
    assert seen == [[], [], [1, 2], [3], [4], [5]]


def test_elapsed_is_a_step_time_if_it_falls_between_two_steps() -> None:
    own = [f"iteration {n}/5 | elapsed (ms): {ms} | lm loss: 5.5" for n, ms in enumerate((63420, 95.6, 34.8, 35.1), 1)]
    since_start = [f"iteration {n}/5 | elapsed (ms): {ms} | lm loss: 5.5" for n, ms in enumerate((500, 800, 1000), 1)]
    assert times(*own) == [63.42, 0.0956, 0.0348, 0.0351]
    assert times(*since_start) == [0.3, 0.2]


@given(st.lists(st.floats(0.01, 50.0), min_size=4, max_size=12), st.integers(1, 50), st.booleans())
def test_the_time_of_a_named_step_is_read_as_printed(seconds: list[float], every: int, in_ms: bool) -> None:
    scale, unit = (1000, "ms") if in_ms else (1, "s")
    lines = [f"iter {every * n} loss 2.5 step_time {t * scale:.6f} {unit}" for n, t in enumerate(seconds, start=1)]
    assert times(*lines) == pytest.approx(seconds, abs=1e-5)


def test_lines_without_figures_have_no_interpretation() -> None:
    assert Interpretation.of(["loading", "step", "iter / batch"]) is None


@pytest.mark.parametrize(
    "line",
    [
        "[rank0] allreduce bandwidth, iteration {}: time 12.1 ms, 180 GB/s",
        "autotune iteration {}: 3.21 ms",
        "benchmark step {} 12.1 ms",
        "gemm iter={} dt=0.02s",
        "kmeans iteration {}, loss 3.1, time 2.5s",
        "tokenizing: step 1,00{} iter time 0.01s",
    ],
)
def test_iterations_before_the_training_are_ignored(line: str) -> None:
    lines = [line.format(number) for number in range(1, 6)]
    assert Interpretation.of(lines) is None
    live = LiveFigures()
    assert [list(live.read(1, text)) for text in lines] == [[]] * 5


def test_the_count_restarts_when_a_framework_reader_takes_over() -> None:
    progress = LogProgress()
    figures = LiveFigures()
    for line in [f"step {n} loss 2.0 step time 0.1s" for n in (1, 2, 3)]:
        progress = after_line(progress, line, 1.0, None, figures)
    assert (progress.source, progress.iterations) == ("named figures", 3)
    megatron = " iteration 1/ 2000 | elapsed time per iteration (ms): 1000.1 | global batch size: 16 |"
    assert after_line(progress, megatron, 2.0, None, figures).iterations == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["", "time -1", "time 2.5", "elapsed 7", "0.5 it/s", "x"])),
        max_size=12,
    ),
    st.booleans(),
)
def test_reading_never_raises(steps: list[tuple[int, str]], stamped: bool) -> None:
    lines = [f"2026-01-01 10:00:{9 - n:02d} " * stamped + f"step {n} loss 2.0 {more}" for n, more in steps]
    read_log(lines)
    live = LiveFigures()
    for line in lines:
        list(live.read(1, line))


def test_a_long_log_is_read_to_its_end() -> None:
    """The steps may start at the beginning of the log or late."""
    steps = [f"step {n}, loss: 9.5, time: 10{n % 7}.84 ms{' ' * 200}" for n in range(1, 6_001)]
    end = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    (run,) = read_log([*steps, end]).runs
    assert len(run.iterations) == 6_000
    assert run.failure is not None
    assert run.failure.meaning == "a GPU ran out of memory"
    (late,) = read_log([*["x" * 100] * 11_000, *steps[:50]]).runs
    assert len(late.iterations) == 50


def test_ranks_may_print_different_losses() -> None:
    lines = [
        f"[rank{r}] step {n} | loss {5 - n / 10 - r / 100} | dt 50{n}.{r}ms" for n in range(1, 6) for r in range(4)
    ]
    (run,) = read_log(lines).runs
    assert len(run.iterations) == 5


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_may_start_at_zero_or_one(first: int) -> None:
    lines = [f"Epoch [{first + e}] [{n}/5] loss 2.0 step_time 0.5" for e in range(3) for n in range(1, 6)]
    (run,) = read_log(lines).runs
    assert [iteration.number for iteration in run.iterations] == list(range(1, 16))


@pytest.mark.parametrize(
    "line", ["it {} | loss 4.5 | {}.5 ms", "Update {} | loss 4.5 | {}.5 ms", "BATCH {} | loss 4 | {}.5 ms"]
)
def test_steps_have_several_names(line: str) -> None:
    assert len(read(*[line.format(n, 500 + n) for n in (1, 2, 3)])) == 3


def test_a_loss_scale_or_validation_loss_is_not_the_loss() -> None:
    (run,) = read_log([f"step {n} loss_scale 65536 val_loss 3.1 train_loss 2.1 step time 1.0s" for n in (1, 2)]).runs
    assert [iteration.loss for iteration in run.iterations] == [2.1, 2.1]


def test_time_stamps_without_a_year_continue_across_months() -> None:
    lines = [f"04-30 23:59:{n} step {n} loss 2.0" for n in (40, 50)] + [
        f"05-01 00:00:{n}0 step {60 + 10 * n} loss 2.0" for n in range(3)
    ]
    assert [each.seconds for each in read(*lines)] == [1.0] * 4


def test_time_stamps_without_a_date_continue_across_midnight() -> None:
    clocks = ["23:59:30", "23:59:40", "23:59:50", "00:00:00", "00:00:10"]
    lines = [f"[{clock}] step {10 * number} loss 2.0" for number, clock in enumerate(clocks, start=1)]
    assert [each.seconds for each in read(*lines)] == [1.0] * 4


@pytest.mark.parametrize("left", ["{}s", "1:0{}", "{}.5 sec"])
@pytest.mark.parametrize(
    ("rate", "seconds"), [("400ms/step", 0.4), ("3s/step", 3.0), ("2.50 it/s", 0.4), ("0.4 s/batch", 0.4)]
)
def test_a_time_before_that_of_a_step_is_the_remaining_time(left: str, rate: str, seconds: float) -> None:
    """Keras prints the time until the end of the epoch and the mean time of its steps."""
    bars = (
        f"\r\x1b[1m{n}/14\x1b[0m ━━━━ \x1b[1m{left.format(6 - n)}\x1b[0m {rate} - loss: 2.3{n}" for n in range(2, 6)
    )
    assert times("Epoch 1/3", "".join(bars)) == [seconds] * 4


def test_a_time_without_a_name_is_that_of_a_step_unless_one_follows() -> None:
    assert times(*(f"step {n} loss 3.2 1.2s, mean 1.5 s/it" for n in (1, 2, 3))) == [1.2] * 3


@pytest.mark.parametrize("ended", ["finished", "completed"])
def test_the_time_in_which_a_step_ended_is_read(ended: str) -> None:
    seconds = (1.209, 0.506, 0.306, 0.307)
    lines = [f"iteration {step} {ended} in {took:.3f} s (loss 4.853)" for step, took in enumerate(seconds, 1)]
    (run,) = read_log(lines).runs
    assert tuple(iteration.seconds for iteration in run.iterations) == seconds


def test_a_time_that_is_left_is_no_step() -> None:
    assert not read_log([f"step {step} | loss 2.3 | done in {3.2 - step / 100:.2f} h" for step in range(1, 9)]).runs
