"""Families with layernorm: GPT-2 and what followed from it. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuner.core.huggingface.keys import Fields, Keys, has_effect, number_of
from tuner.core.huggingface.parts import activation, alternating, biases, dropouts, layer_types, rotary, window
from tuner.core.text import shown, shown_name

GPT2_SPELLINGS: Final = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "max_positions": ("max_position_embeddings", "n_positions"),
    "ffn": ("n_inner",),
}
GPT_NEO_SPELLINGS: Final = {
    "layers": ("num_hidden_layers", "num_layers"),
    "heads": ("num_attention_heads", "num_heads"),
}
BLOOM_SPELLINGS: Final = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("n_embed", "hidden_size"),
    "heads": ("num_attention_heads", "n_head"),
    "max_positions": ("seq_length",),
    "ffn": (),
}
OPT_SPELLINGS: Final = {"ffn": ("ffn_dim",)}
FALCON_SPELLINGS: Final = {"hidden": ("n_embed", "hidden_size"), "ffn": ("ffn_hidden_size",)}
MPT_SPELLINGS: Final = {
    "layers": ("num_hidden_layers", "n_layers"),
    "hidden": ("hidden_size", "d_model"),
    "heads": ("num_attention_heads", "n_heads"),
    "max_positions": ("max_seq_len",),
    "ffn": (),
}

_MPT_READ: Final = frozenset({"attn_pdrop", "softmax_scale", "attn_impl"})
"""Keys of MPT's `attn_config` that are read, or choose a kernel."""
_MPT_NEUTRAL: Final[Mapping[str, Any]] = {"attn_type": "multihead_attention", "alibi": True, "alibi_bias_max": 8}
"""Values of the others where they are neither false nor null."""


def gpt2(keys: Keys, *, act: str = "gelu_new") -> Fields:
    """GPT-2."""
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        keys.expects(key, False)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        "positions": "learned",
        "activation": activation(keys, "activation_function", default=act),
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        **dropouts(keys, "attn_pdrop", "resid_pdrop", "embd_pdrop", default=0.1),
        "attention_scale": 0.0 if keys.flag("scale_attn_weights", default=True) else 1.0,
    }


def gpt_bigcode(keys: Keys) -> Fields:
    """SantaCoder and StarCoder: GPT-2 with one key and value head."""
    kv_heads = 1 if keys.flag("multi_query", default=True) else keys.sizes["heads"]
    keys.expects("num_key_value_heads", kv_heads)
    return {**gpt2(keys, act="gelu_pytorch_tanh"), "kv_heads": kv_heads}


def gpt_neo(keys: Keys) -> Fields:
    """GPT-Neo: unscaled attention, every other layer local."""
    types = keys.get("attention_types", default=[[["global", "local"], keys.sizes["layers"] // 2]])
    try:
        kinds = [kind for pattern, times in types for kind in list(pattern) * times]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != keys.sizes["layers"]:
        keys.not_expressed["attention_types"] = None
    keys.expects("attention_layers", kinds)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        "positions": "learned",
        "qkv_bias": False,
        "activation": activation(keys, "activation_function", default="gelu_new"),
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        **dropouts(keys, "attention_dropout", "resid_dropout", "embed_dropout"),
        "attention_scale": 1.0,
        **window(keys, keys.size("window_size", default=256), [kind == "local" for kind in kinds]),
    }


def gpt_neox(keys: Keys) -> Fields:
    """GPT-NeoX and Pythia: attention and MLP side by side, each with its norm."""
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        **rotary(keys, fraction=0.25, spellings=("rotary_emb_base", "rotary_pct")),
        **biases(keys, "attention_bias", default=True, mlp=False),
        "activation": activation(keys, "hidden_act", default="gelu"),
        "norm_epsilon": keys.number("layer_norm_eps", default=1e-5),
        **dropouts(keys, "attention_dropout", "hidden_dropout", "hidden_dropout"),
        "parallel_attention": keys.flag("use_parallel_residual", default=True),
    }


def gptj(keys: Keys) -> Fields:
    """GPT-J: attention and MLP side by side after one norm, rotated neighbours."""
    for key in ("rotary", "scale_attn_weights"):
        keys.expects(key, True)
    rotated = keys.size("rotary_dim", default=64, null=0)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        "positions": "rotary",
        "rotary_fraction": rotated * keys.sizes["heads"] / keys.sizes["hidden"] if rotated else 1.0,
        "rotary_interleaved": True,
        "qkv_bias": False,
        "attention_bias": False,
        "head_bias": True,
        "norms_per_layer": 1,
        "parallel_attention": True,
        "activation": activation(keys, "activation_function", default="gelu_new"),
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        **dropouts(keys, "attn_pdrop", "resid_pdrop", "embd_pdrop"),
    }


