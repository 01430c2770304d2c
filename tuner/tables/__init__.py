"""The measurement table: one row per run, read from CSV or Markdown, written as CSV."""

from tuner.tables.described_model import expert_cells, model_cells
from tuner.tables.reading import format_columns, read_table, table_of
from tuner.tables.row import COLUMNS, OPTIONAL_COLUMNS, Defaults, MeasuredRun, Row, RowBlock, Table, blocks, write_csv
from tuner.tables.run import run_of

__all__ = [
    "COLUMNS",
    "OPTIONAL_COLUMNS",
    "Defaults",
    "MeasuredRun",
    "Row",
    "RowBlock",
    "Table",
    "blocks",
    "expert_cells",
    "format_columns",
    "model_cells",
    "read_table",
    "run_of",
    "table_of",
    "write_csv",
]
