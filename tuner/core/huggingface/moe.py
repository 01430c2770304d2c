"""Families with experts, other than those after DeepSeek. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.huggingface.keys import Fields, Keys
from tuner.core.huggingface.llama import common, granite, llama, switched_window, switched_window_size
from tuner.core.huggingface.parts import alternating, biases, layer_types, rotary_scaling, window


def mixtral(keys: Keys) -> Fields:
    """Mixtral: a softmax over the chosen experts in every layer."""
    layers = keys.sizes["layers"]
    return {
        **common(keys, epsilon=1e-5, kv_heads=8, theta=1_000_000.0),
        **window(keys, keys.size("sliding_window"), [True] * layers),
        **experts_of(keys, [True] * layers, count=8, top_k=2, aux_loss=0.001),
    }


def qwen2_moe(keys: Keys) -> Fields:
    """Qwen1.5-MoE and Qwen2-MoE: shared experts behind a gate."""
    shared = keys.size("shared_expert_intermediate_size", default=5632)
    late = keys.size("max_window_layers", default=28)
    return {
        **common(keys, kv_heads=16),
        "qkv_bias": keys.flag("qkv_bias", default=True),
        **switched_window(keys, [layer % 2 == 0 and layer < late for layer in range(keys.sizes["layers"])]),
        **qwen_experts(
            keys, count=60, top_k=4, width=1408, shared_ffn=shared, shared_gate=True, counted_by=("num_experts",)
        ),
    }


def qwen3_moe(keys: Keys) -> Fields:
    """Qwen3-MoE: a norm on each head of queries and keys, no shared experts."""
    return {
        **common(keys, kv_heads=4),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "qk_norm": True,
        **window(keys, switched_window_size(keys), [True] * keys.sizes["layers"]),  # transformers reads no layer_types
        **qwen_experts(keys, count=128, top_k=8, width=768),
    }


def qwen_experts(keys: Keys, *, count: int, top_k: int, width: int, normalized: bool = False, **shared: Any) -> Fields:
    """Return Qwen's experts; the numbers and `normalized` are the family's defaults for missing keys."""
    dense, step = keys.numbers("mlp_only_layers", default=[]), keys.size("decoder_sparse_step", default=1)
    moe = [index not in dense and bool(step) and (index + 1) % step == 0 for index in range(keys.sizes["layers"])]
    normalized = keys.flag("norm_topk_prob", default=normalized)
    width = keys.size("moe_intermediate_size", default=width)
    return experts_of(keys, moe, count=count, top_k=top_k, width=width, normalized=normalized, aux_loss=0.001, **shared)


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
        **experts_of(keys, moe, count=64, top_k=8, normalized=normalized, aux_loss=0.01),
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
        **experts_of(
            keys,
            [True] * keys.sizes["layers"],
            count=16,
            top_k=2,
            normalized=False,
            aux_loss=0.001,
            counted_by=("num_local_experts",),
        ),
    }


def granitemoe(keys: Keys) -> Fields:
    """Granite-MoE: Granite with a softmax over the chosen experts in every layer."""
    return {
        **granite(keys),
        "mlp_bias": False,
        **experts_of(
            keys, [True] * keys.sizes["layers"], count=8, top_k=2, aux_loss=0.001, counted_by=("num_local_experts",)
        ),
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
    experts = experts_of(
        keys,
        moe,
        count=64,
        top_k=keys.size(_present(keys, "num_experts_per_tok", "moe_k"), default=6),
        counted_by=("moe_num_experts", "num_experts"),
        width=width,
        shared_ffn=shared,
        router_bias=True,
        aux_loss=0.001,
    )
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
        **experts_of(keys, moe, count=256, top_k=8, router="sigmoid", router_bias=True, aux_loss=0.001),
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
        fields.update(rotary_scaling=rotary_scaling(keys, usual))
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
        **experts_of(
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
        **experts_of(
            keys,
            [index in given for index in range(layers)],
            count=16,
            top_k=1,
            counted_by=("num_local_experts",),
            width=width,
            dense=dense,
            shared_ffn=width,
            router="sigmoid",
            normalized=False,
            weights_before=True,
            aux_loss=0.001,
        ),
    }


def experts_of(
    keys: Keys,
    moe: Sequence[bool],
    *,
    count: int,
    top_k: int,
    aux_loss: float,
    counted_by: Sequence[str] = ("num_local_experts", "num_experts"),
    balanced: bool = True,
    width: int = 0,
    dense: int = 0,
    **fields: Any,
) -> Fields:
    """Return the fields `experts` and `ffn`; `moe` lists the layers with experts.

    `count`, `top_k` and `aux_loss` are the library's for missing keys; if not `balanced`, there is no such loss.
    `counted_by` are the keys that the library reads the number of experts from; those of other families are ignored.
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
        count=keys.size(_present(keys, *counted_by), default=count),
        top_k=keys.size("num_experts_per_tok", default=top_k),
        ffn=width,
        **_layout(keys, moe),
        aux_loss=aux_loss if balanced else 0.0,
        aux_loss_per_sequence=keys.flag("seq_aux", default=False),
        z_loss=keys.number("router_z_loss_coef", default=0.0),
        **fields,
    )
    return {"experts": experts, "ffn": width if all(moe) else dense or keys.sizes["ffn"]}


def _present(keys: Keys, *spellings: str) -> str:
    """Return the first key that is in the config, or else the first one; the others may only repeat its value."""
    first = next((key for key in spellings if keys.get(key) is not None), spellings[0])
    for key in spellings:
        keys.expects(key, keys.get(first), 0)
    return first


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
