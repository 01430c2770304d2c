"""A Megatron Bridge recipe describes the requested model and agrees with Bridge's own configs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.export.test_export import bloom, exported
from tests.export.test_megatron_core import DENSE, HUGGING_FACE, hugging_face_run
from tuner.core.errors import InputError
from tuner.core.stack import Stack
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.bridge_precision import mixed_precision
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.production import WARM_UP_SHARE, ProductionRun

PYTHON = os.environ.get("MEGATRON_PYTHON") or (sys.executable if find_spec("megatron") else "")
COMPARED = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "activation_func"),
    *("gated_linear_unit", "normalization", "layernorm_epsilon", "layernorm_zero_centered_gamma", "qk_layernorm"),
    *("add_qkv_bias", "add_bias_linear", "position_embedding_type", "rotary_base", "rotary_percent"),
    *("rotary_interleaved", "attention_dropout", "hidden_dropout", "share_embeddings_and_output_weights"),
    *("init_method_std", "rope_scaling", "rope_scaling_factor", "softmax_scale"),
)
"""Fields that determine what is trained."""
EXPERTS = (
    *("num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size"),
    *("moe_router_score_function", "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk"),
    *("moe_router_topk_scaling_factor", "moe_grouped_gemm"),
)
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rotary_scaling_factor")

YARN = (
    *("yarn_rotary_scaling_factor", "yarn_original_max_position_embeddings", "yarn_beta_fast", "yarn_beta_slow"),
    *("yarn_mscale", "yarn_mscale_all_dim", "yarn_correction_range_round_to_int"),
)


def neutral(value: Any) -> Any:
    """Map None and one to zero: no groups equal one group, and no factor equals a factor of one."""
    return 0 if value is None or (value == 1 and not isinstance(value, bool)) else value


def settings_of(run: ProductionRun) -> dict[str, str]:
    """Return the fields of the model's config."""
    return {name: value for name, value in MEGATRON_BRIDGE.settings(run, ExportOptions())}  # noqa: C416


def test_a_llama_has_these_fields() -> None:
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


def test_a_ramp_of_the_given_config_does_not_remain() -> None:
    """`configure` sets the batch of any config, and a ramp-up in it would train with smaller ones first."""
    run = bloom("tp8-pp4-dp4-mbs2-z1-sp", model="llama-3-70b", nodes=16, global_batch=512, precision="bf16")
    assert "\n    config.train.rampup_batch_size = None\n" in exported(run, "megatron-bridge")["recipe.py"]


@pytest.mark.parametrize(
    ("name", "refused"),
    [("gemma-7b", "embedding multiplier"), ("gpt-neox-20b", "parallel attention"), ("bloom", "ALiBi")],
)
def test_properties_without_a_field_in_bridge_are_refused(name: str, refused: str) -> None:
    assert refused in "; ".join(MEGATRON_BRIDGE.refusals(hugging_face_run(name), ExportOptions()))


@pytest.mark.parametrize("name", ["olmoe-1b-7b", "gemma-2-27b", "gemma-3-1b"])
def test_what_bridge_has_in_another_provider_is_refused_by_the_recipe(name: str) -> None:
    """Bridge 0.3.1 trains OLMoE and Gemma with providers of their own, which the recipe does not fill."""
    with pytest.raises(InputError) as refused:
        exported(hugging_face_run(name), "megatron-bridge")
    assert str(refused.value).startswith("tuner's recipe for Megatron Bridge does not support ")
    assert "(the recipe fills GPTModelProvider or MLAModelProvider, which do not have it)" in str(refused.value)


def test_the_exported_vocabulary_is_padded_because_bridge_does_not_pad_it() -> None:
    """training/setup.py switches `should_pad_vocab` off if the model states a vocabulary size."""
    run = bloom("tp8-pp4-dp4-mbs1-z1", model="gpt3-175b", nodes=16, global_batch=512, precision="bf16")
    found = settings_of(run)
    assert (found["vocab_size"], found["should_pad_vocab"]) == ("-(-50257 // 1024) * 1024", "False")
    assert eval(found["vocab_size"]) == run.workload.model.padded_vocab(8) == 51200  # noqa: S307


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ("delayed", {"fp8": "'hybrid'", "fp8_amax_history_len": "1024", "fp8_amax_compute_algo": "'max'"}),
        ("tensorwise", {"fp8": "'hybrid'"}),
        ("blockwise", {"fp8": "'e4m3'"}),
        ("mxfp8", {"fp8": "'e4m3'"}),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_fp8_formats_layers_and_weights_are_those_of_the_megatron_lm_export(
    recipe: Any, fields: Any, stored: bool
) -> None:
    """Bridge's own recipes differ: tensorwise keeps the outer layers in bf16, and blockwise uses hybrid formats."""
    run = hugging_face_run("llama-3-8b")
    stack = Stack(quantized_weights=True) if stored else None
    run = replace(run, workload=replace(run.workload, precision="fp8", precision_recipe=recipe, stack=stack))
    text = exported(run, "megatron-bridge")["recipe.py"]
    fields |= {"first_last_layers_bf16": "False", "fp8_param_gather": str(stored)}
    fields["reuse_grad_buf_for_mxfp8_param_ag"] = str(stored and recipe == "mxfp8")
    for name, value in fields.items():
        assert f"    config.mixed_precision.{name} = {value}\n" in text
    core = {name: values for name, *values in megatron_core_flags(run)}
    assert ("--fp8-param-gather" in core) == stored
    assert ("--reuse-grad-buf-for-mxfp8-param-ag" in core) == (stored and recipe == "mxfp8")
    assert [eval(fields["fp8"])] == core["--fp8-format"]  # noqa: S307


