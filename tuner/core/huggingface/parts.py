"""Parts that several families share: activations, rotary embeddings, windows and dropouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.huggingface.keys import Fields, Keys, number_of, switch, whole
from tuner.core.model import Activation
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.text import shown, shown_name

_ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
    "xielu": "xielu",
}

_FACTORS: Final = {
    *("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale"),
    *("mscale_all_dim", "short_factor", "long_factor", "truncate"),
}
"""Keys that scale a rotary embedding, if the table has a type."""
_SCALING_KEYS: Final = _FACTORS | {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"),
}
_OF_TEXT: Final = {"mrope_section", "mrope_interleaved"}
"""Keys of rotary axes, of which text has one."""
KINDS: Final = ("full_attention", "sliding_attention")
"""Kinds of layers; some families have a table for each."""


def activation(keys: Keys, *spellings: str, default: str) -> Activation | None:
    """Return the MLP's activation."""
    value = keys.get(*spellings, default=default)
    if isinstance(value, str) and value in _ACTIVATIONS:
        return _ACTIVATIONS[value]
    keys.not_expressed[f"{spellings[0]}={shown(value)}"] = None
    return None


def dropouts(keys: Keys, attention: str, hidden: str = "", embedding: str = "", default: float = 0.0) -> Fields:
    """Return the three dropouts by their keys; a part without a key has none."""
    by_field = {"attention_dropout": attention, "hidden_dropout": hidden, "embedding_dropout": embedding}
    return {field: keys.number(key, default=default) for field, key in by_field.items() if key}


def biases(keys: Keys, key: str, *, default: bool, mlp: bool = True) -> Fields:
    """Return the biases of attention, and of the MLP too, that one key switches."""
    value = keys.flag(key, default=default)
    return {"qkv_bias": value, "attention_bias": value, **({"mlp_bias": value} if mlp else {})}


def rotary(
    keys: Keys,
    *,
    theta: float = 10_000.0,
    fraction: float | None = None,
    spellings: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
) -> Fields:
    """Return base, fraction and scaling, which transformers 5 keeps in `rope_parameters` and earlier releases apart.

    `fraction` is the family's default for a missing key, where a null means whole heads; None: it rotates whole heads,
    whatever the config says.
    """
    old, new = keys.table("rope_scaling"), keys.table("rope_parameters")
    table = old or new
    outside = keys.number(spellings[0], default=theta)
    base = number_of(_inside(keys, table, "rope_theta", spellings[0], outside), f"{keys.name}: rope_theta")
    if base <= 0:
        raise InputError(f"{keys.name}: rope_theta must be positive, not {base:g}.")
    label = f"{keys.name}: {spellings[1]}"
    usual = 1.0 if fraction is None or keys.has(spellings[1]) else fraction
    share = number_of(_inside(keys, table, "partial_rotary_factor", spellings[1], usual), label)
    if fraction is None and share != 1:
        keys.not_expressed[f"partial_rotary_factor={share:g}"] = None
        share = 1.0
    if not 0 < share <= 1:
        raise InputError(f"{label} must be above 0 and at most 1, not {share:g}.")
    scaling = rotary_scaling(keys, table)
    return {"positions": "rotary", "rotary_base": base, "rotary_fraction": share, "rotary_scaling": scaling}


