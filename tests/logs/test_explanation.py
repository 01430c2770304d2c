"""An unread log leads to a pattern that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.logs import StepPattern, read_log
from tuner.logs.explanation import explained

UNREAD = {
    "[rank0] step 5 | loss 3.21 | took 512.5 ms": (5, 0.5125),
    "Step: 5/100, time=0.25s, loss=3.2": (5, 0.25),
    "iteration 5 loss 3.1 step_time: 0.75": (5, 0.75),
    "it 5: 1.5 sec/step, lr 3e-4": (5, 1.5),
}


@pytest.mark.parametrize("line", UNREAD)
def test_the_suggested_pattern_reads_the_line_that_it_was_made_for(line: str) -> None:
    lines = ["loading data", "model has 1.3 B parameters", line, "saving in 3 steps"]
    found = explained(lines)
    assert found.readers == ()
    assert (3, line) in found.likely
    (run,) = read_log(lines, StepPattern.parse(found.pattern)).runs
    assert [(entry.number, entry.seconds) for entry in run.iterations] == [UNREAD[line]]


def test_the_command_prints_readers_or_a_pattern(run: Run, tmp_path: Path) -> None:
    assert "nemo: 3 lines\n  line 1: Training epoch 0" in run("measure", "tests/data/logs/nemo.log", "--explain").out
    log = tmp_path / "job.log"
    log.write_text("it 5 took 512.5 ms\n")
    out = run("measure", str(log), "--explain").out
    assert "likely line 1: it 5 took 512.5 ms\ntry: --step-pattern 'it" in out


def test_a_known_log_names_its_reader_with_the_first_lines() -> None:
    found = explained((ROOT / "tests/data/logs/nemo.log").read_text().splitlines())
    (reader,) = found.readers
    assert (reader.source, reader.lines, [number for number, _ in reader.examples]) == ("nemo", 3, [1, 2, 3])
    assert (found.likely, found.pattern) == ((), "")
