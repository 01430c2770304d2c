"""`--trainer nemo`: overrides of Megatron Bridge's recipes and of NeMo 2's."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.launch.trainers.command import TrainerCommand

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
