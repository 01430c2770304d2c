"""Streams that are closed, full or interrupted: a command says one sentence or none, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.found_studies import study_in
from tuner.core.catalog import read_toml

TUNER = (sys.executable, "-m", "tuner")


def in_shell(redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program as a shell starts it: `>&-` closes its stdout."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # who runs the tests in the background has SIGINT ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["rules"]])
@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-"])
def test_a_command_whose_stdout_is_closed_ends_as_quietly(redirected: str, words: list[str]) -> None:
    said = in_shell(redirected, *TUNER, *words)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_who_reads_a_closed_stdin_is_told_that_there_is_none() -> None:
    said = in_shell("<&- >&-", *TUNER, "measure", "-")
    assert said.returncode == 2
    assert "there is no standard input to read" in said.stderr


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_a_search_that_cannot_write_to_stderr_still_prints_what_it_found(redirected: str, tmp_path: Path) -> None:
    said = in_shell(redirected, *TUNER, "optimize", "--nodes", "8", "--budget", "2", "--runs", str(tmp_path))
    assert said.returncode == 0
    assert "finishes" in said.stdout or "s an iteration" in said.stdout


def test_a_refusal_that_nobody_can_read_keeps_its_code() -> None:
    assert in_shell("2>/dev/full", *TUNER, "plan", "--nodes", "0").returncode == 2


@pytest.mark.slow
def test_a_report_whose_streams_are_closed_is_written_whole(tmp_path: Path) -> None:
    """No file that tuner opens takes the place of a closed stream, and with it what a command prints."""
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
    assert said.stderr == "tuner: the current folder: No such file or directory.\n"


SCRIPT = read_toml(ROOT / "pyproject.toml")["project"]["scripts"]["tuner"].replace(":", " import ")
STARTS = ["import runpy; runpy.run_module('tuner', run_name='__main__')", f"from {SCRIPT}; main()"]


@pytest.mark.parametrize("moment", ["tuner.cli", "click", "tuner.cli.commands.optimize", "tuner.planning.plan"])
@pytest.mark.parametrize("begin", STARTS)
def test_an_interrupt_during_imports_exits_130_with_one_sentence(begin: str, moment: str) -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        f"sys.argv = ['tuner', 'plan']\n{begin}"
    )
    said = in_shell("", sys.executable, "-c", program)
    assert (said.returncode, said.stdout, said.stderr) == (130, "", "tuner: interrupted.\n")


def test_a_second_interrupt_while_the_first_is_answered_loses_nothing(tmp_path: Path) -> None:
    """The job sends the first one while it runs, and the second while it is being ended."""
    job = 'trap "kill -INT $1; exit" TERM; sleep 0.5; kill -INT $1; while :; do sleep 0.1; done'
    own = ("--launcher", "local", "--model", "tiny", "--nodes", "1", "--gpus-per-node", "4", "--runs", str(tmp_path))
    start = f'exec "$@" --command "sh {tmp_path / "job"} $$"'
    (tmp_path / "job").write_text(job)
    said = in_shell("", "sh", "-c", start, "sh", *TUNER, "optimize", *own)
    assert said.returncode == 130
    assert "Rerun the same command to continue." in said.stdout
    assert said.stderr.splitlines()[-1] == "tuner: interrupted."
    assert said.stderr.count("interrupted.") == 1
