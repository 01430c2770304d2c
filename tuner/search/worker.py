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
    return _born(pid) != worker.get("born")


def _born(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
