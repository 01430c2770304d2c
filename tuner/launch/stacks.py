"""Write the stacks of a hung job, with py-spy if it is installed, otherwise by the processes themselves."""

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

from tuner.core.atomic_write import open_regular
from tuner.launch.command_line import state_of

DUMP_TIMEOUT: Final = 0.4
"""Seconds that a process may take to write its stacks."""

TOTAL_TIMEOUT: Final = 10.0
"""Seconds after which the remaining processes are listed without a stack."""

STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "in the kernel",
    "T": "stopped by a signal",
    "t": "traced",
    "Z": "dead",
}


def write_stacks(pids: Iterable[int], log: Path, to: Path, dumps_on_signal: Callable[[int], bool]) -> int:
    """Write the state and stack of every process to a file; return the number of stacks.

    A process for which `dumps_on_signal` is true writes its stack to `log` on SIGUSR1, which kills any other.
    """
    deadline, count, parts = time.monotonic() + TOTAL_TIMEOUT, 0, []
    for pid in sorted(pids):
        if (state := state_of(pid)) is None:
            continue
        text = ""
        if time.monotonic() < deadline:
            text = _by_py_spy(pid) or ("" if state == "T" or not dumps_on_signal(pid) else _by_itself(pid, log))
        count += bool(text)
        title = f"process {pid}, {_rank(pid)}{STATES.get(state, state)}: {_command(pid)}"
        parts.append(f"{title}\n{text or 'no stack available'}\n")
    if parts:
        with suppress(OSError):
            to.write_text("\n".join(parts), errors="replace")
    return count


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return ""


def _rank(pid: int) -> str:
    """Return the rank, by the process name that the bundled worker sets, or by the initial environment."""
    with suppress(OSError):
        if (name := Path(f"/proc/{pid}/comm").read_text().strip()).startswith("rank "):
            return f"{name}, "
        if found := re.search(rb"(?:^|\0)RANK=([0-9]+)\0", Path(f"/proc/{pid}/environ").read_bytes()):
            return f"rank {found[1].decode()}, "
    return ""


def _by_py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        dump = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=5, check=True
        )
        return dump.stdout
    return ""


def _by_itself(pid: int, log: Path) -> str:
    """Have the process write its stacks to the log, and wait until the log stops growing."""
    with suppress(OSError):
        before = log.stat().st_size
        os.kill(pid, signal.SIGUSR1)
        deadline, size, unchanged = time.monotonic() + DUMP_TIMEOUT, before, 0
        while time.monotonic() < deadline and unchanged < 3:
            time.sleep(0.02)
            now = log.stat().st_size
            unchanged = unchanged + 1 if now == size and now > before else 0
            size = now
        with open_regular(log) as file:
            file.seek(before)
            return file.read().decode(errors="replace").strip()
    return ""
