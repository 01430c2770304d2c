"""Tensor parallelism over more ranks than there are key/value heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.costmodel.activations import layer_activations
from tuner.costmodel.layer import layer_seconds
from tuner.costmodel.layer_exchanges import context_exchanges
from tuner.costmodel.links import Links, gather
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for

SITE = SiteFactors()
DENSE = replace(QWEN3_30B, experts=None, ffn=6144)
"""32 heads of width 128, and 4 key/value heads."""
SEQ, HIDDEN, HEAD = 4096, 2048, 128


def columns(kv_heads: int, framework: Any = "megatron-core", **row: Any) -> Columns:
    """Return one topology with 8 tensor parallel ranks on one node for each context parallel rank."""
    model = replace(DENSE, kv_heads=kv_heads)
    nodes = row.get("cp", 1)
    space = space_for(model=model, gpu="H100-80GB-SXM", nodes=nodes, global_batch=8, framework=framework)
    topology = Topology(nodes=nodes, tp=8, pp=1, dp=1, micro_batch=1, sequence_parallel=True, recompute="none", **row)
    return Columns.of([topology], space.workload, space.cluster)


def exchanged(one: Columns) -> float:
    return float(layer_seconds(one, SITE, Links(one, SITE)).tensor_parallel[0])


@pytest.mark.parametrize(("kv_heads", "gathers"), [(8, False), (4, True), (2, True), (1, True)])
def test_queries_keys_and_values_are_gathered_over_more_ranks_than_heads(kv_heads: int, gathers: bool) -> None:
    """Megatron-Core gathers the projection's output of all ranks, and scatters its gradient."""
    one, other = columns(kv_heads), columns(32)
    output = 2 * SEQ * (32 + 2 * kv_heads) * HEAD
    each = float(gather(output, 8, *Links(one, SITE).tensor)[0])
    assert exchanged(one) - exchanged(other) == pytest.approx(2 * each if gathers else 0.0)
    assert exchanged(columns(kv_heads, "torchtitan")) == pytest.approx(exchanged(columns(32, "torchtitan")))


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_rank_has_at_least_one_key_value_head(kv_heads: int, framework: Any) -> None:
    """It keeps the activations of one, and sends it to context parallel ranks, as with 8 heads."""
    for cp in (1, 2):
        few, enough = columns(kv_heads, framework, cp=cp), columns(8, framework, cp=cp)
        kept, usual = (float(layer_activations(Stages.first(one))[0]) for one in (few, enough))
        assert kept == pytest.approx(usual)
        idle = few.tokens * 0.0
        sent, all_sent = (
            float(context_exchanges(one, one.tokens, SITE, Links(one, SITE), (idle, idle))[0][0])
            for one in (few, enough)
        )
        assert sent == pytest.approx(all_sent)
