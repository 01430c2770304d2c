"""The laws of a framework are its record, in the API as on the command line, and in studies that are resumed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import tuner
from tests.conftest import Run
from tests.strategies import clusters, topologies, workloads
from tuner.core.capabilities import FrameworkRecord
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Framework, Topology, Workload
from tuner.core.errors import InputError, StudyError
from tuner.core.framework_records import MEGATRON_DEEPSPEED_FORKS
from tuner.core.frameworks import FRAMEWORKS, RECORDS
from tuner.planning.plan import plan
from tuner.space.build import space_for
from tuner.space.rules import BY_NAME, RULES, RuleSet, ruleset
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop

LAWS = {
    "framework-" + lack: lack
    for lack in ("pp", "cp", "vpp", "partition", "sequence-parallel", "zero", "recompute", "delta-net", "fork")
}


@given(topologies(), workloads(), clusters())
def test_the_laws_reject_what_the_record_lacks_and_nothing_else(
    topology: Topology, workload: Workload, cluster: Cluster
) -> None:
    columns = Columns.of([topology], workload, cluster)
    broken = {violation.rule for violation in RuleSet.only_laws().violations(columns)}
    laws = {lack for law, lack in LAWS.items() if law in broken}
    if workload.framework is None:
        assert not laws
        return
    record = RECORDS[workload.framework]
    lacks = set(record.missing_of_topology(workload, topology))
    assert laws == lacks - {"zero-with-pp"}
    assert ("zero-without-pipeline" in broken) == (
        topology.zero > 1 and topology.pp > 1 and record.separates_sharding_and_pp
    )


def small(framework: Framework | str) -> tuner.Space:
    """Two nodes of two GPUs, on which every axis has a value that some framework lacks."""
    return space_for(
        model=tuner.Model(layers=4, hidden=512, heads=8, vocab=512, seq=512),
        gpu="H100-80GB-SXM",
        nodes=2,
        gpus_per_node=2,
        global_batch=32,
        allow=["dp-multiple-of-4"],
        framework=framework,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_is_searched_that_the_framework_cannot_run(framework: Framework) -> None:
    """Every legal topology satisfies the record, and what satisfies it and is legal without frameworks is legal."""
    space, record = small(framework), RECORDS[framework]
    legal = {topology.key for points in space.blocks() for topology in space.topologies(points)}
    anywhere = small("any")
    if framework != "torchtitan":  # which alone has ZeRO 2 and 3 with a pipeline
        every = [topology for points in anywhere.blocks() for topology in anywhere.topologies(points)]
        able = {topology.key for topology in every if not record.missing_of_topology(space.workload, topology)}
        assert legal == able
    assert len(legal) > 10
    assert all(
        not record.missing_of_topology(space.workload, topology)
        for points in space.blocks()
        for topology in space.topologies(points)
    )


PLANTED = [
    ("framework-pp", "fsdp2"),
    ("framework-cp", "deepspeed"),
    ("framework-vpp", "deepspeed"),
    ("framework-sequence-parallel", "megatron-deepspeed"),
    ("framework-zero", "megatron-core"),
    ("framework-recompute", "fsdp2"),
    ("framework-fork", "megatron-deepspeed"),
]


@pytest.mark.parametrize(("law", "framework"), PLANTED)
def test_without_any_one_law_the_search_would_rank_what_the_framework_cannot_run(
    law: str, framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted mutant for each law: the laws are not made redundant by one another."""
    model = tuner.Model(layers=6, hidden=512, heads=8, vocab=512, seq=512, positions="alibi")
    fork = {"model": model, "attention": "fused"} if law == "framework-fork" else {}
    space = replace(small(framework), workload=replace(small(framework).workload, **fork))  # type: ignore[arg-type]
    before = space.count()
    monkeypatch.setattr(ruleset, "RULES", tuple(rule for rule in RULES if rule.name != law))
    without = replace(space)
    record = RECORDS[framework]
    admitted = [topology for points in without.blocks() for topology in without.topologies(points)]
    assert len(admitted) > before
    assert any(record.missing_of_topology(space.workload, topology) for topology in admitted)


def test_every_capability_has_a_source() -> None:
    for record in RECORDS.values():
        assert record.formats
        assert record.log
        assert record.upstream
        for name, capability in record.capabilities():
            assert re.match(r"\S+/\S+ at |DeepSpeed |tuner/\S+\.py|transformers ", capability.source), (
                record.name,
                name,
            )


