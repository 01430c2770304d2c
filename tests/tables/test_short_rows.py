"""Rows with fewer cells than columns, and figures that follow from others."""

from __future__ import annotations

import pytest

from tests.tables.test_tables import only
from tuner.audit.printed_row import text_of
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


STATED = {"layers": "4", "hidden": "1024", "nodes": "2", "gpus_per_node": "8", "mbs": "1"}


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "2048"}, 64 * 4096 / (16 * 2048)),
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "2,048"}, 64 * 4096 / (16 * 2048)),
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "2048", "sec_per_iter": "7.5"}, 7.5),
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "2048", "audit": "exclude sec_per_iter: x"}, None),
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "about 2k"}, None),
        ({"gbs": "64", "seq": "4096", "tokens_per_sec_gpu": "0"}, None),
        ({"gbs": "64", "tokens_per_sec_gpu": "2048"}, None),
        ({"seq": "4096", "tokens_per_sec_gpu": "2048"}, None),
    ],
)
def test_seconds_follow_from_tokens_per_second_of_a_stated_batch(cells: dict[str, str], seconds: float | None) -> None:
    given = {**STATED, **cells}
    quoted = [f'"{value}"' for value in given.values()]
    row = only(f"{','.join(given)}\n{','.join(quoted)}\n")
    assert row.seconds == (None if seconds is None else pytest.approx(seconds))
    assert text_of(row, "sec_per_iter") == ("nothing" if seconds is None else f"{seconds:g}")


def test_a_rate_that_is_no_number_is_an_error_of_its_row() -> None:
    row = only("layers,hidden,nodes,gpus_per_node,mbs,gbs,seq,tokens_per_sec_gpu\n4,1024,2,8,1,64,4096,11k\n")
    assert row.skipped is not None
    assert row.skipped.startswith("tokens_per_sec_gpu must be a positive number")
