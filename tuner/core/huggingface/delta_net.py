"""Families with Gated DeltaNet in most layers. Each function returns the fields of its family.

Defaults for missing keys are those of transformers 5.23, and so is everything that no key decides.
"""

from __future__ import annotations

from typing import Final

from tuner.core.delta_net import DeltaNet
from tuner.core.errors import InputError
from tuner.core.huggingface.keys import Fields, Keys
from tuner.core.huggingface.llama import common
from tuner.core.huggingface.moe import qwen_experts
from tuner.core.huggingface.parts import biases
from tuner.core.text import shown

_HEADS: Final = {"key": 16, "value": 32}
_LINEAR, _FULL = "linear_attention", "full_attention"


def qwen3_next(keys: Keys) -> Fields:
    """Qwen3-Next: 512 experts, with a shared one behind a gate."""
    return {**_hybrid(keys, kv_heads=2), **_experts(keys, count=512, top_k=10)}


def qwen3_5(keys: Keys) -> Fields:
    """Qwen3.5, Qwen3.6 and Qwen3.8 with an MLP."""
    return {**_hybrid(keys, kv_heads=4), "mtp_layers": _predictors(keys)}


def qwen3_5_moe(keys: Keys) -> Fields:
    """The same with experts in every layer, whose weights always add up to one."""
    for key, only in (("norm_topk_prob", True), ("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        keys.expects(key, only)
    return {**_hybrid(keys, kv_heads=2), "mtp_layers": _predictors(keys), **_experts(keys, count=256, top_k=8)}


def _hybrid(keys: Keys, *, kv_heads: int) -> Fields:
    """Return what all have in common: attention behind a gate in every fourth layer, a quarter of its heads rotated."""
    keys.expects("attn_output_gate", True)
    keys.expects("use_sliding_window", False)
    return {
        **common(keys, kv_heads=kv_heads, fraction=0.25),
        **biases(keys, "attention_bias", default=False, mlp=False),
        "head_size": keys.size("head_dim", default=256, least=1),
        "attention_gate": True,
        "qk_norm": True,
        "norm_offset": True,
        "delta_net": _delta_net(keys),
    }


def _experts(keys: Keys, *, count: int, top_k: int) -> Fields:
    """Return Qwen's experts with a shared one behind a gate; the numbers are the family's defaults."""
    shared = keys.size("shared_expert_intermediate_size", default=512)
    gate = bool(shared)
    return qwen_experts(
        keys,
        count=count,
        top_k=top_k,
        width=512,
        normalized=True,
        shared_ffn=shared,
        shared_gate=gate,
        counted_by=("num_experts",),
    )


def _delta_net(keys: Keys) -> DeltaNet | None:
    """Return Gated DeltaNet in the layers that `layer_types` lists, or else in all but every fourth; None: in none."""
    keys.expects("output_gate_type", "swish", "silu")
    keys.expects("mamba_ssm_dtype", "float32")
    period = _period(keys)
    heads = {name: keys.size(f"linear_num_{name}_heads", default=usual, least=1) for name, usual in _HEADS.items()}
    if heads["value"] % heads["key"]:
        raise InputError(
            f"{keys.name}: linear_num_value_heads must be a multiple of linear_num_key_heads={heads['key']}, "
            f"not {heads['value']}."
        )
    sizes = DeltaNet(
        key_heads=heads["key"],
        value_heads=heads["value"],
        key_size=keys.size("linear_key_head_dim", default=128, least=1),
        value_size=keys.size("linear_value_head_dim", default=128, least=1),
        kernel=keys.size("linear_conv_kernel_dim", default=4, least=1),
        period=0 if period == 1 else period,
    )
    return None if period == 1 else sizes


def _period(keys: Keys) -> int:
    """Return of how many layers one has attention; 0: none has.

    A list of layers counts before the interval. If it follows no interval, the one with as many layers with attention
    stands for it.
    """
    listed, layers = keys.get("layer_types"), keys.sizes["layers"]
    interval = keys.size("full_attention_interval", default=4, least=1)
    if listed is None:
        return interval
    if not isinstance(listed, list) or len(listed) != layers or any(kind not in (_LINEAR, _FULL) for kind in listed):
        raise InputError(
            f"{keys.name}: layer_types must list {_LINEAR} or {_FULL} for each of {layers} layers, not {shown(listed)}."
        )
    full = listed.count(_FULL)
    period = max(1, round(layers / full)) if full else 0
    if listed != [_FULL if period and (layer + 1) % period == 0 else _LINEAR for layer in range(layers)]:
        keys.not_expressed["layer_types"] = None
    return period


def _predictors(keys: Keys) -> int:
    """Return the layers of multi-token prediction."""
    keys.expects("mtp_use_dedicated_embeddings", False)
    return keys.size("mtp_num_hidden_layers")
