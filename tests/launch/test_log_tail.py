"""The progress read from a growing log, and the outcome of a job by its files, compared with exact values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.core.atomic_write import write_object
from tuner.core.outcomes import Outcome
from tuner.launch.log_tail import LogProgress, LogTail, after_line, lines_of, size_of
from tuner.launch.outcome import CANCELLED, outcome_of
from tuner.launch.slurm.commands import PollInterval
from tuner.logs import StepPattern, read_log
from tuner.sizing.fit import BatchResult, fitted, pressures, ratio_at
from tuner.sizing.max_batch import throughput_of

LINE = " iteration {0}/ 9 | elapsed time per iteration (ms): 200.0 |"
TICK = "microbatch {0}/8 of iteration {1} | elapsed (s): 1.5"
BEFORE = LogProgress(
    iterations=2, lines=2, number=2, interval=1, source="megatron", finished=30.0, share=0.5, moved=40.0
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (LINE.format(3), replace(BEFORE, iterations=3, lines=3, number=3, finished=50.0, share=None)),
        (LINE.format(2), BEFORE),
        (TICK.format(2, 3), replace(BEFORE, share=0.25)),
        (TICK.format(9, 3), replace(BEFORE, share=1.0)),
        (TICK.format(2, 2), BEFORE),
        (TICK.format(2, 4), BEFORE),
        ("some other line", BEFORE),
    ],
)
def test_a_line_advances_the_progress_of_its_own_iteration(line: str, expected: LogProgress) -> None:
    assert after_line(BEFORE, line, 50.0) == expected


def test_only_complete_lines_count(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    tail = LogTail(log)
    tail.read(1.0)
    assert tail.progress == LogProgress()
    text = LINE.format(1) + "\n" + LINE.format(2)
    log.write_text(text[:-5])
    tail.read(2.0)
    first = LogProgress(iterations=1, lines=1, number=1, interval=1, source="megatron", finished=2.0, moved=2.0)
    assert tail.progress == first
    log.write_text(text + "\n")
    tail.read(3.0)
    assert tail.progress == replace(first, iterations=2, lines=2, number=2, finished=3.0, moved=3.0)
    tail.read(4.0)
    assert tail.progress.moved == 3.0
    assert (size_of(log), size_of(tmp_path / "none")) == (len(text) + 1, 0)


def test_a_poll_reads_a_part_of_a_long_log_and_the_end_of_the_job_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll reads a bounded part of a log; the end of the job reads all of it, so that the job is measured."""
    monkeypatch.setattr("tuner.launch.log_tail._CHUNK", 1000)
    log, tail = tmp_path / "stdout.log", LogTail(tmp_path / "stdout.log")
    log.write_text(f"{'x' * 99}\n" * 1000 + LINE.format(1) + "\n" + LINE.format(2) + "\n")
    tail.read(1.0)
    assert (tail.progress.iterations, tail.progress.moved) == (0, 1.0)
    tail.read(2.0, whole=True)
    assert tail.progress.iterations == 2


