"""Configs of models with Gated DeltaNet in most layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_huggingface import fixture, read
from tuner.core.errors import InputError


@pytest.mark.parametrize(
    ("layer_types", "period", "noted"),
    [
        (["linear_attention", "full_attention"] * 32, 2, False),
        (["linear_attention"] * 64, 0, False),
        (["full_attention"] * 64, None, False),
        (["full_attention", *["linear_attention"] * 3] * 16, 4, True),
        ([*["linear_attention"] * 62, "full_attention", "linear_attention"], 64, True),
    ],
)
def test_a_hybrids_list_of_layers_counts(layer_types: list[str], period: int | None, noted: bool) -> None:
    """The interval is ignored where each layer is listed, as in transformers; another pattern is noted, and stands for
    as many layers with attention."""
    model = read(fixture("qwen3.8-27b"), layer_types=layer_types)
    assert (model.delta_net.period if model.delta_net else None) == period
    assert model.not_understood == (("layer_types",) if noted else ())
    if not noted and period is not None:
        assert model.delta_layers == layer_types.count("linear_attention")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": "linear"}, "layer_types must list linear_attention or full_attention for each of 64 layers"),
        ({"layer_types": [{}] * 64}, "layer_types must list"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types must list"),
        ({"layer_types": ["sliding_attention"] * 64}, "layer_types must list"),
        (
            {"linear_num_value_heads": 24},
            "value_heads must be a multiple of linear_num_key_heads=16, not 24",
        ),
        ({"layer_types": None, "full_attention_interval": 0}, "full_attention_interval must be at least 1, not 0"),
    ],
)
def test_a_hybrid_of_unknown_layers_or_heads_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(fixture("qwen3.8-27b"), **changes)
