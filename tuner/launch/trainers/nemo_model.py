"""The model that overrides of NeMo's recipes describe; the recipes' own values are not read.

Overrides are `model.NAME` in Megatron Bridge and `model.config.NAME` in NeMo 2. Most names are those of Megatron-LM's
flags. They were read in megatron-bridge 0.3.1 (`models/gpt_provider.py`), megatron-core 0.16.1
(`core/model_parallel_config.py`, `core/transformer/transformer_config.py`) and NVIDIA-NeMo/NeMo at 8cfedd72
(`collections/llm/gpt/model/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.text import listed, shown
from tuner.launch.trainers.kind import Flags, real
from tuner.launch.trainers.megatron_arguments import OTHER_LAYERS, OTHER_TRAINING, PARTS, has_vocabulary
from tuner.launch.trainers.megatron_lm import core_sizes
from tuner.launch.trainers.megatron_parts import (
    agrees,
    contradiction,
    contradictions,
    placed,
    training,
    values_of_parts,
    whose_value,
)
from tuner.launch.trainers.megatron_positions import SCALES, YARN, YARN_FACTORS, Value, growth, is_llama3
from tuner.launch.trainers.megatron_precision import DELAYED_SCALING, EXPORTED_VALUES, RECIPE_FORMATS

_SECTIONS: Final = ("model.config.", "model.")
_RENAMED: Final[Mapping[str, str]] = {
    "num_moe_experts": "--num-experts",
    "layernorm_epsilon": "--norm-epsilon",
    "seq_len_interpolation_factor": "--rotary-seq-len-interpolation-factor",
    "yarn_rotary_scaling_factor": "--rotary-scaling-factor",
    "yarn_mscale": "--mscale",
    "yarn_mscale_all_dim": "--mscale-all-dim",
}
"""Names that differ from Megatron-LM's flags."""
_TENSOR_PARALLEL: Final = (
    *("model.tensor_model_parallel_size", "trainer.strategy.tensor_model_parallel_size", "-tp"),
    "--tensor_model_parallel_size",
)
_NULL: Final = ("null", "none")
_OFF: Final = (*_NULL, "false", "0", "0.0")

