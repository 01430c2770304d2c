"""Muon: the products of its step (Newton-Schulz iteration), and what dealing whole matrices out to ranks takes.

Counted (NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/__init__.py: _get_megatron_emerging_optimizer):
queries, keys and values apart, gate and up together, each expert by itself; tensor parallel ranks compute the same
(`muon_tp_mode` duplicated). The distributed optimizer gives each matrix to one rank, and each rank as much room in the
buffers of weights and gradients as the fullest has (core/optimizer/layer_wise_optimizer.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.costmodel.delta_net import delta_net_of
from tuner.costmodel.expert_shapes import expert_ffn, experts_of, local_experts, shared_ffn
from tuner.costmodel.kernels import beside_layers, product_rate
from tuner.costmodel.matrices import attention_products, gate_width
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import NEWTON_SCHULZ_STEPS
from tuner.costmodel.stages import Stages


def orthogonal_seconds(columns: Columns, site: SiteFactors, stage: Stages) -> FloatArray:
    """Estimate the products of one step on the rank of a stage that has most of them, at least one whole matrix."""
    gpu, (ranks, copies) = columns.cluster.gpu, _ranks(columns)
    model = columns.workload.model
    layers = stage.layers + stage.predictors
    mixtures = stage.moe_layers + stage.predictors * model.is_moe_layer(model.layers - 1)
    attention, longest = _mixing(columns)
    dense = layers * attention + (layers - mixtures) * _mlp(columns, columns.ffn)
    first = _first(columns, _widest(columns))
    if columns.workload.model.experts:
        router = _operations(experts_of(columns).count, columns.hidden)
        dense = dense + mixtures * (_mlp(columns, shared_ffn(columns)) + router)
    operations = np.maximum(dense / ranks, np.maximum(first, longest))
    if columns.workload.model.experts:
        each = expert_ffn(columns)
        routed = mixtures * local_experts(columns) * _mlp(columns, each)
        operations = operations + np.maximum(routed / copies, _first(columns, each) * (mixtures > 0))
    seconds: FloatArray = operations / product_rate(gpu, beside_layers(gpu, columns.workload), site)
    return seconds


def dealt_elements(stage: Stages) -> tuple[FloatArray, FloatArray]:
    """Return the elements by which a GPU's buffers exceed its parameters, and those that the fullest rank updates."""
    columns = stage.columns
    ranks, copies = _ranks(columns)
    first = _inputs(columns) * _widest(columns) * columns.hidden / columns.tp
    projections = [rows * inner for _, part in columns.kinds for _, rows, inner in attention_products(part, 1.0)]
    largest = np.maximum(first, np.max(np.broadcast_arrays(*projections), axis=0))
    more, own = _dealt(stage.parameters - stage.table_parameters, largest, ranks)
    if columns.workload.model.experts:
        of_expert = _inputs(columns) * expert_ffn(columns) * columns.hidden / columns.etp
        more_experts, own_experts = _dealt(stage.expert_parameters, of_expert, copies)
        more, own = more + more_experts, own + own_experts
    return more, own + stage.table_parameters / ranks


def _widest(columns: Columns) -> Any:
    """Return the width of the widest MLP beside routed experts."""
    model = columns.workload.model
    return columns.ffn if model.dense_mlp_layers else shared_ffn(columns)


def _dealt(elements: Any, largest: Any, ranks: Any) -> tuple[Any, Any]:
    """Return what is added to elements, of which no rank has less than the largest matrix, and the most of a rank."""
    most = np.where(elements > 0, np.maximum(elements / ranks, np.minimum(largest, elements)), 0.0)
    return most * ranks - elements, most


def _ranks(columns: Columns) -> tuple[Any, Any]:
    """Return over how many ranks the distributed optimizer deals matrices out, and those of experts."""
    copies = columns.expert_shards if columns.workload.model.experts else columns.shards
    return np.where(columns.zero >= 1, columns.shards, 1), np.where(columns.zero >= 1, copies, 1)


def _operations(rows: Any, columns: Any) -> Any:
    """Return the operations for one matrix: its square, the square of that, and its product with their sum."""
    least, most = np.minimum(rows, columns), np.maximum(rows, columns)
    return NEWTON_SCHULZ_STEPS * (4.0 * least**2 * most + 2.0 * least**3)


def _inputs(columns: Columns) -> int:
    return 2 if columns.workload.model.gated_mlp else 1


def _first(columns: Columns, width: Any) -> Any:
    """Return the operations of an MLP's first matrix, the largest."""
    return _operations(_inputs(columns) * width, columns.hidden)


def _mlp(columns: Columns, width: Any) -> Any:
    return _first(columns, width) + _operations(columns.hidden, width)


def _mixing(columns: Columns) -> tuple[Any, Any]:
    """Return the operations for the attention or Gated DeltaNet of an average layer, and the most for a matrix."""
    kinds = [(share, [_operations(*size) for size in _attention(part)]) for share, part in columns.kinds]
    most = np.max(np.broadcast_arrays(*(each for _, parts in kinds for each in parts)), axis=0)
    return sum(share * sum(parts) for share, parts in kinds), most


def _attention(columns: Columns) -> list[tuple[Any, Any]]:
    """Return the sizes of the matrices of attention."""
    latent, hidden, heads = columns.workload.model.latent, columns.hidden, columns.heads
    if delta := delta_net_of(columns):
        return [(delta.projected, hidden), (hidden, delta.value_width)]
    if latent is None:
        queries, keys = columns.query_width, columns.kv_width
        return [(queries + gate_width(columns), hidden), (keys, hidden), (keys, hidden), (hidden, queries)]
    rank = latent.query_rank
    first = [(rank, hidden), (heads * latent.key_size, rank)] if rank else [(heads * latent.key_size, hidden)]
    return [
        *first,
        (latent.kv_rank + latent.rope_size, hidden),
        (heads * (latent.nope_size + latent.value_size), latent.kv_rank),
        (hidden, heads * latent.value_size),
    ]
