"""What this machine can launch: one finding for each thing that a job needs, with the evidence and the remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tuner.launch.machine import Machine

Verdict = Literal["ok", "warning", "missing"]

ROOM: Final = 5.0
"""GB of disk that the logs and configs of a study's jobs take at most."""

PATIENCE: Final = 240.0
"""Seconds for the framework to be imported and timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""


def probe(*, measure: bool = False) -> dict[str, Any]:
    """What the framework says of itself, asked in a process of its own; `error` where it did not answer."""
    command = [sys.executable, "-m", "tuner.worker.probe", *["--measure"] * measure]
    try:
        said = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"the probe did not answer: {type(error).__name__}"}
    for line in reversed(said.stdout.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    last = (said.stderr.strip().splitlines() or ["no output"])[-1]
    return {"error": f"the probe left with {said.returncode}: {last}"}


def python() -> CheckResult:
    """The interpreter."""
    return CheckResult(name="python", verdict="ok", evidence=f"{platform.python_version()} at {sys.executable}")


def frameworks(found: dict[str, Any]) -> list[CheckResult]:
    """torch, the accelerator, NCCL, DeepSpeed and its ops."""
    if "error" in found or "torch" not in found:
        why = found.get("error") or found.get("torch_lacks", "torch is not there")
        return [CheckResult(name="torch", verdict="missing", evidence=str(why), remedy="pip install 'tuner[jobs]'")]
    findings = [CheckResult(name="torch", verdict="ok", evidence=str(found["torch"]))]
    if "deepspeed" in found:
        ops = found.get("ops", [])
        built = ", ".join(ops) if ops else "none prebuilt"
        findings.append(CheckResult(name="deepspeed", verdict="ok", evidence=f"{found['deepspeed']}; ops: {built}"))
    else:
        why = str(found.get("deepspeed_lacks", "not there"))
        findings.append(
            CheckResult(name="deepspeed", verdict="missing", evidence=why, remedy="pip install 'tuner[jobs]'")
        )
    if found["accelerator"] == "cuda":
        findings.append(CheckResult(name="nccl", verdict="ok", evidence=str(found.get("nccl", "there"))))
    elif found.get("gloo"):
        findings.append(
            CheckResult(
                name="nccl",
                verdict="warning",
                evidence="no GPU; collectives run over gloo",
                remedy="nothing is wanted for trying out; NCCL comes with torch for GPUs",
            )
        )
    return findings


def accelerator(machine: Machine) -> CheckResult:
    """GPUs, by their driver."""
    if machine.cards:
        gib = machine.memory / 2**30
        return CheckResult(
            name="accelerator", verdict="ok", evidence=f"{machine.cards} x {machine.name}, {gib:.0f} GiB"
        )
    return CheckResult(
        name="accelerator",
        verdict="warning",
        evidence=f"none; {machine.cores} cores and {machine.memory / 2**30:.0f} GiB",
        remedy="jobs run on the processors: good for trying out, not for figures; check nvidia-smi",
    )


def slurm() -> CheckResult:
    """A cluster that takes jobs."""
    program = shutil.which("sinfo")
    if program is None or shutil.which("sbatch") is None:
        return CheckResult(
            name="slurm",
            verdict="missing",
            evidence="no sinfo or sbatch on the path",
            remedy="use a login node, or --launcher local",
        )
    try:
        said = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, "--noheader", "--format=%D %t %P"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult(
            name="slurm", verdict="warning", evidence=f"sinfo: {type(error).__name__}", remedy="ask again later"
        )
    if said.returncode:
        why = (said.stderr.strip().splitlines() or ["no answer"])[-1]
        return CheckResult(name="slurm", verdict="warning", evidence=why, remedy="start slurmctld, or set SLURM_CONF")
    lines = [line.split() for line in said.stdout.splitlines() if line.split()]
    nodes = sum(int(line[0]) for line in lines if line[0].isdigit())
    return CheckResult(
        name="slurm", verdict="ok", evidence=f"{nodes} nodes in {len({line[-1] for line in lines})} partitions"
    )


def ports() -> CheckResult:
    """Whether a process may listen."""
    try:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            numbers = f"{one.getsockname()[1]} and {two.getsockname()[1]}"
    except OSError as error:
        return CheckResult(
            name="ports", verdict="missing", evidence=str(error), remedy="jobs need a free port on localhost"
        )
    return CheckResult(name="ports", verdict="ok", evidence=f"{numbers} were free on localhost")


def disk(folder: Path) -> CheckResult:
    """Room where studies are kept."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        return CheckResult(
            name="disk", verdict="missing", evidence=f"{there} cannot be written", remedy="choose --runs"
        )
    free = shutil.disk_usage(there).free / 1e9
    if free < ROOM:
        return CheckResult(
            name="disk", verdict="warning", evidence=f"{free:.1f} GB free at {there}", remedy=f"keep {ROOM:g} GB free"
        )
    return CheckResult(name="disk", verdict="ok", evidence=f"{free:,.0f} GB free at {there}")


def clock() -> CheckResult:
    """A monotonic clock that is fine enough, and a wall clock that is not of another decade."""
    step = time.get_clock_info("perf_counter").resolution
    year = time.gmtime().tm_year
    if step > 1e-3 or year < 2024:
        return CheckResult(
            name="clock", verdict="warning", evidence=f"steps of {step:g} s, year {year}", remedy="set the clock (NTP)"
        )
    return CheckResult(
        name="clock",
        verdict="ok",
        evidence=f"steps of {step:g} s; {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
    )
