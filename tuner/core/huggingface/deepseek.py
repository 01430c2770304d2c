"""DeepSeek's families, and those with its router. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.core.errors import InputError
from tuner.core.experts import Latent
from tuner.core.huggingface.keys import Fields, Keys, number_of
from tuner.core.huggingface.llama import common, skipping_windows
from tuner.core.huggingface.moe import experts_of
from tuner.core.huggingface.parts import alternating, biases, layer_types, window
from tuner.core.text import shown, shown_name


def deepseek_v2(keys: Keys) -> Fields:
    """DeepSeek-V2: latent attention, a softmax router limited to some groups of experts."""
    keys.expects("norm_topk_prob", False)  # without effect in the library
    keys.expects("scoring_func", "softmax")
    method = keys.get("topk_method", default="greedy")
    if method not in ("greedy", "group_limited_greedy"):
        keys.not_expressed[f"topk_method={shown_name(str(method))}"] = None
    grouped = method == "group_limited_greedy"
    keys.get("n_group", "topk_group")
    return {
        **_latent(keys, interleaved=True),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        **experts_of(
            keys,
            _after_dense(keys, 0),
            count=64,
            top_k=6,
            counted_by=("n_routed_experts", "num_experts"),
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
        "mtp_layers": _predictors(keys),
        **_grouped_experts(keys, _after_dense(keys, 3), count=256, width=2048, scale=2.5, groups=8),
    }


def _predictors(keys: Keys) -> int:
    """Return the multi-token prediction layers, which transformers also calls `num_mtp_layers`."""
    if keys.get("num_nextn_predict_layers") is not None:
        keys.repeats("num_mtp_layers", "num_nextn_predict_layers")
    return keys.size("num_nextn_predict_layers", default=keys.size("num_mtp_layers", default=1, null=0), null=0)


def glm4_moe(keys: Keys) -> Fields:
    """GLM-4.5: DeepSeek-V3's router with grouped-query attention, half of each head rotated."""
    fields = common(keys, epsilon=1e-5, kv_heads=8, fraction=0.5)
    return {
        **fields,
        "qkv_bias": keys.flag("attention_bias", default=False),
        "qk_norm": keys.flag("use_qk_norm", default=False),
        "mtp_layers": _predictors(keys),
        **_grouped_experts(keys, _after_dense(keys, 1), count=128, width=1408, scale=1.0),
    }


def glm4_moe_lite(keys: Keys) -> Fields:
    """GLM-4.7-Flash: DeepSeek-V3 with other sizes."""
    keys.expects("topk_method", "noaux_tc")
    keys.expects("partial_rotary_factor", 1.0)
    interleaved = keys.flag("rope_interleave", default=True)
    moe = _sparse(keys, [layer > 0 for layer in range(keys.sizes["layers"])])
    return {
        **_latent(keys, interleaved=interleaved, query=768, nope=192, value=256, epsilon=1e-5),
        "mtp_layers": keys.size("num_nextn_predict_layers"),
        **_grouped_experts(keys, moe, count=64, top_k=4, width=1536, scale=1.8),
    }


def solar_open(keys: Keys) -> Fields:
    """Solar Open: GLM-4.5's experts in every layer of a Llama."""
    keys.expects("first_k_dense_replace", 0)
    keys.expects("use_qk_norm", False)
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=1_000_000.0, fraction=1.0),
        "head_size": keys.size("head_dim", default=128, least=1),
        "qkv_bias": keys.flag("attention_bias", default=False),
        **_grouped_experts(keys, [True] * keys.sizes["layers"], count=128, width=1280, scale=1.0),
    }


