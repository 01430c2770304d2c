"""Where time and memory go, for people and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tuner.planning.cost import Cost

_WIDTH: Final = 40
_GIB: Final = 2.0**30


def print_cost(cost: Cost) -> None:
    """Two waterfalls, each term with its share."""
    between = f"80% of measurements between {cost.low:.4g} and {cost.high:.4g}"
    rate = f"{cost.flops / 1e12:.1f} TFLOPs a GPU, {cost.training / 86400:.3g} days"
    print(f"\nestimated: {cost.seconds:.4g} s an iteration ({between}), {rate}")
    _waterfall(cost.estimate.time.terms, unit="s", scale=1.0)
    room = f"{cost.memory / _GIB:.1f} GiB on its worst stage, number {cost.stage}, of {cost.limit / _GIB:.1f} usable"
    verdict = "fits" if cost.fits else "does not fit"
    print(f"\nmemory: {room}: {verdict}, chance of running out {100 * cost.out_of_memory:.0f}%")
    _waterfall(cost.estimate.memory.terms, unit="GiB", scale=_GIB)


def print_comparison(ours: Cost, other: Cost) -> None:
    """Why one is faster than the other, term by term."""
    from tuner.planning.cost import difference

    faster, slower = (ours, other) if ours.seconds <= other.seconds else (other, ours)
    changes = difference(faster, slower)
    gains = [f"{name} {-change:+.3g} s" for name, change in changes if change > 0][:3]
    losses = [f"{name} {-change:+.3g} s" for name, change in changes if change < 0][:2]
    share = 100 * (1 - faster.seconds / slower.seconds)
    why = ", ".join(gains) + (f", against {', '.join(losses)}" if losses else "")
    print(f"\n{faster.topology.key} takes {share:.1f}% less time than {slower.topology.key}: {why or 'all the same'}")
    ahead, behind = faster.estimate.time.terms, slower.estimate.time.terms
    rows = [(name, ahead[name], behind[name]) for name, _ in changes] + [("all", faster.seconds, slower.seconds)]
    for name, first, second in rows:
        print(f"  {name:<18} {first:>10.4g} s   {second:>10.4g} s   {second - first:+.4g} s")


def cost_document(cost: Cost) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "key": cost.topology.key,
        "sec_per_iter": cost.seconds,
        "sec_per_iter_low": cost.low,
        "sec_per_iter_high": cost.high,
        "terms": dict(cost.estimate.time.terms),
        "tflops": cost.flops / 1e12,
        "days": cost.training / 86400,
        "memory_gib": cost.memory / _GIB,
        "usable_gib": cost.limit / _GIB,
        "memory_terms_gib": {name: size / _GIB for name, size in cost.estimate.memory.terms.items()},
        "worst_stage": cost.stage,
        "oom_probability": cost.out_of_memory,
        "fits": cost.fits,
    }


def _waterfall(terms: Mapping[str, float], *, unit: str, scale: float) -> None:
    total = sum(terms.values())
    before = 0.0
    for name, value in terms.items():
        if value:
            share = value / total
            bar = " " * round(_WIDTH * before / total) + "#" * max(1, round(_WIDTH * share))
            print(f"  {name:<18} {value / scale:>9.4g} {unit} {100 * share:>5.1f}%  {bar}")
            before += value
