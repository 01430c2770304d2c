"""Measure the memory of a running job's processes: on the GPU by its driver, on the host by the kernel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tuner.core.quantity import whole
from tuner.launch.supervisor import members

_PROCESSES: Final = ("--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
_GPUS: Final = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")


def memory_of(tag: str, *, on_host: bool) -> float:
    """Return the bytes of a job's largest process, on the host or on a GPU; 0 if unknown."""
    pids = members(tag)
    if on_host:
        return max((_high_water(pid) for pid in pids), default=0.0)
    lines = [line.split(",") for line in _nvidia_smi(_PROCESSES)]
    used = [float(mib) for pid, mib in (line for line in lines if len(line) == 2) if int(pid) in pids]
    if not used and pids:  # in a container the driver reports other process ids
        used = [float(line) for line in _nvidia_smi(_GPUS)]
    return max(used, default=0.0) * 2**20


def _high_water(pid: int) -> float:
    """Return the peak resident memory of a process in bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return float(found[0]) * 1024 if found else 0.0


def _nvidia_smi(query: tuple[str, ...]) -> list[str]:
    """Return the rows of a query that contain only numbers."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run([program, *query], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 - a fixed list
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.strip() for line in done.stdout.splitlines()]
    return [line for line in lines if line and all(whole(part.strip()) is not None for part in line.split(","))]
