"""A measurement table as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """The rows as CSV text, every cell as it is given; what a row lacks stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return text.getvalue()
