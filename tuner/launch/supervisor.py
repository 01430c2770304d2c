"""Keeps one job: starts it, outlives neither it nor the tuner, and leaves nothing behind.

A process of its own, `python -I keeper.py FOLDER`, with nothing but the standard library: it is there in milliseconds.
It is the reaper of all that the job starts: a rank in a session of its own, or one whose parent was killed, comes to
it. Every process of the job carries the job's tag in its environment, by which the last ones are found.

It ends the job when the tuner says so or is gone (its end of the pipe is closed), and when the result file is there.
What it leaves is `ended.json`, written last, whole or not at all.
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
LOOK = 0.02
"""Seconds between two looks."""
LEAVE = 0.25
"""Seconds that a job whose result is there may take to end by itself."""
GRACE = 0.4
"""Seconds from asking a process to end to killing it."""
STUBBORN = 10.0
"""Seconds after which a process that cannot be killed is given up."""

RESERVED = 4000
"""Bytes that what is left at the end takes."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def keep(folder: Path) -> None:
    """Run the job of a folder to its end."""
    told = json.loads((folder / "start.json").read_text())
    result = Path(told["result"]) if told["result"] else None
    _prctl(PR_SET_CHILD_SUBREAPER)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    place = _reserve(folder)
    kills = _oom_kills()
    began = time.time()
    with (folder / "stdout.log").open("ab") as out, (folder / "stderr.log").open("ab") as err:
        try:
            child = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                told["arguments"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=told["cwd"],
                env={**os.environ, **told["environment"], TAG: told["tag"]},
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            _leave(folder, place, {"why": "not started", "said": str(error), "exit": None, "began": began})
            return
    why, code = _watch(child.pid, result, asked)
    left = _end(told["tag"])
    document = {"why": why, "exit": code, "began": began, "oom_kills": _oom_kills() - kills, "left": left}
    _leave(folder, place, {**document, "disk_left": _disk_left(folder)})


def _watch(child: int, result: Path | None, asked: list[int]) -> tuple[str, int | None]:
    """Wait for the end; why it came, and the child's exit status as `subprocess` counts."""
    done_since = None
    while True:
        if asked:
            return "cancelled", None
        ready, _, _ = select.select([0], [], [], LOOK)
        if ready:
            return ("cancelled", None) if os.read(0, 64) else ("abandoned", None)
        for pid, status in _reaped():
            if pid == child:
                return "exited", os.waitstatus_to_exitcode(status)
        if result is not None and result.exists():
            done_since = done_since or time.monotonic()
            if time.monotonic() - done_since > LEAVE:
                return "done", None


def _reaped() -> list[tuple[int, int]]:
    """Children that have ended, adopted ones too."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, status))


def _end(tag: str) -> list[int]:
    """End all that is left of the job; the processes that could not be ended."""
    deadline, asked = time.monotonic() + STUBBORN, time.monotonic() + GRACE
    told: set[int] = set()
    while time.monotonic() < deadline:
        _reaped()
        left = members(tag, os.getpid())
        if not left:
            return []
        hard = time.monotonic() >= asked
        for pid in left if hard else left - told:
            _signal(pid, signal.SIGKILL if hard else signal.SIGTERM)
        told |= left
        time.sleep(LOOK / 2)
    return sorted(members(tag, os.getpid()))


def members(tag: str, root: int | None = None) -> set[int]:
    """Processes of a job: those that carry its tag, and all that descend from `root`; not `root` itself."""
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
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                tagged.add(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    found = set(tagged)
    if root is not None:
        for pid in parents:
            above: int | None = pid
            while above not in (None, 0, 1, root):
                above = parents.get(above) if above is not None else None
            if above == root and pid != root:
                found.add(pid)
    return found - {os.getpid()}


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _die_with_parent() -> None:
    """The child's first act: to be killed when this process is."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _prctl(option: int, value: int = 1) -> None:
    with suppress(AttributeError, OSError):  # not Linux: the tag still finds the job's processes
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _oom_kills() -> int:
    """Processes that the kernel has killed for want of memory: in this control group, else on this machine."""
    for path in _counters():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
        if found:
            return found[0]
    return 0


def _counters() -> list[Path]:
    """Where the kernel counts them."""
    root, found = Path("/sys/fs/cgroup"), []
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        groups = []
    for _, kind, path in (each for each in groups if len(each) == 3):
        if kind == "":
            found += [root / path.lstrip("/") / "memory.events", root / "memory.events"]
        elif "memory" in kind.split(","):
            found += [root / "memory" / path.lstrip("/") / "memory.oom_control", root / "memory/memory.oom_control"]
    return [*found, Path("/proc/vmstat")]


def _disk_left(folder: Path) -> int | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def _reserve(folder: Path) -> Path:
    """The room for what is left at the end, taken while there is some."""
    place = folder / f".ended.json.{os.getpid()}"
    with suppress(OSError):
        place.write_text(" " * RESERVED)
    return place


def _leave(folder: Path, place: Path, document: dict[str, object]) -> None:
    """What the tuner, this one or a later one, reads of the end; the file keeps its blocks, so a full disk has room."""
    text = json.dumps({**document, "ended": time.time()})
    with suppress(OSError):  # if all the same there is no room: that nobody keeps the job any more says it is over
        with place.open("r+" if place.exists() else "w") as file:
            file.write(text.ljust(RESERVED) + "\n")
        place.replace(folder / "ended.json")


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