def test_a_poll_stops_reading_after_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll stops reading after `MAX_LOOK_SECONDS`, so that a fast writer does not delay other jobs."""
    clock = iter(range(1000))
    monkeypatch.setattr("tuner.launch.log_tail._CHUNK", len(LINE.format(1)) + 1)
    monkeypatch.setattr("tuner.launch.log_tail.MAX_LOOK_SECONDS", 2)
    monkeypatch.setattr("tuner.launch.log_tail.time.monotonic", lambda: next(clock))
    log, tail = tmp_path / "stdout.log", LogTail(tmp_path / "stdout.log")
    log.write_text("".join(LINE.format(number) + "\n" for number in range(1, 10)))
    tail.read(1.0)
    assert tail.progress.iterations == 3  # the clock is at 1, 2 and 3 after them
    tail.read(2.0)
    assert tail.progress.iterations == 6


def test_at_the_end_of_a_job_the_beginning_and_the_end_of_a_far_longer_log_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Incomplete lines are left out, and what a poll has read already is not read again."""
    lines = [LINE.format(number) + "\n" for number in range(1, 1001)]
    monkeypatch.setattr("tuner.launch.log_tail._CHUNK", 100)
    monkeypatch.setattr("tuner.launch.log_tail.HEAD_BYTES", sum(map(len, lines[:5])) + 5)
    monkeypatch.setattr("tuner.launch.log_tail.TAIL_BYTES", sum(map(len, lines[-10:])) + 5)
    log, tail = tmp_path / "stdout.log", LogTail(tmp_path / "stdout.log")
    log.write_text("".join(lines))
    tail.read(1.0, whole=True)
    assert (tail.progress.lines, tail.progress.number) == (15, 1000)
    assert lines_of(log) == [line.rstrip("\n") for line in (*lines[:5], "", *lines[-10:])]
    monkeypatch.setattr("tuner.launch.log_tail.MAX_CHUNKS", 20)
    polled = LogTail(log)
    polled.read(1.0)
    assert 5 < (before := polled.progress.lines) < 100
    polled.read(2.0, whole=True)
    assert (polled.progress.lines, polled.progress.number) == (before + 10, 1000)


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\rb\r", "a\n\nb", "x" * 40, "0123456\n" * 5, "0123456\r" * 5])
def test_a_log_of_any_form_is_cut_at_the_ends_of_its_lines(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.launch.log_tail.HEAD_BYTES", 10)
    monkeypatch.setattr("tuner.launch.log_tail.TAIL_BYTES", 20)
    (tmp_path / "log").write_text(text, newline="")
    cut = ["x" * 10] if "x" in text else ["0123456", "", "0123456", "0123456"]
    assert lines_of(tmp_path / "log") == (text.splitlines() if len(text) <= 30 else cut)
    assert lines_of(tmp_path / "none") == []


def test_a_failure_before_a_long_dump_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of a log is read too, and a message names the limit."""
    monkeypatch.setattr("tuner.launch.log_tail.HEAD_BYTES", 1 << 20)
    monkeypatch.setattr("tuner.launch.log_tail.TAIL_BYTES", 2 << 20)
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    dump = ("0x7f " * 15 + "\n") * 50_000
    (tmp_path / "stderr.log").write_text(oom + dump)
    found = outcome_of(tmp_path, {"exit": 1}, (2,), on_host=False, by_log=True)
    assert (found.outcome, found.evidence) == (Outcome.OOM, oom.strip())
    (tmp_path / "stderr.log").write_text(dump)
    limit = "only the first 1 MiB and the last 2 MiB of stderr.log are read"
    assert outcome_of(tmp_path, {"exit": 1}, (2,), on_host=False, by_log=True).evidence.endswith(f"; {limit}")
    found = outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True)
    assert (found.outcome, found.evidence.endswith(f"; {limit}")) == (Outcome.UNREADABLE, True)


def test_two_lines_far_apart_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launch.log_tail.HEAD_BYTES", 1 << 10)
    monkeypatch.setattr("tuner.launch.log_tail.TAIL_BYTES", 1 << 11)
    lines = [f"step {number} loss: 4.{number} step_time: 0.{number}\n" for number in (3, 4)]
    (tmp_path / "stdout.log").write_text(("saving the state of the optimizer\n" * 1000).join(lines))
    found = outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True)
    assert (found.outcome, found.seconds) == (Outcome.MEASURED, 0.4)


def test_a_line_beyond_64_kb_is_truncated_and_the_next_one_is_read(tmp_path: Path) -> None:
    log, tail = tmp_path / "stdout.log", LogTail(tmp_path / "stdout.log")
    long = LINE.format(1) + "x" * (1 << 17) + LINE.format(2)
    log.write_text(f"{long}\n{LINE.format(3)}\n")
    tail.read(1.0)
    assert (tail.progress.iterations, tail.progress.number) == (2, 3)
    (run,) = read_log(log.read_text().splitlines()).runs
    assert [iteration.number for iteration in run.iterations] == [1, 3]


def test_a_log_that_a_restarted_program_has_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Otherwise the job seems to hang, until the log is as long as before."""
    tail = LogTail(tmp_path / "trainer.log")
    for now, numbers in enumerate((range(1, 5), range(1, 2), range(1, 7))):
        tail.path.write_text("".join(LINE.format(number) + "\n" for number in numbers))
        tail.read(float(now))
        assert (tail.progress.number, tail.progress.moved) == (max(numbers), float(now))
    assert tail.progress.iterations == 6


def test_the_rest_of_an_overlong_line_is_skipped(tmp_path: Path) -> None:
    """The rest of an overlong line is skipped, even if it is written later."""
    log, tail = tmp_path / "stdout.log", LogTail(tmp_path / "stdout.log")
    log.write_text(LINE.format(1) + "x" * (1 << 17))
    tail.read(1.0)
    assert (tail.progress.iterations, tail.progress.number) == (1, 1)
    with log.open("a") as file:
        file.write(f"{LINE.format(2)}\n{LINE.format(3)}\n")
    tail.read(2.0)
    assert (tail.progress.iterations, tail.progress.number) == (2, 3)


def result(folder: Path, **changes: object) -> None:
    iterations = [{"number": n, "seconds": s, "loss": 1.0} for n, s in ((1, 9.0), (2, 1.0), (3, 3.0))]
    write_object(folder / "result.json", {"iterations": iterations, **changes})


def test_a_complete_result_is_measured_by_the_median_of_its_iterations(tmp_path: Path) -> None:
    result(tmp_path, peak_memory=[{"reserved": 5.0}, {"reserved": 7.0}])
    found = outcome_of(tmp_path, {"exit": 1, "began": 100.0, "ended": 130.0}, (2, 3), on_host=False)
    assert (found.outcome, found.elapsed) == (Outcome.MEASURED, 30.0)
    assert found.measurement is not None
    assert (found.measurement.seconds, found.measurement.peak_memory) == (2.0, 7.0)
    assert found.measurement.iterations == (2, 3)


def test_a_job_with_several_batches_is_measured_only_by_its_result(tmp_path: Path) -> None:
    """A job of several batches is measured by iteration 2 of each batch in its result file, never by its log."""
    seconds = (9.0, 1.0, 8.0, 4.0)
    iterations = [{"number": n, "seconds": s, "loss": 1.0} for n, s in enumerate(seconds, start=1)]
    result(tmp_path, iterations=iterations)
    found = outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, batches=2).measurement
    assert found is not None
    assert (found.seconds, found.batch_seconds, found.iterations) == (4.0, (1.0, 4.0), (2,))
    (tmp_path / "result.json").unlink()
    (tmp_path / "stdout.log").write_text("".join(LINE.format(number) + "\n" for number in (1, 2, 3)))
    assert outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False).outcome is Outcome.MEASURED
    assert outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, batches=2).outcome is Outcome.CRASHED


