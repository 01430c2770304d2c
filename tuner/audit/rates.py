"""Check TFLOPs x seconds x GPUs = FLOPs, and name the mistake where a row violates it.

If a row deviates from its group's convention by a factor, each common mistake is tried with the digits printed; the one
that fits is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuner.audit.evidence import Evidence, Unit, about, short
from tuner.audit.flop_conventions import CONVENTIONS, NEWEST, OLDER, WELL_KNOWN
from tuner.audit.printed_row import PrintedRow, text_of
from tuner.audit.repair import Finding, Repair
from tuner.core.text import counted, either

_EXACT_TOLERANCE: Final = 0.0015
"""Error beyond rounding at which a mistake still explains a row."""
_LOOSE_TOLERANCE: Final = 0.03
_MIN_UNEXPLAINED: Final = 0.035
"""Smaller unexplained errors are ignored: seconds and TFLOPs may be means of different iterations."""
_SEQUENCE: Final = "b seq"
_BATCH: Final = "c batch"
_MIN_EXPLAINED: Final = 0.015
"""Smaller errors are ignored: two swapped digits would explain any of them."""
_MIN_ROWS_BY_OLDER: Final = 3
_NAMED_GROUPS: Final = 4
_SMALL_ODD_PARTS: Final = (1, 3, 5, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that would explain the figures of a row."""

    words: str
    suggestion: str
    cells: dict[str, str]
    error: float
    """Logarithmic error that remains."""
    sort: str


def tflops(evidence: Evidence) -> Iterator[Finding]:
    """TFLOPs x seconds x GPUs equals the FLOPs of an iteration, by the convention of the row's group."""
    by_older = set(_by_older(evidence))
    explained = {
        index: _explanations(evidence, evidence.cases[index], unit)
        for index, unit in evidence.units.items()
        if not unit.allows(evidence.cases[index]) and index not in by_older
    }
    votes = Counter(
        (evidence.cases[index].row.group, sort)
        for index, mistakes in explained.items()
        for sort in {mistake.sort for mistake in mistakes}
    )
    for index, mistakes in explained.items():
        case, unit = evidence.cases[index], evidence.units[index]
        if abs(unit.error(case)) < (_MIN_EXPLAINED if mistakes else _MIN_UNEXPLAINED):
            continue
        # A halved sequence and a halved batch look alike in a count without attention: the one that explains more rows
        # of the group wins; both are named if they explain equally many.
        most = max((votes[case.row.group, mistake.sort] for mistake in mistakes), default=0)
        yield _finding(evidence, case, unit, [m for m in mistakes if votes[case.row.group, m.sort] == most])


def _explanations(evidence: Evidence, case: PrintedRow, unit: Unit) -> list[Mistake]:
    """Return the mistakes of the likeliest sort that explain a row; sequence and batch count as one sort."""
    found = sorted(_mistakes(evidence, case, unit), key=lambda mistake: mistake.sort)
    tolerance = _EXACT_TOLERANCE + case.rate_rounding + 3 * unit.spread
    exact = [mistake for mistake in found if abs(mistake.error) <= tolerance]
    likely = exact or [
        mistake for mistake in found if abs(mistake.error) <= _LOOSE_TOLERANCE and mistake.sort == _SEQUENCE
    ]
    alike = (_SEQUENCE, _BATCH)
    return [m for m in likely if m.sort == likely[0].sort or {m.sort, likely[0].sort} == set(alike)]


def _finding(evidence: Evidence, case: PrintedRow, unit: Unit, mistakes: list[Mistake]) -> Finding:
    row, error = case.row, unit.error(case)
    words = (
        f"{text_of(row, 'tflops')} TFLOPs x {text_of(row, 'sec_per_iter')} s x {counted(case.gpus, 'GPU')} is "
        f"{math.exp(error):.4g} times the FLOPs"
    )
    if not mistakes:
        return _unexplained(evidence, case, unit, f"{words} of an iteration")
    message = f"{words}: {either(dict.fromkeys(mistake.words for mistake in mistakes))}"
    suggestion = either(dict.fromkeys(mistake.suggestion for mistake in mistakes))
    if len({mistake.suggestion for mistake in mistakes}) == 1:
        return about(row, "tflops", "error", message=message, suggestion=suggestion, cells=mistakes[0].cells)
    reason = "its TFLOPs and seconds disagree, and several mistakes would explain it"
    return about(row, "tflops", "error", message=message, suggestion=suggestion, exclude=reason)


