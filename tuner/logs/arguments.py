"""Read the arguments that a program prints at its start.

Megatron prints `  tensor_model_parallel_size ...................... 8`, between a line of dashes around "arguments" and
one around "end of arguments" (`megatron/arguments.py`, `_print_args`); DeepSpeed's configuration is printed the same
way, with fewer dots, each line with its logger's prefix (`runtime/config.py`, `print`).
"""

from __future__ import annotations

import re
from typing import Final

from tuner.core.megatron_stack import SETTINGS as STACK_SETTINGS

ARGUMENT_WORDS: Final = ("arguments --", ".. ", "padded vocab")
"""Each line of arguments contains one of them."""
_ARGUMENT: Final = re.compile(
    r"(?:^|\s)([a-z][a-z0-9_]{1,60}) \.{2,} "
    r"([^\s,{}\[\]]{1,80}|\[[01](?:, [01]){0,999}\]|\['[a-z0-9_+]{1,40}'(?:, '[a-z0-9_+]{1,40}'){0,199}\]"
    r"|\[<\w{1,40}\.[a-z0-9_]{1,40}: [0-9]{1,3}>(?:, <\w{1,40}\.[a-z0-9_]{1,40}: [0-9]{1,3}>){0,19}\])"
    r"(?:\.+updated)?\s*$"
)
_PADDED: Final = re.compile(
    r"> padded vocab \(size: [0-9]{1,10}\) with [0-9]+ dummy tokens \(new size: ([0-9]{1,10})\)"
)
_BANNER: Final = re.compile(r"-{8,} arguments -{8,}")
_DEEPSPEED_ARGUMENTS: Final = frozenset(
    {"train_batch_size", "train_micro_batch_size_per_gpu", "steps_per_print", "zero_optimization_stage"}
)
_MEGATRON_ARGUMENTS: Final = frozenset(
    {
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"),
        *("context_parallel_size", "data_parallel_size", "world_size", "virtual_pipeline_model_parallel_size"),
        *("sequence_parallel", "micro_batch_size", "global_batch_size", "num_layers", "hidden_size"),
        *("ffn_hidden_size", "num_attention_heads", "num_query_groups", "group_query_attention", "kv_channels"),
        *("num_key_value_heads", "seq_length", "padded_vocab_size", "swiglu", "glu_activation", "num_experts"),
        *("moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq", "moe_shared_expert_intermediate_size"),
        *("moe_shared_expert_gate", "moe_router_force_load_balancing", "expert_model_parallel_size"),
        "expert_tensor_parallel_size",
        *("experimental_attention_variant", "linear_attention_type", "attention_output_gate"),
        *("multi_latent_attention", "mtp_num_layers", "overlap_moe_expert_parallel_comm"),
        *("untie_embeddings_and_output_weights", "recompute_granularity", "recompute_modules"),
        *("recompute_method", "recompute_num_layers"),
        *("checkpoint_activations", "recompute_activations", "zero_stage", "use_distributed_optimizer"),
        "use_layer_wise_distributed_optimizer",
        *("data_parallel_sharding_strategy", "fp16", "bf16", "fp8", "fp4", "use_flash_attn", "use_flash_attn_v1"),
        *("use_flash_attn_v2", "use_flash_attn_triton", "masked_softmax_fusion", "scaled_masked_softmax_fusion"),
        *("pp_partition_method", "cpu_optimizer", "remote_device", "optimizer_cpu_offload", "log_interval"),
        *("optimizer_offload_fraction", "optimizer", "exp_avg_dtype", "exp_avg_sq_dtype", *STACK_SETTINGS),
    }
)


def argument(text: str) -> tuple[str, str] | None:
    """Return the name and value of an argument in a line."""
    if ".. " in text and (found := _ARGUMENT.search(text)):
        known = _DEEPSPEED_ARGUMENTS if "config.py:" in text else _MEGATRON_ARGUMENTS | _DEEPSPEED_ARGUMENTS
        return (found[1], found[2]) if found[1] in known else None
    if "padded vocab" in text and (found := _PADDED.search(text)):
        return "padded_vocab_size", found[1]
    return None


def opens_arguments(text: str) -> bool:
    """Whether a line starts a list of arguments, and with it a run."""
    return "arguments --" in text and _BANNER.search(text) is not None
