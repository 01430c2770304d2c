"""Live output of a search on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.found_studies import study_in
from tests.studies import ENVIRONMENT, SMALL


def shown(*words: str) -> list[str]:
    """Return all lines, including overwritten ones, that a command draws on a terminal of 80 columns."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    environment = {**ENVIRONMENT, "NO_COLOR": "1", "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "tuner", *words]
    process = subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    drawn = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(screen, 65536):
            drawn += part
    os.close(screen)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())
    return [line.rstrip() for line in text.replace("\r", "\n").splitlines()]


@pytest.mark.slow
def test_a_report_shows_progress_and_elapsed_time_on_a_terminal(tmp_path: Path) -> None:
    """Without a terminal, stderr stays empty."""
    study_in(tmp_path)
    bars = [line for line in shown("report", "bloom-48", "--runs", str(tmp_path)) if line.startswith("drawing ")]
    assert any(re.search(r"\d/\d \d:\d\d:\d\d$", line) for line in bars)
    quiet = [sys.executable, "-m", "tuner", "report", "bloom-48", "--runs", str(tmp_path)]
    assert subprocess.run(quiet, env=ENVIRONMENT, capture_output=True, check=True).stderr == b""


def test_the_live_view_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Its lines keep their names and are cut instead of wrapped."""
    lines = shown("optimize", *SMALL, "--budget", "6", "--runs", str(tmp_path / "runs"))
    for name in ("SIMULATED best", "finishes in", "cost", "last", "next", "trials"):
        drawn = [line for line in lines if line.startswith(f"{name} ")]
        assert drawn, name
        assert all(len(line) <= 80 for line in drawn)
