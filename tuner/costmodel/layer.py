"""Seconds of one transformer layer for one microbatch on one GPU, by what the time goes to.

Element-wise work is counted in bytes moved for each token and column of hidden; see the constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.costmodel.kernels import beside_layers, linear, product_rate, size_of, traffic_rate
from tuner.costmodel.links import Links, all_reduce
from tuner.costmodel.site_factors import SiteFactors

BATCHED: Final = 0.64 / 0.79
"""Speed of the batched products of attention's scores beside a dense product, fitted."""

UNALIGNED_HEAD: Final = 0.13
"""Their speed where a head's width is no multiple of 8: the tensor cores are not used. Fitted by BLOOM's 128 heads at
hidden 13824 (width 108), which take a third longer than 64."""

FLASH: Final = {"flash1": 0.286 / 0.79, "flash2": 0.445 / 0.79}
"""Speed of FlashAttention's forward pass beside a dense product, over the causal half; 1: Dao et al. 2022 (arXiv
2205.14135), 2: Dao 2023 (arXiv 2307.08691). Fitted."""

FLASH_BACKWARD: Final = 0.604
"""Speed of its backward pass beside the forward one, which recomputes the scores: 5 products for 2. Fitted."""

SOFTMAX: Final = (10.1, 14.7)
"""Bytes moved for each score, forward and backward, by Megatron's fused softmax with dropout. Fitted; by counting
reads and writes of 16 bits it is 13 and 17."""

DROPOUT: Final = 2.9
"""What dropout takes of them, fitted; 5 by counting."""

EAGER: Final = (20.0, 22.1)
"""Bytes more for each score, forward and backward, where scale, mask and softmax are kernels of their own. Fitted."""

ELEMENTWISE: Final = 21.1
"""Bytes moved forward for each token and column: two norms, two residuals, dropout. Fitted; counting gives 22."""

UNFUSED_NORMS: Final = 90.0
"""Bytes more where the two norms are made of plain framework operations in fp32. Fitted; counting gives 70 to 90."""

GELU: Final = 4.0
"""Bytes moved forward for each column of the MLP by bias and GeLU in one kernel."""

SWIGLU: Final = 12.4
"""The same for SiLU and product as kernels of their own, fitted; 10 by counting."""

ROTARY: Final = 14.5
"""Bytes moved for each rotated column of queries and keys, fitted."""

BACKWARD_TRAFFIC: Final = 1.6
"""Element-wise traffic of the backward pass beside the forward one: each operation reads what it saved as well."""

HOST: Final = (0.48e-3, 0.85e-3)
"""Seconds in which the host launches one layer's kernels, forward and backward: where the GPU is faster it waits.
Fitted to small models of hidden 2048 on one node."""

HOST_COLLECTIVE: Final = 2.2e-4
"""Seconds more for each tensor parallel collective, fitted."""

ACCUMULATE: Final = 4.3 / 2
"""Times that a layer's gradients pass through memory to be added to those of earlier microbatches, fitted; reading
both and writing one is 3."""

