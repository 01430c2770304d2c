"""Megatron-LM, with its recorded flags and defaults, reads an export as the requested model and topology."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.export.megatron_namespace import asked, assert_exact_or_refused, parsed, trained
from tests.export.test_export import any_run, bloom
from tests.strategies import runs
from tuner.core.catalog import model as catalog_model
from tuner.core.errors import InputError, TunerWarning
from tuner.core.experts import Latent
from tuner.core.precision import bf16_layers, recipe_of, stores_fp8_weights
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.stack import Stack
from tuner.export.formats import ExportOptions, Setting
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.export.megatron_deepspeed import MEGATRON_DEEPSPEED
from tuner.export.production import ProductionRun
from tuner.launch.trainers.megatron_precision import RECIPE_FORMATS

scalings = st.one_of(
    st.none(),
    st.builds(RotaryScaling, kind=st.just("linear"), factor=st.sampled_from([2.0, 4.0, 2.5])),
    st.just(RotaryScaling(kind="llama3", factor=8.0, original_seq=8192)),
    st.builds(RotaryScaling, kind=st.just("llama3"), factor=st.sampled_from([8.0, 32.0]), original_seq=st.just(8192)),
    st.builds(
        RotaryScaling,
        kind=st.just("yarn"),
        factor=st.sampled_from([4.0, 32.0]),
        original_seq=st.sampled_from([4096, 32768]),
        attention_factor=st.sampled_from([0.0, 0.0, 1.1]),
    ),
)
IDENTITIES: dict[str, Any] = {
    "activation": st.sampled_from(["silu", "gelu_tanh", "gelu", "relu2", "quick_gelu", "relu"]),
    "norm_epsilon": st.sampled_from([1e-5, 1e-6, 3e-7]),
    "norm_offset": st.booleans(),
    "qk_norm": st.booleans(),
    "qk_norm_span": st.sampled_from(["head", "head", "width"]),
    "rotary_base": st.sampled_from([10_000.0, 500_000.0, 1e6, 1234.5]),
    "rotary_fraction": st.sampled_from([1.0, 0.25, 0.5]),
    "rotary_interleaved": st.booleans(),
    "rotary_skip": st.sampled_from([0, 2, 4]),
    "rotary_scaling": scalings,
    "attention_dropout": st.sampled_from([0.0, 0.1]),
    "sliding_window": st.sampled_from([0, 256, 4096]),
    "window_skip": st.sampled_from([0, 6]),
    "window_start": st.sampled_from([0, 0, 3]),
    "attention_softcap": st.sampled_from([0.0, 50.0]),
    "logit_softcap": st.sampled_from([0.0, 30.0]),
    "embedding_scale": st.sampled_from([1.0, 55.4]),
    "parallel_attention": st.booleans(),
    "init_std": st.sampled_from([0.02, 0.006]),
    "vocab_multiple": st.sampled_from([128, 64, 0]),
    "head_bias": st.booleans(),
    "not_understood": st.sampled_from([(), ("x=1",)]),
}


@st.composite
def identified_runs(draw: st.DrawFn) -> ProductionRun:
    """Draw runs of models with only a few unusual properties, so that many can be exported."""
    workload, cluster, topology = draw(runs(zero=draw(st.sampled_from([0, 1])), frozen_params=0))
    names = draw(st.lists(st.sampled_from(sorted(IDENTITIES)), max_size=5, unique=True))
    chosen = {name: draw(IDENTITIES[name]) for name in names}
    dropout = draw(st.sampled_from([0.0, 0.1]))
    chosen |= {"hidden_dropout": dropout, "embedding_dropout": dropout}
    bias = draw(st.sampled_from([(True, True, True), (False, False, False), (True, False, False), (False, True, True)]))
    chosen |= {"qkv_bias": bias[0], "attention_bias": bias[1], "mlp_bias": bias[2]}
    workload = replace(
        workload,
        model=replace(workload.model, **chosen),
        precision=draw(st.sampled_from(["bf16", "bf16", "fp16", "fp32", "fp8", "fp4"])),
        precision_recipe=draw(st.sampled_from([None, "tensorwise", "mxfp8", "blockwise", "delayed"])),
        optimizer=draw(st.sampled_from(["adam", "adam", "adam", "sgd", "adafactor"])),
        stack=draw(st.sampled_from([None, Stack(quantized_weights=True)])) if topology.zero else None,
    )
    return any_run(workload, cluster, topology)


@given(run=identified_runs())
@settings(max_examples=200)
def test_an_export_trains_the_requested_run_or_is_refused(run: ProductionRun) -> None:
    assert_exact_or_refused(run)


def _rich() -> list[ProductionRun]:
    """Return runs that together set every flag to a value other than Megatron's default."""
    llama = bloom(
        "tp8-pp4-cp2-dp2-mbs2-z1-sp-rsel-vpp2", model="llama-3-70b", nodes=16, global_batch=512, precision="bf16"
    )
    gpt = bloom("tp8-pp12-dp4-mbs2-z1", model="bloom-14336x72", precision="fp16")

    def varied(run: ProductionRun, model: dict[str, Any] = {}, **workload: Any) -> ProductionRun:  # noqa: B006
        return replace(run, workload=replace(run.workload, model=replace(run.workload.model, **model), **workload))

    flash = {"attention": "flash2"}
    yarn = RotaryScaling(kind="yarn", factor=4.0, original_seq=32768, beta_fast=64.0, beta_slow=2.0)
    twelve = replace(gpt.topology, partition="embedding")
    return [
        varied(
            llama,
            {
                "norm_epsilon": 1e-6,
                "norm_offset": True,
                "qk_norm": True,
                "rotary_base": 5e5,
                "rotary_fraction": 0.5,
                "rotary_interleaved": True,
                "rotary_skip": 4,
                "rotary_scaling": RotaryScaling(kind="llama3", factor=8.0, original_seq=8192),
                "init_std": 0.01,
                "qkv_bias": True,
                "vocab_multiple": 64,
            },
            **flash,
            precision="fp8",
            precision_recipe="blockwise",
            stack=Stack(quantized_weights=True),
        ),
        varied(
            llama,
            precision="fp8",
            precision_recipe="mxfp8",
            stack=Stack(quantized_weights=True, bf16_layers=(2, 5)),
        ),
        varied(
            replace(gpt, topology=replace(gpt.topology, recompute="full")),
            {"activation": "gelu", "positions": "rotary", "sliding_window": 512, "window_skip": 6}
            | {"rotary_scaling": RotaryScaling(kind="linear", factor=4.0)},
            **flash,
        ),
        varied(gpt, {"positions": "rotary", "rotary_scaling": yarn}),
        varied(gpt, {"activation": "relu2", "vocab_multiple": 0, "vocab": 250888}, attention="eager", optimizer="sgd"),
        varied(gpt, {"gated_mlp": True, "activation": "quick_gelu", "positions": "none"}),
        varied(replace(gpt, topology=twelve), {"layers": 70}),
        *_with_experts(gpt),
    ]  # fmt: skip


