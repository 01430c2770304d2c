"""Entries of a catalog: checks of their tables, and the model that one describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, Final, get_args

from tuner.core.errors import InputError, UnknownName
from tuner.core.model import PARTS, Activation, Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.text import either, shown

Table = dict[str, Any]

_NOT_FIELDS: Final = frozenset({"source", "parameters", "note", "attention", "precision", "framework", "aliases"})
"""Keys that an entry may have beside its fields: source, published size, note, other names, and how the model was
trained."""
_GATED: Final[Mapping[str, Activation]] = {"swiglu": "silu", "geglu": "gelu_tanh", "reglu": "relu"}
"""Names of an activation together with its gate."""


def model_entry(name: str, table: Table, *, origin: str) -> Model:
    """Return the model that an entry describes."""
    where = f"{origin}: model {name!r}"
    known = {f.name: f for f in fields(Model)}
    only_known(table, set(known), where)
    for key, model_field in known.items():
        if model_field.default is MISSING:
            need(table, key, where)
    given = {"name": name, **{key: value for key, value in table.items() if key in known}}
    if "activation" in given:
        activation, names = given["activation"], (*get_args(Activation), *_GATED)
        if activation not in names:
            raise InputError(f"{where}: activation must be {either(names)}, not {shown(activation)}.")
        if activation in _GATED:
            given.update(gated_mlp=True, activation=_GATED[activation])
    if "rotary_scaling" in given:
        given["rotary_scaling"] = _rotary_scaling(given["rotary_scaling"], f"{where}: rotary_scaling")
    for key, part in PARTS.items():
        if key in given:
            given[key] = _part(part, given[key], f"{where}: {key}")
    if "not_understood" in given:
        texts(given["not_understood"], f"{where}: not_understood")
    with naming(where):
        return Model(**given)


def _part(kind: type[Any], table: Any, where: str) -> Any:
    if not isinstance(table, dict | None):
        needed = ", ".join(f"{field.name} = 8" for field in fields(kind) if field.default is MISSING)
        raise InputError(f"{where} must be a table such as {{ {needed} }}, not {shown(table)}.")
    if table is None:
        return None
    for known in fields(kind):
        if known.default is MISSING:
            need(table, known.name, where)
    only_known(table, {known.name for known in fields(kind)}, where)
    with naming(where):
        return kind(**table)


def _rotary_scaling(table: Any, where: str) -> RotaryScaling | None:
    if not isinstance(table, dict | None):
        raise InputError(f'{where} must be a table such as {{ kind = "llama3", factor = 8.0 }}, not {shown(table)}.')
    if not table:
        return None
    need(table, "kind", where)
    only_known(table, {scaling.name for scaling in fields(RotaryScaling)}, where)
    factors = {key: tuple(table[key]) for key in ("short_factors", "long_factors") if isinstance(table.get(key), list)}
    return RotaryScaling(**{**table, **factors})


def need(table: Table, key: str, where: str) -> Any:
    """Return a field of an entry. Raise `InputError` if it is missing."""
    if key not in table:
        raise InputError(f"{where} lacks its field {key}.")
    return table[key]


def texts(value: Any, label: str) -> None:
    """Raise `InputError` unless the value is a list of texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(f"{label} must be a list of strings, not {shown(value)}.")


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name the entry or file in the error of a value that its type refuses."""
    try:
        yield
    except InputError as error:
        if not str(error).startswith((f"{where}:", f"{where} ")):
            error.args = (f"{where}: {error}",)
        raise


def only_known(table: Table, known: set[str], where: str) -> None:
    """Raise `UnknownName` for a field that an entry cannot have."""
    unknown = [key for key in table if key not in known | _NOT_FIELDS]
    if unknown:
        raise UnknownName("field", unknown[0], known, owner=where)
