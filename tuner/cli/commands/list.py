"""`tuner list`."""

from __future__ import annotations

import click

from tuner.cli.arguments import stored_at, study_command
from tuner.cli.options import as_json


@click.command(
    "list", short_help="List studies: state, trials, best, node-hours.", epilog="Example: tuner list --runs runs"
)
@stored_at
@as_json
def list_(runs: str, storage: str | None, as_json: bool) -> None:
    """List all studies of a folder or storage, most recently changed first.

    The state is running (a tuner process watches its jobs), orphaned (trials are open without such a process,
    and their jobs may have ended: continue the study, or stop it with 'tuner stop') or idle.
    """
    from dataclasses import asdict
    from pathlib import Path

    from tuner.cli.output import print_json, print_table
    from tuner.study.manage import HEADERS, WORDS, cells_of, list_studies
    from tuner.study.store.storage_url import masked

    studies = list_studies(runs=runs, storage=storage)
    if as_json:
        changed = [study.changed.isoformat() if study.changed else None for study in studies]
        rows = [{**asdict(study), "changed": time} for study, time in zip(studies, changed, strict=True)]
        print_json("list", {"studies": rows})
        return
    if not studies and storage is None and any(Path(runs).glob("*/study.db")):
        print(f"No study in {runs} can be read. '{study_command('recover', 'STUDY')}' rebuilds one.")
        return
    if not studies:
        print(f"No studies in {masked(storage) if storage else runs}. Start one with 'tuner optimize'.")
        return
    print_table(HEADERS, map(cells_of, studies), left=WORDS, spare=("Changed", "Cost", "Training time", "Launcher"))
