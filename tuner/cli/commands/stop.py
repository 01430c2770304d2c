"""`tuner stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli import completion
from tuner.cli.arguments import stored_at
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.study.store.trial import Trial


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

    found: dict[str, list[Trial]] = {"cancelled": [], "closed": []}
    for trial in stop_study(name, runs=runs, storage=storage):
        ran = trial.result is not None and trial.result.reason == CANCELLED_JOB
        found["cancelled" if ran else "closed"].append(trial)
    if as_json:
        jobs = {how: [{"number": one.number, "key": one.proposal.key} for one in own] for how, own in found.items()}
        print_json("stop", {"study": name, **jobs})
        return
    for how, trials in found.items():
        for trial in trials:
            print(f"{how} trial {trial.number}, {trial.proposal.key}")
    gone = len(found["closed"])
    closed = f" {counted(gone, 'trial')} closed without a running job." if gone else ""
    print(f"Study {name}: {counted(len(found['cancelled']), 'job')} cancelled.{closed}")
