"""The model and run that Megatron-LM trains with parsed arguments, and those requested, in common terms."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from typing import Any

import pytest

from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.precision import bf16_layers
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions, Settings
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.export.production import ProductionRun

TABLE = flag_table("megatron-core")
PARSER = TABLE.parser


def parsed(flags: Settings) -> Namespace:
    """Return Megatron's parsed arguments, including defaults."""
    return PARSER.parse_args([word for flag in flags for word in flag])


def trained(ns: Namespace) -> dict[str, Any]:
    """Return what Megatron-LM at the recorded commit trains with these arguments."""
    rotary = ns.position_embedding_type in ("rope", "yarn")
    latent = ns.multi_latent_attention
    kinds = [("silu", ns.swiglu), ("relu2", ns.squared_relu), ("quick_gelu", ns.quick_geglu)]
    chosen = [name for name, on in kinds if on]
    fused = ns.bias_gelu_fusion and ns.add_bias_linear
    activation = chosen[0] if chosen else "gelu_tanh" if fused else "gelu"
    consistent = len(chosen) <= 1 and not (fused and activation in ("relu2", "quick_gelu"))
    consistent &= starts(ns, activation, fused=fused)
    scaling: tuple[Any, ...] | None = None
    if ns.position_embedding_type == "yarn":
        usual = 0.1 * ns.mscale * math.log(max(ns.rotary_scaling_factor, 1)) + 1
        factor = usual / (0.1 * ns.mscale_all_dim * math.log(max(ns.rotary_scaling_factor, 1)) + 1)
        scaling = ("yarn", ns.rotary_scaling_factor, ns.yarn_original_max_position_embeddings, factor)
        scaling += (ns.yarn_beta_fast, ns.yarn_beta_slow, ns.yarn_correction_range_round_to_int is not False)
    elif latent and ns.rope_type != "rope":  # original length and betas of MLATransformerConfig
        step = 0.1 * math.log(ns.rotary_scaling_factor)
        factor = (ns.mscale * step + 1) / (ns.mscale_all_dim * step + 1)
        scaling = ("yarn", ns.rotary_scaling_factor, 4096, factor, 32.0, 1.0, True)
    elif ns.use_rope_scaling:
        scaling = ("llama3", 8.0, 8192, 1.0, 4.0)  # --rope-scaling-factor does not reach the model
    elif ns.rotary_seq_len_interpolation_factor:
        scaling = ("linear", float(ns.rotary_seq_len_interpolation_factor))
    units = ns.num_layers + ns.account_for_embedding_in_pipeline_split + ns.account_for_loss_in_pipeline_split
    chunk = ns.num_layers_per_virtual_pipeline_stage
    stage = units // ns.pipeline_model_parallel_size
    chunks = chunks_of(ns.pipeline_model_parallel_layout)
    left, right = [int(word) for word in ns.window_size.split(",")] if ns.window_size else (-1, 0)
    return {
        **_experts_trained(ns),
        "consistent": consistent,
        "layers": ns.num_layers,
        "hidden": ns.hidden_size,
        "heads": ns.num_attention_heads,
        "groups": ns.num_query_groups if ns.group_query_attention else ns.num_attention_heads,
        "head_size": ns.qk_head_dim + ns.qk_pos_emb_head_dim if latent else ns.kv_channels,
        "ffn": ns.ffn_hidden_size,
        "activation": (activation, ns.swiglu or ns.quick_geglu),
        "norm": (
            ns.normalization,
            ns.layernorm_epsilon,
            ns.layernorm_zero_centered_gamma,
            ns.qk_layernorm and not latent,
        ),
        "post_layernorm_residual": ns.apply_residual_connection_post_layernorm,
        "biases": (ns.add_bias_linear, ns.add_bias_linear or ns.add_qkv_bias),
        "positions": {"rope": "rotary", "yarn": "rotary", "learned_absolute": "learned"}.get(
            ns.position_embedding_type, ns.position_embedding_type
        ),
        "rotary": (
            *(ns.rotary_base, 1.0 if ns.position_embedding_type == "yarn" else ns.rotary_percent),
            *(ns.rotary_interleaved or latent, ns.no_rope_freq),
        )
        if rotary
        else None,
        "rotary_kernel": ns.apply_rope_fusion if rotary and (ns.rotary_interleaved or latent) else None,
        "scaling": scaling,
        "window": (left + 1, _windowed(ns)) if ns.window_size else None,
        "lookahead": right,
        "dropouts": (ns.attention_dropout, ns.hidden_dropout),
        "tied": not ns.untie_embeddings_and_output_weights,
        "vocab": (ns.vocab_size, ns.padded_vocab_size),  # None: the tokenizer's
        "max_positions": ns.max_position_embeddings,
        "init_std": ns.init_method_std,
        "seq": ns.seq_length,
        "tp": ns.tensor_model_parallel_size,
        "pp": ns.pipeline_model_parallel_size,
        "cp": ns.context_parallel_size,
        "vpp": len(chunks) // ns.pipeline_model_parallel_size or (stage // chunk if chunk else 1),
        "embedding_counts": ns.account_for_embedding_in_pipeline_split and ns.account_for_loss_in_pipeline_split,
        "layout": chunks,
        "stages_are_equal": bool(chunks)
        or units % (ns.pipeline_model_parallel_size * (stage // chunk if chunk else 1)) == 0,
        "sequence_parallel": ns.sequence_parallel,
        "sharding": (ns.use_distributed_optimizer, ns.overlap_grad_reduce, ns.overlap_param_gather),
        "batch": (ns.micro_batch_size, ns.global_batch_size),
        "moe_overlap": (ns.overlap_moe_expert_parallel_comm, ns.delay_wgrad_compute),
        "recompute": (
            ns.recompute_granularity,
            ns.recompute_method,
            ns.recompute_num_layers,
            tuple(ns.recompute_modules or ()),
        ),
        "precision": (ns.bf16, ns.fp16, ns.fp8, ns.fp8_recipe if ns.fp8 else None),
        "fp8_weights": (ns.fp8_param_gather, ns.reuse_grad_buf_for_mxfp8_param_ag),
        "fp4": (ns.fp4, ns.fp4_recipe, ns.fp4_param_gather) if ns.fp4 else None,
        "bf16_layers": (ns.num_layers_at_start_in_bf16, ns.num_layers_at_end_in_bf16)
        if ns.first_last_layers_bf16
        else (0, 0),
        "maxima": (ns.fp8_amax_history_len, ns.fp8_amax_compute_algo)
        if ns.fp8 and ns.fp8_recipe == "delayed"
        else None,
        "loss_scale": (ns.initial_loss_scale, ns.loss_scale_window) if ns.fp16 else None,
        "kernels": (ns.transformer_impl, ns.attention_backend, ns.masked_softmax_fusion),
        "apex": ns.gradient_accumulation_fusion if ns.transformer_impl == "local" else None,
        "loss_fusion": (ns.cross_entropy_loss_fusion, ns.cross_entropy_fusion_impl),
        "optimizer": (ns.optimizer, ns.adam_beta1, ns.adam_beta2, ns.adam_eps, ns.weight_decay, ns.clip_grad),
        "schedule": (ns.train_samples, ns.lr, ns.min_lr, ns.lr_decay_style, ns.lr_warmup_samples),
        "logs": (ns.log_interval, ns.log_throughput, ns.save_interval),
    }


def starts(ns: Namespace, activation: str, *, fused: bool) -> bool:
    """Return whether modules and config classes at the recorded commit accept the combination of values.

    The checks are in megatron/core/transformer: moe/experts.py, moe/shared_experts.py, mlp.py, transformer_config.py;
    megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py asserts that yarn is not interleaved.
    """
    biased, shared = ns.num_experts and ns.add_bias_linear, ns.moe_shared_expert_intermediate_size
    clamped = activation == "silu" and ns.activation_func_clamp_value
    refused = (
        biased and ns.moe_grouped_gemm and ns.bias_dropout_fusion,
        biased and shared,
        ns.num_experts and fused and activation == "gelu_tanh",
        activation == "silu" and ns.bias_swiglu_fusion and ns.glu_linear_offset,
        clamped and (not ns.num_experts or ns.glu_linear_offset),
        ns.position_embedding_type == "yarn" and ns.rotary_interleaved,
    )
    return not any(refused)


def chunks_of(layout: str | None) -> list[str]:
    """Return the parts of each chunk of a layout, as megatron-core 0.16.1's pipeline_parallel_layer_layout reads it."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda found: found[1] * int(found[2]), layout or "")
    return layout.split("|") if layout else []


def _chunks_asked(layers: int, mtp_layers: int, topology: Topology) -> list[str]:
    if topology.partition != "layout":
        return []
    chunks = topology.pp * topology.vpp
    most = math.ceil(layers / chunks)
    parts = ["t" * most] * (chunks - 1) + ["t" * (layers - most * (chunks - 1)) + "m" * mtp_layers + "L"]
    return ["E" + parts[0], *parts[1:]]


def _experts_trained(ns: Namespace) -> dict[str, Any]:
    """Return the experts, latent attention and multi-token prediction that Megatron trains."""
    frequency = ns.moe_layer_freq
    pattern = eval(frequency) if "[" in str(frequency) else [int(i % int(frequency) == 0) for i in range(ns.num_layers)]  # noqa: S307
    flex = ns.moe_token_dispatcher_type == "flex"  # noqa: S105 - no password
    growth = 0.1 * ns.mscale_all_dim * math.log(max(ns.rotary_scaling_factor, 1)) + 1
    return {
        "experts": ns.num_experts and (ns.num_experts, ns.moe_router_topk, ns.moe_ffn_hidden_size, pattern),
        "shared": (ns.moe_shared_expert_intermediate_size or 0, ns.moe_shared_expert_gate),
        "router": ns.num_experts
        and (
            *(ns.moe_router_score_function, ns.moe_router_enable_expert_bias, ns.moe_router_pre_softmax),
            ns.moe_router_enable_expert_bias and ns.moe_router_bias_update_rate,
            *(ns.moe_router_num_groups or 0, ns.moe_router_group_topk or 0, ns.moe_router_topk_scaling_factor or 1.0),
            *(ns.moe_router_load_balancing_type, ns.moe_aux_loss_coeff, ns.moe_z_loss_coeff or 0.0),
            *(ns.moe_expert_capacity_factor or 0.0, ns.moe_apply_probs_on_input, ns.moe_router_dtype),
        ),
        "expert_kernels": (ns.moe_grouped_gemm, ns.moe_permute_fusion),
        "latent": ns.multi_latent_attention
        and (
            *(ns.q_lora_rank or 0, ns.kv_lora_rank, ns.qk_head_dim, ns.qk_pos_emb_head_dim, ns.v_head_dim),
            *(ns.qk_layernorm, ns.layernorm_epsilon),
            ns.qk_layernorm and not ns.q_lora_rank,  # normalizes the input of the queries again
        ),
        "latent_scale": ns.multi_latent_attention and growth**2,
        "delta_net": ns.experimental_attention_variant
        and (
            *(ns.experimental_attention_variant in ("gdn", "gated_delta_net"), _linear(ns), ns.linear_conv_kernel_dim),
            *(ns.linear_num_key_heads, ns.linear_num_value_heads),
            *(ns.linear_key_head_dim, ns.linear_value_head_dim, ns.transformer_impl),
        ),
        "attention_gate": ns.attention_output_gate,
        "predicted": ns.mtp_num_layers and (ns.mtp_num_layers, ns.mtp_loss_scaling_factor),
        "sinks": ns.softmax_type,
        "glu": (ns.activation_func_clamp_value or 0.0, ns.glu_linear_offset),
        "expert_parallel": ns.num_experts
        and (
            *(ns.expert_model_parallel_size, ns.expert_tensor_parallel_size or ns.tensor_model_parallel_size),
            ns.moe_flex_dispatcher_backend if flex else ns.moe_token_dispatcher_type,
        ),
    }


def _experts_asked(run: ProductionRun) -> dict[str, Any]:
    """Return the experts, latent attention and multi-token prediction that a run requests."""
    model, topology = run.workload.model, run.topology
    experts, latent = model.experts, model.latent
    found: dict[str, Any] = {"experts": None, "shared": (0, False), "router": None, "expert_parallel": None}
    found |= {"expert_kernels": (False, False), "latent": False, "latent_scale": False}
    if experts:
        balancing = "none" if not experts.aux_loss else "seq_aux_loss" if experts.aux_loss_per_sequence else "aux_loss"
        pattern = [int(model.is_moe_layer(layer)) for layer in range(model.layers)]
        found["experts"] = (experts.count, experts.top_k, experts.ffn, pattern)
        found["shared"] = (experts.shared_ffn, experts.shared_gate)
        found["router"] = (
            *(experts.router, experts.router_bias, experts.router == "softmax" and not experts.normalized),
            experts.router_bias and experts.router_bias_rate,
            *(experts.router_groups, experts.router_top_groups, experts.scale),
            *([balancing], [experts.aux_loss] if experts.aux_loss else 0.0, experts.z_loss),
            *(experts.capacity_factor, experts.weights_before, "fp32"),
        )
        found["expert_kernels"] = (run.workload.attention != "eager",) * 2
        found["expert_parallel"] = (topology.ep, topology.etp, topology.dispatcher)
    if latent:
        sizes = (latent.query_rank, latent.kv_rank, latent.nope_size, latent.rope_size, latent.value_size)
        found["latent"] = (*sizes, True, latent.norm_epsilon, False)
        found["latent_scale"] = pytest.approx((model.attention_scale or latent.key_size**-0.5) * latent.key_size**0.5)
    delta = model.delta_net
    return found | {
        "delta_net": delta
        and (
            *(True, [(layer + 1) % (delta.period or layer + 2) != 0 for layer in range(model.layers)], delta.kernel),
            *(delta.key_heads, delta.value_heads, delta.key_size, delta.value_size, "transformer_engine"),
        ),
        "attention_gate": model.attention_gate,
        "predicted": (model.mtp_layers, model.mtp_loss) if model.mtp_layers else None,
        "sinks": "learnable" if model.attention_sinks else "vanilla",
        "glu": (model.glu_clamp, model.glu_offset),
    }


def _linear(ns: Namespace) -> list[bool]:
    """Return the layers without attention (experimental_attention_variant_module_specs.py:
    get_linear_attention_pattern; arguments.py: la_freq_type)."""
    frequency = str(ns.linear_attention_freq)
    if "[" in frequency:
        assert not re.search(r"[^,\d\[\]()+* ]", frequency)
        return [layer == 1 for layer in eval(frequency)]  # noqa: S307
    return [(layer + 1) % int(frequency) != 0 for layer in range(ns.num_layers)]


def _windowed(ns: Namespace) -> list[bool]:
    """Return the layers with a window (megatron/core/transformer/utils.py: is_layer_window_attention)."""
    frequency = str(ns.window_attn_skip_freq or "")
    if "[" in frequency:
        assert not re.search(r"[^,\d\[\]()+*]", frequency)  # arguments.py: _eval_pattern
        return [bool(windowed) for windowed in eval(frequency)]  # noqa: S307
    return [not frequency or layer % int(frequency) != 0 for layer in range(1, ns.num_layers + 1)]


def asked(run: ProductionRun) -> dict[str, Any]:
    """Return what a run requests, in the terms of `trained`."""
    model, workload, topology = run.workload.model, run.workload, run.topology
    rotary = model.positions == "rotary"
    scaling: tuple[Any, ...] | None = None
    if rotary and model.rotary_scaling:
        one = model.rotary_scaling
        default = 0.1 * math.log(max(one.factor, 1)) + 1
        scaling = {
            "linear": ("linear", one.factor),
            "llama3": ("llama3", one.factor, one.original_seq, one.low_frequency, one.high_frequency),
            "yarn": (
                *("yarn", one.factor, one.original_seq, pytest.approx(one.attention_factor or default)),
                *(one.beta_fast, one.beta_slow, one.truncate),
            ),
        }.get(one.kind, ("unknown",))
    eager, half = workload.attention == "eager", workload.precision
    fp8 = half == "fp8"
    recipe = workload.precision_recipe or "delayed"
    stored = fp8 and workload.stack is not None and workload.stack.quantized_weights is True
    adam = workload.optimizer == "adam"
    vpp = topology.vpp
    return {
        **_experts_asked(run),
        "consistent": True,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "groups": model.kv_heads,
        "head_size": model.query_width // model.heads,
        "ffn": model.ffn,
        "activation": (model.mlp_activation, model.gated_mlp),
        "norm": (
            {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm],
            model.norm_epsilon,
            model.norm_offset,
            model.qk_norm,
        ),
        "post_layernorm_residual": False,
        "biases": (model.mlp_bias, model.qkv_bias),
        "positions": model.positions,
        "rotary": (
            model.rotary_base,
            model.rotary_fraction,
            model.rotary_interleaved,
            str(model.rotary_skip) if model.rotary_skip else None,
        )
        if rotary
        else None,
        "rotary_kernel": False if rotary and model.rotary_interleaved else None,
        "scaling": scaling,
        "window": (model.sliding_window, [model.is_windowed_layer(layer) for layer in range(model.layers)])
        if 0 < model.sliding_window < model.seq
        else None,
        "lookahead": 0,
        "dropouts": (model.attention_dropout, model.hidden_dropout),
        "tied": model.tied_embeddings,
        "vocab": (model.vocab, model.padded_vocab(topology.tp)),
        "max_positions": max(4096 if model.latent and model.rotary_scaling else model.max_positions, model.seq),
        "init_std": model.init_std,
        "seq": model.seq,
        "tp": topology.tp,
        "pp": topology.pp,
        "cp": topology.cp,
        "vpp": vpp,
        "embedding_counts": topology.partition == "embedding" and topology.pp > 1,
        "layout": _chunks_asked(model.layers, model.mtp_layers, topology),
        "stages_are_equal": True,
        "sequence_parallel": topology.sequence_parallel,
        "sharding": (topology.zero == 1, topology.zero == 1 or _has_copies(topology), topology.zero == 1),
        "batch": (topology.micro_batch, workload.global_batch),
        "moe_overlap": (topology.moe_overlap, False),
        "recompute": {
            "none": (None, None, None, ()),
            "selective": ("selective", None, None, ("core_attn",)),
            "full": ("full", "uniform", 1, ()),
        }.get(topology.recompute, ("selective", None, None, tuple(topology.recompute.split("+")))),
        "precision": (
            half in ("bf16", "fp8", "fp4"),
            half == "fp16",
            (None if not fp8 else "e4m3" if recipe in ("blockwise", "mxfp8") else "hybrid"),
            recipe if fp8 else None,
        ),
        "fp8_weights": (stored, stored and recipe == "mxfp8"),
        "fp4": ("e2m1", "nvfp4", False) if half == "fp4" else None,
        "bf16_layers": bf16_layers(workload),
        "maxima": (1024, "max") if fp8 and recipe == "delayed" else None,
        "loss_scale": (4096, 500) if half == "fp16" else None,
        "kernels": (
            "local" if eager else "transformer_engine",
            {"eager": "auto", "fused": "unfused"}.get(
                workload.attention, "fused" if model.latent or model.attention_sinks else "auto"
            ),
            not eager,
        ),
        "apex": False if eager else None,
        "loss_fusion": (True, "native"),
        "optimizer": (workload.optimizer, 0.9, 0.95 if adam else 0.999, 1e-8, 0.1, 1.0),
        "schedule": (run.samples, 6e-5, 6e-6, "cosine", round(0.005 * run.samples)),
        "logs": (1, True, max(1, round(3 * 3600 / run.expected.sec_per_iter))),
    }


def assert_exact_or_refused(run: ProductionRun) -> None:
    """Check that Megatron's parser reads an export as requested, or that a property of the run is refused."""
    try:
        flags = megatron_core_flags(run)
    except InputError:
        assert MEGATRON_CORE.refusals(run, ExportOptions())
        return
    assert {flag[0] for flag in flags} <= set(TABLE.flags)
    assert len({flag[0] for flag in flags}) == len(flags)
    assert trained(parsed(flags)) == asked(run)


def _has_copies(topology: Topology) -> bool:
    """Whether several ranks have the same weights, of all layers or of experts."""
    ranks = topology.tp * topology.dp * topology.cp
    return topology.dp * topology.cp > 1 or ranks > topology.ep * topology.etp
