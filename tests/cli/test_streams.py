"""Streams that are closed, full or interrupted cause one sentence or none, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.found_studies import study_in
from tuner.core.catalog import read_toml

TUNER = (sys.executable, "-m", "tuner")


def in_shell(redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program from a shell, with redirections such as `>&-`, which closes stdout."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # SIGINT is ignored in background jobs of a shell, and child processes inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["rules"]])
@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_stdout_ends_without_a_message(redirected: str, words: list[str]) -> None:
    said = in_shell(redirected, *TUNER, *words)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_reading_a_closed_stdin_is_an_error() -> None:
    said = in_shell("<&- >&-", *TUNER, "measure", "-")
    assert said.returncode == 2
    assert "there is no standard input to read" in said.stderr


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_a_search_with_unwritable_stderr_prints_its_result(redirected: str, tmp_path: Path) -> None:
    said = in_shell(redirected, *TUNER, "optimize", "--nodes", "8", "--budget", "2", "--runs", str(tmp_path))
    assert said.returncode == 0
    assert "finishes" in said.stdout or "s an iteration" in said.stdout


def test_an_unwritable_error_keeps_its_exit_code() -> None:
    assert in_shell("2>/dev/full", *TUNER, "plan", "--nodes", "0").returncode == 2


@pytest.mark.slow
def test_a_report_with_closed_streams_is_complete(tmp_path: Path) -> None:
    """No opened file takes the descriptor of a closed stream and thereby the output of the command."""
    runs = study_in(tmp_path)
    said = in_shell("<&- >&- 2>&-", *TUNER, "report", "bloom-48", "--runs", str(runs))
    assert said.returncode == 0
    assert in_shell("", *TUNER, "report", "bloom-48", "--runs", str(runs), "-o", str(tmp_path / "open")).returncode == 0
    for name in ("report.md", "measurements.csv"):
        closed = (runs / "bloom-48" / "report" / name).read_text()
        assert closed == (tmp_path / "open" / name).read_text()


def test_an_error_of_the_current_folder_is_not_reported_as_one_of_stdout(tmp_path: Path) -> None:
    """The current folder was deleted, while stdout is open."""
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


def test_a_second_interrupt_during_shutdown_loses_nothing(tmp_path: Path) -> None:
    """The job sends the first interrupt while it runs, and the second while it is being stopped."""
    job = 'trap "kill -INT $1; exit" TERM; sleep 0.5; kill -INT $1; while :; do sleep 0.1; done'
    own = ("--launcher", "local", "--model", "tiny", "--nodes", "1", "--gpus-per-node", "4", "--runs", str(tmp_path))
    start = f'exec "$@" --command "sh {tmp_path / "job"} $$"'
    (tmp_path / "job").write_text(job)
    said = in_shell("", "sh", "-c", start, "sh", *TUNER, "optimize", *own)
    assert said.returncode == 130
    assert "Rerun the same command to continue." in said.stdout
    assert said.stderr.splitlines()[-1] == "tuner: interrupted."
    assert said.stderr.count("interrupted.") == 1


def test_a_table_in_a_pipe_fits_columns_if_that_is_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without COLUMNS, or with one that is no width, all columns are printed."""
    whole = run("rules").out
    assert max(map(len, whole.splitlines())) > 100
    for unset in ("", "0", "wide", "-60"):
        monkeypatch.setenv("COLUMNS", unset)
        assert run("rules").out == whole
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("rules").out
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split().count("law") == whole.split().count("law")
    listed = run("catalog", "clusters", "--json").out
    monkeypatch.delenv("COLUMNS")
    assert run("catalog", "clusters", "--json").out == listed


def test_help_fits_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = run("--help").out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("--help").out
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, usual.splitlines()))
