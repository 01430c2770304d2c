"""Families with experts. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tuner.core.errors import InputError
from tuner.core.experts import Experts, Latent
from tuner.core.huggingface.keys import Fields, Keys, number_of
from tuner.core.huggingface.llama import common, granite, llama, switched_window
from tuner.core.huggingface.parts import alternating, biases, layer_types, rotary_scaling, window


def mixtral(keys: Keys) -> Fields:
    """Mixtral: a softmax over the chosen experts in every layer."""
    layers = keys.sizes["layers"]
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=1_000_000.0),
        **window(keys, keys.size("sliding_window"), [True] * layers),
        **_experts(keys, [True] * layers, count=8, top_k=2, aux_loss=0.001),
    }


def qwen2_moe(keys: Keys) -> Fields:
    """Qwen1.5-MoE and Qwen2-MoE: shared experts behind a gate."""
    shared = keys.size("shared_expert_intermediate_size", default=5632)
    late = keys.size("max_window_layers", default=28)
    return {
        **common(keys, kv_heads=16),
        "qkv_bias": keys.flag("qkv_bias", default=True),
        **switched_window(keys, [layer % 2 == 0 and layer < late for layer in range(keys.sizes["layers"])]),
        **_qwen_experts(keys, count=60, top_k=4, width=1408, shared_ffn=shared, shared_gate=True),
    }


def qwen3_moe(keys: Keys) -> Fields:
    """Qwen3-MoE: a norm on each head of queries and keys, no shared experts."""
    return {
        **common(keys, kv_heads=4),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "qk_norm": True,
        **switched_window(keys, [True] * keys.sizes["layers"]),
        **_qwen_experts(keys, count=128, top_k=8, width=768),
    }


def _qwen_experts(keys: Keys, *, count: int, top_k: int, width: int, **shared: Any) -> Fields:
    dense, step = keys.numbers("mlp_only_layers", default=[]), keys.size("decoder_sparse_step", default=1)
    moe = [index not in dense and bool(step) and (index + 1) % step == 0 for index in range(keys.sizes["layers"])]
    normalized = keys.flag("norm_topk_prob", default=False)
    width = keys.size("moe_intermediate_size", default=width)
    return _experts(keys, moe, count=count, top_k=top_k, width=width, normalized=normalized, aux_loss=0.001, **shared)


def olmoe(keys: Keys) -> Fields:
    """OLMoE: a norm over the whole width of queries and keys, weights of the experts that do not add up to one."""
    keys.expects("clip_qkv")
    normalized = keys.flag("norm_topk_prob", default=False)
    moe = [True] * keys.sizes["layers"]
    return {
        **llama(keys, epsilon=1e-5),
        "mlp_bias": False,
        "qk_norm": True,
        "qk_norm_span": "width",
        **_experts(keys, moe, count=64, top_k=8, normalized=normalized, aux_loss=0.01),
    }


def phimoe(keys: Keys) -> Fields:
    """Phi-3.5-MoE: layernorm, and a router (SparseMixer) that `Experts` does not describe."""
    keys.not_expressed["router (SparseMixer)"] = None
    keys.get("router_jitter_noise")
    keys.expects("input_jitter_noise", 0, 0.0)
    size = keys.size("sliding_window")
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=1_000_000.0),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "norm": "layernorm",
        "head_bias": keys.flag("lm_head_bias", default=False),
        **window(keys, size if size < keys.sizes["max_positions"] else 0, [True] * keys.sizes["layers"]),
        **_experts(keys, [True] * keys.sizes["layers"], count=16, top_k=2, normalized=False, aux_loss=0.001),
    }


def granitemoe(keys: Keys) -> Fields:
    """Granite-MoE: Granite with a softmax over the chosen experts in every layer."""
    return {
        **granite(keys),
        "mlp_bias": False,
        **_experts(keys, [True] * keys.sizes["layers"], count=8, top_k=2, aux_loss=0.001),
    }


def ernie4_5_moe(keys: Keys) -> Fields:
    """ERNIE 4.5: a softmax router with a balancing bias, rotated neighbours."""
    keys.expects("moe_norm_min", 1e-12)
    layers = keys.sizes["layers"]
    step, start = keys.size("moe_layer_interval", default=1, least=1), keys.size("moe_layer_start_index", default=1)
    end = keys.size("moe_layer_end_index", default=-1, least=-1)
    end = layers - 1 if end == -1 else end
    width = keys.size("moe_intermediate_size", default=1536)
    shared = keys.size("moe_num_shared_experts", default=2) * width
    moe = [(index + 1) % step == 0 and start <= index <= end for index in range(layers)]
    plain = biases(keys, "use_bias", default=False)
    experts = _experts(keys, moe, count=64, top_k=6, width=width, shared_ffn=shared, router_bias=True, aux_loss=0.001)
    return {
        **common(keys, tied=True, epsilon=1e-5, kv_heads=4, theta=500_000.0),
        **plain,
        "head_bias": plain["mlp_bias"],
        "rotary_interleaved": True,
        # The router's bias is among transformers' parameters, without a gradient.
        "frozen_params": sum(moe) * experts["experts"].count,
        **experts,
    }


def minimax_m2(keys: Keys) -> Fields:
    """MiniMax-M2: a sigmoid router with a balancing bias, a norm over the whole width of queries and keys."""
    keys.expects("attn_type_list", [1] * keys.sizes["layers"])
    keys.expects("scoring_func", "sigmoid")
    keys.expects("shared_intermediate_size", 0)
    keys.expects("qk_norm_type", "per_layer")
    for key in ("use_qk_norm", "use_routing_bias"):
        keys.expects(key, True)
    modules = keys.size("num_mtp_modules") * keys.size("mtp_transformer_layers", default=1)
    rotated, head = keys.size("rotary_dim"), keys.size("head_dim", default=128, least=1)
    fields = common(keys, kv_heads=8, theta=5_000_000.0, fraction=rotated / head if rotated else 1.0)
    moe = [True] * keys.sizes["layers"]
    return {
        **fields,
        "head_size": head,
        "qk_norm": True,
        "qk_norm_span": "width",
        "mtp_layers": modules if keys.flag("use_mtp", default=False) else 0,
        **_experts(keys, moe, count=256, top_k=8, router="sigmoid", router_bias=True, aux_loss=0.001),
    }


def gpt_oss(keys: Keys) -> Fields:
    """gpt-oss: biases everywhere, attention sinks, a window in every other layer, a clamped gate with an offset.

    The published coefficient of the load-balancing loss, 0.9, is not in use: `output_router_logits` is off.
    """
    keys.expects("swiglu_alpha", 1.702)  # quick_gelu's
    keys.repeats("experts_per_token", "num_experts_per_tok")
    layers = keys.sizes["layers"]
    windowed = layer_types(keys, [index % 2 == 0 for index in range(layers)])
    fields = common(keys, epsilon=1e-5, kv_heads=8, theta=150_000.0)
    if not keys.get("rope_scaling") and keys.get("rope_parameters") is None:
        usual = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
        fields.update(rotary_base=150_000.0, rotary_scaling=rotary_scaling(keys, usual))
    keys.expects("initial_context_length", fields["rotary_scaling"] and fields["rotary_scaling"].original_seq)
    return {
        **fields,
        "head_size": keys.size("head_dim", default=64, least=1),
        **biases(keys, "attention_bias", default=True, mlp=False),
        "mlp_bias": True,
        "attention_sinks": True,
        "activation": "quick_gelu",
        "glu_clamp": keys.number("swiglu_limit", default=7.0),
        "glu_offset": 1.0,
        **window(keys, keys.size("sliding_window", default=128), windowed),
        **_experts(
            keys,
            [True] * layers,
            count=128,
            top_k=4,
            router_linear_bias=True,
            expert_bias=True,
            aux_loss=0.001,
            balanced=keys.flag("output_router_logits", default=False),
        ),
    }


def llama4(keys: Keys) -> Fields:
    """Llama 4's text model: one shared expert, weights on the experts' inputs, every fourth layer without rotation."""
    layers = keys.sizes["layers"]
    step = keys.size("interleave_moe_layer_step", default=1, least=1)
    given = keys.numbers("moe_layers", default=list(range(step - 1, layers, step)))
    width = keys.sizes["ffn"]
    interval = keys.size("no_rope_layer_interval", default=4)
    rotated = keys.numbers("no_rope_layers", default=[]) or alternating(layers, interval)
    skip = rotated.index(False) + 1 if False in rotated else 0
    if [bool(layer) for layer in rotated] != alternating(layers, skip):
        keys.not_expressed["no_rope_layers"] = None
    chunk = keys.size("attention_chunk_size", default=8192, null=0)
    if chunk:
        keys.not_expressed[f"attention_chunk_size={chunk}"] = None
    keys.get("attn_scale", "floor_scale")  # of the temperature tuning
    for key in ("attn_temperature_tuning", "use_qk_norm"):
        if keys.flag(key, default=True):
            keys.not_expressed[key] = None
    dense = keys.size("intermediate_size_mlp", default=16384)
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=500_000.0),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "head_size": keys.size("head_dim", default=128, least=1),
        "rotary_interleaved": True,
        "rotary_skip": skip,
        **_experts(
            keys,
            [index in given for index in range(layers)],
            count=16,
            top_k=1,
            width=width,
            dense=dense,
            shared_ffn=width,
            router="sigmoid",
            normalized=False,
            weights_before=True,
            aux_loss=0.001,
        ),
    }


def glm4_moe(keys: Keys) -> Fields:
    """GLM-4.5: DeepSeek-V3's router with grouped-query attention, half of each head rotated."""
    fields = common(keys, epsilon=1e-5, kv_heads=8, fraction=0.5)
    return {
        **fields,
        "qkv_bias": keys.flag("attention_bias", default=False),
        "qk_norm": keys.flag("use_qk_norm", default=False),
        "mtp_layers": keys.size("num_nextn_predict_layers", default=1, null=0),
        **_grouped_experts(keys, count=128, width=1408, scale=1.0, groups=1, dense=1),
    }


