"""Create the DeepSpeed config of a topology, and check configs against a strict schema.

DeepSpeed 0.19.8 silently accepts unknown top-level keys (`zero_optimisation`), unknown keys of
`activation_checkpointing` and `pipeline`, a micro batch of 2.5, `true` as a batch size and a string for
`gradient_clipping`. The schema here rejects all of them.

The config of a topology is based on the file of its ZeRO stage in `ds_configs/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.resources import ds_config as base_file
from tuner.core.text import either, listed, shown

_COUNT: Final = "a whole number of at least 1"
_WHOLE: Final = "a whole number of at least 0"
_NUMBER: Final = "a number of at least 0"
_FLAG: Final = "true or false"
_PAIR: Final = "two numbers from 0 and below 1"
_STAGE: Final = "0, 1, 2 or 3"
_DEVICES: Final = ("none", "cpu")
_OPTIMIZER_TYPES: Final = ("AdamW", "Adam", "SGD", "Adafactor")

_SCHEMA: Final[Mapping[str, Any]] = {
    "train_batch_size": _COUNT,
    "train_micro_batch_size_per_gpu": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "gradient_clipping": _NUMBER,
    "prescale_gradients": _FLAG,
    "communication_data_type": ("fp16", "bf16", "fp32"),
    "steps_per_print": _COUNT,
    "wall_clock_breakdown": _FLAG,
    "zero_allow_untested_optimizer": _FLAG,
    "bf16": {"enabled": _FLAG},
    "fp16": {
        "enabled": _FLAG,
        "loss_scale": _NUMBER,
        "initial_scale_power": _WHOLE,
        "loss_scale_window": _COUNT,
        "hysteresis": _COUNT,
        "min_loss_scale": _NUMBER,
    },
    "zero_optimization": {
        "stage": _STAGE,
        "offload_optimizer": {"device": _DEVICES, "pin_memory": _FLAG},
        "offload_param": {"device": _DEVICES, "pin_memory": _FLAG},
        "reduce_bucket_size": _COUNT,
        "allgather_bucket_size": _COUNT,
        "overlap_comm": _FLAG,
        "contiguous_gradients": _FLAG,
        "reduce_scatter": _FLAG,
        "round_robin_gradients": _FLAG,
        "sub_group_size": _COUNT,
        "stage3_prefetch_bucket_size": _WHOLE,
        "stage3_param_persistence_threshold": _WHOLE,
        "stage3_max_live_parameters": _WHOLE,
        "stage3_max_reuse_distance": _WHOLE,
        "stage3_gather_16bit_weights_on_model_save": _FLAG,
        "zero_hpz_partition_size": _COUNT,
        "zero_quantized_weights": _FLAG,
        "zero_quantized_gradients": _FLAG,
    },
    "optimizer": {
        "type": _OPTIMIZER_TYPES,
        "params": {
            "lr": _NUMBER,
            "betas": _PAIR,
            "eps": _NUMBER,
            "weight_decay": _NUMBER,
            "momentum": _NUMBER,
            "torch_adam": _FLAG,
            "fused": _FLAG,
        },
    },
    "scheduler": {
        "type": ("WarmupDecayLR", "WarmupLR", "WarmupCosineLR"),
        "params": {
            "total_num_steps": _COUNT,
            "warmup_min_lr": _NUMBER,
            "warmup_max_lr": _NUMBER,
            "warmup_num_steps": _COUNT,
        },
    },
    "activation_checkpointing": {
        "partition_activations": _FLAG,
        "cpu_checkpointing": _FLAG,
        "contiguous_memory_optimization": _FLAG,
        "number_checkpoints": _COUNT,
    },
    "pipeline": {
        "activation_checkpoint_interval": _WHOLE,
        "use_reentrant": _FLAG,
        "pipe_partitioned": _FLAG,
        "grad_partitioned": _FLAG,
    },
}

TRIAD: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def check(config: Any, *, data_parallel: int) -> None:
    """Raise `InputError` for an unknown key, a value of the wrong type, or inconsistent batch sizes."""
    _check(config, _SCHEMA, "")
    if config.get("fp16", {}).get("enabled") and config.get("bf16", {}).get("enabled"):
        raise InputError("a DeepSpeed config cannot enable fp16 and bf16 together; leave one of them out.")
    missing = [name for name in TRIAD if name not in config]
    if missing:
        raise InputError(f"the DeepSpeed config lacks {listed(missing)}.")
    batch, micro_batch, microbatches = (config[name] for name in TRIAD)
    product = micro_batch * microbatches * data_parallel
    if batch != product:
        raise InputError(
            f"the DeepSpeed config's batch sizes are inconsistent: train_batch_size {batch} is not "
            f"train_micro_batch_size_per_gpu x gradient_accumulation_steps x dp = "
            f"{micro_batch} x {microbatches} x {data_parallel} = {product}."
        )


def _check(value: Any, expected: Any, where: str) -> None:
    if isinstance(expected, Mapping):
        _check_object(value, expected, where)
    elif isinstance(expected, tuple):
        if value not in expected:
            raise InputError(f"DeepSpeed config field {where} must be {either(expected)}, not {shown(value)}.")
    elif not _fits(value, expected):
        raise InputError(f"DeepSpeed config field {where} must be {expected}, not {shown(value)}.")


def _check_object(value: Any, expected: Mapping[str, Any], where: str) -> None:
    name = f"field {where}" if where else "itself"
    if not isinstance(value, dict):
        raise InputError(f"DeepSpeed config {name} must be an object, not {shown(value)}.")
    unknown = [key for key in value if key not in expected]
    if unknown:
        raise InputError(
            f"the DeepSpeed config{' at ' + where if where else ''} has no key {shown(unknown[0])}; "
            f"it may have {listed(expected, limit=40)}."
        )
    for key, part in value.items():
        _check(part, expected[key], f"{where}.{key}" if where else key)


def _fits(value: Any, expected: str) -> bool:
    if expected == _FLAG:
        return isinstance(value, bool)
    if expected == _PAIR:
        return isinstance(value, list) and len(value) == 2 and all(_fits(v, _NUMBER) and v < 1 for v in value)
    if isinstance(value, bool):
        return False
    if expected == _STAGE:
        return isinstance(value, int) and 0 <= value <= 3
    if expected == _NUMBER:
        return isinstance(value, int | float) and 0 <= value < float("inf")
    return isinstance(value, int) and value >= (expected == _COUNT)


Config = dict[str, Any]

LEARNING_RATE: Final = 6e-5
"""BLOOM's learning rate (BigScience, tr11-176B-ml); measurements do not depend on it."""

