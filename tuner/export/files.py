"""Files written whole: by a temporary name that is renamed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import InputError


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts into a folder, which is made; `InputError` where it cannot be."""
    written = []
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        written.append(path)
    return written
