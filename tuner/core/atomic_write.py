"""Atomic file writes, and tolerant reads of small JSON documents."""

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
    """Write a file atomically: write a temporary file, then rename it. An `OSError` leaves nothing behind.

    An existing file keeps its permissions, and a symbolic link keeps pointing to it. Anything that is not a regular
    file, such as a pipe or /dev/null, is written to directly.
    """
    path = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    existing = path.stat() if path.exists() else None
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        if existing is not None or runnable:
            temporary.chmod(RUNNABLE if existing is None else stat.S_IMODE(existing.st_mode))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files into a folder, creating it, and make scripts executable. Raise `InputError` if a write fails."""
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
    """Write a JSON document atomically."""
    write_whole(path, json.dumps(document, indent=1) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file is missing or contains anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