def bloom(keys: Keys) -> Fields:
    """BLOOM: ALiBi and a norm of the embedding."""
    keys.expects("apply_residual_connection_post_layernorm", False)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        "positions": "alibi",
        "embedding_norm": True,
        "activation": "gelu_tanh",
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        **dropouts(keys, "attention_dropout", "hidden_dropout"),
    }


def opt(keys: Keys) -> Fields:
    """OPT: learned positions after two unused rows; the 350M with norms after the residual and a narrow embedding."""
    keys.expects("layerdrop", 0, 0.0)
    keys.expects("activation_dropout", 0, 0.0)
    before = keys.flag("do_layer_norm_before", default=True)
    affine = keys.flag("layer_norm_elementwise_affine", default=True)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        "positions": "learned",
        "max_positions": keys.sizes["max_positions"] + 2,
        "embedding_size": keys.size("word_embed_proj_dim", default=keys.sizes["hidden"]),
        "final_norm": bool(before and not keys.flag("_remove_final_layer_norm", default=False)),
        **biases(keys, "enable_bias", default=True),
        "activation": activation(keys, "activation_function", default="relu"),
        "norm_placement": "before" if before else "after_residual",
        "norm_weight": affine,
        "norm_bias": affine,
        **dropouts(keys, "attention_dropout"),
        "hidden_dropout": keys.number("dropout", default=0.1),
        "init_std": keys.number("init_std", default=0.02),
    }


def falcon(keys: Keys) -> Fields:
    """Falcon: one key and value head, or groups in the newer architecture, and mostly parallel attention."""
    keys.expects("apply_residual_connection_post_layernorm", False)
    parallel, newer = keys.flag("parallel_attn", default=True), keys.flag("new_decoder_architecture", default=False)
    alibi, shared = keys.flag("alibi", default=False), keys.flag("multi_query", default=True)
    groups = keys.size("num_kv_heads", default=keys.sizes["heads"])
    norms = keys.size("num_ln_in_parallel_attn", default=2 if newer else 1)
    keys.expects("num_ln_in_parallel_attn", 1, 2)
    fields = {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        **rotary(keys),
        # The 7B config lists 71 key/value heads but has one: the older architecture knows multi_query alone.
        "kv_heads": groups if newer else 1 if shared else keys.sizes["heads"],
        "norms_per_layer": 2 if not parallel or norms == 2 else 1,
        **biases(keys, "bias", default=False),
        "activation": activation(keys, "activation", default="gelu"),
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        **dropouts(keys, "attention_dropout", "hidden_dropout"),
        "parallel_attention": bool(newer or parallel),
    }
    if alibi:
        fields.update(positions="alibi", rotary_base=10_000.0, rotary_scaling=None)
        keys.not_expressed["alibi=True (scaled with the attention scores)"] = None
    if not newer and not parallel and fields["attention_dropout"] != fields["hidden_dropout"]:
        keys.not_expressed["attention_dropout (also of the attention's output)"] = None
    return fields


def mpt(keys: Keys) -> Fields:
    """MPT: ALiBi, no bias anywhere, not even in norms."""
    table = keys.table("attn_config")
    keys.get("learned_pos_emb", "verbose")
    keys.expects("fc_type", "torch")
    keys.expects("norm_type", "low_precision_layernorm", "layernorm")
    for key in ("emb_pdrop", "resid_pdrop"):
        keys.expects(key, 0, 0.0)
    keys.expects("expansion_ratio", 4)
    keys.expects("no_bias", True)
    keys.expects("logit_scale")
    keys.expects("embedding_fraction", 1.0)
    for key, value in table.items():
        neutral = _MPT_NEUTRAL.get(key)
        if key not in _MPT_READ and has_effect(key) and value != neutral and (value or neutral):
            keys.not_expressed[f"{shown_name(f'attn_config.{key}')}={shown(value)}"] = None
    dropout = number_of(table.get("attn_pdrop") or 0.0, f"{keys.name}: attn_pdrop")
    scale = number_of(table.get("softmax_scale") or 0.0, f"{keys.name}: softmax_scale")
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        "positions": "alibi",
        **dict.fromkeys(("qkv_bias", "attention_bias", "mlp_bias", "norm_bias"), False),
        "activation": "gelu",
        "norm_epsilon": keys.number("layer_norm_epsilon", default=1e-5),
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
        "attention_scale": scale,
    }


def phi(keys: Keys) -> Fields:
    """Phi-1, Phi-1.5 and Phi-2: attention and MLP side by side after one norm, biases everywhere."""
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        **rotary(keys, fraction=0.5),
        "kv_heads": keys.size("num_key_value_heads", least=1),
        "head_size": keys.size("head_dim", least=1),
        "head_bias": True,
        "norms_per_layer": 1,
        "parallel_attention": True,
        "qk_norm": keys.flag("qk_layernorm", default=False),
        "activation": activation(keys, "hidden_act", default="gelu_new"),
        "norm_epsilon": keys.number("layer_norm_eps", default=1e-5),
        **dropouts(keys, "attention_dropout", "resid_pdrop", "embd_pdrop"),
    }