@pytest.mark.parametrize(("precision", "recipe"), [("fp8", "tensorwise"), ("fp8", "mxfp8"), ("fp4", "nvfp4")])
@pytest.mark.parametrize("kept", [(1, 1), (0, 4), (2, 0)])
def test_layers_in_bf16_are_those_of_the_megatron_lm_export(precision: Any, recipe: Any, kept: tuple[int, int]) -> None:
    run = hugging_face_run("llama-3-8b")
    described = {"precision": precision, "precision_recipe": recipe, "stack": Stack(bf16_layers=kept)}
    run = replace(run, workload=replace(run.workload, **described))
    text = exported(run, "megatron-bridge")["recipe.py"]
    core = {name: values for name, *values in megatron_core_flags(run)}
    assert core["--first-last-layers-bf16"] == []
    assert "    config.mixed_precision.first_last_layers_bf16 = True\n" in text
    for end, layers in zip(("start", "end"), kept, strict=True):
        assert f"    config.mixed_precision.num_layers_at_{end}_in_bf16 = {layers}\n" in text
        assert core[f"--num-layers-at-{end}-in-bf16"] == [str(layers)]


def test_the_loss_scale_of_fp16_is_that_of_the_megatron_lm_export() -> None:
    run = hugging_face_run("llama-3-8b")
    run = replace(run, workload=replace(run.workload, precision="fp16"))
    text = exported(run, "megatron-bridge")["recipe.py"]
    assert 'get_mixed_precision_config("fp16_mixed")' in text
    core = {name: values for name, *values in megatron_core_flags(run)}
    for flag in ("--initial-loss-scale", "--loss-scale-window"):
        name = flag.removeprefix("--").replace("-", "_")
        assert f"    config.mixed_precision.{name} = {float(core[flag][0])}\n" in text


def test_fp4_is_nvfp4_in_all_layers_with_weights_in_bf16() -> None:
    """The Megatron-LM export does the same; later versions of Bridge gather weights in fp4 by default."""
    run = hugging_face_run("llama-3-8b")
    run = replace(run, workload=replace(run.workload, precision="fp4"))
    text = exported(run, "megatron-bridge")["recipe.py"]
    assert 'get_mixed_precision_config("bf16_with_nvfp4_mixed")' in text
    for name, value in {"fp4": "'e2m1'", "first_last_layers_bf16": "False", "fp4_param_gather": "False"}.items():
        assert f"    config.mixed_precision.{name} = {value}\n" in text
    flags = [tuple(each) for each in megatron_core_flags(run)]
    assert {("--bf16",), ("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")} <= set(flags)


@pytest.mark.parametrize("name", ["megatron-core", "megatron-bridge"])
@pytest.mark.parametrize(("framework", "recipe"), [(None, "rowwise"), ("torchtitan", None)])
def test_rowwise_scaling_is_refused(name: str, framework: Any, recipe: Any) -> None:
    """Rowwise scaling is also refused as the default of the measured framework."""
    run = hugging_face_run("llama-3-8b")
    fp8 = replace(run.workload, precision="fp8", precision_recipe=recipe, framework=framework)
    with pytest.raises(InputError, match="fp8 precision"):
        exported(replace(run, workload=fp8), name)


def test_a_clamped_swiglu_is_not_fused() -> None:
    """megatron-core 0.16.1 clamps only in `glu`, not in fusions/fused_bias_swiglu.py."""
    run = hugging_face_run("mixtral-8x7b")
    clamped = replace(run, workload=replace(run.workload, model=replace(run.workload.model, glu_clamp=7.0)))
    assert settings_of(run)["bias_activation_fusion"] == "True"
    assert settings_of(clamped)["bias_activation_fusion"] == "False"
    assert settings_of(clamped)["activation_func_clamp_value"] == "7.0"


