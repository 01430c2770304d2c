"""Jobs on this machine: real processes, each kept by a keeper that leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.errors import LaunchError, counted
from tuner.launch import keeper
from tuner.launch.contract import Job, Result, State, Status
from tuner.launch.follow import Follower
from tuner.launch.jsonfile import read_object, write_object
from tuner.launch.program import Program, Start
from tuner.launch.reading import outcome_of

LOOK: Final = 0.1
"""Seconds between two looks at jobs while nothing moves."""

FAREWELL: Final = 15.0
"""Seconds that a keeper may take to end its job; it kills what does not go."""

DUMP: Final = 0.7
"""Seconds that ranks may take to write down what they are doing."""


@dataclass(slots=True)
class _Kept:
    """A job that this process has started or taken over."""

    folder: Path
    tag: str
    keeper: int
    pipe: int | None
    """Our end of the keeper's pipe; None: another process had started it."""
    follower: Follower
    began: float
    last: int
    """The iteration after which it is measured."""


class Local:
    """This machine, one node of it."""

    name = "local"
    simulated = False
    outlives = False
    nodes = 1

    def __init__(self, program: Program, *, ranks: int) -> None:
        self._program, self._ranks = program, ranks
        self.on_host = program.on_host
        self._jobs: dict[str, _Kept] = {}
        self._clock = 0.0

    def now(self) -> float:
        """Seconds since 1970; a clock that is set back stands still."""
        self._clock = max(self._clock, time.time())
        return self._clock

    def wait(self, most: float) -> None:
        """Until a job's output has grown or its keeper has ended."""
        deadline = time.monotonic() + most
        before = self._marks()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
            if self._marks() != before:
                return

    def submit(self, job: Job) -> str:
        """Start a job under a keeper of its own."""
        if job.topology.gpus > self._ranks * self.nodes:
            raise LaunchError(
                f"{job.topology.key} wants {counted(job.topology.gpus, 'rank')}; this machine runs {self._ranks}."
            )
        try:
            job.folder.mkdir(parents=True, exist_ok=True)
            for name in ("ended.json", "result.json", "stdout.log", "stderr.log"):
                (job.folder / name).unlink(missing_ok=True)
            start = self._program.prepare(job)
            write_object(job.folder / "start.json", _document(start, job))
            process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                [sys.executable, "-I", str(Path(keeper.__file__).resolve()), str(job.folder.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise LaunchError(f"{job.folder} cannot be used: {error.strerror or error}.") from None
        assert process.stdin is not None  # noqa: S101 - it was asked for
        write_object(job.folder / "keeper.json", {"tag": job.tag, "keeper": process.pid, "last": max(job.iterations)})
        handle = json.dumps({"folder": str(job.folder.resolve()), "tag": job.tag})
        pipe = os.dup(process.stdin.fileno())
        process.stdin.close()
        process.returncode = 0  # `_reap` waits for it, and not this object, which would complain when it goes
        self._jobs[handle] = self._kept(job.folder, job.tag, process.pid, pipe, max(job.iterations))
        return handle

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Where each job is, by its output and its keeper's word."""
        _reap()
        return {handle: self._status(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Tell the keeper to end the job, and see that it does."""
        kept = self._find(handle)
        if kept is None:
            return
        if kept.pipe is not None:
            with suppress(OSError):
                os.write(kept.pipe, b"end\n")
        self._until_gone(kept)

    def collect(self, handle: str) -> Result:
        """How the job ended: by its result file, else by its log."""
        kept = self._find(handle)
        if kept is None or not self._over(kept):
            raise LaunchError("a job that has not ended cannot be collected.")
        ended = read_object(kept.folder / "ended.json") or {"why": "killed", "exit": None}
        measured = tuple(read_object(kept.folder / "start.json").get("iterations", [2]))
        return outcome_of(kept.folder, ended, measured, on_host=self._program.on_host)

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """A job of a tuner that was killed: its keeper ended it with the tuner; what it left is worth reading."""
        noted = read_object(job.folder / "keeper.json")
        if not noted or noted.get("tag") != job.tag:
            return None
        handle = json.dumps({"folder": str(job.folder.resolve()), "tag": job.tag})
        kept = self._kept(job.folder, job.tag, int(noted["keeper"]), None, int(noted["last"]))
        self._jobs[handle] = kept
        self._until_gone(kept)
        finished = (job.folder / "result.json").is_file()
        return handle if finished or self._told_by_itself(kept) else None

    def explain(self, handle: str) -> str:
        """Write down what every rank is doing, into the job's folder; which file tells, or why none does."""
        kept = self._find(handle)
        if kept is None:
            return ""
        with suppress(OSError):
            before = (kept.folder / "stderr.log").stat().st_size
            asked = 0
            for pid in keeper.members(kept.tag):
                if self._program.dumps_on_signal(pid):
                    os.kill(pid, signal.SIGUSR1)
                    asked += 1
            time.sleep(DUMP if asked else 0.0)
            text = (kept.folder / "stderr.log").read_bytes()[before:]
            if text:
                (kept.folder / "stacks.txt").write_bytes(text)
                return f"what {counted(asked, 'process')} of it did stands in {kept.folder.name}/stacks.txt"
        return ""

    def close(self) -> None:
        """End what still runs: nobody would keep it."""
        for handle in list(self._jobs):
            self.cancel(handle)
        for kept in self._jobs.values():
            if kept.pipe is not None:
                with suppress(OSError):
                    os.close(kept.pipe)
                kept.pipe = None

    def _kept(self, folder: Path, tag: str, pid: int, pipe: int | None, last: int) -> _Kept:
        folder = folder.resolve()
        follower = Follower(folder / "stdout.log")
        return _Kept(folder, tag, pid, pipe, follower, self.now(), last)

    def _find(self, handle: str) -> _Kept | None:
        if handle in self._jobs:
            return self._jobs[handle]
        try:
            told = json.loads(handle)
            folder, tag = Path(told["folder"]), str(told["tag"])
        except (ValueError, TypeError, KeyError):
            return None
        noted = read_object(folder / "keeper.json")
        if not noted or noted.get("tag") != tag:
            return None
        self._jobs[handle] = self._kept(folder, tag, int(noted["keeper"]), None, int(noted["last"]))
        return self._jobs[handle]

    def _status(self, handle: str) -> Status:
        kept = self._find(handle)
        if kept is None:
            return Status(state=State.LOST)
        now = self.now()
        over = self._over(kept)
        kept.follower.look(now)
        if not over and self._program.measured_by_log and kept.follower.iterations >= kept.last:
            self.cancel(handle)  # what was wanted is measured
            over = True
        if over:
            return Status(state=State.ENDED, iterations=kept.follower.iterations)
        since = kept.follower.finished or kept.began
        return Status(
            state=State.RUNNING,
            began=kept.began,
            iterations=kept.follower.iterations,
            seconds_in=now - since,
            share=kept.follower.share,
            moved=kept.follower.moved or kept.began,
        )

    def _over(self, kept: _Kept) -> bool:
        if (kept.folder / "ended.json").is_file():
            return True
        if _alive(kept.keeper):
            return False
        self._sweep(kept)  # the keeper itself was killed
        return True

    def _until_gone(self, kept: _Kept) -> None:
        """Wait for the keeper, and do its work where it is gone."""
        deadline = time.monotonic() + FAREWELL
        while _alive(kept.keeper) and time.monotonic() < deadline:
            if kept.pipe is None and not (kept.folder / "ended.json").is_file():
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

    def _told_by_itself(self, kept: _Kept) -> bool:
        ended = read_object(kept.folder / "ended.json")
        return bool(ended) and ended.get("why") in ("exited", "not started")

    def _marks(self) -> list[tuple[int, bool]]:
        """What changes when anything does."""
        found = []
        for kept in self._jobs.values():
            if kept.pipe is not None:
                size = _size(kept.folder / "stdout.log") + _size(kept.folder / "stderr.log")
                found.append((size, (kept.folder / "ended.json").is_file() or not _alive(kept.keeper)))
        return found


def _document(start: Start, job: Job) -> dict[str, Any]:
    return {
        "schema": "tuner/start/1",
        "tag": job.tag,
        "arguments": list(start.arguments),
        "environment": dict(start.environment),
        "cwd": str(start.cwd),
        "result": str(start.result) if start.result else None,
        "iterations": list(job.iterations),
        "found": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_TOLD)},
    }


_TOLD: Final = ("CUDA_", "NCCL_", "OMP_", "DS_", "TORCH_", "SLURM_", "GLOO_", "HIP_", "ROCR_", "PATH", "LD_LIBRARY")
"""Names of the environment that decide how a job runs and hold no secret."""


def _alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _reap() -> None:
    """Keepers that have ended are our children; none may stay a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
