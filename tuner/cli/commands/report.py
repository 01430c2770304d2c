"""`tuner report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli.arguments import study_command, takes_a_study
from tuner.cli.options import as_json
from tuner.cli.progress import progress

if TYPE_CHECKING:
    from tuner.study.result import StudyResult


@click.command(epilog="Example: tuner report bloom-48")
@takes_a_study
@click.option("-o", "--output", metavar="DIR", help="Where to write. [default: the folder `report` of the study]")
@as_json
def report(study: StudyResult, output: str | None, as_json: bool) -> None:
    """Write what a study has found: sentences, tables, plots, one page for a browser; nothing is launched.

    The folder gets report.md (the BLOOM report's layout), report.html (one file, for screen, phone and paper),
    measurements.csv (which tuner evaluate, calibrate and optimize --from read) and plots/ as PNG and SVG.
    """
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.report.write import write_report

    folder = Path(output) if output else study.folder / "report"
    with progress("drawing") as on_progress:
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
                        "sec_per_iter": row.place.seconds if row.place else None,
                        "days": row.place.days if row.place else None,
                        "days_low": row.place.low if row.place else None,
                        "days_high": row.place.high if row.place else None,
                        "memory_gib": row.memory / 2**30 if row.memory else None,
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
    print("\n\n".join(made.sentences))
    print()
    for path in made.files:
        if path.parent == folder:
            print(f"wrote {path}")
    plots = [path for path in made.files if path.parent != folder]
    print(f"wrote {len(plots)} pictures in {folder / 'plots'}")
    if study.best:
        print(f"next: {study_command('export', study.name)}")