@pytest.mark.parametrize("record", RECORDS.values(), ids=lambda record: record.name)
def test_a_default_workload_is_one_that_the_framework_can_train(record: FrameworkRecord) -> None:
    for described in ({}, {"model": "llama-3-8b", "gpu": "H100-80GB-SXM", "nodes": 2}, {"model": "bloom-176b"}):
        space = space_for(framework=record.name, **described)
        assert not record.missing_of_workload(space.workload)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            {"framework": "deepspeed", "precision": "fp8"},
            "deepspeed has no fp8 training; use --framework megatron-core or torchtitan or --precision fp32, fp16 or",
        ),
        ({"framework": "torchtitan", "precision": "fp16"}, "torchtitan has no fp16 training"),
        (
            {"framework": "torchtitan", "optimizer": "adam8bit"},
            "torchtitan has no optimizer adam8bit; use --framework deepspeed or fsdp2 or --optimizer adam.",
        ),
        (
            {"framework": "torchtitan", "attention": "eager"},
            "or fsdp2 or --attention flash2.",
        ),
        (
            {"framework": "torchtitan", "gpu": "V100-32GB-SXM", "precision": "fp32"},
            "torchtitan has no eager attention; use .* or fsdp2 or a --gpu that runs flash2 attention.",
        ),
        (
            {"framework": "megatron-core", "precision": "fp8", "precision_recipe": "rowwise"},
            "megatron-core has no rowwise recipe; use --framework torchtitan or --precision-recipe delayed, tensor",
        ),
        ({"precision_recipe": "mxfp8"}, "--precision-recipe mxfp8 scales fp8 tensors, but the precision is bf16"),
        (
            {"gpu": "B200-180GB-SXM", "precision": "fp8", "precision_recipe": "nvfp4"},
            "--precision-recipe nvfp4 scales fp4 tensors, but the precision is fp8; add --precision fp4.",
        ),
        (
            {"gpu": "B200-180GB-SXM", "precision": "fp4", "precision_recipe": "mxfp8"},
            "--precision-recipe mxfp8 scales fp8 tensors, but the precision is fp4; add --precision fp8.",
        ),
        (
            {"gpu": "B200-180GB-SXM", "precision": "fp4", "framework": "torchtitan"},
            "torchtitan has no fp4 training; use --framework megatron-core or --precision fp32, bf16 or fp8.",
        ),
        (
            {"precision": "fp8", "precision_recipe": "blockwise", "gpu": "L40S-48GB"},
            "L40S-48GB has no blockwise recipe, which Transformer Engine supports on Hopper and later GPUs; use "
            "--precision-recipe delayed or tensorwise.",
        ),
        (
            {"precision": "fp8", "precision_recipe": "blockwise", "gpu": "MI355X-288GB"},
            "MI355X-288GB has no blockwise recipe, which ROCm's Transformer Engine does not support; use "
            "--precision-recipe delayed, tensorwise or mxfp8.",
        ),
        ({"precision": "fp8", "precision_recipe": "mxfp8"}, "H100-80GB-SXM does not support mxfp8, which needs"),
        ({"framework": "wombat"}, "wombat"),
    ],
)
def test_what_a_framework_lacks_is_refused_with_the_frameworks_that_have_it(
    described: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        space_for(**{"model": "llama-3-8b", "gpu": "H100-80GB-SXM", "nodes": 2, **described})  # type: ignore[arg-type]


@pytest.mark.parametrize("card", ["H100-80GB-PCIe", "H20", "GH200-96GB", "B200-180GB-SXM"])
def test_hopper_and_later_gpus_scale_fp8_by_blocks(card: str) -> None:
    described = space_for(model="llama-3-8b", gpu=card, nodes=2, precision="fp8", precision_recipe="blockwise")
    assert described.workload.precision_recipe == "blockwise"


def test_the_framework_follows_from_preset_and_precision() -> None:
    """BLOOM was trained with Megatron-DeepSpeed, which has no fp8; everything else is megatron-core."""
    assert space_for().workload.framework == "megatron-deepspeed"
    assert space_for(model="bloom-176b").workload.framework == "megatron-deepspeed"
    assert space_for(model="bloom-176b", gpu="H100-80GB-SXM", precision="fp8").workload.framework == "megatron-core"
    assert space_for(model="gpt-1.3b").workload.framework == "megatron-core"
    assert space_for(framework="any").workload.framework is None


def test_explain_names_the_framework_that_could_run_the_topology() -> None:
    space = space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=2, framework="deepspeed")
    topology = tuner.parse_key("tp2-pp2-mbs1-z1-cp2", workload=space.workload, cluster=space.cluster)
    messages = {verdict.rule: verdict.message for verdict in tuner.explain(space, topology).violations}
    assert messages["framework-cp"] == (
        "deepspeed has no context parallelism, but cp is 2; megatron-core could run it (--framework)"
    )
    assert "framework-cp" not in {verdict.rule for verdict in tuner.explain(small("any"), topology).violations}


def test_plan_names_the_frameworks_that_could_run_what_was_removed(run: Run) -> None:
    out = run("plan", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "2", "--framework", "fsdp2").out
    assert "2 nodes of 8 H100-80GB-SXM, " in out
    assert "; supported by megatron-core, megatron-deepspeed, deepspeed and torchtitan)" in out
    dense = run("plan", "--nodes", "8", "--set", "ep=2").err
    assert re.search(r"framework-ep \([0-9,]+; bloom-14336x72 has no experts\), ", dense)
    document = json.loads(run("plan", "--nodes", "8", "--json").out)
    assert document["workload"]["framework"] == "megatron-deepspeed"
    assert document["possible_with"]["framework-vpp"] == ["megatron-core"]


