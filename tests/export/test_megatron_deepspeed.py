"""Flags for both forks of Megatron-DeepSpeed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.export.test_export import BLOOM_FLAGS, any_run, bloom, known
from tests.strategies import runs
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.export.api import export_options
from tuner.export.bundle import FORMATS, bundle
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.megatron_deepspeed import MEGATRON_DEEPSPEED, fork_for, megatron_deepspeed_flags


@pytest.mark.parametrize(
    ("format_name", "make"),
    [
        ("megatron-deepspeed", partial(BLOOM_FLAGS, options=ExportOptions(fork="deepspeed"))),
        ("megatron-deepspeed-bloom", BLOOM_FLAGS),
        ("megatron-core", megatron_core_flags),
    ],
)
@given(drawn=runs())
@settings(max_examples=60)
def test_every_flag_exists_in_megatron_or_the_topology_is_refused(
    format_name: str, make: Any, drawn: tuple[Workload, Cluster, Topology]
) -> None:
    workload, cluster, topology = drawn
    run = any_run(workload, cluster, topology)
    refusal, flags = "", []
    try:
        flags = make(run)
    except InputError as error:
        refusal = str(error)
    assert flags or "does not support " in refusal
    names = [flag[0] for flag in flags]
    assert set(names) <= known(format_name)
    assert len(names) == len(set(names))


def test_the_fork_is_deepspeeds_unless_only_bigsciences_supports_the_model() -> None:
    plain = bloom("tp8-pp12-dp4-mbs2-z1", model="bloom-14336x72")
    assert fork_for(bloom(), ExportOptions()) == "bloom"  # ALiBi
    assert fork_for(plain, ExportOptions()) == "deepspeed"
    assert fork_for(plain, ExportOptions(fork="bloom")) == "bloom"


def test_omitted_flags_have_the_defaults_of_the_repository() -> None:
    """With each repository's recorded defaults, BLOOM's run has its sizes, its positions and no dropout."""
    arguments = flag_table("megatron-deepspeed-bloom").parsed(megatron_deepspeed_flags(bloom()))
    model = bloom().workload.model
    assert (arguments.num_layers, arguments.hidden_size, arguments.num_attention_heads) == (70, 14336, 112)
    assert (arguments.position_embedding_type, arguments.embed_layernorm) == ("alibi", True)
    assert (arguments.attention_dropout, arguments.hidden_dropout) == (0.0, 0.0)
    assert arguments.layernorm_epsilon == model.norm_epsilon
    assert arguments.init_method_std == model.init_std
    assert arguments.pad_vocab_size_to == 250880
    assert arguments.zero_stage == 1
    plain = bloom("tp8-pp4-dp4-mbs1-z1", model="gpt3-175b", nodes=16, global_batch=512, precision="bf16")
    gated = replace(
        plain.workload.model,
        norm="rmsnorm",
        norm_epsilon=1e-6,
        gated_mlp=True,
        activation="silu",
        tied_embeddings=False,
        qkv_bias=False,
        attention_bias=False,
        mlp_bias=False,
    )
    found = megatron_deepspeed_flags(replace(plain, workload=replace(plain.workload, model=gated)))
    parsed = flag_table("megatron-deepspeed").parsed(found)
    assert (parsed.normalization, parsed.layernorm_epsilon) == ("rmsnorm", 1e-6)
    assert (parsed.swiglu, parsed.add_bias_linear, parsed.sequence_parallel) == (True, False, False)
    assert parsed.untie_embeddings_and_output_weights
    assert (parsed.use_rotary_position_embeddings, parsed.add_position_embedding) == (False, True)


def test_deepspeeds_fork_supports_neither_rotary_positions_nor_grouped_queries() -> None:
    """Rotary embeddings use cosines and sines as angles, and the QKV projection is split into three equal parts."""
    options = ExportOptions(fork="deepspeed")
    llama = bloom("tp8-pp1-dp4-mbs1-z1", model="llama-7b", nodes=4, global_batch=512, precision="bf16")
    assert MEGATRON_DEEPSPEED.refused(llama, options) == ["positions"]
    assert "it rotates by the cosine of the angle" in MEGATRON_DEEPSPEED.refusals(llama, options)[0]
    shared = replace(llama.workload.model, positions="learned", kv_heads=8)
    grouped = replace(llama, workload=replace(llama.workload, model=shared))
    assert MEGATRON_DEEPSPEED.refused(grouped, options) == ["kv_heads"]


@pytest.mark.parametrize(("pp", "refused"), [(1, []), (4, ["norm_offset"])])
def test_the_last_norm_of_deepspeeds_pipeline_applies_no_offset(pp: int, refused: list[str]) -> None:
    run = bloom(f"tp8-pp{pp}-dp4-mbs1-z1", model="gpt3-175b", nodes=4 * pp, global_batch=512)
    model = replace(run.workload.model, norm_offset=True)
    run = replace(run, workload=replace(run.workload, model=model))
    assert MEGATRON_DEEPSPEED.refused(run, ExportOptions(fork="deepspeed")) == refused


@pytest.mark.parametrize(("multiple", "tp", "rows"), [(128, 1, 250_880), (128, 4, 250_880), (2048, 4, 253_952)])
def test_bigsciences_fork_pads_the_vocabulary_of_the_tokenizer(multiple: int, tp: int, rows: int) -> None:
    """BLOOM's tokenizer has 250,680 tokens, which the fork alone would pad to 250,752 rows."""
    run = bloom(f"tp{tp}-pp12-dp4-mbs2-z1")
    model = replace(run.workload.model, vocab=250_880, vocab_multiple=multiple)
    flags = megatron_deepspeed_flags(replace(run, workload=replace(run.workload, model=model)))
    assert flag_table("megatron-deepspeed-bloom").parsed(flags).pad_vocab_size_to == rows


