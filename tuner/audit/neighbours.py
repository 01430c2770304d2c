"""Laws between rows: the same run measures the same, and what differs little takes about as long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tuner.audit.case import Case, measured_texts, text_of
from tuner.audit.evidence import Evidence, about, figures
from tuner.audit.expectation import log_work
from tuner.audit.finding import Finding
from tuner.errors import listed

_REPEAT: Final = 0.08
"""Two runs of one topology on one day differ by less."""
_BATCH: Final = 0.10
"""Time per sample at another batch, the bubble taken out, differs by less."""
_OUTLIER: Final = 0.4
_SPREADS: Final = 5.0
_SWAP_FITS: Final = 0.03


def reprints(evidence: Evidence) -> Iterator[Finding]:
    """Two runs never measure alike to the last of many digits: such a row is one measurement printed again."""
    first: dict[Any, Case] = {}
    for _, case in evidence.fitting:
        texts = measured_texts(case.row)
        if not any(texts):
            continue
        key = (case.identity, texts[:2] if any(texts[:2]) else texts)
        before = first.setdefault(key, case)
        if before is case or (texts[2] and _memory(before) and texts[2] != _memory(before)):
            continue
        printed = evidence.table.rows[case.row.index]
        words = f"the same run and the same figures ({figures(printed)}) as in line {before.row.line}"
        sure = sum(character.isdigit() for character in "".join(texts)) >= 4
        exclude = f"a reprint of line {before.row.line}"
        yield about(case.row, "reprint", "warning" if sure else "advice", words, "count it once", others=[before.row], exclude=exclude)


def _memory(case: Case) -> str:
    return measured_texts(case.row)[2]


def swapped(evidence: Evidence) -> Iterator[Finding]:
    """Seconds and TFLOPs keep their product when their columns are exchanged, so only other rows can tell.

    Exchanged, the row comes to what its twin or its neighbours measured; as printed it is off.
    """
    twins = _twins(evidence)
    for place, case in evidence.fitting:
        row = case.row
        if row.seconds is None or row.tflops is None:
            continue
        seconds, rate = row.seconds, row.tflops / 1e12
        cells = {"sec_per_iter": text_of(row, "tflops"), "tflops": text_of(row, "sec_per_iter")}
        mirrored = [
            other
            for other in twins[case.identity]
            if (text_of(other.row, "sec_per_iter"), text_of(other.row, "tflops")) == tuple(cells.values())
        ]
        expected = evidence.expected.get(place)
        if mirrored:
            if not _odd_one(evidence, case, mirrored[0]):
                continue
            message = f"seconds {text_of(row, 'sec_per_iter')} and TFLOPs {text_of(row, 'tflops')} stand the other way round in line {mirrored[0].row.line}, of the same run"
            yield about(row, "swapped", "error", message, _exchange(cells), others=[mirrored[0].row], cells=cells)
        elif expected:
            printed, turned = (abs(math.log(value / expected.seconds)) for value in (seconds, rate))
            fits = _SWAP_FITS if expected.nearest < 0.2 else max(0.1, 2 * expected.spread)
            if turned <= fits and printed >= max(3 * fits, 0.05, 4 * expected.spread if expected.nearest else 0.0):
                message = f"seconds {text_of(row, 'sec_per_iter')} and TFLOPs {text_of(row, 'tflops')} are as if exchanged: rows like it take about {expected.seconds:.4g} s"
                yield about(row, "swapped", "error", message, _exchange(cells), cells=cells)


def _exchange(cells: dict[str, str]) -> str:
    return f"sec_per_iter={cells['sec_per_iter']}, tflops={cells['tflops']}"


def _odd_one(evidence: Evidence, case: Case, twin: Case) -> bool:
    """Of two rows with mirrored figures, whether this is the one that others speak against; if none do, the later."""
    away = [abs(_slowness(one) - usual) if (usual := _between(evidence, one)) is not None else 0.0 for one in (case, twin)]
    return away[0] > away[1] or (away[0] == away[1] and case.row.index > twin.row.index)


def _between(evidence: Evidence, case: Case) -> float | None:
    """What the same topology at the next smaller and the next larger micro batch makes of a row's slowness."""
    mine = case.run.topology
    near: dict[bool, tuple[float, float]] = {}
    for _, other in evidence.fitting:
        its = other.run.topology
        same = replace(its, micro_batch=mine.micro_batch) == mine and other.run.workload == case.run.workload
        if same and its.micro_batch != mine.micro_batch and other.row.timed and other.row.group == case.row.group:
            step = math.log2(its.micro_batch / mine.micro_batch)
            side = step > 0
            if side not in near or abs(step) < near[side][0]:
                near[side] = (abs(step), _slowness(other))
    if not near:
        return None
    return sum(slowness / step for step, slowness in near.values()) / sum(1 / step for step, _ in near.values())


