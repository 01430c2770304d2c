"""Which DeepSpeed configs are ours: a strict schema, because DeepSpeed's own is not.

DeepSpeed 0.19.8 takes without a word a top-level key that it does not know (`zero_optimisation`), unknown keys of
`activation_checkpointing` and `pipeline`, a micro batch of 2.5, `true` for a batch size and a text for
`gradient_clipping`. Here each of them is an error in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.text import either, listed, shown

_COUNT: Final = "a whole number from 1"
_WHOLE: Final = "a whole number from 0"
_NUMBER: Final = "a number from 0"
_FLAG: Final = "true or false"
_PAIR: Final = "two numbers from 0 and below 1"
_STAGE: Final = "0, 1, 2 or 3"
_OPTIMIZERS: Final = ("AdamW", "Adam", "SGD", "Adafactor")

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
    },
    "optimizer": {
        "type": _OPTIMIZERS,
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
    """Refuse a config with an unknown key, a value of the wrong kind, or a batch triad that does not multiply."""
    _check(config, _SCHEMA, "")
    if config.get("fp16", {}).get("enabled") and config.get("bf16", {}).get("enabled"):
        raise InputError("a DeepSpeed config cannot enable fp16 and bf16 together; leave one of them out.")
    lacking = [name for name in TRIAD if name not in config]
    if lacking:
        raise InputError(f"the DeepSpeed config lacks {listed(lacking)}.")
    batch, micro_batch, microbatches = (config[name] for name in TRIAD)
    product = micro_batch * microbatches * data_parallel
    if batch != product:
        raise InputError(
            f"the DeepSpeed config's batch does not multiply: train_batch_size {batch} is not "
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
