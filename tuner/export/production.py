"""What a production run is made of: the decision, what was promised of it, and its complete DeepSpeed config."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from tuner.core.domain import Cluster, Topology, Workload
from tuner.launch.ds_config import LEARNING_RATE, Config, check, ds_config

Source = Literal["measured", "simulated", "estimated"]

WARM_UP: Final = 0.005
"""Share of the training over which the learning rate rises; BLOOM's 375M of 366B tokens are 0.1%, GPT-3's of 300B as
many again. A choice to be made anew, and named as one in the side file."""

LOSS_SCALING: Final[Config] = {
    "enabled": True,
    "loss_scale": 0,
    "initial_scale_power": 12,
    "loss_scale_window": 500,
    "hysteresis": 2,
    "min_loss_scale": 1,
}
"""BLOOM's dynamic loss scaling (BigScience, tr11-176B-ml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the run is expected to show, and on whose word."""

    sec_per_iter: float
    low: float
    high: float
    """Between them 80% of iterations are expected."""
    memory: float | None
    """Bytes on the fullest GPU."""
    usable: float
    """Bytes that a process can have of the card."""
    days: float
    tflops: float
    """FLOP/s of each GPU, recompute included."""
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """A run to be launched."""

    name: str
    workload: Workload
    """As the topology has it."""
    cluster: Cluster
    topology: Topology
    expected: Expected

    @property
    def microbatches(self) -> int:
        """Steps of accumulation in one iteration."""
        return self.workload.global_batch // (self.topology.micro_batch * self.topology.dp)

    @property
    def samples(self) -> int:
        """Sequences until the training is finished."""
        return math.ceil(self.workload.training_tokens / self.workload.model.seq)

    @property
    def iterations(self) -> int:
        """Steps of the optimizer until then."""
        return math.ceil(self.samples / self.workload.global_batch)


def production_config(run: Production, *, written: bool) -> Config:
    """The `ds_config.json` of the run; `written` puts optimizer and schedule into it, else the framework has them."""
    topology, workload = run.topology, run.workload
    config = ds_config(workload, topology)
    if "fp16" in config:
        config["fp16"] = dict(LOSS_SCALING)
    config["communication_data_type"] = workload.precision
    config["prescale_gradients"] = False
    config["steps_per_print"] = 10
    if written:
        config["scheduler"] = {
            "type": "WarmupDecayLR",
            "params": {
                "total_num_steps": run.iterations,
                "warmup_min_lr": 0.0,
                "warmup_max_lr": LEARNING_RATE,
                "warmup_num_steps": max(1, round(WARM_UP * run.iterations)),
            },
        }
    else:
        config.pop("optimizer", None)
    check(config, data_parallel=topology.dp)
    return config


def explained(run: Production, config: Config) -> str:
    """The side file: every value with where it comes from."""
    lines = [
        f"# ds_config.json of {run.topology.key}",
        "",
        "JSON holds no comments; here is where each value comes from.",
        "",
        "| key | value | because |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{json.dumps(value)}` | {_reason(run, name)} |" for name, value in _flat(config)]
    if "optimizer" not in config:
        lines += ["", "Optimizer and learning rate schedule are the framework's own; the launch script sets them."]
    return "\n".join(lines) + "\n"


def _flat(config: Config, before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in config.items():
        path = f"{before}.{name}" if before else name
        found += _flat(value, path) if isinstance(value, dict) else [(path, value)]
    return found


def _reason(run: Production, name: str) -> str:
    topology, workload = run.topology, run.workload
    part = name.split(".")[0]
    micro, dp = topology.micro_batch, topology.dp
    exact = {
        "train_batch_size": f"the global batch: {micro} x {run.microbatches} x dp {dp}",
        "train_micro_batch_size_per_gpu": "the topology's micro batch",
        "gradient_accumulation_steps": f"global batch / (micro batch x dp): {workload.global_batch} / ({micro} x {dp})",
        "gradient_clipping": "the norm at which GPT-3 and BLOOM clipped",
        "communication_data_type": "gradients travel in the precision of the training, as in the measured jobs",
        "prescale_gradients": "DeepSpeed's default, spelt out: gradients are averaged after they are summed",
        "zero_optimization.stage": "the topology's ZeRO stage",
        "scheduler.params.total_num_steps": f"{workload.training_tokens:.4g} tokens / (global batch x sequence)",
        "scheduler.params.warmup_num_steps": f"{WARM_UP:.1%} of all steps; choose it anew for your training",
        "pipeline.activation_checkpoint_interval": f"{topology.recompute} recompute",
        "pipeline.pipe_partitioned": "each tensor parallel rank sends its share, where activations are the same on all",
        "pipeline.grad_partitioned": "each tensor parallel rank sends its share, where activations are the same on all",
        "steps_per_print": "a line in the log at every tenth step",
        "wall_clock_breakdown": "off: it synchronises, and with pipelines it fails since DeepSpeed 0.18.9",
    }
    if name in exact:
        return exact[name]
    if "bucket_size" in name:
        cap = workload.model.parameters // (topology.tp * topology.pp)
        return f"half a billion elements, or what a rank has at most ({cap:,} parameters)"
    return {
        "fp16": "dynamic loss scaling as BLOOM's",
        "bf16": "the precision of the training; needs no loss scaling",
        "optimizer": "written by choice; the learning rate is BLOOM's and must fit your model",
        "scheduler": "written by choice",
        "zero_optimization": "the base file of this stage, ds_configs/",
        "activation_checkpointing": "full recompute, kept on the GPU",
        "pipeline": "recompute that also works where the first input is integer",
    }.get(part, f"the base file of ZeRO stage {topology.zero}")


def topology_document(run: Production) -> dict[str, Any]:
    """`topology.json`: the decision spelt out, and what it promised."""
    topology, workload, cluster, expected = run.topology, run.workload, run.cluster, run.expected
    model = workload.model
    return {
        "schema": "tuner/topology/1",
        "name": run.name,
        "key": topology.key,
        "topology": {
            "nodes": topology.nodes,
            "gpus": topology.gpus,
            "tp": topology.tp,
            "pp": topology.pp,
            "vpp": topology.vpp,
            "cp": topology.cp,
            "dp": topology.dp,
            "sequence_parallel": topology.sequence_parallel,
            "zero": topology.zero,
            "micro_batch": topology.micro_batch,
            "microbatches": run.microbatches,
            "global_batch": workload.global_batch,
            "recompute": topology.recompute,
            "partition": topology.partition,
        },
        "model": {
            "name": model.name,
            "parameters": model.parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "ffn": model.ffn,
            "vocab": model.vocab,
            "seq": model.seq,
        },
        "workload": {
            "precision": workload.precision,
            "attention": workload.attention,
            "optimizer": workload.optimizer,
            "tokens": workload.training_tokens,
            "iterations": run.iterations,
        },
        "cluster": {
            "nodes": topology.nodes,
            "gpus_per_node": cluster.gpus_per_node,
            "gpu": cluster.gpu.name,
        },
        "expected": {
            "source": expected.source,
            "simulated": expected.source == "simulated",
            "sec_per_iter": expected.sec_per_iter,
            "sec_per_iter_low": expected.low,
            "sec_per_iter_high": expected.high,
            "memory_gib": expected.memory / 2**30 if expected.memory else None,
            "usable_gib": expected.usable / 2**30,
            "tflops": expected.tflops / 1e12,
            "days": expected.days,
        },
    }
