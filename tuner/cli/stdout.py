"""Stdout as commands see it: what cannot be written there is told apart from what fails anywhere else."""

from __future__ import annotations

from typing import Any, TextIO


class StdoutError(Exception):
    """Stdout did not take what was written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CheckedStdout:
    """A stream that raises `StdoutError` for each of its own errors, and is the stream itself in all else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As the stream does."""
        try:
            return self._stream.write(text)
        except OSError as error:
            raise StdoutError(error) from None

    def flush(self) -> None:
        """As the stream does."""
        try:
            self._stream.flush()
        except OSError as error:
            raise StdoutError(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
