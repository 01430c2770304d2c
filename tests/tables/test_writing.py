"""Runs written as rows of a measurement table are read back as the same runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.core.catalog import catalog, known_model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.keys import parse_key
from tuner.core.stack import Stack
from tuner.costmodel.estimate import CostModel
from tuner.space.build import space_for
from tuner.tables import COLUMNS, OPTIONAL_COLUMNS, MeasuredRun, run_cells, table_of, write_csv
from tuner.tables.row import blocks

STACK = Stack(
    overlap_grad=0.5,
    overlap_param=0.25,
    overlap_tp=0.0,
    grad_precision="bf16",
    loss_chunks=4,
    quantized_weights=False,
    bf16_layers=(0, 4),
    split_sends=True,
    cuda_graph="partial",
    cp_comm="a2a",
    cudnn="9.13.1",
    fused_loss=True,
    unsharded_gradients=False,
    precision_aware_optimizer=False,
    fused_permutation=False,
    padded_experts=True,
    compiled=True,
    early_stop=False,
)


def written(workload: Workload, cluster: Cluster, topology: Topology) -> MeasuredRun:
    """Return the run that its row in a table of one describes."""
    text = write_csv((*COLUMNS, *OPTIONAL_COLUMNS), [run_cells(workload, cluster, topology)])
    (row,) = table_of(text, "one.csv").rows
    assert row.run is not None, row.skipped
    assert set(next(csv.reader(io.StringIO(text)))) >= run_cells(workload, cluster, topology).keys()
    return row.run


@pytest.mark.parametrize(
    ("space", "key", "fields"),
    [
        ({"model": "llama-3-8b"}, "tp2-pp2-dp4-mbs1-z1-sp-rsel", {"framework": "megatron-core"}),
        ({"model": "gpt-1.3b"}, "tp1-pp1-dp16-mbs1-z3-rnone", {"framework": "fsdp2"}),
        ({"model": "llama-3-8b"}, "tp1-pp1-dp16-mbs1-z3-rnone", {"framework": "torchtitan"}),
        (
            {"model": "gpt-1.3b"},
            "tp2-pp1-dp8-mbs2-z2-rfull-offopt",
            {"framework": "deepspeed", "optimizer": "adam8bit"},
        ),
        ({"model": "llama-3-8b"}, "tp1-pp1-dp16-mbs1-z3-rfull", {"framework": "deepspeed"}),
        ({"model": "tr8-104b"}, "tp4-pp2-dp2-mbs1-z1-rfull", {"framework": "megatron-deepspeed"}),
        ({"model": "llama-3-8b"}, "tp2-pp2-dp4-mbs1-z1-rfull", {"framework": None, "parallel_loss": False}),
        (
            {"model": "llama-3-70b", "precision": "fp8"},
            "tp8-pp1-dp2-mbs1-z1-sp-rnone",
            {"framework": "megatron-core", "precision_recipe": "blockwise"},
        ),
        (
            {"model": "qwen3-30b-a3b"},
            "tp2-pp2-vpp2-dp4-mbs1-z1-sp-rsel-ep4-deepep",
            {"framework": "megatron-core", "routing": "natural", "stack": STACK},
        ),
        ({"model": "deepseek-v3"}, "tp1-pp2-dp8-mbs1-z1-rnone-ep8", {"framework": "megatron-core"}),
        ({"model": "llama-4-maverick"}, "tp1-pp1-dp16-mbs1-z1-rnone-ep16", {"framework": "megatron-core"}),
    ],
)
def test_a_written_run_is_read_as_the_same_run(space: Any, key: str, fields: Any) -> None:
    found = space_for(gpu="H100-80GB-SXM", nodes=2, global_batch=64, framework="any", **space)
    workload = replace(found.workload, **fields)
    topology = parse_key(key, workload=workload, cluster=found.cluster)
    again = written(workload, found.cluster, topology)
    assert replace(again.workload, tokens=workload.tokens) == workload
    assert again.topology == topology
    first, second = (
        CostModel().score(Columns.of([one.topology], one.workload, one.cluster))
        for one in (MeasuredRun(workload=workload, cluster=found.cluster, topology=topology), again)
    )
    assert np.array_equal(first.seconds, second.seconds)
    assert np.array_equal(first.memory, second.memory)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "my-model"])
def test_the_capacity_of_experts_is_read_back(name: str) -> None:
    found = space_for(model="mixtral-8x7b", gpu="H100-80GB-SXM", nodes=1, global_batch=64)
    experts = found.workload.model.experts
    assert experts is not None
    model = replace(found.workload.model, name=name, experts=replace(experts, capacity_factor=1.25))
    workload = replace(found.workload, model=model)
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1)
    again = written(workload, found.cluster, topology).workload.model.experts
    assert again is not None
    assert again.capacity_factor == 1.25


@pytest.mark.parametrize("name", sorted(catalog().model))
def test_every_model_of_the_catalog_is_read_back(name: str) -> None:
    model = known_model(name)
    assert model is not None
    workload = Workload(model=model, global_batch=8, precision="bf16", framework="megatron-core")
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1)
    cluster = space_for(model="gpt-1.3b", gpu="H100-80GB-SXM", nodes=1, global_batch=8).cluster
    assert written(workload, cluster, topology).workload.model == model


@pytest.mark.parametrize(
    ("name", "layers"),
    [("deepseek-v3", "latent attention"), ("qwen3.8-27b", "Gated DeltaNet and gated attention")],
)
def test_layers_that_no_column_describes_are_named_and_not_read_as_attention(name: str, layers: str) -> None:
    """A row of the same model under a name that is not in the catalog would be read as another model."""
    space = space_for(model=name, gpu="H100-80GB-SXM", nodes=2, global_batch=64)
    workload = replace(space.workload, model=replace(space.workload.model, name="my-model"))
    cells = run_cells(
        workload, space.cluster, parse_key("tp2-pp1-dp8-mbs1-z1", workload=workload, cluster=space.cluster)
    )
    assert cells["other_layers"] == layers
    (row,) = table_of(write_csv((*COLUMNS, *OPTIONAL_COLUMNS), [cells]), "one.csv").rows
    assert row.run is None
    assert row.skipped == f"its model has {layers}, which no column describes, and is not in the catalog."


@pytest.mark.parametrize(
    "change",
    [{"heads": 40}, {"hidden": 4096}, {"delta_net": None}, {"attention_gate": False}],
    ids=lambda one: str([*one]),
)
def test_a_hybrid_that_is_not_the_catalogs_is_not_read_as_it(change: dict[str, Any]) -> None:
    """Searched heads and shapes change the widths of the catalog's model."""
    space = space_for(model="qwen3.8-27b", gpu="H100-80GB-SXM", nodes=2, global_batch=64)
    workload = replace(space.workload, model=replace(space.workload.model, **change))
    topology = parse_key("tp2-pp1-dp8-mbs1-z1", workload=workload, cluster=space.cluster)
    cells = run_cells(workload, space.cluster, topology)
    (row,) = table_of(write_csv((*COLUMNS, *OPTIONAL_COLUMNS), [cells]), "one.csv").rows
    assert row.run is None
    named = {**cells, "model": "qwen3.8-27b", "other_layers": ""}
    (row,) = table_of(write_csv((*COLUMNS, *OPTIONAL_COLUMNS), [named]), "one.csv").rows
    if "delta_net" not in change and "attention_gate" not in change:
        assert row.run is None
        assert "qwen3.8-27b has Gated DeltaNet, which no column describes, and other widths" in str(row.skipped)


def test_rows_of_a_hybrid_are_estimated_alike_in_any_order() -> None:
    """Depths that share a block have their own layers with attention."""
    space = space_for(model="qwen3.8-27b", gpu="H100-80GB-SXM", nodes=2, global_batch=64, seq=131072)
    rows = []
    for layers in (64, 2):
        workload = replace(space.workload, model=replace(space.workload.model, layers=layers))
        key = parse_key("tp2-pp1-dp8-mbs1-z1", workload=workload, cluster=space.cluster)
        rows.append({**run_cells(workload, space.cluster, key), "sec_per_iter": "1.0"})
    found = []
    for order in (rows, rows[::-1]):
        table = table_of(write_csv((*COLUMNS, *OPTIONAL_COLUMNS), order), "two.csv")
        scored = {
            row.cells["layers"]: float(seconds)
            for block in blocks(table.rows)
            for row, seconds in zip(block.rows, CostModel().score(block.columns).seconds, strict=True)
        }
        found.append(scored)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