def test_the_command_line_compares_frameworks_as_python_does(run: Run) -> None:
    described = {"model": "llama-3-8b", "gpu": "H100-80GB-SXM", "nodes": 1, "global_batch": 64}
    options = [word for name, value in described.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    document = json.loads(run("plan", *options, "--framework", "all", "--json").out)
    rows = tuner.plan_frameworks(**described).rows  # type: ignore[arg-type]
    found = [(row["framework"], row["legal"], row["fitting"], row["key"]) for row in document["frameworks"]]
    assert found == [
        (row.framework, row.legal, row.fitting, row.best.topology.key if row.best else None) for row in rows
    ]
    for row in rows:
        space = space_for(framework=row.framework, **described)  # type: ignore[arg-type]
        assert row.legal == plan(space, top=1).tally.legal
    refused = json.loads(run("plan", *options, "--precision", "fp8", "--framework", "all", "--json").out)["frameworks"]
    assert {row["framework"] for row in refused if row["legal"]} == {"megatron-core", "torchtitan"}


def test_the_catalog_lists_the_frameworks(run: Run) -> None:
    document = json.loads(run("catalog", "frameworks", "--json").out)
    assert [row["name"] for row in document["frameworks"]] == list(FRAMEWORKS)
    assert document["frameworks"][0]["capabilities"]["zero"]["value"] == [0, 1]
    assert "--use-distributed-optimizer" in run("catalog", "frameworks").out


def begun(framework: str, runs: Path) -> StudySettings:
    """The settings of a small study of that framework."""
    space = small(framework)
    return StudySettings(space=space, limits=Limits(budget=1), study="framed", runs=runs)


def test_a_study_begun_before_frameworks_keeps_its_space(tmp_path: Path) -> None:
    """Its stored workload has no framework; the same command continues with the topologies that it had."""
    settings = begun("megatron-core", tmp_path)
    with open_loop(settings) as loop:
        before = len(loop.pool)
        stored = loop.store.settings
        del stored["workload"]["framework"]
        loop.store.set_attribute("settings", stored)
    with open_loop(settings) as loop:
        assert len(loop.pool) == small("any").count() > before


def test_a_resumed_study_keeps_its_framework_and_names_it(tmp_path: Path) -> None:
    with open_loop(begun("fsdp2", tmp_path)) as loop:
        before = len(loop.pool)
        assert loop.store.settings["workload"]["framework"] == "fsdp2"
    with open_loop(begun("fsdp2", tmp_path)) as loop:
        assert len(loop.pool) == before
    with (
        pytest.raises(StudyError, match="framework"),
        open_loop(begun("torchtitan", tmp_path)),
    ):
        pass


def test_jobs_of_the_worker_are_deepspeed(tmp_path: Path) -> None:
    given = {"launcher": "local", "gpus_per_node": 2, "runs": tmp_path, "budget": 1}
    from tuner.study.api import study_settings

    assert study_settings(**given).space.workload.framework == "deepspeed"  # type: ignore[arg-type]
    other = study_settings(**given, command="python train.py")  # type: ignore[arg-type]
    assert other.space.workload.framework == "megatron-core"
    with pytest.raises(InputError, match="--framework torchtitan needs --command"):
        study_settings(**given, framework="torchtitan")  # type: ignore[arg-type]
    assert BY_NAME["framework-cp"].binding(study_settings(**given).space.workload)  # type: ignore[arg-type]


def test_a_kernel_that_takes_no_alibi_is_neither_a_default_nor_accepted() -> None:
    """The worker's flash kernel takes no biases; BLOOM has them."""
    assert space_for(model="bloom-176b", framework="deepspeed").workload.attention == "eager"
    with pytest.raises(InputError, match=r"deepspeed has no flash2 attention with ALiBi; use .* or --attention eager"):
        space_for(model="bloom-176b", framework="deepspeed", attention="flash2")


@pytest.mark.parametrize(
    ("fields", "forks"),
    [
        ({}, {"deepspeed", "bloom"}),
        ({"positions": "alibi"}, {"bloom"}),
        ({"embedding_norm": True}, {"bloom"}),
        ({"kv_heads": 2}, {"deepspeed"}),
        ({"norm": "rmsnorm"}, {"deepspeed"}),
        ({"tied_embeddings": False}, {"deepspeed"}),
        ({"positions": "alibi", "norm": "rmsnorm"}, set()),
    ],
)
def test_a_fork_of_megatron_deepspeed_has_models_of_its_own(fields: dict[str, Any], forks: set[str]) -> None:
    """DeepSpeed's has neither ALiBi nor a norm of the embedding; BLOOM's has nothing of LLaMA's."""
    model = tuner.Model(layers=4, hidden=512, heads=8, vocab=512, seq=512, **fields)
    assert {fork.name for fork in MEGATRON_DEEPSPEED_FORKS if not fork.model_lacks(model)} == forks
