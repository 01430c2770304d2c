"""For an unread log, `measure --explain` suggests a pattern that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.logs import StepPattern, read_log
from tuner.logs.explanation import explained, lone_step
from tuner.logs.figures import Figure, figures

UNREAD = {
    "[rank0] step 5 | loss 3.21 | took 512.5 ms": (5, 0.5125),
    "Step: 5/100, time=0.25s, loss=3.2": (5, 0.25),
    "iteration 5 loss 3.1 step_time: 0.75": (5, 0.75),
    "it 5: 1.5 sec/step, lr 3e-4": (5, 1.5),
    "finished step: 5, seconds: 1.402, TFLOP/s/device: 240.929": (5, 1.402),
    "epoch 1 step 5 loss=3.2 grad=1.2 took 0.52s": (5, 0.52),
    "loss=3.2 took 250 ms": (1, 0.25),
    "step 5: took 0.5 s then 99 ms": (5, 0.5),
    "step 5 forward 0.30s backward 0.60s total 1.01s": (5, 1.01),
    "step 5 loss 3.2 step time 250 (ms)": (5, 0.25),
    "step 5 remaining 100.0s loss 3.2 sec/step 1.5": (5, 1.5),
}


@pytest.mark.parametrize("line", UNREAD)
def test_the_suggested_pattern_reads_the_line_it_was_derived_from(line: str) -> None:
    lines = ["loading data", "model has 1.3 B parameters", line, "saving in 3 steps"]
    found = explained(lines)
    assert found.readers == ()
    assert (3, line) in found.likely
    (run,) = read_log(lines, StepPattern.parse(found.pattern)).runs
    assert [(entry.number, entry.seconds) for entry in run.iterations] == [UNREAD[line]]


def test_a_rate_after_its_name_is_suggested_and_is_not_read_as_a_step() -> None:
    found = explained(["step 1 loss 3.2 tok/s 341"])
    assert found.pattern == r"step\s*(?P<iteration>[0-9]+)\b.*?loss\s*[0-9.]+\s*tok/s\s*(?P<tokens_per_sec>[0-9.]+)"
    assert explained(["step 1 loss 3.2 data_wait 0.5s"]).pattern == ""


@pytest.mark.parametrize("time", ["250 cs", "(us): 250", "4.0 s per 10 steps", "per 10 steps 4.0 s", "0.1 days"])
def test_no_pattern_is_suggested_for_a_time_in_another_unit_or_of_several_steps(time: str) -> None:
    assert explained([f"step 1 loss: 3.2 step time {time}"]).pattern == ""


@pytest.mark.parametrize(
    "line",
    [
        "step {n}: loss 2.31 | 5 steps in 2.00s",
        "step {n}: loss 2.31, 5 iterations took 2.00 s",
        "[{n}] loss 2.31, 20 batches: 2.00s",
    ],
)
def test_no_pattern_is_suggested_for_the_time_after_a_number_of_steps(line: str) -> None:
    assert explained([line.format(n=5)]).pattern == ""
    assert explained([line.format(n=n) for n in (5, 10, 15)]).pattern == ""


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("| step {n} | loss 2.31 | elapsed_time 2.00s |", None),
        ("Iter {n}: loss 2.31, time 3.50s", None),
        ("iter {n} took 400 ms", None),
        ("[packed] update {n} | 0.40 s/update", 0.4),
        ("iteration {n} loss 3.1 step_time: 0.75", 0.75),
    ],
)
@pytest.mark.parametrize("apart", [1, 5])
def test_between_lines_of_several_iterations_only_a_time_per_step_is_suggested(
    line: str, seconds: float | None, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five iterations of 0.4 s may be printed as 2.00 s."""
    monkeypatch.setattr("tuner.logs.explanation.Interpretation.of", lambda _: None)
    lines = [line.format(n=apart * n) for n in (6, 7, 8)]
    pattern = explained(lines).pattern
    assert bool(pattern) == (apart == 1 or seconds is not None)
    if seconds is not None:
        (run,) = read_log(lines, StepPattern.parse(pattern)).runs
        assert [(one.number, one.seconds) for one in run.iterations] == [(apart * n, seconds) for n in (6, 7, 8)]


def test_tokens_per_second_are_suggested_whatever_the_interval() -> None:
    assert "tokens_per_sec" in explained([f"step {n} loss 3.2 tok/s 341" for n in (5, 10)]).pattern


NO_TIME = (
    "none of these lines has a figure that is clearly the seconds or milliseconds of one whole iteration, or its "
    "tokens per second"
)
OF_ALL = "the lines are several iterations apart, and their time may be that of all of them"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{{"step": {n}, "loss": 2.31, "dur_ms": 400.0}}', NO_TIME),
        ("step {n} | loss 2.31 | 1.28K tok/s", NO_TIME),
        ("step {n} loss=2.31 samples/s=20.00", NO_TIME),
        ("step {n}: loss 2.31 | 5 steps in 2.00s", NO_TIME),
        ("Iter {n}: loss 2.31, time 3.50s", OF_ALL),
    ],
)
def test_the_reason_for_no_pattern_is_printed(line: str, why: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(line.format(n=n) + "\n" for n in (5, 10, 15)))
    out = run("measure", str(log), "--explain").out
    assert "likely line 1: " in out
    remedy = "print the seconds of each iteration, or call step() of tuner.step in the trainer"
    assert out.endswith(f"\nno --step-pattern is suggested: {why}\n{remedy}\n")


