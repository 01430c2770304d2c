"""Fast jobs of the worker: recorded losses of one rank, and topologies that train the same.

`test_worker.py` covers every topology but takes a minute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.workers import TINY, WORKLOAD, Ranks, topology
from tuner.core.domain import Workload

LLAMA = replace(
    TINY,
    name="tiny-llama",
    kv_heads=2,
    gated_mlp=True,
    norm="rmsnorm",
    positions="rotary",
    tied_embeddings=False,
    qkv_bias=False,
    qk_norm=True,
    embedding_norm=True,
)
SGD = replace(WORKLOAD, optimizer="sgd")
CLIP = 0.5
PRECISE = 1e-5
"""Relative tolerance in fp32, between topologies."""
PORTABLE = 1e-4
"""Relative tolerance between CPUs and between releases of torch."""

RECORDED: dict[str, tuple[Workload, list[float]]] = {
    "gpt": (SGD, [4.83927, 4.59391, 4.37169, 4.15061, 4.21727, 4.39136, 4.37936, 4.51074, 4.58564, 4.52037]),
    "gpt, Adam": (WORKLOAD, [4.83927, 4.66808, 4.59348, 4.53913, 4.52857, 4.56847, 4.49492, 4.47572, 4.45999, 4.42486]),
    "gpt, linear biases": (
        replace(SGD, model=replace(TINY, positions="alibi")),
        [4.81841, 4.605, 4.38107, 4.14597, 4.21835, 4.38723, 4.36627, 4.48903, 4.54899, 4.44671],
    ),
    "llama": (
        replace(SGD, model=LLAMA),
        [4.8593, 4.78036, 4.6943, 4.54661, 4.45097, 4.50302, 4.38449, 4.52381, 4.65454, 4.52784],
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_one_rank_has_the_recorded_losses(case: str, ranks: Ranks) -> None:
    workload, losses = RECORDED[case]
    assert ranks.succeeded(workload, clip=CLIP).losses == pytest.approx(losses, rel=PORTABLE)


@pytest.mark.parametrize(
    ("workload", "axes"),
    [
        (SGD, {"pp": 2, "recompute": "full"}),
        pytest.param(SGD, {"dp": 2, "zero": 1, "micro_batch": 2}, marks=pytest.mark.slow),
        pytest.param(WORKLOAD, {"dp": 2, "zero": 2, "micro_batch": 2, "offload": "optimizer"}, marks=pytest.mark.slow),
        (replace(SGD, model=replace(LLAMA, vocab=100)), {"tp": 2, "sequence_parallel": True}),
    ],
    ids=["two stages", "ZeRO 1", "ZeRO 2 with offload", "sequence parallelism and a padded vocabulary"],
)
def test_a_topology_has_the_losses_of_one_rank(workload: Workload, axes: dict[str, Any], ranks: Ranks) -> None:
    one, many = (ranks.succeeded(workload, chosen, clip=CLIP) for chosen in (topology(), topology(**axes)))
    assert many.losses == pytest.approx(one.losses, rel=PRECISE)
