"""`tuner calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_a_table
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.costmodel.evaluation import CalibrationReport
    from tuner.tables import Table


@click.command(epilog="Example: tuner calibrate corpus/enoki-h100.csv -o runs/site.toml")
@takes_a_table
@click.option("-o", "--output", metavar="FILE", required=True, help="The TOML file to write.")
@click.option(
    "--era", metavar="COLUMN", help="The column that says which rows share a day. [default: what audit finds]"
)
@as_json
def calibrate(table: Table, output: str, era: str | None, as_json: bool) -> None:
    """Fit the model to a site's own measurements.

    Ten factors under priors from the catalog, then a residual by kernel, shape and day. One row helps; runs that were
    out of memory count. Plans are made for the last row's day.
    """
    from pathlib import Path

    from tuner.audit import eras
    from tuner.core.errors import InputError
    from tuner.costmodel.evaluation import learn
    from tuner.costmodel.site_file import write_site

    if era is not None and era not in table.columns:
        raise InputError(f"{table.name} has no column {era!r}.")
    labels = [row.cells.get(era, "") for row in table.rows] if era else eras(table.rows)
    learnt = learn(table, labels)
    write_site(Path(output), learnt.calibration, source=table.name)
    if as_json:
        _print_json(table, output, learnt)
    else:
        _print_text(table, output, learnt)


def _print_json(table: Table, output: str, learnt: CalibrationReport) -> None:
    from dataclasses import asdict

    from tuner.cli.output import print_json

    print_json(
        "calibrate",
        {
            "table": table.name,
            "output": output,
            "timed_rows": learnt.timed,
            "memory_rows": learnt.calibration.weighed,
            "factors": asdict(learnt.calibration.site),
            "uncertainty": learnt.uncertainty,
            "memory_deviation": learnt.calibration.memory_deviation,
            "era": learnt.calibration.era,
            "median_error_before": learnt.before,
            "median_error_left_out": learnt.left_out,
        },
    )


def _print_text(table: Table, output: str, learnt: CalibrationReport) -> None:
    from dataclasses import asdict

    from tuner.cli.output import print_table
    from tuner.core.text import counted

    site: dict[str, Any] = asdict(learnt.calibration.site)
    rows = [
        (name, f"x {value:.3f}", f"+- {100 * learnt.uncertainty[name]:.0f}%" if name in learnt.uncertainty else "")
        for name, value in site.items()
    ]
    print_table(("Factor", "Here", "Uncertain by"), rows, left=("Factor",))
    runs = counted(learnt.calibration.weighed, "run")
    uncertain = f"memory is uncertain by {100 * learnt.calibration.memory_deviation:.0f}%"
    print(f"\n{table.name}: {counted(learnt.timed, 'timed row')}, {runs} that fitted or did not; {uncertain}")
    if learnt.before is not None:
        print(f"median error of time before: {100 * learnt.before:.1f}%", end="")
        if learnt.left_out is not None:
            print(f"; of rows left out one fifth at a time: {100 * learnt.left_out:.1f}%", end="")
        print()
    print(f"written to {output}; every command takes it by --calibration")