MOONLIGHT = Latent(query_rank=128, kv_rank=256, nope_size=96, rope_size=32, value_size=64, norm_epsilon=1e-5)


def _with_experts(run: ProductionRun) -> list[ProductionRun]:
    """Return runs that use the flags of experts, latent attention and multi-token prediction."""
    topology = replace(run.topology, tp=1, pp=1, dp=384, ep=8, etp=2, dispatcher="hybridep", micro_batch=1)
    workload = replace(run.workload, attention="flash2", precision="bf16", global_batch=6 * topology.dp)
    one = replace(run, topology=topology, workload=workload)

    def of(name: str, **changes: Any) -> ProductionRun:
        model = catalog_model(name)
        assert model.experts is not None
        return replace(one, workload=replace(one.workload, model=replace(model, **changes)))

    mixtral, gpt_oss, qwen = catalog_model("mixtral-8x7b"), of("gpt-oss-20b"), catalog_model("qwen3-30b-a3b")
    deepseek = catalog_model("deepseek-v3")
    assert deepseek.experts and mixtral.experts and qwen.experts  # noqa: PT018
    capacity = replace(mixtral.experts, capacity_factor=1.25, z_loss=0.001)
    ungated = replace(qwen.experts, shared_ffn=512, shared_gate=True, normalized=False)
    single = replace(mixtral.experts, top_k=1, router="sigmoid", normalized=False, weights_before=True)
    piped = replace(topology, etp=1, pp=2, vpp=2, dp=192, recompute="layernorm+moe_act", moe_overlap=True)
    return [
        of("deepseek-v3", mtp_loss=0.3, experts=replace(deepseek.experts, router_bias_rate=0.01)),
        of("moonlight-16b-a3b", latent=MOONLIGHT),
        replace(gpt_oss, topology=replace(gpt_oss.topology, etp=1)),
        replace(of("mixtral-8x7b", experts=capacity), topology=replace(topology, dispatcher="alltoall")),
        of("qwen3-30b-a3b", experts=ungated),
        of("mixtral-8x7b", experts=single),
        replace(of("qwen3-30b-a3b"), topology=piped),
    ]


