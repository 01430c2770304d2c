"""Jobs on this machine: real processes, each under a supervisor that leaves nothing running."""

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
from tuner.launch import supervisor
from tuner.launch.command_line import runs, wait_until_shown
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.launch.extensions import own_folder
from tuner.launch.local.neighbours import NOTE, nodes_in_use, one_at_a_time
from tuner.launch.log_tail import OUTPUTS, JobTail, output_size
from tuner.launch.outcome import noted_batches, noted_run, noted_size, outcome_of, size_note
from tuner.launch.program import ProcessSpec, Program
from tuner.launch.stacks import write_stacks
from tuner.launch.trainer_log import link_log

POLL_SECONDS: Final = 0.1
"""Seconds between two checks of the jobs' files."""

MAX_CANCEL_SECONDS: Final = 25.0
"""Seconds that a supervisor may take to end its job, before the launcher kills the rest."""

EXTENSIONS: Final = "torch_extensions"
"""The folder next to `jobs/` into which the jobs of a study compile extensions."""

_STALE_FILES: Final = ("ended.json", NOTE, "result.json", "stacks.txt", *OUTPUTS)
"""Files that an earlier job may have left in a folder."""

_RECORDED_VARIABLES: Final = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME"),
    *("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT"),
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET", "NCCL_ALGO", "NCCL_PROTO"),
    *("NCCL_NVLS_ENABLE", "GLOO_SOCKET_IFNAME", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    *("DS_ACCELERATOR", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_CUDA_ARCH_LIST", "TORCH_DISTRIBUTED_DEBUG"),
    *("TORCH_EXTENSIONS_DIR", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
    *("SLURM_JOB_NUM_NODES", "PATH", "LD_LIBRARY_PATH"),
)
"""Environment variables that affect a job, by exact name: a prefix such as `SLURM_` would also record `SLURM_JWT`."""


@dataclass(slots=True)
class _LocalJob:
    """A job that this process has started, will start, or has adopted."""

    folder: Path
    tag: str
    nodes: int
    last_iteration: int
    """The iteration that ends the job, counted from its start."""
    log: JobTail
    trainer_log: Path | None = None
    """The file of `--log`."""
    supervisor: int | None = None
    """Process id of its supervisor; None while the job waits for nodes."""
    child: subprocess.Popen[bytes] | None = None
    """The supervisor, if this process started it; its stdin is a pipe that closes when the tuner exits."""
    began: float | None = None
    over: bool = False
    """Whether all its processes are gone."""

    @property
    def has_end_file(self) -> bool:
        """Whether the supervisor has reported the end."""
        return (self.folder / "ended.json").is_file()

    @property
    def waiting(self) -> bool:
        """Whether the job has not been started."""
        return self.supervisor is None and not self.has_end_file

    @property
    def running(self) -> bool:
        """Whether the supervisor runs: a child, or else by its command line, since process ids are reused."""
        if self.child is not None:
            if self.child.poll() is None:
                return True
            self.close_pipe()
            return False
        return runs(self.supervisor, self.folder)

    def request_end(self) -> None:
        """Ask a supervisor that this process started to end its job."""
        if self.child is not None and self.child.stdin is not None:
            with suppress(OSError, ValueError):
                os.write(self.child.stdin.fileno(), b"end\n")

    def close_pipe(self) -> None:
        """Close the pipe to a supervisor that has exited."""
        if self.child is not None and self.child.stdin is not None:
            with suppress(OSError, ValueError):
                self.child.stdin.close()

    def kill_stragglers(self) -> None:
        """Kill every process that carries the job's tag, and a supervisor that its job may have stopped."""
        deadline = time.monotonic() + MAX_CANCEL_SECONDS
        while (
            left := [*supervisor.members(self.tag), *[self.supervisor] * self.running]
        ) and time.monotonic() < deadline:
            for pid in filter(None, left):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


class LocalLauncher:
    """This machine as one node, or as several if the program itself reaches the others."""

    simulated = False
    queues = False
    outlives = False

    def __init__(self, program: Program, *, ranks: int, nodes: int = 1, name: str = "local") -> None:
        self._program, self._ranks_per_node = program, ranks
        self.name, self.nodes = name, nodes
        self.on_host, self.several_batches = program.on_host, program.several_batches
        self._jobs: dict[str, _LocalJob] = {}
        self._epoch = time.time() - time.monotonic()
        self._last_marks: list[tuple[int, bool]] = []
        """The marks of the jobs' files when they were last read."""

    def now(self) -> float:
        """Return the seconds since 1970, by a clock that is never set."""
        return self._epoch + time.monotonic()

    def wait(self, most: float) -> None:
        """Wait until a job's output has grown since the last poll, or its supervisor has exited."""
        deadline = time.monotonic() + most
        while (marks := self._marks()) == self._last_marks and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))
        self._last_marks = marks

    # -- submitting

    def submit(self, job: Job) -> str:
        """Start a job under a supervisor of its own, once earlier jobs leave enough nodes."""
        capacity = self._ranks_per_node * self.nodes
        if job.topology.gpus > capacity:
            needs, usable = counted(job.topology.gpus, "rank"), counted(capacity, "rank")
            raise LaunchError(f"{job.topology.key} needs {needs}, but only {usable} can be used.")
        folder = job.folder.resolve()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in _STALE_FILES:
                (folder / name).unlink(missing_ok=True)
            start = self._program.prepare(job)
            write_object(folder / "start.json", _start_document(start, job), private=True)
        except OSError as error:
            raise _unusable(folder, error) from None
        handle = json.dumps({"folder": str(folder), "tag": job.tag})
        tail = JobTail(folder, self._program.step_pattern)
        self._jobs[handle] = new = _LocalJob(
            folder, job.tag, job.topology.nodes, max(job.iterations), tail, trainer_log=start.log
        )
        try:
            self._start_next(new)
        except LaunchError:
            del self._jobs[handle]
            raise
        except OSError as error:
            del self._jobs[handle]
            raise _unusable(folder, error) from None
        return handle

    def _start_next(self, new: _LocalJob | None = None) -> None:
        """Start the waiting jobs in their order, while there are nodes; raise only for a new one that cannot start."""
        for local in self._jobs.values():
            if local.waiting:
                with one_at_a_time(local.folder.parent):
                    if self._busy_nodes(local) + local.nodes > self.nodes:
                        return
                    try:
                        self._start(local)
                    except LaunchError as error:
                        if local is new:
                            raise
                        _write_end(local.folder, "not started", said=str(error))

    def _start(self, local: _LocalJob) -> None:
        if local.trainer_log is not None:  # now that no other job of the study writes it
            link_log(local.folder, local.trainer_log)
        local.child = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            [sys.executable, "-I", str(Path(supervisor.__file__).resolve()), str(local.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        local.supervisor, local.began = local.child.pid, self.now()
        note = {"tag": local.tag, "keeper": local.supervisor, "last": local.last_iteration, "nodes": local.nodes}
        wait_until_shown(local.supervisor, local.folder)  # or another tuner would take it for gone
        write_object(local.folder / NOTE, {**note, "host": socket.gethostname()})

    def _busy_nodes(self, waiting: _LocalJob) -> int:
        """Return the nodes that run jobs, of this process and of others in the folder of a job that waits."""
        own = [local for local in self._jobs.values() if local.supervisor is not None and not self._is_over(local)]
        others = nodes_in_use(waiting.folder.parent, {local.folder for local in self._jobs.values()})
        return sum(local.nodes for local in own) + others

    # -- watching

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return each job's status, by its output and its supervisor."""
        self._last_marks = self._marks()
        with suppress(OSError):  # the folder is gone
            self._start_next()
        return {handle: self._status(handle) for handle in handles}

    def _status(self, handle: str) -> JobStatus:
        local = self._find(handle)
        if local is None:
            return JobStatus(state=JobState.LOST)
        if local.waiting:
            if not local.folder.is_dir():
                return JobStatus(state=JobState.LOST)
            return JobStatus(state=JobState.WAITING, reason=f"{counted(self._busy_nodes(local), 'node')} in use")
        over, now = self._is_over(local), self.now()
        local.log.read(now)
        if not over and self._is_measured(local):
            self.cancel(handle)
            over = True
        if over:
            local.log.read(now, whole=True)
            progress = local.log.progress
            return JobStatus(state=JobState.ENDED, iterations=progress.iterations, number=progress.number)
        progress = local.log.progress
        return progress.status(began=local.began or now, now=now)

    def _is_measured(self, local: _LocalJob) -> bool:
        """Whether a job that its log measures has finished its last iteration."""
        local.log.read(self.now())
        return self._program.measured_by_log and local.log.progress.complete(local.last_iteration)

    def _is_over(self, local: _LocalJob) -> bool:
        """Whether a job has ended; if its supervisor was killed, kill the remaining processes."""
        if not local.over and not local.waiting and not local.running:
            if not local.has_end_file:
                local.kill_stragglers()
            local.over = True
        return local.over

    def _marks(self) -> list[tuple[int, bool]]:
        """Return a value that changes whenever a running job's output grows or its supervisor exits."""
        return [
            (output_size(local.folder), not local.running)
            for local in self._jobs.values()
            if not local.over and local.supervisor is not None
        ]

    def explain(self, handle: str) -> str:
        """Write every rank's stack into the job's folder; return which file has them, or why there is none."""
        local = self._find(handle)
        if local is None:
            return ""
        file = local.folder / "stacks.txt"
        members = supervisor.members(local.tag)
        count = write_stacks(members, local.folder / "stderr.log", file, self._program.dumps_on_signal)
        if not count or not file.is_file():
            return ""
        return f"stacks of {count} of its processes: {local.folder.name}/stacks.txt"

    # -- ending

    def cancel(self, handle: str) -> None:
        """End the job, and return when all its processes are gone."""
        local = self._find(handle)
        if local is None:
            return
        if local.supervisor is not None:
            local.request_end()
            self._wait_until_gone(local)
        elif not local.has_end_file and local.folder.is_dir():
            _write_end(local.folder, "cancelled")

    def _wait_until_gone(self, local: _LocalJob) -> None:
        """Wait for the supervisor to exit, and kill remaining processes."""
        deadline = time.monotonic() + MAX_CANCEL_SECONDS
        while local.running and time.monotonic() < deadline:
            if local.child is None and local.supervisor is not None and not local.has_end_file:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(local.supervisor, signal.SIGTERM)  # started by another tuner, whose pipe is not available
            time.sleep(0.02)
        local.kill_stragglers()

    def collect(self, handle: str) -> JobResult:
        """Return the job's result: by its result file, or else by its log."""
        local = self._find(handle)
        if local is None or not self._is_over(local):
            raise LaunchError("a job that has not ended has no result to collect.")
        killed = {"why": "killed", "exit": None, "began": local.began, "ended": self.now()}
        ended = read_object(local.folder / "ended.json") or killed
        start = read_object(local.folder / "start.json")
        return outcome_of(
            local.folder,
            ended,
            tuple(start.get("iterations", [2])),
            on_host=self._program.on_host,
            by_log=self._program.measured_by_log,
            batches=noted_batches(start),
            size=noted_size(start),
            wanted=noted_run(start),
            pattern=self._program.step_pattern,
        )

    def close(self) -> None:
        """End the jobs that still run."""
        for handle, local in self._jobs.items():
            if local.child is not None or local.supervisor is None:
                self.cancel(handle)

    # -- adopting

    def adopt(self, job: Job, handle: str | None) -> str | None:
        """Return the handle of an earlier tuner's job that ended by itself; its supervisor cancels any other one."""
        handle = json.dumps({"folder": str(job.folder.resolve()), "tag": job.tag})
        local = self._find(handle)
        if local is None:
            return None
        if local.child is not None or local.supervisor is None:
            return handle
        self._wait_until_gone(local)
        finished = (local.folder / "result.json").is_file() or self._is_measured(local)
        ended_by_itself = read_object(local.folder / "ended.json").get("why") in ("exited", "not started")
        return handle if finished or ended_by_itself else None

    def _find(self, handle: str) -> _LocalJob | None:
        """Return the job of a handle, of this process or of an earlier one on this machine."""
        if handle in self._jobs:
            return self._jobs[handle]
        try:
            document = json.loads(handle)
            folder, tag = Path(document["folder"]), str(document["tag"])
        except (ValueError, TypeError, KeyError):
            return None
        note = read_object(folder / NOTE)
        if not note or note.get("tag") != tag or note.get("host") != socket.gethostname():
            return None
        local = _LocalJob(
            folder, tag, int(note["nodes"]), int(note["last"]), JobTail(folder, self._program.step_pattern)
        )
        local.supervisor, local.began = int(note["keeper"]), self.now()
        self._jobs[handle] = local
        return local


def _write_end(folder: Path, why: str, **details: str) -> None:
    """Write the end of a job that was never started."""
    write_object(folder / "ended.json", {"why": why, "exit": None, **details})


def _unusable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(f"cannot start a job in {folder}: {error.strerror or error}.")


def _start_document(start: ProcessSpec, job: Job) -> dict[str, Any]:
    """Return the supervisor's input and, for readers, the environment variables that affect a job."""
    return {
        "schema": "tuner/start/1",
        "tag": job.tag,
        "arguments": list(start.arguments),
        "environment": {**own_folder(job.folder.parent.parent / EXTENSIONS), **start.environment, **job.environment},
        "cwd": str(start.cwd),
        "result": str(start.result) if start.result else None,
        "grace": start.grace,
        "iterations": list(job.iterations),
        **size_note(job),
        "found": {name: os.environ[name] for name in sorted(_RECORDED_VARIABLES) if name in os.environ},
    }
