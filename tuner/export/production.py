"""A production run: its topology, its expected performance and its complete DeepSpeed config."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tuner.core.columns import Columns
from tuner.core.documents import identity_document, model_notes, topology_document
from tuner.core.domain import OPT_IN, Cluster, Topology, Workload, nodes_in_domain
from tuner.core.offload import offload_words
from tuner.core.quantity import GIB
from tuner.core.text import token_count
from tuner.launch.ds_config import LEARNING_RATE, Config, check, ds_config, with_trainer_values
from tuner.launch.ds_config_file import based_on
from tuner.space.rules.quantities import host_bytes

if TYPE_CHECKING:
    from tuner.export.formats import ZeroPlusPlus

Source = Literal["measured", "simulated", "estimated"]

WARM_UP_SHARE: Final = 0.005
"""Share of the training over which the learning rate rises (BLOOM: 375M of 366B tokens, GPT-3: 375M of 300B, both
0.1%). A default to review; ds_config.md says so."""

SAVED_EVERY: Final = 3 * 3600.0
"""Seconds from one checkpoint to the next. A default to review."""

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
class ExpectedPerformance:
    """The expected performance of a run, and its source."""

    sec_per_iter: float
    low: float
    high: float
    """The 80% interval of one iteration."""
    memory: float | None
    """Bytes on the fullest GPU."""
    usable: float
    """Bytes of a GPU that a process can use."""
    days: float
    tflops: float
    """FLOP/s per GPU, recomputation included."""
    source: Source
    extrapolated: bool = False
    """Whether it comes from trials at a reduced size; nothing ran at full size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionRun:
    """A run to launch."""

    name: str
    workload: Workload
    """With the heads, shape and batch of the topology."""
    cluster: Cluster
    topology: Topology
    expected: ExpectedPerformance

    @property
    def microbatches(self) -> int:
        """Return the gradient accumulation steps per iteration."""
        return self.topology.microbatches(self.workload.global_batch)

    @property
    def ranks_per_node(self) -> int:
        """Return the number of ranks, and of GPUs in use, on each node."""
        return self.topology.ranks_per_node

    @property
    def samples(self) -> int:
        """Return the number of sequences in the whole training."""
        return math.ceil(self.workload.training_tokens / self.workload.model.seq)

    @property
    def iterations(self) -> int:
        """Return the number of optimizer steps in the whole training."""
        return math.ceil(self.samples / self.workload.global_batch)

    @property
    def offloaded(self) -> str:
        """Return what is offloaded, and how much of a node's main memory it takes; empty for nothing."""
        if self.topology.offload == "none":
            return ""
        taken = float(host_bytes(Columns.of([self.topology], self.workload, self.cluster))[0])
        return f"{offload_words(self.topology.offload)}, which takes {taken / GIB:,.0f} GiB of a node's main memory"

    @property
    def segment(self) -> int:
        """Return how many consecutive nodes the estimate assumes to share an NVLink domain; 0 if none do."""
        return nodes_in_domain(self.topology, self.cluster)

    @property
    def save_interval(self) -> int:
        """Return the iterations from one checkpoint to the next."""
        return max(1, round(SAVED_EVERY / self.expected.sec_per_iter))


def production_config(
    run: ProductionRun,
    *,
    with_optimizer: bool,
    zero_plus_plus: Sequence[ZeroPlusPlus] = (),
    for_hf_trainer: bool = False,
    own: Mapping[str, Any] | None = None,
) -> Config:
    """Return `ds_config.json`, with or without the optimizer and its schedule, which Megatron, HF Trainer and
    accelerate bring; if the study's jobs trained with the user's `own` config, it is based on that."""
    topology, workload = run.topology, run.workload
    config = ds_config(workload, topology)
    if "fp16" in config:
        config["fp16"] = dict(LOSS_SCALING)
    config["communication_data_type"] = workload.precision
    config["prescale_gradients"] = False
    config["steps_per_print"] = 10
    if with_optimizer:
        config["scheduler"] = {
            "type": "WarmupDecayLR",
            "params": {
                "total_num_steps": run.iterations,
                "warmup_min_lr": 0.0,
                "warmup_max_lr": LEARNING_RATE,
                "warmup_num_steps": max(1, round(WARM_UP_SHARE * run.iterations)),
            },
        }
    else:
        config.pop("optimizer", None)
    switches = {
        "hpz": {"zero_hpz_partition_size": run.ranks_per_node},
        "qwz": {"zero_quantized_weights": True},
        "qgz": {"zero_quantized_gradients": True},
    }
    for part in zero_plus_plus:
        config["zero_optimization"] |= switches[part]
    check(config, data_parallel=topology.dp)
    if own is not None:
        config = based_on(own, config)
        for part in zero_plus_plus:
            config["zero_optimization"] |= switches[part]
        return config
    return with_trainer_values(config) if for_hf_trainer else config


def config_notes(
    run: ProductionRun,
    config: Config,
    *,
    by_command: bool = True,
    for_hf_trainer: bool = False,
    own: Mapping[str, Any] | None = None,
) -> str:
    """Return `ds_config.md`: the reason for every value of `ds_config.json`; `by_command`: a command starts the run."""
    given = _flat(dict(own or {}))

    def reason(name: str, value: Any) -> str:
        if (name, value) in given:
            return _OWN
        return _FILLED_IN if value == "auto" else _reason(run, name)

    lines = [
        f"# ds_config.json of {run.topology.key}",
        "",
        "The source of each value.",
        "",
        "| key | value | reason |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{json.dumps(value)}` | {reason(name, value)} |" for name, value in _flat(config)]
    if "optimizer" not in config and by_command and (for_hf_trainer or own is not None):
        lines += ["", "The optimizer and the learning rate schedule are those of --command."]
    elif "optimizer" not in config:
        lines += ["", "The launch script passes the optimizer and the learning rate schedule to Megatron."]
    return "\n".join(lines) + "\n"


