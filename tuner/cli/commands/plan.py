"""`tuner plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tuner.cli.options import as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.planning.plan import Plan
    from tuner.space.space import Space


@click.command(epilog="Example: tuner plan --nodes 48 --set tp=8 --set micro_batch=1,2,4")
@describes_a_space
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Rows to list; 0: all of them.")
@takes_calibration
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV on stdout.")
@as_json
def plan(space: Space, model: CostModel, top: int, as_csv: bool, as_json: bool) -> None:
    """Rank the whole legal space by estimated time; launch nothing.

    What would not fit comes last. Estimates are the model's, not measurements; --calibration teaches it your site.
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
        _print_table(space, made, model)


_ESTIMATED: Final = (
    *("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "memory_gib", "oom_probability", "tflops", "days"),
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
                    "fits": row.out_of_memory < 0.5,
                    "tflops": row.flops / 1e12,
                    "days": row.training / 86400,
                    "terms": dict(row.estimate.time.terms),
                    "memory_terms_gib": {name: size / 2**30 for name, size in row.estimate.memory.terms.items()},
                }
                for row in made.top
            ],
        },
    )


def _print_csv(space: Space, made: Plan) -> None:
    import csv
    import sys

    from tuner.cli.output import topology_document

    names = {"micro_batch": "mbs", "global_batch": "gbs"}
    documents = [topology_document(row.topology, space) for row in made.top]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    axes = [names.get(name, name) for name in documents[0]]
    writer.writerow(["key", *axes, "microbatches", "bubble", "advice", *_ESTIMATED])
    for row, document in zip(made.top, documents, strict=True):
        cells = [int(value) if isinstance(value, bool) else value for value in document.values()]
        estimated = (row.seconds, row.low, row.high, row.memory / 2**30, row.out_of_memory, row.flops / 1e12)
        figures = [f"{figure:.6g}" for figure in (*estimated, row.training / 86400)]
        advice = " ".join(row.advice)
        writer.writerow([row.topology.key, *cells, row.microbatches, f"{row.bubble:.6f}", advice, *figures])


def _print_table(space: Space, made: Plan, model: CostModel) -> None:
    from tuner.cli.output import changes_the_model, print_table, space_lines
    from tuner.planning.plan import ORDER

    tally = made.tally
    removed = sorted(((count, name) for name, count in tally.removed.items() if count), reverse=True)
    print("\n".join(space_lines(space)))
    print(f"{tally.grid:,} grid points, {tally.legal:,} legal, counted in {made.seconds:.2f} s")
    print("removed by " + ", ".join(f"{name} {count:,}" for count, name in removed) + "\n" if removed else "")
    rows = [
        (
            row.topology.key,
            row.topology.nodes,
            f"{row.seconds:.4g}",
            f"{row.low:.4g} to {row.high:.4g}",
            f"{row.training / 86400:.3g}",
            f"{row.flops / 1e12:.1f}",
            f"{row.memory / 2**30:.1f}",
            f"{100 * row.out_of_memory:.0f}%",
            row.heads,
            row.microbatches,
            ", ".join(row.advice),
        )
        for row in made.top
    ]
    headers = ("Key", "Nodes", "Sec/it", "80% interval", "Days", "TFLOPs", "GiB", "P(OOM)", "Heads", "Microbatches")
    spare = ("Advice", "Microbatches", "Heads", "Nodes", "TFLOPs", "80% interval", "Days")
    print_table((*headers, "Advice"), rows, left=("Key", "Advice"), spare=spare)
    seen = "calibrated on this site" if model.calibration.known or model.calibration.weighed else "not calibrated"
    print(f"\nEstimates, not measurements ({seen}); {made.fitting:,} of {tally.legal:,} fit. Order: {ORDER}.")
    if changes_the_model(space):
        print("Heads or shape differ from the model's own: another value is another model.")
