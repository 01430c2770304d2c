"""How programs count the operations behind a printed TFLOPs figure: the conventions that are in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tuner.core.columns import Columns
from tuner.costmodel.flops import forward_terms, older_estimate
from tuner.tables import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFlops:
    """Operations of one forward pass over the global batch, by what is multiplied."""

    layers: float
    scores: float
    logits: float
    weights: float
    """Two for each parameter and token."""
    older: float
    """The whole iteration by Megatron-DeepSpeed's older estimate."""
    full: bool
    selective: bool


def terms_of(run: MeasuredRun) -> ForwardFlops:
    """The terms of a run."""
    columns = Columns.of([run.topology], run.workload, run.cluster)
    forward = {name: float(values[0]) for name, values in forward_terms(columns).items()}
    model = run.workload.model
    return ForwardFlops(
        **forward,
        weights=2.0 * model.parameters * run.workload.global_batch * model.seq,
        older=float(older_estimate(columns)[0]),
        full=run.topology.recompute == "full",
        selective=run.topology.recompute == "selective",
    )


def hardware(terms: ForwardFlops) -> float:
    """What the GPUs compute, with what this recompute runs twice."""
    again = (terms.layers + terms.scores) * terms.full + terms.scores * terms.selective
    return 3 * (terms.layers + terms.scores + terms.logits) + again


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopConvention:
    """One way to count."""

    words: str
    count: Callable[[ForwardFlops], float]


CONVENTIONS: Final[tuple[FlopConvention, ...]] = (
    FlopConvention(words="what the GPUs compute, recompute included", count=hardware),
    FlopConvention(
        words="what the model takes, recompute left out", count=lambda t: 3 * (t.layers + t.scores + t.logits)
    ),
    FlopConvention(words="the older Megatron-DeepSpeed estimate", count=lambda t: t.older),
    FlopConvention(
        words="full recompute, whatever is recomputed", count=lambda t: 4 * (t.layers + t.scores) + 3 * t.logits
    ),
    FlopConvention(words="6 per parameter and token", count=lambda t: 3 * t.weights),
    FlopConvention(words="8 per parameter and token", count=lambda t: 4 * t.weights),
    FlopConvention(words="6 per parameter and token, 8 with full recompute", count=lambda t: (3 + t.full) * t.weights),
    FlopConvention(words="6 per parameter and token, and attention", count=lambda t: 3 * (t.weights + t.scores)),
    FlopConvention(
        words="6 per parameter and token, 8 with full recompute, and attention",
        count=lambda t: (3 + t.full) * (t.weights + t.scores),
    ),
    FlopConvention(
        words="6 per parameter and token, and half of attention (causal)",
        count=lambda t: 3 * (t.weights + t.scores / 2),
    ),
    FlopConvention(
        words="what the model takes, with half of attention (causal)",
        count=lambda t: 3 * (t.layers + t.scores / 2 + t.logits),
    ),
    FlopConvention(
        words="what the GPUs compute, with half of attention (causal)",
        count=lambda t: hardware(t) - (3 + (t.full or t.selective)) * t.scores / 2,
    ),
    FlopConvention(words="what the model takes, without logits", count=lambda t: 3 * (t.layers + t.scores)),
    FlopConvention(words="what the GPUs compute, without logits", count=lambda t: hardware(t) - 3 * t.logits),
    FlopConvention(words="the layers' matrices alone", count=lambda t: 3 * t.layers),
    FlopConvention(words="the layers' matrices alone, with recompute", count=lambda t: (3 + t.full) * t.layers),
)
"""The best known first: where two explain a table equally well, the earlier one is taken."""

NEWEST: Final = 0
OLDER: Final = 2
WELL_KNOWN: Final = range(7)
"""Those that a single row may be said to follow against its group."""
