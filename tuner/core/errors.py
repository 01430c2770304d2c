"""Every error that a user can meet, as one tree.

    TunerError                  one sentence: what is wrong, with the numbers, and the remedy
    ├── InputError              exit 2: an argument, a file or a name that cannot be used
    │   ├── UnknownName         exit 2: a name that the catalog lacks; suggests the closest
    │   └── BadKey              exit 2: a string that is not a topology key
    ├── NothingUsable           exit 1: the work was done and nothing usable came of it
    │   └── EmptySpace          exit 1: no topology is legal; says which rule removed how many
    ├── LaunchError             exit 1: a job that could not be started; says why
    ├── StudyError              exit 1: a study that cannot be kept or gone on with; nothing is lost
    └── MissingDependency       exit 3: a launcher or a package that this machine lacks

The command line prints the sentence and leaves with the error's exit code; it never shows a traceback for these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from tuner.core.text import either, listed


class TunerError(Exception):
    """An error that is the user's to read: its text is one sentence with the numbers and the remedy."""

    exit_code: ClassVar[int] = 1


class InputError(TunerError):
    """An argument, a file or a name that cannot be used."""

    exit_code = 2


class UnknownName(InputError):
    """A name that the catalog lacks."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, remedy: str = "") -> None:
        names = sorted(known)
        by_folded = {known_name.casefold(): known_name for known_name in names}
        close = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.4)
        near = [by_folded[match] for match in close]
        advice = f"did you mean {either(near)}?" if near else f"known are {listed(names, limit=12)}."
        super().__init__(f"there is no {kind} called {name!r}; {advice}{' ' + remedy if remedy else ''}")


class BadKey(InputError):
    """A string that is not a topology key."""


class NothingUsable(TunerError):
    """The work was done and nothing usable came of it."""


class EmptySpace(NothingUsable):
    """No topology of the space is legal."""


class LaunchError(TunerError):
    """A job that could not be started."""


class StudyError(TunerError):
    """A study that cannot be kept, or that cannot be gone on with; what it holds is not lost."""


class MissingDependency(TunerError):
    """A launcher or a package that this machine lacks."""

    exit_code = 3


class TunerWarning(UserWarning):
    """Something that a user should know and that stops nothing. The command line prints it on stderr."""
