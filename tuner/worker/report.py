"""A job's output: a line per iteration in Megatron-DeepSpeed's format, and one JSON document at the end."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

from tuner.core.domain import Topology, Workload

SCHEMA: Final = "tuner/worker/1"
SECONDS_BETWEEN_LINES: Final = 0.5
"""Minimum interval of the lines that report progress within an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedIteration:
    """One iteration, as timed on rank 0."""

    number: int
    global_batch: int
    consumed: int
    """Samples of this iteration and all before it."""
    seconds: float
    loss: float
    learning_rate: float
    skipped: int
    """Optimizer steps skipped so far because the loss scale was too large."""


def iteration_line(iteration: TimedIteration, of: int, workload: Workload, topology: Topology) -> str:
    """Return the line that Megatron-DeepSpeed's `training_log` prints."""
    workload = replace(workload, global_batch=iteration.global_batch)
    rate = hardware_flops(workload, topology.tp, topology.recompute) / (iteration.seconds * topology.gpus)
    fields = {
        "consumed samples": f"{iteration.consumed:12d}",
        "consumed tokens": f"{iteration.consumed * workload.model.seq:12d}",
        "elapsed time per iteration (ms)": f"{iteration.seconds * 1e3:.3f}",
        "learning rate": f"{iteration.learning_rate:.3E}",
        "global batch size": f"{workload.global_batch:5d}",
        "lm loss": f"{iteration.loss:.6E}",
        "number of skipped iterations": f"{iteration.skipped:3d}",
        "number of nan iterations": f"{int(not math.isfinite(iteration.loss)):3d}",
        "samples per second": f"{workload.global_batch / iteration.seconds:.3f}",
        "TFLOPs": f"{rate / 1e12:.2f}" if rate >= 1e10 else f"{rate / 1e12:.3E}",
    }
    columns = " | ".join(f"{name}: {value}" for name, value in fields.items())
    return f" iteration {iteration.number:8d}/{of:8d} | {columns} |"


def argument_lines(workload: Workload, topology: Topology) -> list[str]:
    """Return the job's arguments as Megatron prints them, so that its log identifies the topology."""
    model = workload.model
    arguments = {
        "tensor_model_parallel_size": topology.tp,
        "pipeline_model_parallel_size": topology.pp,
        "data_parallel_size": topology.dp,
        "world_size": topology.gpus,
        "sequence_parallel": topology.sequence_parallel,
        "zero_stage": topology.zero,
        "micro_batch_size": topology.micro_batch,
        "global_batch_size": workload.global_batch,
        "recompute_granularity": None if topology.recompute == "none" else topology.recompute,
        "pp_partition_method": "type:transformer|embedding" if topology.partition == "embedding" else None,
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "group_query_attention": model.kv_heads != model.heads,
        "num_query_groups": model.kv_heads,
        "kv_channels": model.query_width // model.heads,
        "seq_length": model.seq,
        "padded_vocab_size": model.padded_vocab(topology.tp),
        "swiglu": model.gated_mlp,
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "fp16": workload.precision == "fp16",
        "bf16": workload.precision == "bf16",
        "use_flash_attn": workload.attention in ("flash1", "flash2"),
    }
    if experts := model.experts:
        arguments["num_experts"] = experts.count
        arguments["moe_router_topk"] = experts.top_k
        arguments["moe_ffn_hidden_size"] = experts.ffn
        pattern = (str(int(experts.is_moe_layer(layer))) for layer in range(model.layers))
        arguments["moe_layer_freq"] = f"[{', '.join(pattern)}]"
        arguments["moe_shared_expert_intermediate_size"] = experts.shared_ffn or None
        arguments["moe_shared_expert_gate"] = experts.shared_gate
        arguments["expert_model_parallel_size"] = topology.ep
        arguments["moe_router_force_load_balancing"] = workload.routing != "natural"
    if topology.offload != "none":
        arguments["cpu_optimizer"] = True
        arguments["remote_device"] = "cpu" if topology.offload == "optimizer+parameters" else "none"
    return [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]


