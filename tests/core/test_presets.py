"""The models and clusters that tuner knows by name are those that were published."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.conftest import ROOT, Run
from tuner.core import catalog
from tuner.core.errors import InputError

HUGGING_FACE: Final = ROOT / "tests/data/huggingface"


@pytest.mark.parametrize("name", catalog.catalog().model)
def test_every_preset_has_a_source_and_its_published_size(name: str) -> None:
    """Exact where the reference is exact, else to the digits that were printed."""
    entry, counted = catalog.catalog().model[name], catalog.model(name).parameters
    assert entry["source"]
    published = entry.get("parameters", counted)
    exact = isinstance(published, int) and published % 10**8 != 0
    digits = 0 if exact else len(f"{int(published)}") - len(f"{int(published)}".rstrip("0"))
    assert round(counted / 10**digits) == round(published / 10**digits), f"{counted:,} against {published:,}"


ENOKI = {28: "0.99B", 32: "1.41B", 36: "1.95B", 40: "2.62B", 44: "3.42B", 48: "4.39B"}
"""The Enoki report's table: heads and "Params"."""


@pytest.mark.parametrize("heads", ENOKI)
def test_the_enoki_family_follows_its_rule(heads: int) -> None:
    model = catalog.model(f"enoki-{heads}")
    assert (model.layers, model.hidden, model.heads) == (heads * 3 // 4, 64 * heads, heads)
    assert f"{model.parameters / 1e9:.2f}B" == ENOKI[heads]


def test_any_member_of_a_family_can_be_named_but_no_impossible_one() -> None:
    assert catalog.model("enoki-64").layers == 48
    with pytest.raises(InputError, match="heads must be a multiple of 4, because layers are 3/4 of them"):
        catalog.model("enoki-30")


def test_the_58b_accident_is_the_104b_with_the_13bs_mlp() -> None:
    """Its 58B counts the embedding on the first and on the last stage."""
    model = catalog.model("tr8-58b")
    assert round((model.parameters + model.vocab * model.hidden) / 1e9, 1) == 57.5
    assert model.shape == catalog.model("tr8-104b").shape


CONFIGS: Final = {
    **{name: name for name in catalog.catalog().model if (HUGGING_FACE / f"{name}.json").is_file()},
    "llama-33b": "llama-30b",
}
"""Published configs of presets; Meta's 33B is the 30B of Hugging Face."""


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_preset_and_its_published_config_are_the_same_model(name: str) -> None:
    preset, config = catalog.model(name), catalog.model(str(HUGGING_FACE / f"{CONFIGS[name]}.json"))
    assert replace(config, name=name, seq=preset.seq) == preset


@pytest.mark.parametrize(
    ("name", "most"), [("llama-7b", 2048), ("llama-3-8b", 8192), ("qwen3-8b", 40960), ("deepseek-v3", 163840)]
)
def test_a_sequence_beyond_a_presets_positions_is_pointed_out(name: str, most: int, run: Run) -> None:
    """The first length that the published config does not allow, and the last that it does."""
    words = f"(longer than the {most} that the model allows)"
    explain = ("explain", "tp8-pp8-mbs1-z1", "--model", name, "--gpu", "H100-80GB-SXM", "--nodes", "32", "--seq")
    assert words in run(*explain, str(most + 1)).out
    assert "that the model allows" not in run(*explain, str(most)).out


@pytest.mark.parametrize("name", ["qwen3-14b", "qwen3-32b"])
def test_larger_models_differ_from_the_smallest_of_their_family_in_size_alone(name: str) -> None:
    larger, smallest = catalog.model(name), catalog.model("qwen3-8b")
    sizes = ("name", "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "embedding_size")
    assert replace(smallest, **{size: getattr(larger, size) for size in sizes}) == larger
    assert larger.query_width == 128 * larger.heads


@pytest.mark.parametrize("name", catalog.catalog().cluster)
def test_every_cluster_preset_has_a_source(name: str) -> None:
    assert catalog.catalog().cluster[name]["source"]
    assert catalog.cluster(name).gpus > 0
