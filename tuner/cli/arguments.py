"""How commands take a measurement table: the file, and what it leaves out.

How commands take a study that is there.
"""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.cli.options import Command
    from tuner.tables import Table
if TYPE_CHECKING:
    from tuner.cli.options import Command


def takes_a_table(command: Command) -> Command:
    """Give a command the argument TABLE and `--default`; it is called with the `table` that they make.

    The name of a study does too: its jobs that have ended are the rows.
    """

    @functools.wraps(command)
    def with_table(**given: Any) -> Any:
        from pathlib import Path

        file, defaults, runs, storage = (given.pop(name) for name in ("file", "defaults", "runs", "storage"))
        if not Path(file).exists() and (storage or (Path(runs) / file / "study.db").is_file()):
            return command(table=_of_study(file, Path(runs), storage), **given)
        return command(table=read(file, defaults), **given)

    wrapped: Command = kept_at(takes_defaults(with_table))
    return click.argument("file", metavar="TABLE|STUDY")(wrapped)


def _of_study(name: str, runs: Path, storage: str | None) -> Table:
    from tuner.report.tables import measurements
    from tuner.study.result import reopened
    from tuner.tables import table_of

    return table_of(measurements(reopened(name, runs=runs, storage=storage)), name)


takes_defaults = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What the table leaves out and you know: gpu=V100-32GB-SXM, gpus_per_node=4.",
)


def read(file: str, defaults: tuple[str, ...]) -> Table:
    """The table of a CSV or Markdown file."""
    from tuner.core.errors import InputError
    from tuner.tables import COLUMNS, Defaults, read_table

    known: dict[str, str] = {}
    for setting in defaults:
        column, sign, value = setting.partition("=")
        if not sign or not value or column not in COLUMNS:
            raise InputError(f"--default {setting!r} is not COLUMN=VALUE with a column of the format, such as gpu.")
        known[column] = value
    return read_table(file, Defaults(cells=known))


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
