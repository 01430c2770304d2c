"""Syntax that only a shell understands, which `--command` and `--log` would pass to programs as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import PurePath
from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import shown

_WORD: Final = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
"""A word of a command, with its quotes."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OPERATOR: Final = re.compile(r"&&|\|\|?|\|&|;|&|&?>>?|\d*(?:<<?<?|>>?)(?:&\d*)?")
"""A word by which a shell joins or redirects commands."""
_SUBSTITUTED: Final = r"\$[A-Za-z_]\w*|\$\{[A-Za-z_][^}]*\}|\$\([^)]*\)?|`[^`]*`?"
_EXPANDED: Final = re.compile(rf"(?P<quote>\")|\\.|(?P<found>{_SUBSTITUTED})|(?P<literal>')", re.DOTALL)
_HOME: Final = re.compile(r"~(?=/|$)")
_SHELLS: Final = ("bash", "sh", "zsh", "dash", "ksh")


def check_shell_syntax(text: str) -> None:
    """Raise `InputError` for unquoted words that only a shell understands, and for what a shell would expand."""
    words = _WORD.findall(text)
    if words and _ASSIGNMENT.fullmatch(words[0]):
        name = words[0].partition("=")[0]
        raise InputError(
            f"--command runs without a shell, so {name}=... would be the program: write env {name}=... before it."
        )
    if operator := next((word for word in words if _OPERATOR.fullmatch(word)), None):
        raise InputError(
            f"--command runs without a shell, which {operator} needs: put the commands into a script, write bash -c "
            f"'...', or quote '{operator}' if it is an argument."
        )
    scripts = _scripts(words)
    if expanded := next((found for word in words if word not in scripts and (found := _expansion(word))), None):
        raise InputError(
            f"--command runs without a shell, which {expanded} needs: write its value, write bash -c '...', or put it "
            "in single quotes if it is literal."
        )


def check_log_name(name: str) -> None:
    """Raise `InputError` for a `--log` that is the name of a folder, and for what a shell would expand."""
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise InputError(f"--log must name a file (got {shown(name)}).")
    if expanded := _expansion(name):
        raise InputError(f"--log is read without a shell, which {expanded} needs: write its value.")


def _scripts(words: Iterable[str]) -> set[str]:
    """Return the words that a shell of the command runs as scripts: `bash -c "..."`."""
    seen, found = set[str](), set[str]()
    words = list(words)
    for option, script in zip(words, islice(words, 1, None), strict=False):
        if re.fullmatch(r"-\w*c", option) and seen & {*_SHELLS}:
            found.add(script)
        seen.add(PurePath(option).name)
    return found


def _expansion(word: str) -> str | None:
    """Return the first part of a word that a shell would replace; None if there is none."""
    if home := _HOME.match(word):
        return home[0]
    start, is_quoted = 0, False
    while part := _EXPANDED.search(word, start):
        if part["found"]:
            return part["found"]
        start = part.end()
        if part["quote"]:
            is_quoted = not is_quoted
        elif part["literal"] and not is_quoted:
            start = word.find("'", start) + 1 or len(word)
    return None
