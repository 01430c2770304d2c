"""What Transformer Engine's attention, casts and loss take, by GPU generation and version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.costmodel.test_closed_forms import SITE, headless
from tests.costmodel.test_framework_terms import columns, node_of, terms, under
from tuner.core.catalog import gpu
from tuner.core.domain import Topology, scales
from tuner.core.stack import Stack
from tuner.costmodel.constants import MEMORY_BANDWIDTH_SHARE
from tuner.costmodel.kernels import flash_rates
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.stages import Stages


@pytest.mark.parametrize(
    ("card", "cudnn", "forward", "backward"),
    [
        ("GB200-192GB", "9.10.2", 0.9, 0.87),
        ("GB200-192GB", "9.13.1", 0.9, 0.87),
        ("GB300-288GB", "9.13", 0.85, 0.85),
        ("GB300-288GB", "9.17", 1, 1),
        ("H100-80GB-SXM", "9.13", 1, 1),
    ],
)
def test_earlier_versions_of_cudnn_are_slower_on_blackwell(
    card: str, cudnn: str, forward: float, backward: float
) -> None:
    known, workload = gpu(card), under("megatron-core", headless(2))
    usual = flash_rates(known, workload, SITE, 8192)
    earlier = flash_rates(known, replace(workload, stack=Stack(cudnn=cudnn)), SITE, 8192)
    assert earlier == pytest.approx((usual[0] * forward, usual[1] * backward))


@pytest.mark.parametrize(
    ("card", "recipe", "normed", "other"),
    [
        ("H100-80GB-SXM", "delayed", 4, 4),
        ("H100-80GB-SXM", "tensorwise", 4, 6),
        ("H100-80GB-SXM", "blockwise", 4.0625, 4.0625),
        ("GB200-192GB", "delayed", 3, 3),
        ("GB200-192GB", "tensorwise", 3, 5),
        ("GB200-192GB", "mxfp8", 4.0625, 4.0625),
        ("GB200-192GB", "nvfp4", 5.125, 5.125),
    ],
)
def test_transformer_engine_casts_what_its_products_read(card: str, recipe: Any, normed: float, other: float) -> None:
    """With one scale per tensor, norms find it on their way, and Blackwell's products read one orientation.

    Two norms write 2 h of the 16 h that are cast.
    """
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=4, zero=0, recompute="none")
    machines, halves = node_of(card, gpus=1), under("megatron-core", headless(4))
    narrow = replace(halves, precision=scales(recipe), precision_recipe=recipe)
    cast = terms(narrow, machines, one)["elementwise"] - terms(halves, machines, one)["elementwise"]
    moved = (2 * normed + 14 * other) * 4096 * 4 * 2048 * 24
    assert cast == pytest.approx(moved / (machines.gpu.memory_bandwidth * MEMORY_BANDWIDTH_SHARE), rel=0.02)


def test_transformer_engines_loss_works_where_the_logits_are() -> None:
    """It moves 10 bytes per logit instead of 30 and keeps 2 instead of 6."""
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=2, zero=0, recompute="none")
    machines, model = node_of("H100-80GB-SXM", gpus=1), replace(headless(4).model, vocab=32000)
    separate, fused = (
        replace(under("megatron-core", headless(4), fused_loss=each), model=model) for each in (False, True)
    )
    logits = 2 * 2048 * 32000
    saved = terms(separate, machines, one)["head"] - terms(fused, machines, one)["head"]
    assert saved == pytest.approx(2 * 20 * logits / (machines.gpu.memory_bandwidth * MEMORY_BANDWIDTH_SHARE))
    stages = [Stages.first(columns(each, machines, one)) for each in (separate, fused)]
    kept = [float(memory_terms(stage, SITE)["logits"][0]) for stage in stages]
    assert kept == [6 * logits, 2 * logits]
