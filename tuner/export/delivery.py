"""Whether production delivers what was promised: a measurement beside the `topology.json` of an export."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.catalog import read_text
from tuner.core.errors import InputError
from tuner.core.text import shown, span

SCHEMA: Final = "tuner/topology/1"
_FIGURES: Final = ("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "days")

ROOM: Final = 1.05
"""How much more memory than promised is taken for the same: allocators keep more as a run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """What an export has promised."""

    key: str
    source: str
    sec_per_iter: float
    low: float
    high: float
    memory_gib: float | None
    days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The same beside a measurement."""

    promise: ExpectedResult
    delivered: bool
    sec_ratio: float
    """Measured seconds over promised ones."""
    days: float
    """What the whole training takes at this rate."""
    memory_ratio: float | None
    sentences: tuple[str, ...]


def read_promise(path: Path) -> ExpectedResult:
    """The promise in a `topology.json`."""
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is no topology.json of tuner export: its schema must be {SCHEMA!r}.")
    expected = document.get("expected")
    if not isinstance(expected, dict) or not all(_positive(expected.get(name)) for name in _FIGURES):
        raise InputError(f"{path} does not say what was expected; export it again.")
    memory = expected.get("memory_gib")
    return ExpectedResult(
        key=str(document.get("key")),
        source=_source(expected, path),
        sec_per_iter=float(expected["sec_per_iter"]),
        low=float(expected["sec_per_iter_low"]),
        high=float(expected["sec_per_iter_high"]),
        memory_gib=float(memory) if memory is not None and _positive(memory) else None,
        days=float(expected["days"]),
    )


def delivered(promise: ExpectedResult, seconds: float, memory_gib: float | None) -> Delivery:
    """A run is as promised when its time is not above the interval and its memory not well above the figure."""
    ratio = seconds / promise.sec_per_iter
    days = promise.days * ratio
    held = memory_gib / promise.memory_gib if memory_gib and promise.memory_gib else None
    in_time, in_memory = seconds <= promise.high, held is None or held <= ROOM
    sooner = seconds < promise.low
    how = "as promised" if in_time and not sooner else "sooner than promised" if sooner else "slower than promised"
    said = [
        f"{how}: {seconds:.6g} s an iteration, {abs(ratio - 1):.1%} {'more' if ratio >= 1 else 'less'} than "
        f"{promise.sec_per_iter:.6g} s ({promise.source}; {promise.low:.6g} to {promise.high:.6g}); at this rate the "
        f"training takes {span(days)} in place of {span(promise.days)}"
    ]
    if held is not None and memory_gib is not None:
        word = "as promised" if in_memory else "more than promised"
        said.append(f"memory {word}: {memory_gib:.1f} GiB where {promise.memory_gib:.1f} were expected")
    return Delivery(
        promise=promise,
        delivered=in_time and in_memory,
        sec_ratio=ratio,
        days=days,
        memory_ratio=held,
        sentences=tuple(said),
    )


def _source(expected: Mapping[str, Any], path: Path) -> str:
    source = expected.get("source")
    if source not in ("measured", "simulated", "estimated"):
        raise InputError(f"{path} calls its figures {shown(source)}; they are measured, simulated or estimated.")
    return "SIMULATED" if source == "simulated" else str(source)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
