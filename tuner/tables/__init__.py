"""The measurement table: one row per run, read from CSV or Markdown, written as CSV."""

from tuner.tables.notices import STUDY_COLUMNS, assumptions, unused_columns
from tuner.tables.reading import format_columns, read_table, table_of
from tuner.tables.row import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    Defaults,
    MeasuredRun,
    Row,
    RowBlock,
    Table,
    blocks,
    columns_of,
    write_csv,
)
from tuner.tables.run import run_of
from tuner.tables.writing import run_cells

__all__ = [
    "COLUMNS",
    "OPTIONAL_COLUMNS",
    "STUDY_COLUMNS",
    "Defaults",
    "MeasuredRun",
    "Row",
    "RowBlock",
    "Table",
    "assumptions",
    "blocks",
    "columns_of",
    "format_columns",
    "read_table",
    "run_cells",
    "run_of",
    "table_of",
    "unused_columns",
    "write_csv",
]
