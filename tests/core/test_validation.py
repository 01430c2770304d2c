"""Which values a field may have: both ends of every range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tuner.core.errors import InputError
from tuner.core.validation import check_fields, check_size, largest

LARGEST = {
    "nodes": 16_384,
    "gpus_per_node": 128,
    "nvlink_domain": 16_384,
    "layers": 10_000,
    "hidden": 1_000_000,
    "heads": 65_536,
    "kv_heads": 65_536,
    "head_size": 65_536,
    "ffn": 10_000_000,
    "vocab": 100_000_000,
    "seq": 100_000_000,
    "max_positions": 100_000_000,
    "embedding_size": 1_000_000,
    "vocab_multiple": 1_000_000,
    "global_batch": 100_000_000,
    "micro_batch": 1_000_000,
    "zero": 3,
    "dp": 2_097_152,
    "frozen_params": 1_000_000_000_000_000,
    "tp": 1_000_000,
}


@pytest.mark.parametrize("name", LARGEST)
def test_a_size_is_between_one_and_the_largest_plausible_one(name: str) -> None:
    """ZeRO begins with stage 0. No product of two sizes overflows 64 bits."""
    assert largest(name) == LARGEST[name]
    least = 0 if name == "zero" else 1
    for value in (least, LARGEST[name]):
        check_size(name, value)
    for value in (least - 1, LARGEST[name] + 1):
        with pytest.raises(InputError, match=f"{name} must be between {least} and {LARGEST[name]:,}, not {value:,}"):
            check_size(name, value)
    for other in (None, True, "8", 1.5):
        check_size(name, other)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A field of each kind."""

    count: int = 1
    perhaps: int | None = None
    share: float = 0.0
    figure: float | None = None
    rotary_fraction: float = 1.0
    on: bool = False
    maybe: bool | None = None
    word: Literal["a", "b"] = "a"
    other: Literal["a", "b"] | None = None
    name: str = "x"


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("count", [1, 1_000_000], [0, 1_000_001, None, 1.0, True]),
        ("perhaps", [1, None], [0, 1_000_001, 1.0, False]),
        ("share", [0, 0.0, 9.9e29], [-1e-9, 1e30, float("nan"), None, True, "1"]),
        ("rotary_fraction", [0.25, 1], [0, 1.5, -0.5, None]),
        ("figure", [0.0, None], [-1.0, 1e30, "1"]),
        ("on", [True, False], [None, 0, 1]),
        ("maybe", [True, None], [0, 1]),
        ("word", ["a", "b"], ["c", None, 1]),
        ("other", ["b", None], ["c", 1]),
        ("name", ["x", "y" * 200], ["", "y" * 201, "a\nb", None, 1]),
    ],
)
def test_a_field_has_the_type_the_range_and_the_choices_that_it_declares(
    field: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        check_fields(Example(**{field: value}))
    for value in bad:
        with pytest.raises(InputError, match=f"^example field {field} must be "):
            check_fields(Example(**{field: value}))


def test_zero_is_allowed_where_the_type_says_so() -> None:
    check_fields(Example(count=0), may_be_zero=frozenset({"count"}))
    with pytest.raises(InputError):
        check_fields(Example(count=-1), may_be_zero=frozenset({"count"}))
