"""Durations, counts and lists as text, at the values where their words change."""

from __future__ import annotations

import pytest

from tuner.core.text import (
    between,
    column,
    counted,
    decimals_of_terms,
    either,
    ends,
    four_digits,
    interval,
    listed,
    node_time,
    seconds,
    shown,
    span,
    token_count,
)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (1.0, "1.0 days"),
        (0.99, "23.8 hours"),
        (1 / 24, "1.0 hours"),
        (0.5 / 24, "30.0 minutes"),
        (1 / 2880, "30.0 seconds"),
        (0.5 / 86400, "0.5 seconds"),
        (1234.56, "1,234.6 days"),
    ],
)
def test_a_span_is_in_the_largest_unit_of_which_there_is_one(days: float, text: str) -> None:
    assert span(days) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (69.456, 93.1, "69.46 to 93.10"),
        (9.876, 12.345, "9.88 to 12.35"),
        (93.68, 124.99, "93.7 to 125.0"),
        (0.12344, 0.5, "0.1234 to 0.5000"),
        (9_876.4, 12_345.6, "9,876 to 12,346"),
        (0.0, 0.0, "0.000 to 0.000"),
    ],
)
def test_both_ends_of_an_interval_have_the_same_decimals(low: float, high: float, text: str) -> None:
    """As many as give the upper end four digits; `decimals` fixes their number."""
    assert interval(low, high) == text
    assert interval(1234.56, 2000, decimals=1) == "1,234.6 to 2,000.0"


def test_intervals_are_in_the_unit_of_their_middle() -> None:
    assert between(2.0, 0.5, 3.0) == "2.0 days (0.5 to 3.0)"
    assert ends(0.5, 0.25, 2.0) == "6.0 to 48.0 hours"
    assert column([0.5, 9.0]) == ("Hours", 24.0)
    assert column([]) == ("Days", 1.0)


@pytest.mark.parametrize(
    ("hours", "text"),
    [(48.0, "48.0 node-hours"), (1.0, "1.0 node-hours"), (0.5, "30.0 node-minutes"), (0.0, "0.0 node-hours")],
)
def test_node_time_is_in_hours_or_less(hours: float, text: str) -> None:
    assert node_time(hours) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (1e12, "1 trillion"),
        (9.996e11, "1 trillion"),
        (9.99e11, "999 billion"),
        (1e6, "1 million"),
        (999_000.0, "999,000"),
    ],
)
def test_tokens_are_counted_in_thousands_of_thousands(tokens: float, text: str) -> None:
    assert token_count(tokens) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.00"), (0.99996, "1.0000"), (0.12345, "0.1235"), (69.284, "69.28")]
)
def test_seconds_below_one_have_four_decimals(value: float, text: str) -> None:
    assert seconds(value) == text


def test_lists_are_joined_and_cut_off() -> None:
    assert [listed(range(count)) for count in range(4)] == ["", "0", "0 and 1", "0, 1 and 2"]
    assert listed(range(5), limit=5) == "0, 1, 2, 3 and 4"
    assert listed(range(5), limit=3) == "0, 1, 2 and 2 more"
    assert either(["a", "b"]) == "a or b"
    for enumerated in (listed, either):
        assert enumerated(range(16)).endswith(" 15")
        assert enumerated(range(17)) == f"{', '.join(map(str, range(16)))} and 1 more"
    assert either(range(3), limit=2) == "0, 1 and 1 more"
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert [counted(number, "topology") for number in (1, 14538)] == ["1 topology", "14,538 topologies"]
    assert counted(2, "day") == "2 days"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**40 - 1, f"{10**40 - 1:,}"),
        (10**40, "a number of more than 40 digits"),
        (-(10**60), "a number of more than 40 digits"),
        ([1, 2], "a list of 2"),
        ("x" * 78, repr("x" * 78)),
        ("x" * 79, "'" + "x" * 76 + "..."),
        (True, "True"),
    ],
)
def test_any_value_fits_into_a_sentence(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(60.9, "60.90"), (110.4, "110.4"), (1234.4, "1,234"), (12345.0, "12,345"), (0.5, "0.5000"), (0.036421, "0.03642")],
)
def test_four_digits_include_zeros(value: float, text: str) -> None:
    assert four_digits(value) == text


@pytest.mark.parametrize(("total", "decimals"), [(1757.0, 2), (110.4, 2), (9.5, 3), (0.0536, 5), (0.0, 3)])
def test_terms_have_the_decimals_of_their_total(total: float, decimals: int) -> None:
    assert decimals_of_terms(total) == decimals
