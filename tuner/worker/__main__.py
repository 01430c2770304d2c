"""Entry point of one rank: `torchrun --standalone --nproc-per-node 4 -m tuner.worker --job job.json`.

Exit codes: 0 the result file is written; 1 the training failed; 2 the assignment is invalid. Launchers may lose exit
codes, so only the result file proves success.
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
"""torchrun's variables and the ones that mpirun sets instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner.worker", description="Train one assignment, as one rank.")
    parser.add_argument("--job", required=True, type=Path, metavar="FILE.json", help="the assignment")
    job = parser.parse_args(arguments).job
    for name, mpi_name in _MPI.items():
        if mpi_name in os.environ:
            os.environ.setdefault(name, os.environ[mpi_name])
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
    """Raise `InputError` if the launcher did not start as many ranks as the topology has."""
    topology, started = assignment.topology, os.environ.get("WORLD_SIZE", "1")
    if started != str(topology.gpus):
        raise InputError(
            f"tp x pp x cp x dp = {topology.tp} x {topology.pp} x {topology.cp} x {topology.dp} = {topology.gpus} is "
            f"not the number of ranks that were started, which is {started}."
        )


def leave(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one rank and exit the process with its exit code, whatever happens."""
    try:
        code = main(arguments)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # A regular exit takes seconds of torch's cleanup, and hangs if another rank is gone.
    os._exit(code)


if __name__ == "__main__":
    leave()
