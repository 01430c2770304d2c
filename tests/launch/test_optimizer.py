"""The optimizer of a study: described by --optimizer or read from a trainer's command, estimated and exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.conftest import Run
from tests.export.megatron_namespace import parsed
from tests.export.test_export import any_run, exported
from tests.launch.test_megatron_offload import MEGATRON_ARGUMENTS
from tuner.core.columns import Columns
from tuner.core.domain import Optimizer
from tuner.core.errors import InputError
from tuner.core.keys import parse_key
from tuner.costmodel.constants import OPTIMIZER_STATE_BYTES
from tuner.costmodel.estimate import CostModel
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.logs.workload import described
from tuner.space.build import space_for
from tuner.study.api import study_settings

LM = (
    "python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --vocab-size 50257 --bf16 --global-batch-size 256 "
    "--use-precision-aware-optimizer"
)
HF = "python run_clm.py --bf16 --block_size 2048 --per_device_train_batch_size 4"
LLAMA: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100-80GB-SXM", "nodes": 2}


def settings_of(trainer: str, command: str, **more: Any) -> Any:
    described: dict[str, Any] = {"model": "llama-3-8b"} if trainer == "hf" else {}
    return study_settings(trainer=trainer, command=command, launcher="slurm", nodes=1, budget=1, **described, **more)


@pytest.mark.parametrize(
    ("trainer", "command", "optimizer"),
    [
        ("megatron-lm", LM, "adam"),
        ("megatron-lm", f"{LM} --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "adam-bf16"),
        ("megatron-lm", f"{LM} --exp-avg-dtype bf16", "adam"),
        ("megatron-lm", f"{LM.replace(' --use-precision-aware-optimizer', '')} --optimizer sgd", "sgd"),
        ("megatron-lm", f"{LM.replace(' --use-precision-aware-optimizer', '')} --optimizer muon", "muon"),
        ("megatron-lm", f"{LM} --optimizer dist_muon", "muon"),
        ("hf", HF, "adam"),
        ("hf", f"{HF} --optim adamw_torch", "adam"),
        ("hf", f"{HF} --optim adamw_8bit", "adam8bit"),
        ("hf", f"{HF} --optim adafactor", "adafactor"),
    ],
)
def test_the_optimizer_is_that_of_the_command(trainer: str, command: str, optimizer: str) -> None:
    assert settings_of(trainer, command).space.workload.optimizer == optimizer


@pytest.mark.parametrize(
    ("printed", "optimizer"),
    [
        ({"optimizer": "adam", "exp_avg_dtype": "torch.float32", "exp_avg_sq_dtype": "torch.float32"}, "adam"),
        ({"optimizer": "adam", "exp_avg_dtype": "torch.bfloat16", "exp_avg_sq_dtype": "torch.bfloat16"}, "adam-bf16"),
        ({"optimizer": "adam", "exp_avg_dtype": "torch.bfloat16", "exp_avg_sq_dtype": "torch.float32"}, "adam"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"optimizer": "muon"}, "muon"),
        ({"optimizer": "dist_muon"}, "muon"),
        ({"optimizer": "soap"}, "adam"),
        ({}, "adam"),
    ],
)
def test_the_optimizer_of_a_log_is_that_of_its_arguments(printed: dict[str, str], optimizer: str) -> None:
    found = described(MEGATRON_ARGUMENTS | printed, 8)
    assert found.workload is not None, found.lacks
    assert found.workload.optimizer == optimizer


def test_dist_muon_brings_the_distributed_optimizer_along() -> None:
    plain = LM.replace(" --use-precision-aware-optimizer", "")
    assert settings_of("megatron-lm", f"{plain} --optimizer dist_muon").space.axes["zero"] == (1,)
    assert settings_of("megatron-lm", f"{plain} --optimizer muon", settings=("zero=0,1",)).space.axes["zero"] == (0, 1)


def test_the_sharding_of_muon_is_read_from_a_log() -> None:
    printed = {"use_distributed_optimizer": "False", "use_layer_wise_distributed_optimizer": "True"}
    topology = described(MEGATRON_ARGUMENTS | printed, 8).topology
    assert topology is not None
    assert topology.zero == 1


def test_muon_is_exported_for_megatron_lm_and_refused_elsewhere() -> None:
    space = space_for(**LLAMA, optimizer="muon", global_batch=512)
    topology = parse_key("tp2-pp1-dp8-mbs1-z1-rnone", workload=space.workload, cluster=space.cluster)
    run = any_run(space.workload, space.cluster, topology)
    found = parsed(megatron_core_flags(run))
    assert (found.optimizer, found.adam_beta2, found.use_distributed_optimizer) == ("muon", 0.95, True)
    assert any("optimizer" in reason for reason in MEGATRON_BRIDGE.refusals(run, ExportOptions()))
    with pytest.raises(InputError, match="Muon does not train in fp16"):
        space_for(**LLAMA, optimizer="muon", precision="fp16")
    with pytest.raises(InputError, match="torchtitan has no"):
        space_for(**LLAMA, optimizer="muon", framework="torchtitan")


def test_another_optimizer_than_that_of_the_command_is_refused() -> None:
    with pytest.raises(InputError, match="--optimizer adam8bit contradicts the flags in --command; leave it out"):
        settings_of("hf", f"{HF} --optim adafactor", optimizer="adam8bit")
    assert settings_of("hf", HF, optimizer="adam8bit").space.workload.optimizer == "adam8bit"


def test_the_precision_aware_optimizer_pins_zero_1() -> None:
    """Without the distributed optimizer Megatron-LM raises, and each such job would be lost."""
    assert settings_of("megatron-lm", LM).space.axes["zero"] == (1,)
    plain = settings_of("megatron-lm", LM.replace(" --use-precision-aware-optimizer", ""), settings=("zero=0,1",))
    assert plain.space.axes["zero"] == (0, 1)
    with pytest.raises(InputError, match="does not support --set zero=0"):
        settings_of("megatron-lm", LM, settings=("zero=0",))


def test_states_take_the_bytes_of_the_optimizer() -> None:
    """The moments in fp32, in bf16 or in 8 bits, and an fp32 copy of each weight."""
    terms, optimizers = {}, set(get_args(Optimizer)) - {"muon"}  # it does not train all parameters
    for optimizer in optimizers:
        space = space_for(**LLAMA, optimizer=optimizer, framework="any")
        topology = parse_key("tp2-pp1-dp8-mbs1-z1", workload=space.workload, cluster=space.cluster)
        scores = CostModel().score(Columns.of([topology], space.workload, space.cluster))
        terms[optimizer] = scores.memory_terms["optimizer"][0]
    of_adam = 4 + OPTIMIZER_STATE_BYTES["adam"]
    for optimizer, own in terms.items():
        assert own / terms["adam"] == pytest.approx((4 + OPTIMIZER_STATE_BYTES[optimizer]) / of_adam)


def test_megatrons_flags_have_the_moments_in_bf16() -> None:
    space = space_for(**LLAMA, optimizer="adam-bf16", global_batch=512)
    topology = parse_key("tp2-pp1-dp8-mbs1-z1-rnone", workload=space.workload, cluster=space.cluster)
    run = any_run(space.workload, space.cluster, topology)
    assert not MEGATRON_CORE.refusals(run, ExportOptions())
    found = parsed(megatron_core_flags(run))
    assert (found.optimizer, found.exp_avg_dtype, found.exp_avg_sq_dtype) == ("adam", "bf16", "bf16")
    assert found.use_precision_aware_optimizer
    assert (found.adam_beta1, found.adam_beta2) == (0.9, 0.95)
    recipe = exported(run, "megatron-bridge")["recipe.py"]
    compile(recipe, "recipe.py", "exec")
    assert "import torch\n" in recipe
    assert "    config.optimizer.exp_avg_sq_dtype = torch.bfloat16\n" in recipe
    assert "    config.optimizer.use_precision_aware_optimizer = True\n" in recipe
    assert "    config.optimizer.optimizer = 'adam'\n" in recipe
    for change in ({"zero": 0}, {"offload": "optimizer"}):
        refused = replace(run, topology=replace(topology, **change))
        assert any("optimizer" in reason for reason in MEGATRON_CORE.refusals(refused, ExportOptions()))


def test_plan_shows_another_optimizer_than_adam(run: Run, tmp_path: Path) -> None:
    words = ("plan", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1", "--top", "1")
    assert "flash2 attention, adam-bf16" in run(*words, "--optimizer", "adam-bf16").out
    assert "adam" not in run(*words).out
    said = run("optimize", *words[1:-2], "--optimizer", "adam8bit", "--launcher", "slurm", "--runs", str(tmp_path))
    assert said.code == 2
    assert "the worker has the optimizers adam, sgd and adafactor, not adam8bit; give your own trainer" in said.err