UPKEEP: Final = 0.55e-3
"""Seconds of a layer in each microbatch that no other term explains, fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Seconds of one layer for one microbatch."""

    products: FloatArray
    attention: FloatArray
    elementwise: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    """What ring attention's exchange takes beyond the attention that it hides behind."""
    launch: FloatArray
    """What the GPU waits for the host."""
    upkeep: FloatArray
    recompute: FloatArray

    @property
    def total(self) -> FloatArray:
        """All of it."""
        return sum(self.terms().values(), start=np.zeros_like(self.products))

    def terms(self) -> dict[str, FloatArray]:
        """By name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def layer_seconds(columns: Columns, site: SiteFactors, links: Links) -> Layer:
    """One layer, forward, backward and what recompute repeats."""
    gpu, workload = columns.cluster.gpu, columns.workload
    tokens = columns.micro_batch * workload.model.seq / columns.cp
    forward, backward = _products(columns, tokens, site)
    scores, scores_back = _attention(columns, tokens, site)
    moved = _elementwise(columns, tokens) * size_of(workload) / 2 / traffic_rate(gpu, site)
    upkeep = UPKEEP * site.upkeep + ACCUMULATE * _gradient_bytes(columns) / traffic_rate(gpu, site) * (
        columns.microbatches > 1
    )
    collectives = _collectives(columns, tokens, links)
    ring = _ring(columns, tokens, links)
    exposed, exposed_back = np.maximum(0, ring - scores), np.maximum(0, 2 * ring - scores_back)
    host = HOST_COLLECTIVE * 2 * (columns.tp > 1)
    ahead = forward + scores + exposed + moved + collectives
    back = backward + scores_back + exposed_back + BACKWARD_TRAFFIC * moved + collectives + upkeep
    waits = np.maximum(0, (HOST[0] + host) * site.host - ahead)
    waits_back = np.maximum(0, (HOST[1] + host) * site.host - back)
    return Layer(
        products=forward + backward,
        attention=scores + scores_back,
        elementwise=(1 + BACKWARD_TRAFFIC) * moved,
        tensor_parallel=2 * collectives,
        context_parallel=exposed + exposed_back,
        launch=waits + waits_back,
        upkeep=upkeep + np.zeros_like(forward),
        recompute=np.where(
            columns.recompute == 2, ahead + waits, np.where(columns.recompute == 1, scores + exposed, 0.0)
        ),
    )


def _products(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Forward and backward products of the four matrices, cut by tensor parallelism."""
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
    """Scores, softmax and their product with the values: forward and backward."""
    workload, gpu = columns.workload, columns.cluster.gpu
    seq, kernel = workload.model.seq, workload.attention
    rate = product_rate(gpu, beside_layers(gpu, workload), site) * site.attention / site.products
    operations = 4.0 * tokens * seq * columns.heads * columns.head_size / columns.tp
    if kernel in FLASH:
        forward = operations / 2 / (rate * FLASH[kernel])
        return forward, 2.5 * forward / FLASH_BACKWARD
    slow = np.where(columns.head_size % 8 == 0, 1.0, UNALIGNED_HEAD)
    products = operations / (rate * BATCHED * slow)
    dropped = DROPOUT if workload.model.gated_mlp else 0.0  # the LLaMA family trains without dropout
    more, more_back = EAGER if kernel == "eager" else (0.0, 0.0)
    each = tokens * seq * columns.heads / columns.tp * size_of(workload) / 2 / traffic_rate(gpu, site)
    forward_bytes, backward_bytes = SOFTMAX[0] - dropped + more, SOFTMAX[1] - dropped + more_back
    return products + each * forward_bytes, 2 * products + each * backward_bytes


def _elementwise(columns: Columns, tokens: Any) -> FloatArray:
    """Bytes of 16-bit values that a forward pass moves between the products."""
    model = columns.workload.model
    whole = ELEMENTWISE + (0.0 if columns.workload.fused_norms else UNFUSED_NORMS)
    kept = np.where(columns.sequence_parallel == 1, columns.tp, 1)
    width, keys = columns.head_size * columns.heads, columns.head_size * columns.kv_heads
    cut = (SWIGLU if model.gated_mlp else GELU) * columns.ffn + 4 * width
    if model.positions == "rotary":
        cut = cut + ROTARY * (width + keys)
    moved: FloatArray = tokens * (columns.hidden * whole / kept + cut / columns.tp)
    return moved


def _gradient_bytes(columns: Columns) -> FloatArray:
    grads: FloatArray = columns.layer_matrices / columns.tp * size_of(columns.workload)
    return grads


def _collectives(columns: Columns, tokens: Any, links: Links) -> FloatArray:
    """Two all-reduces a pass, or with sequence parallelism as many gathers and scatters of the same bytes."""
    bandwidth, latency = links.tensor
    size = tokens * columns.hidden * size_of(columns.workload)
    return 2 * all_reduce(size, columns.tp, bandwidth, latency)


def _ring(columns: Columns, tokens: Any, links: Links) -> FloatArray:
    """Seconds in which a forward pass of ring attention hands keys and values on, cp - 1 times.

    The backward pass hands on their gradients as well, twice as much (Liu et al. 2023, arXiv 2310.01889). No published
    table at hand checks it.
    """
    bandwidth, latency = links.context
    keys = columns.head_size * columns.kv_heads / columns.tp
    ring: FloatArray = (columns.cp - 1) * (2 * tokens * keys * size_of(columns.workload) / bandwidth + latency)
    return ring
