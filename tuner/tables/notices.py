"""What a table states that is not understood, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.tables.headers import header_of
from tuner.tables.row import Table


def notices(table: Table) -> Iterator[str]:
    """Yield what of a table is not used and why."""
    for column in table.columns:
        if refused := header_of(column).refused:
            yield f"{refused}."
