"""The nodes that a study sends nothing to any more, as they are kept in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import read_object, write_object

FILE: Final = "slurm-excluded.json"


def excluded_nodes(folder: Path) -> dict[str, str]:
    """Nodes that have failed, and how."""
    return {str(name): str(why) for name, why in read_object(folder / FILE).items()}


def write_excluded_nodes(folder: Path, nodes: Mapping[str, str]) -> None:
    """Write them down; a folder that cannot be written keeps nothing, and this process knows them all the same."""
    with suppress(OSError):
        write_object(folder / FILE, nodes)