def deepseek_v2(keys: Keys) -> Fields:
    """DeepSeek-V2: latent attention, a softmax router limited to some groups of experts."""
    keys.expects("norm_topk_prob", False)  # without effect in the library
    keys.expects("scoring_func", "softmax")
    method = keys.get("topk_method", default="greedy")
    if method not in ("greedy", "group_limited_greedy"):
        keys.not_expressed[f"topk_method={method}"] = None
    grouped = method == "group_limited_greedy"
    keys.get("n_group", "topk_group")
    return {
        **_latent(keys, interleaved=True),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        **_experts(
            keys,
            _after_dense(keys, 0),
            count=64,
            top_k=6,
            width=keys.size("moe_intermediate_size", default=1407),
            shared_ffn=keys.size("n_shared_experts", default=2, null=0)
            * keys.size("moe_intermediate_size", default=1407),
            router_groups=keys.size("n_group") if grouped else 0,
            router_top_groups=keys.size("topk_group") if grouped else 0,
            router_group_scores=1,
            normalized=False,
            scale=keys.number("routed_scaling_factor", default=1.0),
            aux_loss=0.0,
        ),
    }


def deepseek_v3(keys: Keys) -> Fields:
    """DeepSeek-V3 and R1, Kimi K2, Moonlight: latent attention, a sigmoid router with groups and a balancing bias."""
    keys.expects("scoring_func", "sigmoid")
    keys.expects("topk_method", "noaux_tc")
    return {
        **_latent(keys, interleaved=keys.flag("rope_interleave", default=True)),
        "mtp_layers": keys.size("num_nextn_predict_layers", default=1, null=0),
        **_grouped_experts(keys, count=256, width=2048, scale=2.5, groups=8, dense=3),
    }