def rotary_scaling(keys: Keys, table: Mapping[str, Any]) -> RotaryScaling | None:
    """Return the scaling that a table `rope_scaling` or `rope_parameters` describes."""
    given = _given(table, "rope_type", table.get("type"))
    kind = "default" if given is None else given
    for key in table:
        ignored = given is None and key in _FACTORS and table[key] is not None  # as in transformers, which warns of it
        known = key in _SCALING_KEYS or (kind == "default" and (key in _OF_TEXT or table[key] is None))
        if ignored or not known:
            keys.not_expressed[shown_name(f"rope_scaling.{key}")] = None
    longest = keys.sizes["max_positions"]
    keys.get("original_max_position_embeddings")
    if kind == "default":
        return None
    if kind not in ("linear", "dynamic", "llama3", "yarn", "longrope", "su"):
        keys.not_expressed[f"rope_type={shown(kind)}"] = None
        return None

    def number(key: str, default: float) -> float:
        return number_of(_given(table, key, default), f"{keys.name}: rope_scaling.{key}")

    length = longest
    if kind not in ("linear", "dynamic"):
        key = "original_max_position_embeddings"
        length = whole(_inside(keys, table, key, key, longest), f"{keys.name}: {key}")
    ratio = longest / length if kind in ("longrope", "su", "yarn") and length else 1.0
    if kind in ("linear", "dynamic", "llama3") and table.get("factor") is None:
        raise InputError(f"{keys.name}: rope_scaling of type {kind} lacks its factor.")
    factor = number("factor", ratio)
    if kind == "linear":
        return RotaryScaling(kind="linear", factor=factor)
    if kind == "dynamic":
        return RotaryScaling(kind="dynamic", factor=factor, original_seq=longest)
    if kind == "llama3":
        low, high = number("low_freq_factor", 1.0), number("high_freq_factor", 4.0)
        return RotaryScaling(kind="llama3", factor=factor, original_seq=length, low_frequency=low, high_frequency=high)
    if kind == "yarn":
        return RotaryScaling(
            kind="yarn",
            truncate=switch(_given(table, "truncate", True), f"{keys.name}: rope_scaling.truncate"),
            factor=factor,
            original_seq=length,
            beta_fast=number("beta_fast", 32.0),
            beta_slow=number("beta_slow", 1.0),
            attention_factor=number("attention_factor", _attention_factor(factor, number)),
        )
    return RotaryScaling(
        kind="longrope",
        factor=factor,
        original_seq=length,
        attention_factor=number("attention_factor", 0.0),
        short_factors=_factors(keys, table, "short_factor"),
        long_factors=_factors(keys, table, "long_factor"),
    )


def _attention_factor(factor: float, number: Any) -> float:
    """Return yarn's attention factor if two scales define it; 0 if it follows from `factor`."""
    scale, scale_all = number("mscale", 0.0), number("mscale_all_dim", 0.0)
    if not scale or not scale_all:
        return 0.0
    growth = 0.1 * math.log(factor) if factor > 1 else 0.0
    return float((scale * growth + 1) / (scale_all * growth + 1))


def _factors(keys: Keys, table: Mapping[str, Any], key: str) -> tuple[float, ...]:
    values = _given(table, key, [])
    if not isinstance(values, list):
        values = [values]
    return tuple(number_of(value, f"{keys.name}: rope_scaling.{key}") for value in values)


def _inside(keys: Keys, table: Mapping[str, Any], key: str, outside: str, default: Any) -> Any:
    """Return the value of a key inside a table, or that of the key `outside` it.

    If both are given and differ, note the latter: which of them counts depends on the release of transformers.
    """
    inner = table.get(key)
    if inner is not None:
        keys.expects(outside, inner)
    return keys.get(outside, default=default) if inner is None else inner


def _given(table: Mapping[str, Any], key: str, default: Any) -> Any:
    value = table.get(key)
    return default if value is None else value


def window(keys: Keys, size: int, windowed: Sequence[bool]) -> Fields:
    """Return the fields of a sliding window of `size` tokens in the layers that are true in `windowed`."""
    if not size or not any(windowed):
        return {}
    start = list(windowed).index(True)
    skip = next((index + 1 for index, inside in enumerate(windowed[start:]) if not inside), 0)
    if not all(inside == (not skip or (index + 1) % skip != 0) for index, inside in enumerate(windowed[start:])):
        keys.not_expressed["layer_types"] = None
    return {"sliding_window": size, "window_start": start, "window_skip": skip}


def layer_types(keys: Keys, default: Sequence[bool]) -> Sequence[bool]:
    """Return for each layer whether it has a sliding window, as `layer_types` lists it or else by default."""
    listed = keys.get("layer_types")
    if not isinstance(listed, list) or len(listed) != keys.sizes["layers"]:
        if listed is not None:
            keys.not_expressed["layer_types"] = None
        return default
    if not {"sliding_attention", "full_attention"}.issuperset(map(str, listed)):
        keys.not_expressed["layer_types"] = None
    return [kind == "sliding_attention" for kind in listed]


def alternating(layers: int, every: int) -> list[bool]:
    """Return true for all layers but every n-th; all true if n is 0."""
    return [not every or (layer + 1) % every != 0 for layer in range(layers)]
