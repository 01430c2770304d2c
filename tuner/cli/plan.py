"""`tuner plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli.options import as_json, describes_a_space

if TYPE_CHECKING:
    from tuner.planning import Plan
    from tuner.space import Space


@click.command(epilog="Example: tuner plan --nodes 48 --set tp=8 --set micro_batch=1,2,4")
@describes_a_space
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Rows to list; 0: all of them.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV on stdout.")
@as_json
def plan(space: Space, top: int, as_csv: bool, as_json: bool) -> None:
    """List the whole legal space; launch nothing."""
    from tuner.planning import plan

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    made = plan(space, top=top)
    if as_json:
        _print_json(space, made)
    elif as_csv:
        _print_csv(space, made)
    else:
        _print_table(space, made)


def _print_json(space: Space, made: Plan) -> None:
    from tuner.cli.output import axes_document, print_json, space_document, topology_document
    from tuner.planning import ORDER

    print_json(
        "plan",
        {
            **space_document(space),
            "axes": axes_document(space),
            "grid": made.tally.grid,
            "legal": made.tally.legal,
            "fitting": None,
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
                    "sec_per_iter": None,
                    "memory_gib": None,
                    "tflops": None,
                    "days": None,
                    "terms": {},
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
    writer.writerow(["key", *(names.get(name, name) for name in documents[0]), "microbatches", "bubble", "advice"])
    for row, document in zip(made.top, documents, strict=True):
        cells = [int(value) if isinstance(value, bool) else value for value in document.values()]
        writer.writerow([row.topology.key, *cells, row.microbatches, f"{row.bubble:.6f}", " ".join(row.advice)])


def _print_table(space: Space, made: Plan) -> None:
    from tuner.cli.output import changes_the_model, print_table, space_lines
    from tuner.planning import ORDER

    tally = made.tally
    removed = sorted(((count, name) for name, count in tally.removed.items() if count), reverse=True)
    print("\n".join(space_lines(space)))
    print(f"{tally.grid:,} grid points, {tally.legal:,} legal, counted in {made.seconds:.2f} s")
    print("removed by " + ", ".join(f"{name} {count:,}" for count, name in removed) + "\n" if removed else "")
    rows = [
        (
            row.topology.key,
            row.topology.nodes,
            row.topology.dp,
            row.topology.tp,
            row.topology.pp,
            row.topology.vpp,
            row.topology.micro_batch,
            row.topology.zero,
            row.topology.recompute,
            row.heads,
            row.microbatches,
            f"{100 * row.bubble:.1f}%",
            ", ".join(row.advice),
        )
        for row in made.top
    ]
    headers = ("Key", "Nodes", "DP", "TP", "PP", "VPP", "MBS", "ZeRO", "Recompute", "Heads", "Microbatches", "Bubble")
    spare = ("Advice", "Heads", "Recompute", "ZeRO", "VPP", "Nodes", "Bubble", "Microbatches", "MBS", "PP", "TP", "DP")
    print_table((*headers, "Advice"), rows, left=("Key", "Recompute", "Advice"), spare=spare)
    print(f"\nNot ranked by time yet. The order: {ORDER}.")
    if changes_the_model(space):
        print("Heads or shape differ from the model's own: another value is another model.")
