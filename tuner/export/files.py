"""The files of an export or a report, each written whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.errors import InputError
from tuner.wholefile import write_whole


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write them into a folder, which is made; scripts can be run. `InputError` where one cannot be written."""
    written = []
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, runnable=isinstance(content, str) and content.startswith("#!"))
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        written.append(path)
    return written
