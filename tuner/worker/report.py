"""What a job says: a line for each iteration as Megatron-DeepSpeed prints it, and one JSON document at the end."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

from tuner.core.domain import Recompute, Topology, Workload
from tuner.worker.vocabulary import padded_vocab

SCHEMA: Final = "tuner/worker/1"
SECONDS_BETWEEN_LINES: Final = 0.5
"""Of the lines that report progress inside an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedIteration:
    """One iteration as rank 0 timed it."""

    number: int
    seconds: float
    loss: float
    learning_rate: float
    skipped: int
    """Steps of the optimizer that were skipped so far, because a loss scale was too large."""


def iteration_line(iteration: TimedIteration, of: int, workload: Workload, topology: Topology) -> str:
    """The line of Megatron-DeepSpeed's `training_log`."""
    consumed = iteration.number * workload.global_batch
    rate = hardware_flops(workload, topology.tp, topology.recompute) / (iteration.seconds * topology.gpus)
    fields = {
        "consumed samples": f"{consumed:12d}",
        "consumed tokens": f"{consumed * workload.model.seq:12d}",
        "elapsed time per iteration (ms)": f"{iteration.seconds * 1e3:.3f}",
        "learning rate": f"{iteration.learning_rate:.3E}",
        "global batch size": f"{workload.global_batch:5d}",
        "lm loss": f"{iteration.loss:.6E}",
        "number of skipped iterations": f"{iteration.skipped:3d}",
        "number of nan iterations": f"{int(not math.isfinite(iteration.loss)):3d}",
        "samples per second": f"{workload.global_batch / iteration.seconds:.3f}",
        "TFLOPs": f"{rate / 1e12:.2f}" if rate >= 1e10 else f"{rate / 1e12:.3E}",
    }
    said = " | ".join(f"{name}: {value}" for name, value in fields.items())
    return f" iteration {iteration.number:8d}/{of:8d} | {said} |"


def hardware_flops(workload: Workload, tp: int, recompute: Recompute) -> float:
    """Operations of one iteration, recomputed activations included (Narayanan et al. 2021, arXiv 2104.04473)."""
    model = workload.model
    tokens = workload.global_batch * model.seq
    matrices = 2 * model.hidden * (model.query_width + model.kv_width)
    matrices += (3 if model.gated_mlp else 2) * model.hidden * model.ffn
    layers, scores = 2.0 * tokens * model.layers * matrices, 4.0 * tokens * model.layers * model.seq * model.query_width
    logits = 2.0 * tokens * model.hidden * padded_vocab(model, tp)
    again = {"none": 0.0, "selective": scores, "full": layers + scores}[recompute]
    return 3 * (layers + scores + logits) + again


@dataclass(slots=True)
class Progress:
    """Tells of progress inside an iteration, at most every half second."""

    microbatches: int
    speaks: bool
    started: float = field(default_factory=time.perf_counter)
    said: float = 0.0

    def begins(self, iteration: int, place: int) -> None:
        """Microbatch `place`, counted from 0, is taken: those before it are on their way."""
        now = time.perf_counter()
        if place == 0:
            self.started = now
        elif self.speaks and now - self.said >= SECONDS_BETWEEN_LINES:
            self.said = now
            say(
                f" microbatch {place:5d}/{self.microbatches:5d} of iteration {iteration} | "
                f"elapsed (s): {now - self.started:.3f} |"
            )


def say(line: str) -> None:
    """Print a line and see that it leaves."""
    print(line, flush=True)


def rank_figures(module: nn.Module) -> list[dict[str, int]]:
    """What each rank held: peak bytes, on a CPU the process's resident set for both, and its parameters.

    Every rank has to call it.
    """
    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        own = [resident, resident]
    else:
        own = [int(accelerator.max_memory_allocated()), int(accelerator.max_memory_reserved())]
    for trained in (True, False):
        held = (each for each in module.parameters() if each.requires_grad == trained)
        own.append(sum(getattr(each, "ds_numel", each.numel()) for each in held))
    told = torch.tensor(own, dtype=torch.int64, device=accelerator.current_device_name())
    heard = [torch.empty_like(told) for _ in range(dist.get_world_size())]
    dist.all_gather(heard, told)
    names = ("allocated", "reserved", "trained_parameters", "frozen_parameters")
    return [
        {"rank": rank, **dict(zip(names, figures, strict=True))}
        for rank, figures in enumerate(each.tolist() for each in heard)
    ]


def result(
    iterations: list[TimedIteration], figures: list[dict[str, int]], workload: Workload, topology: Topology
) -> dict[str, Any]:
    """The document that proves success."""
    accelerator = get_accelerator()
    on_cpu = accelerator.device_name() == "cpu"
    return {
        "schema": SCHEMA,
        "key": topology.key,
        "model": workload.model.name,
        "device": (platform.processor() or "cpu") if on_cpu else torch.cuda.get_device_name(),
        "ranks": topology.gpus,
        "iterations": [
            {"number": each.number, "seconds": each.seconds, "loss": each.loss, "skipped": each.skipped}
            for each in iterations
        ],
        "memory_kind": "resident" if on_cpu else "device",
        "peak_memory": [{name: each[name] for name in ("rank", "allocated", "reserved")} for each in figures],
        "parameters": [
            {"rank": each["rank"], "trained": each["trained_parameters"], "frozen": each["frozen_parameters"]}
            for each in figures
        ],
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "deepspeed": str(deepspeed.__version__),
        },
    }


def write(document: dict[str, Any], path: Path) -> None:
    """Write the document whole or not at all, and say it."""
    text = json.dumps(document, allow_nan=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    say(text)
