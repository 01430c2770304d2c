"""`tuner doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import (
    FilePath,
    FolderPath,
    StorageUrl,
    as_json,
    takes_description,
    takes_log,
    takes_step_pattern,
    takes_trainer,
)
from tuner.cli.progress import progress

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.launch.preflight import CheckResult
    from tuner.study.doctor import Examined


@click.command(short_help="Check what this machine can launch.", epilog="Example: tuner doctor")
@click.option("--measure", is_flag=True, help="Also time a GEMM, a memory copy and a collective.")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    metavar="FILE",
    help="Calibration file that --measure writes. [default: runs/site.toml]",
)
@click.option("--runs", type=FolderPath(), default="runs", metavar="DIR", help="Folder of the studies. [default: runs]")
@click.option(
    "--storage", type=StorageUrl(), metavar="URL", help="Optuna storage to check. [default: a temporary SQLite file]"
)
@click.option("--command", metavar="TEMPLATE", help="Run one job of two iterations of your own trainer.")
@takes_step_pattern
@takes_log
@takes_trainer
@takes_description
@as_json
def doctor(
    measure: bool,
    output: str | None,
    runs: str,
    storage: str | None,
    as_json: bool,
    command: str | None,
    step_pattern: str | None,
    log: str | None,
    trainer: str | None,
    **description: Any,
) -> None:
    """Check what this machine can launch: Python, frameworks, accelerators, Slurm, ports, disk and storage.

    With --command, run one job of two iterations with the topology predicted to be fastest, and report whether 'tuner
    optimize --launcher local' with the same options could measure it. With --measure, also time the machine and write a
    calibration file for the --calibration option of other commands.
    """
    from dataclasses import asdict
    from pathlib import Path

    from tuner.cli.output import print_json
    from tuner.core.errors import InputError, NothingUsable
    from tuner.costmodel.site_file import write_site
    from tuner.study.doctor import examine, try_command

    if command is None and any(_was_given(value) for value in (step_pattern, log, trainer, *description.values())):
        raise InputError(
            "the options that describe a model, a cluster or a log apply to the job of --command: add --command."
        )
    if output is not None and not measure:
        raise InputError("--output is the calibration file of --measure: add --measure.")
    job = None
    if command is not None:
        with progress("running one job"):
            job = try_command(command=command, step_pattern=step_pattern, log=log, trainer=trainer, **description)
    with progress("measuring" if measure else "checking"):
        examined = examine(Path(runs), storage=storage, measure=measure)
    file = Path(output) if output else Path(runs) / "site.toml"
    if examined.calibration is not None:
        write_site(file, examined.calibration, source="tuner doctor --measure")
    if as_json:
        findings = [asdict(finding) for finding in (*examined.findings, *([job] if job else []))]
        site = str(file) if examined.calibration is not None else None
        print_json("doctor", {"findings": findings, "speeds": examined.speeds, "site": site})
    else:
        _print_text(examined, job, file)
    if job is not None and job.verdict == "missing":
        raise NothingUsable(f"no study could measure this command: {job.evidence}; {job.remedy}.")


def _print_text(examined: Examined, job: CheckResult | None, file: Path) -> None:
    """Print all checks and speeds; `file` has the calibration, if there is one."""
    from tuner.cli.output import print_table

    rows = [(finding.name, finding.verdict, finding.evidence, finding.remedy) for finding in examined.findings]
    if job is not None and job.verdict == "missing":
        rows.append((job.name, job.verdict, "no study could measure the command", "see the last line"))
    elif job is not None:
        rows.append((job.name, job.verdict, job.evidence, job.remedy))
    print_table(("Check", "Verdict", "Evidence", "Remedy"), rows, left=("Check", "Verdict", "Evidence", "Remedy"))
    units = {
        "product_flops": ("GEMM", 1e12, "TFLOP/s"),
        "copy_bytes": ("memory copy", 1e9, "GB/s"),
        "launch_seconds": ("host time of a linear layer", 1e-6, "us"),
    }
    for name, speed in examined.speeds.items():
        label, scale, unit = units.get(name, ("collective, per rank", 1e9, "GB/s"))
        print(f"{label}: {speed / scale:,.3g} {unit}")
    if examined.calibration is not None:
        print(f"wrote {file}; pass it to other commands with --calibration")


def _was_given(value: Any) -> bool:
    return value not in (None, False, ())
