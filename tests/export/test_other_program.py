"""Exports whose program is not the one that the study ran."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.export.test_export import EXPECTED, LLAMA, bloom, exported
from tests.workers import needs_deepspeed
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel
from tuner.export.bundle import FORMATS, bundle
from tuner.export.formats import ExportOptions
from tuner.export.other_framework import other_framework_note
from tuner.export.production import ProductionRun
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.space.build import space_for

HF_TRAINER = "hf.py --per_device_train_batch_size {micro_batch} --gradient_checkpointing {recompute} --zero {zero}"


def hf_run() -> ProductionRun:
    return bloom("tp1-pp1-dp32-mbs1-z3", **LLAMA, attention="flash2", framework="deepspeed")


def test_the_readme_of_an_own_program_claims_nothing_of_its_learning_rate() -> None:
    """Nor does it give a share of the memory that was not measured."""
    run = replace(hf_run(), expected=replace(EXPECTED, memory=None))
    own, config = (exported(run, "slurm", command=f"{HF_TRAINER}{more}") for more in ("", " --config {ds_config}"))
    assert "learning rate" not in own["README.md"]
    assert "The learning rate, warm-up and checkpoint interval are common defaults" in config["README.md"]
    assert "| GiB on the fullest GPU | not measured; 78.8 usable |" in own["README.md"]


@pytest.mark.parametrize("passed", ["--deepspeed {ds_config}", "--deepspeed={ds_config}", "--config {ds_config}"])
def test_hf_trainer_gets_a_config_without_values_of_its_own(passed: str) -> None:
    """HF Trainer ignores its `--optim` if the config has an optimizer, and `auto` takes clipping from its arguments."""
    files = exported(hf_run(), "slurm", command=f"{HF_TRAINER} {passed}")
    config = json.loads(files["ds_config.json"])
    leaves = not passed.startswith("--config")
    assert ("scheduler" in config) == ("optimizer" in config) == (not leaves)
    assert (config["gradient_clipping"] == "auto") == leaves
    assert ("optimizer and the learning rate schedule are those of --command" in files["ds_config.md"]) == leaves
    assert ("HF Trainer fills it in from its arguments" in files["ds_config.md"]) == leaves
    assert config["train_micro_batch_size_per_gpu"] == 1
    prefetch = "| `zero_optimization.stage3_prefetch_bucket_size` | `50000000` | DeepSpeed's default: 50 million"
    assert prefetch in files["ds_config.md"]


def test_an_export_to_another_framework_says_what_to_expect_of_it() -> None:
    """A study of one framework, exported to another, does not promise the former's time and memory."""
    run = bloom("tp1-pp1-dp32-mbs2-z3", **LLAMA, framework="torchtitan", attention="flash2")
    assert other_framework_note(run, FORMATS["torchtitan"], ExportOptions()) == ""
    note = other_framework_note(run, FORMATS["accelerate"], ExportOptions())
    assert note.startswith("The study ran torchtitan, but these files start fsdp2, for which the uncalibrated estimate")
    assert f"**{note}**" in bundle(run, "accelerate", note=note)["README.md"].splitlines()
    estimate = CostModel().score(Columns.of([run.topology], replace(run.workload, framework="fsdp2"), run.cluster))
    assert f"{estimate.memory[0] / 2**30:.1f} of " in note
    assert f"{estimate.seconds[0]:.2f} s per iteration" in note
    assert ("run out of memory" in note) != bool(estimate.fits[0])
    assert other_framework_note(run, FORMATS["slurm"], ExportOptions(command="train.py")) == ""


@pytest.mark.parametrize(
    ("key", "nodes", "segment"),
    [
        ("tp2-pp4-dp32-mbs1-z1-sp-ep64-hybridep", 64, 16),
        ("tp8-pp4-dp8-mbs1-z1-sp-ep4-alltoall", 64, 2),
        ("tp1-pp4-dp64-mbs1-z1-ep4-hybridep", 64, 0),
        ("tp2-pp2-dp16-mbs1-z1-sp-ep32-hybridep", 16, 16),
        ("tp2-pp2-dp16-mbs1-z1-sp-ep32-hybridep", 64, 16),
        ("tp1-pp2-dp2-mbs1-z1-ep2-hybridep", 64, 0),
    ],
)
def test_several_racks_are_allocated_in_segments(key: str, nodes: int, segment: int) -> None:
    """A group that spans nodes within an NVLink domain must not be split between racks, nor a job that fits into one.

    Slurm may split a job of 16 nodes of 4 GPUs, although one rack could run it and the estimate assumes that it does.
    """
    space = space_for(model="qwen3-30b-a3b", gpu="GB200-192GB", nodes=nodes, global_batch=2048)
    topology = parse_key(key, **space.key_context)
    run = ProductionRun(
        name="rack", workload=space.workload, cluster=space.cluster, topology=topology, expected=EXPECTED
    )
    assert run.segment == segment
    files = bundle(run, "megatron-core")
    readme = files["README.md"]
    assert (f"`sbatch --segment={segment} launch.sbatch`" in readme) == bool(segment)
    assert "--segment" not in files["launch.sbatch"]
    requested = bundle(run, "megatron-core", options=ExportOptions(site=SiteProfile(segment=True)))
    assert (f"#SBATCH --segment={segment}\n" in requested["launch.sbatch"]) == bool(segment)
    assert ("launch.sbatch requests it (`--segment`)" in requested["README.md"]) == bool(segment)
    assert "sbatch --segment" not in requested["README.md"]
    assert ("all 16 nodes share an NVLink domain of 72 GPUs" in readme) == (segment == topology.nodes)


@pytest.mark.slow
def test_hf_trainers_own_class_accepts_an_exported_config() -> None:
    """transformers compares the config with its arguments, and raises for every value that differs."""
    transformers = pytest.importorskip("transformers")
    needs_deepspeed()
    integration = pytest.importorskip("transformers.integrations.deepspeed")
    run = hf_run()
    config = json.loads(exported(run, "slurm", command=f"{HF_TRAINER} --deepspeed {{ds_config}}")["ds_config.json"])
    usual = transformers.TrainingArguments(use_cpu=True)
    names = ("learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "fp16")
    arguments = SimpleNamespace(
        **{name: getattr(usual, name) for name in (*names, "save_on_each_node", "warmup_steps")},
        bf16=True,
        fp16_full_eval=False,
        bf16_full_eval=False,
        gradient_checkpointing=True,
        world_size=32,
        per_device_train_batch_size=run.topology.micro_batch,
        gradient_accumulation_steps=run.microbatches,
        get_warmup_steps=lambda _: 0,
    )
    read = integration.HfTrainerDeepSpeedConfig(config)
    read.trainer_config_process(arguments)
    read.trainer_config_finalize(arguments, SimpleNamespace(config=SimpleNamespace(hidden_size=4096)), 1000)
    assert read.config["gradient_clipping"] == usual.max_grad_norm
    assert read.config["train_batch_size"] == run.workload.global_batch
