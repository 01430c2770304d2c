"""Hugging Face Trainer with DeepSpeed, as transformers 5.23.0 reads it (`training_args.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuner.core.domain import Optimizer, Topology, Workload
from tuner.launch.ds_config import with_trainer_values
from tuner.launch.trainers.kind import Flags, TrainerKind, is_on, number
from tuner.launch.trainers.megatron_precision import half_precision


def _hf_flags(_: Flags, workload: Workload, topology: Topology, ds_config: Path) -> tuple[object, ...]:
    return (
        *("--per_device_train_batch_size", topology.micro_batch),
        *("--gradient_accumulation_steps", topology.microbatches(workload.global_batch)),
        *("--deepspeed", ds_config, "--gradient_checkpointing", topology.recompute == "full"),
        *("--save_strategy", "no", "--eval_strategy", "no"),
    )


BATCH: Final = ("--per_device_train_batch_size", "--gradient_accumulation_steps")
SEQUENCE: Final = ("--block_size", "--max_seq_length", "--max_length")
"""The sequence length in transformers' `run_clm.py` and in TRL, former and current."""


def with_agreed_sequence(flags: Flags) -> Flags:
    """Return the flags without those of the sequence length that have no whole number, or not the same one."""
    values = {flag: flags[flag] for flag in SEQUENCE if flags.get(flag, "").isdecimal()}
    kept = values if len(set(values.values())) == 1 else {}
    return {name: value for name, value in flags.items() if name in kept or name not in SEQUENCE}


def _batch_on(flags: Flags, gpus: int) -> int:
    """Return the global batch, with the defaults of `TrainingArguments`."""
    return (number(flags, BATCH[0]) or 8) * (number(flags, BATCH[1]) or 1) * gpus


_OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused"), "adam"),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"), "adam8bit"),
    "adafactor": "adafactor",
    "sgd": "sgd",
}
"""Optimizers by HF Trainer's names (transformers 5.23.0, training_args.py: OptimizerNames)."""


def fused_layers(flags: Flags, _: Workload) -> dict[str, Any]:
    """Return whether torch.compile or Liger fuses a layer's kernels, and whether checkpoints repeat whole layers.

    Both fuse and keep about the same; Liger also computes the loss without all logits at once.
    """
    whole = re.search(r"use_reentrant\W+true", flags.get("--gradient_checkpointing_kwargs", "").lower())
    found: dict[str, Any] = {"early_stop": False} if whole else {}
    if is_on(flags, "--use_liger_kernel"):
        return {**found, "compiled": True, "fused_loss": True}
    named = any(f"--torch_compile_{name}" in flags for name in ("backend", "mode"))
    return {**found, "compiled": True} if named or is_on(flags, "--torch_compile") else found


HF: Final = TrainerKind(
    name="hf",
    framework=lambda _: "deepspeed",
    replaced=(
        *(*BATCH, "--deepspeed", "--gradient_checkpointing"),
        *("--save_strategy", "--eval_strategy", "--disable_tqdm", "--auto_find_batch_size"),
    ),
    job_flags=_hf_flags,
    precision=half_precision,
    optimizer=lambda flags: _OPTIMIZERS.get(flags.get("--optim", "")),
    stack=fused_layers,
    pinned=lambda _: {"tp": "1", "pp": "1", "cp": "1", "ep": "1"},
    batch_on=_batch_on,
    batch_flags=BATCH,
    sequence=SEQUENCE,
    length={"--max_steps": "steps"},
    expand=with_agreed_sequence,
    is_hyphen_underscore=True,
    ds_config=with_trainer_values,
    ds_config_flags=("--deepspeed", "--deepspeed_config_file"),  # the second is that of accelerate launch
)
