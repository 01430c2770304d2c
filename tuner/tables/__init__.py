"""The measurement table: published and own runs, one row a run, read from CSV and Markdown, written as CSV."""

from tuner.tables.blocks import Block, blocks
from tuner.tables.reading import read_table
from tuner.tables.row import COLUMNS, Defaults, Row, Table
from tuner.tables.writing import write_csv

__all__ = ["COLUMNS", "Block", "Defaults", "Row", "Table", "blocks", "read_table", "write_csv"]
