"""Offload and hybrid sharding in each format: supported, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.export.megatron_namespace import parsed
from tests.export.test_export import SITE, any_run, bloom, exported
from tuner.core.domain import Framework
from tuner.core.frameworks import FRAMEWORKS, record_of
from tuner.core.offload import Offload
from tuner.export.bundle import FORMATS, bundle
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.megatron_deepspeed import megatron_deepspeed_flags
from tuner.export.production import ProductionRun
from tuner.planning.plan import plan
from tuner.space.build import space_for

LLAMA: dict[str, Any] = {"model": "tests/data/huggingface/llama-3.1-8b.json", "gpu": "H100-80GB-SXM", "nodes": 2}


def offloading(offload: Offload, framework: Framework, **topology: Any) -> ProductionRun:
    space = space_for(**LLAMA, framework=framework, global_batch=512, settings=[f"offload={offload}"])
    rows = plan(space, top=0).top
    first = next(
        row.topology for row in rows if all(getattr(row.topology, name) == topology[name] for name in topology)
    )
    return any_run(space.workload, space.cluster, first)


@pytest.mark.parametrize(
    ("offload", "parts"), [("optimizer", ["optimizer"]), ("optimizer+parameters", ["optimizer", "param"])]
)
def test_deepspeeds_config_names_the_offloaded_parts(offload: Offload, parts: list[str]) -> None:
    run = offloading(offload, "deepspeed", zero=3)
    config = json.loads(bundle(run, "torchrun", ExportOptions())["ds_config.json"])
    found = {name: value for name, value in config["zero_optimization"].items() if name.startswith("offload")}
    assert found == {f"offload_{part}": {"device": "cpu", "pin_memory": True} for part in parts}
    assert json.loads(bundle(run, "torchrun", ExportOptions())["topology.json"])["topology"]["offload"] == offload


def test_megatrons_flags_offload_the_optimizer() -> None:
    """Megatron's argument check also requires the precision-aware optimizer."""
    for offload, share in (("optimizer", 1.0), ("optimizer-25", 0.25)):
        run = offloading(offload, "megatron-core")  # type: ignore[arg-type]
        found = parsed(megatron_core_flags(run))
        assert found.optimizer_cpu_offload
        assert found.use_precision_aware_optimizer
        assert found.overlap_cpu_optimizer_d2h_h2d
        assert found.optimizer_offload_fraction == share


def test_the_readme_names_the_main_memory_that_offload_takes() -> None:
    """Weights, gradients and moments in fp32 of a node's shards: 8 billion parameters on two nodes, or half of them."""
    text = exported(offloading("optimizer-50", "megatron-core"), "megatron-core")["README.md"]
    share = offloading("optimizer", "megatron-core").workload.model.parameters / 2
    assert (
        f", offload of 50% of the optimizer, which takes {share * 16 / 2 / 2**30:,.0f} GiB of a node's main memory.\n"
        in text
    )
    assert "main memory" not in exported(offloading("none", "megatron-core"), "megatron-core")["README.md"]


@pytest.mark.parametrize(("offload", "share"), [("none", None), ("optimizer", "1.0"), ("optimizer-25", "0.25")])
def test_bridges_recipe_offloads_the_optimizer(offload: Any, share: str | None) -> None:
    recipe = exported(offloading(offload, "megatron-core"), "megatron-bridge")["recipe.py"]
    compile(recipe, "recipe.py", "exec")
    assert ("config.optimizer.optimizer_cpu_offload = True" in recipe) is (share is not None)
    assert (f"config.optimizer.optimizer_offload_fraction = {share}" in recipe) is (share is not None)
    assert ("config.optimizer.use_precision_aware_optimizer = True" in recipe) is (share is not None)


def test_megatron_deepspeeds_flags_follow_its_config() -> None:
    run = bloom("tp8-pp1-dp4-mbs1-z3")
    run = replace(
        run,
        workload=replace(run.workload, model=replace(run.workload.model, positions="learned", embedding_norm=False)),
    )
    flags = {
        offload: megatron_deepspeed_flags(replace(run, topology=replace(run.topology, offload=offload)))
        for offload in ("none", "optimizer", "optimizer+parameters")
    }
    plain = flags["none"]
    assert [flag for flag in flags["optimizer"] if flag not in plain] == [("--cpu-optimizer",)]
    assert [flag for flag in flags["optimizer+parameters"] if flag not in plain] == [
        ("--cpu-optimizer",),
        ("--remote-device", "cpu"),
    ]


def test_fsdp_offloads_parameters_gradients_and_states_only_together() -> None:
    titan, fsdp = (offloading("optimizer+parameters", name) for name in ("torchtitan", "fsdp2"))
    assert (
        "fsdp_offload_params: true" in bundle(fsdp, "accelerate", ExportOptions(command="train.py"))["accelerate.yaml"]
    )
    assert "enable_cpu_offload=True," in bundle(titan, "torchtitan", ExportOptions())["recipe.py"]
    for run, name in ((titan, "torchtitan"), (fsdp, "accelerate")):
        half = replace(run, topology=replace(run.topology, offload="optimizer"))
        assert any("offload of the optimizer" in reason for reason in FORMATS[name].refusals(half, ExportOptions()))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranked_topologies_with_offload_are_exported(framework: Framework) -> None:
    """All formats of a framework support its first hundred topologies."""
    space = space_for(
        **LLAMA, framework=framework, global_batch=512, settings=["offload=optimizer,optimizer+parameters"]
    )
    record = record_of(space.workload)
    assert record is not None
    runs = [any_run(space.workload, space.cluster, row.topology) for row in plan(space, top=100).top]
    for name in record.formats:
        reasons = {reason for run in runs for reason in FORMATS[name].refusals(run, ExportOptions(site=SITE))}
        assert not {reason for reason in reasons if "offload" in reason}, name


def test_replica_groups_divide_the_data_parallel_ranks() -> None:
    """accelerate and torchtitan support replica groups; the other formats refuse them by name."""
    space = space_for(**LLAMA, framework="fsdp2", global_batch=512, settings=["hsdp=2", "zero=3", "tp=1", "cp=1"])
    run = any_run(space.workload, space.cluster, plan(space, top=1).top[0].topology)
    assert (run.topology.hsdp, run.topology.dp) == (2, 16)
    config = bundle(run, "accelerate", ExportOptions(command="train.py"))["accelerate.yaml"]
    assert "parallelism_config_dp_replicate_size: 2" in config
    assert "parallelism_config_dp_shard_size: 8" in config
    recipe = bundle(run, "torchtitan", ExportOptions())["recipe.py"]
    assert "data_parallel_replicate_degree=2," in recipe
    assert "data_parallel_shard_degree=8," in recipe
    for name in ("megatron-core", "megatron-bridge", "megatron-deepspeed", "torchrun"):
        reasons = FORMATS[name].refusals(run, ExportOptions())
        assert any("hybrid sharding with 2 replica groups" in reason for reason in reasons), name
