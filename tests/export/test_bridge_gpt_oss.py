"""A Megatron Bridge recipe has gpt-oss's yarn, windows, sinks, clamped gate and biases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.export.test_bridge import YARN, settings_of
from tests.export.test_export import exported
from tests.export.test_megatron_core import hugging_face_run
from tuner.core.rotary_scaling import RotaryScaling
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags


@pytest.mark.parametrize(("name", "layers", "experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)])
def test_gpt_oss_has_these_fields(name: str, layers: int, experts: int) -> None:
    """Bridge's own GPTOSSProvider agrees, but for a window of 129 tokens in 0.3.1, corrected by 067f987d."""
    run = hugging_face_run(name)
    found = settings_of(run)
    expected = {
        "num_layers": str(layers),
        "num_moe_experts": str(experts),
        "moe_ffn_hidden_size": "2880",
        "activation_func": "quick_gelu",
        "activation_func_clamp_value": "7.0",
        "glu_linear_offset": "1.0",
        "add_bias_linear": "True",
        "bias_dropout_fusion": "False",
        "softmax_type": "'learnable'",
        "window_size": "(127, 0)",
        "window_attn_skip_freq": "2",
        "position_embedding_type": "'yarn'",
        "yarn_rotary_scaling_factor": "32.0",
        "yarn_original_max_position_embeddings": "4096",
        "yarn_correction_range_round_to_int": "False",
    }
    assert {field: found[field] for field in expected} == expected
    recipe = exported(run, "megatron-bridge")["recipe.py"]
    for field in YARN:  # which are no arguments of GPTModelProvider in 0.3.1
        assert f"\n    config.model.{field} = {found[field]}\n" in recipe


YARN_FLAGS = {
    "--rotary-scaling-factor": "yarn_rotary_scaling_factor",
    "--yarn-original-max-position-embeddings": "yarn_original_max_position_embeddings",
    "--yarn-beta-fast": "yarn_beta_fast",
    "--yarn-beta-slow": "yarn_beta_slow",
    "--mscale": "yarn_mscale",
    "--mscale-all-dim": "yarn_mscale_all_dim",
}
"""Megatron-LM's flags and the fields that it sets from them (megatron/training/argument_utils.py at d98e8a64)."""


@given(
    factor=st.sampled_from([1.0, 4.0, 32.0, 2.5]),
    original=st.sampled_from([4096, 32768]),
    betas=st.sampled_from([(32.0, 1.0), (64.0, 2.0)]),
    truncate=st.booleans(),
)
def test_yarn_is_that_of_the_megatron_lm_export(
    factor: float, original: int, betas: tuple[float, float], truncate: bool
) -> None:
    run = hugging_face_run("llama-3-8b")
    fast, slow = betas
    yarn = RotaryScaling(
        kind="yarn", factor=factor, original_seq=original, beta_fast=fast, beta_slow=slow, truncate=truncate
    )
    run = replace(run, workload=replace(run.workload, model=replace(run.workload.model, rotary_scaling=yarn)))
    found, flags = settings_of(run), dict(one for one in megatron_core_flags(run) if len(one) == 2)
    assert found["position_embedding_type"] == repr(flags["--position-embedding-type"]) == "'yarn'"
    assert {flag: float(found[field]) for flag, field in YARN_FLAGS.items()} == {
        flag: float(flags[flag]) for flag in YARN_FLAGS
    }
    rounded = ("--no-yarn-correction-range-round-to-int",) not in megatron_core_flags(run)
    assert found["yarn_correction_range_round_to_int"] == repr(rounded) == repr(truncate)


@pytest.mark.parametrize(
    "changes",
    [{"rotary_fraction": 0.5}, {"rotary_interleaved": True}, {"attention_factor": 1.1}, {"original_seq": 0}],
)
def test_yarn_that_megatron_core_does_not_compute_is_refused(changes: dict[str, Any]) -> None:
    run = hugging_face_run("gpt-oss-20b")
    model = run.workload.model
    assert model.rotary_scaling
    scaling = {name: value for name, value in changes.items() if not name.startswith("rotary")}
    others = {name: value for name, value in changes.items() if name not in scaling}
    model = replace(model, rotary_scaling=replace(model.rotary_scaling, **scaling), **others)
    run = replace(run, workload=replace(run.workload, model=model))
    assert MEGATRON_BRIDGE.refused(run, ExportOptions()) == ["rotary_scaling"]
    for name, value in scaling.items():
        [label] = MEGATRON_BRIDGE.refusals(run, ExportOptions())
        assert name == "original_seq" or f"{name.replace('_', ' ')} {value:g}" in label


@pytest.mark.parametrize("framework", [None, "deepspeed", "megatron-core"])
@pytest.mark.parametrize(("name", "exchange"), [("gpt-oss-20b", "a2a"), ("mistral-7b-v0.1", "all_gather")])
def test_context_parallel_ranks_exchange_as_the_model_requires(framework: Any, name: str, exchange: str) -> None:
    """Whatever framework was measured: Transformer Engine's ring has neither windows nor sinks."""
    run = hugging_face_run(name)
    run = replace(run, topology=replace(run.topology, cp=2, dp=4))
    run = replace(run, workload=replace(run.workload, framework=framework))
    assert ("--cp-comm-type", exchange) in megatron_core_flags(run)
    assert settings_of(run)["cp_comm_type"] == repr(exchange)


@pytest.mark.parametrize(("tp", "cp", "supported"), [(1, 8, True), (4, 2, True), (4, 4, False), (8, 2, False)])
def test_context_parallel_ranks_with_sinks_divide_the_heads(tp: int, cp: int, supported: bool) -> None:
    """gpt-oss has 8 key/value heads, of which each of tp * cp ranks needs one."""
    run = hugging_face_run("gpt-oss-20b")
    run = replace(run, topology=replace(run.topology, nodes=8, tp=tp, cp=cp, dp=8, sequence_parallel=tp > 1))
    for chosen in (MEGATRON_BRIDGE, MEGATRON_CORE):
        assert chosen.refused(run, ExportOptions()) == ([] if supported else ["cp"])
