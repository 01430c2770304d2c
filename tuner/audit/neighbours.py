"""Laws between rows: equal runs measure the same, and similar runs take a similar time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tuner.audit.evidence import Evidence, about, figures
from tuner.audit.expectation import log_work
from tuner.audit.printed_row import PrintedRow, measured_texts, text_of
from tuner.audit.repair import Finding

_MAX_REPEAT_DIFFERENCE: Final = 0.08
"""Two runs of one topology on one day differ by less than this."""
_RUN_NOISE: Final = 0.03
"""Typical difference between two runs of one topology on one day."""
_MAX_FIXED_SHARE: Final = 0.5
"""With several microbatches, the optimizer and the gradient reduction take less than this share of a step."""
_MIN_OUTLIER: Final = 0.4
_OUTLIER_SPREADS: Final = 5.0
_MIN_DIGITS: Final = 4
"""Two measurements may agree in fewer digits by chance."""
_MIN_NEIGHBOURS: Final = 4
"""Fewer neighbours do not define an outlier."""
_SWAP_FITS: Final = 0.03
_SWAP_FAR: Final = math.log(3)
_SWAP_NEAR: Final = math.log(1.5)
"""Without neighbours, swapped figures are far from the table's usual TFLOPs, and near them once exchanged."""


def reprints(evidence: Evidence) -> Iterator[Finding]:
    """Two runs never agree in every one of many digits: such a row is a reprint of one measurement."""
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
        words = f"same run and same figures ({figures(printed)}) as line {before.row.line}"
        sure = sum(character.isdigit() for character in (texts[0] or texts[1] or texts[2]).lstrip("0.")) >= _MIN_DIGITS
        exclude = f"a reprint of line {before.row.line}" if sure else ""
        yield about(
            case.row,
            "reprint",
            "warning" if sure else "advice",
            message=words,
            suggestion="count the measurement once",
            others=[before.row],
            exclude=exclude,
        )


def _memory(case: PrintedRow) -> str:
    return measured_texts(case.row)[2]


def swapped(evidence: Evidence) -> Iterator[Finding]:
    """Seconds and TFLOPs are in their own columns.

    Swapping them keeps their product, so only other rows reveal it: once exchanged, the figures agree with those of an
    equal run or of similar rows.
    """
    twins = _twins(evidence)
    usual = evidence.usual_share
    for index, case in evidence.fitting:
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
        expected = evidence.expected.get(index)
        exchanged = partial(about, row, check="swapped", severity="error", suggestion=_exchange(cells), cells=cells)
        if mirrored:
            if not _odd_one(evidence, case, mirrored[0]):
                continue
            message = f"{_both(case)} are swapped compared with line {mirrored[0].line}, the same run"
            yield exchanged(message=message, others=[mirrored[0].row])
        elif expected is None and usual:
            printed, turned = (abs(math.log(value * 1e12 / case.peak / usual)) for value in (rate, seconds))
            if printed > _SWAP_FAR and turned < _SWAP_NEAR:
                rate_words = f"{usual * case.peak / 1e12:.3g} TFLOPs"
                words = f"the rows of the table reach about {rate_words}"
                yield exchanged(message=f"{_both(case)} are probably swapped: {words}")
        elif expected:
            printed, turned = (abs(math.log(value / expected.seconds)) for value in (seconds, rate))
            fits = _SWAP_FITS if expected.nearest < 0.2 else max(0.1, 2 * expected.spread)
            if turned <= fits and printed >= max(3 * fits, 0.05, 4 * expected.spread if expected.nearest else 0.0):
                words = f"similar rows take about {expected.seconds:.4g} s"
                yield exchanged(message=f"{_both(case)} are probably swapped: {words}")


def _both(case: PrintedRow) -> str:
    return f"seconds {case.text('sec_per_iter')} and TFLOPs {case.text('tflops')}"


def _exchange(cells: dict[str, str]) -> str:
    return f"sec_per_iter={cells['sec_per_iter']}, tflops={cells['tflops']}"


def _odd_one(evidence: Evidence, case: PrintedRow, twin: PrintedRow) -> bool:
    """Return whether this is the wrong one of two rows with swapped figures: by other rows, else the later one."""
    away = [
        abs(_slowness(one) - usual) if (usual := _between(evidence, one)) is not None else 0.0 for one in (case, twin)
    ]
    return away[0] > away[1] or (away[0] == away[1] and case.row.index > twin.row.index)


