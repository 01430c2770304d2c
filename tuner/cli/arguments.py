"""Arguments that several commands take: a measurement table, a study, the batch sizes to try."""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.options import FilePath, FolderPath, StorageUrl

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.cli.options import Command
    from tuner.tables import Table


def takes_a_table(command: Command) -> Command:
    """Add the argument TABLE|STUDY and `--default` to a command; it receives the `table`.

    The finished jobs of a study are read as the rows of a table.
    """

    @functools.wraps(command)
    def with_table(**given: Any) -> Any:
        from pathlib import Path

        file, defaults, runs, storage = (given.pop(name) for name in ("file", "defaults", "runs", "storage"))
        stored = storage is not None or (Path(runs) / file / "study.db").is_file()
        if stored and (not Path(file).exists() or Path(file).is_dir()):
            return command(table=_study_table(file, Path(runs), storage), **given)
        if not Path(file).exists() and Path(file).name == file and not Path(file).suffix:
            from tuner.study.warm_start import existing

            existing(file, runs=Path(runs), storage=None, or_table=True)  # raises, with the existing studies
        return command(table=read(file, defaults, period_column=given.get("period")), **given)

    wrapped: Command = stored_at(takes_defaults(with_table))
    return click.argument("file", type=FilePath(), metavar="TABLE|STUDY", shell_complete=completion.studies_or_files)(
        wrapped
    )


def _study_table(name: str, runs: Path, storage: str | None) -> Table:
    from tuner.report.tables import measurements
    from tuner.study.result import open_study
    from tuner.tables import table_of

    return table_of(measurements(open_study(name, runs=runs, storage=storage)), name)


takes_defaults = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Value for a column that the table lacks: gpu=V100-32GB-SXM, gpus_per_node=4. Repeatable.",
)


def read(file: str, defaults: tuple[str, ...], *, period_column: str | None) -> Table:
    """Read the table of a CSV or Markdown file."""
    from tuner.tables import Defaults, read_table

    return read_table(file, Defaults.parse(defaults), period_column=period_column)


def study_command(command: str, name: str) -> str:
    """Return the command line that runs `command` on this study, with the `--runs` and `--storage` in use."""
    from tuner.study.store.storage_url import masked

    given = click.get_current_context().params
    words = ["tuner", command, name]
    if given.get("runs") not in (None, "runs"):
        words += ["--runs", given["runs"]]
    if given.get("storage"):
        words += ["--storage", masked(given["storage"])]
    return shlex.join(words)


def takes_a_study(command: Command) -> Command:
    """Add the argument STUDY, `--runs` and `--storage` to a command; it receives the `study`, by default the latest."""

    @functools.wraps(command)
    def with_study(**given: Any) -> Any:
        from pathlib import Path

        from tuner.study.result import open_study

        name, runs, storage = given.pop("name"), Path(given.pop("runs")), given.pop("storage")
        name = latest_study(runs, storage) if name is None else name
        return command(study=open_study(name, runs=runs, storage=storage), **given)

    wrapped: Command = stored_at(with_study)
    return click.argument("name", metavar="[STUDY]", required=False, shell_complete=completion.studies)(wrapped)


def latest_study(runs: Path, storage: str | None) -> str:
    """Return the name of the study in `runs` that changed last."""
    from tuner.core.errors import InputError
    from tuner.study.store.folders import study_files

    if storage is not None:
        raise InputError("--storage may hold several studies; name the STUDY.")
    files = (path for file in study_files(runs) for path in sorted(file.parent.glob("study.db*")))
    changed = {path.parent.name: path.stat().st_mtime for path in files}
    if not changed:
        raise InputError(f"there is no study in {runs}; start one with 'tuner optimize', or pass --runs DIR.")
    return max(changed, key=lambda name: changed[name])


def stored_at(command: Command) -> Command:
    """Add `--runs` and `--storage`, which locate studies, to a command."""
    storage = click.option(
        "--storage",
        type=StorageUrl(),
        metavar="URL",
        help="Optuna storage of the study. [default: a SQLite file in its folder]",
    )
    runs = click.option(
        "--runs", type=FolderPath(), default="runs", metavar="DIR", help="Folder of the studies. [default: runs]"
    )
    return runs(storage(command))


margin_option = click.option(
    "--margin",
    type=click.FloatRange(0, 0.9),
    metavar="FRACTION",
    default=0.10,
    show_default=True,
    help="Share of memory that the safe batch leaves free.",
)
stack_option = click.option(
    "--stack",
    type=click.Choice(["fsdp", "megatron"]),
    help="Layer implementation to estimate. [default: from --framework; without it, fsdp with ZeRO-3, else megatron]",
)
