"""Offload as an axis that is searched on request only, and proposed where nothing fits."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, Run
from tuner.core import catalog
from tuner.core.documents import cluster_document, cluster_of, topology_document, topology_of
from tuner.core.domain import Topology
from tuner.core.keys import parse_key
from tuner.core.offload import OFFLOAD
from tuner.planning.plan import plan
from tuner.space.axes import axes_document
from tuner.space.build import space_for
from tuner.space.rules.quantities import host_bytes
from tuner.tables.run import run_of

CARDS: dict[str, Any] = {"model": "llama-7b", "gpu": "RTX4090", "nodes": 1, "gpus_per_node": 8, "global_batch": 256}
EIGHT_CARDS = ("--gpu", "RTX4090", "--nodes", "1", "--gpus-per-node", "8")
SEVEN_BILLION = ("--model", "llama-7b", *EIGHT_CARDS)
THIRTEEN_BILLION = ("--model", "llama-13b", *EIGHT_CARDS, "--framework", "deepspeed")
PROPOSED = (
    "With --set offload=optimizer, 178 of 540 legal topologies would fit; the smallest needs 194 GiB of a node's main "
    "memory."
)


def test_no_document_changes_where_nothing_is_offloaded() -> None:
    """Keys, stored topologies, the axes of a study, the description of a cluster, and what identifies a stored run."""
    plain = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1)
    space = space_for(**CARDS)
    for text in (plain.key, repr(plain), topology_document(plain), topology_document(plain, space.workload)):
        assert "off" not in str(text)
    assert "offload" not in axes_document(space.axes)
    assert "host_memory" not in cluster_document(space.cluster)
    assert not {rule.name for rule in space.in_force} & {"offload-needs-zero", "host-memory", "framework-offload"}
    assert "host_memory" not in repr(replace(space.cluster, host_memory=2.0**40))


@pytest.mark.parametrize("offload", OFFLOAD)
def test_an_offload_survives_keys_and_documents(offload: Any) -> None:
    space = space_for(**CARDS)
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, zero=3, offload=offload)
    assert parse_key(topology.key, workload=space.workload, cluster=space.cluster) == topology
    assert topology_of(json.loads(json.dumps(topology_document(topology)))) == topology
    host = replace(space.cluster, host_memory=2.0**40)
    assert cluster_of(json.loads(json.dumps(cluster_document(host)))) == host


def test_a_space_with_offload_has_every_topology_of_the_space_without() -> None:
    """With the same estimates; the others need ZeRO 1, and the parameters ZeRO 3."""
    without, both = (
        plan(space_for(**CARDS, framework="deepspeed", settings=settings), top=0).top
        for settings in ((), ("offload=none,optimizer,optimizer+parameters",))
    )
    plain = {row.topology.key: (row.seconds, row.memory, row.out_of_memory) for row in without}
    again = {
        row.topology.key: (row.seconds, row.memory, row.out_of_memory) for row in both if row.topology.offload == "none"
    }
    assert again == plain
    least = {"none": 0, "optimizer": 1, "optimizer+parameters": 3}
    assert {(row.topology.offload, row.topology.zero) for row in both} == {
        (offload, zero) for offload, stage in least.items() for zero in range(stage, 4)
    }


def test_offloaded_states_fit_in_main_memory_where_it_is_specified() -> None:
    """7 billion parameters in 64 GiB: 16 bytes each are more."""
    settings = ("offload=optimizer",)
    cluster = replace(space_for(**CARDS).cluster, host_memory=64 * 2.0**30)
    arguments: dict[str, Any] = {"model": "llama-7b", "global_batch": 256, "settings": settings}
    assert not space_for(cluster=cluster, **arguments).count()
    roomy = replace(cluster, host_memory=128 * 2.0**30)
    assert space_for(cluster=roomy, **arguments).count() == space_for(**CARDS, settings=settings).count()


def test_offloaded_states_of_all_experts_need_main_memory() -> None:
    """Mixtral 8x7B on one node: 16 bytes for each of its 46.7 billion parameters, however its experts are spread."""
    settings = ("offload=optimizer", "ep=1,8")
    space = space_for(model="mixtral-8x7b", gpu="H100-80GB-SXM", nodes=1, framework="deepspeed", settings=settings)
    needs = np.concatenate([host_bytes(space.columns(block)) for block in space.blocks()])
    assert needs == pytest.approx(np.full(len(needs), 16 * space.workload.model.parameters))


def test_a_remedy_needs_a_framework_that_trains_the_model() -> None:
    """Megatron-DeepSpeed has no latent attention, and all of DeepSeek-V3's states need 10 TiB of main memory."""
    made = plan(space_for(model="deepseek-v3", gpu="H100-80GB-SXM", nodes=1), top=1)
    assert made.remedy.startswith("With --framework deepspeed --set offload=optimizer+parameters, ")
    assert made.remedy.endswith(" would fit; the smallest needs 10,172 GiB of a node's main memory.")


