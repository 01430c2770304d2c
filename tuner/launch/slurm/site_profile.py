"""The site profile: what a site's Slurm or Kubernetes requires of every job, from a TOML file (example:
`docs/slurm-site.toml`). The Slurm launcher and the exports read the same file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from tuner.core.catalog import read_toml
from tuner.core.errors import InputError
from tuner.core.text import either, listed, shown

TASKS: Final = ("ranks", "nodes", "once")

_WORD: Final = re.compile(r"[^\s\"'\\`$#\x00-\x1f\x7f]+")
"""Text that an `#SBATCH` line may contain unquoted."""
_PATTERNS: Final = {
    "environment": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}"),
    "resources": re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"),
    "hosts": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}"),
    "image": re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,1000}"),
    "volumes": re.compile(r"(/[^:\x00-\x1f]*|[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?):/[^:\x00-\x1f]*"),
}
"""Names of variables, resources and hosts, an image, and volumes as SOURCE:MOUNT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteProfile:
    """The fields of the file; an empty one leaves the choice to Slurm."""

    account: str = ""
    partition: str = ""
    """One partition, or several separated by commas; Slurm uses the first that is free."""
    constraint: str = ""
    qos: str = ""
    reservation: str = ""
    time: str = ""
    """Time limit of a job in Slurm's notation: minutes, hours:minutes:seconds, days-hours."""
    gres: str | None = None
    """Resources of each node. None: `gpu:8` with 8 GPUs a node; empty: request none."""
    cpus_per_task: int = 0
    """Cores of each rank; a task that starts all ranks of a node gets those of all. 0: Slurm's choice."""
    exclusive: bool = True
    """Whether a job has its nodes to itself; other jobs on them distort measurements."""
    requeue: bool = True
    """Whether Slurm requeues a job whose node fails or that is preempted."""
    segment: bool = False
    """Whether jobs request nodes that share NVLink domains as far as their estimates assume it (`--segment`, with
    Slurm's topology/block)."""
    exclude: tuple[str, ...] = ()
    nodelist: str = ""
    lines: tuple[str, ...] = ()
    """Further options of sbatch: `--mem=0`."""
    modules: tuple[str, ...] = ()
    """Modules to load."""
    before: str = ""
    """Shell lines to run verbatim before the ranks start; one that fails ends the job."""
    container: tuple[str, ...] = ()
    """Command prefix that starts the program in a container: apptainer, exec, --nv, image.sif."""
    srun: tuple[str, ...] = ()
    """Further arguments of srun."""
    tasks: str = "ranks"
    """How often to start --command: `ranks`, once per rank, or per node if it is a launcher such as torchrun; `nodes`,
    once per node; `once`, without srun."""
    python: str = ""
    """Python interpreter on the nodes, if it differs from the tuner's."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of every job, such as NCCL's."""
    image: str = ""
    """Container image of exports for Kubernetes."""
    volumes: tuple[str, ...] = ()
    """Volumes of exports for Kubernetes: `CLAIM:/mount` for a claim, `/path:/mount` for a folder of the node."""
    resources: tuple[tuple[str, int], ...] = ()
    """Further resources of each node in exports for Kubernetes, such as RDMA devices: `"rdma/ib" = 8`."""
    hosts: tuple[str, ...] = ()
    """Nodes of exports with a hostfile."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the partitions that a job may run in; none if Slurm chooses."""
        return tuple(name for name in self.partition.split(",") if name)

    @classmethod
    def read(cls, path: Path) -> SiteProfile:
        """Read a file."""
        return cls.of(read_toml(path), origin=str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], *, origin: str) -> SiteProfile:
        """Return the profile of a TOML table; raise for an unknown field or one of the wrong type."""
        known = {field.name: field for field in fields(cls)}
        if unknown := sorted(set(table) - set(known)):
            raise InputError(
                f"{origin}: unknown field {listed(unknown)}; a Slurm site profile has {listed(known, limit=40)}."
            )
        given = {name: _value(name, value, origin) for name, value in table.items()}
        site = cls(**given)
        if site.tasks not in TASKS:
            raise InputError(f"{origin}: tasks = {shown(site.tasks)} must be {either(TASKS)}.")
        return site


_BOOLEANS: Final = ("exclusive", "requeue", "segment")
_LISTS: Final = ("exclude", "lines", "modules", "container", "srun", "volumes", "hosts")
_TABLES: Final = ("environment", "resources")
_QUOTED: Final = ("before", "container", "srun", "modules", "python", "image", "volumes", "hosts")
"""Fields that do not become part of an `#SBATCH` line."""


def _value(name: str, value: Any, origin: str) -> Any:
    if name in _BOOLEANS:
        if not isinstance(value, bool):
            raise InputError(f"{origin}: {name} must be true or false, not {shown(value)}.")
        return value
    if name == "cpus_per_task":
        if type(value) is not int or not 0 <= value < 10**6:
            raise InputError(f"{origin}: {name} must be an integer of at least 0, not {shown(value)}.")
        return value
    if name == "time" and type(value) is int and value > 0:
        return str(value)
    if name in _TABLES:
        return _table(name, value, origin)
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise InputError(f"{origin}: {name} must be a list of strings, not {shown(value)}.")
        return tuple(_text(name, item, origin) for item in value)
    if not isinstance(value, str):
        raise InputError(f"{origin}: {name} must be a string, not {shown(value)}.")
    return _text(name, value, origin)


def _table(name: str, value: Any, origin: str) -> tuple[tuple[str, Any], ...]:
    """Return the entries of a table of variables (texts and numbers) or of resources (counts)."""
    if not isinstance(value, dict):
        raise InputError(f"{origin}: {name} must be a table, not {shown(value)}.")
    for key, entry in value.items():
        if not _PATTERNS[name].fullmatch(key):
            raise InputError(f"{origin}: {shown(key)} is not a valid name in {name}.")
        text = isinstance(entry, str) and "\0" not in entry and "\n" not in entry
        if name == "environment" and not (text or type(entry) in (int, float)):
            raise InputError(f"{origin}: {name}.{key} must be one line of text or a number, not {shown(entry)}.")
        if name == "resources" and (type(entry) is not int or not 0 < entry < 10**6):
            raise InputError(f"{origin}: {name}.{key} must be an integer of at least 1, not {shown(entry)}.")
    return tuple((key, str(entry) if name == "environment" else entry) for key, entry in value.items())


def _text(name: str, text: str, origin: str) -> str:
    if "\0" in text:
        raise InputError(f"{origin}: {name} contains a null byte.")
    if name not in _QUOTED and text and not _WORD.fullmatch(text):
        raise InputError(
            f"{origin}: {name} = {shown(text)} cannot be part of an #SBATCH line: remove spaces, quotes, "
            "backslashes, $ and #."
        )
    if name in _PATTERNS and text and not _PATTERNS[name].fullmatch(text):
        wanted = {"hosts": "a host name", "image": "a container image", "volumes": "CLAIM:/mount or /path:/mount"}
        raise InputError(f"{origin}: {name} has {shown(text)}, which is not {wanted[name]}.")
    if name == "lines" and not text.startswith("-"):
        raise InputError(f"{origin}: {name} has {shown(text)}, which is not an option of sbatch such as --mem=0.")
    return text
