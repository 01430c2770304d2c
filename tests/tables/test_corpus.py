"""The published tables: `corpus/README.md` states what each file holds and how much of it is read."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.tables import COLUMNS, OPTIONAL_COLUMNS, Row, Table, table_of, unused_columns

CORPUS = ROOT / "corpus"
FILES = sorted(CORPUS.rglob("*.csv"))
MODERN = ("rows", "read", "timed", "memory", "OOM", "MoE", "FP8/FP4")
LISTED = {
    found[1]: [int(cell) for cell in re.findall(r"\d+(?= \|)", found[2])]
    for found in re.finditer(r"^\| `([\w./-]+\.csv)` \|((?: \d+ \|)+)", (CORPUS / "README.md").read_text(), re.M)
}


def _table(path: Path) -> Table:
    return table_of(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return path.relative_to(CORPUS).as_posix()


def has_experts(row: Row) -> bool:
    return row.cells.get("experts", "") not in ("", "0")


def is_eight_bit(row: Row) -> bool:
    stated = row.cells.get("precision_recipe", ""), row.cells.get("precision", "")
    return any(name.startswith(("fp8", "fp4", "mxfp8", "nvfp4")) for name in stated)


def test_all_columns_are_read_except_those_of_single_layers() -> None:
    unused = {name_of(path): unused_columns(_table(path)) for path in FILES}
    assert {name for name, columns in unused.items() if columns} == {"modern/moe-layer-h100.csv"}


def test_the_readme_lists_every_table() -> None:
    assert sorted(LISTED) == sorted(map(name_of, FILES))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_table_holds_the_rows_that_the_readme_counts(path: Path) -> None:
    rows = _table(path).rows
    read = [row for row in rows if row.run is not None]
    counts = [
        len(rows),
        len(read),
        sum(row.timed for row in read),
        sum(row.weighed for row in read),
        sum(row.status == "OOM" for row in read),
        sum(map(has_experts, rows)),
        sum(map(is_eight_bit, rows)),
    ]
    listed = LISTED[name_of(path)]
    assert dict(zip(MODERN, counts, strict=False)) == dict(zip(MODERN, listed + [0] * (7 - len(listed)), strict=True))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_row_cites_its_source(path: Path) -> None:
    assert all(row.cells.get("source") for row in _table(path).rows)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.csv")), ids=name_of)
def test_a_table_of_the_first_edition_has_the_columns_of_the_format_in_order(path: Path) -> None:
    """Optional columns, such as the framework, may follow."""
    with path.open(encoding="utf-8", newline="") as lines:
        columns = tuple(next(csv.reader(lines)))
    assert columns[: len(COLUMNS)] == COLUMNS
    assert set(columns[len(COLUMNS) :]) <= set(OPTIONAL_COLUMNS)


@pytest.mark.parametrize("name", ["bloom-a100", "e1-400m-ada", "enoki-h100", "megatron-2021-a100", "tr8-104b-v100"])
def test_the_earlier_path_of_a_table_still_leads_to_it(name: str) -> None:
    """Published commands name tests/data/tables, where these tables used to be."""
    assert (ROOT / f"tests/data/tables/{name}.csv").resolve() == CORPUS / f"{name}.csv"