def _flat(config: Config, before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in config.items():
        path = f"{before}.{name}" if before else name
        found += _flat(value, path) if isinstance(value, dict) else [(path, value)]
    return found


_FILLED_IN: Final = "HF Trainer fills it in from its arguments"
_OWN: Final = "the DeepSpeed config that the study's --command names"

_REASONS: Final[Mapping[str, str]] = {
    "train_micro_batch_size_per_gpu": "micro-batch size of the topology",
    "gradient_clipping": "as for GPT-3 and BLOOM",
    "communication_data_type": "same as the training precision, as in the measured jobs",
    "prescale_gradients": "DeepSpeed's default: average gradients after summing them",
    "zero_optimization.stage": "ZeRO stage of the topology",
    "zero_optimization.offload_optimizer.device": "offload of the topology: states and their step leave the GPU",
    "zero_optimization.offload_param.device": "offload of the topology: parameters leave the GPU between uses",
    "zero_optimization.offload_optimizer.pin_memory": "page-locked main memory, for copies at full speed",
    "zero_optimization.offload_param.pin_memory": "page-locked main memory, for copies at full speed",
    "zero_optimization.zero_hpz_partition_size": "--zero-plus-plus hpz: a second partition in each node",
    "zero_optimization.zero_quantized_weights": "--zero-plus-plus qwz: weights are gathered in 8 bits",
    "zero_optimization.zero_quantized_gradients": "--zero-plus-plus qgz: gradients are reduced in 4 bits",
    "scheduler.params.warmup_num_steps": f"{WARM_UP_SHARE:.1%} of all steps; adjust it to your training",
    "pipeline.pipe_partitioned": "each tensor parallel rank sends its share, as activations are equal on all",
    "pipeline.grad_partitioned": "each tensor parallel rank sends its share, as activations are equal on all",
    "steps_per_print": "log every tenth step",
    "wall_clock_breakdown": "off: it synchronizes, and fails with pipelines since DeepSpeed 0.18.9",
}
"""The reasons for values that do not depend on the run, by their path in the config."""

_REASONS_OF_PARTS: Final[Mapping[str, str]] = {
    "fp16": "dynamic loss scaling, as for BLOOM",
    "bf16": "training precision; needs no loss scaling",
    "optimizer": "default; the learning rate is BLOOM's, adjust it to your model",
    "scheduler": "default; adjust it to your training",
    "zero_optimization": "base file of this stage in ds_configs/",
    "activation_checkpointing": "full recomputation, with checkpoints kept on the GPU",
    "pipeline": "recomputation that also works for integer inputs of the first stage",
}
"""The reasons for all other values of a part of the config."""


def _reason(run: ProductionRun, path: str) -> str:
    topology, workload = run.topology, run.workload
    micro, dp = topology.micro_batch, topology.dp
    recomputation = "no" if topology.recompute == "none" else topology.recompute
    of_run = {
        "train_batch_size": f"global batch: micro-batch size {micro} x {run.microbatches} accumulation steps x dp {dp}",
        "gradient_accumulation_steps": (
            f"global batch / (micro-batch size x dp): {workload.global_batch} / ({micro} x {dp})"
        ),
        "scheduler.params.total_num_steps": f"{token_count(workload.training_tokens)} tokens / tokens per batch",
        "pipeline.activation_checkpoint_interval": f"{recomputation} recomputation",
    }
    if path.endswith(".stage3_prefetch_bucket_size"):
        return "DeepSpeed's default: 50 million elements, or all parameters of a rank if fewer"
    if "bucket_size" in path:
        cap = workload.model.parameters // (topology.tp * topology.pp)
        return f"500 million elements, or all parameters of a rank if fewer ({cap:,})"
    usual = _REASONS_OF_PARTS.get(path.split(".")[0], f"base file of ZeRO stage {topology.zero}")
    return of_run.get(path) or _REASONS.get(path, usual)


_TOPOLOGY_FIELDS: Final = (
    *("nodes", "gpus", "tp", "pp", "vpp", "cp", "dp", "sequence_parallel", "zero", "micro_batch", "microbatches"),
    *("global_batch", "recompute", "partition"),
)
"""The fields of `topology` in `topology.json`; the model's own are in `model`."""


def run_document(run: ProductionRun) -> dict[str, Any]:
    """Return `topology.json`: the topology in full and its expected performance."""
    topology, workload, cluster, expected = run.topology, run.workload, run.cluster, run.expected
    model = workload.model
    document = {**topology_document(topology, workload), "gpus": topology.gpus, "microbatches": run.microbatches}
    return {
        "schema": "tuner/topology/1",
        "name": run.name,
        "key": topology.key,
        "topology": {name: document[name] for name in (*_TOPOLOGY_FIELDS, *OPT_IN) if name in document},
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
            "identity": identity_document(model),
        },
        "notes": model_notes(model),
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
            **({"nvlink_domain": cluster.nvlink_domain} if cluster.nvlink_domain else {}),
            "gpu": cluster.gpu.name,
        },
        "expected": {
            "source": expected.source,
            "simulated": expected.source == "simulated",
            "extrapolated": expected.extrapolated,
            "sec_per_iter": expected.sec_per_iter,
            "sec_per_iter_low": expected.low,
            "sec_per_iter_high": expected.high,
            "memory_gib": expected.memory / GIB if expected.memory else None,
            "usable_gib": expected.usable / GIB,
            "tflops": expected.tflops / 1e12,
            "days": expected.days,
        },
    }