def dots1(keys: Keys) -> Fields:
    """dots.llm1: DeepSeek-V3's router with plain attention, a norm on each head of queries and keys."""
    keys.expects("scoring_func", "sigmoid")
    keys.expects("topk_method", "noaux_tc")
    for key in ("n_routed_experts", "num_experts_per_tok", "n_shared_experts"):
        if keys.get(key) is None:
            raise InputError(f"{keys.name} lacks {key}.")
    start = keys.size("max_window_layers", default=62)
    windowed = layer_types(keys, [layer >= start for layer in range(keys.sizes["layers"])])
    return {
        **common(keys, kv_heads=32),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "qk_norm": True,
        **window(keys, keys.size("sliding_window", default=4096, null=0), windowed),
        **_grouped_experts(keys, _after_dense(keys, 0), count=0, width=1408, scale=1.0, normalized=False),
    }


def hy_v3(keys: Keys) -> Fields:
    """Hy3: DeepSeek-V3's router without groups, a norm on each head of queries and keys."""
    keys.get("enable_moe_fp32_combine", "enable_lm_head_fp32", "use_grouped_mm")  # precision of a sum, and kernels
    for key in ("qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"):
        keys.expects(key, True)
    width = keys.size("moe_intermediate_size", default=1536)
    keys.expects("expert_hidden_dim", width)
    shared = keys.size("num_shared_experts", default=1)
    if not shared:  # transformers would give them the width of the dense MLP
        keys.not_expressed["num_shared_experts=0"] = None
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=11_158_840.0),
        "head_size": keys.size("head_dim", default=128, least=1),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        "qk_norm": True,
        "init_std": keys.number("initializer_range", default=0.006),
        "mtp_layers": keys.size("num_nextn_predict_layers"),
        **experts_of(
            keys,
            _sparse(keys, [layer > 0 for layer in range(keys.sizes["layers"])]),
            count=192,
            top_k=8,
            width=width,
            shared_ffn=shared * width,
            router="sigmoid",
            router_bias=True,
            scale=keys.number("router_scaling_factor", default=2.826),
            aux_loss=0.0,
        ),
    }


def exaone_moe(keys: Keys) -> Fields:
    """K-EXAONE: DeepSeek-V3's router, windows in all but every fourth layer, which has no rotary embedding."""
    keys.expects("scoring_func", "sigmoid")
    keys.expects("topk_method", "noaux_tc")
    moe = _sparse(keys, _after_dense(keys, 1))
    keys.expects("is_moe_layer", moe)
    keys.expects("first_last_k_dense_replace", moe.count(False))
    return {
        **skipping_windows(keys),
        "mtp_layers": keys.size("num_nextn_predict_layers"),
        **_grouped_experts(
            keys, moe, count=64, width=1024, scale=2.5, shared="num_shared_experts", counted_by=("num_experts",)
        ),
    }


def afmoe(keys: Keys) -> Fields:
    """Trinity: DeepSeek-V3's router without groups, norms around attention and MLP, a gate of attention's output, and
    rotary embeddings in the layers with a window alone."""
    keys.expects("attention_bias", False)
    keys.get("use_grouped_mm")  # kernels
    for key in ("n_group", "topk_group", "num_expert_groups", "num_limited_groups"):
        keys.expects(key, 1)
    keys.expects("score_func", "sigmoid")
    keys.expects("route_norm", True)
    layers = keys.sizes["layers"]
    size = keys.size("sliding_window", default=1024, null=0)
    windowed = layer_types(keys, alternating(layers, keys.size("global_attn_every_n_layers", default=4, least=1)))
    pattern = window(keys, 1, windowed)
    if pattern.get("window_start"):
        keys.not_expressed["layer_types"] = None
    dense = keys.size("num_dense_layers", default=1, null=0)
    width = keys.size("moe_intermediate_size", default=1408)
    experts = experts_of(
        keys,
        [layer >= dense for layer in range(layers)],
        count=64,
        top_k=6,
        counted_by=("num_experts",),
        width=width,
        shared_ffn=keys.size("num_shared_experts", default=2, null=0) * width,
        router="sigmoid",
        router_bias=True,
        scale=keys.number("route_scale", default=1.0),
        aux_loss=0.0,
    )
    return {
        **common(keys, epsilon=1e-5),
        "head_size": keys.size("head_dim", default=128, null=0, least=1),
        "qk_norm": True,
        "attention_gate": True,
        "norms_per_layer": 4,
        "norm_placement": "around",
        "embedding_scale": math.sqrt(keys.sizes["hidden"]) if keys.flag("mup_enabled", default=False) else 1.0,
        **window(keys, size, windowed),
        **({"rotary_skip": pattern["window_skip"]} if pattern else {"positions": "none"}),
        # The router's bias is among transformers' parameters, without a gradient.
        "frozen_params": (layers - dense) * experts["experts"].count,
        **experts,
    }