@pytest.mark.parametrize(("seconds", "loss"), [(0.0, 1.0), (float("inf"), 1.0), (2.0, float("nan"))])
def test_a_result_must_be_finite_and_positive(tmp_path: Path, seconds: float, loss: float) -> None:
    result(tmp_path, iterations=[{"number": 2, "seconds": seconds, "loss": loss}])
    assert outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False).outcome is Outcome.CRASHED


@pytest.mark.parametrize(
    ("ended", "on_host", "outcome", "meaning", "evidence"),
    [
        ({"why": "cancelled"}, False, Outcome.CANCELLED, "cancelled", CANCELLED),
        ({"why": "abandoned"}, False, Outcome.CANCELLED, "abandoned", "tuner exited, so its job was ended"),
        ({"why": "not started", "said": "no file"}, False, Outcome.CRASHED, "it could not start", "no file"),
        ({"why": "killed"}, False, Outcome.CRASHED, "killed from outside", "its supervisor was killed"),
        ({"exit": -9}, False, Outcome.CRASHED, "killed from outside", "ended by SIGKILL"),
        ({"exit": -11}, False, Outcome.CRASHED, "a segmentation fault", "ended by SIGSEGV"),
        ({"exit": 137}, False, Outcome.CRASHED, "killed from outside", "exit code 137, a shell's for SIGKILL"),
        ({"exit": 124}, False, Outcome.TIMED_OUT, "its time limit expired", "exit code 124, as from timeout(1)"),
        ({"exit": 3}, False, Outcome.CRASHED, "exit code 3", "exit code 3"),
        ({"exit": 0}, False, Outcome.CRASHED, "ended without a result", "ended without a result"),
        ({"exit": 1, "disk_left": 65535}, False, Outcome.CRASHED, "the disk is full", None),
        ({"exit": 1, "disk_left": 65536}, False, Outcome.CRASHED, "exit code 1", None),
        ({"exit": 1, "oom_kills": 1}, False, Outcome.CRASHED, "the host ran out of memory", None),
        ({"exit": 1, "oom_kills": 1}, True, Outcome.OOM, "the host ran out of memory", None),
    ],
)
def test_a_job_without_logs_ends_as_its_supervisor_reports(
    ended: dict[str, object], on_host: bool, outcome: Outcome, meaning: str, evidence: str | None, tmp_path: Path
) -> None:
    found = outcome_of(tmp_path, ended, (2,), on_host=on_host)
    assert found.failure is not None
    assert (found.outcome, found.failure.meaning) == (outcome, meaning)
    assert evidence is None or found.failure.evidence == evidence


