"""Jobs on this machine: real processes, each kept by a keeper that leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import LaunchError
from tuner.core.text import counted
from tuner.launch import supervisor as keeper
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.launch.log_tail import LogTail
from tuner.launch.outcome import outcome_of
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.stacks import write_stacks

LOOK: Final = 0.1
"""Seconds between two looks at jobs while nothing moves."""

FAREWELL: Final = 15.0
"""Seconds that a keeper may take to end its job; it kills what does not go."""

LEFT: Final = ("ended.json", "keeper.json", "result.json", "stacks.txt", "stdout.log", "stderr.log")
"""What an earlier job of the same folder may have left."""


@dataclass(slots=True)
class _Kept:
    """A job that this process has started, will start, or has taken over."""

    folder: Path
    tag: str
    nodes: int
    last: int
    """The iteration after which it is measured."""
    follower: LogTail
    keeper: int | None = None
    """The keeper's process; None while the job waits for nodes."""
    own: subprocess.Popen[bytes] | None = None
    """The same where it is our child; its stdin is the pipe by which it knows that we live."""
    began: float | None = None
    over: bool = False
    """Whether all its processes are gone."""


class LocalLauncher:
    """This machine, one node of it; or several, where the program itself reaches the others."""

    simulated = False
    outlives = False

    def __init__(self, program: Program, *, ranks: int, nodes: int = 1, name: str = "local") -> None:
        self._program, self._ranks = program, ranks
        self.name, self.nodes = name, nodes
        self.on_host = program.on_host
        self._jobs: dict[str, _Kept] = {}
        self._clock = 0.0
        self._seen: list[tuple[int, bool]] = []
        """How the jobs' files stood when they were last looked at."""

    def now(self) -> float:
        """Seconds since 1970; a clock that is set back stands still."""
        self._clock = max(self._clock, time.time())
        return self._clock

    def wait(self, most: float) -> None:
        """Until a job's output has grown since it was last looked at, or its keeper has ended."""
        deadline = time.monotonic() + most
        while (now := self._marks()) == self._seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
        self._seen = now

    def submit(self, job: Job) -> str:
        """Start a job under a keeper of its own, as soon as those before it leave it its nodes."""
        if job.topology.gpus > self._ranks * self.nodes:
            raise LaunchError(
                f"{job.topology.key} wants {counted(job.topology.gpus, 'rank')}; there can be "
                f"{self._ranks * self.nodes}."
            )
        folder = job.folder.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in LEFT:
                (folder / name).unlink(missing_ok=True)
            write_object(folder / "start.json", _document(self._program.prepare(job), job))
        except OSError as error:
            raise _unusable(folder, error) from None
        handle = json.dumps({"folder": str(folder), "tag": job.tag})
        kept = _Kept(folder, job.tag, job.topology.nodes, max(job.iterations), LogTail(folder / "stdout.log"))
        self._jobs[handle] = kept
        try:
            self._start_next()
        except OSError as error:
            del self._jobs[handle]
            raise _unusable(folder, error) from None
        return handle

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Where each job is, by its output and its keeper's word."""
        self._seen = self._marks()
        self._start_next()
        return {handle: self._status(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Tell the keeper to end the job, and see that it does."""
        kept = self._find(handle)
        if kept is None:
            return
        if kept.keeper is None:
            if not _ended(kept):
                write_object(kept.folder / "ended.json", {"why": "cancelled", "exit": None})
        else:
            _hang_up(kept, b"end\n")
            self._until_gone(kept)

    def collect(self, handle: str) -> JobResult:
        """How the job ended: by its result file, else by its log."""
        kept = self._find(handle)
        if kept is None or not self._over(kept):
            raise LaunchError("a job that has not ended cannot be collected.")
        ended = read_object(kept.folder / "ended.json") or {"why": "killed", "exit": None}
        measured = tuple(read_object(kept.folder / "start.json").get("iterations", [2]))
        return outcome_of(kept.folder, ended, measured, on_host=self._program.on_host)

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """A job of a tuner that is gone: its keeper ended it with the tuner; what it left is worth reading."""
        handle = json.dumps({"folder": str(job.folder.absolute()), "tag": job.tag})
        kept = self._find(handle)
        if kept is None:
            return None
        if kept.own is not None or kept.keeper is None:
            return handle  # it is our own, and lives
        self._until_gone(kept)
        finished = (kept.folder / "result.json").is_file() or self._measured(kept)
        return handle if finished or _told_by_itself(kept) else None

    def explain(self, handle: str) -> str:
        """Write down what every rank is doing, into the job's folder; which file tells, or why none does."""
        kept = self._find(handle)
        if kept is None:
            return ""
        file = kept.folder / "stacks.txt"
        told = write_stacks(keeper.members(kept.tag), kept.folder / "stderr.log", file, self._program.dumps_on_signal)
        if not file.is_file():
            return ""
        return f"what its processes did stands in {kept.folder.name}/stacks.txt, of {told} the stack"

    def close(self) -> None:
        """End what still runs: nobody would keep it."""
        for handle, kept in self._jobs.items():
            if kept.own is not None or kept.keeper is None:
                self.cancel(handle)

    def _start_next(self) -> None:
        """Start the jobs that wait, in their order, as far as there are nodes."""
        for kept in self._jobs.values():
            if kept.keeper is not None or _ended(kept):
                continue
            if self._held() + kept.nodes > self.nodes:
                return
            kept.own = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                [sys.executable, "-I", str(Path(keeper.__file__).resolve()), str(kept.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            kept.keeper, kept.began = kept.own.pid, self.now()
            noted = {"tag": kept.tag, "keeper": kept.keeper, "last": kept.last, "nodes": kept.nodes}
            write_object(kept.folder / "keeper.json", {**noted, "host": socket.gethostname()})

    def _held(self) -> int:
        """Nodes of the jobs that run."""
        return sum(each.nodes for each in self._jobs.values() if each.keeper is not None and not self._over(each))

    def _find(self, handle: str) -> _Kept | None:
        if handle in self._jobs:
            return self._jobs[handle]
        try:
            told = json.loads(handle)
            folder, tag = Path(told["folder"]), str(told["tag"])
        except (ValueError, TypeError, KeyError):
            return None
        noted = read_object(folder / "keeper.json")
        if not noted or noted.get("tag") != tag or noted.get("host") != socket.gethostname():
            return None
        kept = _Kept(folder, tag, int(noted["nodes"]), int(noted["last"]), LogTail(folder / "stdout.log"))
        kept.keeper, kept.began = int(noted["keeper"]), self.now()
        self._jobs[handle] = kept
        return kept

    def _status(self, handle: str) -> JobStatus:
        kept = self._find(handle)
        if kept is None:
            return JobStatus(state=JobState.LOST)
        if kept.keeper is None and not _ended(kept):
            return JobStatus(state=JobState.WAITING, reason=f"other jobs have {counted(self._held(), 'node')}")
        over = self._over(kept)
        now = self.now()
        kept.follower.read(now)
        if not over and self._measured(kept):
            self.cancel(handle)  # what was wanted is measured
            over = True
        if over:
            kept.follower.read(now)
            return JobStatus(state=JobState.ENDED, iterations=kept.follower.progress.iterations)
        since = kept.follower.progress.finished or kept.began or now
        return JobStatus(
            state=JobState.RUNNING,
            began=kept.began,
            iterations=kept.follower.progress.iterations,
            seconds_in=max(0.0, now - since),  # the file may be stamped by a clock a little ahead
            share=kept.follower.progress.share,
            moved=kept.follower.progress.moved or kept.began,
        )

    def _measured(self, kept: _Kept) -> bool:
        """Whether its log alone shows all that was wanted."""
        kept.follower.read(self.now())
        return self._program.measured_by_log and kept.follower.progress.iterations >= kept.last

    def _over(self, kept: _Kept) -> bool:
        """Whether it has ended; where the keeper itself was killed, its work is done here."""
        if not kept.over and not (kept.keeper is None and not _ended(kept)) and not _alive(kept):
            if not _ended(kept):
                self._sweep(kept)
            kept.over = True
        return kept.over

    def _until_gone(self, kept: _Kept) -> None:
        """Wait for the keeper, and do its work where it is gone."""
        deadline = time.monotonic() + FAREWELL
        while _alive(kept) and time.monotonic() < deadline:
            if kept.own is None and kept.keeper is not None and not _ended(kept):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(kept.keeper, signal.SIGTERM)  # another tuner's: its pipe is not ours
            time.sleep(0.02)
        self._sweep(kept)

    def _sweep(self, kept: _Kept) -> None:
        """Kill what carries the job's tag."""
        deadline = time.monotonic() + FAREWELL
        while (left := keeper.members(kept.tag)) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _marks(self) -> list[tuple[int, bool]]:
        """What changes when anything does."""
        return [
            (_size(kept.folder / "stdout.log") + _size(kept.folder / "stderr.log"), not _alive(kept))
            for kept in self._jobs.values()
            if not kept.over and kept.keeper is not None
        ]


def _unusable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(f"{folder} cannot be used: {error.strerror or error}.")


def _ended(kept: _Kept) -> bool:
    return (kept.folder / "ended.json").is_file()


def _told_by_itself(kept: _Kept) -> bool:
    return read_object(kept.folder / "ended.json").get("why") in ("exited", "not started")


def _hang_up(kept: _Kept, last: bytes = b"") -> None:
    """Say a last word to a keeper of ours, and close its pipe."""
    if kept.own is not None and kept.own.stdin is not None:
        with suppress(OSError, ValueError):
            if last:
                os.write(kept.own.stdin.fileno(), last)
            else:
                kept.own.stdin.close()


def _document(start: ProcessSpec, job: Job) -> dict[str, Any]:
    return {
        "schema": "tuner/start/1",
        "tag": job.tag,
        "arguments": list(start.arguments),
        "environment": {**start.environment, **job.environment},
        "cwd": str(start.cwd),
        "result": str(start.result) if start.result else None,
        "iterations": list(job.iterations),
        "found": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_TOLD)},
    }


_TOLD: Final = ("CUDA_", "NCCL_", "OMP_", "DS_", "TORCH_", "SLURM_", "GLOO_", "HIP_", "ROCR_", "PATH", "LD_LIBRARY")
"""Names of the environment that decide how a job runs and hold no secret."""


def _alive(kept: _Kept) -> bool:
    """Whether its keeper is there: our child, or another's, told by what it runs, since numbers are used again."""
    if kept.own is not None:
        if kept.own.poll() is None:
            return True
        _hang_up(kept)
        return False
    try:
        words = Path(f"/proc/{kept.keeper}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(kept.folder) in words


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
