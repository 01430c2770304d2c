"""The site profile: what a site's Slurm requires of every job, from a TOML file (example: `docs/slurm-site.toml`)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteProfile:
    """The fields of the file; an empty one leaves the choice to Slurm."""

    account: str = ""
    partition: str = ""
    """One partition, or several separated by commas, of which Slurm takes the first that is free."""
    constraint: str = ""
    qos: str = ""
    reservation: str = ""
    time: str = ""
    """Time limit of a job in Slurm's notation: minutes, hours:minutes:seconds, days-hours."""
    gres: str | None = None
    """Resources of each node. None: `gpu:8` with 8 GPUs a node; empty: request none."""
    cpus_per_task: int = 0
    exclusive: bool = True
    """Whether a job has its nodes to itself; other jobs on them distort measurements."""
    requeue: bool = True
    """Whether Slurm requeues a job whose node fails or that is preempted."""
    exclude: tuple[str, ...] = ()
    nodelist: str = ""
    lines: tuple[str, ...] = ()
    """Further options of sbatch: `--mem=0`."""
    modules: tuple[str, ...] = ()
    """Modules to load."""
    before: str = ""
    """Shell lines to run verbatim before the ranks start."""
    container: tuple[str, ...] = ()
    """Command prefix that starts the program in a container: apptainer, exec, --nv, image.sif."""
    srun: tuple[str, ...] = ()
    """Further arguments of srun."""
    tasks: str = "ranks"
    """How often to start --command: `ranks`, once a rank; `nodes`, once a node; `once`, without srun."""
    python: str = ""
    """Python interpreter on the nodes, where it differs from the tuner's."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the partitions that a job may run in; none where Slurm chooses."""
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


_BOOLEANS: Final = ("exclusive", "requeue")
_LISTS: Final = ("exclude", "lines", "modules", "container", "srun")
_QUOTED: Final = ("before", "container", "srun", "modules", "python")
"""Fields that do not become part of an `#SBATCH` line."""


def _value(name: str, value: Any, origin: str) -> Any:
    if name in _BOOLEANS:
        if not isinstance(value, bool):
            raise InputError(f"{origin}: {name} must be true or false, not {shown(value)}.")
        return value
    if name == "cpus_per_task":
        if type(value) is not int or not 0 <= value < 10**6:
            raise InputError(f"{origin}: {name} must be an integer from 0, not {shown(value)}.")
        return value
    if name == "time" and type(value) is int and value > 0:
        return str(value)
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise InputError(f"{origin}: {name} must be a list of strings, not {shown(value)}.")
        return tuple(_text(name, item, origin) for item in value)
    if not isinstance(value, str):
        raise InputError(f"{origin}: {name} must be a string, not {shown(value)}.")
    return _text(name, value, origin)


def _text(name: str, text: str, origin: str) -> str:
    if "\0" in text:
        raise InputError(f"{origin}: {name} contains a null byte.")
    if name not in _QUOTED and text and not _WORD.fullmatch(text):
        raise InputError(
            f"{origin}: {name} = {shown(text)} cannot be part of an #SBATCH line: remove spaces, quotes, "
            "backslashes, $ and #."
        )
    if name == "lines" and not text.startswith("-"):
        raise InputError(f"{origin}: {name} has {shown(text)}, which is not an option of sbatch such as --mem=0.")
    return text
