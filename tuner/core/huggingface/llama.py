"""Families with rmsnorm: Llama and what followed from it. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.core.huggingface.keys import Fields, Keys, table_of
from tuner.core.huggingface.parts import (
    KINDS,
    activation,
    alternating,
    biases,
    dropouts,
    layer_types,
    rotary,
    rotary_scaling,
    window,
)
from tuner.core.text import shown


def common(
    keys: Keys,
    *,
    tied: bool = False,
    act: str = "silu",
    act_key: str = "hidden_act",
    epsilon: float = 1e-6,
    kv_heads: int = 0,
    theta: float = 10_000.0,
    fraction: float | None = None,
) -> Fields:
    """Return what the families of this module share; `kv_heads` counts for a missing key, a null means all heads."""
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=tied),
        **rotary(keys, theta=theta, fraction=fraction),
        "norm": "rmsnorm",
        "gated_mlp": True,
        "head_size": keys.size("head_dim", least=1),
        "kv_heads": keys.size("num_key_value_heads", default=kv_heads, null=0, least=1),
        "qkv_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "activation": activation(keys, act_key, default=act),
        "norm_epsilon": keys.number("rms_norm_eps", default=epsilon),
        **dropouts(keys, "attention_dropout"),
    }


def llama(keys: Keys, **defaults: Any) -> Fields:
    """Llama 1 to 3 and the many that are like it."""
    return {
        **common(keys, **defaults),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
    }


def mistral(keys: Keys) -> Fields:
    """Mistral: a sliding window in all layers, unless it is null."""
    size = keys.size("sliding_window", default=4096, null=0)
    return {**common(keys, kv_heads=8), **window(keys, size, [True] * keys.sizes["layers"])}


def ministral3(keys: Keys) -> Fields:
    """Ministral 3: Mistral with yarn, and queries that grow with the distance from the sequence's start."""
    fields = common(keys, epsilon=1e-5, kv_heads=8)
    table = keys.table("rope_parameters") or keys.table("rope_scaling")
    if not table:
        original = {"original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}
        usual = {"rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0, **original}
        fields.update(rotary_base=1_000_000.0, rotary_scaling=rotary_scaling(keys, usual))
    if table.get("max_position_embeddings") == keys.sizes["max_positions"]:
        keys.not_expressed.pop("rope_scaling.max_position_embeddings", None)
    return {
        **fields,
        "head_size": keys.size("head_dim", default=128, null=0, least=1),
        **window(keys, keys.size("sliding_window"), [True] * keys.sizes["layers"]),
    }


def qwen2(keys: Keys) -> Fields:
    """Qwen 1.5, 2 and 2.5: biases of queries, keys and values alone."""
    keys.expects("use_mrope", False)
    return {**common(keys, kv_heads=32), "qkv_bias": True, **_late_window(keys)}


def qwen3(keys: Keys) -> Fields:
    """Qwen3: a norm on each head of queries and keys."""
    return {
        **common(keys, kv_heads=32),
        "head_size": keys.size("head_dim", default=128, least=1),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "qk_norm": True,
        **_late_window(keys),
    }


def switched_window(keys: Keys, windowed: Sequence[bool]) -> Fields:
    """Return Qwen's sliding window; `windowed` has the layers with it by default."""
    return window(keys, switched_window_size(keys), layer_types(keys, windowed))


def switched_window_size(keys: Keys) -> int:
    """Return the tokens of Qwen's sliding window, which is off unless switched on."""
    size = keys.size("sliding_window", default=4096, null=0)
    return size if keys.flag("use_sliding_window", default=False) else 0


def _late_window(keys: Keys) -> Fields:
    """Return the sliding window of dense Qwens, which starts at a late layer."""
    start = keys.size("max_window_layers", default=28)
    return switched_window(keys, [layer >= start for layer in range(keys.sizes["layers"])])


def phi3(keys: Keys) -> Fields:
    """Phi-3, Phi-3.5 and Phi-4."""
    keys.expects("embd_pdrop", 0, 0.0)
    keys.expects("attention_bias", False)
    original = keys.size("original_max_position_embeddings", default=4096)
    fields = common(keys, epsilon=1e-5, fraction=1.0)
    scaling = fields["rotary_scaling"]
    if scaling is not None:
        table = {**(keys.table("rope_scaling") or keys.table("rope_parameters"))}
        table.update(rope_type="longrope", original_max_position_embeddings=original)
        fields["rotary_scaling"] = rotary_scaling(keys, table)
    return {
        **fields,
        "hidden_dropout": keys.number("resid_pdrop", default=0.0),
        **window(keys, keys.size("sliding_window"), [True] * keys.sizes["layers"]),
    }


def gemma(keys: Keys) -> Fields:
    """Gemma: GeGLU, scaled embeddings, norm weights stored as their difference from one."""
    keys.expects("use_bidirectional_attention", False)
    keys.expects("hidden_activation", "gelu_pytorch_tanh")
    # Gemma 1 reads hidden_act alone, and takes its "gelu" for gelu_pytorch_tanh.
    fields = common(keys, tied=True, act="gelu_pytorch_tanh", kv_heads=16)
    if fields["activation"] == "gelu":
        fields["activation"] = "gelu_tanh"
    return {**fields, **_gemma_parts(keys)}


def _gemma_parts(keys: Keys) -> Fields:
    """Return what all Gemmas share."""
    return {
        "head_size": keys.size("head_dim", default=256, least=1),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "norm_offset": True,
        "embedding_scale": math.sqrt(keys.sizes["hidden"]),
    }


def gemma2(keys: Keys, *, every: int = 2, softcaps: tuple[float, float] = (50.0, 30.0)) -> Fields:
    """Gemma 2: norms around attention and MLP, soft caps, every other layer with a sliding window."""
    keys.expects("use_bidirectional_attention", False)
    keys.expects("hidden_act", "gelu_pytorch_tanh", keys.get("hidden_activation"))
    keys.repeats("sliding_window_size", "sliding_window")
    size = keys.size("sliding_window", default=4096, null=0)
    scalar = keys.number("query_pre_attn_scalar", default=256)
    attention, logits = ("attn_logit_softcapping", softcaps[0]), ("final_logit_softcapping", softcaps[1])
    return {
        **common(keys, tied=True, act="gelu_pytorch_tanh", act_key="hidden_activation", kv_heads=4),
        **_gemma_parts(keys),
        "norms_per_layer": 4,
        "norm_placement": "around",
        "attention_scale": scalar**-0.5 if scalar > 0 else 0.0,
        "attention_softcap": 0.0
        if keys.has(attention[0]) and not keys.get(attention[0])
        else keys.number(attention[0], default=attention[1]),
        "logit_softcap": 0.0
        if keys.has(logits[0]) and not keys.get(logits[0])
        else keys.number(logits[0], default=logits[1]),
        **window(keys, size, layer_types(keys, alternating(keys.sizes["layers"], every))),
    }


def gemma3(keys: Keys) -> Fields:
    """Gemma 3's text model: five layers with a window for one without, each kind with its rotary base."""
    every = keys.size("sliding_window_pattern", default=6)
    fields = gemma2(keys, every=every, softcaps=(0.0, 0.0))
    everywhere, local = _rotary_by_kind(keys)
    base = everywhere.get("rope_theta") or keys.number("rope_theta", default=1_000_000.0)
    return {
        **fields,
        "qk_norm": True,
        "rotary_base": base,
        "rotary_local_base": local.get("rope_theta") or keys.number("rope_local_base_freq", default=10_000.0),
        "rotary_scaling": rotary_scaling(keys, everywhere),
    }


def _rotary_by_kind(keys: Keys) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the rotary parameters of the layers that attend to all tokens, and of those with a sliding window.

    It follows `common`, which does not understand a table for each kind.
    """
    nested = keys.table("rope_parameters")
    everywhere, local = (table_of(nested.get(kind) or {}, f"{keys.name}: rope_parameters.{kind}") for kind in KINDS)
    for kind in KINDS:
        keys.not_expressed.pop(f"rope_scaling.{kind}", None)
    if everywhere.get("partial_rotary_factor") not in (None, 1):
        keys.not_expressed["rope_parameters.full_attention.partial_rotary_factor"] = None
    unusual = {key for key, value in local.items() if value not in (None, 1, "default")} - {"rope_theta"}
    if unusual:
        keys.not_expressed["rope_parameters.sliding_attention"] = None
    keys.expects("rope_parameters", *([nested] if set(nested) <= set(KINDS) else []))
    everywhere = {**everywhere, **keys.table("rope_scaling")}
    for outside, table in (("rope_theta", everywhere), ("rope_local_base_freq", local)):
        if table.get("rope_theta") is not None:
            keys.expects(outside, table["rope_theta"])
    # Outside of a table for each kind, the library does not read the length before scaling.
    return {"original_max_position_embeddings": keys.sizes["max_positions"], **everywhere}, local


def olmo(keys: Keys) -> Fields:
    """OLMo 1: layernorm with neither weights nor biases."""
    keys.expects("clip_qkv")
    return {
        **common(keys),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "norm": "layernorm",
        "norm_epsilon": 1e-5,
        "norm_weight": False,
        "norm_bias": False,
    }


def olmo2(keys: Keys) -> Fields:
    """OLMo 2: norms after attention and MLP, and over the whole width of queries and keys."""
    return {
        **common(keys, epsilon=1e-5),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "norm_placement": "after",
        "qk_norm": True,
        "qk_norm_span": "width",
    }


def olmo3(keys: Keys) -> Fields:
    """OLMo 3: OLMo 2 with a window in three of four layers, whose rotary embeddings are not scaled."""
    fields = olmo2(keys)
    everywhere, local = _rotary_by_kind(keys)
    fields |= {
        "rotary_base": everywhere.get("rope_theta") or keys.number("rope_theta", default=500_000.0),
        "rotary_scaling": rotary_scaling(keys, everywhere),
        **window(
            keys,
            keys.size("sliding_window", default=4096, null=0),
            layer_types(keys, alternating(keys.sizes["layers"], 4)),
        ),
    }
    # As in transformers 5.23, rope_theta concerns the layers without a window alone.
    local_base = local.get("rope_theta") or 500_000.0
    if "sliding_window" in fields and (fields["rotary_scaling"] or local_base != fields["rotary_base"]):
        fields["rotary_local_base"] = local_base
    return fields


def exaone4(keys: Keys) -> Fields:
    """EXAONE 4: norms after attention and MLP."""
    return {**skipping_windows(keys), "norm_placement": "after"}


def skipping_windows(keys: Keys) -> Fields:
    """Return what EXAONE's families share: in a model with windows, layers without one have no rotary embedding."""
    size = keys.size("sliding_window", default=4096, null=0)
    pattern = keys.get("sliding_window_pattern", default=4)
    if isinstance(pattern, str) and re.fullmatch("L+G", pattern):
        pattern = len(pattern)
    if not size:
        pattern = 1
    elif isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
        keys.not_expressed[f"sliding_window_pattern={shown(pattern)}"] = None
        pattern = 1
    windowed = layer_types(keys, alternating(keys.sizes["layers"], pattern))
    fields = {
        **common(keys, epsilon=1e-5, kv_heads=32),
        **window(keys, size, windowed),
        "qk_norm": True,
    }
    if not size:
        return fields
    if not any(windowed):
        return {**fields, "positions": "none"}
    if fields["window_start"]:
        keys.not_expressed["layer_types"] = None
    return {**fields, "rotary_skip": fields["window_skip"]}


def seed_oss(keys: Keys) -> Fields:
    """Seed-OSS: biases of queries, keys and values, and dropout."""
    return {
        **common(keys, kv_heads=8),
        "head_size": keys.size("head_dim", default=128, null=0, least=1),
        "qkv_bias": keys.flag("attention_bias", default=True),
        "attention_bias": keys.flag("attention_out_bias", default=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        "attention_dropout": keys.number("attention_dropout", default=0.1),
        "hidden_dropout": keys.number("residual_dropout", default=0.1),
    }


def ernie4_5(keys: Keys) -> Fields:
    """ERNIE 4.5 without experts: rotated neighbours."""
    keys.expects("attention_dropout", 0, 0.0)  # without effect in the library
    return {
        **common(keys, tied=True, epsilon=1e-5, kv_heads=2, theta=500_000.0),
        "head_size": keys.size("head_dim", default=128, null=0, least=1),
        **biases(keys, "use_bias", default=False),
        "rotary_interleaved": True,
        "attention_dropout": 0.0,
    }


def granite(keys: Keys) -> Fields:
    """Granite: Llama with factors of embedding, attention, residual and logits."""
    logits = keys.number("logits_scaling", default=1.0)
    return {
        **common(keys),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        "embedding_scale": keys.number("embedding_multiplier", default=1.0),
        "residual_scale": keys.number("residual_multiplier", default=1.0),
        "attention_scale": keys.number("attention_multiplier", default=1.0),
        "logit_scale": 1 / logits if logits else 1.0,
    }


def glm(keys: Keys) -> Fields:
    """GLM-4 (glm): rotated neighbours in half of each head, biases of queries, keys and values."""
    return {
        **common(keys, epsilon=1.5625e-7, kv_heads=2, fraction=0.5),
        "head_size": keys.size("head_dim", default=128, least=1),
        "qkv_bias": keys.flag("attention_bias", default=True),
        "rotary_interleaved": True,
    }


def glm4(keys: Keys) -> Fields:
    """GLM-4-0414 (glm4): glm with norms around attention and MLP."""
    return {**glm(keys), "norms_per_layer": 4, "norm_placement": "around"}


def smollm3(keys: Keys) -> Fields:
    """SmolLM3: no rotary embedding in every fourth layer."""
    layers = keys.sizes["layers"]
    given = keys.get("no_rope_layers", default=alternating(layers, keys.size("no_rope_layer_interval", default=4)))
    rotated = [bool(layer) for layer in given] if isinstance(given, list) else []
    skip = rotated.index(False) + 1 if False in rotated else 0
    if rotated != alternating(layers, skip):
        keys.not_expressed["no_rope_layers"] = None
    size = keys.size("sliding_window") if keys.flag("use_sliding_window", default=False) else 0
    if size:
        keys.not_expressed[f"sliding_window={size}"] = None
    keys.get("layer_types", "max_window_layers", "sliding_window")
    return {
        **common(keys, tied=True, kv_heads=4, theta=2_000_000.0),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        "rotary_skip": skip,
    }


def arcee(keys: Keys) -> Fields:
    """Arcee's AFM: Llama with a squared ReLU instead of a gate."""
    return {**llama(keys, act="relu2", epsilon=1e-5), "gated_mlp": False}


def apertus(keys: Keys) -> Fields:
    """Apertus: xIELU, whose two coefficients are trained, and a norm on each head of queries and keys."""
    keys.expects("hidden_dropout", 0, 0.0)
    keys.expects("qk_norm", True)
    for key in ("mlp_bias", "post_norm"):
        keys.expects(key, False)
    fields = common(keys, act="xielu", epsilon=1e-5, theta=12_000_000.0)
    if not keys.get("rope_scaling") and keys.get("rope_parameters") is None:
        usual = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
        fields.update(rotary_base=12_000_000.0, rotary_scaling=rotary_scaling(keys, usual))
    return {**fields, **biases(keys, "attention_bias", default=False, mlp=False), "gated_mlp": False, "qk_norm": True}
