"""Counts are read as people write them, and printed with three digits and a unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.errors import InputError
from tuner.core.quantity import format_count, parse_count


@pytest.mark.parametrize(
    ("text", "count"),
    [("1T", 1e12), ("366B", 366e9), ("3.6e12", 3.6e12), ("20g", 20e9), ("1,500M", 1.5e9), (".5K", 500), (2048, 2048)],
)
def test_a_count_has_a_unit_or_none(text: str | float, count: float) -> None:
    assert parse_count(text) == pytest.approx(count)


@pytest.mark.parametrize("text", ["", "0", "-1", "B", "1X", "1 2", "nan", "inf", "1e99", "1e30", "tokens"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"tokens must be a positive number below 1e\+30"):
        parse_count(text)


@given(st.floats(1, 1e15))
def test_what_is_printed_reads_back_to_three_digits(count: float) -> None:
    assert parse_count(format_count(count)) == pytest.approx(count, rel=0.0051)
