"""What each key of a config changes, by family: defaults, switches, sizes, and what no field of a model expresses."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.core.test_huggingface import read
from tests.data.huggingface.record import BARE, FOLDER, defaults
from tuner.core.model import RotaryScaling


def test_a_family_without_optional_keys_has_the_recorded_defaults() -> None:
    recorded = json.loads((FOLDER / "defaults.json").read_text())
    found = defaults()
    assert {name for name in recorded | found if recorded.get(name) != found.get(name)} == set()


NEUTRAL: list[tuple[str, str, object, object]] = [
    ("gpt2", "scale_attn_by_inverse_layer_idx", False, True),
    ("gpt_bigcode", "add_cross_attention", False, True),
    ("bloom", "apply_residual_connection_post_layernorm", False, True),
    ("opt", "layerdrop", 0.0, 0.1),
    ("mpt", "expansion_ratio", 4, 8),
    ("mpt", "no_bias", True, False),
    ("mpt", "logit_scale", None, 0.5),
    ("mpt", "embedding_fraction", 1.0, 0.5),
    ("stablelm", "hidden_dropout", 0, 0.1),
    ("mistral", "layer_types", None, "full_attention"),
    ("gemma", "use_bidirectional_attention", False, True),
    ("gemma3_text", "use_bidirectional_attention", False, True),
    ("olmo", "clip_qkv", None, 8.0),
    ("olmoe", "clip_qkv", None, 8.0),
    ("mixtral", "router_jitter_noise", 0.0, 0.01),
    ("deepseek_v2", "norm_topk_prob", False, True),
    ("deepseek_v2", "scoring_func", "softmax", "sigmoid"),
    ("deepseek_v3", "scoring_func", "sigmoid", "softmax"),
    ("deepseek_v3", "moe_layer_freq", 1, 2),
    ("deepseek_v3", "topk_method", "noaux_tc", "greedy"),
    ("gpt_oss", "swiglu_alpha", 1.702, 2.0),
    ("phimoe", "input_jitter_noise", 0.0, 0.01),
    ("minimax_m2", "shared_intermediate_size", 0, 512),
    ("minimax_m2", "qk_norm_type", "per_layer", "per_head"),
]


@pytest.mark.parametrize(("family", "key", "neutral", "other"), NEUTRAL)
def test_a_key_without_a_field_is_named_unless_it_is_neutral(
    family: str, key: str, neutral: object, other: object
) -> None:
    bare = {"model_type": family, **BARE}
    assert read(bare, **{key: neutral}) == read(bare)
    assert f"{key}={other!r}" in read(bare, **{key: other}).not_understood


@pytest.mark.parametrize(
    ("scaling", "scale"),
    [
        ({"factor": 40.0, "mscale_all_dim": 0.5}, (0.05 * math.log(40) + 1) ** 2 / math.sqrt(128 + 64)),
        ({"factor": 40.0}, 0.0),
        ({"factor": 1.0, "mscale_all_dim": 0.5}, 0.0),
        ({"mscale_all_dim": 0.5}, 0.0),
    ],
)
def test_latent_attention_is_scaled_by_the_growth_of_yarn_twice(scaling: dict[str, Any], scale: float) -> None:
    """Zero is the usual scale, one over the root of a key's width."""
    bare = {"model_type": "deepseek_v3", **BARE}
    assert read(bare, rope_scaling={"rope_type": "yarn", **scaling}).attention_scale == pytest.approx(scale)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"type": "linear", "factor": 4.0}, RotaryScaling(kind="linear", factor=4.0)),
        ({"type": "linear"}, RotaryScaling(kind="linear", factor=1.0)),
        ({"type": "dynamic", "factor": 4.0}, RotaryScaling(kind="dynamic", factor=4.0, original_seq=2048)),
        (
            {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512},
            RotaryScaling(kind="llama3", factor=8.0, original_seq=512),
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 6.0},
            RotaryScaling(kind="llama3", factor=8.0, original_seq=2048, low_frequency=2.0, high_frequency=6.0),
        ),
        (
            {"rope_type": "yarn", "original_max_position_embeddings": 512, "beta_fast": 16, "beta_slow": 2},
            RotaryScaling(kind="yarn", factor=4.0, original_seq=512, beta_fast=16.0, beta_slow=2.0),
        ),
        (
            {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.25, "truncate": False},
            RotaryScaling(kind="yarn", factor=8.0, original_seq=2048, attention_factor=1.25, truncate=False),
        ),
        *(
            (
                {"rope_type": "yarn", "factor": 8.0, scale: 0.5},
                RotaryScaling(kind="yarn", factor=8.0, original_seq=2048),
            )
            for scale in ("mscale", "mscale_all_dim")
        ),
        ({"rope_type": "default", "factor": 8.0}, None),
    ],
)
def test_each_kind_of_rotary_scaling_has_its_own_figures(table: dict[str, Any], expected: RotaryScaling | None) -> None:
    """Where yarn states no factor, it is the longest sequence over the original one."""
    assert read({"model_type": "llama", **BARE}, rope_scaling=table).rotary_scaling == expected
