"""Writes files whole or not at all, and reads small JSON documents back without trusting them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tuner.core.errors import InputError

RUNNABLE: Final = 0o755
PRIVATE: Final = 0o600


def write_whole(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write by a temporary name that is renamed; `OSError` leaves nothing behind.

    A file that is there keeps its permissions, a link goes on leading to it; what is no file, such as a pipe or
    /dev/null, is written into and stays what it is.
    """
    path = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    there = path.stat() if path.exists() else None
    if there is not None and not stat.S_ISREG(there.st_mode):
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if there is not None and mode != PRIVATE:
        mode = stat.S_IMODE(there.st_mode)
    try:
        if mode is not None:
            temporary.touch(mode=PRIVATE)
        temporary.write_bytes(data)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write them into a folder, which is made; scripts can be run. `InputError` where one cannot be written."""
    written = []
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            script = isinstance(content, str) and content.startswith("#!")
            write_whole(path, content, mode=RUNNABLE if script else None)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        written.append(path)
    return written


def write_object(path: Path, document: Mapping[str, Any], *, private: bool = False) -> None:
    """Write the file whole or not at all; a private one is readable by its owner only."""
    write_whole(path, json.dumps(document, indent=1) + "\n", mode=PRIVATE if private else None)


def read_object(path: Path) -> dict[str, Any]:
    """The document of a file; empty where there is none, or another thing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