@pytest.mark.parametrize(("began", "ended", "elapsed"), [(100.0, 130.0, 30.0), (130.0, 100.0, 0.0), (None, 130.0, 0.0)])
def test_elapsed_seconds_are_never_negative(tmp_path: Path, began: float | None, ended: float, elapsed: float) -> None:
    assert outcome_of(tmp_path, {"began": began, "ended": ended}, (2,), on_host=False).elapsed == elapsed


@pytest.mark.parametrize(("measured", "count"), [((2,), "2 iterations"), ((2, 3), "3 iterations")])
def test_a_log_with_one_good_line_has_too_few_iterations(measured: tuple[int, ...], count: str, tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("step 1 loss: 4.9 step_time: 0.3\n")
    found = outcome_of(tmp_path, {"exit": 0}, measured, on_host=False, by_log=True)
    assert found.outcome is Outcome.UNREADABLE
    assert found.evidence == (
        f"only the line of iteration 1 has a time, but at least {count} are needed; train for longer, "
        "or log every iteration"
    )


@pytest.mark.parametrize(("seconds", "measured"), [(34.9, True), (35.1, False)])
def test_iterations_that_took_longer_than_the_job_are_misread(seconds: float, measured: bool, tmp_path: Path) -> None:
    """Five seconds are allowed for clocks that differ."""
    (tmp_path / "stdout.log").write_text("".join(f"step {n} loss 4.{n} step time {seconds}\n" for n in (1, 2, 3)))
    ended = {"exit": 0, "began": 100.0, "ended": 130.0}
    found = outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True)
    assert found.outcome is (Outcome.MEASURED if measured else Outcome.UNREADABLE)
    assert measured or "took 35.1 s, but the whole job only 30 s: a unit" in found.evidence
    if not measured:
        assert outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True).outcome is Outcome.MEASURED
        (tmp_path / "stdout.log.before-1").touch()  # Slurm restarted it, and a log may have earlier iterations
        assert outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True).outcome is Outcome.MEASURED


FIVE_STEPS = r"step (?P<iteration>\d+): 5 steps in (?P<seconds>[\d.]+)s"


@pytest.mark.parametrize(("seconds", "measured"), [(6.9, True), (7.1, False)])
def test_a_line_of_five_iterations_counts_five_times(seconds: float, measured: bool, tmp_path: Path) -> None:
    """A pattern that reads the time of five iterations as that of one gives more than the job's 30 s, and 5 s more."""
    (tmp_path / "stdout.log").write_text("".join(f"step {n}: 5 steps in {seconds}s\n" for n in (5, 10, 15)))
    ended, pattern = {"exit": 0, "began": 100.0, "ended": 130.0}, StepPattern.parse(FIVE_STEPS)
    found = outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True, pattern=pattern)
    assert found.seconds == (seconds if measured else None)
    assert measured or "took 35.5 s, but the whole job only 30 s: a unit" in found.evidence


