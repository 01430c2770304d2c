"""Hugging Face configs of unknown families, or in Hugging Face's cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.core.test_huggingface import fixture, read
from tests.data.huggingface.record import BARE, FOLDER
from tuner.core import catalog
from tuner.core.errors import InputError, TunerWarning


def test_kinship_is_noted_with_every_key_that_is_not_understood(tmp_path: Path, run: Run) -> None:
    config = {**fixture("llama-7b"), "model_type": "newcomer", "depth_scale": 1.4, "eos_token_id": 2}
    with pytest.warns(TunerWarning, match="it is read as llama"):
        model = read(config)
    assert (model.read_as, model.not_understood) == ("llama", ("depth_scale", "model_type='newcomer'"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    document = json.loads(run("plan", "--json", "--top", "1", "--model", str(tmp_path)).out)
    assert [note.split(";")[0].split(":")[0] for note in document["notes"]] == [
        "The model's family is unknown",
        "tuner does not understand these properties of the model",
    ]
    assert "depth_scale and model_type='newcomer'" in document["notes"][1]
    assert document["model"]["identity"]["norm_epsilon"] == 1e-6
    assert (
        "tuner does not understand these properties of the model: depth_scale and model_type='newcomer'."
        in run("plan", "--top", "1", "--model", str(tmp_path)).out
    )


def test_how_a_config_is_loaded_is_no_property_of_the_model() -> None:
    assert read({**fixture("llama-7b"), "trust_remote_code": True}).not_understood == ()


def test_layer_types_that_transformers_does_not_read_are_no_windows() -> None:
    """Qwen3-MoE has its window in every layer; a list that says otherwise is named."""
    windows = {"use_sliding_window": True, "sliding_window": 64}
    for types, unknown in ((["sliding_attention"], ()), (["sliding_attention", "full_attention"], ("layer_types",))):
        listed = types * (48 // len(types))
        model = read(fixture("qwen3-30b-a3b"), **windows, layer_types=listed)
        assert (model.sliding_window, model.window_skip, model.not_understood) == (64, 0, unknown)


ODD_NAMES = {"\x1b[31mred": r"\x1b[31mred", "two\nlines": r"two\nlines", "\ud800": r"\ud800", "k" * 500: "k" * 60}


@pytest.mark.parametrize(("key", "escaped"), ODD_NAMES.items(), ids=("escape", "newline", "surrogate", "long"))
def test_names_in_a_config_are_escaped_and_shortened(key: str, escaped: str) -> None:
    """Notes reach terminals and README files."""
    llama, mpt, deepseek = ({"model_type": name, **BARE} for name in ("llama", "mpt", "deepseek_v2"))
    notes = [
        *read(llama, **{key: 1}, depth_scale=1).not_understood,
        *read(llama, rope_scaling={"rope_type": "default", key: 1}).not_understood,
        *read(mpt, attn_config={key: 1, "attn_new": 2}).not_understood,
        *read(deepseek, topk_method=key).not_understood,
    ]
    assert [note for note in notes if note.isprintable() and len(note) < 100] == notes
    assert sum(escaped in note for note in notes) == 4
    assert {"depth_scale", "attn_config.attn_new=2"} < set(notes)
    with pytest.raises(InputError) as caught:
        read(llama, layer_types=[key])
    assert escaped in str(caught.value)
    assert str(caught.value).isprintable()
    if "\n" not in key:  # no hybrid's key
        with pytest.raises(InputError) as caught:
            read(llama, **{f"hybrid_{key}": 1})
        assert escaped in str(caught.value)
        assert str(caught.value).isprintable()


def test_a_family_that_no_field_describes_is_warned_of_with_the_reason() -> None:
    with pytest.warns(TunerWarning, match="Unlike a llama, it normalizes queries and keys after their rotation"):
        assert read(fixture("llama-7b"), model_type="hunyuan_v1_dense").read_as == "llama"


def test_keys_that_are_null_do_not_make_kin() -> None:
    """Some families list the width of each layer's MLP, and no width for all."""
    with pytest.raises(InputError, match="model_type 'nemotron-nas' is unknown, and so are its keys"):
        read({**fixture("llama-7b"), "model_type": "nemotron-nas", "intermediate_size": None})


def test_an_encoder_is_refused_as_one() -> None:
    config = {**BARE, "model_type": "bert", "intermediate_size": 3072, "layer_norm_eps": 1e-12}
    with pytest.raises(InputError, match="its keys; encoder and encoder-decoder models are not supported"):
        read(config)


def test_sparse_attention_is_refused_by_its_name() -> None:
    """A description in TOML could not express it either."""
    with pytest.raises(InputError, match=r"'deepseek_v32' has sparse attention \(index_topk=2,048\), which cannot be"):
        read(fixture("deepseek-v3"), model_type="deepseek_v32", index_topk=2048)


