"""Mixtures of experts and latent attention as fields of a model: sizes, presets, files."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.core import catalog
from tuner.core.documents import model_of, workload_document
from tuner.core.errors import InputError
from tuner.core.experts import Experts, Latent
from tuner.core.model import Model
from tuner.core.shape import Shape
from tuner.space.build import space_for

# Total and active parameters in billions, as the model cards print them. gpt-oss's counts the output matrix alone.
CARDS = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (141, 39),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "qwen2-57b-a14b": (57, 14),
    "qwen1.5-moe-a2.7b": (14.3, 2.7),
    "deepseek-v3": (671, 37),
    "deepseek-v2": (236, 21),
    "kimi-k2": (1_000, 32),
    "moonlight-16b-a3b": (15.96, 2.91),
    "llama-4-scout": (109, 17),
    "llama-4-maverick": (400, 17),
    "glm-4.5": (355, 32),
    "glm-4.5-air": (106, 12),
    "gpt-oss-120b": (116.83, 5.13 + 0.58),
    "gpt-oss-20b": (20.91, 3.61 + 0.58),
    "olmoe-1b-7b": (6.9, 1.3),
    "phi-3.5-moe": (41.9, 6.6),
    "granite-3.0-3b-a800m": (3.3, 0.8),
    "ernie-4.5-21b-a3b": (21, 3),
    "minimax-m2": (230, 10),
    "dots.llm1": (142, 14),
    "glm-4.5v": (106, 12),
    "kimi-k2.5": (1000, 32),
    "qwen3-vl-30b-a3b": (30.5, 3.3),
}


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
@pytest.mark.parametrize("name", CARDS)
def test_total_and_active_parameters_are_those_of_the_model_card(name: str) -> None:
    """Cards round, some down, and differ in whether they count embeddings, multi-token prediction and vision."""
    model = catalog.model(str(ROOT / f"tests/data/huggingface/{name}.json"))
    total, active = CARDS[name]
    assert (model.parameters - model.mtp_parameters) / 1e9 == pytest.approx(total, rel=0.04)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.15)


MIXTURES = [name for name, table in catalog.catalog().model.items() if {"experts", "parameters"} <= table.keys()]


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
@pytest.mark.parametrize("name", MIXTURES)
def test_a_preset_with_experts_is_the_published_config_at_4096_tokens(name: str) -> None:
    preset, config = catalog.model(name), catalog.model(str(ROOT / f"tests/data/huggingface/{name}.json"))
    assert replace(config, seq=4096) == preset
    assert preset.parameters == catalog.catalog().model[name]["parameters"]


def test_a_model_is_found_by_its_alias() -> None:
    assert catalog.model("Qwen3-235B") == catalog.model("qwen3-235b-a22b")
    assert catalog.trained_with("qwen3-235b") == {}


def test_a_toml_file_describes_experts_and_latent_attention(tmp_path: Path) -> None:
    sizes = "layers = 4\nhidden = 64\nheads = 4\nvocab = 512\nseq = 64\n"
    path = tmp_path / "m.toml"
    latent = "latent = { kv_rank = 16, nope_size = 16, rope_size = 8, value_size = 16 }\n"
    path.write_text(sizes + "experts = { count = 8, top_k = 2, ffn = 32, dense_layers = 1 }\n" + latent)
    model = catalog.model(str(path))
    assert model.experts == Experts(count=8, top_k=2, ffn=32, dense_layers=1)
    assert model.latent == Latent(kv_rank=16, nope_size=16, rope_size=8, value_size=16)
    assert (model.moe_layers, model.dense_mlp_layers) == (3, 1)
    for text, complaint in (
        ("experts = 3", r"experts must be a table such as { count = 8, top_k = 8, ffn = 8 }"),
        ("experts = { count = 8, ffn = 32 }", "experts lacks its field top_k"),
        ("experts = { count = 8, top_k = 2, ffn = 32, topk = 2 }", "did you mean top_k"),
        ("experts = { count = 8, top_k = 9, ffn = 32 }", "top_k must be at most count=8, not 9"),
        ("experts = { count = 8, top_k = 2, ffn = 32, router_groups = 3 }", "router_groups must divide count=8"),
        ("experts = { count = 8, top_k = 2, ffn = 32, dense_layers = 4 }", "none of the 4 layers with experts"),
    ):
        path.write_text(sizes + text)
        with pytest.raises(InputError, match=complaint):
            catalog.model(str(path))


def test_experts_of_an_unknown_family_are_refused_by_their_key(tmp_path: Path) -> None:
    config = json.loads((ROOT / "tests/data/huggingface/llama-7b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_local_experts": 8}))
    expected = r"mixture of experts \(num_local_experts=8\) of an unknown family"
    with pytest.raises(InputError, match=expected):
        catalog.model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "newcomer", "num_local_experts": 8}))
    with warnings.catch_warnings(record=True) as heard, pytest.raises(InputError, match=expected):
        catalog.model(str(tmp_path))
    assert heard == []  # it is not read as a dense one before


def test_a_layer_has_experts_at_the_end_of_each_period_after_the_dense_ones() -> None:
    model = replace(SMALL, layers=9, experts=Experts(count=4, top_k=2, ffn=16, dense_layers=2, period=3))
    assert [model.is_moe_layer(layer) for layer in range(9)] == [False] * 4 + [True] + [False] * 2 + [True, False]
    assert (model.moe_layers, model.dense_mlp_layers) == (2, 7)
    before = [model.experts.moe_layers_before(layer) for layer in range(10)] if model.experts else []
    assert before == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]


SMALL = Model(
    layers=2,
    hidden=8,
    heads=2,
    vocab=16,
    seq=4,
    gated_mlp=True,
    qkv_bias=False,
    attention_bias=False,
    mlp_bias=False,
    norm="rmsnorm",
    positions="rotary",
    experts=Experts(count=4, top_k=2, ffn=3, shared_ffn=5, shared_gate=True),
)


def test_the_parameters_of_a_layer_with_experts_add_up() -> None:
    """Attention 4 h^2 and two norms; router 8 x 4; four experts of 3 x 8 x 3; shared ones 3 x 8 x 5 and a gate of 8."""
    assert SMALL.expert_parameters == 72
    assert SMALL.moe_layer_parameters == (256 + 16) + 32 + 4 * 72 + 120 + 8
    assert SMALL.parameters == 2 * 720 + 16 * 8 + 8
    assert SMALL.active_parameters == SMALL.parameters - 2 * 2 * 72
    predicting = replace(SMALL, mtp_layers=1)
    assert predicting.parameters - SMALL.parameters == predicting.mtp_parameters == 720 + 2 * 64 + 3 * 8
    assert predicting.active_parameters == SMALL.active_parameters


def test_latent_attention_counts_its_projections_and_norms() -> None:
    latent = Latent(query_rank=6, kv_rank=4, nope_size=3, rope_size=2, value_size=5)
    model = replace(SMALL, experts=None, ffn=8, latent=latent)
    queries, keys, out = 8 * 6 + 6 + 6 * 2 * 5, 8 * (4 + 2) + 4 + 4 * 2 * (3 + 5), 2 * 5 * 8
    assert model.attention_parameters == queries + keys + out + 2 * 8
    direct = replace(model, latent=replace(latent, query_rank=0))
    assert model.attention_parameters - direct.attention_parameters == queries - 8 * 2 * 5
    assert (model.query_width, model.kv_width) == (10, 10)


def test_another_width_keeps_the_ratio_of_the_experts() -> None:
    wide = SMALL.with_shape(Shape(hidden=16, layers=3)).experts
    assert wide == Experts(count=4, top_k=2, ffn=6, shared_ffn=10, shared_gate=True)


def test_a_stored_study_brings_back_experts_and_latent_attention() -> None:
    model = catalog.model("deepseek-v3")
    stored = json.loads(json.dumps(workload_document(space_for(model="deepseek-v3").workload)))["model"]
    assert model_of(stored) == model
    for key in ("experts", "latent", "mtp_layers", "attention_sinks", "glu_clamp", "glu_offset"):
        stored.pop(key)
    assert model_of(stored) == replace(model, experts=None, latent=None, mtp_layers=0), "studies of earlier releases"


@pytest.mark.parametrize(("groups", "used"), [(4, 0), (4, 5)])
def test_a_token_uses_some_of_its_groups_of_experts(groups: int, used: int) -> None:
    with pytest.raises(InputError, match=f"experts field router_top_groups must be at .* router_groups={groups}"):
        Experts(count=8, top_k=2, ffn=16, router_groups=groups, router_top_groups=used)
    assert Experts(count=8, top_k=2, ffn=16, router_groups=groups, router_top_groups=groups).router_groups == groups
