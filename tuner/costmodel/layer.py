"""Estimate the seconds of one transformer layer for one microbatch on one GPU, by named terms.

Element-wise work is counted in bytes moved per token and column of hidden; see `constants`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.costmodel.constants import (
    ACCUMULATION_PASSES,
    BACKWARD_TRAFFIC_RATIO,
    BATCHED_PRODUCT_SPEED,
    DROPOUT_BYTES,
    EAGER_BYTES,
    ELEMENTWISE_BYTES,
    FLASH_SPEED,
    GELU_BYTES,
    HOST_COLLECTIVE_SECONDS,
    HOST_SECONDS,
    ROTARY_BYTES,
    SOFTMAX_BYTES,
    SWIGLU_BYTES,
    UNALIGNED_HEAD_SPEED,
    UNFUSED_NORM_BYTES,
    UPKEEP_SECONDS,
)
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.kernels import beside_layers, flash_rates, linear, product_rate, size_of, traffic_rate
from tuner.costmodel.links import Links, all_reduce
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import FUSED_ROTARY_BYTES, FUSED_SWIGLU_BYTES, MERGE_BYTES, QUANTIZE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Seconds of one layer for one microbatch."""

    products: FloatArray
    attention: FloatArray
    elementwise: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    """Time of ring attention's exchange that attention does not hide, and of merging its parts."""
    launch: FloatArray
    """Time that the GPU waits for the host."""
    upkeep: FloatArray
    recompute: FloatArray

    @property
    def total(self) -> FloatArray:
        """The sum of the terms."""
        return sum(self.terms().values(), start=np.zeros_like(self.products))

    def terms(self) -> dict[str, FloatArray]:
        """Return the terms by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def layer_seconds(columns: Columns, site: SiteFactors, links: Links) -> Layer:
    """Estimate one layer: forward pass, backward pass and recomputation."""
    gpu, workload = columns.cluster.gpu, columns.workload
    tokens = columns.micro_batch * workload.model.seq / columns.cp
    forward, backward = _products(columns, tokens, site)
    scores, scores_back = _attention(columns, tokens, site)
    moved = _elementwise(columns, tokens) * size_of(workload) / 2 / traffic_rate(gpu, site)
    cast, cast_back = _casts(columns, tokens, site) if workload.precision == "fp8" else (0.0, 0.0)
    framework = terms_of(workload)
    passes = 0.0 if framework.fused_accumulation else ACCUMULATION_PASSES
    upkeep = UPKEEP_SECONDS * site.upkeep + passes * _gradient_bytes(columns) / traffic_rate(gpu, site) * (
        columns.microbatches > 1
    )
    collectives = _collectives(columns, tokens, links)
    if overlapped := framework.overlap_tp:
        hidden = np.maximum((1 - overlapped) * collectives, collectives - forward)
        collectives = np.where(columns.tp <= columns.cluster.gpus_per_node, hidden, collectives)
    ring = _ring(columns, tokens, links)
    exposed, exposed_back = np.maximum(0, ring - scores), np.maximum(0, 2 * ring - scores_back)
    if (columns.cp > 1).any():
        merged, merged_back = _merges(columns, tokens, site)
        exposed, exposed_back = exposed + merged, exposed_back + merged_back
    host = HOST_COLLECTIVE_SECONDS * 2 * (columns.tp > 1)
    ahead = forward + scores + exposed + moved + cast + collectives
    back = backward + scores_back + exposed_back + BACKWARD_TRAFFIC_RATIO * moved + cast_back + collectives + upkeep
    waits = np.maximum(0, (HOST_SECONDS[0] + host) * site.host - ahead)
    waits_back = np.maximum(0, (HOST_SECONDS[1] + host) * site.host - back)
    return Layer(
        products=forward + backward,
        attention=scores + scores_back,
        elementwise=(1 + BACKWARD_TRAFFIC_RATIO) * moved + cast + cast_back,
        tensor_parallel=2 * collectives,
        context_parallel=exposed + exposed_back,
        launch=waits + waits_back,
        upkeep=upkeep + np.zeros_like(forward),
        recompute=np.where(
            columns.recompute == 2, ahead + waits, np.where(columns.recompute == 1, scores + exposed, 0.0)
        ),
    )


def _products(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate the forward and backward products of the four matrices, sharded by tensor parallelism."""
    workload, gpu = columns.workload, columns.cluster.gpu
    inputs = 2 if workload.model.gated_mlp else 1
    width = columns.head_size * columns.heads
    forward, backward = np.zeros(np.shape(tokens)), np.zeros(np.shape(tokens))
    for n, k in (
        ((width + 2 * columns.head_size * columns.kv_heads) / columns.tp, columns.hidden),
        (columns.hidden, width / columns.tp),
        (inputs * columns.ffn / columns.tp, columns.hidden),
        (columns.hidden, columns.ffn / columns.tp),
    ):
        ahead, back = linear(gpu, workload, site, tokens, n, k)
        forward, backward = forward + ahead, backward + back
    return forward, backward


