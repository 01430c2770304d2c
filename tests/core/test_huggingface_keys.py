"""What each key of a config changes, by family: defaults, switches, sizes, and what no field of a model expresses."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.core.test_huggingface import read
from tests.data.huggingface.record import BARE, FOLDER, bare_config, defaults
from tuner.core.catalog_entries import naming
from tuner.core.errors import InputError, UnknownName
from tuner.core.huggingface import _MIXTURES, FAMILIES
from tuner.core.huggingface.keys import ALL_SPELLINGS, SPELLINGS, Keys
from tuner.core.rotary_scaling import RotaryScaling


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
    ("mpt", "norm_type", "low_precision_layernorm", "rmsnorm"),
    ("mpt", "resid_pdrop", 0, 0.1),
    ("gptj", "rotary", True, False),
    ("gemma", "hidden_activation", "gelu_pytorch_tanh", "relu"),
    ("gemma2", "hidden_act", "gelu_pytorch_tanh", "relu"),
    ("phi3", "embd_pdrop", 0.0, 0.1),
    ("cohere2", "layer_switch", 4, 2),
    ("deepseek_v3", "num_key_value_heads", BARE["num_attention_heads"], 1),
    ("deepseek_v3", "moe_layer_freq", [0] * 3 + [1] * (BARE["num_hidden_layers"] - 3), 2),
    ("deepseek_v3", "moe_layer_freq", 1, 2),
    ("stablelm", "hidden_dropout", 0, 0.1),
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
    ("minimax_m2", "use_qk_norm", True, False),
    ("minimax_m2", "use_routing_bias", True, False),
    ("ernie4_5_moe", "moe_norm_min", 1e-12, 1e-6),
    ("gpt_oss", "initial_context_length", 4096, 512),
    ("gptj", "scale_attn_weights", True, False),
    ("opt", "activation_dropout", 0.0, 0.1),
    ("falcon", "apply_residual_connection_post_layernorm", False, True),
    ("falcon", "num_ln_in_parallel_attn", 1, 0),
    ("starcoder2", "mlp_type", "default", "gated"),
    ("starcoder2", "norm_type", "layer_norm", "rms_norm"),
    ("cohere2", "use_parallel_block", True, False),
    ("cohere2", "position_embedding_type", "rope_gptj", "learned"),
    ("cohere2", "rotary_pct", 1.0, 0.5),
    ("cohere2", "order_of_interleaved_layers", "local_attn_first", "global_attn_first"),
    ("qwen2", "use_mrope", False, True),
    ("apertus", "post_norm", False, True),
    ("apertus", "qk_norm", True, False),
    ("apertus", "hidden_dropout", 0.0, 0.1),
    ("minimax_m2", "qk_norm_type", "per_layer", "per_head"),
]


@pytest.mark.parametrize(("family", "key", "neutral", "other"), NEUTRAL)
def test_a_key_without_a_field_is_named_unless_it_is_neutral(
    family: str, key: str, neutral: object, other: object
) -> None:
    bare = bare_config(family)
    assert read(bare, **{key: neutral}) == read(bare)
    assert f"{key}={other!r}" in read(bare, **{key: other}).not_understood


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_key_that_no_family_reads_is_named(family: str) -> None:
    """Hub configs of known families carry keys of custom code; ignoring one could train another model."""
    bare = bare_config(family)
    known = read(bare).not_understood
    assert read(bare, index_topk=2048).not_understood == (*known, "index_topk")
    assert read(bare, index_topk=None).not_understood == known


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_is_a_mixture_if_its_models_have_experts_by_default(family: str) -> None:
    assert (read(bare_config(family)).experts is not None) == (family in _MIXTURES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_another_familys_key_of_a_size_is_named_unless_it_repeats_the_models_own(family: str) -> None:
    """transformers reads a family's own keys alone."""
    own = {**SPELLINGS, **FAMILIES[family].spellings}
    stated = {keys[0]: 4096 for field, keys in own.items() if field in ("max_positions", "ffn") and keys}
    sizes = {"max_positions": 4096, "ffn": 4096 if own["ffn"] else 4 * BARE["hidden_size"]}
    config = {**bare_config(family), **stated}
    found = read(config)
    for field, keys in ALL_SPELLINGS.items():
        for key in set(keys) - set(own[field]):
            value = sizes.get(field) or BARE[SPELLINGS[field][0]]
            assert read(config, **{key: value}) == found
            assert read(config, **{key: 40}) == replace(found, not_understood=(*found.not_understood, key))


