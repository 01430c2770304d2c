"""Field validation for all domain types: type, range and choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

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


def check_fields(value: Any, *, may_be_zero: frozenset[str] = frozenset()) -> None:
    """Raise `InputError` if a field of the dataclass `value` has a wrong type, is out of range or is not a choice."""
    for name, hint, choices in _hints(value.__class__):
        complaint = _complaint(name, hint, choices, getattr(value, name), minimum=0 if name in may_be_zero else 1)
        if complaint:
            owner = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(value).__name__).lower()
            raise InputError(f"{owner} field {name} must be {complaint}.")


def plain(value: Any) -> Any:
    """Return a number of NumPy as Python's, any other value as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def largest(name: str) -> int:
    """Return the largest plausible size of the field `name`."""
    return _LARGEST.get(name, _LARGEST_OTHER)


def check_size(name: str, value: Any) -> None:
    """Raise `InputError` if an integer is out of range for the field `name`; ignore other values."""
    if isinstance(value, int) and not isinstance(value, bool):
        complaint = _complaint(name, int, (), value, minimum=0 if name == "zero" else 1)
        if complaint:
            raise InputError(f"{name} must be {complaint}.")


def _complaint(name: str, hint: Any, choices: tuple[str, ...], value: Any, *, minimum: int) -> str:
    """Return a description of the valid values, or an empty string if the value is valid."""
    if hint is int or hint == int | None:
        if value is None and hint is not int:
            return ""
        if type(value) is not int:
            return f"a whole number, not {shown(value)}"
        maximum = largest(name)
        return "" if minimum <= value <= maximum else f"between {minimum} and {maximum:,}, not {shown(value)}"
    if choices:
        if value is None and NoneType in get_args(hint):
            return ""
        return "" if isinstance(value, str) and value in choices else f"{either(choices)}, not {shown(value)}"
    if hint == bool | None and value is None:
        return ""
    if hint is bool or hint == bool | None:
        return "" if isinstance(value, bool) else f"true or false, not {shown(value)}"
    if hint == float | None and value is None:
        return ""
    if hint is float or hint == float | None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least, most = _RANGES.get(name, _ANY)
        valid = number and least <= value <= most and value < _ANY[1]
        return "" if valid else f"a number from {least:g} to {most:g}, not {shown(value)}".replace("e+", "e")
    if hint is str:
        plain = isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST_TEXT
        return "" if plain else f"a string of 1 to {_LONGEST_TEXT} printable characters, not {shown(value)}"
    return ""


@cache
def _hints(owner: type) -> list[tuple[str, Any, tuple[str, ...]]]:
    """Return the name, type and string choices (if it is a `Literal`) of each field."""
    hints = get_type_hints(owner)
    return [(field.name, hints[field.name], _choices(hints[field.name])) for field in fields(owner)]


def _choices(hint: Any) -> tuple[str, ...]:
    """Return the strings of a `Literal`, also of one that may be None."""
    arguments = get_args(hint)
    if len(arguments) == 2 and arguments[1] is NoneType:
        arguments = get_args(arguments[0])
    return arguments if all(isinstance(word, str) for word in arguments) else ()
