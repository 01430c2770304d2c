"""Matrices of a layer on one GPU: products of attention, and elements of attention, MLP, shared and routed experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.costmodel.delta_net import delta_net_of
from tuner.costmodel.expert_shapes import expert_ffn, experts_of, local_experts, shared_ffn

Product = tuple[Any, Any, Any]
"""Rows, columns and inner size of a matrix product."""


def attention_products(columns: Columns, tokens: Any) -> tuple[Product, ...]:
    """Return the products of the attention's projections in a forward pass on one tensor parallel rank.

    Latent attention projects down on every rank, for its share of the sequence, and up for its heads (Megatron-LM,
    core/transformer/multi_latent_attention.py).
    """
    latent = columns.workload.model.latent
    if delta := delta_net_of(columns):
        return (
            (tokens, delta.projected / columns.tp, columns.hidden),
            (tokens, columns.hidden, delta.value_width / columns.tp),
        )
    if latent is None:
        return (
            (tokens, (columns.query_width + gate_width(columns) + 2 * columns.kv_width) / columns.tp, columns.hidden),
            (tokens, columns.hidden, columns.query_width / columns.tp),
        )
    heads, own = columns.heads / columns.tp, tokens / columns.sequence_shards
    queries: tuple[Product, ...] = ((tokens, heads * latent.key_size, columns.hidden),)
    if latent.query_rank:
        queries = (
            (own, latent.query_rank, columns.hidden),
            (tokens, heads * latent.key_size, latent.query_rank),
        )
    return (
        *queries,
        (own, latent.kv_rank + latent.rope_size, columns.hidden),
        (tokens, heads * (latent.nope_size + latent.value_size), latent.kv_rank),
        (tokens, columns.hidden, heads * latent.value_size),
    )


def gate_width(columns: Columns) -> Any:
    """Return the columns of the gate of attention's output."""
    return columns.query_width * columns.workload.model.attention_gate


def attention_widths(columns: Columns) -> tuple[Any, Any, Any]:
    """Return the widths of queries, of keys and values together, and of attention's output, summed over tensor parallel
    ranks, each of which has at least one key/value head; with Gated DeltaNet, all that is projected counts as
    queries."""
    queries, latent = columns.query_width, columns.workload.model.latent
    if delta := delta_net_of(columns):
        return delta.projected, 0, delta.value_width
    if latent is None:
        return queries, 2 * columns.head_size * columns.placed_kv_heads, queries
    output = columns.heads * latent.value_size
    return queries, queries + output, output


def attention_weights(columns: Columns) -> FloatArray:
    """Return the elements of the matrices of one layer's attention or Gated DeltaNet on one tensor parallel rank, in
    the mean."""
    one: Any = np.ones_like(columns.hidden)
    weights: FloatArray = np.zeros(np.shape(one))
    for share, part in columns.kinds:
        weights = weights + share * sum(n * k for _, n, k in attention_products(part, one))
    return weights


def mlp_weights(columns: Columns, width: Any) -> FloatArray:
    """Return the elements of the matrices of an MLP of this width."""
    weights: FloatArray = (3 if columns.workload.model.gated_mlp else 2) * columns.hidden * width
    return weights


def shared_weights(columns: Columns) -> FloatArray:
    """Return the elements of the router and of the shared experts on one tensor parallel rank."""
    router = columns.hidden * experts_of(columns).count
    return mlp_weights(columns, shared_ffn(columns)) / columns.tp + router


def routed_weights(columns: Columns) -> FloatArray:
    """Return the elements of the matrices of one layer's routed experts on one GPU."""
    return local_experts(columns) * mlp_weights(columns, expert_ffn(columns)) / columns.etp


def routed_biases(columns: Columns) -> FloatArray | float:
    """Return the elements of the biases of one layer's routed experts on one GPU."""
    model = columns.workload.model
    if not experts_of(columns).expert_bias:
        return 0.0
    inner = (2 if model.gated_mlp else 1) * expert_ffn(columns) / columns.etp
    return local_experts(columns) * (inner + columns.hidden)


def layer_weights(columns: Columns, share: Any) -> FloatArray:
    """Return the elements of a layer's matrices on one GPU without routed experts, where a share of layers has them."""
    weights = attention_weights(columns) + (1 - share) * mlp_weights(columns, columns.ffn) / columns.tp
    if columns.workload.model.experts:
        weights = weights + share * shared_weights(columns)
    return np.asarray(weights, dtype=np.float64)
