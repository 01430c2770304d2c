"""How commands take a measurement table: the file, and what it leaves out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tuner.cli.options import Command
    from tuner.tables import Table


def takes_a_table(command: Command) -> Command:
    """Give a command the argument TABLE and `--default`; it is called with the `table` that they make."""

    @functools.wraps(command)
    def with_table(**given: Any) -> Any:
        file, defaults = given.pop("file"), given.pop("defaults")
        return command(table=read(file, defaults), **given)

    wrapped: Command = takes_defaults(with_table)
    return click.argument("file", metavar="TABLE")(wrapped)


takes_defaults = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What the table leaves out and you know: gpu=V100-32GB-SXM, gpus_per_node=4.",
)


def read(file: str, defaults: tuple[str, ...]) -> Table:
    """The table of a CSV or Markdown file."""
    from tuner.errors import InputError
    from tuner.tables import COLUMNS, Defaults, read_table

    known: dict[str, str] = {}
    for setting in defaults:
        column, sign, value = setting.partition("=")
        if not sign or not value or column not in COLUMNS:
            raise InputError(f"--default {setting!r} is not COLUMN=VALUE with a column of the format, such as gpu.")
        known[column] = value
    return read_table(file, Defaults(cells=known))
