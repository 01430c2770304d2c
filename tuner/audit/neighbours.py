"""Laws between rows: the same run measures the same, and what differs little takes about as long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tuner.audit.evidence import Evidence, about, figures
from tuner.audit.expectation import log_work
from tuner.audit.printed_row import PrintedRow, measured_texts, text_of
from tuner.audit.repair import Finding

_REPEAT: Final = 0.08
"""Two runs of one topology on one day differ by less."""
_NOISE: Final = 0.03
"""Two runs of one topology on one day differ by as much without a reason."""
_MOST_FIXED: Final = 0.5
"""No step of several microbatches is longer for its optimizer and its reduction than for its microbatches."""
_OUTLIER: Final = 0.4
_SPREADS: Final = 5.0
_DIGITS: Final = 4
"""Two measurements agree in fewer by chance."""
_ENOUGH: Final = 4
"""Rows that can speak for a table."""
_SWAP_FITS: Final = 0.03
_SWAP_FAR: Final = math.log(3)
_SWAP_NEAR: Final = math.log(1.5)
"""Without neighbours the TFLOPs of the whole table must do: far from them as printed, near them once exchanged."""


def reprints(evidence: Evidence) -> Iterator[Finding]:
    """Two runs never measure alike to the last of many digits: such a row is one measurement printed again."""
    first: dict[Any, PrintedRow] = {}
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
        sure = sum(character.isdigit() for character in (texts[0] or texts[1] or texts[2]).lstrip("0.")) >= _DIGITS
        exclude = f"a reprint of line {before.row.line}" if sure else ""
        yield about(
            case.row,
            "reprint",
            "warning" if sure else "advice",
            words,
            "count it once",
            others=[before.row],
            exclude=exclude,
        )


def _memory(case: PrintedRow) -> str:
    return measured_texts(case.row)[2]


def swapped(evidence: Evidence) -> Iterator[Finding]:
    """Seconds and TFLOPs keep their product when their columns are exchanged, so only other rows can tell.

    Exchanged, the row comes to what its twin or its neighbours measured; as printed it is off.
    """
    twins = _twins(evidence)
    usual = evidence.usual_share
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
            message = f"{_both(case)} stand the other way round in line {mirrored[0].line}, of the same run"
            yield about(row, "swapped", "error", message, _exchange(cells), others=[mirrored[0].row], cells=cells)
        elif expected is None and usual:
            printed, turned = (abs(math.log(value * 1e12 / case.peak / usual)) for value in (rate, seconds))
            if printed > _SWAP_FAR and turned < _SWAP_NEAR:
                rate_words = f"{usual * case.peak / 1e12:.3g} TFLOPs"
                message = f"{_both(case)} are as if exchanged: the table's rows make about {rate_words}"
                yield about(row, "swapped", "error", message, _exchange(cells), cells=cells)
        elif expected:
            printed, turned = (abs(math.log(value / expected.seconds)) for value in (seconds, rate))
            fits = _SWAP_FITS if expected.nearest < 0.2 else max(0.1, 2 * expected.spread)
            if turned <= fits and printed >= max(3 * fits, 0.05, 4 * expected.spread if expected.nearest else 0.0):
                message = f"{_both(case)} are as if exchanged: rows like it take about {expected.seconds:.4g} s"
                yield about(row, "swapped", "error", message, _exchange(cells), cells=cells)


def _both(case: PrintedRow) -> str:
    return f"seconds {case.says('sec_per_iter')} and TFLOPs {case.says('tflops')}"


def _exchange(cells: dict[str, str]) -> str:
    return f"sec_per_iter={cells['sec_per_iter']}, tflops={cells['tflops']}"


def _odd_one(evidence: Evidence, case: PrintedRow, twin: PrintedRow) -> bool:
    """Of two rows with mirrored figures, whether this is the one that others speak against; if none do, the later."""
    away = [
        abs(_slowness(one) - usual) if (usual := _between(evidence, one)) is not None else 0.0 for one in (case, twin)
    ]
    return away[0] > away[1] or (away[0] == away[1] and case.row.index > twin.row.index)


def _between(evidence: Evidence, case: PrintedRow) -> float | None:
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


def _twins(evidence: Evidence) -> dict[Any, list[PrintedRow]]:
    found: dict[Any, list[PrintedRow]] = {}
    for _, case in evidence.fitting:
        found.setdefault(case.identity, []).append(case)
    return found


def repeats(evidence: Evidence) -> Iterator[Finding]:
    """The same run measured twice in one group takes about the same time."""
    for cases in _twins(evidence).values():
        first: dict[tuple[str, str], PrintedRow] = {}
        for case in cases:
            if not case.row.timed:
                continue
            before = first.setdefault((case.row.group, case.told), case)
            off = math.log(case.seconds / before.seconds)
            if abs(off) > _REPEAT + case.rounding("sec_per_iter") + before.rounding("sec_per_iter"):
                message = (
                    f"{case.says('sec_per_iter')} s where line {before.line}, of the same run, has "
                    f"{before.says('sec_per_iter')}"
                )
                yield about(
                    case.row, "repeat", "advice", message, "measure it again, or say what differed", others=[before.row]
                )


def batches(evidence: Evidence) -> Iterator[Finding]:
    """Seconds grow in a straight line with the microbatches: a fixed cost, never negative and not most of the step."""
    chains: dict[Any, list[PrintedRow]] = {}
    for _, case in evidence.fitting:
        if case.row.timed:
            workload = replace(case.run.workload, global_batch=1)
            chains.setdefault((case.row.group, case.told, workload, *case.identity[1:]), []).append(case)
    for chain in chains.values():
        for case in chain:
            others = [other for other in chain if other.run.workload.global_batch != case.run.workload.global_batch]
            against = [other for other in others if _contradict(case, other)]
            if not against or 2 * len(against) <= len(others) or not _blamed(evidence, case, against):
                continue
            other = against[0]
            off = _slowness(case) - _slowness(other)
            message = (
                f"{case.says('sec_per_iter')} s at gbs {case.run.workload.global_batch} is {abs(math.expm1(off)):.0%} "
                f"{'longer' if off > 0 else 'less'} for a sample than at {other.run.workload.global_batch}, same "
                f"topology (line {other.line}), bubble taken out"
            )
            suggestion = "measure it again; the seconds belong to another run or batch"
            reason = "its time per sample is out of line with the same topology's"
            rows = [other.row for other in others]
            yield about(case.row, "batch-time", "warning", message, suggestion, others=rows, exclude=reason)


def _contradict(case: PrintedRow, other: PrintedRow) -> bool:
    """Whether the line through two batches starts where none can, with room for rounding and for noise."""
    small, large = sorted((case, other), key=lambda one: one.microbatches)
    first, second = (one.microbatches * one.bubble for one in (small, large))
    if small.microbatches < _ENOUGH or second < 1.1 * first:
        return False
    span, ratio = second - first, large.seconds / small.seconds
    fixed = (second - first * ratio) / span
    noise = [_NOISE + one.rounding("sec_per_iter") for one in (small, large)]
    room = (noise[0] * second + noise[1] * first * ratio) / span
    return fixed > _MOST_FIXED + room or fixed < -room


def _slowness(case: PrintedRow) -> float:
    return math.log(case.seconds) - log_work(case)


def _blamed(evidence: Evidence, case: PrintedRow, against: list[PrintedRow]) -> bool:
    """Of a row and those it contradicts, whether this is the odd one: by majority, else by others of the machine."""
    if len(against) > 1:
        return True
    other = against[0]

    def away(one: PrintedRow) -> float:
        model, topology = one.run.workload.model, one.run.topology
        known = sorted(
            _slowness(third)
            for _, third in evidence.fitting
            if third.row.timed
            and third not in (case, other)
            and third.run.workload.model == model
            and (third.run.topology.tp, third.micro_batch) == (topology.tp, one.micro_batch)
        )
        return abs(_slowness(one) - known[len(known) // 2]) if known else 0.0

    mine, its = away(case), away(other)
    return mine > its or (mine == its and _slowness(case) > _slowness(other))


def outliers(evidence: Evidence) -> Iterator[Finding]:
    """A row that differs little from several others takes about as long for each operation."""
    for place, case in evidence.fitting:
        expected, row = evidence.expected.get(place), case.row
        if expected is None or row.seconds is None or expected.neighbours < _ENOUGH:
            continue
        # A step costs something for each operation and something at all: the truth lies between the two.
        offs = (math.log(row.seconds / expected.seconds), math.log(row.seconds / expected.same))
        off = min(offs, key=abs) if offs[0] * offs[1] > 0 else 0.0
        if abs(off) > max(_OUTLIER, _SPREADS * expected.spread) + case.rounding("sec_per_iter"):
            message = (
                f"{case.says('sec_per_iter')} s, where {expected.neighbours} rows like it lead one to expect about "
                f"{expected.seconds:.4g}"
            )
            yield about(
                row,
                "outlier",
                "warning",
                message,
                "check the seconds, the batch and the degrees",
                exclude=f"{math.exp(off):.3g} times the seconds of rows like it",
            )
