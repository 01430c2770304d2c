"""Laws of memory between rows: equal runs need equal memory, larger micro batches need more, smaller ones still fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from tuner.audit.evidence import Evidence, about
from tuner.audit.printed_row import PrintedRow
from tuner.audit.repair import Finding

_ALLOCATOR_NOISE: Final = 0.05
"""Run-to-run variation of allocators and nodes."""
_MIN_FALL: Final = 0.03
_MIN_POINTS: Final = 4
_MIN_BEND: Final = 0.12
_MAX_RESIDUAL: Final = 0.06


def twins(evidence: Evidence) -> Iterator[Finding]:
    """The same run takes the same memory every time."""
    seen: dict[Any, list[PrintedRow]] = {}
    for _, case in evidence.fitting:
        if not case.row.weighed:
            continue
        before = seen.setdefault((case.identity, case.note_words, case.row.memory_kind), [])
        if before and not any(_alike(case, other) for other in before):
            twin = before[0]
            message = f"{case.text('mem_gib')} GiB, but line {twin.line}, the same run, has {twin.text('mem_gib')}"
            suggestion = "one of the two is from a different run: state what differed"
            yield about(case.row, "memory-twins", "warning", message=message, suggestion=suggestion, others=[twin.row])
        before.append(case)


def _alike(case: PrintedRow, other: PrintedRow) -> bool:
    tolerance = _ALLOCATOR_NOISE + case.rounding("mem_gib") + other.rounding("mem_gib")
    return abs(math.log(case.memory / other.memory)) <= tolerance


def micro_batches(evidence: Evidence) -> Iterator[Finding]:
    """Memory does not fall when the micro batch grows, for equally many microbatches in flight."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, micro_batch=1)):
        weighed = [case for case in chain if case.row.weighed]
        for small, large in pairwise(sorted(weighed, key=lambda case: case.micro_batch)):
            if large.run.topology.micro_batch > small.run.topology.micro_batch and _falls(small, large):
                odd, twin = (small, large) if _stray(evidence, small) >= _stray(evidence, large) else (large, small)
                message = (
                    f"memory falls from {small.text('mem_gib')} GiB at mbs {small.micro_batch} (line {small.line}) "
                    f"to {large.text('mem_gib')} at mbs {large.micro_batch} (line {large.line})"
                )
                reason = f"memory falls as the micro-batch size grows, lines {small.row.line} and {large.row.line}"
                yield about(
                    odd.row,
                    "memory-falls",
                    "error",
                    message=message,
                    suggestion=f"check the memory in line {odd.row.line}",
                    others=[twin.row],
                    exclude=reason,
                    exclude_column="mem_gib",
                )


def straight(evidence: Evidence) -> Iterator[Finding]:
    """Memory is linear in the micro batch: only activations grow, by the same amount per sample."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, micro_batch=1)):
        points = {case.micro_batch: case for case in chain if case.row.weighed}
        if len(points) < _MIN_POINTS:
            continue
        offs = {size: _off_line(size, points) for size in points}
        worst = max(offs, key=lambda size: offs[size])
        rest = {size: case for size, case in points.items() if size != worst}
        if offs[worst] > _MIN_BEND and all(_off_line(size, rest) < _MAX_RESIDUAL for size in rest):
            case = points[worst]
            message = (
                f"{case.text('mem_gib')} GiB at mbs {worst} is {offs[worst]:.0%} off the line through the other "
                f"{len(rest)} micro-batch sizes of its topology"
            )
            yield about(
                case.row,
                "memory-line",
                "warning",
                message=message,
                suggestion="check its memory",
                others=[other.row for other in rest.values()],
                exclude=message,
                exclude_column="mem_gib",
            )


def _off_line(size: int, points: Mapping[int, PrintedRow]) -> float:
    """Return the relative distance of a point from the line through the others, beyond rounding."""
    others = [(other, case.memory) for other, case in points.items() if other != size]
    slopes = sorted((m2 - m1) / (b2 - b1) for n, (b1, m1) in enumerate(others) for b2, m2 in others[n + 1 :])
    slope = slopes[len(slopes) // 2]
    starts = sorted(memory - slope * batch for batch, memory in others)
    expected = starts[len(starts) // 2] + slope * size
    memory = points[size].memory
    return abs(memory - expected) / memory - 2 * points[size].rounding("mem_gib")


def stages(evidence: Evidence) -> Iterator[Finding]:
    """Memory does not rise with the ZeRO stage."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, zero=0)):
        weighed = [case for case in chain if case.row.weighed]
        for low, high in pairwise(sorted(weighed, key=lambda case: case.run.topology.zero)):
            if high.run.topology.zero > low.run.topology.zero and _falls(high, low):
                message = (
                    f"memory rises from {low.text('mem_gib')} GiB at ZeRO {low.run.topology.zero} (line {low.line}) "
                    f"to {high.text('mem_gib')} at {high.run.topology.zero} (line {high.line})"
                )
                yield about(
                    high.row,
                    "memory-rises",
                    "warning",
                    message=message,
                    suggestion="check the stages and figures of both",
                    others=[low.row],
                )


def out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """A topology that fits with a larger micro batch fits with a smaller one."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, micro_batch=1)):
        fits = [case for case in chain if case.row.status == "OK" and (case.row.timed or case.row.weighed)]
        for case in chain:
            larger = [other for other in fits if other.micro_batch >= case.micro_batch]
            if case.row.status == "OOM" and larger:
                other = larger[0]
                sizes = (case.micro_batch, other.micro_batch)
                message = f"out of memory at mbs {sizes[0]}, but mbs {sizes[1]} fits in line {other.line}"
                yield about(
                    case.row,
                    "oom-fits",
                    "warning",
                    message=message,
                    suggestion="check the status and the micro-batch size of both",
                    others=[other.row],
                )


def _chains(evidence: Evidence, key: Any) -> Iterator[list[PrintedRow]]:
    """Yield rows that differ only in what `key` ignores and in the global batch, which does not affect memory.

    Only rows with at least pp microbatches: with fewer, a larger micro batch means fewer in flight.
    """
    chains: dict[Any, list[PrintedRow]] = {}
    for case in evidence.cases.values():
        if case.microbatches >= case.run.topology.pp:
            workload = replace(case.run.workload, global_batch=1)
            found = (workload, key(case), *case.identity[2:], case.note_words, case.row.memory_kind)
            chains.setdefault(found, []).append(case)
    yield from (chain for chain in chains.values() if len(chain) > 1)


def _falls(before: PrintedRow, after: PrintedRow) -> bool:
    tolerance = _MIN_FALL + before.rounding("mem_gib") + after.rounding("mem_gib")
    return math.log(before.memory / after.memory) > tolerance


def _stray(evidence: Evidence, case: PrintedRow) -> float:
    """Return how far a row's memory per parameter is from that of the same topology with other models."""

    def share(one: PrintedRow) -> float:
        return math.log(one.memory / one.run.workload.model.parameters)

    others = sorted(
        share(other)
        for _, other in evidence.fitting
        if other.row.weighed
        and other.run.workload.model != case.run.workload.model
        and other.run.topology == case.run.topology
        and abs(math.log(other.run.workload.model.parameters / case.run.workload.model.parameters)) < 0.3
    )
    return abs(share(case) - others[len(others) // 2]) if others else 0.0
