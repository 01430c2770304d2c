"""What a site's Slurm wants of every job, from a TOML file: `docs/slurm-site.toml` shows each field."""

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
"""What stands in an `#SBATCH` line unquoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteProfile:
    """The fields of the file; each is left to Slurm where it is empty."""

    account: str = ""
    partition: str = ""
    """One, or several with commas: the first that is free."""
    constraint: str = ""
    qos: str = ""
    reservation: str = ""
    time: str = ""
    """A job's limit as Slurm writes it: minutes, hours:minutes:seconds, days-hours."""
    gres: str | None = None
    """For each node; `gpu:8` where nothing is said and there are 8 GPUs a node; empty: none are asked for."""
    cpus_per_task: int = 0
    exclusive: bool = True
    """Whether a job has its nodes for itself; what is measured beside others is worth little."""
    requeue: bool = True
    """Whether Slurm starts a job again when its node fails or it is preempted."""
    exclude: tuple[str, ...] = ()
    nodelist: str = ""
    lines: tuple[str, ...] = ()
    """More options of sbatch: `--mem=0`."""
    modules: tuple[str, ...] = ()
    """For `module load`."""
    before: str = ""
    """Shell lines before the ranks are started, as they stand."""
    container: tuple[str, ...] = ()
    """Words before the program: apptainer, exec, --nv, image.sif."""
    srun: tuple[str, ...] = ()
    """More arguments of srun."""
    tasks: str = "ranks"
    """How often --command is started: `ranks`, once for each rank; `nodes`, once a node; `once`, without srun."""
    python: str = ""
    """The interpreter on the nodes, where it is not the tuner's own."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that a job may run in; none where Slurm chooses."""
        return tuple(name for name in self.partition.split(",") if name)

    @classmethod
    def read(cls, path: Path) -> SiteProfile:
        """The site of a file."""
        return cls.of(read_toml(path), origin=str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], *, origin: str) -> SiteProfile:
        """The site of a table; a field that is unknown or of the wrong kind is refused by name."""
        known = {field.name: field for field in fields(cls)}
        if unknown := sorted(set(table) - set(known)):
            raise InputError(
                f"{origin} has no field {listed(unknown)} of a Slurm site; it has {listed(known, limit=40)}."
            )
        given = {name: _value(name, value, origin) for name, value in table.items()}
        site = cls(**given)
        if site.tasks not in TASKS:
            raise InputError(f"{origin}: tasks = {shown(site.tasks)}; it is {either(TASKS)}.")
        return site


_TRUTHS: Final = ("exclusive", "requeue")
_LISTS: Final = ("exclude", "lines", "modules", "container", "srun")
_FREE: Final = ("before", "container", "srun", "modules", "python")
"""Fields that stand in the script and not in an `#SBATCH` line."""


def _value(name: str, value: Any, origin: str) -> Any:
    if name in _TRUTHS:
        if not isinstance(value, bool):
            raise InputError(f"{origin}: {name} must be true or false, not {shown(value)}.")
        return value
    if name == "cpus_per_task":
        if type(value) is not int or not 0 <= value < 10**6:
            raise InputError(f"{origin}: {name} must be a whole number, not {shown(value)}.")
        return value
    if name == "time" and type(value) is int and value > 0:
        return str(value)
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise InputError(f"{origin}: {name} must be a list of texts, not {shown(value)}.")
        return tuple(_text(name, each, origin) for each in value)
    if not isinstance(value, str):
        raise InputError(f"{origin}: {name} must be a text, not {shown(value)}.")
    return _text(name, value, origin)


def _text(name: str, text: str, origin: str) -> str:
    if "\0" in text:
        raise InputError(f"{origin}: {name} holds a zero byte.")
    if name not in _FREE and text and not _WORD.fullmatch(text):
        raise InputError(
            f"{origin}: {name} = {shown(text)} cannot stand in a line of sbatch: no space, quote, backslash, $ or #."
        )
    if name == "lines" and not text.startswith("-"):
        raise InputError(f"{origin}: {name} has {shown(text)}, which is no option of sbatch such as --mem=0.")
    return text