def _twins(evidence: Evidence) -> dict[Any, list[Case]]:
    found: dict[Any, list[Case]] = {}
    for _, case in evidence.fitting:
        found.setdefault(case.identity, []).append(case)
    return found


def repeats(evidence: Evidence) -> Iterator[Finding]:
    """The same run measured twice in one group takes about the same time."""
    for cases in _twins(evidence).values():
        first: dict[str, Case] = {}
        for case in cases:
            if not case.row.timed:
                continue
            before = first.setdefault(case.row.group, case)
            assert before.row.seconds and case.row.seconds
            off = math.log(case.row.seconds / before.row.seconds)
            if abs(off) > _REPEAT + case.rounding("sec_per_iter") + before.rounding("sec_per_iter"):
                message = f"{text_of(case.row, 'sec_per_iter')} s where line {before.row.line}, of the same run, has {text_of(before.row, 'sec_per_iter')}"
                yield about(case.row, "repeat", "advice", message, "measure it again, or say what differed", others=[before.row])


def batches(evidence: Evidence) -> Iterator[Finding]:
    """At another global batch the same topology takes as long for each sample, but for the pipeline's bubble."""
    chains: dict[Any, list[Case]] = {}
    for _, case in evidence.fitting:
        if case.row.timed:
            workload = replace(case.run.workload, global_batch=1)
            chains.setdefault((case.row.group, workload, *case.identity[1:]), []).append(case)
    for chain in chains.values():
        if len({case.run.workload.global_batch for case in chain}) < 2:
            continue
        for case in chain:
            others = [other for other in chain if other.run.workload.global_batch != case.run.workload.global_batch]
            offs = sorted(_slowness(case) - _slowness(other) for other in others)
            off = offs[len(offs) // 2]
            room = _BATCH + case.rounding("sec_per_iter") + others[0].rounding("sec_per_iter")
            if abs(off) <= room or not _blamed(evidence, case, others, off):
                continue
            slower = "longer" if off > 0 else "less"
            message = f"{text_of(case.row, 'sec_per_iter')} s at gbs {case.run.workload.global_batch} is {abs(math.expm1(off)):.0%} {slower} for a sample than at {listed(sorted({o.run.workload.global_batch for o in others}))}, same topology (line {others[0].row.line})"
            yield about(case.row, "batch-time", "warning", message, "measure it again; the seconds belong to another run or batch", others=[o.row for o in others], exclude="its time per sample is out of line with the same topology's")


def _slowness(case: Case) -> float:
    assert case.row.seconds
    return math.log(case.row.seconds) - log_work(case)


def _blamed(evidence: Evidence, case: Case, others: list[Case], off: float) -> bool:
    """Of a row and those it disagrees with, whether this is the odd one: by other days' rows, else by majority."""
    if len(others) > 1:
        return True
    other = others[0]

    def away(one: Case) -> float:
        known = [
            _slowness(third)
            for _, third in evidence.fitting
            if third.row.timed and third.row.index not in (case.row.index, other.row.index)
            and replace(third.run.workload, global_batch=1) == replace(one.run.workload, global_batch=1)
            and (third.run.topology.tp, third.run.topology.micro_batch) == (one.run.topology.tp, one.run.topology.micro_batch)
        ]
        return abs(_slowness(one) - sorted(known)[len(known) // 2]) if known else 0.0

    mine, its = away(case), away(other)
    return mine > its or (mine == its and off > 0)


def outliers(evidence: Evidence) -> Iterator[Finding]:
    """A row that differs little from several others takes about as long for each operation."""
    for place, case in evidence.fitting:
        expected, row = evidence.expected.get(place), case.row
        if expected is None or row.seconds is None or expected.neighbours < 4:
            continue
        # A step costs something for each operation and something at all: the truth lies between the two.
        offs = (math.log(row.seconds / expected.seconds), math.log(row.seconds / expected.same))
        off = min(offs, key=abs) if offs[0] * offs[1] > 0 else 0.0
        if abs(off) > max(_OUTLIER, _SPREADS * expected.spread) + case.rounding("sec_per_iter"):
            message = f"{text_of(row, 'sec_per_iter')} s, where {expected.neighbours} rows like it lead one to expect about {expected.seconds:.4g}"
            yield about(row, "outlier", "warning", message, "check the seconds, the batch and the degrees", exclude=f"{math.exp(off):.3g} times the seconds of rows like it")
