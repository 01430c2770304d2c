"""Hugging Face configs: what is trained is what transformers would train, in every property that `Model` has."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.conftest import ROOT, Run
from tests.data.huggingface.record import CONFIGS, FOLDER, REQUIRED_BY_FAMILY, identity_of, text_config
from tuner.core import catalog
from tuner.core.documents import model_of, workload_document
from tuner.core.errors import InputError
from tuner.core.huggingface import FAMILIES, model_from
from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.shape import Shape
from tuner.space.build import space_for

IDENTITIES = json.loads((FOLDER / "identity.json").read_text())
REQUIRED = {"n_layer", "n_layers", "num_layers", "num_hidden_layers", "n_embd", "hidden_size", "d_model", "vocab_size"}
REQUIRED |= {"n_embed", "n_head", "n_heads", "num_heads", "num_attention_heads", "model_type"}
REQUIRED |= {key for keys in REQUIRED_BY_FAMILY.values() for key in keys}


def read(config: dict[str, Any], **changes: Any) -> Model:
    return model_from({**config, **changes}, name="m")


def fixture(name: str) -> dict[str, Any]:
    return text_config(FOLDER / f"{name}.json")


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
@pytest.mark.filterwarnings("ignore:.* does not say whether its embeddings are tied")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_gives_the_recorded_identity(path: Path) -> None:
    """The table was reviewed against the modelling code of each family; `record.py identity` writes it anew."""
    model = catalog.model(str(path))
    assert identity_of(model) == IDENTITIES[path.stem]
    stored = json.loads(json.dumps(workload_document(space_for(model=model).workload)))
    assert model_of(stored["model"]) == model


def test_every_family_has_a_config_with_a_count_and_an_identity() -> None:
    kept = {text_config(path)["model_type"] for path in CONFIGS}
    assert kept == set(FAMILIES)
    counts = json.loads((FOLDER / "counts.json").read_text())
    assert {path.stem for path in CONFIGS} <= set(counts)
    readme = (FOLDER / "README.md").read_text()
    assert not [path.stem for path in CONFIGS if f"| {path.stem} |" not in readme]


@given(st.sampled_from(CONFIGS), st.data())
def test_a_key_that_is_missing_takes_the_librarys_default(path: Path, data: st.DataObject) -> None:
    """A config without some keys is that of another model at most in the fields that those keys describe."""
    config = text_config(path)
    optional = sorted(set(config) - REQUIRED)
    removed = data.draw(st.sets(st.sampled_from(optional), max_size=4))
    assume(not removed & {"n_group", "topk_group"})  # one alone may ask for more groups than there are, and is refused
    left = read({key: value for key, value in config.items() if key not in removed})
    assert left.layers == read(config).layers
    assert 0 < left.seq <= 8192
    harmless = {"use_cache", "architectures", "bos_token_id", "eos_token_id", "pad_token_id", "pretraining_tp"}
    if removed <= harmless:
        assert left == read(config)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_tokens_and_bookkeeping_have_no_effect(path: Path) -> None:
    config = text_config(path)
    extra = {"bos_token_id": 7, "torch_dtype": "float32", "use_cache": False, "transformers_version": "4.1"}
    assert read(config, **extra, _name_or_path="elsewhere") == read(config)


MEANING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama-7b", {"hidden_act": "gelu"}, {"activation": "gelu"}),
    ("llama-7b", {"rms_norm_eps": 1e-3}, {"norm_epsilon": 1e-3}),
    ("llama-7b", {"rope_theta": 5e5}, {"rotary_base": 5e5}),
    ("llama-7b", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, {"rotary_base": 5e5}),
    ("llama-7b", {"attention_dropout": 0.1}, {"attention_dropout": 0.1}),
    ("llama-7b", {"initializer_range": 0.01}, {"init_std": 0.01}),
    ("llama-7b", {"hidden_act": "mish"}, {"activation": None, "not_understood": ("hidden_act='mish'",)}),
    ("llama-7b", {"quantization_config": {"bits": 4}}, {"not_understood": ("quantization_config=a dict of 1",)}),
    (
        "llama-7b",
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"rotary_scaling": RotaryScaling(kind="linear", factor=2.0)},
    ),
    (
        "llama-7b",
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rotary_scaling": RotaryScaling(kind="dynamic", factor=2.0, original_seq=2048)},
    ),
    (
        "llama-7b",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16}},
        {
            "rotary_scaling": RotaryScaling(
                kind="yarn",
                factor=4.0,
                original_seq=2048,
                beta_fast=16.0,
                attention_factor=(0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1),
            )
        },
    ),
    ("llama-7b", {"rope_scaling": {"rope_type": "new", "factor": 4.0}}, {"not_understood": ("rope_type='new'",)}),
    ("llama-7b", {"partial_rotary_factor": 0.5}, {"not_understood": ("partial_rotary_factor=0.5",)}),
    ("mistral-7b-v0.1", {"sliding_window": None}, {"sliding_window": 0}),
    (
        "qwen2-7b",
        {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20},
        {"sliding_window": 4096, "window_start": 20},
    ),
    ("qwen2-7b", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28}, {"sliding_window": 0}),
    ("qwen2-7b", {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, {"sliding_window": 0}),
    ("gpt-neox-20b", {"use_parallel_residual": False}, {"parallel_attention": False}),
    ("gpt-neox-20b", {"rotary_pct": 1.0, "rotary_emb_base": 25_000}, {"rotary_fraction": 1.0, "rotary_base": 25_000.0}),
    ("gpt-j-6b", {"rotary_dim": 128}, {"rotary_fraction": 0.5}),
    ("gpt2", {"scale_attn_weights": False}, {"attention_scale": 1.0}),
    (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True},
        {"not_understood": ("scale_attn_by_inverse_layer_idx=True",)},
    ),
    ("gpt2", {"embd_pdrop": 0.0}, {"embedding_dropout": 0.0, "hidden_dropout": 0.1}),
    ("gpt-neo-2.7b", {"attention_layers": ["global"] * 32}, {"not_understood": ("attention_layers=a list of 32",)}),
    ("phi-2", {"qk_layernorm": True}, {"qk_norm": True, "qk_norm_span": "head"}),
    ("gemma-2-9b", {"final_logit_softcapping": None}, {"logit_softcap": 0.0, "attention_softcap": 50.0}),
    ("gemma-2-9b", {"query_pre_attn_scalar": 144}, {"attention_scale": 144**-0.5}),
    ("gemma-3-1b", {"layer_types": ["full_attention"] * 26}, {"sliding_window": 0}),
    (
        "gemma-3-1b",
        {"layer_types": (["full_attention"] * 2 + ["sliding_attention"]) * 8 + ["full_attention"] * 2},
        {
            "not_understood": ("layer_types",),
        },
    ),
    (
        "gemma-3-1b",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
        },
        {
            "rotary_base": 2e6,
            "rotary_local_base": 2e4,
            "rotary_scaling": RotaryScaling(kind="linear", factor=8.0),
        },
    ),
    ("olmo-3-7b", {"rope_scaling": None}, {"rotary_local_base": 0.0, "rotary_scaling": None}),
    ("olmo-3-7b", {"rope_theta": 1e6}, {"rotary_base": 1e6, "rotary_local_base": 5e5}),
    ("olmo-3-7b", {"layer_types": ["full_attention"] * 32}, {"sliding_window": 0, "rotary_local_base": 0.0}),
    ("exaone-4.0-32b", {"sliding_window": None}, {"rotary_skip": 0, "sliding_window": 0}),
    ("exaone-4.0-32b", {"layer_types": None}, {"rotary_skip": 4, "not_understood": ()}),
    ("exaone-4.0-32b", {"layer_types": ["full_attention"] * 64}, {"positions": "none", "sliding_window": 0}),
    (
        "exaone-4.0-32b",
        {"layer_types": None, "sliding_window_pattern": "LG" * 2},
        {"not_understood": ("sliding_window_pattern='LGLG'",)},
    ),
    ("exaone-4.0-32b", {"layer_types": ["full_attention", "sliding_attention"] * 32}, {"window_start": 1}),
    ("ernie-4.5-0.3b", {"attention_dropout": 0.1}, {"not_understood": ("attention_dropout=0.1",)}),
    ("smollm3-3b", {"no_rope_layers": [1] * 36}, {"rotary_skip": 0, "not_understood": ()}),
    ("smollm3-3b", {"no_rope_layers": [1, 0] * 18}, {"rotary_skip": 2, "not_understood": ()}),
    ("smollm3-3b", {"no_rope_layers": [0, 1] * 18}, {"not_understood": ("no_rope_layers",)}),
    ("mpt-7b", {"embedding_fraction": 0.5}, {"not_understood": ("embedding_fraction=0.5",)}),
    (
        "mpt-7b",
        {"attn_config": {"alibi": False, "rope": True, "top_k": 50}},
        {"not_understood": ("attn_config.alibi=False", "attn_config.rope=True")},
    ),
    ("mpt-7b", {"attn_config": {"alibi": True, "clip_qkv": 6.0}}, {"not_understood": ("attn_config.clip_qkv=6.0",)}),
    ("olmo-7b", {"clip_qkv": 8.0}, {"not_understood": ("clip_qkv=8.0",)}),
    ("gpt-oss-20b", {"rope_scaling": None, "rope_theta": 5e3}, {"rotary_base": 5e3}),  # with the usual yarn
    ("opt-125m", {"layerdrop": 0.1}, {"not_understood": ("layerdrop=0.1",)}),
    (
        "phi-3-mini-4k",
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {"type": "su", "short_factor": [1.0, 1.5], "long_factor": [2, 3]},
        },
        {
            "rotary_scaling": RotaryScaling(
                kind="longrope",
                factor=32.0,
                original_seq=4096,
                short_factors=(1.0, 1.5),
                long_factors=(2.0, 3.0),
            )
        },
    ),
    (
        "phi-3-mini-4k",
        {
            "max_position_embeddings": 16384,
            "original_max_position_embeddings": None,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
        },
        {
            "rotary_scaling": RotaryScaling(
                kind="longrope", factor=4.0, original_seq=4096, short_factors=(1.0,), long_factors=(2.0,)
            )
        },
    ),
    ("falcon-40b", {"parallel_attn": False}, {"parallel_attention": True}),
    ("falcon-7b", {"parallel_attn": False}, {"parallel_attention": False}),
    ("falcon-7b", {}, {"parallel_attention": True}),
]


@pytest.mark.parametrize(("name", "changes", "expected"), MEANING, ids=lambda value: str(value)[:40])
def test_a_key_changes_the_field_that_it_describes(
    name: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    model = read(fixture(name), **changes)
    assert {field: getattr(model, field) for field in expected} == expected


def test_both_layouts_of_rotary_parameters_are_the_same_model() -> None:
    new = fixture("llama-3.1-8b")
    table = dict(new.pop("rope_parameters"))
    old = {**new, "rope_theta": table.pop("rope_theta"), "rope_scaling": table}
    assert read(old) == read(fixture("llama-3.1-8b"))


HYBRID = [
    {"model_type": "jamba"},
    {"model_type": "kimi_linear", "layer_types": ["linear_attention"] * 3 + ["full_attention"]},
    {"model_type": "newcomer", "layer_types": ["linear_attention", "full_attention"]},
    {"model_type": "newcomer", "mamba_d_state": 16},
]


@pytest.mark.parametrize("changes", HYBRID, ids=lambda value: str(value)[:40])
def test_hybrids_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"model_type '{changes['model_type']}' (may have|has) layers other than"):
        read(fixture("llama-7b"), **changes)


def test_the_embeddings_scale_follows_another_width() -> None:
    wider = read(fixture("gemma-2b")).with_shape(Shape(hidden=4096, layers=18))
    assert wider.embedding_scale == 64
    assert read(fixture("granite-3.1-8b")).with_shape(Shape(hidden=8192, layers=18)).embedding_scale == 12


@pytest.mark.parametrize(
    ("stored", "noted"),
    [
        ({"quant_method": "awq"}, ("quantization_config ('awq')",)),
        ({"quant_method": ["fp8"]}, ("quantization_config=a dict of 1",)),
        ({"quant_method": "fp8"}, ()),
        (None, ()),
    ],
)
def test_a_quantization_of_the_weights_is_named_by_its_method(stored: object, noted: tuple[str, ...]) -> None:
    assert read(fixture("llama-7b"), quantization_config=stored).not_understood == noted


def test_a_scaling_of_the_local_rotary_embedding_is_not_understood() -> None:
    local = {"rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0}
    found = read(fixture("gemma-3-1b"), rope_parameters={"sliding_attention": local})
    assert "rope_parameters.sliding_attention" in found.not_understood


@pytest.mark.parametrize(
    ("name", "windowed"),
    [
        ("qwen2-57b-a14b", [layer % 2 == 0 for layer in range(28)]),
        ("qwen3-30b-a3b", [True] * 48),
        ("qwen3-8b", [layer >= 30 for layer in range(36)]),
    ],
)
def test_each_qwen_has_its_window_in_its_own_layers(name: str, windowed: list[bool]) -> None:
    """transformers 5.23: configuration_qwen2_moe.py, modeling_qwen3_moe.py, configuration_qwen3.py."""
    changes = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 30}
    found = read(fixture(name), **changes)
    layers = range(found.layers - found.window_start)
    inside = [False] * found.window_start + [not found.window_skip or (n + 1) % found.window_skip != 0 for n in layers]
    assert (found.sliding_window, found.not_understood, inside) == (4096, (), windowed)


def test_a_starcoder_saved_again_lists_its_one_head_of_keys_and_values() -> None:
    again = read(fixture("starcoder"), num_key_value_heads=1)
    assert (again.kv_heads, again.not_understood) == (1, ())
    assert read(fixture("starcoder"), num_key_value_heads=4).not_understood == ("num_key_value_heads=4",)


def test_chunked_attention_is_not_read_as_full_attention() -> None:
    assert read(fixture("qwen3-8b"), layer_types=["chunked_attention"] * 36).not_understood == ("layer_types",)


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
def test_a_gemma_3_without_sizes_has_those_of_the_library() -> None:
    """transformers 5.23, Gemma3TextConfig."""
    found = model_from({"model_type": "gemma3", "text_config": {"intermediate_size": 9216}}, name="m")
    assert (found.hidden, found.layers, found.heads, found.vocab) == (2304, 26, 8, 262208)


@pytest.mark.parametrize(
    ("name", "seq", "header"),
    [
        ("llama-3.1-8b", 8192, "sequence 8192 (the model allows 131072; set with --seq), "),
        ("llama-3.2-1b", 8192, "sequence 8192 (the model allows 131072; set with --seq), "),
        ("llama-3-8b", 8192, "sequence 8192, "),
        ("opt-125m", 2048, "sequence 2048, "),
    ],
)
def test_the_sequence_is_8192_unless_the_model_allows_less(name: str, seq: int, header: str, run: Run) -> None:
    path = str(FOLDER / f"{name}.json")
    assert catalog.model(path).seq == seq
    assert header in run("plan", "--top", "1", "--model", path).out
    assert space_for(model=path, seq=seq // 2).workload.model.seq == seq // 2


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(InputError, match="2,050 learned positions; --seq must be at most that, not 4,096"):
        space_for(model=str(FOLDER / "opt-125m.json"), seq=4096)


def test_a_sequence_longer_than_the_rotary_positions_is_named(run: Run) -> None:
    longer = ("plan", "--top", "1", "--model", str(FOLDER / "llama-2-70b.json"), "--seq", "16384")
    assert "sequence 16384 (longer than the 4096 that the model allows), " in run(*longer).out


def test_scaled_rotary_embeddings_reach_longer_sequences() -> None:
    """Qwen's recipe for 131,072 tokens: yarn, four times 32,768, and max_position_embeddings as it was."""
    yarn = RotaryScaling(kind="yarn", factor=4.0, original_seq=32768)
    model = replace(catalog.model("llama-3-8b"), positions="rotary", max_positions=40960, rotary_scaling=yarn)
    assert model.longest_seq == 131072
    assert replace(model, rotary_scaling=None).longest_seq == 40960


