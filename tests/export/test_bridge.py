"""A Megatron Bridge recipe is the model that was asked for, and what Bridge derives from the same config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.export.test_export import bloom, exported
from tests.export.test_megatron_core import DENSE, HUGGING_FACE, hugging_face_run
from tuner.export.bridge import MEGATRON_BRIDGE, mixed_precision
from tuner.export.formats import ExportOptions
from tuner.export.production import ProductionRun

PYTHON = os.environ.get("MEGATRON_PYTHON") or (sys.executable if find_spec("megatron") else "")
COMPARED = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "activation_func"),
    *("gated_linear_unit", "normalization", "layernorm_epsilon", "layernorm_zero_centered_gamma", "qk_layernorm"),
    *("add_qkv_bias", "add_bias_linear", "position_embedding_type", "rotary_base", "rotary_percent"),
    *("rotary_interleaved", "attention_dropout", "hidden_dropout", "share_embeddings_and_output_weights"),
    *("vocab_size", "init_method_std", "rope_scaling", "rope_scaling_factor", "softmax_scale"),
)
"""Fields that decide what is trained."""
EXPERTS = (
    *("num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size"),
    *("moe_router_score_function", "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk"),
    *("moe_router_topk_scaling_factor", "moe_grouped_gemm"),
)
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rotary_scaling_factor")
NEUTRAL: dict[Any, Any] = {None: 0, 1: 0}
"""No groups and one group are the same, and so are no factor and a factor of one."""


def settings_of(run: ProductionRun) -> dict[str, str]:
    """The fields of the model's config."""
    return {name: value for name, value in MEGATRON_BRIDGE.settings(run, ExportOptions())}  # noqa: C416


def test_a_llama_in_its_topology_has_these_fields() -> None:
    run = bloom("tp8-pp4-vpp2-dp4-mbs2-z1-sp-rsel", model="llama-3-70b", nodes=16, global_batch=512, precision="bf16")
    found = settings_of(run)
    expected = {
        "num_layers": "80",
        "num_query_groups": "8",
        "activation_func": "F.silu",
        "gated_linear_unit": "True",
        "rotary_base": "500000",
        "hidden_dropout": "0.0",
        "share_embeddings_and_output_weights": "False",
        "tensor_model_parallel_size": "8",
        "pipeline_model_parallel_size": "4",
        "virtual_pipeline_model_parallel_size": "2",
        "sequence_parallel": "True",
        "recompute_modules": "['core_attn']",
    }
    assert {name: found[name] for name in expected} == expected
    recipe = exported(run, "megatron-bridge")["recipe.py"]
    for line in ("micro_batch_size = 2", "global_batch_size = 512", 'mixed_precision = "bf16_mixed"'):
        assert line in recipe
    assert mixed_precision(run) == "bf16_mixed"


@pytest.mark.parametrize(
    ("name", "refused"),
    [("gemma-7b", "embedding multiplier"), ("gpt-neox-20b", "parallel attention"), ("bloom", "ALiBi")],
)
def test_what_bridge_has_no_field_for_is_refused(name: str, refused: str) -> None:
    assert refused in "; ".join(MEGATRON_BRIDGE.refusals(hugging_face_run(name), ExportOptions()))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge, here or in MEGATRON_PYTHON")
def test_bridges_own_provider_takes_recipes_and_derives_the_same_from_the_config() -> None:
    names = [one for one in DENSE if not MEGATRON_BRIDGE.refusals(hugging_face_run(one), ExportOptions())]
    cases = [
        {
            "recipe": exported(hugging_face_run(name), "megatron-bridge")["recipe.py"],
            "config": str(HUGGING_FACE / f"{name}.json"),
        }
        for name in names
    ]
    script = str(ROOT / "tests" / "export" / "bridge_provider.py")
    done = subprocess.run([PYTHON, "-W", "ignore", script], input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    derived = {name: answer for name, answer in zip(names, answers, strict=True) if answer["derived"]}
    assert {"llama-3-70b", "llama-3.1-405b", "llama-3.2-1b", "qwen2.5-72b", "qwen3-8b"} <= set(derived)
    for name, answer in derived.items():
        for field in COMPARED:
            if field != "ffn_hidden_size" or not answer["exported"]["num_moe_experts"]:  # unused where all have experts
                assert answer["exported"][field] == answer["derived"][field], (name, field)
    mixtures = {name: answer for name, answer in derived.items() if answer["exported"]["num_moe_experts"]}
    assert {"qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "deepseek-v2-lite", "glm-4.5"} <= set(mixtures)
    for name, answer in mixtures.items():
        ranks = () if name in READ_AS_512 else LATENT
        latent = ranks if answer["exported"].get("multi_latent_attention") else ()
        for field in (*EXPERTS, *latent):
            found = [NEUTRAL.get(one, one) for one in (answer[side][field] for side in ("exported", "derived"))]
            assert found[0] == found[1], (name, field)


READ_AS_512 = ("deepseek-v2-lite", "moonlight-16b-a3b")
"""Bridge 0.3.1 leaves its default rank of 512 and its yarn in place where these configs have null."""


def test_a_mixture_with_latent_attention_has_these_fields() -> None:
    run = hugging_face_run("deepseek-v3")
    found = settings_of(replace(run, topology=replace(run.topology, ep=8, dispatcher="deepep")))
    expected = {
        "num_moe_experts": "256",
        "moe_layer_freq": repr([0] * 3 + [1] * 58),
        "moe_router_load_balancing_type": "'seq_aux_loss'",
        "moe_aux_loss_coeff": "0.001",
        "qk_layernorm": "True",
        "rotary_interleaved": "False",
        "kv_channels": "128",
        "q_lora_rank": "1536",
        "mscale_all_dim": "1.0",
        "mtp_num_layers": "1",
        "expert_model_parallel_size": "8",
        "moe_flex_dispatcher_backend": "'deepep'",
        "attention_backend": "AttnBackend.fused",
    }
    assert {name: found[name] for name in expected} == expected
    assert "softmax_scale" not in found
    recipe = exported(run, "megatron-bridge")["recipe.py"]
    assert "config.model = MLAModelProvider(**MODEL)" in recipe
    assert "partial(get_gpt_decoder_block_spec, use_transformer_engine=True)" in recipe
    plain = exported(hugging_face_run("qwen3-30b-a3b"), "megatron-bridge")["recipe.py"]
    assert "config.model = GPTModelProvider(**MODEL)" in plain
    assert settings_of(hugging_face_run("deepseek-v2-lite"))["q_lora_rank"] == "None"