def _grouped_experts(keys: Keys, *, count: int, width: int, scale: float, groups: int, dense: int) -> Fields:
    """Return DeepSeek-V3's experts; the arguments are the library's defaults for the family."""
    width = keys.size("moe_intermediate_size", default=width)
    return _experts(
        keys,
        _after_dense(keys, dense),
        count=count,
        top_k=8,
        width=width,
        shared_ffn=keys.size("n_shared_experts", default=1, null=0) * width,
        router="sigmoid",
        router_bias=True,
        router_groups=keys.size("n_group", default=groups),
        router_top_groups=keys.size("topk_group", default=4 if groups > 1 else 1),
        router_group_scores=2,
        normalized=keys.flag("norm_topk_prob", default=True),
        scale=keys.number("routed_scaling_factor", default=scale),
        aux_loss=0.0,
    )


def _latent(keys: Keys, *, interleaved: bool) -> Fields:
    """Return multi-head latent attention."""
    latent = Latent(
        query_rank=keys.size("q_lora_rank", default=1536, null=0),
        kv_rank=keys.size("kv_lora_rank", default=512),
        nope_size=keys.size("qk_nope_head_dim", default=128),
        rope_size=keys.size("qk_rope_head_dim", default=64),
        value_size=keys.size("v_head_dim", default=128),
    )
    fields = {**common(keys), **biases(keys, "attention_bias", default=False, mlp=False)}
    keys.get("head_dim", "num_key_value_heads", "qk_head_dim")
    scaling = keys.table("rope_scaling") or keys.table("rope_parameters")
    scale_all, factor = (
        number_of(scaling.get(key) or default, f"{keys.name}: rope_scaling.{key}")
        for key, default in (("mscale_all_dim", 0.0), ("factor", 1.0))
    )
    stretched = fields["rotary_scaling"] is not None and scale_all and factor > 1
    growth = 0.1 * scale_all * math.log(factor) + 1 if stretched else 1.0
    return {
        **fields,
        "head_size": 0,
        "kv_heads": 0,
        "latent": latent,
        "rotary_interleaved": interleaved,
        "attention_scale": latent.key_size**-0.5 * growth**2,
    }


