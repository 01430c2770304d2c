"""How commands take a study that is there."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tuner.cli.options import Command


def takes_a_study(command: Command) -> Command:
    """Give a command the argument STUDY, `--runs` and `--storage`; it is called with the `study` that they name."""

    @functools.wraps(command)
    def with_study(**given: Any) -> Any:
        from pathlib import Path

        from tuner.tune.reopen import reopened

        name, runs, storage = given.pop("name"), Path(given.pop("runs")), given.pop("storage")
        return command(study=reopened(name, runs=runs, storage=storage), **given)

    wrapped: Command = with_study
    for option in (
        click.option("--storage", metavar="URL", help="The database of the study. [default: its own SQLite file]"),
        click.option("--runs", default="runs", metavar="DIR", help="Where studies are kept. [default: runs]"),
        click.argument("name", metavar="STUDY"),
    ):
        wrapped = option(wrapped)
    return wrapped
