"""Ranks of jobs, forked from one process that has imported torch and DeepSpeed: `python -m tests.worker_ranks`.

Forked ranks need no imports, which take seconds: an 8-rank job runs in a sixth of the time that a launcher needs. Each
line of stdin is a JSON object with `folder`, `ranks` and the number of ranks to `start`; each line of stdout is the
list of their exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from tuner.core.ports import free_port

LIMIT = 300.0
"""Seconds after which a job counts as hung, with a margin for a busy machine."""
GRACE = 2.0
"""Seconds in which the other ranks may end by themselves after one has failed."""


def main() -> None:
    """Serve jobs until stdin ends."""
    import deepspeed

    import tuner.worker.train  # noqa: F401 - what the ranks inherit

    assert deepspeed
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_run(Path(asked["folder"]), asked["ranks"], asked["start"])), flush=True)


def _run(folder: Path, ranks: int, start: int) -> list[int]:
    port = free_port("127.0.0.1")
    running = {}
    for rank in range(start):
        child = os.fork()
        if not child:
            _become(folder, rank, ranks, port)
        running[child] = rank
    codes = [-1] * start
    deadline = time.monotonic() + LIMIT
    while running:
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
                deadline = min(deadline, time.monotonic() + GRACE) if code else deadline
        if time.monotonic() > deadline:
            for child in running:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return codes


def _become(folder: Path, rank: int, ranks: int, port: int) -> NoReturn:
    """Run one rank in this process and exit."""
    code = 99
    try:
        for descriptor, name in ((1, "stdout.log"), (2, "stderr.log")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        from tuner.worker.__main__ import main as rank_main

        code = rank_main(["--job", str(folder / "job.json")])
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
