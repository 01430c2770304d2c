"""Identify the process that watches a job.

Pids are reused, so the identity includes the start time; pids restart with every boot and container, and containers may
share a host name, so it includes those too.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tuner.core.errors import StudyError
from tuner.core.text import shown
from tuner.launch.command_line import stat_field, state_of


def this_worker() -> dict[str, Any]:
    """Return the identity of this process."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "born": _born(pid), **_machine()}


def released() -> dict[str, Any]:
    """Return the identity of a process that has ended."""
    return {**this_worker(), "born": -1}


def gone(worker: Mapping[str, Any]) -> bool | None:
    """Return whether a process has ended; None if it cannot be seen from here, being elsewhere or of another boot."""
    here = {"host": socket.gethostname(), **_machine()}
    if "host" not in worker or any(worker.get(name, value) != value for name, value in here.items()):
        return None
    try:
        pid = int(worker["pid"])
        os.kill(pid, 0)
    except (KeyError, OverflowError, TypeError, ValueError, ProcessLookupError):
        return True
    except PermissionError:
        pass
    return state_of(pid) in _ENDED or _born(pid) != worker.get("born")


def running(study: str, worker: Mapping[str, Any]) -> StudyError:
    """Return the error of a command that is refused while a process runs the study."""
    return StudyError(
        f"study {shown(study)} is being run by process {worker.get('pid')} on {worker.get('host')}: stop that one with "
        "Ctrl-C first."
    )


_ENDED = ("Z", "X")
"""States of a process that has ended but has not been reaped, which in a container may never happen."""


@cache
def _machine() -> dict[str, str]:
    """Return identifiers of the boot and the PID namespace; empty strings if /proc lacks them."""
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return {"boot": boot, "pid_namespace": namespace}


def _born(pid: int) -> int:
    """Return the start time of a process in ticks since boot, or 0 if unknown."""
    began = stat_field(pid, 19)
    return int(began) if began.isdecimal() else 0
