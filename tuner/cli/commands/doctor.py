"""`tuner doctor`."""

from __future__ import annotations

import click

from tuner.cli.options import as_json
from tuner.cli.progress import progress


@click.command(epilog="Example: tuner doctor")
@click.option("--measure", is_flag=True, help="Time a matrix product, a copy and a collective too.")
@click.option("-o", "--output", metavar="FILE", help="The site file of --measure. [default: runs/site.toml]")
@click.option("--runs", default="runs", metavar="DIR", help="Where studies are kept. [default: runs]")
@click.option("--storage", metavar="URL", help="A database to look at. [default: SQLite]")
@as_json
def doctor(measure: bool, output: str | None, runs: str, storage: str | None, as_json: bool) -> None:
    """Say what this machine can launch: each thing with verdict, evidence and remedy.

    With --measure it writes a site file that every command takes by --calibration.
    """
    from dataclasses import asdict
    from pathlib import Path

    from tuner.cli.output import print_json, print_table
    from tuner.costmodel.site_file import write_site
    from tuner.study.doctor import examine

    with progress("measuring" if measure else "looking"):
        found = examine(Path(runs), storage=storage, measure=measure)
    file = Path(output) if output else Path(runs) / "site.toml"
    if found.calibration is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_site(file, found.calibration, source="tuner doctor --measure")
    if as_json:
        print_json(
            "doctor",
            {
                "findings": [asdict(finding) for finding in found.findings],
                "speeds": found.speeds,
                "site": str(file) if found.calibration is not None else None,
            },
        )
        return
    rows = [(finding.name, finding.verdict, finding.evidence, finding.remedy) for finding in found.findings]
    print_table(("Check", "Verdict", "Evidence", "Remedy"), rows, left=("Check", "Verdict", "Evidence", "Remedy"))
    words = {"product_flops": ("matrix product", 1e12, "TFLOP/s"), "copy_bytes": ("copy", 1e9, "GB/s")}
    for name, speed in found.speeds.items():
        what, scale, unit = words.get(name, ("collective, each rank", 1e9, "GB/s"))
        print(f"{what}: {speed / scale:,.3g} {unit}")
    if found.calibration is not None:
        print(f"written to {file}; every command takes it by --calibration")
