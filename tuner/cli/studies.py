"""How commands take a study that is there."""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tuner.cli.options import Command


def study_command(command: str, name: str) -> str:
    """The command line that asks for this study again, from this shell: where it is kept is said, where it must be."""
    from tuner.study.store.storage import masked

    given = click.get_current_context().params
    words = ["tuner", command, name]
    if given.get("runs") not in (None, "runs"):
        words += ["--runs", given["runs"]]
    if given.get("storage"):
        words += ["--storage", masked(given["storage"])]
    return shlex.join(words)


def takes_a_study(command: Command) -> Command:
    """Give a command the argument STUDY, `--runs` and `--storage`; it is called with the `study` that they name."""

    @functools.wraps(command)
    def with_study(**given: Any) -> Any:
        from pathlib import Path

        from tuner.study.result import reopened

        name, runs, storage = given.pop("name"), Path(given.pop("runs")), given.pop("storage")
        return command(study=reopened(name, runs=runs, storage=storage), **given)

    wrapped: Command = with_study
    return click.argument("name", metavar="STUDY")(kept_at(wrapped))


def kept_at(command: Command) -> Command:
    """Give a command `--runs` and `--storage`, which say where studies are."""
    storage = click.option("--storage", metavar="URL", help="The database of the study. [default: its own SQLite file]")
    runs = click.option("--runs", default="runs", metavar="DIR", help="Where studies are kept. [default: runs]")
    return runs(storage(command))
