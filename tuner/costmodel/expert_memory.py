"""Bytes of a layer's activations for experts, in addition to attention, and of its dispatcher's buffers."""

from __future__ import annotations

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import DISPATCHERS
from tuner.costmodel.expert_constants import EXPERT_MLP_COPIES
from tuner.costmodel.expert_shapes import expert_ffn, expert_tokens, experts_of, routed_tokens
from tuner.costmodel.kernels import saved_bytes, size_of

_ALL_GATHER = DISPATCHERS.index("allgather")


def expert_activations(columns: Columns) -> FloatArray:
    """Return the bytes that the routed experts of a layer keep for the backward pass.

    Every token of each expert in front of its first product, the inputs and the output of its activation, and the
    router's scores in fp32. Its output is not kept: the weights multiply the activation, of a gated expert in the same
    kernel, otherwise in one of its own, which keeps its input too (Megatron-LM, core/transformer/moe/experts.py:
    bias_act_func).
    """
    tokens, size, saved = expert_tokens(columns), size_of(columns.workload), saved_bytes(columns.workload)
    between = saved + size * (EXPERT_MLP_COPIES - 1)
    routed = tokens * (saved * columns.hidden + between * expert_ffn(columns) / columns.etp)
    scores = 4.0 * routed_tokens(columns) * experts_of(columns).count
    return routed + scores


def dispatcher_buffers(columns: Columns) -> FloatArray:
    """Return the bytes of the exchange of a layer's tokens: the send and receive buffers.

    An all-gather sends a rank's own tokens and receives those of all ranks that share the experts.
    """
    own, size = routed_tokens(columns) * columns.hidden, size_of(columns.workload)
    sent = np.where(columns.dispatcher == _ALL_GATHER, own * columns.ep * columns.etp, own * experts_of(columns).top_k)
    return np.where(columns.ep * columns.etp > 1, size * (sent + expert_tokens(columns) * columns.hidden), 0.0)
