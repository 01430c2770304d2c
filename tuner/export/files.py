"""Files written whole: by a temporary name that is renamed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.errors import InputError
from tuner.wholefile import write_whole


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts into a folder, which is made; `InputError` where it cannot be."""
    written = []
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        written.append(path)
    return written