@pytest.mark.parametrize(("positions", "longest"), [(131072, 131072), (8192, 262144)])
def test_llama_3s_scaling_is_part_of_a_longer_length_that_is_stated(positions: int, longest: int) -> None:
    scaling = RotaryScaling(kind="llama3", factor=32.0, original_seq=8192)
    model = replace(catalog.model("llama-3-8b"), max_positions=positions, rotary_scaling=scaling)
    assert model.longest_seq == longest


def test_a_toml_file_describes_rotary_scaling_and_a_gated_activation(tmp_path: Path) -> None:
    sizes = "layers = 2\nhidden = 8\nheads = 2\nvocab = 9\nseq = 4\n"
    path = tmp_path / "m.toml"
    path.write_text(sizes + 'activation = "geglu"\nrotary_scaling = { kind = "llama3", factor = 8.0 }\n')
    model = catalog.model(str(path))
    assert (model.activation, model.gated_mlp) == ("gelu_tanh", True)
    assert model.rotary_scaling == RotaryScaling(kind="llama3", factor=8.0)
    for text, complaint in (
        ("rotary_scaling = 3", "rotary_scaling must be a table"),
        ("rotary_scaling = { factor = 8.0 }", "rotary_scaling lacks its field kind"),
        ('rotary_scaling = { kind = "linear", facter = 8.0 }', "did you mean factor"),
    ):
        path.write_text(sizes + text)
        with pytest.raises(InputError, match=complaint):
            catalog.model(str(path))


