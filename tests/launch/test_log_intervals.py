"""Real jobs of trainers that log every n-th iteration, resume at 5,001 or skip optimizer steps."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.test_local import ended, job, launched
from tests.stages import template
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobState, JobStatus
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.log_tail import JobTail, LogProgress, after_line
from tuner.launch.outcome import outcome_of
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.logs import StepPattern
from tuner.study.watchdog import Watchdog, verdict

INTERVALS = {
    "every tenth": (("--every", "10"), 20),
    "resumed": (("--start", "5001"), 5002),
    "resumed, every tenth": (("--start", "5001", "--every", "10"), 5020),
    "resumed within an interval": (("--start", "5008", "--every", "10"), 5020),
    "every second": (("--every", "2"), 4),
    "each": ((), 2),
}


@pytest.mark.parametrize("style", ["megatron", "pipeline", "throughput"])
@pytest.mark.parametrize("name", INTERVALS)
def test_a_job_is_measured_by_its_second_line(name: str, style: str, tmp_path: Path) -> None:
    """A job ends with the second line of its log and is measured by it, whatever the number of its iteration."""
    words, number = INTERVALS[name]
    one = job(tmp_path)
    one = replace(one, workload=replace(one.workload, global_batch=16))
    with launched(template("logged", "--style", style, *words), one) as (launcher, handle):
        result = ended(launcher, handle)
        status = launcher.poll([handle])[handle]
        assert result.outcome is Outcome.MEASURED, result
        assert result.measurement is not None
        assert (result.seconds, result.measurement.iterations) == (0.25, (number,))
        assert status.iterations >= 2
        assert status.number >= number
        mean = "every" in name and style != "throughput"
        assert bool(result.note) == mean or name == "resumed within an interval"


def test_several_iterations_are_the_lines_after_the_first(tmp_path: Path) -> None:
    one = replace(job(tmp_path), iterations=(2, 3, 4))
    with launched(template("logged", "--start", "5001", "--every", "10"), one) as (launcher, handle):
        measurement = ended(launcher, handle).measurement
    assert measurement is not None
    assert (measurement.seconds, measurement.iterations) == (0.125, (5020, 5030, 5040))
    assert measurement.note == "each time is a mean of 10 iterations"


@pytest.mark.parametrize("style", ["megatron", "pipeline", "throughput"])
def test_an_iteration_without_an_optimizer_step_is_not_measured(style: str, tmp_path: Path) -> None:
    one = job(tmp_path)
    one = replace(one, workload=replace(one.workload, global_batch=16))
    with launched(template("logged", "--style", style, "--skips", "3"), one) as (launcher, handle):
        measurement = ended(launcher, handle).measurement
    assert measurement is not None
    assert (measurement.seconds, measurement.iterations) == (0.5**5, (5,))
    assert measurement.note == "iterations 2 to 4 skipped the optimizer step (fp16 loss scaling)"


def test_a_progress_bar_on_stderr_is_measured(tmp_path: Path) -> None:
    """A progress bar on stderr is measured, although tqdm ends its updates with carriage returns or with nothing."""
    bar = "  1%|          | {0}/100 [00:0{0}<01:30,  {1:.2f}s/it]"
    (tmp_path / "stdout.log").write_text("{'loss': 10.8, 'epoch': 0.01}\n")
    tail = JobTail(tmp_path)
    for text, iterations in (
        ("  0%|          | 0/100 [00:00<?, ?it/s]", 0),
        ("\r" + bar.format(1, 1.5), 1),
        ("\r" + bar.format(2, 1.2), 2),
    ):
        with (tmp_path / "stderr.log").open("a") as log:
            log.write(text)
        tail.read(1.0)
        assert tail.progress.iterations == iterations
    result = outcome_of(tmp_path, {"why": "measured"}, (2,), on_host=False, by_log=True)
    assert result.outcome is Outcome.MEASURED
    assert result.seconds == pytest.approx(1.7 * 1.2 - 0.7 * 1.5)
    assert result.note.startswith("seconds are derived from the progress bar's rate, resolution about ")


def test_a_step_pattern_measures_a_job(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("it 7 took 512.5 ms\nit 8 took 250.0 ms\n")
    pattern = StepPattern.parse(r"it (?P<iteration>\d+) took (?P<ms>[\d.]+) ms")
    assert outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True).outcome is Outcome.UNREADABLE
    result = outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True, pattern=pattern)
    assert (result.outcome, result.seconds, result.note) == (Outcome.MEASURED, 0.25, "")


def test_a_job_measured_without_its_step_pattern_says_so(tmp_path: Path) -> None:
    lines = [f" iteration {number}/ 10 | elapsed time per iteration (ms): 250.0 |\n" for number in (1, 2)]
    (tmp_path / "stdout.log").write_text("".join(lines))
    pattern = StepPattern.parse(r"it (?P<iteration>\d+) took (?P<ms>[\d.]+) ms")
    result = outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True, pattern=pattern)
    assert (result.outcome, result.seconds) == (Outcome.MEASURED, 0.25)
    assert result.note.startswith("--step-pattern matches no iteration with a positive time in this log")


def test_a_unit_that_contradicts_the_time_stamps_measures_nothing(tmp_path: Path) -> None:
    """A pattern that reads seconds as milliseconds contradicts the timestamps and measures nothing."""
    lines = [f"[2026-03-04 10:00:{2 * number:02d}] it {number} took 2.0\n" for number in (1, 2, 3)]
    (tmp_path / "stdout.log").write_text("".join(lines))
    results = [
        outcome_of(tmp_path, {"exit": 0}, (2,), on_host=False, by_log=True, pattern=StepPattern.parse(pattern))
        for pattern in (rf"it (?P<iteration>\d+) took (?P<{unit}>[\d.]+)" for unit in ("seconds", "ms"))
    ]
    assert (results[0].outcome, results[0].seconds) == (Outcome.MEASURED, 2.0)
    assert results[1].outcome is Outcome.UNREADABLE
    assert "timestamps span 4 s: a unit or the size of a step is misread" in results[1].evidence


UNREADABLE = {
    "one line": (("--lines", "1", "--every", "10"), "stdout.log has iteration 10 in 1 line, and line 2 is measured"),
    "all skipped": (("--lines", "3", "--skips", "2"), "iterations 2 to 3 skipped the optimizer step"),
    "always skipped": (("--skips", "99"), "iterations 2 to "),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_job_without_a_measurement_is_unreadable_with_a_remedy(name: str, tmp_path: Path) -> None:
    words, evidence = UNREADABLE[name]
    with launched(template("logged", *words), job(tmp_path)) as (launcher, handle):
        result = ended(launcher, handle)
    assert (result.outcome, result.reason) == (Outcome.UNREADABLE, "no iteration could be measured")
    assert result.evidence.startswith(evidence)
    assert "train for longer" in result.evidence


def test_a_complete_log_without_measurable_iterations_is_unreadable(tmp_path: Path) -> None:
    """A program that started twice has enough lines in total but too few in each start, and is UNREADABLE."""
    line = " iteration {0}/ 10 | elapsed time per iteration (ms): {1} |\n"
    (tmp_path / "stdout.log").write_text("".join(line.format(n, 5.0 * n) for n in (5, 6, 3, 7)))
    result = outcome_of(tmp_path, {"why": "cancelled"}, (3,), on_host=False, by_log=True)
    assert (result.outcome, result.measurement) == (Outcome.UNREADABLE, None)
    assert "line 3 is measured" in result.evidence
    result = outcome_of(tmp_path, {"why": "cancelled"}, (4,), on_host=False, by_log=True)
    assert result.outcome is Outcome.CANCELLED  # with an incomplete log, the job was cancelled externally
    assert "tuner stop" in result.evidence


def test_another_tuner_measures_the_same_from_the_log(tmp_path: Path) -> None:
    one, program = job(tmp_path), template("logged", "--start", "5001", "--every", "10")
    with launched(program, one) as (launcher, handle):
        first = ended(launcher, handle)
        other = LocalLauncher(program, ranks=8)
        adopted = other.adopt(one, None)
        assert adopted is not None
        assert other.poll([adopted])[adopted].state is JobState.ENDED
        assert other.collect(adopted).measurement == first.measurement
        other.close()


@pytest.mark.cluster
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    ("words", "outcome", "numbers"),
    [
        (("--start", "5001", "--every", "10"), Outcome.MEASURED, (5020,)),
        (("--style", "throughput", "--every", "10"), Outcome.MEASURED, (20,)),
        (("--every", "10", "--lines", "1"), Outcome.UNREADABLE, ()),
        (("--skips", "99"), Outcome.UNREADABLE, ()),
    ],
)
def test_slurm_jobs_are_measured_by_their_second_line(
    words: tuple[str, ...], outcome: Outcome, numbers: tuple[int, ...], within: bool, tmp_path: Path
) -> None:
    """A Slurm job is measured by its second line, also by a tuner that adopts it while it runs."""
    from tests import slurm_cluster
    from tests.slurm_stage import BY_NODE, ONCE

    cluster = slurm_cluster.running()
    cluster.clear()
    number = cluster.allocate() if within else ""

    def opened() -> SlurmLauncher | SlurmStepLauncher:
        program = template("logged", *words)
        if not within:
            return SlurmLauncher(program, nodes=4, site=ONCE)
        allocation = Allocation(number=number, nodes=slurm_cluster.NODES, cores=slurm_cluster.CPUS)
        return SlurmStepLauncher(program, allocation=allocation, site=BY_NODE)

    one, results = job(tmp_path), []
    launcher = opened()
    handle: str | None = launcher.submit(one)
    launcher = opened()  # the first tuner is gone
    handle = launcher.adopt(one, handle)
    for _ in range(2):
        assert handle is not None
        deadline = time.monotonic() + 60
        while launcher.poll([handle])[handle].state is not JobState.ENDED:
            assert time.monotonic() < deadline
            launcher.wait(0.5)
        results.append(launcher.collect(handle))
        launcher = opened()
        handle = launcher.adopt(one, None)
    cluster.clear()
    first, later = results
    assert (first.outcome, first.measurement, first.failure) == (later.outcome, later.measurement, later.failure)
    assert first.outcome is outcome, first
    assert (first.measurement.iterations if first.measurement else ()) == numbers
    assert outcome is Outcome.MEASURED or "train for longer" in first.evidence


MEGATRON = " iteration {0}/ 900 | elapsed time per iteration (ms): 200.0 |"


def test_less_reliable_lines_do_not_end_a_job() -> None:
    """DeepSpeed's timer lines, which precede Megatron's line of the same iteration, do not count as iterations."""
    breakdown = "time (ms) | fwd: 10.00 | bwd: 20.00 | bwd_inner: 9.00 | step: 5.00"
    progress = LogProgress()
    for line, iterations in [
        (breakdown, 1),
        (MEGATRON.format(10), 1),
        (breakdown, 1),
        (breakdown, 1),
        (MEGATRON.format(20), 2),
    ]:
        progress = after_line(progress, line, 1.0)
        assert progress.iterations == iterations


def test_a_restarted_program_is_counted_from_zero() -> None:
    progress = after_line(LogProgress(), MEGATRON.format(1), 1.0)
    progress = after_line(progress, "------------ arguments ------------", 1.0)
    for number, lines in ((101, 1), (102, 2)):
        progress = after_line(progress, MEGATRON.format(number), 1.0)
        assert progress.lines == lines


@pytest.mark.parametrize(
    ("lines", "interval"),
    [
        ((), None),
        (("log_interval ........ 10",), 10),
        ((MEGATRON.format(1),), 1),
        ((MEGATRON.format(10),), None),
        (("log_interval ........ 10", MEGATRON.format(5010)), 10),
        ((MEGATRON.format(5010), MEGATRON.format(5020)), 10),
    ],
)
def test_the_interval_is_known_from_the_arguments_or_two_lines(lines: tuple[str, ...], interval: int | None) -> None:
    progress = LogProgress()
    for line in lines:
        progress = after_line(progress, line, 1.0)
    assert progress.interval == interval


WATCH = Watchdog(start=900.0, step=60.0)


@pytest.mark.parametrize(
    ("iterations", "interval", "patience"),
    [
        (0, None, 900.0),
        (0, 1, 900.0),
        (0, 10, 900.0 + 9 * 60.0),
        (1, 1, 60.0),
        (1, 10, 600.0),
        (1, None, 900.0),
    ],
)
def test_a_log_may_be_silent_for_a_whole_interval(iterations: int, interval: int | None, patience: float) -> None:
    """A log may be silent for a whole interval; while the interval is unknown, for as long as before the first line."""
    for stalled, hung in ((patience, False), (patience + 1, True)):
        status = JobStatus(
            state=JobState.RUNNING,
            iterations=iterations,
            number=50,
            interval=interval,
            began=0.0,
            seconds_in=stalled,
        )
        decision = verdict(WATCH.seen(status, stalled), math.inf, (2,))
        assert (decision is not None) == hung
    assert decision is not None
    assert decision.reason.endswith(f"(limit {patience:,.0f} s)")
    assert ("after iteration 50" in decision.reason) == bool(iterations)


@pytest.mark.parametrize(
    ("interval", "least", "reason"),
    [
        (1, 40.0, "iteration 5021 takes at least 40.0 s, too slow to beat the best"),
        (10, 4.0, "iterations 5021 to 5030 take at least 4.0 s each, too slow to beat the best"),
        (None, None, None),
    ],
)
def test_the_seconds_of_a_line_are_divided_among_its_iterations(
    interval: int | None, least: float | None, reason: str | None
) -> None:
    status = JobStatus(
        state=JobState.RUNNING, iterations=1, number=5020, interval=interval, began=0.0, moved=40.0, seconds_in=40.0
    )
    seen = WATCH.seen(status, 40.0)
    decision = verdict(seen, 0.0, (2,))
    assert (decision.reason if decision else None) == reason
    if least is not None:
        assert verdict(seen, least, (2,)) is None
        assert verdict(seen, least - 1e-9, (2,)) is not None
