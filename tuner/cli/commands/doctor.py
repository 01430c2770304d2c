"""`tuner doctor`."""

from __future__ import annotations

import click

from tuner.cli.options import as_json
from tuner.cli.progress import progress


@click.command(short_help="Check what this machine can launch.", epilog="Example: tuner doctor")
@click.option("--measure", is_flag=True, help="Also time a matrix product, a memory copy and a collective.")
@click.option(
    "-o", "--output", metavar="FILE", help="Calibration file that --measure writes. [default: runs/site.toml]"
)
@click.option("--runs", default="runs", metavar="DIR", help="Folder of the studies. [default: runs]")
@click.option("--storage", metavar="URL", help="Optuna storage to check. [default: a temporary SQLite file]")
@as_json
def doctor(measure: bool, output: str | None, runs: str, storage: str | None, as_json: bool) -> None:
    """Check what this machine can launch: Python, frameworks, accelerators, Slurm, ports, disk and storage.

    With --measure, also time the machine and write a calibration file for the --calibration option of other commands.
    """
    from dataclasses import asdict
    from pathlib import Path

    from tuner.cli.output import print_json, print_table
    from tuner.costmodel.site_file import write_site
    from tuner.study.doctor import examine

    with progress("measuring" if measure else "checking"):
        examined = examine(Path(runs), storage=storage, measure=measure)
    file = Path(output) if output else Path(runs) / "site.toml"
    if examined.calibration is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_site(file, examined.calibration, source="tuner doctor --measure")
    if as_json:
        print_json(
            "doctor",
            {
                "findings": [asdict(finding) for finding in examined.findings],
                "speeds": examined.speeds,
                "site": str(file) if examined.calibration is not None else None,
            },
        )
        return
    rows = [(finding.name, finding.verdict, finding.evidence, finding.remedy) for finding in examined.findings]
    print_table(("Check", "Verdict", "Evidence", "Remedy"), rows, left=("Check", "Verdict", "Evidence", "Remedy"))
    units = {"product_flops": ("matrix product", 1e12, "TFLOP/s"), "copy_bytes": ("memory copy", 1e9, "GB/s")}
    for name, speed in examined.speeds.items():
        label, scale, unit = units.get(name, ("collective, per rank", 1e9, "GB/s"))
        print(f"{label}: {speed / scale:,.3g} {unit}")
    if examined.calibration is not None:
        print(f"wrote {file}; pass it to other commands with --calibration")