def _attention(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate scores, softmax and their product with the values, forward and backward."""
    workload, gpu = columns.workload, columns.cluster.gpu
    seq, kernel = workload.model.seq, workload.attention
    operations = 4.0 * tokens * seq * columns.heads * columns.head_size / columns.tp
    if kernel in FLASH_SPEED:
        rate, rate_back = flash_rates(gpu, workload, site)
        return operations / 2 / rate, 2.5 * operations / 2 / rate_back
    rate = product_rate(gpu, beside_layers(gpu, workload), site) * site.attention / site.products
    slow = np.where(columns.head_size % 8 == 0, 1.0, UNALIGNED_HEAD_SPEED)
    products = operations / (rate * BATCHED_PRODUCT_SPEED * slow)
    dropped = DROPOUT_BYTES if workload.model.gated_mlp else 0.0  # the LLaMA family trains without dropout
    more, more_back = EAGER_BYTES if kernel == "eager" else (0.0, 0.0)
    seconds_per_byte = tokens * seq * columns.heads / columns.tp * size_of(workload) / 2 / traffic_rate(gpu, site)
    forward_bytes, backward_bytes = SOFTMAX_BYTES[0] - dropped + more, SOFTMAX_BYTES[1] - dropped + more_back
    return products + seconds_per_byte * forward_bytes, 2 * products + seconds_per_byte * backward_bytes


def _elementwise(columns: Columns, tokens: Any) -> FloatArray:
    """Return the bytes of 16-bit values that a forward pass moves between the products."""
    model = columns.workload.model
    whole = ELEMENTWISE_BYTES + (0.0 if columns.workload.fused_norms else UNFUSED_NORM_BYTES)
    sequence_shards = np.where(columns.sequence_parallel == 1, columns.tp, 1)
    width, keys = columns.head_size * columns.heads, columns.head_size * columns.kv_heads
    fused = terms_of(columns.workload).fused_elementwise
    gated = FUSED_SWIGLU_BYTES if fused else SWIGLU_BYTES
    cut = (gated if model.gated_mlp else GELU_BYTES) * columns.ffn + 4 * width
    if model.positions == "rotary":
        cut = cut + (FUSED_ROTARY_BYTES if fused else ROTARY_BYTES) * (width + keys)
    moved: FloatArray = tokens * (columns.hidden * whole / sequence_shards + cut / columns.tp)
    return moved


def _casts(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate the casts to fp8 of the four products' inputs and, backward, of their outputs' gradients.

    Weights are cast once an iteration, for the first microbatch (NVIDIA, Transformer Engine, is_first_microbatch).
    """
    workload = columns.workload
    recipe = workload.precision_recipe or ("rowwise" if workload.framework == "torchtitan" else "delayed")
    second = QUANTIZE_BYTES[recipe] / traffic_rate(columns.cluster.gpu, site) * tokens
    width, keys = columns.head_size * columns.heads, columns.head_size * columns.kv_heads
    inner = columns.ffn * (2 if workload.model.gated_mlp else 1)
    inputs = 2 * columns.hidden + (width + columns.ffn) / columns.tp
    outputs = 2 * columns.hidden + (width + 2 * keys + inner) / columns.tp
    return second * inputs, second * outputs


def _gradient_bytes(columns: Columns) -> FloatArray:
    grads: FloatArray = columns.layer_matrices / columns.tp * size_of(columns.workload)
    return grads


def _collectives(columns: Columns, tokens: Any, links: Links) -> FloatArray:
    """Estimate two all-reduces per pass; with sequence parallelism, gathers and scatters of the same bytes."""
    bandwidth, latency = links.tensor
    size = tokens * columns.hidden * size_of(columns.workload)
    return 2 * all_reduce(size, columns.tp, bandwidth, latency)


def _merges(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate the cp - 1 times at which ring attention merges its parts: outputs, and gradients backward."""
    width, keys = columns.head_size * columns.heads, columns.head_size * columns.kv_heads
    seconds = (columns.cp - 1) * tokens / columns.tp / traffic_rate(columns.cluster.gpu, site)
    return seconds * MERGE_BYTES[0] * width, seconds * MERGE_BYTES[1] * (width + 2 * keys)


def _ring(columns: Columns, tokens: Any, links: Links) -> FloatArray:
    """Estimate the seconds in which a forward pass of ring attention sends keys and values cp - 1 times.

    The backward pass also sends their gradients, twice as much in all (Liu et al. 2023, arXiv 2310.01889). No published
    table validates this term.
    """
    bandwidth, latency = links.context
    keys = columns.head_size * columns.kv_heads / columns.tp
    ring: FloatArray = (columns.cp - 1) * (2 * tokens * keys * size_of(columns.workload) / bandwidth + latency)
    return ring
