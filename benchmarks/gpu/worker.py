"""One process that trains many assignments with the shipped worker: `python -m benchmarks.gpu.worker`.

A separate job takes 10 to 15 s to import torch and DeepSpeed and to set up the GPU, but a row of a few iterations takes
only 1 to 3 s. This process reads the path of an assignment from each line of stdin, trains it with
`tuner.worker.train.train`, as a job does, writes the output to the assignment's folder, and answers with a line of
JSON. Between two rows it destroys the engine and the process group and frees all GPU memory. Each answer contains the
memory that was still allocated before and after the row, so that a leaking process is detected and replaced.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tuner.core.assignment import Assignment
from tuner.core.errors import TunerError


def answer_lines(run: Callable[[Path], dict[str, Any]]) -> None:
    """Run the assignment on each line of stdin until stdin ends, and answer each with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        path = Path(line.strip())
        with output_to(path.parent):
            answer = run(path)
        answers.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # A regular exit would spend seconds on torch's cleanup.
    os._exit(0)


def run(path: Path) -> dict[str, Any]:
    """Train one assignment and return the answer of this process; the worker itself writes the result file."""
    own_rank()
    answer: dict[str, Any] = {"exit": 0, "pid": os.getpid()}
    began = time.time()
    try:
        from tuner.worker.train import train  # torch and deepspeed take seconds to import

        answer["before"] = memory()
        answer["began"] = time.time()  # without the imports
        train(Assignment.read(path))
        answer["peak"] = memory()
    except TunerError as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        answer["exit"] = error.exit_code
    except Exception:  # a failed job is a row, and its log has the reason
        traceback.print_exc()
        answer["exit"] = 1
    answer.setdefault("began", began)
    answer["ended"] = time.time()
    with suppress(Exception):  # fails after an illegal access on the GPU; the next row detects it
        release()
    with suppress(Exception):
        answer["after"] = memory()
    return answer


def memory() -> dict[str, float]:
    """Return the bytes allocated by torch, and those in use on the whole GPU, as nvidia-smi shows; empty on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"allocated": float(torch.cuda.memory_allocated()), "in_use": float(total - free)}


def nvidia_smi(query: str) -> float | None:
    """Return one figure of the first GPU from nvidia-smi, or None if it is not available."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    arguments = [program, "--id=0", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=True).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def release() -> None:
    """Destroy DeepSpeed's engines and groups and free all memory, so that the next row starts like a new job."""
    import deepspeed
    import torch
    from deepspeed.comm import comm
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.runtime.zero import parameter_offload

    for engine in [each for each in gc.get_objects() if issubclass(type(each), DeepSpeedEngine)]:
        with suppress(Exception):  # after a failed row, it may be partly built
            engine.destroy()
        del engine
    if torch.distributed.is_initialized():
        deepspeed.comm.destroy_process_group()
    comm.cdb = None
    parameter_offload.FWD_MODULE_STACK.clear()  # ZeRO 3 leaves the model in it
    for cache in [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]:
        if (getattr(cache, "__module__", None) or "").startswith("deepspeed"):
            cache.cache_clear()  # ZeRO 3's caches keep modules and coordinators alive
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        with suppress(AttributeError):  # pinned memory of offloaded states, from torch 2.5 on
            torch._C._host_emptyCache()
        torch.cuda.reset_peak_memory_stats()


def own_rank() -> None:
    """Set the variables that a launcher sets for a job of one rank."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(rank | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})


@contextmanager
def output_to(folder: Path) -> Iterator[None]:
    """Redirect the output of this process, including its libraries, to the logs in a job's folder."""
    kept = os.dup(1), os.dup(2)
    try:
        for number, name in ((1, "stdout.log"), (2, "stderr.log")):
            with (folder / name).open("wb") as file:
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


if __name__ == "__main__":
    answer_lines(run)