@pytest.mark.parametrize(
    ("family", "key", "field"),
    [
        ("gpt2", "n_inner", "ffn"),
        ("gptj", "n_embd", "hidden"),
        ("gpt_bigcode", "n_head", "heads"),
        ("gpt_neo", "num_layers", "layers"),
        ("gpt_neo", "num_heads", "heads"),
        ("bloom", "n_embed", "hidden"),
        ("bloom", "seq_length", "max_positions"),
        ("opt", "ffn_dim", "ffn"),
        ("falcon", "n_embed", "hidden"),
        ("falcon", "ffn_hidden_size", "ffn"),
        ("mpt", "d_model", "hidden"),
        ("mpt", "max_seq_len", "max_positions"),
    ],
)
def test_a_family_reads_its_own_keys_of_sizes(family: str, key: str, field: str) -> None:
    usual = SPELLINGS[field][0]
    config = {name: value for name, value in BARE.items() if name != usual}
    found = read({"model_type": family, **config, key: 1024})
    assert (getattr(found, field), found.not_understood) == (1024, ())


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "smollm3", "cohere2", "mpt", *sorted(_MIXTURES)])
def test_a_value_of_another_type_is_read_or_refused_in_a_sentence(family: str) -> None:
    bare = bare_config(family)
    read_keys: set[str] = set()
    get = Keys.get

    def noted(self: Keys, *spellings: str, default: Any = None) -> Any:
        read_keys.update(spellings)
        return get(self, *spellings, default=default)

    with patch.object(Keys, "get", noted):
        read(bare)
    assert len(read_keys) > 10
    for key in sorted(read_keys):
        for value in ("x", -1, 0, True, [], [None], {"rope_type": 5}):
            with contextlib.suppress(InputError):
                read(bare, **{key: value})


