"""The accelerators, cores and memory of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from tuner.core.catalog import catalog
from tuner.core.domain import HOST, Gpu
from tuner.core.errors import MissingDependency, UnknownName
from tuner.core.quantity import GIB, whole
from tuner.core.text import listed

NVIDIA_SMI_QUERY: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

CORE_FLOPS: Final = 3e10
"""FP32 FLOP/s of a server's core in a matrix product, to an order of magnitude; a study's first job measures it."""

CORE_BANDWIDTH: Final = 5e9
"""Memory bandwidth of a core in bytes per second, to an order of magnitude."""

PROCESS_BANDWIDTH: Final = 1e9
"""Bytes per second between two processes, to an order of magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The accelerators of a machine, or its CPU."""

    accelerator: str
    """DeepSpeed's name for it."""
    cards: int
    """Number of accelerators; 0 if ranks compute on the CPU."""
    name: str
    """The driver's name for the accelerator."""
    memory: float
    """Bytes of one accelerator, or of the host."""
    cores: int


def this_machine() -> Machine:
    """Return this machine; `DS_ACCELERATOR=cpu` hides its accelerators, as it does in DeepSpeed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("DS_ACCELERATOR", "cuda") == "cuda" and (cards := _cards()):
        name, memory = cards[0]
        return Machine(accelerator="cuda", cards=len(cards), name=name, memory=memory, cores=cores)
    return Machine(accelerator="cpu", cards=0, name=HOST, memory=_host_memory(), cores=cores)


def computes_on_host() -> bool:
    """Whether `DS_ACCELERATOR=cpu` selects the CPU."""
    return os.environ.get("DS_ACCELERATOR") == "cpu"


def check_jobs_can_run(*, reached_by: str | None = None) -> None:
    """Check that torch, DeepSpeed and the program that reaches other machines are installed, without importing them."""
    missing = [name for name in ("torch", "deepspeed") if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"jobs need {listed(missing)}: pip install '.[jobs]' in tuner's checkout, or run your own trainer with "
            "--command."
        )
    if reached_by is not None and shutil.which(reached_by) is None:
        raise MissingDependency(
            f"--launcher hostfile needs {reached_by} to reach other machines; it is not on the PATH."
        )


def host_gpu(machine: Machine, ranks: int) -> Gpu:
    """Return one rank's share of a machine without accelerators, as a GPU."""
    share = min(1.0, machine.cores / ranks)
    return Gpu(
        name=HOST,
        memory=machine.memory / ranks,
        memory_bandwidth=CORE_BANDWIDTH * share,
        sms=1,
        peak_flops={"fp32": CORE_FLOPS * share, "bf16": CORE_FLOPS * share},
        intra_node_bandwidth=PROCESS_BANDWIDTH * share,
        inter_node_bandwidth=PROCESS_BANDWIDTH * share,
        attention="eager",
    )


def catalog_name(machine: Machine) -> str:
    """Return the catalog's name for the machine's accelerator: the same family and memory size."""
    known = tuple(catalog().gpu)
    words = re.sub(r"RTX (\d+)(?: (ADA))?", r"RTX\1\2", machine.name.upper().replace("-", " ")).split()
    gib = round(machine.memory / GIB)
    same_family = [name for name in known if name.upper().partition("-")[0] in words]
    exact = [name for name in same_family if abs((_gib(name) or gib) - gib) <= max(2, 0.07 * gib)]
    for form in ("SXM", "PCIE"):
        if form in words or (form == "SXM" and "HBM3" in words):
            exact = [name for name in exact if form in name.upper()] or exact
    if "NVL" in words:  # with less power than the card of the same memory
        exact = [name for name in exact if "NVL" in name.upper()]
    if not exact:
        raise UnknownName("GPU", f"{machine.name} ({gib} GiB)", known, remedy="Describe it in a TOML file: --gpu FILE.")
    return exact[0]


def _gib(name: str) -> float:
    """Return the GiB in a catalog name; 0 if there are none."""
    sizes = [whole(part.removesuffix("GB")) for part in name.upper().split("-") if part.endswith("GB")]
    return float(next(filter(None, sizes), 0))


def _cards() -> list[tuple[str, float]]:
    """Return name and bytes of each GPU listed by the driver."""
    program = shutil.which(NVIDIA_SMI_QUERY[0])
    if program is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argument list
            [program, *NVIDIA_SMI_QUERY[1:]], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    cards = []
    for line in done.stdout.splitlines():
        name, _, memory = line.rpartition(",")
        if name and re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]*)?\s*", memory):
            cards.append((name.strip(), float(memory) * 2**20))
    return cards


def _host_memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
