"""Operations of experts, latent attention and multi-token prediction: closed forms and published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology, Workload
from tuner.core.experts import Experts, Latent
from tuner.core.model import Model
from tuner.costmodel.flops import _token_matrices, forward_terms, megatron_core_count, model_flops
from tuner.tables import Row, read_table

SMALL = Model(
    layers=5,
    hidden=8,
    heads=2,
    vocab=16,
    seq=4,
    gated_mlp=True,
    ffn=24,
    vocab_multiple=0,
    positions="rotary",
    norm="rmsnorm",
    experts=Experts(count=4, top_k=2, ffn=16, shared_ffn=8, dense_layers=1, period=2),
)
ATTENTION, MLP, ROUTED = 4 * 8 * 8, 3 * 8 * 24, 3 * 8 * (2 * 16 + 8)
TOKENS = 3 * 4


def columns_of(model: Model) -> Columns:
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1)
    return Columns.of([topology], Workload(model=model, global_batch=3), cluster("bloom-48"))


def terms(model: Model) -> dict[str, float]:
    return {name: float(value[0]) for name, value in forward_terms(columns_of(model)).items()}


def test_a_token_is_counted_through_its_router_its_experts_and_the_shared_ones() -> None:
    """Operations include router, top-k and shared experts in the layers with experts, here 2 and 4 of five."""
    assert terms(SMALL) == {
        "layers": 2 * TOKENS * (5 * ATTENTION + 3 * MLP + 2 * (ROUTED + 8 * 4)),
        "scores": 4 * TOKENS * 5 * 4 * 8,
        "logits": 2 * TOKENS * 8 * 16,
    }


def test_each_layer_of_multi_token_prediction_is_one_more_layer_projection_and_output() -> None:
    """Each MTP layer adds a layer like the last one, a projection of 2 h x h, and logits."""
    before, after = terms(SMALL), terms(replace(SMALL, mtp_layers=1))
    assert after["layers"] - before["layers"] == 2 * TOKENS * (ATTENTION + ROUTED + 8 * 4 + 2 * 8 * 8)
    assert after["scores"] == before["scores"] * 6 / 5
    assert after["logits"] == 2 * before["logits"]
    dense = replace(SMALL, experts=None)
    assert terms(replace(dense, mtp_layers=1))["layers"] == terms(dense)["layers"] + 2 * TOKENS * (
        ATTENTION + MLP + 2 * 8 * 8
    )


@pytest.mark.parametrize(("rank", "queries"), [(0, 8 * 2 * 5), (6, 6 * (8 + 2 * 5))])
def test_latent_attention_is_counted_by_its_projections_and_both_widths_of_a_head(rank: int, queries: int) -> None:
    latent = Latent(query_rank=rank, kv_rank=4, nope_size=3, rope_size=2, value_size=7)
    model = replace(SMALL, experts=None, latent=latent)
    projections = queries + 8 * (4 + 2) + 4 * 2 * (3 + 7) + 2 * 7 * 8
    assert terms(model)["layers"] == 2 * TOKENS * 5 * (projections + MLP)
    assert terms(model)["scores"] == 2 * TOKENS * 5 * 4 * 2 * (5 + 7)


def test_megatron_core_counts_half_of_the_scores_and_no_router() -> None:
    columns, forward = columns_of(SMALL), terms(SMALL)
    router = 2 * TOKENS * 2 * 8 * 4
    expected = 3 * (forward["layers"] - router + forward["scores"] / 2 + forward["logits"])
    assert megatron_core_count(columns)[0] == expected
    assert model_flops(columns)[0] == 3 * sum(forward.values())


def test_megatron_core_counts_the_gate_under_swiglu_alone() -> None:
    """Without SwiGLU, as for gpt-oss, two of the MLP's three matrices count, unless `gated` as in later releases."""
    other = columns_of(replace(SMALL, activation="quick_gelu"))
    swiglu = megatron_core_count(columns_of(SMALL))[0]
    assert megatron_core_count(other, gated=True)[0] == swiglu
    assert swiglu - megatron_core_count(other)[0] == 6 * TOKENS * (3 * MLP + 2 * ROUTED) / 3


PRINTED = [
    row
    for name in ("mcore-moe-recipes", "moe-modelzoo", "megatron-bridge")
    for row in read_table(ROOT / f"corpus/modern/{name}.csv").rows
    if row.cells.get("experts") and row.cells.get("tokens_per_sec_gpu") and row.cells.get("tflops") and row.run
]
"""Rows of mixtures with both tokens/s and TFLOPs, whose ratio is the operations per token."""


def test_every_table_of_recipes_has_such_rows() -> None:
    assert len(PRINTED) >= 100
    assert {row.cells["model"] for row in PRINTED} == {
        *("deepseek-v3", "kimi-k2", "gpt-oss-120b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    }


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: f"{Path(row.group).name}-{row.line}")
def test_published_tflops_come_out_of_published_tokens_a_second(row: Row) -> None:
    """Published TFLOPs follow from published tokens per second within 1%, their rounding.

    Rows with "w/o MTP" in the note were run without the MTP layer.
    """
    assert row.run is not None
    workload = row.run.workload
    if "w/o MTP" in row.cells["note"]:
        workload = replace(workload, model=replace(workload.model, mtp_layers=0))
    workload = replace(workload, global_batch=1)
    columns = Columns.of([row.run.topology], workload, row.run.cluster)
    per_token = float(megatron_core_count(columns)[0]) / workload.model.seq
    printed = float(row.cells["tflops"]) * 1e12 / float(row.cells["tokens_per_sec_gpu"])
    assert per_token == pytest.approx(printed, rel=0.01)


def test_the_flops_command_prints_what_megatron_core_prints(run: Run) -> None:
    """`tuner flops` prints Megatron-Core's own figure: 276 TFLOPs for 17.6 s on 256 H100.

    Source: Megatron-MoE-ModelZoo at e865051, best_practice/qwen3.
    """
    command = "flops tp2-pp8-dp16-mbs1-z1-vpp4-ep32-rsel --model qwen3-235b --gpu H100-80GB-SXM --nodes 32"
    words = f"{command} --global-batch 2048 --seconds 17.6".split()
    said = run(*words)
    assert "235.1B parameters (22.19B active, 8 of 128 experts), 94 layers" in said.out
    assert "before February 2022" not in said.out
    document = json.loads(run(*words, "--json").out)
    assert document["tflops_by_megatron_core"] == pytest.approx(276, rel=0.005)
    assert document["tflops_by_older_formula"] is None
    assert f"{document['tflops_by_megatron_core']:.2f} TFLOPs as Megatron-Core prints them" in said.out


@pytest.mark.parametrize(("layers", "period", "last"), [(5, 2, ROUTED), (6, 2, MLP), (7, 3, ROUTED), (6, 3, MLP)])
def test_a_predictor_has_the_last_layers_kind_of_mlp(layers: int, period: int, last: int) -> None:
    """An MTP layer has attention, the last layer's kind of MLP, and the projection of two vectors to one."""
    assert SMALL.experts
    experts = replace(SMALL.experts, period=period)
    own = replace(SMALL, layers=layers, experts=experts)
    one, more = (
        float(_token_matrices(columns_of(replace(own, mtp_layers=n)), router=True, mlp=1.0)[0]) for n in (0, 2)
    )
    router = 8 * 4 if last == ROUTED else 0
    assert more - one == 2 * (ATTENTION + last + router + 2 * 8**2)
