"""Stdout whose write errors are distinguishable from every other OSError, and stderr that never fails."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TextIO


class StdoutError(Exception):
    """Writing to stdout failed."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CheckedStdout:
    """A stream that raises `StdoutError` when a write or flush fails and delegates everything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text."""
        try:
            return self._stream.write(text)
        except OSError as error:
            raise StdoutError(error) from None

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except OSError as error:
            raise StdoutError(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LenientStderr:
    """A stream that drops what cannot be written, on a full disk for example, and delegates everything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
