"""`tuner export`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_a_study
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.export.production import Production
    from tuner.study.result import StudyResult


@click.command(epilog="Example: tuner export bloom-48 -o runs/production")
@takes_a_study
@click.argument("key", required=False)
@click.option("-o", "--output", metavar="DIR", help="Where to write. [default: the folder `production` of the study]")
@click.option(
    "--format",
    "launched_by",
    default="slurm",
    metavar="NAME",
    help="torchrun, hostfile, slurm, megatron-deepspeed, megatron-lm or kubernetes. [default: slurm]",
)
@as_json
def export(study: StudyResult, key: str | None, output: str | None, launched_by: str, as_json: bool) -> None:
    """Write what production needs of a study's winner: ds_config.json, launch script, and what to expect.

    KEY takes another topology that the study has measured. The folder's README says how to launch, and tuner measure
    LOG --expect topology.json whether the run then delivers what was promised.
    """
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.core.atomic_write import write_files
    from tuner.core.errors import NothingUsable
    from tuner.core.text import seconds, span
    from tuner.export.api import promise
    from tuner.export.bundle import bundle

    place = study.place_of(key) if key else study.best
    if place is None:
        raise NothingUsable(f"study {study.name} has measured nothing to export.")
    run = promise(study, place)
    folder = Path(output) if output else study.folder / "production"
    files = write_files(folder, bundle(run, launched_by))
    if as_json:
        print_json("export", {**_document(run), "format": launched_by, "files": [str(path) for path in files]})
        return
    expected = run.expected
    label = "SIMULATED: " if study.simulated else ""
    print(
        f"{label}{place.key}: {seconds(expected.sec_per_iter)} s an iteration ({seconds(expected.low)} to "
        f"{seconds(expected.high)}), {span(expected.days)}"
    )
    for path in files:
        print(f"wrote {path}")
    promised = shlex.join(["tuner", "measure", "LOG", "--expect", str(folder / "topology.json")])
    print(f"next: read {folder / 'README.md'}; then {promised}")


def _document(run: Production) -> dict[str, Any]:
    from tuner.export.production import topology_document

    return {name: value for name, value in topology_document(run).items() if name != "schema"}
