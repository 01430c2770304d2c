"""What stands around the tables of a report and holds for their rows, and marks in their cells."""

from __future__ import annotations

import pytest

from tuner.tables import table_of
from tuner.tables.column_aliases import plain


def test_degrees_that_stand_alone_above_a_table_hold_for_its_rows() -> None:
    """Those in a sentence do not, nor do they hold under the next heading."""
    text = (
        "NHIDDEN=1024 / NLAYERS=8\n\nTP=4 NHEADS=32\n\nwith PP=2 it is slow\n\n"
        "| DP | Sec/it |\n|--|--|\n| 8 | 1.5 |\n\n# Another\n\n| DP | Sec/it |\n|--|--|\n| 8 | 2.5 |\n"
    )
    rows = table_of(text, "r.md").rows
    assert [(row.cells.get("tp"), row.cells.get("pp"), row.cells.get("heads")) for row in rows] == [
        ("4", None, "32"),
        (None, None, "32"),
    ]


@pytest.mark.parametrize(("size", "layers"), [("152M", "8"), ("101M", "8"), ("126M", "10"), ("60M", "8")])
def test_layers_are_kept_where_they_make_the_size_with_or_without_the_embedding(size: str, layers: str) -> None:
    """12 h^2 = 12.6M a layer and 51.2M in the embedding; 126M are ten layers; no number of them makes 60M."""
    text = f"NHIDDEN=1024 / NLAYERS=8 / VOCAB=50000\n\n| Size | TP | Sec/it |\n|--|--|--|\n| {size} | 8 | 1.5 |\n"
    (row,) = table_of(text, "r.md").rows
    assert row.cells["layers"] == layers


def test_heads_and_mlp_width_hold_only_for_the_shape_that_they_were_stated_with() -> None:
    row = "\n\n| TP | Sec/it |\n|--|--|\n| 8 | 1.5 |\n\n"
    stated = ("NHIDDEN=1024 / NLAYERS=8 / NHEADS=16 / FFN=5000", "NHIDDEN=1024 / NLAYERS=9", "NHIDDEN=2048 / NLAYERS=8")
    rows = table_of("".join(f"{shape}{row}" for shape in stated), "r.md").rows
    assert [(one.cells["layers"], one.cells.get("heads"), one.cells.get("ffn")) for one in rows] == [
        ("8", "16", "5000"),
        ("9", "16", "5000"),
        ("8", None, None),
    ]


@pytest.mark.parametrize(
    ("above", "header", "cells", "group"),
    [
        ("", "TP", "8", "report"),
        ("# First", "TP", "8", "First"),
        ("# First\n\n## Second", "TP", "8", "Second"),
        ("", "TP | Hidden | Layers", "8 | 1024 | 16", "1024x16"),
        ("# First", "TP | Hidden | Layers", "8 | 1024 | 16", "First, 1024x16"),
        ("# First", "TP | Hidden", "8 | 1024", "First"),
        ("# First", "TP | Layers", "8 | 16", "First"),
        ("# First\n\nNHIDDEN=1024 / NLAYERS=16", "TP", "8", "First, 1024x16"),
    ],
)
def test_rows_are_grouped_by_heading_and_shape(above: str, header: str, cells: str, group: str) -> None:
    text = f"{above}\n\n| {header} | Sec/it |\n|--|--|--|--|\n| {cells} | 1.5 |\n"
    (row,) = table_of(text, "r.md").rows
    assert row.group == group


@pytest.mark.parametrize(
    ("printed", "read"), [("1,985.50", "1985.50"), ("1,234,567", "1234567"), ("1,985", "1,985"), ("0,985.5", "0,985.5")]
)
def test_commas_are_dropped_where_they_can_only_separate_thousands(printed: str, read: str) -> None:
    assert plain("tflops", printed) == read


@pytest.mark.parametrize("mark", ["**", "*", "***", "_", "__", "`"])
def test_marks_of_emphasis_are_no_part_of_a_markdown_cell(mark: str) -> None:
    """Reports print the fastest row in bold; a figure that is struck out is withdrawn and not read."""
    printed = f"| {mark}TP{mark} | layers | hidden | Sec/it | Note |\n|--|--|--|--|--|\n"
    (row,) = table_of(f"{printed}| {mark}2{mark} | 4 | 1024 | {mark} 0.3 s{mark} | 2 * 3 |\n", "one.md").rows
    assert row.run is not None
    assert (row.seconds, row.run.topology.tp, row.cells["note"]) == (0.3, 2, "2 * 3")
    (row,) = table_of(f"{printed}| 2 | 4 | 1024 | {mark}0.3{mark} s | |\n", "one.md").rows
    assert row.seconds == 0.3
    (row,) = table_of(f"{printed}| 2 | 4 | 1024 | ~~0.3~~ | |\n", "one.md").rows
    assert row.seconds is None
