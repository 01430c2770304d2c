"""Shared code of the GPU benchmark's stages: items, and the loop that runs as many of them as fit in the time."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.gpu.jobs import Runner
from benchmarks.gpu.plan import Planner
from benchmarks.gpu.results import Clock, Results

Entry = dict[str, Any]


MAX_FAILED: Final = 3
"""Items that may fail in a row before the rest of the stage is left: the GPU's time is short."""


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement of a stage."""

    name: str
    seconds: float
    """Estimated duration."""
    run: Callable[[], Entry]


@dataclass(frozen=True, slots=True)
class Context:
    """The state that items share."""

    results: Results
    runner: Runner
    clock: Clock
    planner: Planner = field(default_factory=Planner)
    tiny: bool = False
    """Whether to use tiny shapes, which a CPU computes quickly."""


def missing(stage: str, items: Sequence[Item], results: Results) -> list[Item]:
    """Return the items without a result."""
    return [item for item in items if results.find(stage, item.name) is None]


def run_items(stage: str, items: Sequence[Item], context: Context) -> int:
    """Run the items that have no result and fit in the time; return how many are left.

    An item that raises an exception gets a result with the status FAIL.
    """
    left = failed = 0
    for item in missing(stage, items, context.results):
        if failed == MAX_FAILED or not context.clock.fits(item.seconds):
            left += 1
            continue
        began = time.time()
        try:
            entry = item.run()
        except Exception as error:
            traceback.print_exc()
            entry = {"status": "FAIL", "meaning": f"{type(error).__name__}: {error}"[:400]}
        failed = failed + 1 if entry.get("status") == "FAIL" else 0
        entry.setdefault("took", time.time() - began)
        context.results.add(stage, item.name, entry)
        print(f"{stage} {item.name}: {summary(entry)}", flush=True)
    return left


def summary(entry: Entry) -> str:
    """Return a one-line summary of a result."""
    parts = [str(entry.get("status", "OK"))]
    if seconds := entry.get("seconds"):
        parts.append(
            "s ".join(f"{value:.4f}" for value in (seconds if isinstance(seconds, list) else [seconds])) + " s"
        )
    if "allocated_gib" in entry:
        parts.append(f"{entry['allocated_gib']:.2f} of {entry['reserved_gib']:.2f} GiB")
    if "tflops" in entry:
        parts.append(f"{entry['tflops']:.1f} TFLOPs")
    if entry.get("meaning"):
        parts.append(str(entry["meaning"]))
    return ", ".join([*parts, f"took {entry['took']:.1f} s"])