def _between(evidence: Evidence, case: PrintedRow) -> float | None:
    """Return the slowness that the next smaller and next larger micro batch of the topology predict for a row."""
    own = case.run.topology
    near: dict[bool, tuple[float, float]] = {}
    for _, other in evidence.fitting:
        other_topology = other.run.topology
        same = replace(other_topology, micro_batch=own.micro_batch) == own and other.run.workload == case.run.workload
        if (
            same
            and other_topology.micro_batch != own.micro_batch
            and other.row.timed
            and other.row.group == case.row.group
        ):
            step = math.log2(other_topology.micro_batch / own.micro_batch)
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
    """The same run, measured twice in one group, takes about the same time."""
    for cases in _twins(evidence).values():
        first: dict[tuple[str, str], PrintedRow] = {}
        for case in cases:
            if not case.row.timed:
                continue
            before = first.setdefault((case.row.group, case.note_words), case)
            off = math.log(case.seconds / before.seconds)
            if abs(off) > _MAX_REPEAT_DIFFERENCE + case.rounding("sec_per_iter") + before.rounding("sec_per_iter"):
                message = (
                    f"{case.text('sec_per_iter')} s, but line {before.line}, the same run, has "
                    f"{before.text('sec_per_iter')} s"
                )
                yield about(
                    case.row,
                    "repeat",
                    "advice",
                    message=message,
                    suggestion="measure it again, or state what differed",
                    others=[before.row],
                )


def batches(evidence: Evidence) -> Iterator[Finding]:
    """Seconds are linear in the number of microbatches: fixed cost >= 0, and less than half of a step."""
    chains: dict[Any, list[PrintedRow]] = {}
    for _, case in evidence.fitting:
        if case.row.timed:
            workload = replace(case.run.workload, global_batch=1)
            chains.setdefault((case.row.group, case.note_words, workload, *case.identity[1:]), []).append(case)
    for chain in chains.values():
        for case in chain:
            others = [other for other in chain if other.run.workload.global_batch != case.run.workload.global_batch]
            against = [other for other in others if _contradict(case, other)]
            if not against or 2 * len(against) <= len(others) or not _blamed(evidence, case, against):
                continue
            other = against[0]
            off = _slowness(case) - _slowness(other)
            message = (
                f"{case.text('sec_per_iter')} s at gbs {case.run.workload.global_batch} is {abs(math.expm1(off)):.0%} "
                f"{'more' if off > 0 else 'less'} time per sample than at gbs {other.run.workload.global_batch} with "
                f"the same topology (line {other.line}), pipeline bubble removed"
            )
            suggestion = "measure it again; the seconds are probably from another run or batch"
            reason = "its time per sample contradicts other batches of the same topology"
            rows = [other.row for other in others]
            yield about(
                case.row, "batch-time", "warning", message=message, suggestion=suggestion, others=rows, exclude=reason
            )


def _contradict(case: PrintedRow, other: PrintedRow) -> bool:
    """Return whether two batches imply an impossible fixed cost, given rounding and noise."""
    small, large = sorted((case, other), key=lambda one: one.microbatches)
    first, second = (one.microbatches * one.bubble for one in (small, large))
    if small.microbatches < _MIN_NEIGHBOURS or second < 1.1 * first:
        return False
    span, ratio = second - first, large.seconds / small.seconds
    fixed = (second - first * ratio) / span
    noise = [_RUN_NOISE + one.rounding("sec_per_iter") for one in (small, large)]
    tolerance = (noise[0] * second + noise[1] * first * ratio) / span
    return fixed > _MAX_FIXED_SHARE + tolerance or fixed < -tolerance


def _slowness(case: PrintedRow) -> float:
    return math.log(case.seconds) - log_work(case)


def _blamed(evidence: Evidence, case: PrintedRow, against: list[PrintedRow]) -> bool:
    """Return whether this row is wrong and not those it contradicts: by majority, else by other rows."""
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

    own, other_topology = away(case), away(other)
    return own > other_topology or (own == other_topology and _slowness(case) > _slowness(other))


def outliers(evidence: Evidence) -> Iterator[Finding]:
    """A row takes about the time per FLOP of several similar rows."""
    for index, case in evidence.fitting:
        expected, row = evidence.expected.get(index), case.row
        if expected is None or row.seconds is None or expected.neighbours < _MIN_NEIGHBOURS:
            continue
        # Part of a step scales with the FLOPs and part is fixed: the expected time lies between the two predictions.
        offs = (math.log(row.seconds / expected.seconds), math.log(row.seconds / expected.same))
        off = min(offs, key=abs) if offs[0] * offs[1] > 0 else 0.0
        if abs(off) > max(_MIN_OUTLIER, _OUTLIER_SPREADS * expected.spread) + case.rounding("sec_per_iter"):
            message = (
                f"{case.text('sec_per_iter')} s, but {expected.neighbours} similar rows suggest about "
                f"{expected.seconds:.4g} s"
            )
            yield about(
                row,
                "outlier",
                "warning",
                message=message,
                suggestion="check the seconds, the batch and the degrees",
                exclude=f"{math.exp(off):.3g} times the seconds of similar rows",
            )