def hardware_flops(workload: Workload, tp: int, recompute: str) -> float:
    """Return the FLOPs of one iteration, including recomputation (Narayanan et al. 2021, arXiv 2104.04473)."""
    model = workload.model
    tokens = workload.global_batch * model.seq
    widths = model.dense_mlp_layers * model.ffn
    routers = 0
    if experts := model.experts:
        widths += model.moe_layers * experts.token_ffn
        routers = model.moe_layers * model.hidden * (experts.count + experts.shared_gate)
    matrices = 2 * model.hidden * (model.query_width + model.kv_width) * model.layers
    matrices += (3 if model.gated_mlp else 2) * model.hidden * widths + routers
    layers, scores = 2.0 * tokens * matrices, 4.0 * tokens * model.layers * model.scored_tokens * model.query_width
    logits = 2.0 * tokens * model.hidden * model.padded_vocab(tp)
    recomputed = {"none": 0.0, "selective": scores, "full": layers + scores}[recompute]
    return 3 * (layers + scores + logits) + recomputed


@dataclass(slots=True)
class Progress:
    """Prints progress within an iteration, at most every `SECONDS_BETWEEN_LINES`."""

    speaks: bool
    started: float = field(default_factory=time.perf_counter)
    said: float = 0.0

    def begins(self, iteration: int, index: int, microbatches: int) -> None:
        """Record that microbatch `index` of so many, counted from 0, starts: earlier ones are in progress or done."""
        now = time.perf_counter()
        if index == 0:
            self.started = now
        elif self.speaks and now - self.said >= SECONDS_BETWEEN_LINES:
            self.said = now
            say(
                f" microbatch {index:5d}/{microbatches:5d} of iteration {iteration} | "
                f"elapsed (s): {now - self.started:.3f} |"
            )


def say(line: str) -> None:
    """Print a line and flush it."""
    print(line, flush=True)


def rank_figures(module: nn.Module) -> list[dict[str, int]]:
    """Return each rank's peak memory and numbers of parameters.

    Allocated and reserved bytes are both the peak resident set on a CPU. Collective: every rank must call it.
    """
    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        numbers = [resident, resident]
    else:
        numbers = [int(accelerator.max_memory_allocated()), int(accelerator.max_memory_reserved())]
    for trained in (True, False):
        parameters = (parameter for parameter in module.parameters() if parameter.requires_grad == trained)
        numbers.append(sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in parameters))
    sent = torch.tensor(numbers, dtype=torch.int64, device=accelerator.current_device_name())
    received = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
    dist.all_gather(received, sent)
    names = ("allocated", "reserved", "trained_parameters", "frozen_parameters")
    return [
        {"rank": rank, **dict(zip(names, figures, strict=True))}
        for rank, figures in enumerate(tensor.tolist() for tensor in received)
    ]


def result(
    iterations: list[TimedIteration], figures: list[dict[str, int]], workload: Workload, topology: Topology
) -> dict[str, Any]:
    """Return the document that proves success."""
    accelerator = get_accelerator()
    on_cpu = accelerator.device_name() == "cpu"
    return {
        "schema": SCHEMA,
        "key": topology.key,
        "model": workload.model.name,
        "device": (platform.processor() or "cpu") if on_cpu else torch.cuda.get_device_name(),
        "ranks": topology.gpus,
        "iterations": [
            {
                "number": timed.number,
                "global_batch": timed.global_batch,
                "seconds": timed.seconds,
                "loss": timed.loss,
                "skipped": timed.skipped,
            }
            for timed in iterations
        ],
        "memory_kind": "resident" if on_cpu else "device",
        "peak_memory": [{name: rank[name] for name in ("rank", "allocated", "reserved")} for rank in figures],
        "parameters": [
            {"rank": rank["rank"], "trained": rank["trained_parameters"], "frozen": rank["frozen_parameters"]}
            for rank in figures
        ],
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "deepspeed": str(deepspeed.__version__),
        },
    }


def write(document: dict[str, Any], path: Path) -> None:
    """Write the document atomically, and print it."""
    text = json.dumps(document, allow_nan=False)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    say(text)
