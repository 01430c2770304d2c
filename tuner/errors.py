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
from typing import ClassVar, SupportsInt


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


def shown(value: object) -> str:
    """A value as a sentence can show it: in one line, not long, and whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**18 else f"a number of {value.bit_length()} bits"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def listed(values: Iterable[object], *, limit: int = 16, last: str = "and") -> str:
    """`1, 2, 3 and 4`: the values as a sentence has them, the tail cut off beyond `limit`."""
    words = [str(value) for value in values]
    if len(words) > limit:
        return f"{', '.join(words[:limit])} and {len(words) - limit} more"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(number: SupportsInt, word: str) -> str:
    """`1 node`, `48 nodes`; a number of numpy's does too."""
    return f"{int(number)} {word}{'' if int(number) == 1 else 's'}"


def either(values: Iterable[object], *, limit: int = 16) -> str:
    """`1, 2, 3 or 4`."""
    return listed(values, limit=limit, last="or")
