"""The measurement table: published and own runs, one row a run, read from CSV and Markdown, written as CSV."""

from tuner.tables.blocks import RowBlock, blocks
from tuner.tables.reading import format_columns, read_table, table_of
from tuner.tables.row import COLUMNS, Defaults, MeasuredRun, Row, Table, write_csv
from tuner.tables.run import run_of

__all__ = [
    "COLUMNS",
    "Defaults",
    "MeasuredRun",
    "Row",
    "RowBlock",
    "Table",
    "blocks",
    "format_columns",
    "read_table",
    "run_of",
    "table_of",
    "write_csv",
]
