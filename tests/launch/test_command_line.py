"""Identification of processes by their command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.launch.command_line import runs, wait_until_shown


def test_a_process_is_identified_after_its_command_line_is_shown(tmp_path: Path) -> None:
    """A process is identified by its command line after `wait_until_shown`; at first, the kernel shows an empty one."""
    for number in range(20):
        word = tmp_path / str(number)
        command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", str(word)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
            wait_until_shown(child.pid, word)
            assert runs(child.pid, word)
            assert not runs(child.pid, tmp_path)
            assert child.stdin
            child.stdin.close()


def test_an_ended_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr("tuner.launch.command_line.time.sleep", pytest.fail)
        wait_until_shown(child.pid, "never")
    assert not runs(child.pid, "never")
    assert not runs(None, "never")
