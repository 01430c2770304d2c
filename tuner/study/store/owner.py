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
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuner.core.errors import StudyError
from tuner.core.text import shown
from tuner.launch.command_line import stat_field, state_of
from tuner.study.store.storage import GRACE


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


def grace(worker: Mapping[str, Any]) -> int:
    """Return the seconds without a heartbeat after which a process that cannot be seen from here counts as gone."""
    return REBOOT_GRACE if _is_of_earlier_boot(worker) else GRACE


def _is_of_earlier_boot(worker: Mapping[str, Any]) -> bool:
    """Whether a process ran, in no container, on a machine with this one's name and identifier but another boot."""
    here = {"host": socket.gethostname(), **_machine()}
    same = all(here[name] and worker.get(name) == here[name] for name in ("host", "machine", "pid_namespace"))
    is_in_no_container = here["pid_namespace"] == _INITIAL_NAMESPACE
    return same and is_in_no_container and worker.get("boot", here["boot"]) != here["boot"]


def described(worker: Mapping[str, Any]) -> str:
    """Return the process that owns a trial in words, without its id where that is of another boot or container."""
    host, here = worker.get("host"), {"host": socket.gethostname(), **_machine()}
    if _is_of_earlier_boot(worker):
        return f"a process of an earlier boot of {host}"
    if host == here["host"] and any(worker.get(name, here[name]) != here[name] for name in here):
        return f"a process of an earlier boot of {host}, or of another machine or container of that name,"
    return f"process {worker.get('pid')} on {host}"


def running(study: str, worker: Mapping[str, Any]) -> StudyError:
    """Return the error of a command that is refused while a process runs the study, or may run it."""
    if gone(worker) is None:
        return StudyError(
            f"{described(worker)} may still run study {shown(study)}: stop it there with Ctrl-C, or wait; a process "
            f"counts as gone after {grace(worker)} s without a heartbeat."
        )
    return StudyError(f"study {shown(study)} is being run by {described(worker)}: stop that one with Ctrl-C first.")


REBOOT_GRACE = 30
"""Seconds without a heartbeat after which a process of an earlier boot counts as gone. A copy of this machine, with the
same name and identifier, sends one every 10 s."""

_INITIAL_NAMESPACE = "pid:[4026531836]"
"""The PID namespace of processes outside of containers, which is the same on every Linux."""

_ENDED = ("Z", "X")
"""States of a process that has ended but has not been reaped, which in a container may never happen."""


@cache
def _machine() -> dict[str, str]:
    """Return identifiers of the boot, the PID namespace and the machine; empty strings if there are none."""
    boot = namespace = machine = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    with suppress(OSError):  # a digest, because machine-id(5) asks not to expose it
        machine = sha256(b"tuner" + Path("/etc/machine-id").read_bytes().strip()).hexdigest()[:16]
    return {"boot": boot, "pid_namespace": namespace, "machine": machine}


def _born(pid: int) -> int:
    """Return the start time of a process in ticks since boot, or 0 if unknown."""
    began = stat_field(pid, 19)
    return int(began) if began.isdecimal() else 0
