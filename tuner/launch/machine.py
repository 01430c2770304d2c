"""What this machine could run jobs on."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from tuner.core.domain import Gpu
from tuner.core.errors import MissingDependency, UnknownName
from tuner.core.text import listed

QUESTION: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

CORE_FLOPS: Final = 3e10
"""FLOP/s of fp32 that a core of a server reaches in a matrix product, to an order of magnitude: a study on a CPU learns
its own speed from its first job."""

CORE_BANDWIDTH: Final = 5e9
"""Bytes a second of memory, likewise."""

PIPE: Final = 1e9
"""Bytes a second between two processes, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The accelerators of a machine, or its processors."""

    accelerator: str
    """As DeepSpeed calls it."""
    cards: int
    """Accelerators; 0 on a machine that has none, where ranks compute on the host."""
    name: str
    """The accelerator as its driver calls it."""
    memory: float
    """Bytes of one accelerator, or of the host."""
    cores: int


def this_machine() -> Machine:
    """Look around: `DS_ACCELERATOR=cpu` hides the accelerators, as it does from DeepSpeed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("DS_ACCELERATOR", "cuda") == "cuda" and (cards := _cards()):
        name, memory = cards[0]
        return Machine(accelerator="cuda", cards=len(cards), name=name, memory=memory, cores=cores)
    return Machine(accelerator="cpu", cards=0, name="CPU", memory=_host_memory(), cores=cores)


def computes_on_host() -> bool:
    """Whether `DS_ACCELERATOR=cpu` says that ranks compute on processors."""
    return os.environ.get("DS_ACCELERATOR") == "cpu"


def check_jobs_can_run(*, reached_by: str | None = None) -> None:
    """That torch and DeepSpeed are there for the shipped worker, and what reaches other machines; none is loaded."""
    missing = [name for name in ("torch", "deepspeed") if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"jobs need {listed(missing)}, which this Python lacks: pip install 'tuner[jobs]', or give --command."
        )
    if reached_by is not None and shutil.which(reached_by) is None:
        raise MissingDependency(f"other machines are reached by {reached_by}, which is not on this machine's PATH.")


def host_gpu(machine: Machine, ranks: int) -> Gpu:
    """One rank's share of a machine without accelerators."""
    share = min(1.0, machine.cores / ranks)
    return Gpu(
        name="CPU",
        memory=machine.memory / ranks,
        memory_bandwidth=CORE_BANDWIDTH * share,
        sms=1,
        peak_flops={"fp32": CORE_FLOPS * share, "bf16": CORE_FLOPS * share},
        intra_node_bandwidth=PIPE * share,
        inter_node_bandwidth=PIPE * share,
        attention="eager",
    )


def catalog_name(machine: Machine, known: tuple[str, ...]) -> str:
    """The catalog's name of the machine's accelerator: the same family, with as much memory."""
    words = machine.name.upper().replace("NVIDIA", "").replace("-", " ").split()
    family = next((word for word in words if any(char.isdigit() for char in word) and not word.endswith("GB")), "")
    gib = round(machine.memory / 2**30)
    near = [name for name in known if name.upper().startswith(family) and family]
    exact = [name for name in near if abs(_gib(name) - gib) <= max(2, 0.07 * gib)]
    for kind in ("SXM", "PCIE"):
        if kind in words or (kind == "SXM" and "HBM3" in words):
            exact = [name for name in exact if kind in name.upper()] or exact
    if not exact:
        raise UnknownName("GPU", f"{machine.name} ({gib} GiB)", known, remedy="Describe it in a TOML file: --gpu FILE.")
    return exact[0]


def _gib(name: str) -> float:
    found = [part[:-2] for part in name.upper().split("-") if part.endswith("GB") and part[:-2].isdigit()]
    return float(found[0]) if found else 0.0


def _cards() -> list[tuple[str, float]]:
    """Name and bytes of each card that the driver shows."""
    program = shutil.which(QUESTION[0])
    if program is None:
        return []
    try:
        said = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, *QUESTION[1:]], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    cards = []
    for line in said.stdout.splitlines():
        name, _, memory = line.rpartition(",")
        if name and memory.strip().replace(".", "").isdigit():
            cards.append((name.strip(), float(memory) * 2**20))
    return cards


def _host_memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def free_port(host: str) -> int:
    """A port that nobody uses at an address of this machine; an empty one is all of them."""
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