RICH = _rich()
SAME_AS_DEFAULT = {"--cp-comm-type", "--mscale", "--adam-beta1", "--adam-eps", "--clip-grad"}
SAME_AS_DEFAULT |= {"--rope-scaling-factor", "--make-vocab-size-divisible-by"}
"""Flags whose omission changes no run: they state Megatron's default, or what another flag decides."""


@pytest.mark.parametrize("flag", sorted({flag[0] for run in RICH for flag in megatron_core_flags(run)}))
def test_the_omission_of_any_flag_is_detected(flag: str) -> None:
    """Without one of its flags, every run trains something else, unless the flag states Megatron's default."""
    noticed = []
    for run in RICH:
        flags = megatron_core_flags(run)
        without: list[Setting] = [one for one in flags if one[0] != flag]
        if len(without) < len(flags):
            assert trained(parsed(flags)) == asked(run)
            try:
                noticed.append(trained(parsed(without)) != asked(run))
            except TypeError:  # a size is missing
                noticed.append(True)
    assert any(noticed) != (flag in SAME_AS_DEFAULT)


HUGGING_FACE = ROOT / "tests" / "data" / "huggingface"


def hugging_face_run(name: str) -> ProductionRun:
    """Return a run of a committed config on one node."""
    run = bloom("tp1-pp1-dp8-mbs1-z1", model="bloom-14336x72", nodes=1, global_batch=8, precision="bf16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TunerWarning)  # a vision model is read as its language model
        model = catalog_model(str(HUGGING_FACE / f"{name}.json"))
    return replace(run, workload=replace(run.workload, model=model, attention="flash2"))


def _dense() -> list[str]:
    """Return the committed configs that tuner reads."""
    names = []
    for path in sorted(HUGGING_FACE.glob("*.json")):
        with contextlib.suppress(InputError):
            hugging_face_run(path.stem)
            names.append(path.stem)
    return names


DENSE = _dense()


@pytest.mark.parametrize("name", DENSE)
def test_a_hugging_face_model_is_exported_exactly_or_refused(name: str) -> None:
    run = hugging_face_run(name)
    if not MEGATRON_CORE.refusals(run, ExportOptions()):
        assert trained(parsed(megatron_core_flags(run))) == asked(run)


@pytest.mark.parametrize(
    ("name", "core", "deepspeed", "bloom"),
    [
        ("llama-3-8b", "", "rotary positions", "RMSNorm"),
        ("llama-3-70b", "", "grouped-query attention", "RMSNorm"),
        ("llama-3.1-405b", "", "llama3 rotary scaling", "RMSNorm"),
        ("qwen2.5-72b", "", "bias of queries", "RMSNorm"),
        ("qwen3-8b", "", "query and key norm", "RMSNorm"),
        ("mistral-7b-v0.1", "", "sliding window", "sliding window"),
        ("gemma-7b", "GeGLU activation", "embedding multiplier", "norm weights stored"),
        ("gpt-neox-20b", "parallel attention", "parallel attention", "parallel attention"),
        ("falcon-40b", "parallel attention", "parallel attention", "parallel attention"),
        ("gpt2-xl", "", "", "flash2 attention"),
        ("bloom", "ALiBi", "ALiBi", "flash2 attention"),
        ("opt-6.7b", "ReLU activation", "ReLU activation", "ReLU activation"),
    ],
)
def test_twelve_models_are_exported_or_refused_by_a_property(name: str, core: str, deepspeed: str, bloom: str) -> None:
    run = hugging_face_run(name)
    found = [
        MEGATRON_CORE.refusals(run, ExportOptions()),
        MEGATRON_DEEPSPEED.refusals(run, ExportOptions(fork="deepspeed")),
        MEGATRON_DEEPSPEED.refusals(run, ExportOptions(fork="bloom")),
    ]
    for refused, property_named in zip(found, (core, deepspeed, bloom), strict=True):
        assert property_named in "; ".join(refused)
        assert bool(refused) == bool(property_named)


@pytest.mark.parametrize(("name", "tp", "rows"), [("qwen3-8b", 1, 151_936), ("deepseek-v3", 8, 130_048)])
def test_the_embedding_has_the_models_rows_whatever_the_size_of_the_tokenizer(name: str, tp: int, rows: int) -> None:
    """core/tokenizers/utils/build_tokenizer.py pads the number of the tokenizer's tokens, not --vocab-size.

    Qwen3's tokenizer has 151,669 tokens, DeepSeek-V3's 128,815.
    """
    run = hugging_face_run(name)
    run = replace(run, topology=replace(run.topology, tp=tp, sequence_parallel=tp > 1, dp=8 // tp))
    assert parsed(megatron_core_flags(run)).padded_vocab_size == rows


@pytest.mark.parametrize("changed", [{"rotary_fraction": 0.5}, {"rotary_interleaved": True}])
def test_yarn_applies_to_whole_heads_in_halves(changed: dict[str, Any]) -> None:
    """Megatron's `YarnRotaryEmbedding` ignores --rotary-percent and asserts that rotation is not interleaved."""
    run = hugging_face_run("afm-4.5b")
    model = replace(run.workload.model, **changed)
    run = replace(run, workload=replace(run.workload, model=model))
    assert MEGATRON_CORE.refused(run, ExportOptions()) == ["rotary_scaling"]


CHECKOUT = os.environ.get("MEGATRON_LM", "")


def _answers(exported: list[ProductionRun]) -> list[dict[str, Any]]:
    """Return the answers of Megatron-LM's own parser, validation and config classes to exports."""
    cases = [
        {
            "world": run.topology.gpus,
            # these fusions need Transformer Engine, which is not installed without a GPU
            "flags": [*[word for flag in megatron_core_flags(run) if flag != FUSED for word in flag], *_unfused(run)],
        }
        for run in exported
    ]
    python = os.environ.get("MEGATRON_PYTHON", sys.executable)
    script = str(ROOT / "tests" / "export" / "megatron_parser.py")
    done = subprocess.run([python, "-W", "ignore", script], input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


FUSED = ("--moe-permute-fusion",)


def _unfused(run: ProductionRun) -> list[str]:
    return [] if run.workload.model.rotary_interleaved else ["--no-rope-fusion"]


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="MEGATRON_LM names no checkout of Megatron-LM")
def test_megatrons_own_parser_and_config_classes_accept_exports() -> None:
    exported = [*RICH]
    exported += [one for one in map(hugging_face_run, DENSE) if not MEGATRON_CORE.refusals(one, ExportOptions())]
    for run, answer in zip(exported, _answers(exported), strict=True):
        model, topology = run.workload.model, run.topology
        assert "error" not in answer, (model.name, answer["error"])
        config, arguments = answer["config"], answer["arguments"]
        assert (config["num_layers"], config["hidden_size"], config["ffn_hidden_size"]) == (
            *(model.layers, model.hidden),
            model.ffn,
        )
        assert (config["num_attention_heads"], config["num_query_groups"]) == (model.heads, model.kv_heads)
        assert config["kv_channels"] == (model.latent.nope_size if model.latent else model.query_width // model.heads)
        function = {"silu": "silu", "relu2": "squared_relu", "quick_gelu": "quick_gelu"}
        assert config["activation_func"] == function.get(model.mlp_activation, "gelu")
        assert config["gated_linear_unit"] == model.gated_mlp
        if config["activation_func"] == "gelu":
            assert config["bias_activation_fusion"] == (model.mlp_activation == "gelu_tanh")
        assert config["layernorm_epsilon"] == model.norm_epsilon
        assert config["layernorm_zero_centered_gamma"] == model.norm_offset
        assert config["qk_layernorm"] == (model.qk_norm or model.latent is not None)
        assert (config["add_bias_linear"], config["add_qkv_bias"]) == (model.mlp_bias, model.qkv_bias)
        assert (config["attention_dropout"], config["hidden_dropout"]) == (
            model.attention_dropout,
            model.hidden_dropout,
        )
        assert config["init_method_std"] == model.init_std
        assert config["softmax_scale"] is None
        bounded = 0 < model.sliding_window < model.seq
        assert config["window_size"] == ([model.sliding_window - 1, 0] if bounded else None)
        windows = [model.is_windowed_layer(layer) for layer in range(model.layers)]
        frequency = windows if model.window_start else model.window_skip or None
        assert config["window_attn_skip_freq"] == (frequency if bounded else None)
        pattern = ([0] * (model.rotary_skip - 1) + [1]) * (model.layers // max(1, model.rotary_skip))
        assert config["no_rope_freq"] == (pattern if model.rotary_skip else None)
        built = answer["model"]
        assert built["share_embeddings_and_output_weights"] == model.tied_embeddings
        assert (built["vocab_size"], built["should_pad_vocab"]) == (model.padded_vocab(topology.tp), False)
        if model.latent:
            yarn = model.rotary_scaling
            assert (config["rotary_base"], config["rope_type"]) == (model.rotary_base, "yarn" if yarn else "rope")
            known = [config[name] for name in ("original_max_position_embeddings", "beta_fast", "beta_slow")]
            assert yarn is None or known == [yarn.original_seq, yarn.beta_fast, yarn.beta_slow]
            assert yarn is None or config["rotary_scaling_factor"] == yarn.factor
        elif model.positions == "rotary":
            assert (built["rotary_base"], built["rotary_percent"]) == (model.rotary_base, model.rotary_fraction)
            scaling = model.rotary_scaling
            assert built["rope_scaling"] == bool(scaling and scaling.kind == "llama3")
            assert built["rope_scaling_factor"] == 8.0
            assert (built["seq_len_interpolation_factor"] or 1) == (
                scaling.factor if scaling and scaling.kind == "linear" else 1
            )
        selected = topology.recompute.split("+") if "+" in topology.recompute else ["core_attn"]
        assert (config["recompute_modules"], config["tensor_model_parallel_size"]) == (selected, topology.tp)
        assert config["overlap_moe_expert_parallel_comm"] == topology.moe_overlap
        assert config["pipeline_model_parallel_size"] == topology.pp
        assert (config["virtual_pipeline_model_parallel_size"] or 1) == topology.vpp
        assert config["context_parallel_size"] == topology.cp
        assert config["sequence_parallel"] == topology.sequence_parallel
        assert arguments["data_parallel_size"] == topology.dp
        assert arguments["use_distributed_optimizer"] == (topology.zero == 1)
        assert (arguments["seq_length"], arguments["global_batch_size"]) == (model.seq, run.workload.global_batch)
        if model.experts and model.experts.router_bias:
            assert config["moe_router_bias_update_rate"] == model.experts.router_bias_rate
        assert (config["mtp_num_layers"] or 0) == model.mtp_layers
        assert config["mtp_loss_scaling_factor"] == (model.mtp_loss if model.mtp_layers else 0.1)
        assert config["fp4"] == ("e2m1" if run.workload.precision == "fp4" else None)
        recipe = recipe_of(run.workload) if run.workload.precision == "fp8" else None
        assert config["fp8"] == (RECIPE_FORMATS[recipe] if recipe else None)
        assert config["fp8_param"] == stores_fp8_weights(run.workload)
        kept = bf16_layers(run.workload)
        assert config["first_last_layers_bf16"] == any(kept)
        read = (config["num_layers_at_start_in_bf16"], config["num_layers_at_end_in_bf16"])
        assert read == (kept if any(kept) else (1, 1))
        assert arguments["reuse_grad_buf_for_mxfp8_param_ag"] == (config["fp8_param"] and recipe == "mxfp8")


def test_the_rows_of_the_embedding_do_not_depend_on_the_tokenizer() -> None:
    """Megatron pads the tokenizer's tokens unless `--padded-vocab-size` is given, and Qwen3's tokenizer has 151,669."""
    for tp, rows in ((1, "151936"), (8, "152576")):
        flags = megatron_core_flags(bloom(f"tp{tp}-pp1-dp1-mbs1-z1", model="qwen3-8b", nodes=1, global_batch=8))
        assert ("--padded-vocab-size", rows) in flags
