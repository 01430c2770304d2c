"""Memory and time of training with Muon, compared with counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.mixtures import DEEPSEEK, QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Optimizer, Topology
from tuner.core.model import Model
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.kernels import product_rate
from tuner.costmodel.site_factors import SiteFactors
from tuner.space.build import space_for

DENSE = replace(QWEN3_30B, experts=None, qk_norm=False, ffn=6144)
HIDDEN, WIDTH, KEYS, FFN, LAYERS, TABLE = 2048, 32 * 128, 4 * 128, 6144, 48, 151936 * 2048


def scored(model: Model, optimizer: Optimizer, **of_row: Any) -> Any:
    row: dict[str, Any] = {"nodes": 1, "tp": 1, "pp": 1, "dp": 8, "micro_batch": 1, "zero": 1, **of_row}
    space = space_for(model=model, gpu="H100-80GB-SXM", nodes=1, global_batch=8, optimizer=optimizer)
    return CostModel().score(Columns.of([Topology(recompute="none", **row)], space.workload, space.cluster))


def step(model: Model, **of_row: Any) -> float:
    """Return by how much longer Muon's step is than Adam's, in operations at the rate of large products."""
    muon, adam = (scored(model, name, **of_row).time_terms["optimizer"][0] for name in ("muon", "adam"))
    space = space_for(model=model, gpu="H100-80GB-SXM", nodes=1, global_batch=8)
    return float(muon - adam) * product_rate(space.cluster.gpu, space.workload, SiteFactors())


def orthogonal(rows: int, columns: int) -> float:
    """Return the operations of five steps for a matrix: X X' and A A, symmetric in the smaller size, and B X."""
    least, most = sorted((rows, columns))
    return 5 * (2 * least * least * most + 2 * least**3 + 2 * least * least * most)


OF_ATTENTION = 2 * orthogonal(WIDTH, HIDDEN) + 2 * orthogonal(KEYS, HIDDEN)


@pytest.mark.parametrize(("change", "ranks"), [({}, 8), ({"zero": 0}, 1), ({"tp": 2, "dp": 4}, 4)])
def test_a_step_makes_each_matrix_orthogonal_on_one_data_parallel_rank(change: dict[str, Any], ranks: int) -> None:
    """Tensor parallel ranks compute the same."""
    layer = OF_ATTENTION + orthogonal(2 * FFN, HIDDEN) + orthogonal(HIDDEN, FFN)
    assert step(DENSE, **change) == pytest.approx(LAYERS * layer / ranks)


def test_experts_are_matrices_of_their_own_on_the_ranks_that_hold_them() -> None:
    experts = QWEN3_30B.experts
    assert experts is not None
    each = orthogonal(2 * experts.ffn, HIDDEN) + orthogonal(HIDDEN, experts.ffn)
    shared = OF_ATTENTION + orthogonal(experts.count, HIDDEN)
    assert step(QWEN3_30B, ep=4) == pytest.approx(LAYERS * (shared / 8 + experts.count / 4 * each / 2))


def test_latent_attention_has_matrices_down_and_up() -> None:
    model = replace(DEEPSEEK, experts=None, mtp_layers=0, ffn=8192, vocab=512, layers=16)
    latent, hidden, heads = model.latent, model.hidden, model.heads
    assert latent is not None
    sizes = [
        (latent.query_rank, hidden),
        (heads * latent.key_size, latent.query_rank),
        (latent.kv_rank + latent.rope_size, hidden),
        (heads * (latent.nope_size + latent.value_size), latent.kv_rank),
        (hidden, heads * latent.value_size),
        (2 * 8192, hidden),
        (hidden, 8192),
    ]
    assert step(model) == pytest.approx(16 * sum(orthogonal(*size) for size in sizes) / 8)
    assert step(replace(model, latent=replace(latent, query_rank=0))) > 0


def test_matrices_have_one_state_and_tables_two() -> None:
    muon, adam = (scored(DENSE, name).memory_terms["optimizer"][0] for name in ("muon", "adam"))
    layers = LAYERS * (HIDDEN * (2 * WIDTH + 2 * KEYS + 3 * FFN) + 2 * HIDDEN)
    assert adam == pytest.approx(12 * (layers + 2 * TABLE) / 8, rel=1e-3)
    assert adam - muon == pytest.approx(4 * layers / 8, rel=1e-3)


def test_no_rank_has_less_than_a_matrix() -> None:
    """Eight ranks of one layer have one of its four to six matrices each, and the fullest gate and up."""
    thin = replace(DENSE, layers=1)
    assert step(thin) == pytest.approx(orthogonal(2 * FFN, HIDDEN))
    experts = QWEN3_30B.experts
    assert experts is not None
    least = (
        max(orthogonal(WIDTH, HIDDEN), OF_ATTENTION / 8)
        + 128 * (orthogonal(2 * experts.ffn, HIDDEN) + orthogonal(HIDDEN, experts.ffn)) / 8
    )
    assert step(replace(QWEN3_30B, layers=1), ep=1) == pytest.approx(least)


def test_buffers_have_as_much_room_for_each_rank_as_the_fullest_needs() -> None:
    """Weights in 16 bits and gradients in 32; the fullest rank updates gate and up."""
    thin = replace(DENSE, layers=2, vocab=512)
    muon, adam = (scored(thin, name).memory_terms for name in ("muon", "adam"))
    layers, largest = 2 * (HIDDEN * (2 * WIDTH + 2 * KEYS + 3 * FFN) + 2 * HIDDEN), 2 * FFN * HIDDEN
    assert muon["weights"][0] - adam["weights"][0] == pytest.approx(2 * (8 * largest - layers))
    assert muon["gradients"][0] - adam["gradients"][0] == pytest.approx(4 * (8 * largest - layers))
    assert muon["optimizer"][0] == pytest.approx(8 * largest + 12 * 2 * 512 * HIDDEN / 8, rel=1e-3)
    alone = [scored(thin, name, zero=0).memory_terms["weights"][0] for name in ("muon", "adam")]
    assert alone[0] == alone[1]