def test_pipelines_free_their_outputs_as_under_megatron_lm() -> None:
    """MLAModelProvider and later providers keep them, which the measured memory does not contain."""
    text = exported(hugging_face_run("deepseek-v3"), "megatron-bridge")["recipe.py"]
    assert "    deallocate_pipeline_outputs=True,\n" in text


NAMED = {
    "qwen3-30b-a3b": "qwen.qwen_provider:Qwen3MoEModelProvider30B_A3B",
    "qwen3-235b-a22b": "qwen.qwen_provider:Qwen3MoEModelProvider235B_A22B",
    "qwen3-next-80b-a3b": "qwen.qwen_provider:Qwen3NextModelProvider80B_A3B",
    "deepseek-v2-lite": "deepseek.deepseek_provider:DeepSeekV2LiteModelProvider",
    "deepseek-v3": "deepseek.deepseek_provider:DeepSeekV3ModelProvider",
    "kimi-k2": "kimi.kimi_provider:KimiK2Provider",
    "glm-4.5": "glm.glm45_provider:GLM45ModelProvider355B",
    "glm-4.5-air": "glm.glm45_provider:GLM45AirModelProvider106B",
    "llama-3-8b": "llama.llama_provider:Llama3ModelProvider8B",
    "llama-3-70b": "llama.llama_provider:Llama3ModelProvider70B",
    "llama-3.1-405b": "llama.llama_provider:Llama31ModelProvider405B",
    "llama-2-70b": "llama.llama_provider:Llama2ModelProvider70B",
    "qwen3-8b": "qwen.qwen_provider:Qwen3ModelProvider8B",
    "gpt-oss-20b": "gpt_oss.gpt_oss_provider:GPTOSSProvider20B",
    "gpt-oss-120b": "gpt_oss.gpt_oss_provider:GPTOSSProvider120B",
}
"""Models that Bridge provides by name, independent of any config; they check the configs of these tests as well."""

DELTA_NET = (
    *("experimental_attention_variant", "linear_attention_freq", "linear_conv_kernel_dim", "linear_key_head_dim"),
    *("linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads", "attention_output_gate"),
    *("transformer_layer_spec", "hetereogenous_dist_checkpoint"),
)

