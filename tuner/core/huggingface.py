"""Convert a Hugging Face `config.json` to a `Model`.

Each family's function returns the fields that differ from a plain GPT: biases, norms, and the library's defaults for
missing keys (transformers 5.23, the modelling code of each family).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

from tuner.core.domain import Model
from tuner.core.errors import InputError, TunerWarning
from tuner.core.text import listed, shown

Config = Mapping[str, Any]

_SPELLINGS: Final = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("n_embed", "hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "seq": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "kv_heads": ("num_key_value_heads",),
}
"""For each field of `Model`, the keys that families use for it; the first one in the config counts."""

_KIN: Final = {
    "llama": {"hidden_size", "intermediate_size", "rms_norm_eps"},
    "gpt_neox": {"hidden_size", "intermediate_size", "rotary_pct"},
    "gpt2": {"n_embd", "n_positions"},
}
"""Keys that identify an unknown family as a variant of a known one."""

_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size")
_SEQ_WHEN_SILENT: Final = 2048
"""Default sequence length in Falcon's and OPT's code."""


def model_from(config: Config, *, name: str) -> Model:
    """Return the model that a config describes. Raise `InputError` for a missing key or an unsupported model."""
    experts = [key for key in _EXPERTS if config.get(key)]
    if experts:
        expert_key = f"{experts[0]}={shown(config[experts[0]])}"
        raise InputError(f"{name} is a mixture of experts ({expert_key}); only dense models can be described.")
    family = _family(config, name)
    fields = {"name": name, **_sizes(config, name), **_FAMILIES[family](config)}
    head_size = fields.get("head_size")
    if isinstance(head_size, int) and head_size * fields["heads"] == fields["hidden"]:
        fields["head_size"] = 0
    return Model(**{field: value for field, value in fields.items() if value is not None})


def looks_like(config: Config) -> bool:
    """Return whether a JSON object is a Hugging Face config rather than a table of `Model` fields."""
    telling = ("model_type", "architectures", "n_embd", "hidden_size", "num_hidden_layers", "n_layer")
    return any(key in config for key in telling)


def _sizes(config: Config, name: str) -> dict[str, Any]:
    """Return the sizes that all families have, under whichever key."""
    sizes = {field: _first(config, spellings) for field, spellings in _SPELLINGS.items()}
    missing = [_SPELLINGS[field] for field in ("layers", "hidden", "heads", "vocab") if sizes[field] is None]
    if missing:
        raise InputError(f"{name} lacks {listed(missing[0], last='or')}.")
    sizes["seq"] = sizes["seq"] or _SEQ_WHEN_SILENT
    for field, value in sizes.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputError(f"{name}: {_key(config, field)} must be a whole number, not {shown(value)}.")
    return sizes


def _key(config: Config, field: str) -> str:
    """Return the key that a config uses for a field."""
    return next(key for key in _SPELLINGS[field] if config.get(key) is not None)


def _first(config: Config, spellings: tuple[str, ...]) -> Any:
    return next((config[key] for key in spellings if config.get(key) is not None), None)


def _family(config: Config, name: str) -> str:
    """Return the known family of a config, by its model_type, its class, or the keys that it shares with one."""
    given = config.get("model_type")
    if isinstance(given, str) and given in _FAMILIES:
        return given
    architectures = config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    for family in _FAMILIES:
        if not given and re.fullmatch(family.replace("_", "") + r"(For|LM|Model).*", architecture, re.IGNORECASE):
            return family
    kin = next((family for family, keys in _KIN.items() if keys <= set(config)), None)
    if kin is None:
        known = listed(_FAMILIES, limit=40)
        raise InputError(f"{name}: model_type {shown(given)} is not known, nor are its keys; known are {known}.")
    warnings.warn(
        f"{name}: model_type {shown(given)} is not known; its keys are those of {kin} and it is read as one, so that "
        "its parameter count may be off.",
        TunerWarning,
        stacklevel=2,
    )
    return kin


def _flag(config: Config, key: str, default: bool) -> Any:
    """Return a switch as transformers reads it: an explicit null is off."""
    value = config.get(key, default)
    return False if value is None else value


def _gpt2(config: Config) -> dict[str, Any]:
    return {"tied_embeddings": _flag(config, "tie_word_embeddings", True), "positions": "learned"}


def _gpt_bigcode(config: Config) -> dict[str, Any]:
    return {**_gpt2(config), "kv_heads": 1 if _flag(config, "multi_query", True) else None}


def _gpt_neox(config: Config) -> dict[str, Any]:
    bias = _flag(config, "attention_bias", True)
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", False),
        "positions": "rotary",
        "qkv_bias": bias,
        "attention_bias": bias,
    }


def _gptj(config: Config) -> dict[str, Any]:
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", False),
        "positions": "rotary",
        "qkv_bias": False,
        "attention_bias": False,
        "head_bias": True,
        "norms_per_layer": 1,
    }


def _bloom(config: Config) -> dict[str, Any]:
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", True),
        "positions": "alibi",
        "embedding_norm": True,
        "ffn": None,
    }


def _opt(config: Config) -> dict[str, Any]:
    bias = _flag(config, "enable_bias", True)
    final_norm = _flag(config, "do_layer_norm_before", True) and not _flag(config, "_remove_final_layer_norm", False)
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", True),
        "positions": "learned",
        "max_positions": (config.get("max_position_embeddings") or _SEQ_WHEN_SILENT) + 2,
        "embedding_size": config.get("word_embed_proj_dim"),
        "final_norm": bool(final_norm),
        "qkv_bias": bias,
        "attention_bias": bias,
        "mlp_bias": bias,
    }


def _falcon(config: Config) -> dict[str, Any]:
    bias, parallel = _flag(config, "bias", False), _flag(config, "parallel_attn", True)
    newer = _flag(config, "new_decoder_architecture", False)
    norms = config.get("num_ln_in_parallel_attn") or (2 if newer or not parallel else 1)
    # The 7B config lists 71 key/value heads but the model has one: in the older architecture only multi_query counts.
    kv_heads = config.get("num_kv_heads") if newer else 1 if _flag(config, "multi_query", True) else None
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", True),
        "positions": "alibi" if config.get("alibi") else "rotary",
        "kv_heads": kv_heads,
        "norms_per_layer": norms,
        "qkv_bias": bias,
        "attention_bias": bias,
        "mlp_bias": bias,
    }


def _llama(
    config: Config, *, tied: bool = False, head_size: int | None = None, kv_heads: int | None = None
) -> dict[str, Any]:
    bias = _flag(config, "attention_bias", False)
    return {
        "tied_embeddings": _flag(config, "tie_word_embeddings", tied),
        "positions": "rotary",
        "norm": "rmsnorm",
        "gated_mlp": True,
        "head_size": config.get("head_dim") or head_size,
        # The family's default applies only to a missing key: an explicit null means as many as heads.
        "kv_heads": config.get("num_key_value_heads", kv_heads),
        "qkv_bias": bias,
        "attention_bias": bias,
        "mlp_bias": _flag(config, "mlp_bias", False),
    }


def _mistral(config: Config) -> dict[str, Any]:
    return {**_llama(config, kv_heads=8), "qkv_bias": False, "attention_bias": False, "mlp_bias": False}


def _qwen2(config: Config) -> dict[str, Any]:
    return {**_llama(config, kv_heads=32), "qkv_bias": True, "attention_bias": False, "mlp_bias": False}


def _qwen3(config: Config) -> dict[str, Any]:
    return {**_llama(config, kv_heads=32, head_size=128), "qk_norm": True, "mlp_bias": False}


def _gemma(config: Config) -> dict[str, Any]:
    return {**_llama(config, tied=True, kv_heads=16, head_size=256), "mlp_bias": False}


_FAMILIES: Final[Mapping[str, Callable[[Config], dict[str, Any]]]] = {
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "bloom": _bloom,
    "opt": _opt,
    "falcon": _falcon,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "phi3": _llama,
}