LONE = {
    "step 1 loss: 4.9 step_time: 0.3": 1,
    "2026-03-04 05:00:01 step 7/9, loss: 4.9, 250 ms/step": 7,
    "step 0 loss 3.2 took 0.5 s": 0,
    "step 1 loss: 4.9": None,
    "step 1 loss: 4.9 step time 400 ticks": None,
    "loss: 4.9 step_time: 0.3": None,
    "eval step 1 loss: 4.9 step_time: 0.3": None,
    "step 1,000 loss: 4.9 step_time: 0.3": 1000,
}


@pytest.mark.parametrize("line", LONE)
def test_the_line_of_a_single_step_is_found(line: str) -> None:
    """Several ranks may print it; the lines of a second step are read, or are ambiguous."""
    assert lone_step(["loading 3 shards", line, "saving"]) == LONE[line]
    assert lone_step([line, line]) == LONE[line]
    assert lone_step([line, "step 8 loss: 4.9 step_time: 0.3"]) == (None if LONE[line] is not None else 8)


def test_lines_of_a_shape_that_has_failed_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight are tried, because the time of a first step may be 0; of lines with other shapes, a thousand."""
    parsed: list[str] = []

    def parse(text: str) -> list[Figure]:
        parsed.append(text)
        return figures(text)

    monkeypatch.setattr("tuner.logs.explanation.figures", parse)
    lone = "step 20 loss: 4.9 step_time: 0.3"
    assert lone_step([*(f"step {n} val_loss: 4.{n} step_time: 0.{n}" for n in range(5000)), lone, lone]) == 20
    assert len(parsed) < 20
    assert lone_step(["step 0 loss: 4.9 step_time: 0.0", lone]) == 20
    parsed.clear()
    words = (f"{n:b}".translate({48: "a", 49: "b"}) for n in range(5000))
    assert lone_step([f"step 1 val_loss: 4.9 step_time: 0.3 of {word}" for word in words]) is None
    assert len(parsed) < 2000


def test_repeated_lines_that_differ_only_in_numbers_are_likelier() -> None:
    lines = ["loading shard 1 of 3 took 2.51 s", *(f"[packed] update {n} | {n}.5 ms/update" for n in (1, 2, 3, 4))]
    found = explained(lines)
    assert [number for number, _ in found.likely] == [2, 3, 4]
    (run,) = read_log(lines, StepPattern.parse(found.pattern)).runs
    assert [entry.number for entry in run.iterations] == [1, 2, 3, 4]
    assert [entry.seconds for entry in run.iterations] == pytest.approx([(n + 0.5) / 1e3 for n in (1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("lines", "likely"),
    [
        (["took 2 s", "dt 3 s", "elapsed 4 s", "loss is 1.5", "loss is 2.5"], [1, 2, 3]),
        (["step 1 a", "step 2 b", "step 3 c", "loss is 1.5", "loss is 2.5"], [1, 4, 5]),
        (["step 1 loss", "step 2 with loss", "step 3 and loss", "took 2 s", "loss"], [1, 2, 3]),
        (["loss a", "loss b", "loss c", "step 3"], [1, 2, 4]),
        (["step 1 loss", "iter 2 loss", "it 3 loss", "took 2 s, loss"], [1, 2, 4]),
    ],
)
def test_likely_lines_are_weighted_by_time_step_loss_and_repetition(lines: list[str], likely: list[int]) -> None:
    """A time weighs 3, a step 2, a loss 1, and repetition 2 more; of equal weights the first three lines are shown."""
    assert [number for number, _ in explained(lines).likely] == likely


def test_the_command_prints_readers_or_a_pattern(run: Run, tmp_path: Path) -> None:
    assert "nemo: 3 lines\n  line 1: Training epoch 0" in run("measure", "tests/data/logs/nemo.log", "--explain").out
    log = tmp_path / "job.log"
    log.write_text("it 5 took 512.5 ms\n")
    out = run("measure", str(log), "--explain").out
    assert "likely line 1: it 5 took 512.5 ms\ntry: --step-pattern 'it" in out
    log.write_text("hello\n")
    assert "no line looks like an iteration; print" in run("measure", str(log), "--explain").out


def test_for_a_known_log_the_reader_and_its_first_lines_are_named() -> None:
    found = explained((ROOT / "tests/data/logs/nemo.log").read_text().splitlines())
    (reader,) = found.readers
    assert (reader.source, reader.lines, [number for number, _ in reader.examples]) == ("nemo", 3, [1, 2, 3])
    assert (found.likely, found.pattern) == ((), "")


def test_lines_read_by_figure_names_are_shown() -> None:
    found = explained(["starting", *(f"update {n} | loss 2.0 | {n}.5 ms/update" for n in (1, 2, 3, 4))])
    (reader,) = found.readers
    assert (reader.source, reader.lines, reader.examples[0][0]) == ("named figures", 4, 2)
    assert (found.likely, found.pattern) == ((), "")
