"""`tuner explain`.

Where time and memory go, for people and for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.cli.options import as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.planning.cost import TopologyCost
    from tuner.planning.explain import Explanation, RuleVerdict
    from tuner.space.space import Space
if TYPE_CHECKING:
    from tuner.planning.cost import TopologyCost


@click.command(epilog="Example: tuner explain tp8-pp12-dp4-mbs2-z1")
@click.argument("key")
@describes_a_space
@takes_calibration
@click.option("--against", metavar="KEY", help="Compare with another topology, term by term.")
@as_json
def explain(key: str, space: Space, model: CostModel, against: str | None, as_json: bool) -> None:
    """Judge a topology by every rule, with the numbers, and show where its time and memory would go.

    KEY reads tp8-pp12-dp4-mbs2-z1; without its dp part, dp follows from the nodes.
    """
    from tuner.core.keys import parse_key
    from tuner.planning.cost import cost, fitting_neighbours
    from tuner.planning.explain import explain

    topology = parse_key(key, **space.key_context)
    found = explain(space, topology)
    own = cost(space, topology, model)
    other = cost(space, parse_key(against, **space.key_context), model) if against else None
    fitting = [] if own.fits else fitting_neighbours(space, topology, model)
    if as_json:
        _print_json(space, found, own, other, fitting)
    else:
        _print_text(space, found)
        print_cost(own)
        if other:
            print_comparison(own, other)
        for near in fitting:
            print(f"would fit: {near.topology.key}, {near.memory / 2**30:.1f} GiB, {near.seconds:.4g} s an iteration")


def _print_json(
    space: Space, found: Explanation, own: TopologyCost, other: TopologyCost | None, fitting: list[TopologyCost]
) -> None:
    from tuner.cli.output import print_json, space_document, topology_document
    from tuner.planning.explain import changes

    print_json(
        "explain",
        {
            **space_document(space),
            "key": found.topology.key,
            "topology": topology_document(found.topology, space),
            "legal": found.legal,
            "in_space": found.legal and not found.outside,
            "outside": {axis: list(values) for axis, values in found.outside.items()},
            "verdicts": [
                {
                    "rule": verdict.rule,
                    "level": verdict.level,
                    "verdict": verdict.word,
                    "sentence": verdict.sentence,
                    "message": verdict.message,
                    "remedies": [
                        {"axis": way.axis, "values": list(way.values), "given": dict(way.given)}
                        for way in verdict.remedies
                    ],
                    "hint": verdict.hint,
                    "nearest": verdict.nearest.key if verdict.nearest else None,
                }
                for verdict in found.verdicts
            ],
            "estimate": cost_document(own),
            "against": cost_document(other) if other else None,
            "would_fit": [cost_document(near) for near in fitting],
            "nearest": [
                {
                    "key": near.key,
                    "topology": topology_document(near, space),
                    "changes": {axis: list(pair) for axis, pair in changes(found.topology, near, space).items()},
                }
                for near in found.nearest
            ],
        },
    )


def _print_text(space: Space, found: Explanation) -> None:
    from tuner.cli.output import space_lines
    from tuner.core.text import counted, listed
    from tuner.planning.explain import changes

    print("\n".join(space_lines(space)))
    topology = found.topology
    partition = " (embedding and head count as layers)" if topology.partition == "embedding" else ""
    status = "not legal" if not found.legal else "legal, but not searched," if found.outside else "legal"
    print(f"\n{topology.key}: {status} on {counted(topology.nodes, 'node')}{partition}\n")
    for axis, values in found.outside.items() if found.legal else ():
        print(f"x space   its {axis} is not among the values searched: {listed(values)}")
    for word in ("broken", "open", "holds", "allowed", "moot"):
        for verdict in found.verdicts:
            if verdict.word == word:
                print(_line(verdict))
    for near in found.nearest:
        pairs = changes(topology, near, space).items()
        print(f"\nnearest legal: {near.key}  ({', '.join(f'{axis} {a} -> {b}' for axis, (a, b) in pairs)})", end="")
    if found.nearest:
        print()
    elif not found.legal or found.outside:
        print("\nNo topology at all is legal here; `tuner plan` with the same options says why.")


def _line(verdict: RuleVerdict) -> str:
    marks = {
        "broken": "!" if verdict.level == "advice" else "x",
        "open": "?",
        "holds": ".",
        "allowed": "-",
        "moot": "-",
    }
    way_out = f"nearest legal that way: {verdict.nearest.key}" if verdict.nearest else ""
    said = {
        "broken": "; ".join(filter(None, (verdict.message, *map(str, verdict.remedies), verdict.hint, way_out))),
        "open": f"cannot be judged: {verdict.message}",
        "holds": verdict.sentence,
        "allowed": f"switched off; {verdict.message or verdict.sentence}",
        "moot": f"says nothing of this workload: {verdict.sentence}",
    }[verdict.word]
    return f"{marks[verdict.word]} {verdict.level:<6}  {verdict.rule}: {said}"


_WIDTH: Final = 40
_GIB: Final = 2.0**30


def print_cost(cost: TopologyCost) -> None:
    """Two waterfalls, each term with its share."""
    between = f"80% of measurements between {cost.low:.4g} and {cost.high:.4g}"
    rate = f"{cost.flops / 1e12:.1f} TFLOPs a GPU, {cost.training / 86400:.3g} days"
    print(f"\nestimated: {cost.seconds:.4g} s an iteration ({between}), {rate}")
    _waterfall(cost.estimate.time.terms, unit="s", scale=1.0)
    room = f"{cost.memory / _GIB:.1f} GiB on its worst stage, number {cost.stage}, of {cost.limit / _GIB:.1f} usable"
    verdict = "fits" if cost.fits else "does not fit"
    print(f"\nmemory: {room}: {verdict}, chance of running out {100 * cost.out_of_memory:.0f}%")
    _waterfall(cost.estimate.memory.terms, unit="GiB", scale=_GIB)


def print_comparison(ours: TopologyCost, other: TopologyCost) -> None:
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


def cost_document(cost: TopologyCost) -> dict[str, Any]:
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
