"""`--trainer accelerate`: the flags of `accelerate launch` and of the script."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError, TunerWarning
from tuner.launch.trainers.command import TrainerCommand

FSDP = (
    "accelerate launch --mixed-precision=bf16 --num_processes 2 --fsdp_sharding_strategy FULL_SHARD --use_fsdp train.py"
)
DEEPSPEED = "accelerate launch --use_deepspeed --zero_stage 2 --gradient-accumulation-steps 4 -m pkg.train"
TOPOLOGY = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=2, zero=3, recompute="full")
WORKLOAD = Workload(model=catalog.model("llama-3-8b"), global_batch=64, precision="bf16", attention="flash2")


def job(command: str, topology: Topology = TOPOLOGY) -> list[str]:
    return [*TrainerCommand.parse("accelerate", command).job(WORKLOAD, topology, Path("x"))]


def test_fsdp2_flags_precede_the_script_and_the_batch_follows_it() -> None:
    """FSDP2 flags go before the script and batch flags after it, also if a flag without a value precedes the script."""
    given = (
        f"{FSDP} --lr 1e-4 --per_device_train_batch_size 8 --checkpointing_steps epoch --gradient_accumulation_steps=9"
    )
    assert job(given) == split(
        "accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 --use_fsdp --fsdp_version 2 "
        "--fsdp_reshard_after_forward true --fsdp_activation_checkpointing true --fsdp_offload_params false "
        "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP train.py --lr 1e-4 "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    )
    other = replace(TOPOLOGY, zero=2, hsdp=2, recompute="none", offload="optimizer+parameters")
    assert job(f"{FSDP}".replace("--use_fsdp", "--fsdp_auto_wrap_policy SIZE_BASED_WRAP"), other) == split(
        "accelerate launch --fsdp_auto_wrap_policy SIZE_BASED_WRAP --num_processes 8 --num_machines 1 "
        "--mixed_precision bf16 --use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false "
        "--fsdp_activation_checkpointing false --fsdp_offload_params true --use_parallelism_config "
        "--parallelism_config_dp_replicate_size 2 --parallelism_config_dp_shard_size 4 "
        "--parallelism_config_tp_size 1 --parallelism_config_cp_size 1 train.py "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    )


def test_deepspeed_is_kept_if_the_command_has_it() -> None:
    topology = replace(TOPOLOGY, zero=1, recompute="none", offload="optimizer")
    assert job(f"{DEEPSPEED} --batch {{micro_batch}}", topology) == split(
        "accelerate launch --use_deepspeed -m --num_processes 8 --num_machines 1 --mixed_precision bf16 --zero_stage 1 "
        "--gradient_accumulation_steps 4 --offload_optimizer_device cpu --offload_param_device none pkg.train "
        "--batch {micro_batch}"
    )


def completed(command: str, **given: Any) -> dict[str, Any]:
    return TrainerCommand.parse("accelerate", command).completed({"model": "tiny", **given})


def test_the_command_determines_framework_precision_and_axes() -> None:
    found = completed(FSDP, settings=("tp=2",))
    assert (found["framework"], found["precision"]) == ("fsdp2", "bf16")
    assert found["settings"] == ("tp=2", "pp=1", "ep=1", "cp=1")
    found = completed(DEEPSPEED)
    assert (found["framework"], found["precision"]) == ("deepspeed", "fp32")
    assert found["settings"] == ("pp=1", "ep=1", "tp=1", "cp=1", "recompute=none")
    found = completed("accelerate launch --cpu train.py")
    assert (found["framework"], found["settings"][-1]) == ("any", "zero=0")


def test_a_command_without_a_precision_trains_in_fp32_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate trains in fp32 without `--mixed_precision`, which jobs then get for another `--precision` only."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # accelerate launch replaces it
    plain, topology = "accelerate launch t.py", replace(TOPOLOGY, recompute="none")
    assert completed(plain)["precision"] == completed(plain, precision="fp32")["precision"] == "fp32"
    trainer = TrainerCommand.parse("accelerate", plain)
    assert "--mixed_precision" not in trainer.job(replace(WORKLOAD, precision="fp32"), topology, Path("x"))
    with pytest.warns(TunerWarning, match="--precision bf16, which --command does not set: without it, accelerate tr"):
        assert completed(plain, precision="bf16")["precision"] == "bf16"
    assert "--mixed_precision bf16" in " ".join(job(plain, topology))
    stated = TrainerCommand.parse("accelerate", "accelerate launch --mixed_precision no -m t.py")
    assert stated.completed({"model": "tiny"})["precision"] == "fp32"
    assert "--mixed_precision no" in " ".join(stated.job(replace(WORKLOAD, precision="fp32"), topology, Path("x")))


def test_accelerates_default_config_sets_the_usual_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that `accelerate config` writes applies to commands without `--mixed_precision`, but not to `--cpu`."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/default_config.yaml").write_text("debug: false\nmixed_precision: 'fp16'\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert completed("accelerate launch t.py")["precision"] == "fp16"
    assert completed("accelerate launch --cpu t.py")["precision"] == "fp32"
    trainer = TrainerCommand.parse("accelerate", "accelerate launch t.py")
    assert "--mixed_precision" not in trainer.job(replace(WORKLOAD, precision="fp16"), TOPOLOGY, Path("x"))
    assert "--mixed_precision no" in " ".join(trainer.job(replace(WORKLOAD, precision="fp32"), TOPOLOGY, Path("x")))


def test_the_deepspeed_config_may_enable_the_precision(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}}')
    command = f"accelerate launch --use_deepspeed --deepspeed_config_file {tmp_path / 'ds.json'} t.py"
    assert completed(command)["precision"] == "bf16"
    assert "--mixed_precision" not in job(command, replace(TOPOLOGY, recompute="none"))


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        ("python train.py", {}, "--command must begin with 'accelerate launch', as --trainer starts it"),
        (FSDP, {"settings": ("pp=2",)}, "--trainer accelerate does not support --set pp=2; remove it"),
        (DEEPSPEED, {"settings": ("tp=2",)}, "--trainer accelerate does not support --set tp=2"),
        (FSDP, {"precision": "fp16"}, "--precision fp16 contradicts --command, whose flags mean bf16"),
        (FSDP, {"framework": "deepspeed"}, "--trainer accelerate runs fsdp2, not deepspeed"),
        (FSDP, {"nodes": 2}, "--trainer accelerate starts ranks on 1 node only, but --nodes is 2; write"),
        (FSDP, {"model": None}, "does not describe the model for --trainer accelerate; add for example --model"),
        ("accelerate launch --config_file a.yaml t.py", {}, "does not read --config_file; write its settings as flags"),
    ],
)
def test_unsupported_combinations_are_refused(command: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        completed(command, **given)


@pytest.mark.parametrize("command", [FSDP, DEEPSPEED])
def test_accelerates_own_parser_and_plugin_read_the_topology(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    utils = pytest.importorskip("accelerate.utils")
    topology = replace(TOPOLOGY, hsdp=2) if command is FSDP else replace(TOPOLOGY, recompute="none")
    read = launch.launch_command_parser().parse_args(job(command, topology)[2:])
    assert (read.training_script, read.num_processes, read.mixed_precision) == (
        *("train.py" if command is FSDP else "pkg.train", 8),
        "bf16",
    )
    assert read.training_script_args == split("--per_device_train_batch_size 2 --gradient_accumulation_steps 4")
    if command is DEEPSPEED:
        assert (read.use_deepspeed, read.zero_stage, read.gradient_accumulation_steps, read.module) == (
            True,
            3,
            4,
            True,
        )
        return
    assert not read.use_deepspeed
    assert (read.parallelism_config_dp_replicate_size, read.parallelism_config_dp_shard_size) == (2, 4)
    read.main_process_port, read.num_cpu_threads_per_process, read.dynamo_backend = 0, 1, "no"
    for name, value in utils.launch.prepare_multi_gpu_env(read).items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = utils.FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward, plugin.activation_checkpointing) == (2, True, True)


def test_switches_are_those_of_accelerates_parser() -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    found = {
        name
        for action in launch.launch_command_parser()._actions
        if action.nargs == 0
        for name in action.option_strings
    }
    known = TrainerCommand.parse("accelerate", FSDP).kind.launcher
    assert known
    assert {name for name in found if "-" not in name[2:]} - {"--help", "-h"} == known.switches


@pytest.mark.slow
def test_an_unmodified_script_is_studied_on_the_cpu(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    script = ROOT / "tests/trainers/accelerate_loop.py"
    said = run(
        *(
            "optimize",
            "--launcher",
            "local",
            "--trainer",
            "accelerate",
            "--model",
            "tiny",
            "--nodes",
            "1",
            "--budget",
            "2",
        ),
        *("--gpus-per-node", "2", "--global-batch", "8", "--json", "--runs", str(tmp_path), "--precision", "fp32"),
        *(
            "--command",
            f"accelerate launch --cpu {script} --per-device-batch {{micro_batch}} --accumulation {{microbatches}}",
        ),
    )
    assert said.code == 0, said.err
    assert {trial["outcome"] for trial in json.loads(said.out)["trials"]} == {"MEASURED"}
