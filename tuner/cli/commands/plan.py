"""`tuner plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tuner.cli.options import as_csv, as_json, describes_spaces, takes_calibration
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.planning.cost import TopologyCost
    from tuner.planning.plan import Plan
    from tuner.space.build import SpaceArguments
    from tuner.space.space import Space


@click.command(
    short_help="Rank the legal topologies by estimated training time.",
    epilog="Example: tuner plan --nodes 48 --set tp=8 --set micro_batch=1,2,4",
)
@describes_spaces
@click.option(
    "--top", type=click.IntRange(min=0), default=10, metavar="N", help="Rows to list; 0 for all. [default: 10]"
)
@takes_calibration
@as_csv
@as_json
def plan(
    space: Space | None, description: SpaceArguments, model: CostModel, top: int, as_csv: bool, as_json: bool
) -> None:
    """Rank all legal topologies by estimated training time, without launching anything.

    Topologies that are unlikely to fit in memory are listed separately. All figures are estimates; calibrate the
    cost model on your cluster with 'tuner calibrate' and pass the result with --calibration. --framework all compares
    the best topology of every framework.
    """
    from tuner.planning.plan import plan

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    if space is None:
        _print_frameworks(description, model, as_csv=as_csv, as_json=as_json)
        return
    made = plan(space, top=top, model=model)
    if as_json:
        _print_json(space, made, model)
    elif as_csv:
        _print_csv(space, made)
    else:
        _print_text(space, made, model)


def _print_frameworks(description: SpaceArguments, model: CostModel, *, as_csv: bool, as_json: bool) -> None:
    """Print the best topology of every framework."""
    from tuner.cli.output import print_csv, print_json, print_table, space_document, space_lines
    from tuner.core.frameworks import ANY
    from tuner.export.support import export_note
    from tuner.planning.frameworks import HEADERS, SAME_KERNELS, WORDS, cells, plan_frameworks
    from tuner.space.build import space_for

    made = plan_frameworks(cost_model=model, **description)
    if as_csv:
        print_csv(HEADERS, [[cell.replace(",", "") for cell in cells(row)] for row in made.rows])
        return
    exports = {row.framework: export_note(row.workload, made.cluster) for row in made.rows if row.workload}
    described: SpaceArguments = {**description}
    described["framework"] = ANY
    space = space_for(**described)
    if not as_json:
        print("\n".join([*space_lines(space, compares_frameworks=True), ""]))
        print_table(HEADERS, [cells(row) for row in made.rows], left=WORDS, spare=("Attention", "Precision", "Days"))
        unable = [f"{row.framework}: {row.reason}" for row in made.rows if row.reason]
        print("\n".join(["", *unable, *(f"Note: {note}" for note in exports.values() if note), SAME_KERNELS]))
        return
    rows = [
        {
            "framework": row.framework,
            "legal": row.legal,
            "fitting": row.fitting,
            "key": row.best.topology.key if row.best else None,
            "sec_per_iter": row.best.seconds if row.best else None,
            "days": row.best.days if row.best else None,
            "memory_gib": row.best.memory / GIB if row.best else None,
            "fits": row.best.fits if row.best else False,
            "precision": row.workload.precision if row.workload else None,
            "attention": row.workload.attention if row.workload else None,
            "reason": row.reason,
            "export_note": exports.get(row.framework, ""),
        }
        for row in made.rows
    ]
    document = space_document(space)
    common = {name: document[name] for name in ("model", "notes", "cluster")}
    print_json(
        "plan-frameworks",
        {**common, "tokens": space.workload.training_tokens, "frameworks": rows, "note": SAME_KERNELS},
    )


MAX_REMOVING_RULES: Final = 6
"""Rules that the header names, those that remove most first; JSON has all."""

_ESTIMATED: Final = (
    *("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "memory_gib", "oom_probability", "tflops", "days"),
    "mfu",
)
"""The columns of estimates."""


def _print_json(space: Space, made: Plan, model: CostModel) -> None:
    from tuner.cli.output import calibration_document, print_json, space_document
    from tuner.core.documents import topology_document
    from tuner.export.support import export_note
    from tuner.planning.plan import ORDER
    from tuner.space.axes import axes_document
    from tuner.space.rules import frameworks_with_more

    print_json(
        "plan",
        {
            **space_document(space),
            "axes": axes_document(space.axes),
            "grid": made.tally.grid,
            "legal": made.tally.legal,
            "fitting": made.fitting,
            "removed": made.tally.removed,
            "unused": made.tally.unused,
            "possible_with": {
                rule: others for rule in made.tally.removed if (others := frameworks_with_more(rule, space.workload))
            },
            "seconds": round(made.seconds, 6),
            "calibration": calibration_document(space, model),
            "order": ORDER,
            **({"remedy": made.remedy} if made.remedy else {}),
            **({"hint": made.hint} if made.hint else {}),
            **({"export_note": note} if (note := export_note(space.workload, space.cluster)) else {}),
            "top": [
                {
                    "key": row.topology.key,
                    "topology": topology_document(row.topology, space.workload),
                    "microbatches": row.microbatches,
                    "bubble": row.bubble,
                    "advice": list(row.advice),
                    "sec_per_iter": row.seconds,
                    "sec_per_iter_low": row.low,
                    "sec_per_iter_high": row.high,
                    "memory_gib": row.memory / GIB,
                    "oom_probability": row.out_of_memory,
                    "fits": row.fits,
                    "tflops": row.flops / 1e12,
                    "mfu": row.mfu,
                    "days": row.days,
                    "terms": dict(row.estimate.time.terms),
                    "memory_terms_gib": {name: size / GIB for name, size in row.estimate.memory.terms.items()},
                }
                for row in made.top
            ],
        },
    )


def _print_csv(space: Space, made: Plan) -> None:
    from tuner.cli.output import print_csv
    from tuner.core.documents import topology_document
    from tuner.core.domain import OPT_IN

    names = {"micro_batch": "mbs", "global_batch": "gbs"}
    documents = [topology_document(row.topology, space.workload) for row in made.top]
    fields = list(dict.fromkeys(name for document in documents for name in document))
    axes = [names.get(name, name) for name in fields]
    rows = []
    for row, document in zip(made.top, documents, strict=True):
        values = [document.get(name, OPT_IN.get(name)) for name in fields]
        cells = [int(value) if isinstance(value, bool) else value for value in values]
        estimated = (row.seconds, row.low, row.high, row.memory / GIB, row.out_of_memory, row.flops / 1e12)
        figures = [f"{figure:.6g}" for figure in (*estimated, row.days, row.mfu)]
        rows.append([row.topology.key, *cells, row.microbatches, f"{row.bubble:.6f}", " ".join(row.advice), *figures])
    print_csv(["key", *axes, "microbatches", "bubble", "advice", *_ESTIMATED], rows)


def _print_text(space: Space, made: Plan, model: CostModel) -> None:
    from tuner.cli.output import changes_the_model, space_lines
    from tuner.core.text import column, counted
    from tuner.costmodel.backing import calibrated_on, unmeasured
    from tuner.export.support import export_note
    from tuner.planning.memory_remedies import nothing_fits
    from tuner.planning.plan import ORDER, removal

    tally, removed = made.tally, made.tally.removals()
    print("\n".join(space_lines(space)))
    print(
        f"{tally.grid:,} grid points, {tally.legal:,} legal, {made.fitting:,} fit; enumerated in {made.seconds:.2f} s"
    )
    causes = [removal(name, count, space.workload) for count, name in removed[:MAX_REMOVING_RULES]]
    rest = len(removed) - len(causes)
    causes += [f"{counted(rest, 'other rule')} (--json lists them)"] if rest else []
    print(f"Removed by rule: {', '.join(causes)}" if causes else "")
    print(f"{tally.advice()}\n" if tally.unused else "")
    unit = column([row.days for row in made.top])
    fitting = [row for row in made.top if row.fits]
    unlikely = [row for row in made.top if not row.fits]
    if fitting:
        _print_rows(fitting, unit)
    if unlikely:
        print("\nUnlikely to fit in memory:\n" if fitting else "Unlikely to fit in memory:\n")
        _print_rows(unlikely, unit)
    if unlikely and not fitting and made.fitting:
        ranks = "that probably fits ranks" if made.fitting == 1 else "that probably fit rank"
        print(f"\n{counted(made.fitting, 'topology')} {ranks} lower; list more rows with --top.")
    if made.remedy:
        why = nothing_fits(made.remedy)
        print(f"\n{why[0].upper()}{why[1:]}.")
    site = calibrated_on(model.calibration, space.workload, space.cluster)
    status = f"Estimates (calibrated on {site})" if site else "Uncalibrated estimates"
    print(f"\n{status}, not measurements. Sorted by {ORDER}.")
    if missing := unmeasured(space.workload, space.cluster):
        print(f"{missing[0].upper()}{missing[1:]}.")
    if note := export_note(space.workload, space.cluster):
        print(f"Note: {note}")
    if made.hint:
        print(made.hint)
    if changes_the_model(space):
        print(
            "Rows with other heads or another shape train a different model; their times to train are at equal compute."
        )


def _print_rows(rows: list[TopologyCost], unit: tuple[str, float]) -> None:
    """Print one table; `unit` is the heading of the training time and how many of it a day has."""
    from tuner.cli.output import print_table
    from tuner.core.text import four_digits, interval

    heading, per_day = unit
    cells = [
        (
            row.topology.key,
            row.topology.nodes,
            four_digits(row.seconds),
            interval(row.low, row.high),
            f"{row.days * per_day:,.1f}",
            f"{row.flops / 1e12:,.1f}",
            f"{100 * row.mfu:.1f}%",
            f"{row.memory / GIB:,.1f}",
            f"{100 * row.out_of_memory:.0f}%",
            row.heads,
            row.microbatches,
            ", ".join(row.advice),
        )
        for row in rows
    ]
    headers = ("Key", "Nodes", "Sec/it", "80% interval", heading, "TFLOPs", "MFU", "GiB", "P(OOM)", "Heads")
    spare = ("Advice", "Microbatches", "Heads", "Nodes", "TFLOPs", "80% interval", "MFU", heading)
    print_table((*headers, "Microbatches", "Advice"), cells, left=("Key", "Advice"), spare=spare)