def _after_dense(keys: Keys, default: int) -> list[bool]:
    """Return true for the layers after the leading dense ones; `default` is the library's number of these."""
    keys.expects("moe_layer_freq", 1)
    dense = keys.size("first_k_dense_replace", default=default)
    return [layer >= dense for layer in range(keys.sizes["layers"])]


def _experts(
    keys: Keys,
    moe: Sequence[bool],
    *,
    count: int,
    top_k: int,
    aux_loss: float,
    balanced: bool = True,
    width: int = 0,
    dense: int = 0,
    **fields: Any,
) -> Fields:
    """Return the fields `experts` and `ffn`; `moe` lists the layers with experts.

    `count`, `top_k` and `aux_loss` are the library's for missing keys; if not `balanced`, there is no such loss.
    `width` is that of an expert and `dense` that of an MLP; 0: the config's `intermediate_size`.
    """
    keys.expects("router_jitter_noise", 0, 0.0)
    groups = fields.pop("router_groups", 0)
    top_groups, scores = fields.pop("router_top_groups", 0), fields.pop("router_group_scores", 0)
    if groups != top_groups:
        fields |= {"router_groups": groups, "router_top_groups": top_groups, "router_group_scores": scores}
    width = width or keys.sizes["ffn"]
    aux_loss = keys.number("router_aux_loss_coef", "aux_loss_alpha", default=aux_loss)
    experts = Experts(
        count=keys.size(
            _present(keys, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), default=count
        ),
        top_k=keys.size(_present(keys, "num_experts_per_tok", "moe_k"), default=top_k),
        ffn=width,
        **_layout(keys, moe),
        aux_loss=aux_loss if balanced else 0.0,
        aux_loss_per_sequence=keys.flag("seq_aux", default=False),
        z_loss=keys.number("router_z_loss_coef", default=0.0),
        **fields,
    )
    return {"experts": experts, "ffn": width if all(moe) else dense or keys.sizes["ffn"]}


def _present(keys: Keys, *spellings: str) -> str:
    return next((key for key in spellings if keys.get(key) is not None), spellings[0])


def _layout(keys: Keys, moe: Sequence[bool]) -> Fields:
    """Return `dense_layers` and `period` of the layers with experts. Raise `InputError` for any other pattern."""
    layers = [index for index, inside in enumerate(moe) if inside]
    if layers:
        period = layers[1] - layers[0] if len(layers) > 1 else 1
        dense = layers[0] - period + 1
        if dense >= 0 and layers == list(range(layers[0], len(moe), period)):
            return {"dense_layers": dense, "period": period}
    if not layers:
        raise InputError(f"{keys.name}: none of its {len(moe)} layers has experts; describe it as a dense model.")
    raise InputError(
        f"{keys.name}: its {len(layers)} layers with experts are neither all layers after some leading ones nor every "
        "n-th of these; describe a model that follows such a pattern."
    )
