"""Models with a vision tower are read as the language model inside, and what the config around it says counts."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.core.test_huggingface import fixture, read
from tests.data.huggingface.record import BARE, CONFIGS, FOLDER, has_tower
from tuner.core.errors import InputError, TunerWarning
from tuner.core.huggingface import model_from
from tuner.core.huggingface.multimodal import MULTIMODAL
from tuner.core.model import Model

TOWERS = [path for path in CONFIGS if has_tower(path)]
LLAMA = {"model_type": "llama", "intermediate_size": 4096, **BARE}
UNSTATED = "tie_word_embeddings (missing outside text_config)"


def whole(name: str, **changes: Any) -> dict[str, Any]:
    """Return a recorded config, changed; a value of None removes the key."""
    config = {**json.loads((FOLDER / f"{name}.json").read_text()), **changes}
    return {key: value for key, value in config.items() if value is not None}


def warned(config: dict[str, Any]) -> tuple[Model, list[str]]:
    """Return what is read from a config, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TunerWarning)
        model = model_from(config, name="m")
    return model, [str(one.message) for one in caught]


def quietly(config: dict[str, Any]) -> Model:
    return warned(config)[0]


def test_every_family_with_a_tower_has_a_recorded_config() -> None:
    assert {json.loads(path.read_text())["model_type"] for path in TOWERS} == set(MULTIMODAL)


@pytest.mark.parametrize("path", TOWERS, ids=lambda path: path.stem)
def test_a_vision_tower_is_left_out_with_a_warning(path: Path) -> None:
    config = json.loads(path.read_text())
    found, messages = warned(config)
    assert "m is read without its vision tower, as a language model." in messages
    assert found == quietly({**config, "vision_config": {"depth": 3}})
    assert found.layers == config["text_config"]["num_hidden_layers"]


USUAL = [path for path in TOWERS if path.stem != "ministral-3-8b"]
"""Without the one whose language model is of the second family that mistral3 may have."""


@pytest.mark.parametrize("path", USUAL, ids=lambda path: path.stem)
def test_a_text_config_that_names_no_family_is_of_the_usual_one(path: Path) -> None:
    config = json.loads(path.read_text())
    text = {key: value for key, value in config["text_config"].items() if key != "model_type"}
    assert quietly({**config, "text_config": text}) == quietly(config)


TIED = [
    # whole config, text_config, read as tied, notes
    ("gemma-3-4b", None, None, True, ()),
    ("gemma-3-4b", False, None, False, ()),
    ("gemma-3-4b", False, True, False, ()),
    ("gemma-3-4b", None, False, False, (UNSTATED,)),
    ("mistral-small-3.2-24b", None, None, False, (UNSTATED,)),
    ("mistral-small-3.2-24b", None, True, True, ()),
    ("mistral-small-3.2-24b", None, False, False, (UNSTATED,)),
    ("mistral-small-3.2-24b", False, None, False, ()),
    ("mistral-small-3.2-24b", True, False, True, ()),
    ("qwen3-vl-8b", None, True, True, (UNSTATED,)),
    ("qwen3-vl-8b", None, None, False, ()),
    ("qwen3-vl-30b-a3b", None, None, False, ()),
    ("kimi-k2.5", None, None, False, (UNSTATED,)),
    ("internvl3-1b", None, None, False, (UNSTATED,)),
    ("command-a-vision", None, None, True, ()),
    ("glm-4.5v", False, True, True, ()),
    ("glm-4.5v", None, True, True, ()),
    ("glm-4.5v", True, False, True, ()),
    ("llama-4-scout", None, True, True, ()),
    ("llama-4-scout", True, None, False, ("tie_word_embeddings=True (outside text_config)",)),
    ("llama-4-scout", False, True, True, ("tie_word_embeddings=False (outside text_config)",)),
]


@pytest.mark.parametrize(("name", "around", "inside", "tied", "noted"), TIED)
def test_embeddings_are_tied_as_transformers_ties_them(
    name: str, around: bool | None, inside: bool | None, tied: bool, noted: tuple[str, ...]
) -> None:
    """Reviewed against transformers 5.23, which `compare.py` builds; see the docstring of `text_model`."""
    config = whole(name, tie_word_embeddings=around)
    text = {key: value for key, value in config["text_config"].items() if key != "tie_word_embeddings"}
    config["text_config"] = text if inside is None else {**text, "tie_word_embeddings": inside}
    found = quietly(config)
    assert found.tied_embeddings is tied
    assert tuple(note for note in found.not_understood if note.startswith("tie_word_embeddings")) == noted


