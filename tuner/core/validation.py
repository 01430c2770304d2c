"""One check of field values for all domain types: the right type, positive, not absurd, one of its choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from tuner.core.errors import InputError
from tuner.core.text import either, shown

_LARGEST: Final[Mapping[str, int]] = {
    "nodes": 16_384,
    "gpus_per_node": 128,
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
    "dp": 16_384 * 128,
    "frozen_params": 10**15,
}
"""The largest sizes that are taken for meant: far above any machine, and low enough that no product of them overflows
64 bits. A size without an entry may be up to a million."""

_LARGEST_OTHER: Final = 1_000_000
_LONGEST_TEXT: Final = 200


def check_fields(value: Any, *, may_be_zero: frozenset[str] = frozenset()) -> None:
    """Refuse a field of the dataclass `value` that is of the wrong type, not positive, absurd or not a choice."""
    for name, hint, choices in _hints(value.__class__):
        complaint = _complaint(name, hint, choices, getattr(value, name), least=0 if name in may_be_zero else 1)
        if complaint:
            raise InputError(f"{type(value).__name__.lower()} field {name} must be {complaint}.")


def largest(name: str) -> int:
    """The largest size that is taken for meant where `name` counts."""
    return _LARGEST.get(name, _LARGEST_OTHER)


def check_size(name: str, value: Any) -> None:
    """Refuse a whole number that is too small or too large for what `name` counts; other values pass."""
    if isinstance(value, int) and not isinstance(value, bool):
        complaint = _complaint(name, int, (), value, least=0 if name == "zero" else 1)
        if complaint:
            raise InputError(f"{name} must be {complaint}.")


def _complaint(name: str, hint: Any, choices: tuple[str, ...], given: Any, *, least: int) -> str:
    """What the value should have been, or nothing."""
    if hint is int or hint == int | None:
        if given is None and hint is not int:
            return ""
        if type(given) is not int:
            return f"a whole number, not {shown(given)}"
        most = largest(name)
        return "" if least <= given <= most else f"between {least} and {most:,}, not {shown(given)}"
    if choices:
        return "" if isinstance(given, str) and given in choices else f"{either(choices)}, not {shown(given)}"
    if hint is bool:
        return "" if isinstance(given, bool) else f"true or false, not {shown(given)}"
    if hint is float:
        number = isinstance(given, int | float) and not isinstance(given, bool)
        return "" if number and 0 <= given < 1e30 else f"a number from 0 to 1e30, not {shown(given)}"
    if hint is str:
        plain = isinstance(given, str) and given.isprintable() and 0 < len(given) <= _LONGEST_TEXT
        return "" if plain else f"a text of 1 to {_LONGEST_TEXT} printable characters, not {shown(given)}"
    return ""


@cache
def _hints(kind: type) -> list[tuple[str, Any, tuple[str, ...]]]:
    """Of each field its name, its type, and the words that it may be where it is one of several."""
    hints = get_type_hints(kind)
    arguments = {name: get_args(hint) for name, hint in hints.items()}
    words = {name: all(isinstance(each, str) for each in given) for name, given in arguments.items()}
    return [
        (field.name, hints[field.name], arguments[field.name] if words[field.name] else ()) for field in fields(kind)
    ]
