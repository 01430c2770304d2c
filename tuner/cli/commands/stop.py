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

    Jobs are found by their tags and are gone when the command returns. A trial whose job was gone before is
    closed too. The same 'tuner optimize' command continues the study later.
    """
    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.study.manage import CANCELLED_JOB, stop_study

    stopped = stop_study(name, runs=runs, storage=storage)
    if as_json:
        jobs = [{"number": trial.number, "key": trial.proposal.key} for trial in stopped]
        print_json("stop", {"study": name, "cancelled": jobs})
        return
    cancelled = [trial for trial in stopped if trial.result is not None and trial.result.reason == CANCELLED_JOB]
    for trial in stopped:
        print(f"{'cancelled' if trial in cancelled else 'closed'} trial {trial.number}, {trial.proposal.key}")
    gone = len(stopped) - len(cancelled)
    closed = f" {counted(gone, 'trial')} closed without a running job." if gone else ""
    print(f"Study {name}: {counted(len(cancelled), 'job')} cancelled.{closed}")
