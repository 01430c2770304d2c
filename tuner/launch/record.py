"""The one small file that a virtual job leaves: what becomes of it, and what has happened to it."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import read_object, write_object
from tuner.launch.life import Life

SCHEMA: Final = "tuner/virtual-job/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the file says; moments are by the cluster's clock."""

    life: Life
    began: float | None = None
    cancelled: float | None = None


def read(path: Path) -> Record | None:
    """What stands there; None where nothing does, or something else."""
    document = read_object(path)
    if document.get("schema") != SCHEMA:
        return None
    life, moments = Life.of(document.get("life")), (document.get("began"), document.get("cancelled"))
    if life is None or not all(moment is None or isinstance(moment, int | float) for moment in moments):
        return None
    return Record(life=life, began=moments[0], cancelled=moments[1])


def written(path: Path, record: Record) -> None:
    """Write it whole or not at all. `OSError` leaves nothing behind."""
    document = {
        "schema": SCHEMA,
        "simulated": record.life.simulated,
        "life": asdict(record.life),
        "began": record.began,
        "cancelled": record.cancelled,
    }
    ours = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_object(path, document)
    except OSError:
        if ours:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise
