"""A rank of a job: `torchrun --standalone --nproc-per-node 4 -m tuner.worker --job job.json`.

Exit codes: 0 the result file is written; 1 the training failed; 2 the assignment cannot be run. Launchers lose exit
codes, so the result file alone is the proof of success.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tuner.core.assignment import Assignment
from tuner.core.errors import InputError, TunerError

_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
}
"""By what mpirun tells a rank its place."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner.worker", description="Train one assignment, as one rank.")
    parser.add_argument("--job", required=True, type=Path, metavar="FILE.json", help="the assignment")
    job = parser.parse_args(arguments).job
    for name, said in _MPI.items():
        if said in os.environ:
            os.environ.setdefault(name, os.environ[said])
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assignment = Assignment.read(job)
        _check_ranks(assignment)
        from tuner.worker.train import train  # torch and deepspeed take seconds to import

        train(assignment)
    except TunerError as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _check_ranks(assignment: Assignment) -> None:
    """The launcher's count of ranks is the topology's."""
    topology, started = assignment.topology, os.environ.get("WORLD_SIZE", "1")
    if started != str(topology.gpus):
        raise InputError(
            f"tp x pp x cp x dp = {topology.tp} x {topology.pp} x {topology.cp} x {topology.dp} = {topology.gpus} is "
            f"not the number of ranks that were started, which is {started}."
        )


def leave(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one rank and end the process with its exit code, whatever happens."""
    try:
        code = main(arguments)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Leaving by the interpreter takes seconds while torch tears itself down, or for ever where a peer is gone.
    os._exit(code)


if __name__ == "__main__":
    leave()