def test_norms_without_weights_or_biases_and_trained_activations_are_counted() -> None:
    base = Model(layers=1, hidden=8, heads=2, vocab=16, seq=4)
    no_bias, none = replace(base, norm_bias=False), replace(base, norm_bias=False, norm_weight=False)
    assert base.parameters - no_bias.parameters == no_bias.parameters - none.parameters == 3 * 8
    assert replace(base, activation="xielu").parameters - base.parameters == 2
    spans = [replace(base, qk_norm=True, qk_norm_span=span).parameters for span in ("head", "heads", "width")]
    assert [count - base.parameters for count in spans] == [2 * 2 * 4, 2 * 8, 2 * 2 * 8]


needs_transformers = pytest.mark.skipif(
    not os.environ.get("TUNER_TRANSFORMERS") and not (find_spec("transformers") and find_spec("torch")),
    reason="compares with transformers, which the extra `dev` installs",
)


@pytest.mark.slow
@needs_transformers
def test_transformers_counts_and_computes_the_same() -> None:
    """In a process of its own: transformers takes seconds to import and warns as it does. See the program's docstring.

    TUNER_TRANSFORMERS names the Python of an environment that has transformers, if this one has not.
    """
    python = os.environ.get("TUNER_TRANSFORMERS", sys.executable)
    command = [python, "-W", "ignore", "-m", "tests.data.huggingface.compare"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "0 differences" in done.stdout