def test_a_line_with_the_time_of_its_last_iteration_counts_once(tmp_path: Path) -> None:
    """nanoGPT prints the time of the last iteration, before which it may have evaluated."""
    lines = "".join(f"iter {n}: loss 4.2, time 7100.00ms, mfu 1.00%\n" for n in (0, 5, 10))
    (tmp_path / "stdout.log").write_text(lines)
    ended = {"exit": 0, "began": 100.0, "ended": 130.0}
    assert outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True).seconds == pytest.approx(7.1)


def test_several_measured_iterations_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("".join(f"step {n} loss 4.{n} step time 10.0\n" for n in (1, 2, 3, 4)))
    ended = {"exit": 0, "began": 100.0, "ended": 120.0}
    assert outcome_of(tmp_path, ended, (2, 3), on_host=False, by_log=True).outcome is Outcome.MEASURED
    found = outcome_of(tmp_path, ended, (2, 3, 4), on_host=False, by_log=True)
    assert (found.outcome, "took 30 s" in found.evidence) == (Outcome.UNREADABLE, True)


def test_the_poll_interval_grows_by_half_and_is_bounded() -> None:
    interval = PollInterval()
    for due in (1.5, 1.5 + 2.25, 1.5 + 2.25 + 3.375):
        interval.polled(interval.due, changed=False)
        assert interval.due == due
    interval.interval = 50.0
    interval.polled(100.0, changed=False)
    assert interval.due == 160.0
    interval.reset(100.0)
    assert (interval.due, interval.interval) == (101.0, 1.0)


# -- batches


def ran(batch: int, memory: float | None = None, seconds: float | None = None) -> BatchResult:
    return BatchResult(micro_batch=batch, outcome="MEASURED", peak_memory=memory, seconds=seconds)


def test_the_line_through_batches_has_a_standard_error() -> None:
    line = fitted([ran(1, 12.0), ran(2, 13.0), ran(3, 17.0)])
    assert line is not None
    assert (line.per_sample, line.at_zero, line.points) == (2.5, 9.0, 3)
    assert line.stderr == pytest.approx((1.5 / 1 / 2) ** 0.5)
    assert line.at(4) == 19.0


@pytest.mark.parametrize(("seconds", "slow"), [(3.44, False), (3.46, True)])
def test_a_batch_is_slow_if_15_percent_above_the_line_through_the_two_before(seconds: float, slow: bool) -> None:
    found = pressures([ran(1, 10.0, 1.0), ran(2, 20.0, 2.0), ran(3, 30.0, seconds)], 40.0)
    assert bool(found) == slow
    if slow:
        assert found[0].slower == pytest.approx(seconds / 3.0 - 1)
        assert (found[0].micro_batch, found[0].share, found[0].near_limit) == (3, 0.75, True)


def test_a_claimed_ratio_is_found_within_half_a_digit() -> None:
    batches = [ran(2, 9.0), ran(4, 16.0)]
    assert ratio_at(4.5, batches, 0.1) == batches[0]
    assert ratio_at(4.45, batches, 0.1) == batches[0]
    assert ratio_at(4.4, batches, 0.1) is None


def test_the_throughput_of_a_batch() -> None:
    found = throughput_of(ran(3, seconds=2.0), dp=4, seq=100, global_batch=32, tokens=86400.0 * 1200)
    assert (found.step_batch, found.acc_steps, found.exact) == (12, 3, False)
    assert (found.tokens_per_second, found.days) == (600.0, 2.0)


@pytest.mark.parametrize(("megatron", "iterations"), [(True, 0), (False, 1)])
def test_deepspeed_throughput_lines_do_not_count_in_a_megatron_log(megatron: bool, iterations: int) -> None:
    line = "[2026-10-01 10:01:00,000] [INFO] [timer.py:157:stop] 0/10, SamplesPerSec=61.22"
    assert after_line(LogProgress(megatron=megatron), line, 50.0).iterations == iterations


def test_a_log_is_read_from_its_first_character(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(TICK.format(2, 1) + "\n")
    tail = LogTail(tmp_path / "log")
    tail.read(7.0)
    assert (tail.progress.share, tail.progress.moved) == (0.25, 7.0)
