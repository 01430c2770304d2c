"""`tuner dashboard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli.arguments import takes_a_study
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.study.result import StudyResult


@click.command(epilog="Example: tuner dashboard bloom-48 --check")
@takes_a_study
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="[default: a free one]")
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@click.option("--check", is_flag=True, help="Write the notes and graphs into the study and end; start nothing.")
@as_json
def dashboard(study: StudyResult, port: int, no_browser: bool, check: bool, as_json: bool) -> None:
    """Show a study in Optuna Dashboard, with our notes, files and graphs, on this machine alone, until Ctrl-C.

    Trials say why they were proposed and what came of them, with the evidence.
    """
    from tuner.cli.output import print_json
    from tuner.launch.dashboard_server import dashboard as started
    from tuner.launch.dashboard_server import show
    from tuner.report.dashboard import annotate

    store = study.folder / "artifacts"
    annotate(study, store)
    if check:
        if as_json:
            print_json("dashboard", {"study": study.name, "url": None, "trials": len(study.trials)})
        else:
            print(f"{study.name}: notes of {len(study.trials)} trials, and graphs, are in the study")
        return
    with started(study.url, store, port=port) as running:
        if as_json:
            print_json("dashboard", {"study": study.name, "url": running.url, "trials": len(study.trials)})
        else:
            print(f"{study.name}: {running.url} (Ctrl-C ends it)", flush=True)
        if not no_browser:
            show(running.url)
        running.wait()