def test_a_cluster_file_may_specify_main_memory(tmp_path: Path) -> None:
    text = (
        '[cluster.cards]\nnodes = 1\ngpus_per_node = 8\ngpu = "RTX4090-24GB"\nhost_memory_gib = 512\nsource = "site"\n'
    )
    (tmp_path / "cards.toml").write_text(text)
    assert catalog.cluster(str(tmp_path / "cards.toml")).host_memory == 512 * 2**30


def test_plan_proposes_offload_where_nothing_fits(run: Run) -> None:
    """A 13B model on 8 RTX 4090 under DeepSpeed."""
    said = run("plan", *THIRTEEN_BILLION, "--global-batch", "256")
    assert f"No topology is likely to fit. {PROPOSED}" in said.out
    document = json.loads(run("plan", *THIRTEEN_BILLION, "--global-batch", "256", "--json").out)
    assert document["remedy"] == PROPOSED
    assert "remedy" not in json.loads(run("plan", *SEVEN_BILLION, "--framework", "deepspeed", "--json").out)


def test_plan_proposes_to_give_up_a_policy_before_anything_is_offloaded(run: Run, tmp_path: Path) -> None:
    """A 7B model on 8 RTX 4090 under Megatron fits over tp and pp alone, with dp 1."""
    (tmp_path / "bloom-7b").mkdir()
    copy(ROOT / "tests/data/huggingface/llama-7b.json", tmp_path / "bloom-7b/config.json")
    words = ("plan", "--model", str(tmp_path / "bloom-7b"), *EIGHT_CARDS, "--global-batch", "256")
    assert (
        "No topology is likely to fit. With --allow dp-multiple-of-4, 292 of 2,556 legal topologies would fit."
        in run(*words).out
    )
    freed = json.loads(run(*words, "--allow", "dp-multiple-of-4", "--top", "0", "--json").out)
    assert freed["fitting"] == 292


def test_what_plan_proposes_fits(run: Run) -> None:
    words = ("plan", *THIRTEEN_BILLION, "--global-batch", "256", "--set", "offload=none,optimizer", "--top", "0")
    document = json.loads(run(*words, "--json").out)
    assert document["fitting"] == 178
    assert {row["topology"].get("offload") for row in document["top"] if row["fits"]} == {"optimizer"}
    assert all(row["terms"]["host_link"] > 0 for row in document["top"] if row["fits"])
    table = list(csv.DictReader(StringIO(run(*words, "--csv").out)))
    assert {row["offload"] for row in table} == {"none", "optimizer"}
    assert all(None not in row and None not in row.values() for row in table)


def test_where_own_framework_has_none_another_is_named(run: Run) -> None:
    """What Megatron cannot offload, DeepSpeed can."""
    said = run("plan", "--model", "llama-33b", "--gpu", "RTX4090", "--nodes", "1", "--gpus-per-node", "8", "--top", "1")
    assert re.search(
        r"No topology is likely to fit\. With --framework \S+ --set offload=\S+, [0-9]+ of [0-9]+ legal", said.out
    )


@pytest.mark.slow
def test_optimize_and_max_batch_propose_offload(run: Run, tmp_path: Path) -> None:
    said = run(
        "optimize", *THIRTEEN_BILLION, "--global-batch", "256", "--launcher", "simulated", "--runs", str(tmp_path)
    )
    assert said.code == 1
    assert said.err.rstrip().endswith(f"times the memory of a GPU. {PROPOSED}")
    said = run("max-batch", "--model", "llama-33b", "--gpu", "RTX4090", "--nodes", "1", "--gpus-per-node", "1")
    assert said.code == 1
    assert "or offload the optimizer with --set offload=optimizer" in said.err


def test_explain_shows_the_terms(run: Run) -> None:
    said = run("explain", "tp1-pp1-dp8-mbs2-z3-offall", *SEVEN_BILLION, "--framework", "deepspeed")
    assert re.search(r"host_link +[0-9.]+ s", said.out)
    said = run("explain", "tp1-pp1-dp8-mbs2-z2-offall", *SEVEN_BILLION, "--framework", "deepspeed")
    assert "offload optimizer+parameters needs ZeRO 3 or more, not 2" in said.out


@pytest.mark.slow
def test_a_measurement_table_keeps_what_was_offloaded(run: Run, tmp_path: Path) -> None:
    """A report writes the columns that its jobs need, and a table is read with them."""
    words = ("--global-batch", "256", "--framework", "deepspeed", "--set", "offload=optimizer", "--set", "zero=3")
    done = run("optimize", *SEVEN_BILLION, *words, "--launcher", "simulated", "--budget", "2", "--runs", str(tmp_path))
    assert done.code == 0, done.err
    study = next(path.name for path in tmp_path.iterdir() if (path / "study.db").exists())
    assert run("report", study, "--runs", str(tmp_path), "-o", str(tmp_path / "report")).code == 0
    table = next((tmp_path / "report").glob("*.csv"))
    rows = list(csv.DictReader(StringIO(table.read_text())))
    assert {row["offload"] for row in rows} == {"optimizer"}
    assert run_of({name: cell for name, cell in rows[0].items() if cell}).topology.offload == "optimizer"
