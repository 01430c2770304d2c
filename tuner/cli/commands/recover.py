"""`tuner recover`."""

from __future__ import annotations

import click

from tuner.cli.options import FolderPath, as_json


@click.command(short_help="Rebuild a study's lost database from its jobs.", epilog="Example: tuner recover bloom-48")
@click.argument("name", metavar="STUDY")
@click.option("--runs", type=FolderPath(), default="runs", metavar="DIR", help="Folder of the studies. [default: runs]")
@as_json
def recover(name: str, runs: str, as_json: bool) -> None:
    """Rebuild a study's lost or empty study.db from the files in its folder.

    Settings are read from study.json, proposals and results from jobs/*/job.json. Trials without a stored result stay
    open; the same 'tuner optimize' command looks for their jobs and continues the study.
    """
    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.study.store.recover import recover_study

    found = recover_study(name, runs=runs)
    if as_json:
        numbers = [trial.number for trial in found.trials]
        still_open = [trial.number for trial in found.open]
        print_json("recover", {"study": name, "trials": numbers, "open": still_open, "lost": len(found.unreadable)})
        return
    still = f", {len(found.open)} of them without a result" if found.open else ""
    print(f"Study {name}: {counted(len(found.trials), 'trial')} rebuilt{still}.")
    print("Continue it with the same 'tuner optimize' command.")