@pytest.mark.parametrize("name", ["gemma-3-4b", "mistral-small-3.2-24b", "qwen3-vl-4b"])
def test_embeddings_that_are_tied_null_are_not_understood(name: str) -> None:
    """transformers 5.23 refuses null in some of these classes, and in others ties nothing."""
    assert "tie_word_embeddings=None" in quietly({**whole(name), "tie_word_embeddings": None}).not_understood


def test_a_config_that_does_not_say_whether_embeddings_are_tied_is_warned_of() -> None:
    _, messages = warned(whole("mistral-small-3.2-24b"))
    assert messages[1:] == [
        "m does not say whether its embeddings are tied: they are read as not tied, as in its text_config alone, but "
        "transformers ties those of a new 'mistral3'. To export it, add tie_word_embeddings outside its text_config."
    ]
    assert len(warned(whole("mistral-small-3.2-24b", tie_word_embeddings=False))[1]) == 1


@pytest.mark.parametrize(
    ("changes", "noted"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, ("quantization_config ('bitsandbytes')",)),
        ({"quantization_config": {"quant_method": "fp8"}}, ()),
        ({"projector": "wide"}, ("projector",)),
        ({"initializer_range": 0.02}, ()),
        ({"initializer_range": 0.05}, ("initializer_range=0.05",)),
        ({"hidden_size": 4096}, ()),
        ({"hidden_size": 2048}, ("hidden_size=2,048",)),
        ({"mm_tokens_per_image": 256}, ("mm_tokens_per_image",)),
        ({"architectures": ["Qwen3VLModel"]}, ()),
        ({"architectures": ["Qwen3ForCausalLM"]}, ("architectures ('Qwen3ForCausalLM')",)),
        ({"architectures": ["Qwen3VLMoeForConditionalGeneration"]}, None),
        ({"auto_map": {"AutoModel": "m.OtherForConditionalGeneration"}}, None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_around_a_text_config_only_repeats_it_or_is_named(
    changes: dict[str, Any], noted: tuple[str, ...] | None
) -> None:
    """transformers passes none of it on to the language model."""
    plain, found = quietly(whole("qwen3-vl-8b")), quietly(whole("qwen3-vl-8b", **changes))
    assert replace(found, not_understood=()) == plain
    assert found.not_understood == noted if noted is not None else len(found.not_understood) == 1


@pytest.mark.parametrize(
    ("name", "changes", "noted"),
    [
        ("qwen3-vl-30b-a3b", {"norm_topk_prob": False}, ("norm_topk_prob=False",)),
        ("qwen3-vl-30b-a3b", {"norm_topk_prob": None}, ()),
        ("qwen3-vl-8b", {"use_sliding_window": True}, ("use_sliding_window=True",)),
        ("qwen3-vl-8b", {"model_type": "llama"}, ("text_config.model_type='llama'",)),
        ("glm-4.5v", {"use_qk_norm": True}, ("use_qk_norm=True",)),
        ("glm-4.5v", {"num_nextn_predict_layers": 1}, ("num_nextn_predict_layers=1",)),
    ],
)
def test_keys_that_a_text_model_does_not_read_are_named(
    name: str, changes: dict[str, Any], noted: tuple[str, ...]
) -> None:
    """These classes of transformers 5.23 have no such switch, unlike the families that they otherwise equal."""
    plain, config = quietly(whole(name)), whole(name)
    found = quietly({**config, "text_config": {**config["text_config"], **changes}})
    assert (replace(found, not_understood=()), found.not_understood) == (plain, noted)


def test_text_models_have_their_own_defaults() -> None:
    """transformers 5.23, Qwen3VLTextConfig, Qwen3VLMoeTextConfig and Glm4vMoeTextConfig."""
    dense = read({"model_type": "qwen3_vl_text", "intermediate_size": 22016, **BARE})
    assert (dense.rotary_base, dense.max_positions) == (500_000.0, 128_000)
    mixture = read({"model_type": "qwen3_vl_moe_text", **BARE})
    assert mixture.experts is not None
    assert (mixture.experts.count, mixture.experts.top_k, mixture.experts.ffn) == (60, 4, 1408)
    assert (mixture.kv_heads, mixture.experts.normalized, mixture.max_positions) == (16, True, 128_000)
    saved_again = read({"model_type": "qwen3_vl_moe_text", **BARE, "num_local_experts": 128})
    assert saved_again.experts is not None
    assert (saved_again.experts.count, saved_again.not_understood) == (128, ())
    glm = read({"model_type": "glm4v_moe_text", **BARE})
    assert (glm.qkv_bias, glm.mtp_layers, glm.max_positions, glm.rotary_fraction) == (True, 0, 65_536, 0.5)


@pytest.mark.parametrize("family", ["qwen3_vl_text", "qwen3_vl_moe_text"])
def test_a_base_in_a_rotary_table_replaces_the_default(family: str) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        found = read({**BARE, "model_type": family, key: {"rope_type": "default", "rope_theta": 5e6}})
        assert (found.rotary_base, found.not_understood) == (5e6, ())
    assert read({**BARE, "model_type": family, "rope_scaling": {"rope_type": "default"}}).rotary_base == 5e5


def test_the_text_model_of_qwen3_vl_is_a_qwen3() -> None:
    """Text has the same position on all three axes of its rotary embedding."""
    axes = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
    config = fixture("qwen3-8b")
    text = {key: value for key, value in config.items() if key != "architectures"} | {"model_type": "qwen3_vl_text"}
    assert read(text, rope_scaling=axes) == read(config)


def test_a_part_of_the_output_layer_that_the_whole_model_lacks_is_named() -> None:
    """transformers' Gemma3ForConditionalGeneration computes logits without the soft cap of Gemma3ForCausalLM."""
    config = whole("gemma-3-4b")
    config["text_config"]["final_logit_softcapping"] = 30.0
    assert quietly(config).not_understood == ("logit_softcap=30.0 (not in transformers' gemma3)",)


def test_the_text_config_of_an_unknown_model_is_read_with_a_warning(run: Run, tmp_path: Path) -> None:
    config = {"model_type": "newcomer_vl", "text_config": LLAMA, "vision_config": {}, "resampler": "perceiver"}
    with pytest.warns(
        TunerWarning, match="model_type 'newcomer_vl' is unknown; its text_config is read, as a language"
    ):
        found = read(config)
    assert found == replace(read(LLAMA), not_understood=("model_type='newcomer_vl'", "resampler"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "model_type='newcomer_vl'" in run("plan", "--top", "1", "--model", str(tmp_path)).out


@pytest.mark.parametrize("model_type", ["newcomer_vl", ["newcomer"], None])
def test_an_unknown_model_with_an_unknown_text_config_is_refused_with_what_to_plan_instead(model_type: object) -> None:
    config = {"model_type": model_type, "text_config": {**LLAMA, "model_type": "newcomer"}, "vision_config": {}}
    with pytest.raises(InputError, match=r"model_type .* is unknown; .* save its text_config"):
        read(config)


@pytest.mark.parametrize("text", [None, {}, {"model_type": "mistral"}])
def test_a_text_config_without_sizes_is_refused(text: object) -> None:
    with pytest.raises(InputError, match="m lacks num_hidden_layers"):
        read({"model_type": "mistral3", "text_config": text})


@pytest.mark.parametrize("text", [[], "", 0, [1], False])
def test_a_text_config_must_be_an_object(text: object) -> None:
    with pytest.raises(InputError, match="text_config must be an object, not "):
        read({"model_type": "mistral3", "text_config": text})


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("gemma4", "it normalizes values, and its layers that attend to all tokens have heads of another width"),
        ("gemma3n", "each of its layers has an embedding, and its last layers share keys and values"),
    ],
)
def test_a_text_model_that_no_field_describes_is_refused_with_the_reason(model_type: str, reason: str) -> None:
    text = {**LLAMA, "model_type": f"{model_type}_text", "rms_norm_eps": 1e-6}
    for config in (text, {"model_type": model_type, "text_config": text}):
        with pytest.raises(InputError, match=f"model_type '{model_type}_text' cannot be described: {reason}"):
            read(config)
