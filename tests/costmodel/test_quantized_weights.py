"""Weights that Transformer Engine keeps in fp8 and fp4, and the optimizer's copies of 16-bit gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Optimizer, Topology
from tuner.core.model import Model
from tuner.core.stack import Stack
from tuner.costmodel.constants import NODE_LINK_SHARE
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for

DENSE = replace(QWEN3_30B, experts=None, qk_norm=False, ffn=6144)
ATTENTION = 2048 * (2 * 32 * 128 + 2 * 4 * 128)
MATRICES = 48 * (ATTENTION + 3 * 2048 * 6144)
NORMS = (48 * 2 + 1) * 2048
TABLES = 2 * 2048 * DENSE.padded_vocab(1)


def terms(gpu: str = "H100-80GB-SXM", model: Model = DENSE, seq: int = 4096, **fields: Any) -> Mapping[str, Any]:
    """Return the memory terms of one GPU out of eight data parallel ones, under Megatron-Core."""
    space = space_for(model=replace(model, seq=seq), gpu=gpu, nodes=1, global_batch=8)
    workload = replace(space.workload, **{"framework": "megatron-core", "precision": "bf16", **fields})
    row = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, recompute="full")
    return memory_terms(Stages.first(Columns.of([row], workload, space.cluster)), SiteFactors())


def weights(gpu: str, recipe: Any = None, **fields: Any) -> float:
    """Return the bytes of weights, in fp8 or fp4 with a recipe."""
    if recipe:
        fields |= {"precision": "fp4" if recipe == "nvfp4" else "fp8", "precision_recipe": recipe}
    return float(terms(gpu, **fields)["weights"][0])


@pytest.mark.parametrize(
    ("gpu", "recipe", "each"),
    [
        ("H100-80GB-SXM", "delayed", 2),
        ("H100-80GB-SXM", "tensorwise", 2),
        ("H100-80GB-SXM", "blockwise", 2),
        ("MI300X-192GB", "delayed", 2),
        ("B200-180GB-SXM", "delayed", 1),
        ("GB300-288GB", "tensorwise", 1),
        ("B200-180GB-SXM", "mxfp8", 2 + 2 / 32),
        ("B200-180GB-SXM", "nvfp4", 1 + 2 / 16),
    ],
)
def test_weights_are_kept_for_both_directions_of_a_product(gpu: str, recipe: str, each: float) -> None:
    """Copies are added to 16-bit weights; stored as they are multiplied, they take the place of the layers'."""
    assert weights(gpu) == pytest.approx(2 * (MATRICES + NORMS + TABLES))
    assert weights(gpu, recipe) == pytest.approx(2 * TABLES + (2 + each) * (MATRICES + NORMS))
    stored = weights(gpu, recipe, stack=Stack(quantized_weights=True))
    assert stored == pytest.approx(2 * TABLES + each * (MATRICES + NORMS))


def test_experts_are_copied_too() -> None:
    of_experts = 48 * (ATTENTION + 2048 * 128 + 128 * 3 * 2048 * 768)
    added = weights("H100-80GB-SXM", "delayed", model=QWEN3_30B) - weights("H100-80GB-SXM", model=QWEN3_30B)
    assert added == pytest.approx(2 * of_experts, rel=1e-3)


def test_torchao_casts_weights_anew() -> None:
    same = {"framework": "torchtitan"}
    assert weights("H100-80GB-SXM", "tensorwise", **same) == weights("H100-80GB-SXM", **same)


@pytest.mark.parametrize(("optimizer", "copied"), [("adam", 4.0), ("adam-bf16", 0.0)])
def test_the_step_copies_16_bit_gradients(optimizer: Optimizer, copied: float) -> None:
    """Adam updates fp32 weights from fp32 gradients, of its shard; the precision-aware one reads those in 16 bits."""
    found = {
        precision: terms(seq=16, optimizer=optimizer, stack=Stack(grad_precision=precision))
        for precision in ("fp32", "bf16")
    }
    loose = ("activations", "working", "logits", "gathered", "fragments")
    room = sum(float(found["bf16"][name][0]) for name in loose)
    expected = max(0.0, copied * (MATRICES + NORMS + TABLES) / 8 - room)
    assert found["fp32"]["step"][0] == 0
    assert found["bf16"]["step"][0] == pytest.approx(expected)
    assert (expected > 0) == (optimizer == "adam")


@pytest.mark.parametrize(("recipe", "size"), [("delayed", 1), ("tensorwise", 1), ("blockwise", 1), ("mxfp8", 2)])
def test_weights_stored_in_fp8_are_gathered_in_fp8(recipe: Any, size: int) -> None:
    """An all-gather of the layers' weights takes half the time; mxfp8 gathers them in 16 bits."""
    space = space_for(model=DENSE, gpu="B200-180GB-SXM", nodes=1, global_batch=8)
    row = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1)

    def gathered(precision: Any, **fields: Any) -> float:
        stack = Stack(overlap_grad=0.0, overlap_param=0.0, grad_precision="fp32", **fields)
        workload = replace(space.workload, precision=precision, precision_recipe=recipe, stack=stack)
        found = CostModel().score(Columns.of([row], workload, space.cluster)).time_terms["data_parallel"][0]
        return float(found)

    whole, stored = gathered("fp8"), gathered("fp8", quantized_weights=True)
    one_byte = 7 / 8 * MATRICES / (space.cluster.intra_node.bandwidth * NODE_LINK_SHARE)
    assert whole - stored == pytest.approx((2 - size) * one_byte, rel=1e-4)  # norms count with the matrices
    assert gathered("bf16", quantized_weights=True) == gathered("bf16")
