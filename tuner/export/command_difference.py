"""Flags of a study's Megatron command that Megatron's exported scripts lack: data, seed, loss scale and others.

Flags of the model and the topology agree, as the command was checked against them, and learning rate, schedule and
optimizer are never the command's. Every other flag is named, unless the training does not depend on it.
"""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.text import listed
from tuner.export.bundle import FORMATS
from tuner.export.flag_table import FlagTable, flag_table
from tuner.export.formats import ExportOptions, Settings
from tuner.export.production import ProductionRun
from tuner.launch.trainers.command import TrainerCommand

_OWN_FORMATS: Final[Mapping[str, str]] = {"megatron-lm": "megatron-core", "megatron-deepspeed": "megatron-deepspeed"}
"""The format with the flags of each trainer."""
_NOT_EXPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "nemo": ("rng.", "dataset.", "data.", "ddp.average_in_collective"),
    "torchtitan": ("--training.seed", "--debug.seed", "--training.dataset", "--training.max_norm"),
}
"""Beginnings of the settings of seed, data and gradients of the other trainers' commands."""
_ALWAYS_SET: Final = ("--loss-scale-window", "--moe-router-dtype")
"""Flags that exports write whatever the command has."""
_NUMERICS: Final = ("initial_loss_scale", "loss_scale_window", "moe_router_dtype")
"""Settings that exports write besides those of the model, the topology and the precision."""

_SAME_TRAINING: Final = (
    # logs, checkpoints, profiles and monitoring
    *("log_", "wandb_", "tensorboard_", "timing_", "save", "load_tag", "ckpt_", "no_load_", "no_save_"),
    *("non_persistent_", "async_", "exit_", "dist_ckpt", "use_dist_ckpt", "eval_", "profile"),
    *("use_pytorch_profiler", "pytorch_profiler", "record_", "memory_snapshot", "nvtx", "one_logger"),
    *("app_tag", "otel", "straggler", "enable_ft", "barrier_with", "logging_level", "check_", "kill_switch"),
    # files that the script asks for
    *("data_path", "data_cache_path", "tokenizer_", "vocab_", "merge_file", "tiktoken", "trust_remote"),
    *("num_workers", "mmap", "num_dataset_builder", "create_attention_mask"),
    # processes and kernels
    *("distributed_", "local_rank", "nccl", "flight_recorder", "manual_gc", "inprocess", "inference"),
    *("empty_unused", "tp_comm", "overlap_", "cuda_graph", "enable_cuda_graph", "recompute", "ddp_bucket"),
    *("ddp_num", "align_", "batch_p2p", "delay_wgrad", "defer_embedding", "moe_grouped_gemm"),
    *("moe_permute_fusion", "moe_router_fusion", "moe_deepep", "moe_hybridep", "moe_shared_expert_overlap"),
    *("moe_per_layer", "bias_gelu_fusion", "bias_swiglu_fusion", "bias_dropout_fusion"),
    *("masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion", "persist_"),
    *("cross_entropy_", "use_flash_attn", "attention_backend", "transformer_impl", "deprecated_use_mcore"),
    *("contigious", "use_cpu_initialization", "te_rng_tracker", "deepspeed", "zero_", "use_precision_aware"),
    *("synchronize_each",),
    # compared with the model, or part of the precision
    *("num_query_groups", "num_key_value_heads", "group_query", "kv_channels", "ffn_hidden", "padded_vocab"),
    *("make_vocab", "use_rotary", "openai_gelu", "moe_aux_loss", "moe_z_loss", "moe_router_load", "mtp_loss"),
    *("bf16", "fp16", "fp8", "fp4", "first_last_layers", "num_layers_at_", "exp_avg"),
    *("accumulate_allreduce_grads", "global_batch", "rampup"),
    # learning rate, schedule and optimizer
    *("lr", "min_lr", "weight_decay", "start_weight", "end_weight", "adam_", "override_opt"),
    *("use_checkpoint_opt", "train_iters", "train_samples", "train_tokens"),
)
"""Beginnings of the names of all other settings."""


def command_differences(command: TrainerCommand, run: ProductionRun, exported: str) -> str:
    """Return sentences on the flags of a command that an export in a format lacks, each after a blank."""
    if (name := _OWN_FORMATS.get(command.kind.name)) is None:
        others = [
            f"{flag}{' ' if flag.startswith('-') else '='}{value}"
            for flag, value in command.fixed.items()
            if flag.startswith(_NOT_EXPORTED.get(command.kind.name, ())) and flag not in command.kind.replaced
        ]
        return f" They lack {listed(others)} of it; add what production needs." if others else ""
    own_format, table = FORMATS[name], flag_table(name)
    options = own_format.resolve(run, ExportOptions())
    expressed: Settings = []
    settings: Settings = []
    with suppress(InputError):  # only another format trains the run
        expressed, settings = own_format.settings(run, options), own_format.flags(run, options)
    agreeing = {table.flags[flag].dest for flag, *_ in expressed}.difference(_NUMERICS)
    given = _settings(command.words)
    of_jobs = {flag for flag, *values in given if any("{" in value for value in values)}
    own, written = _parsed(table, [one for one in given if one[0] not in of_jobs]), _parsed(table, settings)

    def lacks(flag: str) -> bool:
        dest = table.flags[flag].dest if flag in table.flags else ""
        is_same = flag not in of_jobs and dest in own and own[dest] == written[dest]
        return not (is_same or dest in agreeing or dest.startswith(_SAME_TRAINING))

    missing = [" ".join(one) for one in given if lacks(one[0])]
    flags = {flag for flag, *_ in given}
    unused = () if run.workload.precision == "fp16" else ("--loss-scale-window",)
    added = [" ".join(one) for one in settings if one[0] in _ALWAYS_SET and one[0] not in (*flags, *unused)]
    sentences = [f" They lack {listed(missing)} of it; add what production needs."] * bool(missing)
    is_megatron = exported in (name, "megatron-bridge")
    return "".join(sentences + [f" They set {listed(added)}, which it does not have."] * bool(added and is_megatron))


def _parsed(table: FlagTable, settings: Settings) -> dict[str, Any]:
    """Return the values of all settings; none if a flag has a value that the trainer refuses."""
    words = [word for setting in settings if setting[0] in table.flags for word in setting]
    try:
        return vars(table.parser.parse_known_args(words)[0])
    except (ArgumentError, SystemExit):
        return {}


def _settings(words: Sequence[str]) -> Settings:
    """Return the flags of a command with their values; the last one counts."""
    found: dict[str, tuple[str, ...]] = {}
    last = ""
    for word in words:
        if word.startswith("--"):
            last, is_set, value = word.partition("=")
            found[last] = (last, value) if is_set else (last,)
        elif last:
            found[last] = (*found[last], word)
    return [*found.values()]
