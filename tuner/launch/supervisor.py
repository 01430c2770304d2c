"""Supervises one job: starts it, exits with the job or the tuner, and kills stragglers.

A process of its own, `python -I supervisor.py FOLDER`, that imports only the standard library, so that it starts in
milliseconds. It adopts and reaps every process of the job whose parent has exited. Each process of the job has the
job's tag in its environment, by which stragglers are found.

It ends the job when the tuner asks for it or is gone (the pipe on stdin closes), or once the result file exists. Last
of all it writes `ended.json`, atomically.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TAG = "TUNER_JOB"
POLL_SECONDS = 0.02
EXIT_DELAY = 0.25
"""Seconds that a job may take to exit after writing its result."""
KILL_DELAY = 0.4
"""Seconds from SIGTERM to SIGKILL."""
MAX_KILL_SECONDS = 10.0
"""Seconds after which a process that cannot be killed is left alone."""

RESERVED_BYTES = 4000
"""Size of `ended.json`, which is reserved at the start so that it can be written to a full disk."""

EXEC_READS, EXEC_SECONDS = 5, 0.002
"""How often an empty environment is read, and the seconds between."""

KERNEL = (0, 2)
"""Parents of processes without an environment: the kernel, and kthreadd."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def supervise(folder: Path) -> None:
    """Run the job of a folder to its end."""
    start = json.loads((folder / "start.json").read_text())
    result = Path(start["result"]) if start["result"] else None
    _prctl(PR_SET_CHILD_SUBREAPER)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    reserved = _reserve(folder)
    kills = _oom_kills()
    began, started = time.time(), time.monotonic()
    with (folder / "stdout.log").open("ab") as out, (folder / "stderr.log").open("ab") as err:
        try:
            child = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                start["arguments"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=start["cwd"],
                env={**os.environ, **start["environment"], TAG: start["tag"]},
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            _write_end(folder, reserved, {"why": "not started", "said": str(error), "exit": None})
            return
    why, code = _watch(child.pid, result, signals)
    if why in ("cancelled", "abandoned"):
        _ask(child.pid, start.get("grace", 0.0))
    left_running = len(members(start["tag"], os.getpid())) if why == "exited" else 0
    left = _end(start["tag"])
    ended = began + time.monotonic() - started  # the clock may have been set meanwhile
    document = {
        "why": why,
        "exit": code,
        "began": began,
        "ended": ended,
        "oom_kills": _oom_kills() - kills,
        "left_running": left_running,
        "left": left,
    }
    _write_end(folder, reserved, {**document, "disk_left": _disk_left(folder)})


def _watch(child: int, result: Path | None, signals: list[int]) -> tuple[str, int | None]:
    """Wait for the end; return its reason, and the child's exit code if it exited by itself."""
    done_since = None
    while True:
        if signals:
            return "cancelled", None
        ready, _, _ = select.select([0], [], [], POLL_SECONDS)
        if ready:
            return ("cancelled", None) if os.read(0, 64) else ("abandoned", None)
        for pid, status in _reaped():
            if pid == child:
                return "exited", os.waitstatus_to_exitcode(status)
        if result is not None and result.exists():
            done_since = done_since or time.monotonic()
            if time.monotonic() - done_since > EXIT_DELAY:
                return "done", None


def _reaped() -> list[tuple[int, int]]:
    """Return the ids and statuses of the children, including adopted ones, that have exited."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, status))


def _ask(child: int, grace: float) -> None:
    """Ask the child to end, and give it some seconds in which to end its ranks on other machines."""
    deadline = time.monotonic() + grace
    if grace:
        _signal(child, signal.SIGTERM)
    while time.monotonic() < deadline and all(pid != child for pid, _ in _reaped()):
        time.sleep(POLL_SECONDS)


def _end(tag: str) -> list[int]:
    """End the job's remaining processes; return those that could not be ended."""
    deadline, kill_from = time.monotonic() + MAX_KILL_SECONDS, time.monotonic() + KILL_DELAY
    terminated: set[int] = set()
    while time.monotonic() < deadline:
        _reaped()
        left = members(tag, os.getpid())
        if not left:
            return []
        kill = time.monotonic() >= kill_from
        for pid in left if kill else left - terminated:
            _signal(pid, signal.SIGKILL if kill else signal.SIGTERM)
        terminated |= left
        time.sleep(POLL_SECONDS / 2)
    return sorted(members(tag, os.getpid()))


def members(tag: str, root: int | None = None) -> set[int]:
    """Return the processes of a job: those with its tag, and the descendants of `root`, without `root` itself."""
    parents: dict[int, int] = {}
    tagged = set()
    mark = f"{TAG}={tag}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if stat[0] == b"Z":
                continue
            parents[int(entry.name)] = int(stat[1])
            if mark in _environment(entry, parents[int(entry.name)]).split(b"\0"):
                tagged.add(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    found = set(tagged)
    if root is not None:
        for pid in parents:
            ancestor: int | None = pid
            while ancestor not in (None, 0, 1, root):
                ancestor = parents.get(ancestor) if ancestor is not None else None
            if ancestor == root and pid != root:
                found.add(pid)
    return found - {os.getpid()}


def _environment(process: Path, parent: int) -> bytes:
    """Return a process's environment, which is empty while the kernel loads the program, and in kernel threads."""
    for _ in range(EXEC_READS):
        if (content := (process / "environ").read_bytes()) or parent in KERNEL:
            return content
        time.sleep(EXEC_SECONDS)
    return b""


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _die_with_parent() -> None:
    """Have the kernel kill the calling child when this process dies."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _prctl(option: int, value: int = 1) -> None:
    with suppress(AttributeError, OSError):  # not Linux: the job's processes are still found by the tag
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _oom_kills() -> int:
    """Return how many processes the kernel's OOM killer has killed, in this control group if there is one."""
    for path in _oom_counters():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
        if found:
            return found[0]
    return 0


def _oom_counters() -> list[Path]:
    """Return the files of the kernel's counters, the nearest control group first."""
    root, found = Path("/sys/fs/cgroup"), []
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        groups = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers == "":
            found += [root / path.lstrip("/") / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            found += [root / "memory" / path.lstrip("/") / "memory.oom_control", root / "memory/memory.oom_control"]
    return [*found, Path("/proc/vmstat")]


def _disk_left(folder: Path) -> int | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def _reserve(folder: Path) -> Path:
    """Reserve space for `ended.json` while the disk has some."""
    reserved = folder / f".ended.json.{os.getpid()}"
    with suppress(OSError):
        reserved.write_text(" " * RESERVED_BYTES)
    return reserved


def _write_end(folder: Path, reserved: Path, document: dict[str, object]) -> None:
    """Write `ended.json`, for this tuner or a later one, into the reserved blocks."""
    text = json.dumps(document)
    with suppress(OSError):  # if it fails nevertheless, the end of the supervisor shows that the job is over
        with reserved.open("r+" if reserved.exists() else "w") as file:
            file.write(text.ljust(RESERVED_BYTES) + "\n")
        reserved.replace(folder / "ended.json")


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
