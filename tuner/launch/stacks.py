"""What the processes of a job that stands still are doing: py-spy's word where it is present, else their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

PATIENCE: Final = 0.4
"""Seconds that a process may take to write down its stacks."""

LONGEST: Final = 10.0
"""Seconds after which the processes that are left are not asked any more."""

STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "in the kernel",
    "T": "stopped by a signal",
    "t": "traced",
    "Z": "dead",
}


def write_stacks(pids: Iterable[int], log: Path, to: Path, answers: Callable[[int], bool]) -> int:
    """Write what every process does to a file; how many have shown their stack.

    Those that `answers` says so of write theirs to `log` when they get SIGUSR1; any other would die of it.
    """
    deadline, told, parts = time.monotonic() + LONGEST, 0, []
    for pid in sorted(pids):
        if (state := _state(pid)) is None:
            continue
        text = ""
        if time.monotonic() < deadline:
            text = _by_spy(pid) or ("" if state == "T" or not answers(pid) else _by_itself(pid, log))
        told += bool(text)
        title = f"process {pid}, {_rank(pid)}{STATES.get(state, state)}: {_command(pid)}"
        parts.append(f"{title}\n{text or 'no stack could be had.'}\n")
    if parts:
        with suppress(OSError):
            to.write_text("\n".join(parts), errors="replace")
    return told


def _state(pid: int) -> str | None:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return ""


def _rank(pid: int) -> str:
    """By the process's name, which the shipped worker sets, or by the environment that it was started with."""
    with suppress(OSError):
        if (name := Path(f"/proc/{pid}/comm").read_text().strip()).startswith("rank "):
            return f"{name}, "
        if found := re.search(rb"(?:^|\0)RANK=([0-9]+)\0", Path(f"/proc/{pid}/environ").read_bytes()):
            return f"rank {found[1].decode()}, "
    return ""


def _by_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=5, check=True
        )
        return said.stdout
    return ""


def _by_itself(pid: int, log: Path) -> str:
    """Have the process write its stacks to the log, and wait until it has."""
    with suppress(OSError):
        before = log.stat().st_size
        os.kill(pid, signal.SIGUSR1)
        deadline, size, still = time.monotonic() + PATIENCE, before, 0
        while time.monotonic() < deadline and still < 3:
            time.sleep(0.02)
            now = log.stat().st_size
            still = still + 1 if now == size and now > before else 0
            size = now
        with log.open("rb") as file:
            file.seek(before)
            return file.read().decode(errors="replace").strip()
    return ""
