"""Speed of reading: lines without a keyword of any reader are skipped, and no line takes quadratic time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.log_reading import FORMATS, MEGABYTE, PATHOLOGICAL, cpu_seconds, followed, text_of
from tests.conftest import ROOT
from tests.logs.failures import FAILURES
from tuner.logs import StepPattern, read_log

LOGS = sorted((ROOT / "tests/data/logs").glob("*.log"))
SHORT = 4096
"""Bytes of a line: a sixteenth of what is read of a long one."""

UNUSED = StepPattern.parse(r"this matches nothing (?P<seconds>[0-9]+)")
"""A user's pattern, with which every line is read."""


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_skipping_lines_changes_no_record(path: Path) -> None:
    lines = path.read_bytes().decode(errors="replace").splitlines()
    assert repr(read_log(lines)) == repr(read_log(lines, UNUSED))  # the loss may be NaN


@pytest.mark.parametrize("name", FAILURES)
def test_skipping_lines_hides_no_failure(name: str) -> None:
    lines = ["nothing of interest", *FAILURES[name][0].splitlines(), "nothing of interest"] * 2
    runs, with_all = read_log(lines).runs, read_log(lines, UNUSED).runs
    if any(run.source == "named figures" for run in runs):  # not read if the user gives a pattern
        assert [run.failure and run.failure.meaning for run in runs] == [
            run.failure and run.failure.meaning for run in with_all
        ]
    else:
        assert repr(runs) == repr(with_all)  # the loss may be NaN


def test_a_traceback_is_ignored_only_directly_after_pythons_notice() -> None:
    ignored = [
        "Exception ignored in: <function f>",
        "Traceback (most recent call last):",
        '  File "a.py"',
        "OSError: x",
    ]
    assert read_log(ignored).runs == ()
    (run,) = read_log([ignored[0], "another line", *ignored[1:]]).runs
    assert run.failure


@pytest.mark.slow
@pytest.mark.parametrize("unit", PATHOLOGICAL)
def test_no_line_takes_quadratic_time(unit: str, tmp_path: Path) -> None:
    """A line sixteen times as long takes about sixteen times as long, not 256 times."""
    path = tmp_path / "stdout.log"

    def seconds(size: int) -> float:
        line = unit * (size // len(unit))
        path.write_text(line)
        return cpu_seconds(lambda: [read_log([line]) for _ in range(4)]) + cpu_seconds(lambda: followed(path))

    assert seconds(16 * SHORT) < 64 * seconds(SHORT)


@pytest.mark.parametrize(("name", "least"), [("Megatron-LM", 1000), ("HF Trainer", 1000), ("other lines", 0)])
def test_the_benchmark_reads_real_iterations(name: str, least: int) -> None:
    found = sum(len(run.iterations) for run in read_log(text_of(name, MEGABYTE).splitlines()).runs)
    assert found >= least
    assert name in FORMATS


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_bars_read_together_are_the_same_as_one_by_one(end: str) -> None:
    """The bars restart, skip steps, pause for an evaluation and lack a rate at first; other words split a block."""
    prints = [
        (0, 9, 0, "?it"),
        (1, 9, 3, "3.00s/it"),
        (1, 9, 3, "3.00s/it"),
        (3, 9, 4, "1.10it/s"),
        (1, 4, 5, "2.00it/s"),
    ]
    prints += [
        (4, 9, 9, "2.50s/it"),
        (9, 9, 9, "9.00it/s"),
        (0, 9, 0, "?it"),
        (1, 9, 2, "2.00s/it"),
        (2, 9, 30, "2.10s/it"),
    ]
    lines = [f"{100 * n // total}%|#  | {n}/{total} [00:{clock:02d}<00:09, {rate}]" for n, total, clock, rate in prints]
    together = read_log(end.join(lines).split("\n"))
    assert [len(run.iterations) for run in together.runs] == [4, 2]
    assert together == read_log(end.join(lines).split("\n"), UNUSED)