def starcoder2(keys: Keys) -> Fields:
    """StarCoder2."""
    keys.expects("mlp_type", "default")
    keys.expects("norm_type", "layer_norm")
    keys.repeats("layer_norm_epsilon", "norm_epsilon")
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        **rotary(keys),
        "kv_heads": keys.size("num_key_value_heads", default=2, least=1),
        "head_size": keys.size("head_dim", least=1),
        **biases(keys, "use_bias", default=True),
        "activation": activation(keys, "hidden_act", default="gelu_pytorch_tanh"),
        "norm_epsilon": keys.number("norm_epsilon", default=1e-5),
        **dropouts(keys, "attention_dropout", "residual_dropout", "embedding_dropout"),
        **window(keys, keys.size("sliding_window"), [True] * keys.sizes["layers"]),
        "init_std": keys.number("initializer_range", default=0.018042),
    }


def stablelm(keys: Keys) -> Fields:
    """StableLM: gated MLP, layernorm, rotary embeddings on a quarter of each head."""
    parallel = keys.flag("use_parallel_residual", default=False)
    keys.expects("hidden_dropout", 0, 0.0)
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        **rotary(keys, fraction=0.25),
        "kv_heads": keys.size("num_key_value_heads", default=32, least=1),
        "gated_mlp": True,
        "qkv_bias": keys.flag("use_qkv_bias", default=False),
        "attention_bias": False,
        "mlp_bias": False,
        "norms_per_layer": 1 if parallel else 2,
        "parallel_attention": parallel,
        **_qk_norm_by_head(keys, "qk_layernorm"),
        "activation": activation(keys, "hidden_act", default="silu"),
        "norm_epsilon": keys.number("layer_norm_eps", default=1e-5),
        **dropouts(keys, "attention_dropout"),
    }


def _qk_norm_by_head(keys: Keys, key: str) -> Fields:
    """Return a norm of queries and keys with weights of its own for each head, if the key asks for it."""
    return {"qk_norm": True, "qk_norm_span": "heads"} if keys.flag(key, default=False) else {}


def nemotron(keys: Keys) -> Fields:
    """Nemotron: squared ReLU, layernorm whose weights are stored as their difference from one."""
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        **rotary(keys, fraction=0.5),
        "kv_heads": keys.size("num_key_value_heads", least=1),
        "head_size": keys.size("head_dim", least=1),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": keys.flag("mlp_bias", default=False),
        "activation": activation(keys, "hidden_act", default="relu2"),
        "norm_epsilon": keys.number("norm_eps", default=1e-5),
        "norm_offset": True,
        **dropouts(keys, "attention_dropout"),
        "init_std": keys.number("initializer_range", default=0.0134),
    }


def cohere(keys: Keys, *, theta: float = 500_000.0) -> Fields:
    """Command R: attention and MLP side by side after one norm without bias, scaled logits, rotated neighbours."""
    return {
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
        **rotary(keys, theta=theta),
        "rotary_interleaved": True,
        "kv_heads": keys.size("num_key_value_heads", least=1),
        "head_size": keys.size("head_dim", least=1),
        "gated_mlp": True,
        **biases(keys, "attention_bias", default=False, mlp=False),
        "mlp_bias": False,
        "norm_bias": False,
        "norms_per_layer": 1,
        "parallel_attention": True,
        **_qk_norm_by_head(keys, "use_qk_norm"),
        "activation": activation(keys, "hidden_act", default="silu"),
        "norm_epsilon": keys.number("layer_norm_eps", default=1e-5),
        **dropouts(keys, "attention_dropout"),
        "logit_scale": keys.number("logit_scale", default=0.0625),
    }


def cohere2(keys: Keys) -> Fields:
    """Command R7B and Command A: like Command R; the layers that see everything have no rotary embedding."""
    for key in ("use_embedding_sharing", "use_gated_activation", "use_parallel_block"):
        keys.expects(key, True)
    keys.expects("position_embedding_type", "rope_gptj")
    keys.expects("rotary_pct", 1, 1.0)
    keys.expects("order_of_interleaved_layers", "local_attn_first")
    skip = keys.size("sliding_window_pattern", default=4)
    keys.expects("layer_switch", skip)  # of earlier releases, where sliding_window_pattern and layer_types now count
    windowed = layer_types(keys, alternating(keys.sizes["layers"], skip))
    size = keys.size("sliding_window", default=4096, null=0)
    fields = {**cohere(keys, theta=10_000.0), **window(keys, size, windowed)}
    if not size or not any(windowed):
        return {**fields, "positions": "none"}
    if fields["window_start"]:
        keys.not_expressed["layer_types"] = None
    return {**fields, "rotary_skip": fields["window_skip"]}
