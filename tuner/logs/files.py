"""Stream the lines of logs from files or pipes: plain, or compressed with gzip, bzip2, xz or zstd."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from tuner.core.errors import InputError, MissingDependency, TunerWarning, reason_of
from tuner.core.text import shown

STDIN: Final = "-"

_LONGEST_LINE: Final = 1 << 20
"""Bytes; longer lines are read in pieces, so that a file without line breaks does not exhaust memory."""
_LOOKED_AT: Final = 1 << 16
_MAX_CONTROLS: Final = 0.02
"""Maximum share of control characters in a text; of random bytes, one in ten is a control character."""
_NO_CONTROLS: Final = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\v\f\r\b\a\x1b\0"})
"""Bytes that occur in logs, including NUL, which follows a truncation during writing and occurs in UTF-16."""
_BROKEN: Final = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def log_lines(name: str) -> Iterator[str]:
    """Yield the lines of a log file, or of standard input if the name is `-`.

    The first bytes determine the compression. A truncated compressed file yields its readable part, with a warning.
    """
    where = "standard input" if name == STDIN else name
    try:
        with _opened(name) as file, _decompressed(file, where) as text:
            pieces = _pieces(text, where)
            head = list(_first(pieces, _LOOKED_AT))
            _check(b"".join(head), where)
            for piece in itertools.chain(head, pieces):
                yield piece.decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(where)} cannot be read: {reason_of(error)}.") from None


def _opened(name: str) -> IO[bytes]:
    if name == STDIN:
        if sys.stdin is None:
            raise InputError("there is no standard input to read; give the name of a log file.")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{name} is a folder; give the file in it that has the iterations.")
    if not path.exists():
        raise InputError(f"there is no file {name}.")
    return path.open("rb")


def _decompressed(file: IO[bytes], where: str) -> IO[bytes]:
    start = bytes(file.peek(6)[:6])  # type: ignore[attr-defined]
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(file)  # type: ignore[return-value]
    if start.startswith(b"BZh"):
        return bz2.open(file)
    if start == b"\xfd7zXZ\0":
        return lzma.open(file)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        if sys.version_info >= (3, 14):
            from compression import zstd

            return zstd.open(file)
        remedy = f"zstd -dc {where} | tuner measure -"
        raise MissingDependency(f"{where} is compressed by zstd, which needs Python 3.14 or later; or write {remedy}")
    return file


def _pieces(text: IO[bytes], where: str) -> Iterator[bytes]:
    """Yield lines, with overlong ones in pieces; stop with a warning where compressed data is corrupt."""
    read = False
    try:
        while piece := text.readline(_LONGEST_LINE):
            read = True
            yield piece
    except _BROKEN as error:
        if not read:
            raise InputError(f"{where} cannot be decompressed: {error}.") from None
        warnings.warn(TunerWarning(f"{where} ends within its compressed data; the part before is read."), stacklevel=2)


def _first(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield pieces until their total is at least `size` bytes."""
    so_far = 0
    for piece in pieces:
        yield piece
        so_far += len(piece)
        if so_far >= size:
            return


def _check(head: bytes, where: str) -> None:
    if not head.strip(b"\0 \t\r\n"):
        raise InputError(f"{where} is empty; give the log of a job that has run.")
    controls = len(head.translate(None, _NO_CONTROLS))
    if controls > _MAX_CONTROLS * len(head.replace(b"\0", b"")) or head.startswith(
        (b"PK\x03\x04", b"\x7fELF", b"%PDF")
    ):
        raise InputError(f"{where} is not text; give a training log, plain or compressed by gzip, bzip2, xz or zstd.")
