"""The hierarchy of all errors that a user can see.

    TunerError                  one sentence: the problem with its numbers, and the remedy
    ├── InputError              exit 2: an argument, file or name is invalid
    │   ├── UnknownName         exit 2: a name is not in the catalog; suggests the closest
    │   └── BadKey              exit 2: a string is not a topology key
    ├── NothingUsable           exit 1: the command ran but has no usable result
    │   └── EmptySpace          exit 1: no topology is legal; lists how many each rule removed
    ├── LaunchError             exit 1: a job could not be started; gives the cause
    ├── StudyError              exit 1: a study cannot be saved or resumed; nothing is lost
    └── MissingDependency       exit 3: a launcher or package is not installed

The command line prints the sentence without a traceback and exits with the error's exit code.
"""

from __future__ import annotations

import copyreg
import difflib
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from tuner.core.text import either, listed

_LEAST_ALIKE: Final = 0.55
"""Similarity from which a name is suggested; `foo` and `mlflow` have 0.44, `nope` and `nemo` 0.5."""


class TunerError(Exception):
    """Base class of errors shown to the user, whose message is one sentence with the numbers and the remedy."""

    exit_code: ClassVar[int] = 1


class InputError(TunerError):
    """An argument, file or name is invalid."""

    exit_code = 2


class UnknownName(InputError):
    """A name is not in the catalog; suggests the names that start with it, then the closest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, owner: str = "", remedy: str = "") -> None:
        names = sorted(known)
        by_folded = {known_name.casefold(): known_name for known_name in names}
        begun = [folded for folded in by_folded if name and folded.startswith(name.casefold())]
        close = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=_LEAST_ALIKE)
        near = [by_folded[match] for match in dict.fromkeys([*begun, *close])][:3]
        advice = f"did you mean {either(near)}?" if near else f"choose from {listed(names, limit=12)}."
        problem = f"{owner} has no {kind} {name!r}" if owner else f"there is no {kind} called {name!r}"
        super().__init__(f"{problem}; {advice}{' ' + remedy if remedy else ''}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process rebuilds it: from its message."""
        return copyreg.__newobj__, (type(self), *self.args)  # type: ignore[attr-defined]


class BadKey(InputError):
    """A string is not a topology key."""


class NothingUsable(TunerError):
    """The command ran but has no usable result."""


class EmptySpace(NothingUsable):
    """No topology in the space is legal."""


class DiskFull(TunerError):
    """The disk is full."""


class LaunchError(TunerError):
    """A job could not be started."""


class StudyError(TunerError):
    """A study cannot be saved or resumed; its stored trials are not lost."""


class OtherStudy(StudyError):
    """A study was started with other arguments."""

    exit_code = 2


class MissingDependency(TunerError):
    """A launcher or package is not installed."""

    exit_code = 3


class TunerWarning(UserWarning):
    """A problem that does not stop the command, which prints it on stderr."""


def reason_of(error: Exception) -> str:
    """Return why a file operation failed, in the words of the operating system if there are any."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