@pytest.mark.parametrize(
    ("family", "key", "value", "complaint"),
    [
        ("llama", "initializer_range", -1.0, "init_std must be a number"),
        ("llama", "head_dim", -1, "head_dim must be at least 1, not -1"),
        ("qwen3_moe", "mlp_only_layers", "all", "mlp_only_layers must be a list of whole numbers, not 'all'"),
        ("llama4_text", "moe_layers", 7, "moe_layers must be a list of whole numbers, not 7"),
        ("llama4_text", "interleave_moe_layer_step", 0, "interleave_moe_layer_step must be at least 1, not 0"),
        ("ernie4_5_moe", "moe_layer_interval", 0, "moe_layer_interval must be at least 1, not 0"),
        ("minimax_m2", "head_dim", 0, "head_dim must be at least 1, not 0"),
        ("deepseek_v3", "first_k_dense_replace", 99, r"none of its \d+ layers has experts"),
        ("deepseek_v3", "topk_group", 9, "router_top_groups must be at most router_groups=8, not 9"),
        ("llama", "attention_dropout", 2, "attention_dropout must be a number from 0 to 1, not 2"),
        ("llama", "rope_theta", 0, "rope_theta must be positive, not 0"),
        ("glm", "partial_rotary_factor", 1.5, "partial_rotary_factor must be above 0 and at most 1, not 1.5"),
        ("stablelm", "partial_rotary_factor", 0, "partial_rotary_factor must be above 0 and at most 1, not 0"),
        ("gpt_neox", "rotary_pct", -0.5, "rotary_pct must be above 0 and at most 1, not -0.5"),
        ("gptj", "rotary_dim", 512, "rotary_fraction must be a number from 1e-06 to 1, not"),
        ("llama", "num_key_value_heads", 0, "num_key_value_heads must be at least 1, not 0"),
        ("llama", "tie_word_embeddings", "false", "tie_word_embeddings must be true or false, not 'false'"),
        ("llama", "rope_scaling", {"type": "linear"}, "rope_scaling of type linear lacks its factor"),
        ("llama", "rope_scaling", {"rope_type": "llama3"}, "rope_scaling of type llama3 lacks its factor"),
        ("gpt_oss", "rope_scaling", {"rope_type": "yarn", "truncate": "false"}, "truncate must be true or false"),
        ("deepseek_v3", "rope_scaling", {"rope_type": "yarn", "factor": "40"}, "factor must be a number, not '40'"),
        ("gemma3_text", "rope_parameters", {"full_attention": "x"}, "full_attention must be an object, not 'x'"),
        ("llama", "rope_scaling", {"type": "linear", "factor": 0}, "rotary scaling field factor must be a number"),
        ("llama", "rope_scaling", {"type": "linear", "factor": -1}, "rotary scaling field factor must be a number"),
    ],
)
def test_a_value_that_no_model_has_is_refused_by_its_key(family: str, key: str, value: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        read(bare_config(family), **{key: value})
    assert str(caught.value).count("m:") == 1
    assert str(caught.value).startswith("m: ")


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt_neox", "phi3", "deepseek_v3"])
def test_a_scaling_without_a_type_is_not_understood(family: str, key: str) -> None:
    """transformers warns and does not scale; a null factor, a base or a type `default` scales nothing."""
    bare = bare_config(family)
    found = read(bare, **{key: {"factor": 4.0, "original_max_position_embeddings": 8192}})
    assert (found.rotary_scaling, found.not_understood) == (None, ("rope_scaling.factor",))
    for table in ({"factor": None, "rope_theta": 5e5}, {"rope_type": "default", "factor": 1.0}):
        assert read(bare, **{key: table}).not_understood == ()


@pytest.mark.parametrize(
    ("family", "table", "named"),
    [
        ("llama", {"full_attention": {"rope_theta": 5e5}}, ("rope_scaling.full_attention",)),
        ("mistral", {"rope_type": "default", "llama_4_scaling_beta": 0.1}, ("rope_scaling.llama_4_scaling_beta",)),
        ("qwen3", {"rope_type": "default", "mrope_section": [24, 20, 20]}, ()),
        ("gemma3_text", {"full_attention": {"rope_theta": 2e6}, "sliding_attention": {"rope_type": "default"}}, ()),
        (
            "gemma3_text",
            {"full_attention": {"partial_rotary_factor": 0.25}},
            ("rope_parameters.full_attention.partial_rotary_factor",),
        ),
        (
            "olmo3",
            {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"partial_rotary_factor": 0.5}},
            ("rope_parameters.sliding_attention",),
        ),
    ],
)
def test_a_rotary_property_that_the_family_does_not_have_is_named(
    family: str, table: dict[str, Any], named: tuple[str, ...]
) -> None:
    """Also without scaling, where transformers silently uses its default base."""
    assert read(bare_config(family), rope_parameters=table).not_understood == named


@pytest.mark.parametrize(
    ("family", "key", "neutral", "other"),
    [
        ("qwen3_moe", "qkv_bias", False, True),
        ("qwen3_moe", "use_qk_norm", True, False),
        ("qwen3_moe", "shared_expert_intermediate_size", 0, 512),
        ("phi3", "lm_head_bias", False, True),
        ("phi3", "mlp_bias", False, True),
        ("qwen2_moe", "mlp_bias", False, True),
        ("starcoder2", "scale_attn_weights", True, False),
        ("starcoder2", "mlp_bias", True, False),
        ("gemma2", "lm_head_bias", False, True),
        ("mistral", "attention_bias", False, True),
    ],
)
def test_a_key_of_another_family_is_understood_if_it_says_what_the_model_has(
    family: str, key: str, neutral: object, other: object
) -> None:
    bare = bare_config(family)
    assert read(bare, **{key: neutral}) == read(bare)
    assert read(bare, **{key: other}).not_understood in ((key,), (f"{key}={other}",))


@pytest.mark.parametrize("family", ["glm", "glm4", "glm4_moe"])
def test_a_rotated_share_that_is_null_is_all_of_a_head(family: str) -> None:
    """As in transformers, whose default of one half is for a missing key."""
    bare = bare_config(family)
    assert read(bare).rotary_fraction == 0.5
    assert read(bare, partial_rotary_factor=None).rotary_fraction == 1.0
    stated = read(bare, partial_rotary_factor=None, rope_parameters={"partial_rotary_factor": 0.25})
    assert stated.rotary_fraction == 0.25


