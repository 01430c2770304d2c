"""`tuner report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli.arguments import study_command, takes_a_study
from tuner.cli.options import FolderPath, as_json
from tuner.cli.progress import progress
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.study.leaderboard import LeaderboardRow
    from tuner.study.result import StudyResult


@click.command(
    short_help="Write a study's report: tables, plots and one HTML page.", epilog="Example: tuner report bloom-48"
)
@takes_a_study
@click.option(
    "-o",
    "--output",
    type=FolderPath(),
    metavar="DIR",
    help="Folder to write to. [default: report/ in the study's folder]",
)
@as_json
def report(study: StudyResult, output: str | None, as_json: bool) -> None:
    """Write the report of a study, by default of the one that changed last. Nothing is launched.

    The folder receives report.md (tables in the layout of the BLOOM report), report.html (a single file),
    measurements.csv (a table for 'tuner evaluate', 'tuner calibrate' and 'tuner optimize --from') and plots/ with PNG
    and SVG.
    """
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.report.write import write_report

    folder = Path(output) if output else study.folder / "report"
    with progress("drawing plots") as on_progress:
        made = write_report(study, folder, on_progress=on_progress)
    if as_json:
        print_json(
            "report",
            {
                "study": study.name,
                "launcher": study.launcher,
                "simulated": study.simulated,
                "sentences": list(made.sentences),
                "rows": [
                    {
                        "key": row.key,
                        "outcome": row.outcome,
                        "sec_per_iter": row.ranked.seconds if row.ranked else None,
                        "days": row.ranked.days if row.ranked else None,
                        "days_low": row.ranked.low if row.ranked else None,
                        "days_high": row.ranked.high if row.ranked else None,
                        **_extrapolated(row),
                        "memory_gib": row.memory / GIB if row.memory else None,
                        "tflops": row.flops / 1e12 if row.flops else None,
                        "era": row.era,
                        "trials": list(row.trials),
                        "why": row.why,
                        "ended": row.ended,
                    }
                    for row in made.rows
                ],
                "files": [str(path) for path in made.files],
            },
        )
        return
    print(f"study {study.name}\n")
    print("\n\n".join(made.sentences))
    print()
    for path in made.files:
        if path.parent == folder:
            print(f"wrote {path}")
    plots = [path for path in made.files if path.suffix == ".png"]
    print(f"wrote {counted(len(plots), 'plot')} to {folder / 'plots'}, each as PNG and SVG")
    if study.best:
        print(f"next: {study_command('export', study.name)}")


def _extrapolated(row: LeaderboardRow) -> dict[str, float]:
    """Return the fields of a topology that ran at a reduced size only."""
    found = row.extrapolated
    if found is None:
        return {}
    return {
        "extrapolated_sec": found.seconds,
        "extrapolated_days": found.days,
        "extrapolated_days_low": found.low,
        "extrapolated_days_high": found.high,
    }
