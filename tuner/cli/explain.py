"""`tuner explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli.options import as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from tuner.costmodel.estimate import Model
    from tuner.planning.cost import Cost
    from tuner.planning.explain import Explanation, Verdict
    from tuner.space.space import Space


@click.command(epilog="Example: tuner explain tp8-pp12-dp4-mbs2-z1")
@click.argument("key")
@describes_a_space
@takes_calibration
@click.option("--against", metavar="KEY", help="Compare with another topology, term by term.")
@as_json
def explain(key: str, space: Space, model: Model, against: str | None, as_json: bool) -> None:
    """Judge a topology by every rule, with the numbers, and show where its time and memory would go.

    KEY reads tp8-pp12-dp4-mbs2-z1; without its dp part, dp follows from the nodes.
    """
    from tuner.cli.costs import print_comparison, print_cost
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


def _print_json(space: Space, found: Explanation, own: Cost, other: Cost | None, fitting: list[Cost]) -> None:
    from tuner.cli.costs import cost_document
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


def _line(verdict: Verdict) -> str:
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
