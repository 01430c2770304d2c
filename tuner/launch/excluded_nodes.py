"""The excluded nodes of a study, recorded in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import read_object, write_object

FILE: Final = "slurm-excluded.json"


def excluded_nodes(folder: Path) -> dict[str, str]:
    """Return the failed nodes, each with the reason."""
    return {str(name): str(why) for name, why in read_object(folder / FILE).items()}


def write_excluded_nodes(folder: Path, nodes: Mapping[str, str]) -> None:
    """Record the excluded nodes; if the folder is not writable, only this process excludes them."""
    with suppress(OSError):
        write_object(folder / FILE, nodes)
