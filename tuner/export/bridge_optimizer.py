"""The fields of Megatron Bridge's optimizer, its schedule, and its offload to main memory."""

from __future__ import annotations

from typing import Final

from tuner.export.flag_table import flag_table
from tuner.export.formats import Settings
from tuner.export.megatron_common import training_flags
from tuner.export.production import WARM_UP_SHARE, ProductionRun
from tuner.launch.trainers.megatron_lm import offloading

_OPTIMIZER: Final = ("optimizer", "lr", "min_lr", "weight_decay", "clip_grad", "adam_beta1", "adam_beta2", "adam_eps")


def optimizer_fields(run: ProductionRun) -> Settings:
    """Return the fields of optimizer and schedule, with the values of the Megatron-LM export.

    Megatron's scheduler sets the optimizer's weight decay in every step, from `start_weight_decay` and
    `end_weight_decay`.
    """
    flags = flag_table("megatron-core").parsed([("--optimizer", "adam"), *training_flags(run)])
    decay, moments = flags.weight_decay, ("exp_avg_dtype", "exp_avg_sq_dtype")
    in_bf16 = run.workload.optimizer == "adam-bf16"
    return [
        *((f"optimizer.{name}", repr(getattr(flags, name))) for name in _OPTIMIZER),
        *([("optimizer.use_precision_aware_optimizer", "True")] * in_bf16),
        *((f"optimizer.{name}", "torch.bfloat16") for name in moments if in_bf16),
        ("scheduler.start_weight_decay", repr(decay)),
        ("scheduler.end_weight_decay", repr(decay)),
        ("scheduler.lr_decay_style", repr(flags.lr_decay_style)),
        ("scheduler.lr_decay_iters", repr(run.iterations)),
        ("scheduler.lr_warmup_iters", repr(round(WARM_UP_SHARE * run.iterations))),
    ]


def offload_fields(run: ProductionRun) -> Settings:
    """Return the fields of the optimizer in main memory, which are named as Megatron-LM's arguments."""
    if run.topology.offload == "none":
        return []
    flags = flag_table("megatron-core").parsed(offloading(run.topology))
    names = (
        *("optimizer_cpu_offload", "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d"),
        "use_precision_aware_optimizer",
    )
    return [(name, repr(getattr(flags, name))) for name in names]
