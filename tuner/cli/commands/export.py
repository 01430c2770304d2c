"""`tuner export`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.arguments import takes_a_study
from tuner.cli.options import FilePath, FolderPath, as_json

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.export.api import Export
    from tuner.export.production import ProductionRun
    from tuner.study.result import StudyResult


@click.command(
    short_help="Write the production files of a study's best topology.",
    epilog="Example: tuner export bloom-48 -o runs/production",
)
@takes_a_study
@click.argument("key", required=False)
@click.option(
    "-o",
    "--output",
    type=FolderPath(),
    metavar="DIR",
    help="Folder to write to. [default: production/ in the study's folder]",
)
@click.option(
    "--format",
    metavar="NAME",
    shell_complete=completion.formats,
    help="Export format, such as slurm or megatron-core (docs/export.md). [default: by the study's framework]",
)
@click.option(
    "--command",
    metavar="TEMPLATE",
    help="Your own trainer: 'python train.py --tp {tp}'. [default: from the study, or the bundled worker]",
)
@click.option(
    "--site-profile",
    "--slurm-site",
    "site_profile",
    type=FilePath(),
    metavar="FILE",
    help="TOML file with your site's settings: account, partition, image, NCCL variables. [default: none]",
)
@click.option(
    "--fork",
    type=click.Choice(["deepspeed", "bloom"]),
    help="Which Megatron-DeepSpeed: the DeepSpeed organization's or BigScience's. [default: deepspeed, unless only "
    "BigScience's can train the model]",
)
@click.option(
    "--zero-plus-plus",
    type=click.Choice(["hpz", "qwz", "qgz"]),
    multiple=True,
    help="ZeRO++ for ZeRO 3: secondary partition in each node (hpz), weights in 8 bits (qwz), gradients in 4 bits "
    "(qgz). Repeatable.",
)
@as_json
def export(study: StudyResult, output: str | None, as_json: bool, **given: Any) -> None:
    """Write the files that train a study's best topology: launch script, expected figures, ds_config.json.

    STUDY defaults to the one that changed last. KEY exports another topology that the study has measured. The README
    in the folder explains how to launch. torchrun, hostfile, slurm, kubernetes and jobset run your --command or the
    bundled worker, which measures the topology with synthetic data. 'tuner measure LOG --expect topology.json' then
    checks that the run is as fast as expected.
    """
    from pathlib import Path

    from tuner.export.api import prepare_export, write_bundle

    folder = Path(output) if output else study.folder / "production"
    made = prepare_export(study, **given)
    files, removed = write_bundle(folder, made.files)
    if as_json:
        _print_json(made, files, removed)
    else:
        _print_differences(made)
        _print_text(study, made, folder, files, removed)


def _print_differences(made: Export) -> None:
    """Print a table of flags that are not the trainer's defaults on stderr."""
    from tuner.core.text import pipe_table

    headers = ("flag", "this run", "default")
    rows = [(one.flag, one.value, one.default) for one in made.differences]
    if rows:
        table = pipe_table(headers, rows, frozenset(headers))
        click.echo("\n".join([f"Differs from the defaults of {made.format.title}:", *table]), err=True)


def _print_json(made: Export, files: list[Path], removed: list[Path]) -> None:
    from dataclasses import asdict

    from tuner.cli.output import print_json

    document = {**_document(made.run), "format": made.format.name, "files": [str(path) for path in files]}
    document["removed"] = [str(path) for path in removed]
    print_json("export", {**document, "differences": [asdict(one) for one in made.differences]})


def _print_text(study: StudyResult, made: Export, folder: Path, files: list[Path], removed: list[Path]) -> None:
    from tuner.core.text import interval, seconds, span

    expected = made.run.expected
    label = "SIMULATED: " if study.simulated else ""
    ends = interval(expected.low, expected.high, decimals=2 if expected.high >= 1 else 4)
    print(
        f"{label}study {study.name}, {made.run.topology.key}: {seconds(expected.sec_per_iter)} s per iteration "
        f"({ends}), {span(expected.days)}{', extrapolated from trials at a reduced size' * expected.extrapolated}"
    )
    for note in made.notes:
        print(f"note: {note}")
    for path in files:
        print(f"wrote {path}")
    for path in removed:
        print(f"removed {path} of an earlier export")
    check = shlex.join(["tuner", "measure", "LOG", "--expect", str(folder / "topology.json")])
    print(f"next: read {folder / 'README.md'}, launch, then run {check}")


def _document(run: ProductionRun) -> dict[str, Any]:
    from tuner.export.production import run_document

    return {name: value for name, value in run_document(run).items() if name != "schema"}