@pytest.mark.parametrize(
    ("family", "changes", "noted"),
    [
        ("llama", {"num_local_experts": 0}, ()),
        ("llama", {"moe_intermediate_size": 0}, ()),
        ("llama", {"layer_types": ["full_attention"] * 6}, ()),
        ("llama", {"layer_types": ["full_attention"] * 5}, ("layer_types",)),
        ("llama", {"layer_types": ["full_attention", "sliding_attention"] * 3}, ("layer_types",)),
        ("mistral", {"layer_types": ["sliding_attention"] * 6}, ()),
        ("mistral", {"layer_types": ["full_attention"] * 6}, ("layer_types",)),
        ("mistral", {"layer_types": ["full_attention"] * 6, "sliding_window": None}, ()),
        ("mixtral", {"layer_types": ["full_attention"] * 6}, ()),
    ],
)
def test_a_key_that_a_family_ignores_is_understood_if_it_says_what_the_model_has(
    family: str, changes: dict[str, Any], noted: tuple[str, ...]
) -> None:
    bare = bare_config(family)
    assert read(bare, **changes).not_understood == noted


def test_layer_types_that_are_not_known_are_not_read_as_full_attention() -> None:
    bare = {"model_type": "gpt_oss", **BARE}
    assert read(bare, layer_types=["sliding_attention", "full_attention"] * 3).not_understood == ()
    assert read(bare, layer_types=["sliding_attention", 1] * 3).not_understood == ("layer_types",)


@pytest.mark.parametrize(
    ("family", "key", "other"),
    [
        ("gpt_oss", "experts_per_token", "num_experts_per_tok"),
        ("gemma2", "sliding_window_size", "sliding_window"),
        ("starcoder2", "layer_norm_epsilon", "norm_epsilon"),
    ],
)
def test_a_key_that_repeats_another_is_named_where_they_differ(family: str, key: str, other: str) -> None:
    bare = {"model_type": family, **BARE, other: 4}
    assert read(bare, **{key: 4}) == read(bare)
    assert f"{key}=8" in read(bare, **{key: 8}).not_understood


@pytest.mark.parametrize(
    ("scaling", "scale"),
    [
        ({"factor": 40.0, "mscale_all_dim": 0.5}, (0.05 * math.log(40) + 1) ** 2 / math.sqrt(128 + 64)),
        ({"factor": 40.0}, 0.0),
        ({"factor": 1.0, "mscale_all_dim": 0.5}, 0.0),
        ({"mscale_all_dim": 0.5}, 0.0),
        ({"rope_type": "default", "factor": 40.0, "mscale_all_dim": 1.0}, 0.0),
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


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("family", "key", "value", "other"),
    [
        ("llama", "original_max_position_embeddings", 512, 256),
        ("llama", "rope_theta", 5e5, 1e6),
        ("nemotron", "partial_rotary_factor", 0.25, 0.75),
    ],
)
def test_a_rotary_key_beside_its_table_may_only_repeat_it(
    place: str, family: str, key: str, value: float, other: float
) -> None:
    """Which of two values counts depends on the key and on the release of transformers; one alone counts anywhere."""
    bare, table = bare_config(family), {"rope_type": "llama3", "factor": 8.0}
    found = read(bare, **{place: {**table, key: value}})
    assert found == read(bare, **{place: table, key: value}) == read(bare, **{place: {**table, key: value}, key: value})
    assert found.not_understood == ()
    assert found != read(bare, **{place: table})
    assert read(bare, **{place: {**table, key: value}, key: other}).not_understood == (f"{key}={other}",)


@pytest.mark.parametrize("family", ["gemma3_text", "olmo3"])
def test_a_rotary_table_of_each_kind_of_layer_has_its_own_length_and_base(family: str) -> None:
    """transformers reads no length outside of such a table."""
    bare, table = bare_config(family), {"rope_type": "yarn", "factor": 8.0, "rope_theta": 5e5}
    for key, given in (("original_max_position_embeddings", 256), ("rope_theta", 1e4)):
        found = read(bare, rope_parameters={"full_attention": table}, **{key: given})
        assert [name.partition("=")[0] for name in found.not_understood] == [key]


def test_an_error_keeps_its_type_when_it_is_given_the_name_of_its_entry() -> None:
    with pytest.raises(UnknownName, match=r"^a\.json: there is no trainer called 'x'"), naming("a.json"):
        raise UnknownName("trainer", "x", ["y"])
    with pytest.raises(InputError, match=r"^m: model field"), naming("m"):
        raise InputError("model field init_std must be a number.")
    with pytest.raises(InputError, match=r"^m lacks"), naming("m"):
        raise InputError("m lacks hidden_size.")