@pytest.mark.parametrize(("multiple", "tp", "rows"), [(128, 1, 50_304), (128, 4, 50_688), (0, 1, 50_257)])
@pytest.mark.parametrize("tokens", [50_257, 50_000, 1])
def test_deepspeeds_fork_pads_what_the_tokenizer_has_to_the_models_rows(
    multiple: int, tp: int, rows: int, tokens: int
) -> None:
    """It pads to a multiple of --make-vocab-size-divisible-by times tp."""
    run = bloom(f"tp{tp}-pp12-dp4-mbs2-z1", model="gpt3-175b")
    model = replace(run.workload.model, vocab=50_257, vocab_multiple=multiple)
    options = ExportOptions(fork="deepspeed")
    flags = megatron_deepspeed_flags(replace(run, workload=replace(run.workload, model=model)), options)
    unit = flag_table("megatron-deepspeed").parsed(flags).make_vocab_size_divisible_by * tp
    assert -(-tokens // unit) * unit == rows


def test_the_config_of_the_studys_command_is_the_base_of_the_exported_one(tmp_path: Path) -> None:
    """Clipping, types and curriculum are those with which the jobs trained."""
    own = {
        "gradient_clipping": 0.3,
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
        "curriculum_learning": {"enabled": True, "curriculum_type": "seqlen", "min_difficulty": 64},
    }
    path = tmp_path / "my.json"
    path.write_text(json.dumps(own))
    command = f"python pretrain_gpt.py --fp16 --deepspeed --deepspeed_config {path}"
    study: Any = SimpleNamespace(settings={"command": command, "trainer": "megatron-deepspeed"}, name="s")
    run = bloom("tp8-pp12-dp4-mbs2-z1", model="bloom-14336x72")
    files = bundle(run, "megatron-deepspeed", export_options(study, FORMATS["megatron-deepspeed"]))
    config = json.loads(files["ds_config.json"])
    assert {name: config[name] for name in own} == own
    assert (config["zero_optimization"]["stage"], config["train_micro_batch_size_per_gpu"]) == (1, 2)
    assert (
        "| `gradient_clipping` | `0.3` | the DeepSpeed config that the study's --command names |"
        in (files["ds_config.md"])
    )
    assert "The launch script passes the optimizer" in files["ds_config.md"]
    other: Any = SimpleNamespace(settings={"command": f"python hf.py --deepspeed {path}", "trainer": "hf"}, name="s")
    assert export_options(other, FORMATS["megatron-deepspeed"]).own_config is None
