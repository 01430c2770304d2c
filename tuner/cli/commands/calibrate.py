"""`tuner calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_a_table
from tuner.cli.options import FilePath, as_json

if TYPE_CHECKING:
    from tuner.costmodel.evaluation import CalibrationReport
    from tuner.tables import Table


@click.command(
    short_help="Calibrate the cost model on your own measurements.",
    epilog="Example: tuner calibrate corpus/enoki-h100.csv -o runs/site.toml",
)
@takes_a_table
@click.option(
    "-o", "--output", type=FilePath(), metavar="FILE", required=True, help="Calibration file to write (TOML)."
)
@click.option(
    "--period",
    "--era",
    metavar="COLUMN",
    help="Column that labels speed periods. [default: periods found by 'tuner audit']",
)
@as_json
def calibrate(table: Table, output: str, period: str | None, as_json: bool) -> None:
    """Calibrate the cost model on the measurements of a table or a study.

    Fits ten factors with priors from the catalog, then a residual by kernel, shape and speed period. A single row
    already helps, and out-of-memory runs count too. Estimates are for the speed period of the last row.
    """
    from pathlib import Path

    from tuner.costmodel.site_file import write_site
    from tuner.study.warm_start import calibration_report

    learnt = calibration_report(table, period=period)
    write_site(Path(output), learnt.calibration, source=table.name)
    if as_json:
        _print_json(table, output, learnt, period_column=period)
    else:
        _print_text(table, output, learnt)


def _print_json(table: Table, output: str, learnt: CalibrationReport, *, period_column: str | None) -> None:
    from dataclasses import asdict

    from tuner.cli.output import print_json
    from tuner.tables import unused_columns

    print_json(
        "calibrate",
        {
            "table": table.name,
            "unused_columns": list(unused_columns(table, period_column)),
            "doubts": list(learnt.doubts),
            "simulated": table.simulated,
            "output": output,
            "skipped": [{"line": row.line, "reason": row.skipped} for row in learnt.table.rows if row.skipped],
            "timed_rows": learnt.timed,
            "memory_rows": learnt.calibration.weighed,
            "factors": asdict(learnt.calibration.site),
            "uncertainty": learnt.uncertainty,
            "memory_deviation": learnt.calibration.memory_deviation,
            "era": learnt.calibration.period,
            "median_error_before": learnt.before,
            "median_error_left_out": learnt.left_out,
        },
    )


def _print_text(table: Table, output: str, learnt: CalibrationReport) -> None:
    from dataclasses import asdict

    from tuner.cli.output import print_skipped, print_table
    from tuner.core.text import counted
    from tuner.costmodel.evaluation import MAX_FITTED
    from tuner.tables import assumptions

    site: dict[str, Any] = asdict(learnt.calibration.site)
    rows = [
        (name, f"x {value:.3f}", f"+- {100 * learnt.uncertainty[name]:.0f}%" if name in learnt.uncertainty else "")
        for name, value in site.items()
    ]
    print_table(("Factor", "Fitted", "Uncertainty"), rows, left=("Factor",))
    runs = counted(learnt.calibration.weighed, "row")
    deviation = f"memory uncertainty {100 * learnt.calibration.memory_deviation:.0f}%"
    label = "SIMULATED: " if table.simulated else ""
    print(f"\n{label}{table.name}: {counted(learnt.timed, 'timed row')}, {runs} with memory or OOM; {deviation}")
    if learnt.timed > MAX_FITTED:
        print(f"calibrated on {MAX_FITTED:,} of the timed rows, evenly spaced")
    if learnt.before is not None:
        after = "" if learnt.left_out is None else f", {100 * learnt.left_out:.1f}% after (5-fold cross-validation)"
        print(f"median error of time: {100 * learnt.before:.1f}% before calibration{after}")
    for doubt in learnt.doubts:
        print(doubt)
    if assumed := assumptions(learnt.table):
        print(assumed)
    print_skipped(learnt.table)
    print(f"wrote {output}; pass it to other commands with --calibration")
