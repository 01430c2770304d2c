"""`tuner dashboard`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tuner.cli.arguments import takes_a_study
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.study.result import StudyResult


@click.command(short_help="Open a study in Optuna Dashboard.", epilog="Example: tuner dashboard bloom-48 --check")
@takes_a_study
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port. [default: a free one]")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--check", is_flag=True, help="Write notes and plots into the study and exit without starting a server.")
@as_json
def dashboard(study: StudyResult, port: int, no_browser: bool, check: bool, as_json: bool) -> None:
    """Open a study in Optuna Dashboard, with tuner's notes, files and plots, until Ctrl-C.

    STUDY defaults to the one that changed last. The server accepts connections from this machine only. The note of a
    trial explains why it was proposed and how it ended.
    """
    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.launch.dashboard_server import dashboard as serve
    from tuner.launch.dashboard_server import show
    from tuner.report.dashboard import annotate

    store = study.folder / "artifacts"
    study_id = annotate(study, store)
    if check:
        if as_json:
            print_json("dashboard", {"study": study.name, "url": None, "trials": len(study.trials)})
        else:
            print(f"{study.name}: wrote plots and the notes of {counted(len(study.trials), 'trial')}")
        return
    with serve(study.url, store, port=port) as server:
        page = server.study_page(study_id)
        if as_json:
            print_json("dashboard", {"study": study.name, "url": page, "trials": len(study.trials)})
        else:
            print(f"{study.name}: {page} (stop with Ctrl-C)")
        sys.stdout.flush()  # who reads a pipe would wait as long as the server runs
        if not no_browser:
            show(page)
        with suppress(KeyboardInterrupt):  # the way to stop it
            server.wait()
