"""`tuner export`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.arguments import takes_a_study
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.export.production import ProductionRun
    from tuner.study.result import StudyResult


@click.command(
    short_help="Write the production files of a study's best topology.",
    epilog="Example: tuner export bloom-48 -o runs/production",
)
@takes_a_study
@click.argument("key", required=False)
@click.option("-o", "--output", metavar="DIR", help="Folder to write to. [default: production/ in the study's folder]")
@click.option(
    "--format",
    "launched_by",
    default="slurm",
    metavar="NAME",
    shell_complete=completion.formats,
    help="Launch format: torchrun, hostfile, slurm, megatron-deepspeed, megatron-lm or kubernetes. [default: slurm]",
)
@as_json
def export(study: StudyResult, key: str | None, output: str | None, launched_by: str, as_json: bool) -> None:
    """Write the production files of a study's best topology: ds_config.json, launch script, expected performance.

    STUDY defaults to the one that changed last. KEY exports another topology that the study has measured. The README
    in the folder explains how to launch; 'tuner measure LOG --expect topology.json' then checks that the run is as fast
    as expected.
    """
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.core.atomic_write import write_files
    from tuner.core.errors import NothingUsable
    from tuner.core.text import seconds, span
    from tuner.export.api import production_run
    from tuner.export.bundle import bundle

    ranked = study.ranked(key) if key else study.best
    if ranked is None:
        raise NothingUsable(f"study {study.name} has no measured topology to export.")
    run = production_run(study, ranked)
    folder = Path(output) if output else study.folder / "production"
    files = write_files(folder, bundle(run, launched_by))
    if as_json:
        print_json("export", {**_document(run), "format": launched_by, "files": [str(path) for path in files]})
        return
    expected = run.expected
    label = "SIMULATED: " if study.simulated else ""
    interval = f"{seconds(expected.low)} to {seconds(expected.high)}"
    print(
        f"{label}study {study.name}, {ranked.key}: {seconds(expected.sec_per_iter)} s per iteration ({interval}), "
        f"{span(expected.days)}"
    )
    for path in files:
        print(f"wrote {path}")
    check = shlex.join(["tuner", "measure", "LOG", "--expect", str(folder / "topology.json")])
    print(f"next: read {folder / 'README.md'}, launch, then run {check}")


def _document(run: ProductionRun) -> dict[str, Any]:
    from tuner.export.production import topology_document

    return {name: value for name, value in topology_document(run).items() if name != "schema"}
