"""The file of an open SQLite database, which may be deleted or replaced.

SQLite does not notice: it goes on writing to a file that has no name, whose content is lost with the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.core.errors import StudyError
from tuner.study.store.storage import recovery_command, sqlite_file

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """The file of a database as it was opened."""

    path: Path | None
    """None if the database is no file."""
    identity: Identity | None
    """None if it is unknown."""

    @classmethod
    def of(cls, url: str) -> DatabaseFile:
        """Return the file of the open database at a URL."""
        path = sqlite_file(url)
        try:
            return cls(path, None if path is None else _identity(path))
        except OSError:
            return cls(path, None)

    def check(self, folder: Path | None) -> None:
        """Raise a `StudyError` unless the file is still the one that was opened; `folder` is the study's."""
        if self.path is None or self.identity is None:
            return
        try:
            now = _identity(self.path)
        except OSError:
            return  # it may still be there
        if now == self.identity:
            return
        folder = folder or self.path.parent
        happened, first = ("replaced by another file", "move that file away, ") if now else ("deleted or moved", "")
        again = "run the same command again"
        if any((folder / "jobs").glob("*/job.json")):
            changed = " without --storage" * (self.path.resolve() != (folder / "study.db").resolve())
            raise StudyError(
                f"{self.path} was {happened} while the study ran: {first}rebuild the database with "
                f"'{recovery_command(folder)}', and {again}{changed}."
            )
        raise StudyError(
            f"{self.path} was {happened} while the study ran, and no file of a job is there to rebuild it from: "
            f"{first}{again} to start a new study."
        )


def _identity(path: Path) -> Identity | None:
    """Return the identity of a file; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
