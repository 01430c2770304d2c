"""Activations that Transformer Engine's layers keep for the backward pass, in 16 bits and in fp8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.model import Model
from tuner.core.recompute import selecting
from tuner.costmodel.estimate import CostModel
from tuner.space.build import space_for

GATED = replace(QWEN3_30B, experts=None, qk_norm=False, ffn=6144)
PLAIN = replace(GATED, activation="gelu")
TOKENS, HIDDEN, WIDTH, LAYERS = 4096, 2048, 32 * 128, 48
KEYS = 2 * 4 * 128


def kept(model: Model, framework: Any = "megatron-core", precision: Any = "bf16", modules: Any = None) -> float:
    """Return the bytes of activations of one microbatch on one GPU."""
    space = space_for(model=model, gpu="B200-180GB-SXM", nodes=1, global_batch=8)
    workload = replace(space.workload, framework=framework, precision=precision)
    row = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, recompute=selecting(modules or ()))
    return float(CostModel().score(Columns.of([row], workload, space.cluster)).memory_terms["activations"][0])


def test_a_gated_layer_keeps_each_value_once() -> None:
    """A layer keeps two norms' inputs and outputs, q, k, v, attention's output and sums, gate, up and their product."""
    each = 8 * HIDDEN + 2 * (WIDTH + KEYS + WIDTH + 3 * 6144)
    sums, last_norm = 4 * 32, 4 * HIDDEN
    assert kept(GATED) == pytest.approx(TOKENS * (LAYERS * (each + sums) + last_norm))


def test_other_frameworks_keep_what_was_fitted() -> None:
    assert kept(GATED, "deepspeed") - kept(GATED) == pytest.approx(
        TOKENS * (LAYERS * 2 * 0.6 * 6144 - 4 * HIDDEN), rel=1e-6
    )


@pytest.mark.parametrize(("model", "experts"), [(GATED, False), (PLAIN, False), (QWEN3_30B, True)])
def test_inputs_of_fp8_and_fp4_products_are_kept_as_they_were_cast(model: Model, experts: bool) -> None:
    """Their values take 1 byte, or 1/2 and a scale for 16 of them; attention also keeps its 16-bit output."""
    values = 2 * HIDDEN + WIDTH + (8 * (HIDDEN + 768) if experts else 6144)
    for precision, size in (("fp8", 1.0), ("fp4", 0.5625)):
        less = (2 - size) * values - 2 * WIDTH
        assert kept(model) - kept(model, precision=precision) == pytest.approx(TOKENS * LAYERS * less)
    if not experts:
        assert kept(model, "deepspeed") == kept(model, "deepspeed", "fp8")


@pytest.mark.parametrize(
    ("modules", "bf16", "fp8"),
    [
        (("layernorm",), 2 * HIDDEN, HIDDEN),
        (("moe_act",), 2 * 8 * 768, 8 * 768),
    ],
)
def test_recomputed_values_free_what_was_kept_of_them(modules: tuple[str, ...], bf16: int, fp8: int) -> None:
    for precision, freed in (("bf16", bf16), ("fp8", fp8)):
        whole = kept(QWEN3_30B, precision=precision)
        assert whole - kept(QWEN3_30B, precision=precision, modules=modules) == pytest.approx(TOKENS * LAYERS * freed)
