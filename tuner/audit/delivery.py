"""Compare a measurement of the production run with the expected performance in an export's `topology.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tuner.core.catalog import read_text
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.text import interval, listed, shown, span
from tuner.core.text import seconds as printed

SCHEMA: Final = "tuner/topology/1"
_COMPARED: Final = ("tp", "pp", "cp", "vpp", "dp", "micro_batch", "zero", "sequence_parallel")
"""Axes of a topology that a log's arguments tell."""
_REQUIRED: Final = ("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "days")

MEMORY_TOLERANCE: Final = 1.05
"""Measured over expected memory up to which a run uses memory as expected: allocators reserve more over time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """The performance that an export expects."""

    key: str
    source: str
    sec_per_iter: float
    low: float
    high: float
    memory_gib: float | None
    days: float
    topology: Mapping[str, Any] = field(default_factory=dict)
    """The topology's values by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A measurement compared with the expected performance."""

    expected: ExpectedResult
    delivered: bool
    sec_ratio: float
    """Measured over expected seconds per iteration."""
    days: float
    """Time of the whole training at the measured speed."""
    memory_ratio: float | None
    sentences: tuple[str, ...]
    mismatch: str = ""
    """How the log's job differs from the expected one; empty if the log shows no difference."""


def read_expected(path: Path) -> ExpectedResult:
    """Read the expected performance from a `topology.json`."""
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a topology.json written by tuner export: its schema must be {SCHEMA!r}.")
    expected = document.get("expected")
    if not isinstance(expected, dict) or not all(_positive(expected.get(name)) for name in _REQUIRED):
        raise InputError(f"{path} lacks the expected performance; export the study again.")
    source, memory = expected.get("source"), expected.get("memory_gib")
    if source not in ("measured", "simulated", "estimated"):
        raise InputError(f"{path} has the source {shown(source)}; it must be measured, simulated or estimated.")
    return ExpectedResult(
        key=str(document.get("key")),
        source="SIMULATED" if source == "simulated" else source,
        sec_per_iter=float(expected["sec_per_iter"]),
        low=float(expected["sec_per_iter_low"]),
        high=float(expected["sec_per_iter_high"]),
        memory_gib=float(memory) if memory is not None and _positive(memory) else None,
        days=float(expected["days"]),
        topology=document["topology"] if isinstance(document.get("topology"), dict) else {},
    )


def mismatch(expected: ExpectedResult, topology: Topology | None, global_batch: int | None) -> str:
    """Return how the topology and batch that a log tells differ from the expected ones; empty if they do not."""
    found = {name: getattr(topology, name) for name in _COMPARED} if topology else {}
    found |= {"global_batch": global_batch} if global_batch else {}
    return listed(
        f"{name} {value} instead of {expected.topology[name]}"
        for name, value in found.items()
        if expected.topology.get(name, value) != value
    )


def delivered(expected: ExpectedResult, seconds: float, memory_gib: float | None, *, difference: str = "") -> Delivery:
    """Compare a measurement with the expected performance; a `difference` is that of the jobs.

    A run delivers if its time is not above the 80% interval and its memory is within the tolerance.
    """
    sec_ratio = seconds / expected.sec_per_iter
    days = expected.days * sec_ratio
    speed = "Slower than" if seconds > expected.high else "Faster than" if seconds < expected.low else "As fast as"
    sentences = [
        f"{speed} expected: {printed(seconds)} s per iteration, {abs(sec_ratio - 1):.1%} "
        f"{'more' if sec_ratio >= 1 else 'less'} than {printed(expected.sec_per_iter)} s ({expected.source}, 80% "
        f"interval {interval(expected.low, expected.high)}). At this speed, training takes {span(days)} instead of "
        f"{span(expected.days)}."
    ]
    memory_ratio = memory_gib / expected.memory_gib if memory_gib and expected.memory_gib else None
    fits = memory_ratio is None or memory_ratio <= MEMORY_TOLERANCE
    if memory_ratio is not None:
        verdict = "within expectation" if fits else "above expectation"
        sentences.append(f"Memory {verdict}: {memory_gib:.1f} GiB measured, {expected.memory_gib:.1f} GiB expected.")
    return Delivery(
        expected=expected,
        delivered=seconds <= expected.high and fits and not difference,
        sec_ratio=sec_ratio,
        days=days,
        memory_ratio=memory_ratio,
        sentences=tuple(sentences),
        mismatch=difference,
    )


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
