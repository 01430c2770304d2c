"""Check what jobs need on this machine; each result has its evidence and a remedy."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tuner.core.quantity import GIB
from tuner.core.text import counted
from tuner.launch.extensions import LONG_COMPILE_SECONDS, default_folder, stale_locks
from tuner.launch.machine import Machine

Verdict = Literal["ok", "warning", "missing"]

MIN_DISK_GB: Final = 5.0
"""GB of disk that the logs and configs of a study's jobs may take."""

_INSTALL: Final = "pip install '.[jobs]' in tuner's checkout"

PROBE_TIMEOUT: Final = 240.0
"""Seconds to import the framework and time it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""


def probe(*, measure: bool = False) -> dict[str, Any]:
    """Return the report of `tuner.worker.probe` on the frameworks; `error` if it fails."""
    command = [sys.executable, "-m", "tuner.worker.probe", *["--measure"] * measure]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argument list
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"the probe failed: {type(error).__name__}"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {"error": f"the probe exited with code {done.returncode}: {last}"}


def python() -> CheckResult:
    """Report the interpreter."""
    return CheckResult("python", "ok", f"{platform.python_version()} at {sys.executable}")


def frameworks(found: dict[str, Any]) -> list[CheckResult]:
    """Check torch, DeepSpeed with its ops, and NCCL."""
    if "error" in found or "torch" not in found:
        why = found.get("error") or found.get("torch_lacks", "torch is not installed")
        return [CheckResult("torch", "missing", str(why), _INSTALL)]
    findings = [CheckResult("torch", "ok", str(found["torch"]))]
    if "deepspeed" in found:
        ops = found.get("ops", [])
        built = ", ".join(ops) if ops else "none prebuilt"
        findings.append(CheckResult("deepspeed", "ok", f"{found['deepspeed']}; ops: {built}"))
    else:
        why = str(found.get("deepspeed_lacks", "not installed"))
        findings.append(CheckResult("deepspeed", "missing", why, _INSTALL))
    if found["accelerator"] == "cuda":
        findings.append(CheckResult("nccl", "ok", str(found.get("nccl", "installed"))))
    elif found.get("gloo"):
        findings.append(
            CheckResult(
                "nccl",
                "warning",
                "no GPU; collectives run over gloo",
                "fine for a trial run; NCCL comes with torch for GPUs",
            )
        )
    return findings


def accelerator(machine: Machine) -> CheckResult:
    """Check the GPUs, by their driver."""
    if machine.cards:
        gib = machine.memory / GIB
        return CheckResult("accelerator", "ok", f"{machine.cards} x {machine.name}, {gib:.0f} GiB")
    return CheckResult(
        "accelerator",
        "warning",
        f"none; {machine.cores} cores and {machine.memory / GIB:,.0f} GiB",
        "CPU only: fine for a trial run, not for benchmarks; check nvidia-smi",
    )


def slurm() -> CheckResult:
    """Check whether Slurm accepts jobs."""
    program = shutil.which("sinfo")
    if program is None or shutil.which("sbatch") is None:
        return CheckResult(
            "slurm", "missing", "sinfo or sbatch is not on the PATH", "use a login node, or --launcher local"
        )
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, "--noheader", "--Node", "--format=%N %P"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult("slurm", "warning", f"sinfo: {type(error).__name__}", "try again later")
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return CheckResult("slurm", "warning", why, "start slurmctld, or set SLURM_CONF")
    lines = [line.split() for line in done.stdout.splitlines() if line.split()]
    nodes, partitions = ({line[at] for line in lines} for at in (0, -1))
    evidence = f"{counted(len(nodes), 'node')} in {counted(len(partitions), 'partition')}"
    return CheckResult("slurm", "ok", evidence)


def ports() -> CheckResult:
    """Check that processes can listen on localhost."""
    try:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            numbers = f"{first.getsockname()[1]} and {second.getsockname()[1]}"
    except OSError as error:
        return CheckResult("ports", "missing", str(error), "jobs need a free port on localhost")
    return CheckResult("ports", "ok", f"ports {numbers} are free on localhost")


def disk(folder: Path) -> CheckResult:
    """Check the disk that stores the studies."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return CheckResult("disk", "missing", f"{existing} is not a folder", "choose another folder with --runs")
    if not os.access(existing, os.W_OK):
        return CheckResult("disk", "missing", f"{existing} is not writable", "choose another folder with --runs")
    free = shutil.disk_usage(existing).free / 1e9
    if free < MIN_DISK_GB:
        return CheckResult("disk", "warning", f"{free:.1f} GB free at {existing}", f"free at least {MIN_DISK_GB:g} GB")
    return CheckResult("disk", "ok", f"{free:,.0f} GB free at {existing}")


def extensions() -> CheckResult:
    """Check that no stale lock of a killed compiler blocks jobs that need the extension."""
    folder = default_folder()
    if locks := stale_locks(folder, older_than=LONG_COMPILE_SECONDS):
        return CheckResult(
            "extensions",
            "warning",
            f"nothing is compiling, yet {locks[0]} is there: programs that use the extension wait forever",
            f"rm {shlex.join(map(str, locks))}",
        )
    return CheckResult("extensions", "ok", f"no stale lock in {folder}")


def clock() -> CheckResult:
    """Check the resolution of the monotonic clock and the year of the wall clock."""
    step = time.get_clock_info("perf_counter").resolution
    year = time.gmtime().tm_year
    if step > 1e-3 or year < 2024:
        return CheckResult("clock", "warning", f"resolution {step:g} s, year {year}", "set the clock (NTP)")
    return CheckResult("clock", "ok", f"resolution {step:g} s; {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC")
