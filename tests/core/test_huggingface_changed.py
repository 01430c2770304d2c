"""A key of a published config that changes is noticed: another model, a named property, or an error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.core.test_huggingface import fixture, read
from tests.data.huggingface.record import CONFIGS, bare_config, has_tower
from tuner.core.errors import InputError
from tuner.core.huggingface import _MIXTURES, model_from
from tuner.core.huggingface.keys import has_effect
from tuner.core.huggingface.multimodal import MULTIMODAL

_QWENS: Final = (
    *("qwen2-0.5b", "qwen2-7b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    "smollm3-3b",
)
_LLAMA4: Final = ("llama-4-maverick", "llama-4-scout")
_FP8: Final = ("deepseek-v3", "kimi-k2", "minimax-m2")
_GPT_OSS: Final = ("gpt-oss-20b", "gpt-oss-120b")
_QWEN3_5: Final = ("qwen3.5-4b", "qwen3.5-397b-a17b", "qwen3.6-35b-a3b", "qwen3.8-27b")
_QWEN_VL: Final = ("qwen3-vl-4b", "qwen3-vl-8b", "qwen3-vl-30b-a3b")

UNUSED: Final[dict[str, tuple[str, ...]]] = {
    # the window is switched off
    "sliding_window": ("smollm3-3b",),
    "layer_types": ("smollm3-3b",),
    # or there is none to switch on
    "use_sliding_window": _QWENS,
    # experts are chosen in another way
    "n_group": ("deepseek-v2-lite",),
    "topk_group": ("deepseek-v2-lite",),
    # of a scaling that the model does not have
    "original_max_position_embeddings": ("phi-3.5-moe",),
    # overridden by rope_type, and without effect unless mscale_all_dim is given
    "rope_scaling.type": ("afm-4.5b", "apertus-8b"),
    "text_config.rope_parameters.type": ("ministral-3-8b",),
    "rope_scaling.mscale": ("afm-4.5b",),
    # always on in Falcon's newer architecture
    "parallel_attn": ("falcon-40b",),
    # parts of a property that is named
    "text_config.attn_scale": _LLAMA4,
    "text_config.floor_scale": _LLAMA4,
    "text_config.rope_parameters.llama_4_scaling_beta": ("ministral-3-8b",),
    # overridden by ALiBi; a kernel
    "learned_pos_emb": ("mpt-7b",),
    "attn_config.attn_impl": ("mpt-7b",),
    # of a loss that output_router_logits switches
    "router_aux_loss_coef": _GPT_OSS,
    # how weights are stored
    **dict.fromkeys((f"quantization_config.{key}" for key in ("activation_scheme", "fmt", "weight_block_size")), _FP8),
    "quantization_config.unknown": (*_FP8, *_GPT_OSS),
    "text_config.quantization_config.format": ("kimi-k2.5",),
    "text_config.quantization_config.unknown": ("kimi-k2.5",),
    # the config around it counts
    "text_config.tie_word_embeddings": ("kimi-k2.5", "qwen3-vl-4b"),
    # there is no window to switch on
    "text_config.use_sliding_window": ("internvl3-1b",),
    # text has the same position on all axes
    "text_config.rope_scaling.mrope_interleaved": _QWEN_VL,
    "text_config.rope_scaling.mrope_section": ("glm-4.5v", *_QWEN_VL),
    "text_config.rope_parameters.mrope_interleaved": _QWEN3_5,
    "text_config.rope_parameters.mrope_section": _QWEN3_5,
    # kernels, and the precision of one product
    "use_grouped_mm": ("hy3-preview", "trinity-mini"),
    "enable_lm_head_fp32": ("hy3-preview",),
    # classes of other tasks
    "auto_map.unknown": ("kimi-k2.5",),
    "text_config.auto_map.unknown": ("kimi-k2.5",),
}
"""Keys that have no effect in these configs."""


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
    """Yield each key, and configs in which it differs; tables also with an unknown key."""
    for key, value in config.items():
        if not isinstance(value, dict):
            yield key, [{**config, key: other} for other in changed(value)]
            continue
        unknown = [{**value, "unknown": other} for other in changed(None)]
        for inner, others in (*variants(value), ("unknown", unknown)):
            yield f"{key}.{inner}", [{**config, key: other} for other in others]


def may_have_an_effect(key: str) -> bool:
    """Return whether a key, or one of a text_config, may have an effect; the family itself and a tower are left out."""
    key = key.removeprefix("text_config.")
    return has_effect(key) and key != "model_type" and not key.startswith("vision_config.")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_no_key_of_a_published_config_is_ignored(path: Path) -> None:
    config = json.loads(path.read_text())

    def found(one: dict[str, Any]) -> Any:
        try:
            return model_from(one, name="any")
        except InputError as error:
            return str(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = found(config)
        keys = [(key, others) for key, others in variants(config) if may_have_an_effect(key)]
        ignored = {key for key, others in keys if others and all(found(other) == read for other in others)}
    tower = set(config).intersection(MULTIMODAL[config["model_type"]].keys) if has_tower(path) else set()
    assert ignored == {key for key, names in UNUSED.items() if path.stem in names} | tower


@pytest.mark.parametrize(
    ("name", "key", "same", "other"),
    [
        ("glm-4.7-flash", "head_dim", 64, 128),
        ("glm-4.7-flash", "num_local_experts", 64, 32),
        ("deepseek-v3", "head_dim", 64, 128),
        ("deepseek-v3", "num_mtp_layers", 1, 2),
        ("dots.llm1", "num_local_experts", 128, 64),
        ("olmoe-1b-7b", "num_local_experts", 64, 32),
        ("ernie-4.5-21b-a3b", "num_experts_per_tok", 6, 2),
    ],
)
def test_a_key_that_a_family_maps_to_another_may_only_repeat_it(name: str, key: str, same: int, other: int) -> None:
    """transformers' `attribute_map` lets such a key set the other one. DeepSeek-V3 fails with another head_dim."""
    config = fixture(name)
    config.pop(key, None)
    plain = read(config)
    assert read(config, **{key: same}) == plain
    noted = set(read(config, **{key: other}).not_understood) - set(plain.not_understood)
    assert len(noted) == 1


@pytest.mark.parametrize("family", _MIXTURES)
def test_a_number_of_experts_under_a_key_of_another_family_is_not_understood(family: str) -> None:
    """transformers ignores it and takes its default for the family's own key."""
    own = read(bare_config(family))
    keys = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    counts = {key: read(bare_config(family), **{key: 24}) for key in keys}
    understood = [key for key, found in counts.items() if found.not_understood == own.not_understood]
    assert own.experts is not None
    assert 1 <= len(understood) <= 2
    for key, found in counts.items():
        assert found.experts is not None
        assert found.experts.count == (24 if key in understood else own.experts.count)
    assert ("moe_k" in read(bare_config(family), moe_k=3).not_understood) == (family != "ernie4_5_moe")
