"""Progress of longer operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Draw the progress and the remaining time if stderr is a terminal; otherwise do nothing.

    It gives a function that takes how many parts are done, of how many.
    """
    if not sys.stderr.isatty():
        yield _unheard
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(what, total=None)

        def advance(done: int, of: int) -> None:
            drawn.update(task, completed=done, total=of)

        yield advance


def _unheard(_done: int, _of: int) -> None:
    """Do nothing."""
