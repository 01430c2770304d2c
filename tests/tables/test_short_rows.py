"""Rows with fewer cells than columns."""

from __future__ import annotations

import pytest

from tuner.core.errors import InputError
from tuner.tables import table_of


def test_a_row_may_leave_its_last_cells_out() -> None:
    (row, last) = table_of("tp,pp,mbs,sec_per_iter,note\n1,2,3,4.5\n1,2,3,4.5,as usual", "t.csv").rows
    assert row.cells.get("note", "") == ""
    assert [one.cells["sec_per_iter"] for one in (row, last)] == ["4.5", "4.5"]


def test_a_last_row_that_was_cut_off_is_no_row() -> None:
    """A value that lost its last digits would be read as another one."""
    with pytest.raises(
        InputError, match="line 3: the file seems to be cut off: 4 cells under 5 columns, and no line end"
    ):
        table_of("tp,pp,mbs,sec_per_iter,note\n1,2,3,14.5,a\n1,2,3,1", "t.csv")
