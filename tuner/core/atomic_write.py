"""Writes files whole or not at all, and reads small JSON documents back without trusting them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.core.errors import InputError

RUNNABLE = 0o755


def write_whole(path: Path, content: str | bytes, *, runnable: bool = False) -> None:
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
    try:
        temporary.write_bytes(data)
        if there is not None or runnable:
            temporary.chmod(RUNNABLE if there is None else stat.S_IMODE(there.st_mode))
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
            write_whole(path, content, runnable=isinstance(content, str) and content.startswith("#!"))
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        written.append(path)
    return written


def write_object(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    write_whole(path, json.dumps(document, indent=1) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """The document of a file; empty where there is none, or another thing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