def _grouped_experts(
    keys: Keys,
    moe: Sequence[bool],
    *,
    count: int,
    width: int,
    scale: float,
    groups: int = 1,
    top_k: int = 8,
    shared: str = "n_shared_experts",
    counted_by: Sequence[str] = ("n_routed_experts", "num_local_experts"),
    normalized: bool = True,
) -> Fields:
    """Return DeepSeek-V3's experts in the layers of `moe`.

    `shared` is the family's key for the number of shared experts, the others are the library's defaults for it.
    """
    width = keys.size("moe_intermediate_size", default=width)
    return experts_of(
        keys,
        moe,
        count=count,
        top_k=top_k,
        counted_by=counted_by,
        width=width,
        shared_ffn=keys.size(shared, default=1, null=0) * width,
        router="sigmoid",
        router_bias=True,
        router_groups=keys.size("n_group", default=groups),
        router_top_groups=keys.size("topk_group", default=4 if groups > 1 else 1),
        router_group_scores=2,
        normalized=keys.flag("norm_topk_prob", default=normalized),
        scale=keys.number("routed_scaling_factor", default=scale),
        aux_loss=0.0,
    )


def _latent(
    keys: Keys, *, interleaved: bool, query: int = 1536, nope: int = 128, value: int = 128, epsilon: float = 1e-6
) -> Fields:
    """Return multi-head latent attention; the sizes are the library's for missing keys."""
    latent = Latent(
        query_rank=keys.size("q_lora_rank", default=query, null=0),
        kv_rank=keys.size("kv_lora_rank", default=512),
        nope_size=keys.size("qk_nope_head_dim", default=nope),
        rope_size=keys.size("qk_rope_head_dim", default=64),
        value_size=keys.size("v_head_dim", default=value),
    )
    fields = {**common(keys, epsilon=epsilon), **biases(keys, "attention_bias", default=False, mlp=False)}
    keys.expects("head_dim", latent.rope_size)  # sets it in GLM-4.7-Flash; DeepSeek-V3 fails if they differ
    keys.get("qk_head_dim")
    keys.expects("num_key_value_heads", keys.sizes["heads"])
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
    """Return true for the layers after the leading dense ones; `default` is the library's number of these.

    `moe_layer_freq`, which the library ignores, may list the same layers.
    """
    dense = keys.size("first_k_dense_replace", default=default)
    moe = [layer >= dense for layer in range(keys.sizes["layers"])]
    keys.expects("moe_layer_freq", 1, moe)
    return moe


def _sparse(keys: Keys, default: list[bool]) -> list[bool]:
    """Return true for the layers with experts, as `mlp_layer_types` lists them or else by default."""
    kinds = keys.get("mlp_layer_types")
    if kinds is None:
        moe = default
    elif isinstance(kinds, list) and len(kinds) == len(default) and {"dense", "sparse"}.issuperset(map(str, kinds)):
        moe = [kind == "sparse" for kind in kinds]
    else:
        raise InputError(
            f'{keys.name}: mlp_layer_types must list "dense" or "sparse" for each of the {len(default)} layers, not '
            f"{shown(kinds)}."
        )
    keys.expects("first_k_dense_replace", moe.count(False))
    return moe
