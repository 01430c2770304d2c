"""`--trainer nemo`: overrides of Megatron Bridge's recipes and of NeMo 2's."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.export.test_megatron_core import DENSE, hugging_face_run
from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.formats import ExportOptions
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.nemo import NEMO as NEMO_KIND
from tuner.launch.trainers.nemo_model import PARALLEL

PYTHON = os.environ.get("MEGATRON_PYTHON") or (sys.executable if importlib.util.find_spec("megatron") else "")
BRIDGE = "python scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config --dataset mock"
NEMO = "nemo llm pretrain --factory llama3_8b"
TOPOLOGY = Topology(
    nodes=4, tp=2, pp=2, dp=8, vpp=4, micro_batch=2, zero=1, sequence_parallel=True, recompute="selective"
)


def flags(command: str, model: str = "llama-3-8b", **changes: Any) -> dict[str, str]:
    workload = Workload(model=catalog.model(model), global_batch=64, precision="bf16", attention="flash2")
    words = TrainerCommand.parse("nemo", command).job_flags(workload, replace(TOPOLOGY, **changes), Path("x"))
    pairs = [word.split("=", 1) for word in words]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def test_bridge_gets_overrides_in_hydra_syntax() -> None:
    found = flags(BRIDGE)
    assert (found["model.tensor_model_parallel_size"], found["model.pipeline_model_parallel_size"]) == ("2", "2")
    assert found["model.virtual_pipeline_model_parallel_size"] == "4"
    assert (found["model.sequence_parallel"], found["model.pipeline_model_parallel_layout"]) == ("true", "null")
    assert (found["model.recompute_granularity"], found["model.recompute_modules"]) == ("selective", "[core_attn]")
    assert (found["train.micro_batch_size"], found["train.global_batch_size"], found["train.eval_iters"]) == (
        *("2", "64"),
        "0",
    )
    assert (found["++dataset.seq_length"], found["model.seq_length"]) == ("8192", "8192")
    assert (found["ddp.use_distributed_optimizer"], found["optimizer.use_distributed_optimizer"]) == ("true", "true")
    assert (found["checkpoint.save"], found["logger.log_interval"]) == ("null", "1")
    assert "model.expert_model_parallel_size" not in found
    assert flags(BRIDGE, recompute="layernorm+moe_act")["model.recompute_modules"] == "[layernorm,moe_act]"
    other = flags(BRIDGE, zero=0, vpp=1, recompute="full", partition="embedding")
    assert other["model.virtual_pipeline_model_parallel_size"] == "null"
    assert other["model.account_for_loss_in_pipeline_split"] == "true"
    assert other["model.recompute_num_layers"] == "1"
    assert {name: value for name, value in other.items() if name.startswith("ddp.")} == {
        "ddp.use_distributed_optimizer": "false",
        "ddp.overlap_grad_reduce": "true",
        "ddp.overlap_param_gather": "false",
    }


@pytest.mark.parametrize(("word", "on"), [("", "off"), ("=true", "on"), ("=True", "on"), ("=false", "off")])
def test_the_overlap_of_the_exchange_stays_as_an_override_has_it(word: str, on: str) -> None:
    override = f" comm_overlap.overlap_moe_expert_parallel_comm{word}" * bool(word)
    trainer = TrainerCommand.parse("nemo", BRIDGE + override)
    assert dict(trainer.kind.pinned(trainer.fixed)) == {"moe_overlap": on}


def test_nemo_2_gets_overrides_in_its_own_syntax() -> None:
    found = flags(NEMO, recompute="full")
    assert (found["trainer.strategy.tensor_model_parallel_size"], found["trainer.strategy.sequence_parallel"]) == (
        *("2",),
        "True",
    )
    assert (found["trainer.num_nodes"], found["trainer.devices"]) == ("4", "8")
    assert (found["data.micro_batch_size"], found["data.global_batch_size"], found["data.seq_length"]) == (
        *("2", "64"),
        "8192",
    )
    assert (found["model.config.recompute_granularity"], found["model.config.recompute_num_layers"]) == ("full", "1")
    assert (found["trainer.limit_val_batches"], found["trainer.log_every_n_steps"]) == ("0", "1")
    assert found["trainer.strategy.pipeline_model_parallel_layout"] == "None"


@pytest.mark.parametrize(("command", "section"), [(BRIDGE, "model"), (NEMO, "trainer.strategy")])
def test_experts_and_their_dispatcher_are_set(command: str, section: str) -> None:
    found = flags(command, model="qwen3-30b-a3b", ep=4, etp=1, dispatcher="deepep")
    assert (found[f"{section}.expert_model_parallel_size"], found[f"{section}.expert_tensor_parallel_size"]) == (
        *("4",),
        "1",
    )
    where = "model" if section == "model" else "model.config"
    assert (found[f"{where}.moe_token_dispatcher_type"], found[f"{where}.moe_flex_dispatcher_backend"]) == (
        *("flex",),
        "deepep",
    )


def test_overrides_of_the_user_are_replaced_or_kept() -> None:
    more = "-tp 8 --micro_batch_size 4 ++model.sequence_parallel=false -gb=64 optimizer.lr=1e-4 train.train_iters=50"
    trainer = TrainerCommand.parse("nemo", f"{BRIDGE} {more}")
    assert trainer.words == (*BRIDGE.split(), "optimizer.lr=1e-4", "train.train_iters=50")
    trainer = TrainerCommand.parse("nemo", f"{NEMO} trainer.devices=2 data.seq_length=8192 trainer.max_steps=9 -y")
    assert trainer.words == (*NEMO.split(), "trainer.max_steps=9", "-y")


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        (f"{BRIDGE} train.global_batch_size=32", {"global_batch": 64}, "contradicts train.global_batch_size 32 in"),
        (f"{BRIDGE} -gb 32", {"global_batch": 64}, "--global-batch 64 contradicts -gb 32 in --command"),
        (f"{NEMO} data.seq_length=4096", {"seq": 8192}, "--seq 8192 contradicts data.seq_length 4096 in --command"),
        (f"{BRIDGE} mixed_precision=bf16_with_fp8_current_scaling_mixed", {"precision": "bf16"}, "flags mean fp8"),
        (f"{BRIDGE} mixed_precision=bf16_with_nvfp4_mixed", {"precision": "bf16"}, "flags mean fp4"),
        (BRIDGE, {"settings": ("offload=optimizer",)}, "--trainer nemo does not support --set offload=optimizer"),
        (
            BRIDGE,
            {"model": None},
            "does not describe the model for --trainer nemo; add for example --model config.json",
        ),
    ],
)
def test_contradictions_are_refused(command: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("nemo", command).completed({"model": "llama-3-8b", **given})


def test_sizes_in_overrides_must_be_those_of_the_model() -> None:
    model = catalog.model("llama-3-8b")
    TrainerCommand.parse("nemo", f"{BRIDGE} model.num_layers=32 model.hidden_size=4096").check(model)
    with pytest.raises(InputError, match=r"model\.num_layers 4 in --command contradicts the model, whose value is 32"):
        TrainerCommand.parse("nemo", f"{BRIDGE} model.num_layers=4").check(model)
    with pytest.raises(InputError, match=r"model\.config\.num_query_groups 4 in --command contradicts the model"):
        TrainerCommand.parse("nemo", f"{NEMO} model.config.num_query_groups=4").check(model)


@pytest.mark.parametrize(
    ("name", "override", "value"),
    [
        ("qwen3-30b-a3b", "moe_ffn_hidden_size=1024", "whose value is 768;"),
        ("qwen3-30b-a3b", "kv_channels=64", "whose value is 128;"),
        ("qwen3-30b-a3b", "kv_channels=null", "whose value is 128;"),
        ("qwen3-30b-a3b", "num_query_groups=null", "whose value is 4;"),
        ("qwen3-30b-a3b", "vocab_size=32000", "whose value is 151936;"),
        ("qwen3-30b-a3b", "vocab_size=151936", ""),
        ("qwen3-30b-a3b", "vocab_size=152576 model.tensor_model_parallel_size=8", ""),
        ("qwen3-30b-a3b", "vocab_size=null", ""),
        ("qwen3-30b-a3b", "mtp_num_layers=3", "whose value is 0;"),
        ("qwen3-30b-a3b", "mtp_num_layers=null", ""),
        ("qwen3-30b-a3b", "moe_shared_expert_intermediate_size=768", "whose value is 0;"),
        ("qwen3-30b-a3b", "moe_layer_freq=2", "which has experts in other layers;"),
        ("qwen3-30b-a3b", "moe_layer_freq='([1]*48)'", ""),
        ("qwen3-30b-a3b", "rotary_base=10000", "whose value is 1e"),
        ("qwen3-30b-a3b", "rotary_base=1e6", ""),
        ("qwen3-30b-a3b", "qk_layernorm=false", "whose value is true;"),
        ("qwen3-30b-a3b", "qk_layernorm=True", ""),
        ("qwen3-30b-a3b", "window_size=[127,0]", "which has no such part;"),
        ("qwen3-30b-a3b", "window_size=null", ""),
        ("qwen3-30b-a3b", "moe_router_topk_scaling_factor=2.5", "whose value is 1;"),
        ("qwen3-30b-a3b", "moe_router_num_groups=8", "whose value is 0;"),
        ("qwen3-30b-a3b", "moe_router_num_groups=null", ""),
        ("qwen3-30b-a3b", "moe_aux_loss_coeff=0.5", "whose value is 0.001;"),
        ("qwen3-30b-a3b", "normalization=LayerNorm", "whose value is RMSNorm;"),
        ("qwen3-30b-a3b", "activation_func=torch.nn.functional.gelu", "whose value is silu;"),
        ("qwen3-30b-a3b", "activation_func=torch.nn.functional.silu", ""),
        ("qwen3-30b-a3b", "share_embeddings_and_output_weights=true", "whose value is false;"),
        ("qwen3-30b-a3b", "num_layers=${layers}", "whose value is 48;"),
        ("llama-3-8b", "num_moe_experts=8", "whose value is 0;"),
        ("llama-3-8b", "num_moe_experts=null", ""),
        ("llama-3-8b", "rope_scaling=true", "whose value is false;"),
        ("llama-3.2-1b", "rope_scaling=true model.rope_scaling_factor=32", ""),
        ("llama-3.2-1b", "rope_scaling_factor=8", "whose value is 32;"),
        ("deepseek-v3", "mtp_num_layers=null", "whose value is 1;"),
        ("deepseek-v3", "q_lora_rank=512", "whose value is 1536;"),
        ("deepseek-v3", "mscale_all_dim=0", "whose value is 1;"),
        ("deepseek-v3", "beta_fast=1", "whose value is 32;"),
        ("gpt-oss-120b", "window_size=[127,0]", ""),
        ("gpt-oss-120b", "window_size=null", "whose value is 127,0;"),
        ("gpt-oss-120b", "window_attn_skip_freq=null", "which has windows in other layers;"),
        ("gpt-oss-120b", "yarn_mscale=2", "which multiplies rotated queries and keys by 1.34657;"),
        ("gpt-oss-120b", "yarn_mscale=null", ""),
        ("gpt-oss-120b", "yarn_correction_range_round_to_int=true", "whose value is false;"),
        ("gpt-oss-120b", "softmax_type=vanilla", "whose value is learnable;"),
    ],
)
@pytest.mark.parametrize(("command", "section"), [(BRIDGE, "model"), (NEMO, "model.config")])
def test_overrides_describe_the_model(command: str, section: str, name: str, override: str, value: str) -> None:
    """Each is compared by its own name; what the recipe sets is not known."""
    model = hugging_face_run(name).workload.model
    trainer = TrainerCommand.parse("nemo", f"{command} {section}.{override}")
    field = re.escape(f"{section}.{override.partition('=')[0]}")
    refused = pytest.raises(InputError, match=f"^{field} .* in --command contradicts the model, {value}")
    with refused if value else nullcontext():
        trainer.check(model)
        assert not trainer.kind.trained(trainer.fixed, model).not_understood


def test_layers_that_no_field_expresses_are_refused() -> None:
    model = hugging_face_run("qwen3-30b-a3b").workload.model
    trainer = TrainerCommand.parse("nemo", f"{BRIDGE} model.moe_latent_size=64 model.qk_l2_norm=false")
    with pytest.raises(InputError, match=r"--command has model\.moe_latent_size, which no field of the model"):
        trainer.check(model)
    trainer.check(replace(model, not_understood=("moe_latent_size",)))


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ("model.moe_router_force_load_balancing=true", ["model.moe_router_force_load_balancing"]),
        ("model.moe_router_force_load_balancing=false", []),
        ("model.softmax_scale=0.1 model.freeze_language_model=true", ["softmax_scale", "freeze_language_model"]),
        ("model.moe_expert_rank_capacity_factor=1.5", ["model.moe_expert_rank_capacity_factor"]),
        ("model.tp_comm_overlap=true model.fp8=hybrid model.moe_permute_fusion=true model.cuda_graph_impl=local", []),
        ("model.attention_backend=flash model.apply_rope_fusion=true model.gradient_accumulation_fusion=false", []),
        ("train.train_iters=5 optimizer.lr=1e-4 ddp.average_in_collective=true", []),
    ],
)
def test_overrides_that_are_not_compared_keep_a_study_from_being_exported(overrides: str, named: list[str]) -> None:
    """Settings of layout and performance train the same model."""
    model = hugging_face_run("qwen3-30b-a3b").workload.model
    trainer = TrainerCommand.parse("nemo", f"{BRIDGE} {overrides}")
    trainer.check(model)
    found = trainer.kind.trained(trainer.fixed, model).not_understood
    assert [name.removeprefix("model.") for name in found] == [name.removeprefix("model.") for name in named]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ("bf16_mixed ddp.grad_reduce_in_fp32=false", ["ddp.grad_reduce_in_fp32"]),
        ("bf16_mixed mixed_precision.grad_reduce_in_fp32=false", ["mixed_precision.grad_reduce_in_fp32"]),
        ("bf16_mixed mixed_precision.grad_reduce_in_fp32=true", []),
        ("bf16_with_fp8_current_scaling_mixed mixed_precision.fp8=e4m3", ["mixed_precision.fp8"]),
        ("bf16_with_mxfp8_mixed mixed_precision.fp8=e4m3 mixed_precision.fp8_param_gather=false", []),
        ("bf16_with_fp8_delayed_scaling_mixed mixed_precision.fp8_amax_history_len=1024", []),
        (
            "bf16_with_fp8_delayed_scaling_mixed mixed_precision.fp8_amax_history_len=16 "
            "mixed_precision.fp8_wgrad=false",
            ["mixed_precision.fp8_amax_history_len", "mixed_precision.fp8_wgrad"],
        ),
        (
            "bf16_with_mxfp8_mixed mixed_precision.fp8_dot_product_attention=true model.fp8_multi_head_attention=true",
            ["model.fp8_multi_head_attention", "mixed_precision.fp8_dot_product_attention"],
        ),
        ("bf16_mixed mixed_precision.fp8=hybrid", ["mixed_precision.fp8"]),
        ("bf16_mixed model.moe_router_dtype=fp64", ["model.moe_router_dtype"]),
        ("bf16_mixed model.moe_router_dtype=fp32", []),
    ],
)
def test_a_precision_with_which_no_export_trains_is_named(overrides: str, named: list[str]) -> None:
    model = hugging_face_run("qwen3-30b-a3b").workload.model
    trainer = TrainerCommand.parse("nemo", f"{BRIDGE} mixed_precision={overrides}")
    assert {*trainer.kind.trained(trainer.fixed, model).not_understood} == {*named}


def test_overrides_that_jobs_replace_train_the_same_model() -> None:
    """Degrees, stages, recomputation and dispatchers in the command do not keep a study from being exported."""
    model = hugging_face_run("qwen3-30b-a3b").workload.model
    replaced = [name for name in NEMO_KIND.replaced if name.startswith("model.")]
    assert {f"model.{name}" for name in PARALLEL} < {*replaced}
    assert NEMO_KIND.trained(dict.fromkeys(replaced, "1"), model).not_understood == ()


def test_a_study_has_the_capacity_and_losses_of_the_overrides() -> None:
    model = hugging_face_run("deepseek-v3").workload.model
    more = "model.moe_z_loss_coeff=1e-3 model.moe_expert_capacity_factor=1.5 model.mtp_loss_scaling_factor=0.3"
    trainer = TrainerCommand.parse("nemo", f"{BRIDGE} {more}")
    found = trainer.kind.trained(trainer.fixed, model)
    assert found.experts
    assert (found.experts.z_loss, found.experts.capacity_factor, found.mtp_loss) == (0.001, 1.5, 0.3)
    assert not found.not_understood


@pytest.mark.parametrize("name", DENSE)
def test_fields_of_an_exported_recipe_are_those_of_its_model(name: str) -> None:
    run = hugging_face_run(name)
    model = run.workload.model
    if not MEGATRON_BRIDGE.refusals(run, ExportOptions()):
        settings = {f"model.{field}": value for field, value in MEGATRON_BRIDGE.settings(run, ExportOptions())}
        flags = {**settings, "model.vocab_size": f"{model.padded_vocab(1)}"}
        NEMO_KIND.check(flags, model)
        assert NEMO_KIND.trained(flags, model).not_understood == ()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge and Hydra, here or in MEGATRON_PYTHON")
def test_bridges_own_config_accepts_the_overrides() -> None:
    overrides = [f"{name}={value}" for name, value in flags(BRIDGE).items()]
    script = ROOT / "tests/launch/bridge_overrides.py"
    done = subprocess.run([PYTHON, "-W", "ignore", script, *overrides], capture_output=True, text=True, check=False)
    if missing := re.search(r"No module named '(hydra|omegaconf)'", done.stderr):
        pytest.skip(f"{missing[1]} is not installed")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    model, train = found["model"], found["train"]
    assert (found["dataset"]["sequence_length"], model["seq_length"]) == (8192, 8192)
    assert (model["tensor_model_parallel_size"], model["virtual_pipeline_model_parallel_size"]) == (2, 4)
    assert (model["sequence_parallel"], model["recompute_modules"], model["recompute_method"]) == (
        *(True, ["core_attn"]),
        None,
    )
    assert (train["micro_batch_size"], train["global_batch_size"], train["eval_iters"]) == (2, 64, 0)
    assert (found["ddp"]["use_distributed_optimizer"], found["optimizer"]["use_distributed_optimizer"]) == (True, True)
    assert (found["checkpoint"]["save"], found["logger"]["log_interval"]) == (None, 1)
