"""What the processes of a job hold at this moment: of the card by its driver, of the host by the kernel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tuner.launch.supervisor import members

_PROCESSES: Final = ("--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
_CARDS: Final = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")


def memory_of(tag: str, *, on_host: bool) -> float:
    """Bytes of the fullest process of a job on the host, or on the fullest card; 0 where nobody tells."""
    pids = members(tag)
    if on_host:
        return max((_high_water(pid) for pid in pids), default=0.0)
    lines = [line.split(",") for line in _ask(_PROCESSES)]
    own = [float(used) for pid, used in (line for line in lines if len(line) == 2) if int(pid) in pids]
    if not own and pids:  # in a container the driver's process numbers are not ours
        own = [float(line) for line in _ask(_CARDS)]
    return max(own, default=0.0) * 2**20


def _high_water(pid: int) -> float:
    """The most that a process has ever held of the host's memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return float(found[0]) * 1024 if found else 0.0


def _ask(words: tuple[str, ...]) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        said = subprocess.run([program, *words], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 - a fixed list
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.strip() for line in said.stdout.splitlines()]
    return [line for line in lines if line and all(part.strip().isdigit() for part in line.split(","))]
