"""Streams that are closed, full or interrupted: a command says one sentence or none, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.found_studies import study_in

TUNER = (sys.executable, "-m", "tuner")


def in_shell(redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program as a shell starts it: `>&-` closes its stdout."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["rules"]])
@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-"])
def test_a_command_whose_stdout_is_closed_ends_as_quietly(redirected: str, words: list[str]) -> None:
    said = in_shell(redirected, *TUNER, *words)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_a_search_whose_stderr_is_closed_still_prints_what_it_found(tmp_path: Path) -> None:
    said = in_shell("2>&-", *TUNER, "optimize", "--nodes", "8", "--budget", "2", "--runs", str(tmp_path))
    assert said.returncode == 0
    assert "finishes" in said.stdout or "s an iteration" in said.stdout


def test_a_report_whose_streams_are_closed_is_written_whole(tmp_path: Path) -> None:
    """No file of ours comes to stand where a stream was, to take what a command prints."""
    runs = study_in(tmp_path)
    said = in_shell("<&- >&- 2>&-", *TUNER, "report", "bloom-48", "--runs", str(runs))
    assert said.returncode == 0
    assert in_shell("", *TUNER, "report", "bloom-48", "--runs", str(runs), "-o", str(tmp_path / "open")).returncode == 0
    for name in ("report.md", "measurements.csv"):
        closed = (runs / "bloom-48" / "report" / name).read_text()
        assert closed == (tmp_path / "open" / name).read_text()


def test_what_fails_beside_the_output_is_not_told_as_the_output(tmp_path: Path) -> None:
    """A folder that is gone under the command's feet is no fault of stdout, which is open."""
    gone, runs = tmp_path / "gone", tmp_path / "runs"
    gone.mkdir()
    own = ("--launcher", "local", "--model", "tiny", "--nodes", "1", "--gpus-per-node", "4", "--command", "sleep 1")
    words = [*TUNER, "optimize", *own, "--runs", str(runs)]
    said = in_shell("", "sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "sh", *words)
    assert said.returncode == 1
    assert said.stderr == "tuner: the system refused what the command needs: No such file or directory.\n"
