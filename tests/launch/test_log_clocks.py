"""Times that a log tells only by a clock, or by a bar that may count batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.core.outcomes import Outcome
from tuner.launch.log_tail import LogProgress, after_line
from tuner.launch.outcome import outcome_of
from tuner.logs import StepSize
from tuner.logs.named_figures import LiveFigures
from tuner.logs.readers import RecordReader


def test_a_job_goes_on_until_a_clock_of_whole_seconds_is_precise() -> None:
    """Steps of 0.7 s: 20 s after the first line, the mean is precise to 5%."""
    progress, reader = LogProgress(), RecordReader()
    figures = LiveFigures()
    complete = []
    for step in range(1, 40):
        seconds = int(0.7 * step)
        line = f"2026-11-26 15:38:{seconds:02d} INFO step {step} loss 2.31"
        progress = after_line(progress, line, 0.7 * step, reader, figures)
        complete.append((seconds, progress.complete(2)))
    assert not any(done for seconds, done in complete if seconds < 20)
    assert complete[-1] == (27, True)


HF_BAR = "\r".join(f"{4 * n}%|▏ | {n}/24 [00:{n:02.0f}<00:{24 - n:02.0f},  1.0{n}s/it]" for n in range(1, 6)) + "\n"


@pytest.mark.parametrize(("later", "measured"), [("", False), ("{'loss': '4.68', 'grad_norm': '1.5'}\n", True)])
def test_a_loss_on_stdout_that_is_not_a_number_fails_a_job_with_a_bar_on_stderr(
    later: str, measured: bool, tmp_path: Path
) -> None:
    """Lines of transformers 5.24, which prints figures in quotes; a loss that recovers is no failure."""
    (tmp_path / "stderr.log").write_text(HF_BAR)
    (tmp_path / "stdout.log").write_text(
        "{'loss': '4.712', 'grad_norm': '1.261', 'learning_rate': '5e-05', 'epoch': '0.0625'}\n"
        "{'loss': 'nan', 'grad_norm': 'nan', 'learning_rate': '4.995e-05', 'epoch': '0.125'}\n" + later
    )
    result = outcome_of(tmp_path, {"exit": 0}, [2], on_host=True, by_log=True, size=StepSize())
    assert result.outcome is (Outcome.MEASURED if measured else Outcome.CRASHED)
    assert measured or result.reason == "the loss is not a number"


@pytest.mark.parametrize(
    ("description", "counts"),
    [
        ("", "steps"),
        ("Steps: ", "steps"),
        ("Training steps: ", "steps"),
        ("1|2|Loss: 5.29: ", "steps"),  # torchtune
        ("[2026-01-01 10:00:00,123] [INFO] train batch size 4  ", "steps"),
        ("Training: ", "unknown"),
        ("Iteration: ", "unknown"),
        ("loss 4.8531: ", "unknown"),
        ("Train step of epoch 0: ", "unknown"),  # OpenRLHF
    ],
)
def test_a_bar_that_may_count_microbatches_is_no_measurement(description: str, counts: str, tmp_path: Path) -> None:
    """`tqdm(loader, desc="Training")` of accelerate's loops counts microbatches: four prints of four are one step."""
    bar = "{}  4%|▍         | {}/24 [00:{:02.0f}<00:28,  {:.2f}s/it]"
    lines = [bar.format(description, step, 1.2 * step, 1.2) for step in range(1, 5)]
    (tmp_path / "stderr.log").write_text("\r".join(lines) + "\n")
    size = StepSize(global_batch=8, microbatches=4)
    result = outcome_of(tmp_path, {"exit": 0}, [2], on_host=True, by_log=True, size=size)
    if counts == "unknown":
        assert result.outcome is Outcome.UNREADABLE
        assert "a step of its bar may be an optimizer step or one of its 4 microbatches" in result.evidence
    else:
        assert result.seconds == pytest.approx(1.2, rel=0.02)
        assert "assumed to be an optimizer step of 4 microbatches" in result.note


def test_a_clock_of_minutes_is_not_waited_for() -> None:
    progress, reader, figures = LogProgress(), RecordReader(), LiveFigures()
    for step in range(1, 4):
        line = f"15:3{step} step {step} loss 2.31"
        progress = after_line(progress, line, 60.0 * step, reader, figures)
    assert progress.clock_error == 0.0


@pytest.mark.parametrize(("steps", "seconds"), [(40, 0.7), (16, 0.7), (6, None)])
def test_whole_second_time_stamps_are_averaged_or_refused(tmp_path: Path, steps: int, seconds: float | None) -> None:
    """A single difference would be 0 or 1 s; a mean that is not precise to 20% is no measurement."""
    lines = [f"2026-11-26 15:38:{int(0.7 * step):02d} INFO step {step} loss 2.31" for step in range(1, steps + 1)]
    (tmp_path / "stdout.log").write_text("\n".join(lines) + "\n")
    result = outcome_of(tmp_path, {"exit": 0}, [2], on_host=True, by_log=True, size=StepSize())
    if seconds is None:
        assert result.outcome is Outcome.UNREADABLE
        assert "its times can only be derived from timestamps, resolution about" in result.evidence
    else:
        assert result.seconds == pytest.approx(seconds, rel=0.08)


BARS = {
    "lightning": "Epoch 0:   0%|          | {step}/512 [00:{elapsed:02.0f}<08:30, {rate:.2f}it/s, v_num=0, loss=0.1]",
    "lightning-rich": "Epoch 0/-2 ╸━━━ {step}/512 0:00:{elapsed:02.0f} • 0:08:30 {rate:.2f}it/s v_num: 0.000",
    "nemo": "Epoch 0: : {step}it [00:{elapsed:02.0f}, {rate:.2f}it/s, v_num=0, global_step={step}.0]",
    "plain": "Epoch 0:   0%|          | {step}/512 [00:{elapsed:02.0f}<08:30, {rate:.2f}it/s]",
    "hf": "  0%|          | {step}/512 [00:{elapsed:02.0f}<08:30, {rate:.2f}it/s]",
}
"""Bars of steps of 0.5 s."""


@pytest.mark.parametrize(
    ("bar", "microbatches", "seconds"),
    [
        ("lightning", 4, 2.0),
        ("lightning", 1, 0.5),
        ("lightning-rich", 4, 2.0),
        ("nemo", 4, 0.5),
        ("hf", 4, 0.5),
        ("plain", 1, 0.5),
        ("plain", 4, None),
    ],
)
def test_a_step_of_a_bar_is_an_optimizer_step_or_a_batch(
    bar: str, microbatches: int, seconds: float | None, tmp_path: Path
) -> None:
    """Lightning counts batches; the bar of a loop over epochs may count either, which matters with several."""
    lines = [BARS[bar].format(step=step, elapsed=0.5 * step, rate=2.0) for step in range(1, 40)]
    (tmp_path / "stdout.log").write_text("\n".join(lines) + "\n")
    size = StepSize(global_batch=8, microbatches=microbatches)
    result = outcome_of(tmp_path, {"exit": 0}, [2], on_host=True, by_log=True, size=size)
    if seconds is None:
        assert result.outcome is Outcome.UNREADABLE
        assert "a step of its bar may be an optimizer step or one of its 4 microbatches" in result.evidence
    else:
        assert result.seconds == pytest.approx(seconds, rel=0.05)
