"""`tuner plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tuner.cli.options import as_csv, as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.planning.cost import TopologyCost
    from tuner.planning.plan import Plan
    from tuner.space.space import Space


@click.command(
    short_help="Rank the legal topologies by estimated training time.",
    epilog="Example: tuner plan --nodes 48 --set tp=8 --set micro_batch=1,2,4",
)
@describes_a_space
@click.option(
    "--top", type=click.IntRange(min=0), default=10, metavar="N", help="Rows to list; 0 for all. [default: 10]"
)
@takes_calibration
@as_csv
@as_json
def plan(space: Space, model: CostModel, top: int, as_csv: bool, as_json: bool) -> None:
    """Rank all legal topologies by estimated training time, without launching anything.

    Topologies that are unlikely to fit in memory are listed last, separately. All figures are estimates; calibrate the
    cost model on your cluster with 'tuner calibrate' and pass the result with --calibration.
    """
    from tuner.planning.plan import plan

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    made = plan(space, top=top, model=model)
    if as_json:
        _print_json(space, made)
    elif as_csv:
        _print_csv(space, made)
    else:
        _print_text(space, made, model)


MAX_REMOVING_RULES: Final = 6
"""Rules that the header names, those that remove most first; JSON has all."""

_ESTIMATED: Final = (
    *("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "memory_gib", "oom_probability", "tflops", "days"),
    "mfu",
)
"""The columns of estimates."""


def _print_json(space: Space, made: Plan) -> None:
    from tuner.cli.output import print_json, space_document, topology_document
    from tuner.planning.plan import ORDER
    from tuner.space.axes import axes_document

    print_json(
        "plan",
        {
            **space_document(space),
            "axes": axes_document(space.axes),
            "grid": made.tally.grid,
            "legal": made.tally.legal,
            "fitting": made.fitting,
            "removed": made.tally.removed,
            "seconds": round(made.seconds, 6),
            "order": ORDER,
            "top": [
                {
                    "key": row.topology.key,
                    "topology": topology_document(row.topology, space),
                    "microbatches": row.microbatches,
                    "bubble": row.bubble,
                    "advice": list(row.advice),
                    "sec_per_iter": row.seconds,
                    "sec_per_iter_low": row.low,
                    "sec_per_iter_high": row.high,
                    "memory_gib": row.memory / 2**30,
                    "oom_probability": row.out_of_memory,
                    "fits": row.fits,
                    "tflops": row.flops / 1e12,
                    "mfu": row.mfu,
                    "days": row.training / 86400,
                    "terms": dict(row.estimate.time.terms),
                    "memory_terms_gib": {name: size / 2**30 for name, size in row.estimate.memory.terms.items()},
                }
                for row in made.top
            ],
        },
    )


def _print_csv(space: Space, made: Plan) -> None:
    from tuner.cli.output import print_csv, topology_document

    names = {"micro_batch": "mbs", "global_batch": "gbs"}
    documents = [topology_document(row.topology, space) for row in made.top]
    axes = [names.get(name, name) for name in documents[0]]
    rows = []
    for row, document in zip(made.top, documents, strict=True):
        cells = [int(value) if isinstance(value, bool) else value for value in document.values()]
        estimated = (row.seconds, row.low, row.high, row.memory / 2**30, row.out_of_memory, row.flops / 1e12)
        figures = [f"{figure:.6g}" for figure in (*estimated, row.training / 86400, row.mfu)]
        rows.append([row.topology.key, *cells, row.microbatches, f"{row.bubble:.6f}", " ".join(row.advice), *figures])
    print_csv(["key", *axes, "microbatches", "bubble", "advice", *_ESTIMATED], rows)


def _print_text(space: Space, made: Plan, model: CostModel) -> None:
    from tuner.cli.output import changes_the_model, space_lines
    from tuner.core.text import column, counted
    from tuner.planning.plan import ORDER

    tally = made.tally
    removed = sorted(((count, name) for name, count in tally.removed.items() if count), reverse=True)
    print("\n".join(space_lines(space)))
    print(f"{tally.grid:,} grid points, {tally.legal:,} legal, {made.fitting:,} fit; counted in {made.seconds:.2f} s")
    causes = [f"{name} {count:,}" for count, name in removed[:MAX_REMOVING_RULES]]
    rest = len(removed) - len(causes)
    causes += [f"{counted(rest, 'other rule')} (--json lists them)"] if rest else []
    print(f"removed by {', '.join(causes)}\n" if causes else "")
    unit = column([row.training / 86400 for row in made.top])
    fitting = [row for row in made.top if row.fits]
    unlikely = [row for row in made.top if not row.fits]
    if fitting:
        _print_rows(fitting, unit)
    if unlikely:
        print("\nUnlikely to fit in memory:\n" if fitting else "Unlikely to fit in memory:\n")
        _print_rows(unlikely, unit)
    status = "calibrated on this site" if model.calibration.known or model.calibration.weighed else "not calibrated"
    print(f"\nEstimates, not measurements ({status}). Order: {ORDER}.")
    if changes_the_model(space):
        print("Rows with other heads or another shape train a different model.")


def _print_rows(rows: list[TopologyCost], unit: tuple[str, float]) -> None:
    """Print one table; `unit` is the heading of the training time and how many of it a day has."""
    from tuner.cli.output import print_table

    heading, per_day = unit
    cells = [
        (
            row.topology.key,
            row.topology.nodes,
            f"{row.seconds:.4g}",
            f"{row.low:.4g} to {row.high:.4g}",
            f"{row.training / 86400 * per_day:,.1f}",
            f"{row.flops / 1e12:.1f}",
            f"{100 * row.mfu:.1f}%",
            f"{row.memory / 2**30:.1f}",
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
