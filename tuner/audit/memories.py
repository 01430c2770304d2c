"""Laws of memory between rows: the same run needs the same, a larger micro batch no less, and what fits goes on fitting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from tuner.audit.case import Case, text_of
from tuner.audit.evidence import Evidence, about
from tuner.audit.finding import Finding

_SAME: Final = 0.05
"""What allocators and node differ by from run to run."""
_FALL: Final = 0.03


def twins(evidence: Evidence) -> Iterator[Finding]:
    """The same run takes the same memory whenever it is measured."""
    seen: dict[Any, list[Case]] = {}
    for _, case in evidence.fitting:
        if not case.row.weighed:
            continue
        before = seen.setdefault((case.identity, case.row.memory_kind), [])
        if before and not any(_alike(case, other) for other in before):
            message = f"{text_of(case.row, 'mem_gib')} GiB, where line {before[0].row.line}, of the same run, has {text_of(before[0].row, 'mem_gib')}"
            suggestion = "one of the two belongs to another run: say what differed"
            yield about(case.row, "memory-twins", "warning", message, suggestion, others=[before[0].row])
        before.append(case)


def _alike(case: Case, other: Case) -> bool:
    assert case.row.memory and other.row.memory
    room = _SAME + case.rounding("mem_gib") + other.rounding("mem_gib")
    return abs(math.log(case.row.memory / other.row.memory)) <= room


def micro_batches(evidence: Evidence) -> Iterator[Finding]:
    """Memory does not fall when the micro batch grows, with as many microbatches in flight."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, micro_batch=1)):
        weighed = [case for case in chain if case.row.weighed]
        for small, large in pairwise(sorted(weighed, key=lambda case: case.run.topology.micro_batch)):
            if large.run.topology.micro_batch > small.run.topology.micro_batch and _falls(small, large):
                odd, mate = (small, large) if _stray(evidence, small) >= _stray(evidence, large) else (large, small)
                message = (
                    f"memory falls from {text_of(small.row, 'mem_gib')} GiB at mbs {small.run.topology.micro_batch} (line {small.row.line}) "
                    f"to {text_of(large.row, 'mem_gib')} at mbs {large.run.topology.micro_batch} (line {large.row.line})"
                )
                reason = f"memory falls with the micro batch, lines {small.row.line} and {large.row.line}"
                yield about(odd.row, "memory-falls", "error", message, f"read line {odd.row.line}'s memory again", others=[mate.row], exclude=reason, exclude_column="mem_gib")


def stages(evidence: Evidence) -> Iterator[Finding]:
    """Memory does not rise with the ZeRO stage."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, zero=0)):
        weighed = [case for case in chain if case.row.weighed]
        for low, high in pairwise(sorted(weighed, key=lambda case: case.run.topology.zero)):
            if high.run.topology.zero > low.run.topology.zero and _falls(high, low):
                message = (
                    f"memory rises from {text_of(low.row, 'mem_gib')} GiB at ZeRO {low.run.topology.zero} (line {low.row.line}) "
                    f"to {text_of(high.row, 'mem_gib')} at {high.run.topology.zero} (line {high.row.line})"
                )
                yield about(high.row, "memory-rises", "warning", message, "check both stages and figures", others=[low.row])


def out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """What fits with a larger micro batch fits with a smaller one."""
    for chain in _chains(evidence, lambda case: replace(case.run.topology, micro_batch=1)):
        fits = [case for case in chain if case.row.status == "OK" and (case.row.timed or case.row.weighed)]
        for case in chain:
            larger = [
                other for other in fits if other.run.topology.micro_batch >= case.run.topology.micro_batch
            ]
            if case.row.status == "OOM" and larger:
                other = larger[0]
                message = f"out of memory at mbs {case.run.topology.micro_batch}, and yet mbs {other.run.topology.micro_batch} fits in line {other.row.line}"
                yield about(case.row, "oom-fits", "warning", message, "check the status and the micro batch of both", others=[other.row])


def _chains(evidence: Evidence, key: Any) -> Iterator[list[Case]]:
    """Rows that are the same run but for what the key leaves out and the global batch, which memory does not feel.

    Only where the pipeline is full of microbatches: with fewer, a larger micro batch means fewer in flight.
    """
    chains: dict[Any, list[Case]] = {}
    for case in evidence.cases.values():
        if case.microbatches >= case.run.topology.pp:
            workload = replace(case.run.workload, global_batch=1)
            found = (workload, key(case), *case.identity[2:], case.row.memory_kind)
            chains.setdefault(found, []).append(case)
    yield from (chain for chain in chains.values() if len(chain) > 1)


def _falls(before: Case, after: Case) -> bool:
    assert before.row.memory and after.row.memory
    room = _FALL + before.rounding("mem_gib") + after.rounding("mem_gib")
    return math.log(before.row.memory / after.row.memory) > room


def _stray(evidence: Evidence, case: Case) -> float:
    """How far a row's memory is from that of the same topology with other models, each in proportion to its size."""
    assert case.row.memory

    def share(one: Case) -> float:
        assert one.row.memory
        return math.log(one.row.memory / one.run.workload.model.parameters)

    others = sorted(
        share(other)
        for _, other in evidence.fitting
        if other.row.weighed
        and other.run.workload.model != case.run.workload.model
        and other.run.topology == case.run.topology
        and abs(math.log(other.run.workload.model.parameters / case.run.workload.model.parameters)) < 0.3
    )
    return abs(share(case) - others[len(others) // 2]) if others else 0.0