def _mistakes(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    """Yield every candidate mistake with the error that it leaves."""
    yield from _other_conventions(case, unit)
    yield from _other_sequences(case, unit)
    yield from _other_batches(evidence, case, unit)
    yield from _other_scales(evidence, case, unit)
    yield from _exchanged_digits(case, unit)


def _other_conventions(case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    right = _tflops_of(case, unit)
    for number in WELL_KNOWN:
        convention = CONVENTIONS[number]
        error = Unit(convention=number, factor=0.0, spread=0.0).error(case)
        if number != unit.convention and abs(unit.error(case) - error) > 0.01:
            words = f"they count {convention.words}, but the other rows count {CONVENTIONS[unit.convention].words}"
            sort = "a older" if number == OLDER else "d convention"
            yield Mistake(words=words, suggestion=f"tflops={right}", cells={"tflops": right}, error=error, sort=sort)


def _other_sequences(case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    seq = case.run.workload.model.seq
    for other in (seq // 4, seq // 2, seq * 2, seq * 4):
        changed = case.altered(seq=str(other)) if other else None
        if changed is None:
            continue
        error, right = unit.error(changed), _tflops_of(case, unit)
        words = f"they were computed with sequence {other} instead of {seq}"
        batch = case.run.workload.global_batch
        if abs(error) > _EXACT_TOLERANCE + case.rate_rounding and abs(error) <= _LOOSE_TOLERANCE:
            words += f", and with a batch of about {batch * math.exp(error):.0f} instead of {batch}"
        yield Mistake(words=words, suggestion=f"tflops={right}", cells={"tflops": right}, error=error, sort=_SEQUENCE)


def _other_batches(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    batch = case.run.workload.global_batch
    implied = batch * math.exp(unit.error(case))
    others = {other.run.workload.global_batch for other in evidence.cases.values()}
    for size in {round(implied), *(other for other in others if abs(other / implied - 1) < 0.02)}:
        step = case.run.topology.step_batch
        if size < 1 or size == batch or size % step or not (size in others or _usual(size)):
            continue
        error = math.log(implied / size)
        words = f"they are for a batch of {size}, not {batch}"
        yield Mistake(words=words, suggestion=f"gbs={size}", cells={"gbs": str(size)}, error=error, sort=_BATCH)


def _usual(batch: int) -> bool:
    """Return whether a batch size is common: 1, 3, 5 or 7 times a power of two."""
    odd = batch
    while odd % 2 == 0:
        odd //= 2
    return odd in _SMALL_ODD_PARTS


def _other_scales(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    """A shifted decimal point, milliseconds, or the total of all GPUs."""
    error = unit.error(case)
    if case.gpus > 1:
        right = _tflops_of(case, unit)
        words = f"they are the total of all {case.gpus} GPUs"
        yield Mistake(
            words=words,
            suggestion=f"tflops={right}",
            cells={"tflops": right},
            error=error - math.log(case.gpus),
            sort="e whole",
        )
    for scale in (0.001, 0.01, 0.1, 10.0, 100.0, 1000.0):
        column = "sec_per_iter" if _seconds_slipped(evidence, case, scale) else "tflops"
        number = (case.flops / 1e12 if column == "tflops" else case.seconds) / scale
        milliseconds = scale == 1000 and column == "sec_per_iter"
        yield Mistake(
            words="milliseconds instead of seconds" if milliseconds else "a shifted decimal point",
            suggestion=f"{column}={number:.6g}",
            cells={column: f"{number:.6g}"},
            error=error - math.log(scale),
            sort="f scale",
        )


def _seconds_slipped(evidence: Evidence, case: PrintedRow, scale: float) -> bool:
    """Return whether a wrong factor is in the seconds: by the neighbours' times, else by the table's TFLOPs."""
    expected = evidence.expected.get(case.row.index)
    if expected:
        return abs(math.log(case.seconds / scale / expected.seconds)) < abs(math.log(case.seconds / expected.seconds))
    usual = evidence.usual_share or 0.3
    share = case.flops / case.peak
    return abs(math.log(share / usual)) <= abs(math.log(share / scale / usual))


def _exchanged_digits(case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    for column in ("tflops", "sec_per_iter"):
        text = text_of(case.row, column) if column in case.row.cells else ""
        for index in range(len(text) - 1):
            pair = text[index : index + 2]
            if not pair.isdigit() or pair[0] == pair[1]:
                continue
            other = text[:index] + pair[::-1] + text[index + 2 :]
            error = (
                unit.error(case) + math.log(float(other) / float(text)) if float(other) and float(text) else math.inf
            )
            words = f"two digits of {text} are swapped"
            yield Mistake(
                words=words, suggestion=f"{column}={other}", cells={column: other}, error=error, sort="g digits"
            )


def _unexplained(evidence: Evidence, case: PrintedRow, unit: Unit, words: str) -> Finding:
    """Return a finding without a known mistake; the neighbours' times may show which figure is wrong."""
    row = case.row
    right = _tflops_of(case, unit)
    seconds = short(case.seconds * math.exp(-unit.error(case)))
    expected = evidence.expected.get(row.index)
    suggestion = f"tflops={right} from its seconds, or sec_per_iter={seconds} from its TFLOPs"
    if expected and expected.neighbours >= 2:
        printed_off = abs(math.log(case.seconds / expected.seconds))
        implied_off = abs(math.log(float(seconds) / expected.seconds))
        tolerance = max(0.05, 3 * expected.spread)
        for agreeing, off, other_off, column, repaired in (
            ("seconds", printed_off, implied_off, "tflops", right),
            ("TFLOPs", implied_off, printed_off, "sec_per_iter", seconds),
        ):
            if off < tolerance and other_off > 2 * tolerance:
                return about(
                    row,
                    "tflops",
                    "error",
                    message=f"{words}; its {agreeing} agree with similar rows",
                    suggestion=f"{column}={repaired}",
                    cells={column: repaired},
                )
    return about(
        row, "tflops", "error", message=words, suggestion=suggestion, exclude="its TFLOPs and seconds disagree"
    )


def _tflops_of(case: PrintedRow, unit: Unit) -> str:
    """Return the TFLOPs that the row's seconds give by its group's convention."""
    return f"{case.flops / 1e12 * math.exp(-unit.error(case)):.5g}"


def _by_older(evidence: Evidence) -> list[int]:
    """Return the rows of groups in which several follow the older formula; a single row is reported by `tflops`."""
    unit = Unit(convention=OLDER, factor=0.0, spread=0.0)
    following = [
        index
        for index, usual in evidence.units.items()
        if unit.allows(evidence.cases[index]) and (usual.convention == OLDER or not usual.allows(evidence.cases[index]))
    ]
    many = Counter(evidence.cases[index].row.group for index in following)
    return [
        index
        for index in following
        if evidence.units[index].convention == OLDER or many[evidence.cases[index].row.group] >= _MIN_ROWS_BY_OLDER
    ]


def older(evidence: Evidence) -> Iterator[Finding]:
    """TFLOPs by the older formula are not comparable with others; reported once for all rows of a table."""
    indices = _by_older(evidence)
    if not indices:
        return
    newest = Unit(convention=NEWEST, factor=0.0, spread=0.0)
    cases = [evidence.cases[index] for index in indices]
    repairs = tuple(Repair(row=case.row.index, cells={"tflops": _tflops_of(case, newest)}) for case in cases)
    ratio = math.exp(sorted(newest.error(case) for case in cases)[len(cases) // 2])
    names = list(dict.fromkeys(case.row.group for case in cases))  # which may contain commas
    groups = "; ".join([*names[:_NAMED_GROUPS], *[f"{len(names) - _NAMED_GROUPS} more"] * (len(names) > _NAMED_GROUPS)])
    yield Finding(
        row=None,
        line=cases[0].row.line,
        check="older-unit",
        severity="warning",
        message=(
            f"the TFLOPs of {counted(len(indices), 'row')} ({groups}) follow {CONVENTIONS[OLDER].words}: "
            f"{ratio:.3f} of the hardware FLOPs"
        ),
        suggestion="recompute them from the seconds before comparing",
        rows=tuple(indices),
        repairs=repairs,
    )