@pytest.mark.parametrize(
    ("changes", "noted"),
    [
        ({"architectures": ["LlamaModel"]}, ()),
        ({"architectures": None}, ()),
        ({"architectures": ["BidirectionalLlamaForCausalLM"]}, ("architectures ('BidirectionalLlamaForCausalLM')",)),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, ("architectures ('LlamaForCausalLMEagle3')",)),
        ({"architectures": ["LlamaForConditionalGeneration"]}, ("architectures ('LlamaForConditionalGeneration')",)),
        ({"auto_map": {"AutoModelForCausalLM": "m.OtherForCausalLM"}}, ("auto_map ('m.OtherForCausalLM')",)),
        ({"auto_map": {"AutoConfig": "some/repo--c.OtherConfig"}}, ("auto_map ('some/repo--c.OtherConfig')",)),
        ({"auto_map": "m.OtherForCausalLM"}, ("auto_map ('m.OtherForCausalLM')",)),
        ({"auto_map": {"AutoTokenizer": ["t.OtherTokenizer", None]}}, ()),
        ({"is_encoder_decoder": True}, ("is_encoder_decoder=True",)),
        ({"is_encoder_decoder": False}, ()),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_class_that_is_not_the_familys_is_named(changes: dict[str, Any], noted: tuple[str, ...]) -> None:
    """Custom code of another class could build another model from the same keys."""
    assert read(fixture("llama-7b"), **changes).not_understood == noted


@pytest.mark.parametrize(
    ("name", "config", "model"),
    [
        ("deepseek-v3", "configuration_deepseek.DeepseekV3Config", "modeling_deepseek.DeepseekV3ForCausalLM"),
        ("kimi-k2", "configuration_deepseek.DeepseekV3Config", "modeling_deepseek.DeepseekV3ForCausalLM"),
        ("minimax-m2", "configuration_minimax_m2.MiniMaxM2Config", "modeling_minimax_m2.MiniMaxM2ForCausalLM"),
        ("ernie-4.5-21b-a3b", "c.Ernie4_5_MoeConfig", "m.Ernie4_5_MoeForCausalLM"),
        ("mpt-7b", "configuration_mpt.MPTConfig", "modeling_mpt.MPTForCausalLM"),
        ("gemma-3-1b", "c.Gemma3TextConfig", "m.Gemma3ForCausalLM"),
    ],
)
def test_the_published_code_of_a_family_is_the_family(name: str, config: str, model: str) -> None:
    published = {"AutoConfig": config, "AutoModelForCausalLM": model}
    assert read(fixture(name), auto_map=published) == read(fixture(name))


def test_a_config_without_a_model_type_is_known_by_its_class() -> None:
    config = {key: value for key, value in fixture("llama-7b").items() if key != "model_type"}
    assert read(config).read_as is None
    with pytest.warns(TunerWarning, match="set its model_type to llama and remove its architectures and auto_map"):
        assert read(config, architectures=["LlamaForCausalLMEagle3"]).read_as == "llama"


@pytest.mark.parametrize(
    ("folder", "name"), [("models--Qwen--Qwen3-8B/snapshots/b968826d", "Qwen3-8B"), ("my-model", "my-model")]
)
def test_a_linked_config_is_named_by_its_folder_or_repository(folder: str, name: str, tmp_path: Path) -> None:
    """In Hugging Face's cache, config.json is a link into a folder of blobs."""
    (tmp_path / "blobs").mkdir()
    blob = tmp_path / "blobs/0123456789abcdef"
    blob.write_text((FOLDER / "llama-7b.json").read_text())
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "config.json").symlink_to(blob)
    assert catalog.model(str(tmp_path / folder)).name == name
    assert catalog.model(str(tmp_path / folder / "config.json")).name == name


def test_a_family_that_shares_known_keys_is_read_as_those_with_a_note(tmp_path: Path, run: Run) -> None:
    """Yi, OLMo and many others are LLaMAs by their keys."""
    config = fixture("llama-7b")
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "newcomer"}))
    with pytest.warns(TunerWarning, match="model_type 'newcomer' is unknown; it is read as llama"):
        assert catalog.model(str(tmp_path)).parameters == read(fixture("llama-7b")).parameters
    said = run("plan", "--json", "--model", str(tmp_path))
    assert said.code == 0
    assert said.err.startswith("tuner: warning: ")
    assert said.err.count("\n") == 1
    assert json.loads(said.out)["legal"] > 0


def test_a_model_of_an_unknown_family_is_exported_for_a_program_of_its_own_alone(run: Run, tmp_path: Path) -> None:
    config = {**json.loads((FOLDER / "llama-3.1-8b.json").read_text()), "model_type": "newcomer"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    machines = ("--gpu", "H100-80GB-SXM", "--nodes", "1", "--global-batch", "32", "--budget", "1")
    place = ("--runs", str(tmp_path))
    assert run("optimize", "--model", str(tmp_path), *machines, "--study", "new", *place).code == 0
    refused = run("export", "new", *place, "-o", str(tmp_path / "out"))
    assert refused.code == 2
    assert refused.err.startswith("tuner: tuner does not understand model_type='newcomer' of")
    note = "The model's family is unknown; it is read as llama."
    command = ("--format", "torchrun", "--command", "python train.py {key}")
    exported = run("export", "new", *place, *command, "-o", str(tmp_path / "out"))
    assert f"note: {note}" in exported.out
    assert note in (tmp_path / "out" / "README.md").read_text()
