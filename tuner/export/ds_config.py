"""The complete DeepSpeed config of a topology, filled from the base file of its ZeRO stage in `ds_configs/`."""

from __future__ import annotations

import json
from typing import Any, Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.resources import ds_config as base_file
from tuner.export.schema import check

Config = dict[str, Any]

LEARNING_RATE: Final = 6e-5
"""BLOOM's (BigScience, tr11-176B-ml); a measurement does not depend on it."""

_OPTIMIZERS: Final[dict[str, Config]] = {
    "adam": {
        "type": "AdamW",
        "params": {"lr": LEARNING_RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    },
    "sgd": {"type": "SGD", "params": {"lr": LEARNING_RATE, "momentum": 0.9, "weight_decay": 0.1}},
    "adafactor": {"type": "Adafactor", "params": {"lr": LEARNING_RATE, "weight_decay": 0.1}},
}
_UNTESTED: Final = ("SGD", "Adafactor")
"""What DeepSpeed shards only when told that one knows."""

_PRECISIONS: Final[dict[str, Config]] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 12}},
}
_SMALLEST_BUCKET: Final = 1_000_000
_BUCKETS: Final = ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size")


def ds_config(workload: Workload, topology: Topology) -> Config:
    """The config with which DeepSpeed realises the topology; it says everything that the topology decides."""
    asked = workload.as_in(topology)
    config: Config = json.loads(base_file(topology.zero).read_text())
    config.pop("bf16", None)
    if asked.precision not in _PRECISIONS:
        raise InputError(f"DeepSpeed's config knows no precision {asked.precision}; it has fp32, bf16 and fp16.")
    if asked.optimizer not in _OPTIMIZERS:
        raise InputError(f"DeepSpeed has no optimizer {asked.optimizer}; it has adam, sgd and adafactor.")
    step = topology.micro_batch * topology.dp
    if asked.global_batch % step:
        raise InputError(
            f"global batch {asked.global_batch} does not divide by micro_batch x dp = "
            f"{topology.micro_batch} x {topology.dp} = {step}."
        )
    config |= {
        "train_batch_size": asked.global_batch,
        "train_micro_batch_size_per_gpu": topology.micro_batch,
        "gradient_accumulation_steps": asked.global_batch // step,
    }
    config |= json.loads(json.dumps(_PRECISIONS[asked.precision] | {"optimizer": _OPTIMIZERS[asked.optimizer]}))
    if config["optimizer"]["type"] in _UNTESTED:
        config["zero_allow_untested_optimizer"] = True
    _cap_buckets(config["zero_optimization"], asked.model.parameters // (topology.tp * topology.pp))
    if topology.recompute == "full":
        config["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": False,
            "contiguous_memory_optimization": False,
        }
    if topology.pp > 1:
        # DeepSpeed may send each tensor parallel rank's share of an activation alone and gather it on arrival; with
        # sequence parallelism the ranks hold different activations, and there is nothing to share.
        shared = topology.tp > 1 and not topology.sequence_parallel
        config["pipeline"] = {
            "activation_checkpoint_interval": int(topology.recompute == "full"),
            "use_reentrant": False,
            "pipe_partitioned": shared,
            "grad_partitioned": shared,
        }
    check(config, data_parallel=topology.dp)
    return config


def _cap_buckets(zero: Config, parameters: int) -> None:
    """A bucket larger than all that a rank has to send would only take memory."""
    for name in _BUCKETS:
        if name in zero:
            zero[name] = min(zero[name], max(parameters, _SMALLEST_BUCKET))
