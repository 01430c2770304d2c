"""`tuner stop`."""

from __future__ import annotations

import click

from tuner.cli import completion
from tuner.cli.arguments import stored_at
from tuner.cli.options import as_json


@click.command(
    short_help="Cancel the jobs that an interrupted study left running.", epilog="Example: tuner stop bloom-48"
)
@click.argument("name", metavar="STUDY", shell_complete=completion.studies)
@stored_at
@as_json
def stop(name: str, runs: str, storage: str | None, as_json: bool) -> None:
    """Cancel the jobs that an interrupted study left running, and close their trials.

    Jobs are found by their tags and are gone when the command returns. The same 'tuner optimize' command continues the
    study later.
    """
    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.study.manage import stop_study

    stopped = stop_study(name, runs=runs, storage=storage)
    if as_json:
        jobs = [{"number": trial.number, "key": trial.proposal.key} for trial in stopped]
        print_json("stop", {"study": name, "cancelled": jobs})
        return
    for trial in stopped:
        print(f"cancelled trial {trial.number}, {trial.proposal.key}")
    print(f"Study {name}: {counted(len(stopped), 'job')} cancelled.")
