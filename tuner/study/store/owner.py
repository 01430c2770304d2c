"""Who watches a job: a process of some machine, told apart from a later one with the same number."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_worker() -> dict[str, Any]:
    """This process."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "born": _born(pid)}


def gone(worker: Mapping[str, Any]) -> bool | None:
    """Whether a process is no more; None where this machine cannot know, because it was on another one."""
    if worker.get("host") != socket.gethostname():
        return None
    try:
        pid = int(worker["pid"])
        os.kill(pid, 0)
    except (KeyError, TypeError, ValueError, ProcessLookupError):
        return True
    except PermissionError:
        pass
    return _stat(pid, 0) in _ENDED or _born(pid) != worker.get("born")


_ENDED = ("Z", "X")
"""States of a process that has ended, and that nobody has asked about yet: in a container that may be never."""


def _born(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 where the system does not tell."""
    began = _stat(pid, 19)
    return int(began) if began.isdecimal() else 0


def _stat(pid: int, field: int) -> str:
    """What the system tells of a process; empty where it does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""
