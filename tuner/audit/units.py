"""Which convention each row's TFLOPs follow, found from the table itself.

A table's figures come of one program or a few, so a convention shows in many rows at once: the printed
TFLOPs x seconds x GPUs of nearly all rows of a group is what one convention counts, to the digits printed, or is so but
for one factor near 1 (a rounded parameter count, a vocabulary that was not said).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.audit.flop_conventions import CONVENTIONS
from tuner.audit.printed_row import PrintedRow

SLACK: Final = 0.004
"""What the same convention may be off beyond rounding: a padded or rounded vocabulary, biases, norms."""
_NEAR: Final = 0.12
"""The largest constant factor, as a logarithm, that still is the convention and not a mistake."""
_SPREADS: Final = 6.0
_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The convention of a group's TFLOPs."""

    convention: int
    """Place in `CONVENTIONS`."""
    factor: float
    """Logarithm of what the figures are times the count; 0 where they are the count itself."""
    spread: float
    """How far the group's own figures scatter about it: seconds and TFLOPs may be means of different iterations."""

    def error(self, case: PrintedRow) -> float:
        """Logarithm of printed over counted."""
        return case.printed_rate - float(np.log(CONVENTIONS[self.convention].count(case.terms))) - self.factor

    def allows(self, case: PrintedRow) -> bool:
        """Whether a row's figures agree with it, as far as digits and the group's scatter tell."""
        room = case.rate_rounding + max(SLACK, _SPREADS * self.spread)
        return abs(self.error(case)) <= room


def units_of(cases: Mapping[int, PrintedRow]) -> dict[int, Unit]:
    """The unit that each row with seconds and TFLOPs should follow: its group's, or else its table's."""
    places = [place for place, case in cases.items() if case.rated]
    if not places:
        return {}
    errors = np.array([_errors(cases[place]) for place in places])
    rooms = np.array([cases[place].rate_rounding + SLACK for place in places])
    groups: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        groups.setdefault(cases[place].row.group, []).append(number)
    own = {name: _decide(errors[numbers], rooms[numbers]) for name, numbers in groups.items()}
    known = [unit for unit in own.values() if unit]
    whole = _decide(errors, rooms)
    known += [whole] if whole else []
    if not known:
        return {}
    found: dict[int, Unit] = {}
    for name, numbers in groups.items():
        unit = own[name] or max(known, key=lambda unit: _support(unit, errors, rooms, numbers))
        found |= {places[number]: unit for number in numbers}
    return found


def _errors(case: PrintedRow) -> list[float]:
    return [case.printed_rate - float(np.log(convention.count(case.terms))) for convention in CONVENTIONS]


def _support(unit: Unit, errors: _Array, rooms: _Array, numbers: Sequence[int]) -> tuple[int, int]:
    """How many rows of a group follow a unit, and how many of the whole table."""
    follow = np.abs(errors[:, unit.convention] - unit.factor) <= rooms + _SPREADS * unit.spread
    return int(follow[list(numbers)].sum()), int(follow.sum())


def _decide(errors: _Array, rooms: _Array) -> Unit | None:
    """The convention that most rows follow exactly, or else but for one factor; None where none stands out."""
    many = len(errors)
    exact = (np.abs(errors) <= rooms[:, None]).sum(axis=0)
    best = int(exact.argmax())
    found = _unit(errors, rooms, best, 0.0) if exact[best] >= max(2, 0.4 * many) else None
    if many < 3 or exact[best] == many:
        return found
    factors = np.median(errors, axis=0)
    spreads = np.median(np.abs(errors - factors), axis=0)
    follow = (np.abs(errors - factors) <= rooms[:, None] + 3 * spreads).sum(axis=0)
    fit = (np.abs(factors) <= _NEAR) & (spreads <= np.median(rooms) + 0.01) & (follow >= max(3, 0.6 * many))
    # A factor is one more guess than none, so it has to explain rows that the count alone leaves open.
    if not fit.any() or (found and follow[fit].max() <= exact[best]):
        return found
    best = int(np.where(fit, spreads, np.inf).argmin())
    return _unit(errors, rooms, best, float(factors[best]))


def _unit(errors: _Array, rooms: _Array, convention: int, factor: float) -> Unit:
    rest = np.abs(errors[:, convention] - factor)
    near = rest[rest <= 0.05]
    excess = np.maximum(0.0, near - rooms[rest <= 0.05] + SLACK)
    return Unit(convention=convention, factor=factor, spread=1.4826 * float(np.median(excess)) if len(near) else 0.0)
