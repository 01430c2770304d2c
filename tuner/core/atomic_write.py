"""Atomic file writes, and reads of files that a job may have replaced by anything."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from tuner.core.errors import DiskFull, InputError, TunerError

RUNNABLE: Final = 0o755
PRIVATE: Final = 0o600

RAISE_LIMIT: Final = "raise the limit of file sizes (ulimit -f)"
"""The remedy for a file that would exceed the limit of the process."""

MAX_OBJECT_BYTES: Final = 64 << 20
"""Bytes of the largest JSON document that is read."""


def write_whole(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write a file atomically: write a temporary file, then rename it. An `OSError` leaves nothing behind.

    An existing file keeps its permissions, and a symbolic link keeps pointing to it. Anything that is not a regular
    file, such as a pipe or /dev/null, is written to directly.
    """
    with ExitStack() as failed:
        temporary, path = _stage(path, content, mode, failed)
        if temporary is not None:
            temporary.replace(path)
        failed.pop_all()


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file named by the user atomically, creating its folder; raise `InputError` or `DiskFull` if it fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise unwritten(path, error) from None


def write_files(folder: Path, files: Mapping[str, str | bytes], *, option: str = "-o") -> list[Path]:
    """Write all files into a folder that the user names with `option`, creating it, or none of them.

    Scripts become executable. Raise `InputError` for a folder that cannot be written to, and `DiskFull` where the disk
    has no room for all.
    """
    staged = []
    path = folder
    try:
        with ExitStack() as failed:
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                script = isinstance(content, str) and content.startswith("#!")
                staged.append(_stage(path, content, RUNNABLE if script else None, failed))
            for temporary, path in staged:
                if temporary is not None:
                    temporary.replace(path)
            failed.pop_all()
    except OSError as error:
        raise unwritten(path, error, remedy=f"choose a folder with {option} DIR") from None
    return [folder / name for name in files]


def refuse_foreign(folder: Path, names: Iterable[str], *, mark: str) -> None:
    """Raise `InputError` if files would be replaced in a folder without the one that tuner always writes there."""
    foreign = [] if (folder / mark).exists() else [name for name in names if (folder / name).exists()]
    if foreign:
        raise InputError(f"{folder / foreign[0]} was not written by tuner; choose another folder with -o DIR.")


def unwritten(path: Path, error: OSError, *, remedy: str = "") -> TunerError:
    """Return the error of a file that cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedies = ["make room there"] * full + [RAISE_LIMIT] * (error.errno == errno.EFBIG) + [remedy] * bool(remedy)
    reason = f"{error.filename} is not a folder" if isinstance(error, FileExistsError) else error.strerror or error
    text = f"{path} cannot be written: {reason}" + (f"; {' or '.join(remedies)}." if remedies else ".")
    return DiskFull(text) if full else InputError(text)


def file_size_limit() -> int | None:
    """Return the bytes of the largest file that this process may write; None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def _stage(path: Path, content: str | bytes, mode: int | None, failed: ExitStack) -> tuple[Path | None, Path]:
    """Write a temporary file, to be removed if something fails; return it and the path that it is to be renamed to.

    What is not a regular file is written to at once, and the temporary file is None.
    """
    path = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    existing = path.stat() if path.exists() else None
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        path.write_bytes(data)
        return None, path
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if existing is not None and mode != PRIVATE:
        mode = stat.S_IMODE(existing.st_mode)
    failed.callback(_remove, temporary)
    if mode is not None:
        temporary.touch(mode=PRIVATE)
    temporary.write_bytes(data)
    if mode is not None:
        temporary.chmod(mode)
    return temporary, path


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def write_object(path: Path, document: Mapping[str, Any], *, private: bool = False) -> None:
    """Write a JSON document atomically; a private one is readable by its owner only."""
    write_whole(path, json.dumps(document, indent=1) + "\n", mode=PRIVATE if private else None)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read. Raise an `OSError` for a pipe or a device, which may block or never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file is missing, too large or contains anything else."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_OBJECT_BYTES + 1)
        document = json.loads(content) if len(content) <= MAX_OBJECT_BYTES else None
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
