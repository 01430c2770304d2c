"""`tuner export`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal

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
    metavar="NAME",
    shell_complete=completion.formats,
    help="Export format, such as slurm or megatron-core (docs/export.md). [default: by the study's framework]",
)
@click.option(
    "--command",
    metavar="TEMPLATE",
    help="Your own trainer: 'python train.py --tp {tp}'. [default: the study's, or tuner's worker]",
)
@click.option(
    "--site-profile",
    "--slurm-site",
    "site_profile",
    metavar="FILE",
    help="What your site requires: account, partition, image, NCCL variables. [default: none]",
)
@click.option(
    "--fork",
    type=click.Choice(["deepspeed", "bloom"]),
    help="Which Megatron-DeepSpeed: the DeepSpeed organisation's or BigScience's. [default: deepspeed, unless only "
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
def export(
    study: StudyResult,
    key: str | None,
    output: str | None,
    launched_by: str | None,
    command: str | None,
    site_profile: str | None,
    fork: Literal["deepspeed", "bloom"] | None,
    zero_plus_plus: tuple[Literal["hpz", "qwz", "qgz"], ...],
    as_json: bool,
) -> None:
    """Write the production files of a study's best topology: ds_config.json, launch script, expected performance.

    STUDY defaults to the one that changed last. KEY exports another topology that the study has measured. The README
    in the folder explains how to launch. torchrun, hostfile, slurm, kubernetes and jobset run your --command or tuner's
    worker, which measures the topology with synthetic data. 'tuner measure LOG --expect topology.json' then checks that
    the run is as fast as expected.
    """
    from dataclasses import asdict
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.core.documents import model_notes
    from tuner.core.errors import NothingUsable
    from tuner.core.text import interval, pipe_table, seconds, span
    from tuner.export.api import (
        check_program,
        default_format,
        export_options,
        production_run,
        program_notes,
        write_bundle,
    )
    from tuner.export.bundle import FORMATS, bundle
    from tuner.export.formats import find

    ranked = study.ranked(key) if key else study.best
    if ranked is None:
        raise NothingUsable(f"study {study.name} has no measured topology to export.")
    run = production_run(study, ranked)
    folder = Path(output) if output else study.folder / "production"
    chosen = find(launched_by or default_format(study, ranked), FORMATS)
    options = export_options(
        study, chosen, command=command, site_profile=site_profile, fork=fork, zero_plus_plus=zero_plus_plus
    )
    check_program(study, run, chosen, command=command, fork=fork)
    contents = bundle(run, chosen.name, options)
    differences = chosen.differences(run, options)
    rows = [(one.flag, one.value, one.default) for one in differences]
    if rows and not as_json:
        table = pipe_table(("flag", "this run", "default"), rows, frozenset({"flag", "this run", "default"}))
        click.echo("\n".join([f"Differs from the defaults of {chosen.title}:", *table]), err=True)
    files, removed = write_bundle(folder, contents)
    if as_json:
        document = {**_document(run), "format": chosen.name, "files": [str(path) for path in files]}
        document["removed"] = [str(path) for path in removed]
        print_json("export", {**document, "differences": [asdict(one) for one in differences]})
        return
    expected = run.expected
    label = "SIMULATED: " if study.simulated else ""
    ends = interval(expected.low, expected.high, decimals=2 if expected.high >= 1 else 4)
    print(
        f"{label}study {study.name}, {ranked.key}: {seconds(expected.sec_per_iter)} s per iteration ({ends}), "
        f"{span(expected.days)}"
    )
    for note in (*model_notes(run.workload.model), *program_notes(study, run, chosen, options.command)):
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
