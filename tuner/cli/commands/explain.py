"""`tuner explain`: whether a topology is legal, where its time and memory go, and which rules it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.cli import completion
from tuner.cli.options import as_json, describes_a_space, takes_calibration
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.planning.cost import TopologyCost
    from tuner.planning.explain import Explanation, RuleVerdict
    from tuner.space.space import Space

_BAR_WIDTH: Final = 40
_MIN_BAR_WIDTH: Final = 10


@click.command(
    short_help="Check one topology, and show where its time and memory go.",
    epilog="Example: tuner explain tp8-pp12-dp4-mbs2-z1",
)
@click.argument("key", shell_complete=completion.keys)
@describes_a_space
@takes_calibration
@click.option(
    "--against", metavar="KEY", shell_complete=completion.keys, help="Compare with another topology, by term."
)
@click.option("--rules", "all_rules", is_flag=True, help="List all rules, including those that hold or do not apply.")
@as_json
def explain(key: str, space: Space, model: CostModel, against: str | None, all_rules: bool, as_json: bool) -> None:
    """Check a topology against every rule, and show where its time and memory would go.

    KEY looks like tp8-pp12-dp4-mbs2-z1; if dp is omitted, it follows from the number of nodes. Rules that hold are
    listed only with --rules.
    """
    from tuner.core.keys import parse_key
    from tuner.core.text import four_digits
    from tuner.costmodel.site_file import warn_of_mismatch
    from tuner.planning.cost import cost, fitting_neighbours
    from tuner.planning.explain import explain

    warn_of_mismatch(model.calibration, [(space.workload, space.cluster)])
    topology = parse_key(key, **space.key_context)
    explanation = explain(space, topology)
    own = cost(space, topology, model)
    other = cost(space, parse_key(against, **space.key_context), model) if against is not None else None
    fitting = [] if own.fits else fitting_neighbours(space, topology, model)
    if as_json:
        _print_json(space, model, explanation, own, other, fitting)
        return
    _print_verdict(space, model, explanation, own, fitting)
    _print_rules(explanation, all_rules=all_rules)
    print(f"\nTime per iteration: {four_digits(own.seconds)} s")
    _print_waterfall(own.estimate.time.terms, unit="s", scale=1.0)
    print(f"\nMemory per GPU on stage {own.stage}: {own.memory / GIB:,.1f} GiB")
    _print_waterfall(own.estimate.memory.terms, unit="GiB", scale=GIB)
    if other:
        _print_comparison(own, other)


def _print_json(
    space: Space,
    model: CostModel,
    explanation: Explanation,
    own: TopologyCost,
    other: TopologyCost | None,
    fitting: list[TopologyCost],
) -> None:
    from tuner.cli.output import calibration_document, print_json, space_document
    from tuner.core.documents import topology_document
    from tuner.costmodel.backing import unmeasured
    from tuner.costmodel.framework_terms import described
    from tuner.planning.explain import changes

    print_json(
        "explain",
        {
            **space_document(space),
            "key": explanation.topology.key,
            "topology": topology_document(explanation.topology, space.workload),
            "legal": explanation.legal,
            "in_space": explanation.legal and not explanation.outside,
            "outside": {axis: list(values) for axis, values in explanation.outside.items()},
            "verdicts": [
                {
                    "rule": verdict.rule,
                    "level": verdict.level,
                    "verdict": verdict.word,
                    "sentence": verdict.sentence,
                    "message": verdict.message,
                    "remedies": [
                        {"axis": remedy.axis, "values": list(remedy.values), "given": dict(remedy.given)}
                        for remedy in verdict.remedies
                    ],
                    "hint": verdict.hint,
                    "nearest": verdict.nearest.key if verdict.nearest else None,
                }
                for verdict in explanation.verdicts
            ],
            "estimate": _cost_document(own),
            "software": described(space.workload),
            "unmeasured": unmeasured(space.workload, space.cluster),
            "calibration": calibration_document(space, model),
            "against": _cost_document(other) if other else None,
            "would_fit": [_cost_document(near) for near in fitting],
            "nearest": [
                {
                    "key": near.key,
                    "topology": topology_document(near, space.workload),
                    "changes": {axis: list(pair) for axis, pair in changes(explanation.topology, near, space).items()},
                }
                for near in explanation.nearest
            ],
        },
    )


def _print_verdict(
    space: Space, model: CostModel, explanation: Explanation, cost: TopologyCost, fitting: list[TopologyCost]
) -> None:
    """Print whether the topology is legal, its estimate, whether it fits, and the nearest that are legal or fit."""
    from tuner.cli.output import space_lines
    from tuner.core.domain import PARTITION_WORDS
    from tuner.core.text import counted, four_digits, interval, listed, span
    from tuner.costmodel.backing import calibrated_on, unmeasured
    from tuner.costmodel.framework_terms import described
    from tuner.planning.cost import impossible
    from tuner.planning.explain import changes

    print("\n".join(space_lines(space)))
    topology = explanation.topology
    split = PARTITION_WORDS[topology.partition]
    partition = f" ({split})" if split else ""
    status = "not legal" if not explanation.legal else "legal, but not searched," if explanation.outside else "legal"
    print(f"\n{topology.key}: {status} on {counted(topology.nodes, 'node')}{partition}")
    estimate = "estimate" if explanation.legal else "estimate if it were legal"
    other_model = space.workload.as_in(topology).model != space.workload.model
    print(
        f"{estimate}: {four_digits(cost.seconds)} s per iteration (80% interval {interval(cost.low, cost.high)}), "
        f"{cost.flops / 1e12:,.1f} TFLOPs per GPU, {span(cost.days)}{' at equal compute' * other_model}"
    )
    print(
        f"memory: {cost.memory / GIB:,.1f} of {cost.limit / GIB:,.1f} GiB usable, on stage {cost.stage}: "
        f"{'fits' if cost.fits else 'does not fit'} (risk of running out of memory {100 * cost.out_of_memory:.0f}%)"
    )
    if doubt := impossible([cost]):
        print(f"note: {doubt}")
    print(f"software: {space.workload.framework or 'no framework'}: {listed(described(space.workload))}")
    print(f"calibration: {calibrated_on(model.calibration, space.workload, space.cluster) or 'none'}")
    if missing := unmeasured(space.workload, space.cluster):
        print(missing)
    for near in fitting:
        needs = f"{near.memory / GIB:,.1f} GiB, {four_digits(near.seconds)} s per iteration"
        print(f"fits instead: {near.topology.key}, {needs}")
    for nearest in explanation.nearest:
        pairs = changes(topology, nearest, space).items()
        which = "searched" if explanation.legal else "legal"
        print(f"nearest {which}: {nearest.key}  ({', '.join(f'{axis} {a} -> {b}' for axis, (a, b) in pairs)})")
    if not explanation.nearest and (not explanation.legal or explanation.outside):
        print("no topology is legal with these options; 'tuner plan' with the same options shows why")


def _print_rules(explanation: Explanation, *, all_rules: bool) -> None:
    """Print the rules that fail, advise or cannot be checked, then the others or how many there are."""
    from tuner.core.text import counted, listed

    print()
    for axis, values in explanation.outside.items() if explanation.legal else ():
        print(f"x space   {axis} is not among the values searched: {listed(values)}")
    by_word = {
        word: [verdict for verdict in explanation.verdicts if verdict.word == word]
        for word in ("broken", "open", "allowed", "holds", "moot")
    }
    words = tuple(by_word) if all_rules else ("broken", "open", "allowed")
    for word in words:
        for verdict in by_word[word]:
            print(_rule_line(verdict))
    if not all_rules:
        holding, moot = counted(len(by_word["holds"]), "rule"), len(by_word["moot"])
        print(f"{holding} hold and {moot} do not apply; list them with --rules")


def _rule_line(verdict: RuleVerdict) -> str:
    marks = {
        "broken": "!" if verdict.level == "advice" else "x",
        "open": "?",
        "holds": ".",
        "allowed": "-",
        "moot": "-",
    }
    nearest = f"nearest legal topology that keeps this rule: {verdict.nearest.key}" if verdict.nearest else ""
    message = {
        "broken": "; ".join(filter(None, (verdict.message, *map(str, verdict.remedies), verdict.hint, nearest))),
        "open": f"cannot be checked: {verdict.message}",
        "holds": verdict.sentence,
        "allowed": f"disabled; {verdict.message or verdict.sentence}",
        "moot": f"not applicable: {verdict.sentence}",
    }[verdict.word]
    return f"{marks[verdict.word]} {verdict.level:<6}  {verdict.rule}: {message}"


def _print_comparison(own: TopologyCost, other: TopologyCost) -> None:
    """Print which of two topologies is faster, and the terms that make the difference."""
    from tuner.cli.output import print_table, table_fits
    from tuner.core.text import decimals_of_terms
    from tuner.planning.cost import difference

    equal = abs(own.seconds - other.seconds) <= _ROUNDING * own.seconds
    faster, slower = (own, other) if equal or own.seconds < other.seconds else (other, own)
    changes = difference(faster, slower)
    decimals = decimals_of_terms(slower.seconds)
    gains = [f"{name} {-change:+,.{decimals}f} s" for name, change in changes if change > 0][:3]
    losses = [f"{name} {-change:+,.{decimals}f} s" for name, change in changes if change < 0][:2]
    share = 100 * (1 - faster.seconds / slower.seconds)
    if equal:
        print(f"\n{own.topology.key} and {other.topology.key} take the same time")
    else:
        why = ", ".join(gains) + (f"; partly offset by {', '.join(losses)}" if losses else "")
        print(f"\n{faster.topology.key} takes {share:.1f}% less time than {slower.topology.key}: {why}")
    ahead, behind = faster.estimate.time.terms, slower.estimate.time.terms
    rows = [(name, ahead.get(name, 0.0), behind.get(name, 0.0)) for name, _ in changes] + [
        ("total", faster.seconds, slower.seconds)
    ]
    cells = [  # adding 0.0 turns -0.0 into 0.0
        (
            name,
            f"{first:,.{decimals}f} s",
            f"{second:,.{decimals}f} s",
            f"{round(first - second, decimals) + 0.0:+,.{decimals}f} s",
        )
        for name, first, second in rows
    ]
    headers = ("Term", faster.topology.key, slower.topology.key, "Difference")
    if not table_fits(headers, cells):
        headers = ("Term", *(("First", "Second") if equal else ("Faster", "Slower")), "Difference")
    print_table(headers, cells, left=("Term",))


def _cost_document(cost: TopologyCost) -> dict[str, Any]:
    """Return the estimate for JSON."""
    return {
        "key": cost.topology.key,
        "sec_per_iter": cost.seconds,
        "sec_per_iter_low": cost.low,
        "sec_per_iter_high": cost.high,
        "terms": dict(cost.estimate.time.terms),
        "tflops": cost.flops / 1e12,
        "days": cost.days,
        "memory_gib": cost.memory / GIB,
        "usable_gib": cost.limit / GIB,
        "memory_terms_gib": {name: size / GIB for name, size in cost.estimate.memory.terms.items()},
        "worst_stage": cost.stage,
        "oom_probability": cost.out_of_memory,
        "fits": cost.fits,
    }


_ROUNDING: Final = 1e-12
"""Share of the total below which a term is the rounding of a difference."""


def _print_waterfall(terms: Mapping[str, float], *, unit: str, scale: float) -> None:
    """Print each term with its share of the total and a bar that starts where the previous one ends.

    Bars are shorter in a narrow terminal.
    """
    from tuner.cli.output import line_width
    from tuner.core.text import decimals_of_terms

    total = sum(terms.values())
    decimals = decimals_of_terms(total / scale)
    start, width, available = 0.0, _BAR_WIDTH, line_width()
    for name, value in terms.items():
        if value > _ROUNDING * total:
            share = value / total
            text = f"  {name:<18} {value / scale:>9,.{decimals}f} {unit} {100 * share:>5.1f}%  "
            if available is not None:
                width = max(_MIN_BAR_WIDTH, min(_BAR_WIDTH, available - len(text) - 1))
            bar = " " * round(width * start / total) + "#" * max(1, round(width * share))
            print(text + bar)
            start += value
