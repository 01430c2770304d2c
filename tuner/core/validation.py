"""Field validation for all domain types: type, range and choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from tuner.core.errors import InputError
from tuner.core.text import either, shown

_LARGEST: Final[Mapping[str, int]] = {
    "nodes": 16_384,
    "gpus_per_node": 128,
    "nvlink_domain": 16_384,
    "layers": 10_000,
    "heads": 65_536,
    "kv_heads": 65_536,
    "head_size": 65_536,
    "ffn": 10_000_000,
    "vocab": 100_000_000,
    "seq": 100_000_000,
    "max_positions": 100_000_000,
    "global_batch": 100_000_000,
    "zero": 3,
    "dp": 16_384 * 128,
    "frozen_params": 10**15,
}
"""The largest plausible sizes: far above any machine, and low enough that no product of them overflows 64 bits.
A size without an entry may be up to a million."""

_LARGEST_OTHER: Final = 1_000_000

_ANY: Final = (0.0, 1e30)
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "embedding_dropout"), (0.0, 1.0)),
    "rotary_base": (1.0, _ANY[1]),
    "factor": (1e-6, _ANY[1]),
    "rotary_fraction": (1e-6, 1.0),
}
"""Ranges of numbers; a number without an entry has the range `_ANY`, whose end is excluded."""
_LONGEST_TEXT: Final = 200


class _Field(NamedTuple):
    """What is valid of a field."""

    name: str
    kind: Any
    """Its type, without None."""
    optional: bool = False
    choices: tuple[str, ...] = ()
    """The strings of its `Literal`."""


def check_fields(value: Any, *, may_be_zero: frozenset[str] = frozenset()) -> None:
    """Raise `InputError` if a field of the dataclass `value` has a wrong type, is out of range or is not a choice."""
    for field in _fields(value.__class__):
        complaint = _complaint(field, getattr(value, field.name), minimum=0 if field.name in may_be_zero else 1)
        if complaint:
            owner = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(value).__name__).lower()
            raise InputError(f"{owner} field {field.name} must be {complaint}.")


def plain(value: Any) -> Any:
    """Return a number of NumPy as Python's, any other value as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def largest(name: str) -> int:
    """Return the largest plausible size of the field `name`."""
    return _LARGEST.get(name, _LARGEST_OTHER)


def check_size(name: str, value: Any) -> None:
    """Raise `InputError` if an integer is out of range for the field `name`; ignore other values."""
    if isinstance(value, int) and not isinstance(value, bool):
        complaint = _complaint(_Field(name, int), value, minimum=0 if name == "zero" else 1)
        if complaint:
            raise InputError(f"{name} must be {complaint}.")


def _complaint(field: _Field, value: Any, *, minimum: int) -> str:
    """Return a description of the valid values, or an empty string if the value is valid."""
    kind = field.kind
    if value is None and field.optional:
        return ""
    if kind is int:
        if type(value) is not int:
            return f"a whole number, not {shown(value)}"
        maximum = largest(field.name)
        return "" if minimum <= value <= maximum else f"between {minimum} and {maximum:,}, not {shown(value)}"
    if field.choices:
        valid = isinstance(value, str) and value in field.choices
        return "" if valid else f"{either(field.choices)}, not {shown(value)}"
    if kind is bool:
        return "" if isinstance(value, bool) else f"true or false, not {shown(value)}"
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least, most = _RANGES.get(field.name, _ANY)
        valid = number and least <= value <= most and value < _ANY[1]
        return "" if valid else f"a number from {least:g} to {most:g}, not {shown(value)}".replace("e+", "e")
    if kind is str:
        plain = isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST_TEXT
        return "" if plain else f"a string of 1 to {_LONGEST_TEXT} printable characters, not {shown(value)}"
    return ""


@cache
def _fields(owner: type) -> list[_Field]:
    hints = get_type_hints(owner)
    return [_field(field.name, hints[field.name]) for field in fields(owner)]


def _field(name: str, hint: Any) -> _Field:
    parts = get_args(hint)
    optional = len(parts) == 2 and parts[1] is NoneType
    kind = parts[0] if optional else hint
    words = get_args(kind)
    return _Field(name, kind, optional, words if all(isinstance(word, str) for word in words) else ())
