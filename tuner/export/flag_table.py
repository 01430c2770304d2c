"""Recorded flags of a trainer: those that its argument parser accepts, with their defaults.

`tuner/data/flags/NAME.csv` has one flag per row (`tests/record_flags.py` writes it); its first line names the
repository and the commit.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from tuner.core.recorded import recorded

_NUMBERS: Final[Mapping[str, Callable[[str], Any]]] = {"int": int, "float": float}
_ACTIONS: Final = {
    "StoreTrueAction": "store_true",
    "StoreFalseAction": "store_false",
    "StoreConstAction": "store_const",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFlag:
    """One flag of a recorded parser."""

    names: tuple[str, ...]
    dest: str
    action: str
    nargs: str
    type: str
    default: Any
    choices: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting of an export that differs from the trainer's default."""

    flag: str
    value: str
    default: str


@dataclass(frozen=True, kw_only=True)
class FlagTable:
    """All flags of a trainer at one commit."""

    version: str
    """Repository, commit and file."""
    flags: Mapping[str, RecordedFlag]
    """By each name."""

    @cached_property
    def parser(self) -> ArgumentParser:
        """An argument parser with these flags, types, choices and defaults."""
        parser = ArgumentParser(allow_abbrev=False, exit_on_error=False, add_help=False)
        for flag in {id(one): one for one in self.flags.values()}.values():
            _add(parser, flag)
        return parser

    def parsed(self, settings: Sequence[tuple[str, ...]]) -> Namespace:
        """Return the trainer's parsed flags, including defaults."""
        return self.parser.parse_args([word for setting in settings for word in setting])

    def differences(self, settings: Sequence[tuple[str, ...]]) -> list[Difference]:
        """Return the settings that differ from the trainer's defaults, in their order."""
        found = []
        parsed = self.parsed(settings)
        for name, *values in settings:
            flag = self.flags[name]
            if getattr(parsed, flag.dest) not in (flag.default, [flag.default]):
                default, value = (_word(flag.default), " ".join(values)) if values else ("not given", "given")
                found.append(Difference(flag=name, value=value, default=default))
        return found


@lru_cache
def flag_table(name: str) -> FlagTable:
    """Return the recorded flags of a trainer, such as `megatron-core`."""
    source, rows = recorded("flags", name)
    flags = [
        RecordedFlag(
            names=tuple(row["flag"].split()),
            dest=row["dest"],
            action=row["action"],
            nargs=row["nargs"],
            type=row["type"],
            default=json.loads(row["default"]),
            choices=tuple(json.loads(row["choices"])) if row["choices"] else (),
        )
        for row in rows
    ]
    return FlagTable(version=source.partition(":")[0], flags={one: flag for flag in flags for one in flag.names})


def _word(value: Any) -> str:
    return {True: "on", False: "off", None: "none"}[value] if value is None or isinstance(value, bool) else f"{value}"


def _add(parser: ArgumentParser, flag: RecordedFlag) -> None:
    if flag.action in _ACTIONS:
        parser.add_argument(*flag.names, dest=flag.dest, action=_ACTIONS[flag.action], default=flag.default)
        return
    if flag.action == "BooleanOptionalAction":
        name = next(one for one in flag.names if not one.startswith("--no-"))
        parser.add_argument(name, dest=flag.dest, action=BooleanOptionalAction, default=flag.default)
        return
    kind = _NUMBERS.get(flag.type, str)
    choices = None if not flag.choices else [kind(one) if one is not None else None for one in flag.choices]
    nargs: Any = int(flag.nargs) if flag.nargs.isdigit() else flag.nargs or None
    parser.add_argument(*flag.names, dest=flag.dest, type=kind, default=flag.default, choices=choices, nargs=nargs)