STATED = (
    *(
        *COMPARED,
        *EXPERTS,
        *LATENT,
        *DELTA_NET,
        "moe_layer_freq",
        "moe_aux_loss_coeff",
        "moe_router_load_balancing_type",
    ),
    *("moe_router_bias_update_rate", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "mtp_num_layers"),
    *("original_max_position_embeddings", "mtp_loss_scaling_factor", "seq_len_interpolation_factor"),
    *("kv_channels", "window_attn_skip_freq", "softmax_type", "glu_linear_offset", "activation_func_clamp_value"),
    *(*YARN, "bias_dropout_fusion"),
)
OTHERWISE = {
    "init_method_std": "Llama 3's and Kimi's recipes start smaller than their configs say",
    "moe_aux_loss_coeff": "DeepSeek-V3's is the paper's; V2-Lite's and GLM-4.5's are Bridge's",
    "moe_router_load_balancing_type": "GLM-4.5's config has no loss; gpt-oss's has, and its provider has not; that of "
    "Qwen3-Next balances the global batch",
    "moe_router_bias_update_rate": "GLM-4.5's provider is for fine-tuning",
    "mtp_loss_scaling_factor": "GLM-4.5's first 15T tokens; Kimi K2 predicts one token",
}
"""Fields in which Bridge's recipes deviate from the configs, with the reason; none depends on the topology."""


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """What Bridge builds from the recipes of all committed models that the format accepts."""
    names = [one for one in DENSE if not MEGATRON_BRIDGE.refusals(hugging_face_run(one), ExportOptions())]
    cases = [
        {
            "recipe": exported(hugging_face_run(name), "megatron-bridge")["recipe.py"],
            "config": str(HUGGING_FACE / f"{name}.json"),
            "named": NAMED.get(name),
        }
        for name in names
    ]
    script = str(ROOT / "tests" / "export" / "bridge_provider.py")
    done = subprocess.run([PYTHON, "-W", "ignore", script], input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge, here or in MEGATRON_PYTHON")
def test_a_recipe_agrees_with_the_model_that_bridge_provides_by_name(answers: dict[str, dict[str, Any]]) -> None:
    for name in NAMED:
        exported, stated = answers[name]["exported"], answers[name]["named"]
        for field in set(STATED) & set(stated) - set(OTHERWISE):
            found = [neutral(one) for one in (exported[field], stated[field])]
            without_mlp = exported["num_moe_experts"] and isinstance(exported["moe_layer_freq"], int)
            unused = {"ffn_hidden_size": without_mlp, "num_query_groups": stated[field] is None}
            unused["kv_channels"] = exported.get("multi_latent_attention")
            if not unused.get(field):
                assert found[0] == found[1], (name, field)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge, here or in MEGATRON_PYTHON")
def test_a_recipe_trains_with_the_optimizer_of_the_other_formats(answers: dict[str, dict[str, Any]]) -> None:
    """Bridge's scheduler sets the weight decay, which is 0.033 in Bridge's common recipe."""
    flags = {name: value for name, *value in megatron_core_flags(hugging_face_run("deepseek-v3"))}
    for name, answer in answers.items():
        found = answer["training"]
        assert found["unknown"] == [], name
        for field in ("lr", "min_lr", "weight_decay", "clip_grad", "adam_beta1", "adam_beta2", "adam_eps"):
            assert found[field] == float(flags[f"--{field.replace('_', '-')}"][0]), field
        assert found["start_weight_decay"] == found["end_weight_decay"] == found["weight_decay"] == 0.1
        assert found["lr_decay_style"] == "cosine"
        assert found["lr_warmup_iters"] == pytest.approx(WARM_UP_SHARE * found["lr_decay_iters"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge, here or in MEGATRON_PYTHON")
def test_bridge_accepts_recipes_and_derives_the_same_fields_from_the_config(
    answers: dict[str, dict[str, Any]],
) -> None:
    derived = {name: answer for name, answer in answers.items() if answer["derived"]}
    for side in (answer[side] for answer in derived.values() for side in ("exported", "derived")):
        side["add_qkv_bias"] |= side["add_bias_linear"]  # which gives queries, keys and values biases as well
        if side["position_embedding_type"] == "mrope":  # of Qwen3-VL: text has the same position on all axes
            side["position_embedding_type"] = "rope"
    assert {"llama-3-70b", "llama-3.1-405b", "llama-3.2-1b", "qwen2.5-72b", "qwen3-8b", "qwen3-vl-4b"} <= set(derived)
    for name, answer in derived.items():
        assert 0 <= answer["exported"]["vocab_size"] - answer["derived"]["vocab_size"] < 128, name  # padded
        unused = {"ffn_hidden_size"} if answer["exported"]["num_moe_experts"] else set()  # all layers have experts
        misread = {"share_embeddings_and_output_weights"} if name in TIED_BY_TEXT else set()
        for field in set(COMPARED) - unused - misread:
            assert answer["exported"][field] == answer["derived"][field], (name, field)
    mixtures = {name: answer for name, answer in derived.items() if answer["exported"]["num_moe_experts"]}
    assert {"qwen3-30b-a3b", "deepseek-v3", "deepseek-v2-lite", "glm-4.5", "gpt-oss-120b"} <= set(mixtures)
    for name, answer in mixtures.items():
        ranks = () if name in READ_AS_512 else LATENT
        latent = ranks if answer["exported"].get("multi_latent_attention") else ()
        for field in (*EXPERTS, *latent):
            found = [neutral(answer[side][field]) for side in ("exported", "derived")]
            assert found[0] == found[1], (name, field)


TIED_BY_TEXT = ("qwen3-vl-8b", "qwen3-vl-30b-a3b")
"""Bridge 0.3.1 reads tie_word_embeddings of their text_config alone, which lacks it, and ties by default."""

READ_AS_512 = ("deepseek-v2-lite", "moonlight-16b-a3b")
"""Bridge 0.3.1 keeps its default rank of 512 and its yarn if these configs have null."""


def test_queries_without_a_latent_vector_are_trained_by_the_named_release_alone() -> None:
    """From 0.19 on, megatron-core gives them a second norm, without a field that prevents it."""
    recipes = {
        name: exported(hugging_face_run(name), "megatron-bridge")["recipe.py"]
        for name in ("deepseek-v2-lite", "deepseek-v3")
    }
    check = recipes["deepseek-v2-lite"].partition('this topology."""\n')[2].partition("    config.model")[0]
    assert 'find_spec("megatron.core.transformer.mla_qk_norm_config")' in check
    run = compile(textwrap.dedent(check), "recipe.py", "exec")
    exec(run, {"find_spec": lambda _: None})  # noqa: S102 - the export under test
    with pytest.raises(RuntimeError, match=r"normalizes the input of the queries twice; use megatron-core 0\.16\.1"):
        exec(run, {"find_spec": lambda name: name})  # noqa: S102
    assert "find_spec" not in recipes["deepseek-v3"]


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
