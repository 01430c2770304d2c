"""Numbers and switches in the cells of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import shown

_MAY_BE_ZERO: Final = frozenset(
    {"zero", "kv_heads", "ffn", "head_dim", "experts", "top_k", "moe_ffn", "shared_ffn", "dense_layers", "mtp"}
)


def number_in(cells: Mapping[str, str], column: str) -> float:
    """Return a positive number of a size that can be computed with; raise `InputError` with the column otherwise."""
    try:
        number = float(cells[column])
    except ValueError:
        number = -1.0
    if not 1e-12 <= number < 1e15:
        raise InputError(f"{column} must be a positive number from 1e-12 to 1e15, not {shown(cells[column])}.")
    return number


def whole(cells: Mapping[str, str], column: str, default: int | None = None) -> int:
    """Return a whole number; raise `InputError` with the column for anything else, or if it is missing."""
    if column not in cells:
        if default is not None:
            return default
        raise InputError(f"{column} is missing; add a column, or pass --default {column}=VALUE.")
    try:
        number = float(cells[column])
    except ValueError:
        number = -1.0
    least = 0 if column in _MAY_BE_ZERO else 1
    if not least <= number < 1e15 or number != int(number):
        raise InputError(f"{column} must be a whole number of at least {least}, not {shown(cells[column])}.")
    return int(number)


def flag(cells: Mapping[str, str], column: str) -> bool:
    """Return a switch; raise `InputError` with the column for anything else."""
    word = cells[column].lower()
    if word not in ("0", "1", "true", "false", "yes", "no", "on", "off", "0.0", "1.0"):
        raise InputError(f"{column} must be 0 or 1, not {shown(cells[column])}.")
    return word in ("1", "true", "yes", "on", "1.0")
