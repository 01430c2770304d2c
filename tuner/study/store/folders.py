"""Find the studies of a folder, and the jobs of a study."""

from __future__ import annotations

import warnings
from pathlib import Path

from tuner.core.errors import InputError, TunerWarning


def files_in(folder: Path, name: str) -> tuple[list[Path], dict[Path, str]]:
    """Return the files of that name in the folders of a folder, and those that cannot be reached, with the reasons.

    A missing folder has none. Raise an `InputError` if it cannot be read, so that it does not count as empty.
    """
    try:
        inner = sorted(folder.iterdir())
    except FileNotFoundError:
        return [], {}
    except NotADirectoryError:
        raise InputError(f"{folder} is not a folder.") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}.") from None
    found, unreachable = [], {}
    for file in (path / name for path in inner):
        try:
            file.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreachable[file] = error.strerror or str(error)
            continue
        found.append(file)
    return found, unreachable


def study_files(runs: Path) -> list[Path]:
    """Return the databases of the studies in a folder, by name; warn of those that cannot be reached."""
    found, unreachable = files_in(runs, "study.db")
    for file, reason in unreachable.items():
        warnings.warn(f"{file} cannot be read: {reason}; its study is left out.", TunerWarning, stacklevel=3)
    return found
