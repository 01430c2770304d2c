"""Report the machine's frameworks, accelerator and speed: a separate program that prints one JSON document.

python -m tuner.worker.probe             versions, accelerator, NCCL, DeepSpeed and its ops
python -m tuner.worker.probe --measure   also the speed of a matrix product, a copy, a collective and of launching
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

RUNS = 5
LAUNCHES = 200
RANKS = 2
WORDS = 4_000_000
"""Number of fp32 words in the timed all-reduce."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner.worker.probe")
    parser.add_argument("--measure", action="store_true")
    measure = parser.parse_args(arguments).measure
    report = _look()
    if measure and "torch" in report:
        report |= _measure(report["accelerator"])
    print(json.dumps(report), flush=True)
    return 0


def _look() -> dict[str, Any]:
    report: dict[str, Any] = {}
    try:
        import torch
    except ImportError as error:
        return {"torch_lacks": str(error)}
    report["torch"] = torch.__version__
    cuda = torch.cuda.is_available() and os.environ.get("DS_ACCELERATOR", "cuda") == "cuda"
    report["accelerator"] = "cuda" if cuda else "cpu"
    report["cards"] = torch.cuda.device_count() if cuda else 0
    if cuda:
        report["card"] = torch.cuda.get_device_name(0)
        report["cuda"] = torch.version.cuda
        report["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    report["gloo"] = torch.distributed.is_available() and torch.distributed.is_gloo_available()
    try:
        import deepspeed
        from deepspeed.git_version_info import installed_ops

        report["deepspeed"] = deepspeed.__version__
        report["ops"] = sorted(name for name, built in installed_ops.items() if built)
    except ImportError as error:
        report["deepspeed_lacks"] = str(error)
    return report


def _measure(accelerator: str) -> dict[str, Any]:
    import torch

    device = torch.device(accelerator)
    precision = torch.bfloat16 if accelerator == "cuda" else torch.float32
    width = 8192 if accelerator == "cuda" else 1024
    left, right = (torch.randn(width, width, device=device, dtype=precision) for _ in range(2))
    seconds = _best(lambda: torch.matmul(left, right), accelerator)
    words = 256 * 2**20 if accelerator == "cuda" else 32 * 2**20
    source = torch.zeros(words, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    copied = _best(lambda: target.copy_(source), accelerator)
    ranks = min(torch.cuda.device_count(), 8) if accelerator == "cuda" else RANKS
    return {
        "precision": "bf16" if accelerator == "cuda" else "fp32",
        "product_flops": 2 * width**3 / seconds,
        "copy_bytes": 2 * words / copied,
        "launch_seconds": _launch_seconds() if accelerator == "cuda" else None,
        "ranks": ranks,
        "link_bytes": _collective(accelerator, ranks) if ranks > 1 else None,
    }


def _launch_seconds(device: str = "cuda") -> float:
    """Return the seconds in which the host launches a linear layer, the shortest of several runs.

    The layer is so small that a GPU is never behind.
    """
    import torch

    layer = torch.nn.Linear(64, 64, device=device, dtype=torch.bfloat16)
    tokens = torch.zeros(64, 64, device=device, dtype=torch.bfloat16)

    def launch() -> None:
        for _ in range(LAUNCHES):
            layer(tokens)

    return _best(launch, device) / LAUNCHES


def _best(work: Callable[[], Any], accelerator: str) -> float:
    """Return the seconds of the fastest of several runs."""
    import torch

    def wait() -> None:
        if accelerator == "cuda":
            torch.cuda.synchronize()

    fastest = float("inf")
    for _ in range(RUNS + 1):
        wait()
        began = time.perf_counter()
        work()
        wait()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def _collective(accelerator: str, ranks: int) -> float | None:
    """Return the bytes per second that each rank sends in a ring all-reduce, or None if the ranks fail to connect."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        processes = [
            context.Process(target=_rank, args=(rank, ranks, f"{folder}/store", accelerator, answers), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        try:
            seconds = float(answers.get(timeout=60))
        except Exception:  # the queue stays empty, whatever the cause
            return None
        finally:
            for process in processes:
                process.join(timeout=5)
                process.kill()
    return 4 * WORDS * 2 * (ranks - 1) / ranks / seconds


def _rank(rank: int, ranks: int, store: str, accelerator: str, answers: Any) -> None:
    import torch
    from torch import distributed

    if accelerator == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if accelerator == "cuda" else "gloo"
    distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    words = torch.zeros(WORDS, device=torch.device(accelerator))
    seconds = _best(lambda: distributed.all_reduce(words), accelerator)
    if rank == 0:
        answers.put(seconds)
    distributed.destroy_process_group()


if __name__ == "__main__":
    raise SystemExit(main())
