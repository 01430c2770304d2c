"""`tuner evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_a_table
from tuner.cli.options import as_json, calibration_option
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.costmodel.evaluation import Evaluation, RowEstimate, Summary
    from tuner.tables import Row, Table


@click.command(
    short_help="Compare the cost model with a table of measurements.",
    epilog="Example: tuner evaluate corpus/megatron-2021-a100.csv",
)
@takes_a_table
@calibration_option
@click.option(
    "--calibrate-rows",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="Calibrate on K random rows of each group, and score the others.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of --calibrate-rows."
)
@click.option("--rows", is_flag=True, help="List every row.")
@as_json
def evaluate(table: Table, calibration: str | None, calibrate_rows: int, seed: int, rows: bool, as_json: bool) -> None:
    """Compare the estimates of the cost model with measured time and memory.

    TABLE is a CSV file or a Markdown report; STUDY evaluates the finished jobs of that study. Ranking is scored within
    groups of at least five timed rows.
    """
    from pathlib import Path

    from tuner.costmodel.evaluation import evaluate
    from tuner.costmodel.site_file import read_site

    if calibration and calibrate_rows:
        raise click.UsageError("--calibration and --calibrate-rows exclude each other.")
    if seed and not calibrate_rows:
        raise click.UsageError("--seed requires --calibrate-rows, whose rows it draws.")
    known = read_site(Path(calibration)) if calibration else None
    made = evaluate(table, known, calibrate_rows=calibrate_rows, seed=seed)
    if as_json:
        _print_json(made)
    else:
        _print_text(made, rows)


def _print_json(made: Evaluation) -> None:
    from tuner.cli.output import print_json
    from tuner.tables import unused_columns

    print_json(
        "evaluate",
        {
            "table": made.table.name,
            "unused_columns": list(unused_columns(made.table)),
            "doubts": made.doubts,
            "calibrated_on": list(made.calibrated_on),
            "rows": [_row_document(row, made.guesses.get(row.index), made) for row in made.table.rows],
            "summary": _summary_document(made.summary),
            "groups": {name: _summary_document(summary) for name, summary in made.groups.items()},
        },
    )


def _summary_document(summary: Summary) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(summary)


def _row_document(row: Row, guess: RowEstimate | None, made: Evaluation) -> dict[str, Any]:
    return {
        "index": row.index,
        "line": row.line,
        "group": row.group,
        "key": row.run.topology.key if row.run else None,
        "status": row.status,
        "tokens": row.tokens,
        "measured_sec": row.seconds,
        "estimated_sec": guess.seconds if guess else None,
        "estimated_sec_low": guess.low if guess else None,
        "estimated_sec_high": guess.high if guess else None,
        "measured_gib": row.memory / GIB if row.memory else None,
        "estimated_gib": guess.memory / GIB if guess else None,
        "needed_gib": guess.need / GIB if guess else None,
        "oom_probability": guess.out_of_memory if guess else None,
        "fits": guess.fits if guess else None,
        "calibrated": row.index in made.calibrated_on,
        "assumed": dict(row.assumed),
        "skipped": row.skipped,
    }


def _print_text(made: Evaluation, rows: bool) -> None:
    from tuner.cli.output import print_skipped, print_table
    from tuner.core.text import counted
    from tuner.tables import assumptions

    if rows:
        cells = [_cells(row, made) for row in made.table.rows]
        headers = ("Line", "Group", "Key", "Sec", "Estimate", "80% interval", "Error", "GiB", "Estimate", "P(OOM)", "")
        print_table(headers, cells, left=("Group", "Key", ""), spare=("Group", "80% interval"))
        print()
    skipped = [row for row in made.table.rows if row.skipped]
    fitted = ""
    if made.calibrated_on:
        are = "is" if len(made.calibrated_on) == 1 else "are"
        fitted = f"; calibrated on {counted(len(made.calibrated_on), 'row')}, which {are} not scored"
    calibrated = made.calibration.known is not None or made.calibration.weighed
    label = "SIMULATED: " if made.table.simulated else ""
    print(f"{label}{made.table.name}: {counted(len(made.table.rows), 'row')}, {len(skipped)} skipped{fitted}")
    if not calibrated:
        print("the cost model is not calibrated: it uses data sheets and built-in constants")
    for doubt in made.doubts:
        print(doubt)
    if assumed := assumptions(made.table):
        print(assumed)
    print()
    summaries = {"all": made.summary, **(made.groups if len(made.groups) > 1 else {})}
    time = ("Timed", "Median err", "Mean err", "Tau", "Regret", "Pairs", "In 80%")
    print_table(
        ("Group", *time, "Memory", "Mean err", "OOM", "OOM recall", "Fit recall"),
        [(name, *_summary_cells(summary)) for name, summary in summaries.items()],
        left=("Group",),
        spare=("In 80%", "Pairs", "Regret"),
    )
    print_skipped(made.table)


def _cells(row: Row, made: Evaluation) -> tuple[str, ...]:
    from tuner.core.text import four_digits, interval

    guess, key = made.guesses.get(row.index), row.run.topology.key if row.run else ""
    if guess is None:
        return (str(row.line), row.group, key, *[""] * 7, "skipped")
    off = f"{100 * (guess.seconds / row.seconds - 1):+.1f}%" if row.timed and row.seconds else ""
    outcome = "skipped" if row.skipped else "" if row.status == "OK" else row.status
    return (
        *(str(row.line), row.group, key),
        four_digits(row.seconds) if row.seconds else "",
        four_digits(guess.seconds),
        interval(guess.low, guess.high),
        off,
        f"{row.memory / GIB:,.1f}" if row.memory else "",
        f"{guess.memory / GIB:,.1f}",
        f"{100 * guess.out_of_memory:.0f}%",
        "calibration" if row.index in made.calibrated_on else outcome,
    )


def _summary_cells(summary: Summary) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f}%"

    return (
        str(summary.timed_rows),
        share(summary.sec_median_ape),
        share(summary.sec_mape),
        "" if summary.kendall_tau is None else f"{summary.kendall_tau:.2f}",
        share(summary.top1_regret),
        share(summary.pairs_in_order),
        share(summary.within_interval),
        str(summary.mem_rows),
        share(summary.mem_mape),
        str(summary.oom_rows),
        share(summary.oom_recall),
        share(summary.fit_recall),
    )
