"""What Python takes away from a study: the folder that goes to production."""

from __future__ import annotations

from pathlib import Path

from tuner.core.atomic_write import write_files
from tuner.core.errors import NothingUsable
from tuner.export.bundle import bundle
from tuner.report.promise import promise
from tuner.study.result import Reopened


def write_export(study: Reopened, folder: str | Path, *, key: str | None = None, format: str = "slurm") -> list[Path]:  # noqa: A002 - the flag's own name
    """Write the winner's `ds_config.json`, launch script and what to expect; `key` takes another measured topology."""
    place = study.place_of(key) if key else study.best
    if place is None:
        raise NothingUsable(f"study {study.name} has measured nothing to export.")
    return write_files(Path(folder), bundle(promise(study, place), format))
