"""The conventions by which programs count the FLOPs behind a printed TFLOPs figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tuner.core.columns import Columns
from tuner.costmodel.flops import forward_terms, hardware_flops, megatron_core_count, model_flops, older_estimate
from tuner.tables import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFlops:
    """FLOPs of one forward pass over the global batch, by product."""

    layers: float
    scores: float
    logits: float
    weights: float
    """2 x parameters x tokens; in a mixture of experts, those that a token passes through."""
    older: float
    """The whole iteration by the older Megatron-DeepSpeed formula."""
    megatron_core: float
    """The whole iteration as Megatron-Core counts it."""
    megatron_core_gated: float
    """The same with the gate's matrix under every activation."""
    again: float
    """What is recomputed."""
    full: bool
    repeats_scores: bool


def terms_of(run: MeasuredRun) -> ForwardFlops:
    """Return the FLOPs of a run."""
    columns = Columns.of([run.topology], run.workload, run.cluster)
    forward = {name: float(values[0]) for name, values in forward_terms(columns).items()}
    model = run.workload.model
    return ForwardFlops(
        **forward,
        weights=2.0 * model.active_parameters * run.workload.global_batch * model.seq,
        older=float(older_estimate(columns)[0]),
        megatron_core=float(megatron_core_count(columns)[0]),
        megatron_core_gated=float(megatron_core_count(columns, gated=True)[0]),
        again=float((hardware_flops(columns) - model_flops(columns))[0]),
        full=run.topology.recompute == "full",
        repeats_scores=run.topology.recompute == "full" or bool(columns.recomputes("core_attn")[0]),
    )


def hardware(terms: ForwardFlops) -> float:
    """Return the FLOPs that the GPUs execute, recompute included."""
    return 3 * (terms.layers + terms.scores + terms.logits) + terms.again


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopConvention:
    """One way to count FLOPs."""

    words: str
    count: Callable[[ForwardFlops], float]


CONVENTIONS: Final[tuple[FlopConvention, ...]] = (
    FlopConvention(words="hardware FLOPs (recompute included)", count=hardware),
    FlopConvention(words="model FLOPs (without recompute)", count=lambda t: 3 * (t.layers + t.scores + t.logits)),
    FlopConvention(words="the older Megatron-DeepSpeed formula", count=lambda t: t.older),
    FlopConvention(
        words="full recompute, whatever the run recomputes", count=lambda t: 4 * (t.layers + t.scores) + 3 * t.logits
    ),
    FlopConvention(words="6 FLOPs per parameter and token", count=lambda t: 3 * t.weights),
    FlopConvention(words="8 FLOPs per parameter and token", count=lambda t: 4 * t.weights),
    FlopConvention(
        words="6 FLOPs per parameter and token (8 with full recompute)", count=lambda t: (3 + t.full) * t.weights
    ),
    FlopConvention(words="6 FLOPs per parameter and token plus attention", count=lambda t: 3 * (t.weights + t.scores)),
    FlopConvention(
        words="6 FLOPs per parameter and token (8 with full recompute) plus attention",
        count=lambda t: (3 + t.full) * (t.weights + t.scores),
    ),
    FlopConvention(
        words="6 FLOPs per parameter and token plus half of attention (causal)",
        count=lambda t: 3 * (t.weights + t.scores / 2),
    ),
    FlopConvention(
        words="model FLOPs with half of attention (causal)",
        count=lambda t: 3 * (t.layers + t.scores / 2 + t.logits),
    ),
    FlopConvention(
        words="hardware FLOPs with half of attention (causal)",
        count=lambda t: hardware(t) - (3 + t.repeats_scores) * t.scores / 2,
    ),
    FlopConvention(words="model FLOPs without logits", count=lambda t: 3 * (t.layers + t.scores)),
    FlopConvention(words="hardware FLOPs without logits", count=lambda t: hardware(t) - 3 * t.logits),
    FlopConvention(words="the matrices of the layers only", count=lambda t: 3 * t.layers),
    FlopConvention(words="the matrices of the layers only, with recompute", count=lambda t: (3 + t.full) * t.layers),
    FlopConvention(words="Megatron-Core's count (causal, without router)", count=lambda t: t.megatron_core),
    FlopConvention(
        words="Megatron-Core's count with the gate under any activation", count=lambda t: t.megatron_core_gated
    ),
)
"""Best known first: of two that explain a table equally well, the earlier one is chosen."""

NEWEST: Final = 0
OLDER: Final = 2
WELL_KNOWN: Final = range(7)
"""Conventions that a single row may follow against its group."""
