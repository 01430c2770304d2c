"""What a search shows on a terminal while it runs."""

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

from tests.studies import ENVIRONMENT, SMALL


def test_a_narrow_terminal_without_colours_shows_every_line_with_its_name(tmp_path: Path) -> None:
    """On 80 columns the lines of the live view keep their names and are cut, not wrapped; the label stays."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    command = [sys.executable, "-m", "tuner", "optimize", *SMALL, "--budget", "6", "--runs", str(tmp_path / "runs")]
    environment = {**ENVIRONMENT, "NO_COLOR": "1", "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    lines = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    for name in ("SIMULATED best", "finishes in", "jobs", "last", "next"):
        drawn = [line for line in lines if line.startswith(f"{name} ")]
        assert drawn, name
        assert all(len(line) <= 80 for line in drawn)
