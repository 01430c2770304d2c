"""Sizes of a mixture of experts, row by row: widths, tokens, and experts on a GPU.

The tp x cp x dp ranks of a stage are regrouped for the experts: etp ranks share each expert, ep such groups share a
layer's experts, and the rest, `Columns.expert_shards`, hold copies (Liu et al. 2025, "MoE Parallel Folding", arXiv
2504.14960).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.experts import Experts
from tuner.costmodel.expert_constants import EXPERT_LOAD_DEVIATION
from tuner.costmodel.framework_terms import terms_of


def experts_of(columns: Columns) -> Experts:
    """Return the experts of the workload's model, which has some."""
    experts = columns.workload.model.experts
    assert experts is not None  # noqa: S101 - for the type checker; callers have asked
    return experts


def expert_ffn(columns: Columns) -> FloatArray:
    """Return the width of one expert, in the model's ratio to hidden."""
    return _in_ratio(columns, experts_of(columns).ffn)


def shared_ffn(columns: Columns) -> FloatArray:
    """Return the width of all shared experts together."""
    return _in_ratio(columns, experts_of(columns).shared_ffn)


def _in_ratio(columns: Columns, width: int) -> FloatArray:
    return np.asarray(columns.hidden * (width / columns.workload.model.hidden), dtype=np.float64)


def moe_share(columns: Columns) -> FloatArray:
    """Return the share of layers with experts on the stage with most of them, the last one."""
    experts = experts_of(columns)
    first = columns.layers - columns.layers // columns.pp
    found = experts.moe_layers_before(columns.layers) - experts.moe_layers_before(first)
    share: FloatArray = found / np.maximum(1, columns.layers - first)
    return share


def routed_tokens(columns: Columns) -> FloatArray:
    """Return a rank's tokens of one microbatch before they are dispatched: tensor parallel ranks have a share each."""
    tokens: FloatArray = columns.micro_batch * columns.workload.model.seq / (columns.cp * columns.tp)
    return tokens


def has_padded_experts(columns: Columns) -> bool:
    """Whether each expert gets as many tokens as its capacity, dropped or padded."""
    return bool(experts_of(columns).capacity_factor) and terms_of(columns.workload).padded_experts


def expert_load(columns: Columns) -> FloatArray:
    """Return the tokens of the busiest rank's experts relative to the mean.

    Balanced routing gives each expert as many. Natural routing gives expert i a share with the relative deviation
    `EXPERT_LOAD_DEVIATION`; the busiest of ep ranks, each with the mean of count / ep experts, is as far out as the
    greatest of ep normal numbers, sqrt(2 ln ep) deviations. Of few ranks it has at most all tokens. Experts that are
    padded have their capacity, whatever the routing (NVIDIA/Megatron-LM core_v0.12.0, megatron/core/transformer/moe/
    token_dispatcher.py: num_out_tokens). Tokens beyond a capacity are dropped by the router, before they are exchanged
    (NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/router.py: apply_router_token_dropping).
    """
    experts = experts_of(columns)
    if has_padded_experts(columns):
        return np.full(np.shape(columns.ep), experts.capacity_factor)
    load: FloatArray = np.ones(len(columns.tp)) if columns.ep.ndim else np.ones(())
    if columns.workload.routing == "natural":
        spread = EXPERT_LOAD_DEVIATION * np.sqrt(columns.ep / experts.count * 2 * np.log(np.maximum(1, columns.ep)))
        load = np.minimum(1 + spread, columns.ep)
    return np.minimum(load, experts.capacity_factor) if experts.capacity_factor else load


def expert_tokens(columns: Columns) -> FloatArray:
    """Return the tokens that the experts of the busiest rank multiply, each counted once for each of its experts."""
    tokens: FloatArray = routed_tokens(columns) * experts_of(columns).top_k * columns.etp * expert_load(columns)
    return tokens


def local_experts(columns: Columns) -> FloatArray:
    """Return the experts of one rank."""
    found: FloatArray = np.maximum(1.0, experts_of(columns).count / columns.ep)
    return found


def reached(columns: Columns, places: Any) -> FloatArray:
    """Return in how many of so many places, each with as many experts, a token has experts on average.

    With round-robin routing, the experts of token t are top_k consecutive ones from number t x top_k on (NVIDIA-NeMo/
    Automodel at 79d0ccfd, components/moe/layers.py: FakeBalancedGate; pytorch/torchtitan at b5bcd76, models/common/
    moe: _debug_force_load_balance_routing). With n local experts that crosses (top_k - gcd(top_k, n)) / n boundaries.
    """
    experts = experts_of(columns)
    if columns.workload.routing != "round-robin":
        return distinct(places, experts.top_k)
    local = np.maximum(1, experts.count // np.maximum(1, np.asarray(places, dtype=np.int64)))
    crossed = (experts.top_k - np.gcd(experts.top_k, local)) / local
    found: FloatArray = np.minimum(places, 1.0 + crossed)
    return found


def distinct(places: Any, choices: int) -> FloatArray:
    """Return how many of so many places a token with as many random choices reaches on average."""
    found: FloatArray = places * (1 - (1 - 1 / np.maximum(1.0, places)) ** choices)
    return found
