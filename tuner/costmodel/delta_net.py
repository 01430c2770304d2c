"""Gated DeltaNet on one GPU: the kernels of its delta rule, the traffic around them, and what a layer keeps.

The functions expect columns of `Columns.kinds`, in which each layer has Gated DeltaNet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.delta_net import CHUNK, DeltaNet
from tuner.costmodel.delta_constants import (
    DELTA_HEADS,
    DELTA_REFERENCES,
    DELTA_RULE_SECONDS,
    DELTA_TENSOR_SHARE,
    DELTA_WIDTH,
)
from tuner.costmodel.kernels import generation
from tuner.costmodel.site_factors import SiteFactors

Passes = tuple[FloatArray, FloatArray]
"""Seconds of the forward and of the backward pass."""


def delta_net_of(columns: Columns) -> DeltaNet | None:
    """Return the Gated DeltaNet that each layer has; None if each has attention."""
    delta = columns.workload.model.delta_net
    assert delta is None or delta.period == 0, "columns of one kind"  # noqa: S101 - callers take them from `kinds`
    return delta


def delta_rule(columns: Columns, delta: DeltaNet, tokens: Any, site: SiteFactors) -> Passes:
    """Estimate the kernels of flash-linear-attention.

    Most work on all chunks of all heads at once; those that pass the state on go from chunk to chunk, each of a few
    heads of a sequence on its own, so that a rank with few heads takes as long as one with `DELTA_HEADS`. Context
    parallel ranks have whole sequences of a share of the heads. Heads of another width than that of the benchmarks are
    taken to have their share of the work.
    """
    gpu, seq = columns.cluster.gpu, columns.workload.model.seq
    known = "blackwell" if generation(gpu).startswith("blackwell") else "hopper"
    sms, peak = DELTA_REFERENCES[known]
    pace = (1 - DELTA_TENSOR_SHARE) * sms / gpu.sms + DELTA_TENSOR_SHARE * peak / gpu.peak_flops.get("bf16", peak)
    pace = pace / site.attention
    heads = tokens * delta.value_heads / columns.tp
    scanned = np.maximum(seq, heads / DELTA_HEADS)
    heads = heads * (delta.key_size + delta.value_size) / (2 * DELTA_WIDTH)
    (each, scan), (each_back, scan_back) = DELTA_RULE_SECONDS[known]
    return pace * (each * heads + scan * scanned), pace * (each_back * heads + scan_back * scanned)


def moved_values(delta: DeltaNet) -> float:
    """Return the values that a forward pass reads and writes for a token outside products and the delta rule.

    They are the inputs and outputs of the convolution; of the L2 norm of queries and keys, and their copy before it;
    of repeating them for each value head; of the copies of values and gate; of the output's norm and its gate
    (NVIDIA/Megatron-LM at d98e8a64, megatron/core/ssm/gated_delta_net).
    """
    keys, values = 2 * delta.key_width, delta.value_width
    repeated = keys + _repeated(delta) if delta.value_heads > delta.key_heads else 0
    return 2 * delta.convolved + 4 * keys + repeated + 4 * values + 5 * values


def kept_values(delta: DeltaNet) -> float:
    """Return the values that a layer keeps for a token, besides the input of its projection.

    They are the projection's output, for the convolution; queries and keys after their norm, and repeated; values and
    gate; the output, normed, and gated; and of each value head the chunk's inverted matrix, decay and strength
    (fla/ops/gated_delta_rule/chunk.py at bc3b101d: save_for_backward).
    """
    keys, values = 2 * delta.key_width, delta.value_width
    repeated = _repeated(delta) if delta.value_heads > delta.key_heads else 0
    return delta.projected + keys + repeated + 5 * values + delta.value_heads * (CHUNK + 3)


def _repeated(delta: DeltaNet) -> int:
    """Return the columns of queries and keys of all value heads."""
    return 2 * delta.value_heads * delta.key_size