_OPTIMIZERS: Final[dict[str, Config]] = {
    "adam": {
        "type": "AdamW",
        "params": {"lr": LEARNING_RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    },
    "sgd": {"type": "SGD", "params": {"lr": LEARNING_RATE, "momentum": 0.9, "weight_decay": 0.1}},
    "adafactor": {"type": "Adafactor", "params": {"lr": LEARNING_RATE, "weight_decay": 0.1}},
}
_UNTESTED: Final = ("SGD", "Adafactor")
"""Optimizers that DeepSpeed shards only with `zero_allow_untested_optimizer`."""

_PRECISIONS: Final[dict[str, Config]] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 12}},
}
_SMALLEST_BUCKET: Final = 1_000_000
_BUCKETS: Final = ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size")


def ds_config(workload: Workload, topology: Topology) -> Config:
    """Return the complete DeepSpeed config that implements the topology."""
    trained = workload.as_in(topology)
    config: Config = json.loads(base_file(topology.zero).read_text())
    config.pop("bf16", None)
    if trained.precision not in _PRECISIONS:
        raise InputError(f"DeepSpeed does not support precision {trained.precision}; it supports fp32, bf16 and fp16.")
    if trained.optimizer not in _OPTIMIZERS:
        raise InputError(f"DeepSpeed has no optimizer {trained.optimizer}; it has adam, sgd and adafactor.")
    step = topology.step_batch
    if trained.global_batch % step:
        raise InputError(
            f"global batch {trained.global_batch} is not divisible by micro_batch x dp = "
            f"{topology.micro_batch} x {topology.dp} = {step}."
        )
    config |= {
        "train_batch_size": trained.global_batch,
        "train_micro_batch_size_per_gpu": topology.micro_batch,
        "gradient_accumulation_steps": trained.global_batch // step,
    }
    config |= json.loads(json.dumps(_PRECISIONS[trained.precision] | {"optimizer": _OPTIMIZERS[trained.optimizer]}))
    if config["optimizer"]["type"] in _UNTESTED:
        config["zero_allow_untested_optimizer"] = True
    config["zero_optimization"] |= _offload(topology)
    _cap_buckets(config["zero_optimization"], trained.model.parameters // (topology.tp * topology.pp))
    if topology.recompute == "full":
        config["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": False,
            "contiguous_memory_optimization": False,
        }
    if topology.pp > 1:
        # DeepSpeed can send a shard of each activation per tensor parallel rank and gather it on arrival; with
        # sequence parallelism the ranks' activations differ, so that they must be sent whole.
        shared = topology.tp > 1 and not topology.sequence_parallel
        config["pipeline"] = {
            "activation_checkpoint_interval": int(topology.recompute == "full"),
            "use_reentrant": False,
            "pipe_partitioned": shared,
            "grad_partitioned": shared,
        }
    check(config, data_parallel=topology.dp)
    return config


def with_trainer_values(config: Mapping[str, Any]) -> Config:
    """Return the config for HF Trainer or accelerate, which fill in `auto` and bring optimizer and schedule.

    With an `optimizer`, HF Trainer would ignore its `--optim` (transformers 5.23.0, `integrations/deepspeed.py`,
    `deepspeed_optim_sched`), and accelerate would refuse that of the script (`Accelerator._prepare_deepspeed`).
    """
    of_trainer = ("optimizer", "scheduler", "zero_allow_untested_optimizer")
    kept = {name: value for name, value in config.items() if name not in of_trainer}
    return {**kept, "gradient_clipping": "auto"}


def _offload(topology: Topology) -> Config:
    """Return ZeRO's offload settings, page-locked for copies at full speed; empty without offload."""
    parts = {"none": (), "optimizer": ("optimizer",), "optimizer+parameters": ("optimizer", "param")}[topology.offload]
    return {f"offload_{part}": {"device": "cpu", "pin_memory": True} for part in parts}


def _cap_buckets(zero: Config, parameters: int) -> None:
    """Limit buckets to the parameters of a rank: larger buckets only waste memory."""
    for name in _BUCKETS:
        if name in zero:
            zero[name] = min(zero[name], max(parameters, _SMALLEST_BUCKET))
