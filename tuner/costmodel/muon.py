"""Muon's step: the products by which it makes the update of each matrix orthogonal (Newton-Schulz iteration).

Counted (NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/__init__.py: _get_megatron_emerging_optimizer):
queries, keys and values apart, gate and up together, each expert by itself; tensor parallel ranks compute the same
(`muon_tp_mode` duplicated), and the distributed optimizer deals whole matrices out to its ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.costmodel.expert_shapes import expert_ffn, experts_of, local_experts, shared_ffn
from tuner.costmodel.kernels import beside_layers, product_rate
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import NEWTON_SCHULZ_STEPS
from tuner.costmodel.stages import Stages


def orthogonal_seconds(columns: Columns, site: SiteFactors, stage: Stages) -> FloatArray:
    """Estimate the products of one step on the slowest rank of a stage."""
    gpu, ranks = columns.cluster.gpu, np.where(columns.zero >= 1, columns.shards, 1)
    operations = stage.layers * _attention(columns)
    if columns.workload.model.experts:
        mixtures, copies = stage.moe_layers, np.where(columns.zero >= 1, columns.expert_shards, 1)
        operations = operations + (stage.layers - mixtures) * _mlp(columns, columns.ffn)
        shared = _mlp(columns, shared_ffn(columns)) + _operations(experts_of(columns).count, columns.hidden)
        routed = local_experts(columns) * _mlp(columns, expert_ffn(columns))
        operations = (operations + mixtures * shared) / ranks + mixtures * routed / copies
    else:
        operations = (operations + stage.layers * _mlp(columns, columns.ffn)) / ranks
    seconds: FloatArray = operations / product_rate(gpu, beside_layers(gpu, columns.workload), site)
    return seconds


def _operations(rows: Any, columns: Any) -> Any:
    """Return the operations for one matrix: its square, the square of that, and its product with their sum."""
    least, most = np.minimum(rows, columns), np.maximum(rows, columns)
    return NEWTON_SCHULZ_STEPS * (4.0 * least**2 * most + 2.0 * least**3)


def _mlp(columns: Columns, width: Any) -> Any:
    inputs = 2 if columns.workload.model.gated_mlp else 1
    return _operations(inputs * width, columns.hidden) + _operations(columns.hidden, width)


def _attention(columns: Columns) -> Any:
    latent, hidden = columns.workload.model.latent, columns.hidden
    if latent is None:
        queries, keys = columns.query_width, columns.kv_width
        return 2 * _operations(queries, hidden) + 2 * _operations(keys, hidden)
    heads = columns.heads
    found = _operations(latent.kv_rank + latent.rope_size, hidden)
    found = found + _operations(heads * (latent.nope_size + latent.value_size), latent.kv_rank)
    found = found + _operations(hidden, heads * latent.value_size)
    if not latent.query_rank:
        return found + _operations(heads * latent.key_size, hidden)
    return found + _operations(latent.query_rank, hidden) + _operations(heads * latent.key_size, latent.query_rank)
