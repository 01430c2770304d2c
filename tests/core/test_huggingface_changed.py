"""A key of a published config that changes is noticed: another model, a named property, or an error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.data.huggingface.record import CONFIGS, text_config
from tuner.core.errors import InputError
from tuner.core.huggingface import model_from
from tuner.core.huggingface.keys import has_effect

UNUSED: Final = {
    "sliding_window": "is switched off by another key",
    "use_sliding_window": "has no window to switch on",
    "layer_types": "lists the kinds of layers of a window that is switched off",
    "n_group": "is used by another choice of experts",
    "topk_group": "is used by another choice of experts",
    "original_max_position_embeddings": "is used by a scaling that the model does not have",
    "parallel_attn": "is always on in Falcon's newer architecture",
    "attn_scale": "is a part of a property that is named",
    "floor_scale": "is a part of a property that is named",
    "learned_pos_emb": "is overridden by ALiBi",
    "attn_config.attn_impl": "is a kernel",
    "router_aux_loss_coef": "is the coefficient of gpt-oss's loss, which output_router_logits switches",
    "rope_scaling.type": "is overridden by rope_type",
    "rope_scaling.mscale": "has an effect with mscale_all_dim only",
    **dict.fromkeys(
        (f"quantization_config.{key}" for key in ("activation_scheme", "fmt", "weight_block_size", "unknown")),
        "describes how weights are stored",
    ),
}
"""Keys that have no effect in one of these configs, with what the key does there."""


def changed(value: Any) -> Iterator[Any]:
    """Yield other values of a key."""
    if value is None:
        yield from (3, 0.25, True, "another")
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, 2 * value + 0.25)
        yield value * 2
    elif isinstance(value, str):
        yield f"{value}_another"
    else:
        yield from (value[1:] + value[:1], [*value, 1], [])


def variants(config: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each key that may have an effect, and configs in which it differs; keys of tables also with an unknown."""
    for key, value in config.items():
        if not isinstance(value, dict):
            yield key, [{**config, key: other} for other in changed(value)]
            continue
        for inner, given in {**value, "unknown": None}.items():
            yield f"{key}.{inner}", [{**config, key: {**value, inner: other}} for other in changed(given)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_no_key_of_a_published_config_is_ignored(path: Path) -> None:
    config = text_config(path)

    def found(one: dict[str, Any]) -> Any:
        try:
            return model_from(one, name="any")
        except InputError as error:
            return str(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = found(config)
        keys = [(key, others) for key, others in variants(config) if has_effect(key) and key != "model_type"]
        ignored = {key for key, others in keys if others and all(found(other) == read for other in others)}
    assert ignored - set(UNUSED) == set()
