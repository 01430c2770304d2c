"""Run all ranks of a job on one node: `python -m tuner.worker.ranks --job job.json`.

On a CPU, the ranks are forks of one process that has imported torch and DeepSpeed, so that eight ranks start in the
time of one import. On an accelerator, each rank is a new process, because drivers do not survive a fork. If one rank
fails or this process is killed, the other ranks are terminated.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.core.assignment import Assignment
from tuner.core.errors import TunerError
from tuner.core.ports import free_port

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for the other ranks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the ranks, wait for them, and return the exit code of the first failure, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tuner.worker.ranks", description="Train one assignment.")
    parser.add_argument("--job", required=True, type=Path, metavar="FILE.json", help="the assignment")
    job = parser.parse_args(arguments).job
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # inherited by the ranks
    try:
        ranks = Assignment.read(job).topology.gpus
    except TunerError as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    forked = os.environ.get("DS_ACCELERATOR") == "cpu"
    if forked:
        import tuner.worker.train  # noqa: F401 - once, for all ranks
    port = free_port("127.0.0.1")
    pids = [_start(job, rank, ranks, port, forked=forked) for rank in range(ranks)]
    return _wait(pids)


def _start(job: Path, rank: int, ranks: int, port: int, *, forked: bool) -> int:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        _die_with(parent)
        _prctl(PR_SET_NAME, f"rank {rank}".encode())  # shown by ps, top and py-spy
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in env.items()} | {"MASTER_ADDR": "127.0.0.1"})
        if not forked:
            os.execv(sys.executable, [sys.executable, "-m", "tuner.worker", "--job", str(job)])  # noqa: S606 - no shell
        from tuner.worker.__main__ import leave

        leave(["--job", str(job)])
    finally:
        os._exit(1)


def _wait(pids: list[int]) -> int:
    """Wait for all ranks; after the first failure, terminate the others and kill them after `GRACE` seconds."""
    left, failed, deadline = set(pids), 0, float("inf")
    while left:
        ended = _reap(left)
        left -= ended.keys()
        # A rank that was killed comes first: others that ended meanwhile failed because it was gone.
        code, pid = min(((code, pid) for pid, code in ended.items() if code), default=(0, 0))
        if code and not failed:
            print(f"worker: rank {pids.index(pid)} {_describe_exit(code)}", file=sys.stderr, flush=True)
            failed, deadline = code if code > 0 else 128 - code, time.monotonic() + GRACE
            for other in left:
                os.kill(other, signal.SIGTERM)
        if ended:
            continue
        if time.monotonic() > deadline:
            for other in left:
                os.kill(other, signal.SIGKILL)
        time.sleep(0.01)
    return failed


def _reap(pids: set[int]) -> dict[int, int]:
    """Return the exit codes of those processes that have ended; of one that was killed, minus the signal."""
    statuses = {pid: os.waitpid(pid, os.WNOHANG) for pid in pids}
    return {pid: os.waitstatus_to_exitcode(status) for pid, (ended, status) in statuses.items() if ended}


def _describe_exit(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int | bytes) -> None:
    with suppress(AttributeError, OSError):  # not Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    answer = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All output is flushed; a regular exit would wait for torch's cleanup.
    os._exit(answer)