PARALLEL: Final = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"),
    *("context_parallel_size", "sequence_parallel", "expert_model_parallel_size", "expert_tensor_parallel_size"),
    *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "pipeline_model_parallel_layout"),
)
"""Fields of a topology's degrees and stages, which jobs set."""
_SAME_MODEL: Final = frozenset(
    (
        *PARALLEL,
        *("hierarchical_context_parallel_sizes", "hybrid_context_parallel", "cp_comm_type", "cp_partition_mode"),
        *("mtp_standalone", "microbatch_group_size_per_vp_stage", "max_seqlen_per_dp_cp_rank"),
        *("pipeline_model_parallel_comm_backend", "should_pad_vocab", "make_vocab_size_divisible_by", "seq_length"),
        *("use_cpu_initialization", "perform_initialization", "init_model_with_meta_device", "hf_model_id"),
        *("bf16", "fp16", "params_dtype", "pipeline_dtype", "autocast_dtype", "enable_autocast", "qkv_format"),
        *("first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
        *("attention_backend", "transformer_impl", "attention_softmax_in_fp32", "apply_rope_fusion"),
        *("masked_softmax_fusion", "bias_activation_fusion", "bias_dropout_fusion", "persist_layer_norm"),
        *("memory_efficient_layer_norm", "gradient_accumulation_fusion", "fused_single_qkv_rope"),
        *("use_fused_weighted_squared_relu", "use_te_activation_func", "use_te_rng_tracker"),
        *("activation_func_fp8_input_store", "use_transformer_engine_full_layer_spec", "distribute_saved_activations"),
        *("use_transformer_engine_op_fuser", "moe_grouped_gemm", "moe_use_legacy_grouped_gemm", "moe_permute_fusion"),
        *("moe_router_fusion", "moe_shared_expert_overlap", "moe_layer_recompute"),
        *("moe_enable_deepep", "moe_per_layer_logging", "moe_router_padding_for_fp8", "moe_extended_tp"),
        *("moe_router_padding_for_quantization", "moe_mlp_glu_interleave_size", "enable_cuda_graph"),
        *("external_cuda_graph", "async_tensor_model_parallel_allreduce", "delay_wgrad_compute"),
        *("defer_embedding_wgrad_compute", "wgrad_deferral_limit", "batch_p2p_comm", "batch_p2p_sync"),
        *("use_ring_exchange_p2p", "variable_seq_lengths", "deallocate_pipeline_outputs", "overlap_p2p_comm"),
        *("overlap_p2p_comm_warmup_flush", "overlap_moe_expert_parallel_comm", "barrier_with_L1_time"),
        *("ep_overlap_early_attn_memory_release", "clone_scatter_output_in_embedding", "deterministic_mode"),
        *("disable_parameter_transpose_cache", "parallel_output", "scatter_embedding_sequence_parallel"),
        *("num_microbatches_with_partial_activation_checkpoints", "tp_only_amax_red", "cross_entropy_loss_fusion"),
        *("cross_entropy_fusion_impl", "log_max_attention_logit", "config_logger_dir", "batch_invariant_mode"),
        *("fine_grained_activation_offloading", "offload_modules", "min_offloaded_tensor_size", "symmetric_ar_type"),
        *("flash_decode", "inference_rng_tracker", "inference_sampling_seed", "cache_mla_latents"),
    )
)
"""Fields of the topology, the sequence, kernels, overlap, memory and precision, which train the same model."""
_SAME_MODEL_PREFIXES: Final = (
    *("tp_comm_", "cuda_graph_", "recompute_", "cpu_offloading", "moe_token_dispatcher_type"),
    *("moe_flex_dispatcher_", "moe_deepep_", "moe_hybridep_", "moe_paged_stash"),
)
_PRECISION: Final = ("mixed_precision.", "trainer.plugins.", *_SECTIONS, "ddp.", "trainer.strategy.ddp.")
"""Sections of the fields of precision."""
_READ_PRECISION: Final = (
    *("fp8_param_gather", "fp8_param", "first_last_layers_bf16", "num_layers_at_start_in_bf16"),
    *("num_layers_at_end_in_bf16", "reuse_grad_buf_for_mxfp8_param_ag"),
)
_EXPORTED_PRECISION: Final[Mapping[str, str]] = {
    **{flag.removeprefix("--").replace("-", "_"): value for flag, value in EXPORTED_VALUES.items()},
    **{name: str(value) for name, value in DELAYED_SCALING.items()},
    "fp8_wgrad": "true",
    "fp8_dot_product_attention": "false",
    "fp8_multi_head_attention": "false",
    "grad_reduce_in_fp32": "true",
    "grad_reduce_in_bf16": "false",
    "fp4": "e2m1",
    "fp4_recipe": "nvfp4",
    "fp4_param_gather": "false",
    "fp4_param": "false",
    "loss_scale": "null",
}
"""Values of fields of precision with which an export trains."""
_UNUSED: Final = (
    *("--ffn-hidden-size", "--kv-channels", "--add-qkv-bias"),
    *("--rotary-base", "--rotary-percent", "--rotary-interleaved"),
)
"""Flags that are not compared with a model on which they have no effect."""
_FUNCTIONS: Final[Mapping[str, str]] = {"gelu_tanh": "gelu", "relu2": "squared_relu"}
"""Names of activation functions that differ from the model's; GELU is approximated where it is fused."""
_GROUPS: Final = ("--moe-router-num-groups", "--moe-router-group-topk")
_BALANCING: Final = "--moe-router-load-balancing-type"
_COEFFICIENTS: Final[Mapping[str, str]] = {
    "--moe-z-loss-coeff": "z_loss",
    "--moe-expert-capacity-factor": "capacity_factor",
    "--moe-router-bias-update-rate": "router_bias_rate",
}
"""Fields of the experts that are settings of training too: those of the command count."""


def check_overrides(flags: Flags, model: Model) -> None:
    """Raise if an override describes another model."""
    given, names = _as_flags(flags, model)
    others = [names[flag] for flag in OTHER_LAYERS if given.get(flag, "0").lower() not in _OFF]
    if others and not model.not_understood:
        raise InputError(
            f"--command has {listed(others)}, which no field of the model {shown(model.name)} expresses; remove it, or "
            "write a template with fields in --command, without --trainer."
        )
    for flag, reason in _contradictions(flags, given, model):
        raise contradiction(names[flag], flags[names[flag]], reason)


def with_overrides(flags: Flags, model: Model, recipe: str | None = None) -> Model:
    """Return the model with the coefficients of the overrides, and the overrides with which no export trains it.

    The recipe is how the command scales fp8 tensors, if that is known.
    """
    given, names = _as_flags(flags, model)
    if experts := model.experts:
        changes: dict[str, Any] = {field: real(given, flag) for flag, field in _COEFFICIENTS.items() if flag in given}
        model = replace(model, experts=replace(experts, **changes))
    if model.mtp_layers and "--mtp-loss-scaling-factor" in given:
        model = replace(model, mtp_loss=real(given, "--mtp-loss-scaling-factor"))
    compared = _compared(given, model)
    found = [name for flag, name in names.items() if flag not in compared and not _is_same_model(name, given[flag])]
    found += [name for name in other_precision(flags, recipe) if name not in found]
    new = [name for name in found if name not in model.not_understood]
    return replace(model, not_understood=(*model.not_understood, *new)) if new else model


def other_precision(flags: Flags, recipe: str | None) -> list[str]:
    """Return the overrides of precision with which no export trains, by the recipe of fp8, if it is known."""
    exported = {**_EXPORTED_PRECISION, "fp8": RECIPE_FORMATS.get(recipe or "delayed", "")}
    exported |= {"fp8_recipe": recipe} if recipe else {}
    found = []
    for name, value in flags.items():
        section = next((one for one in _PRECISION if name.startswith(one)), "")
        field, given = name.removeprefix(section), value.strip("\"'").lower()
        is_precision = section in _PRECISION[:2] or field in exported or field.startswith(("fp8", "fp4"))
        is_off = field in ("fp8", "fp4") and given in _OFF
        if field == "fp8" and section in _PRECISION[:2] and recipe is None and not is_off:
            found.append(name)  # adds fp8 to a recipe that has none
            continue
        if section and is_precision and field not in _READ_PRECISION and given != exported.get(field) and not is_off:
            found.append(name)
    return found


def _as_flags(flags: Flags, model: Model) -> tuple[dict[str, str], dict[str, str]]:
    """Return the overrides of the model as flags of Megatron-LM with their values, and the overrides' names."""
    given, names = dict[str, str](), dict[str, str]()
    for name, value in flags.items():
        if section := next((section for section in _SECTIONS if name.startswith(section)), ""):
            field = name.removeprefix(section)
            flag = _RENAMED.get(field, f"--{field.replace('_', '-')}")
            given[flag], names[flag] = value.strip("\"'"), name
    nulls = [flag for flag, value in given.items() if value.lower() in _NULL]
    others = {flag: value for flag, value in given.items() if flag not in nulls}
    defaults = {flag: default for flag, (_, default) in _values(others, model).items()} | _defaults(model)
    given |= {flag: f"{defaults[flag]}" for flag in nulls if flag in defaults}
    if "--activation-func" in given:
        given["--activation-func"] = given["--activation-func"].rpartition(".")[2].replace("fast_gelu", "gelu")
    return given, names


def _defaults(model: Model) -> dict[str, str]:
    """Return what null means for flags of training and of some layers."""
    zero = (*_COEFFICIENTS, "--moe-aux-loss-coeff", *_GROUPS)
    return {
        "--moe-layer-freq": "1",
        "--mtp-loss-scaling-factor": "0.1",
        "--window-attn-skip-freq": f"([1]*{model.layers})",
        **dict.fromkeys(("--no-rope-freq", "--linear-attention-freq"), f"([0]*{model.layers})"),
        **dict.fromkeys(zero, "0"),
        **{flag: f"{scale}" for flag, scale in zip(SCALES, YARN_FACTORS, strict=True)},
    }


def _contradictions(flags: Flags, given: Flags, model: Model) -> Iterator[tuple[str, str]]:
    """Yield the flags of overrides that describe another model, with the reason."""
    for flag, (own, _) in _values(given, model).items():
        if flag in given and not (_is_readable(given[flag], own) and agrees(given, flag, own)):
            yield flag, whose_value(own)
    if "--vocab-size" in given and not _has_vocabulary(flags, given["--vocab-size"], model):
        yield "--vocab-size", whose_value(model.vocab)
    for flag, has in PARTS.items():
        if has(model) is False and flag in given and not _is_off(given[flag]):
            yield flag, "which has no such part"
    yield from contradictions(given, model)


def _is_off(value: str) -> bool:
    """Return whether a value switches a part off, or is a list that marks no layers."""
    marks = re.findall(r"\d", re.sub(r"\*\d+|\d+\*", "", value.replace(" ", "")))
    return value.lower() in _OFF or (bool(marks) and {*marks} == {"0"})


def _is_readable(value: str, own: Value) -> bool:
    """Return whether a value can be compared with the model's."""
    if isinstance(own, bool | str):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True


def _has_vocabulary(flags: Flags, size: str, model: Model) -> bool:
    """Return whether a size is that of the model's vocabulary, which may be padded for the command's degree of tp."""
    if not size.isdecimal():
        return size.lower() in _NULL  # the tokenizer's
    degrees = [int(flags[name]) for name in _TENSOR_PARALLEL if flags.get(name, "").isdecimal()]
    return has_vocabulary(model, int(size)) or int(size) in map(model.padded_vocab, degrees)


def _values(given: Flags, model: Model) -> dict[str, tuple[Value, Value]]:
    """Return the model's values of flags, each with the value of null."""
    usual = {
        "--num-query-groups": model.heads,
        "--kv-channels": model.hidden // model.heads,
        "--ffn-hidden-size": 4 * model.hidden,
        "--moe-ffn-hidden-size": model.ffn,
    }
    # biases of all linear layers include those of queries, keys and values
    biases = {} if model.mlp_bias else {"--add-qkv-bias": (model.qkv_bias, False)}
    types = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
    return {
        **{flag: (own, usual.get(flag, 0)) for flag, own in core_sizes(model).items()},
        "--num-experts": (model.experts.count if model.experts else 0, 0),
        "--gated-linear-unit": (model.gated_mlp, False),
        "--activation-func": (_FUNCTIONS.get(model.mlp_activation, model.mlp_activation), "gelu"),
        "--normalization": ({"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm], "LayerNorm"),
        "--layernorm-zero-centered-gamma": (model.norm_offset, False),
        "--add-bias-linear": (model.mlp_bias, True),
        **biases,
        "--share-embeddings-and-output-weights": (model.tied_embeddings, True),
        "--multi-latent-attention": (model.latent is not None, False),
        "--qk-layernorm": (model.qk_norm or model.latent is not None, False),
        "--position-embedding-type": (types.get(model.positions, model.positions), "learned_absolute"),
        **_rotary_values(model),
        **{flag: (own, default) for flag, own, default in values_of_parts(given, model)},
    }


def _rotary_values(model: Model) -> dict[str, tuple[Value, Value]]:
    """Return the values of rotary positions under the names that only NeMo has."""
    scaling = model.rotary_scaling
    if model.positions != "rotary":
        return {}
    found: dict[str, tuple[Value, Value]] = {}
    if not model.latent:
        found["--rotary-interleaved"] = (model.rotary_interleaved, False)
    if scaling is None or scaling.kind != "llama3":
        found["--rope-scaling"] = (False, False)
    elif is_llama3(scaling):
        found |= {"--rope-scaling": (True, False), "--rope-scaling-factor": (scaling.factor, 1.0)}
        found |= {"--scale-factor": (scaling.factor, 8.0), "--low-freq-factor": (scaling.low_frequency, 1.0)}
        found |= {"--high-freq-factor": (scaling.high_frequency, 4.0), "--old-context-len": (scaling.original_seq, 0)}
    if scaling is not None and scaling.kind == "yarn":
        found["--yarn-correction-range-round-to-int"] = (scaling.truncate, True)
        found["--original-max-position-embeddings"] = (scaling.original_seq, YARN.original_seq)
        found["--beta-fast"] = (scaling.beta_fast, YARN.beta_fast)
        found["--beta-slow"] = (scaling.beta_slow, YARN.beta_slow)
    return found


def _compared(given: Flags, model: Model) -> set[str]:
    """Return the flags that are compared with the model or taken into it."""
    found = {*_values(given, model), *PARTS, "--vocab-size", *_UNUSED, *placed(given, model)}
    found |= {*SCALES} if growth(model) else set()
    if experts := model.experts:
        found |= {flag for flag, own, _ in training(given, experts) if own} | {*_COEFFICIENTS, *_GROUPS}
        is_unbalanced = given.get(_BALANCING) == "none" and not experts.aux_loss
        found |= {_BALANCING} if is_unbalanced else set()
    return found | ({"--mtp-loss-scaling-factor"} if model.mtp_layers else set())


def _is_same_model(name: str, value: str) -> bool:
    """Return whether an override that is not compared trains the same model."""
    field = next(name.removeprefix(section) for section in _SECTIONS if name.startswith(section))
    flag = f"--{field.replace('_', '-')}"
    if field in _EXPORTED_PRECISION or field.startswith(("fp8", "fp4")):
        return True  # other_precision compares it
    is_off = flag in (*OTHER_LAYERS, *OTHER_TRAINING) and value.lower() in _OFF
    return is_off or field in _SAME_MODEL or field.startswith(_SAME_MODEL_PREFIXES)
