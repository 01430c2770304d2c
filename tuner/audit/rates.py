"""TFLOPs, seconds, GPUs and operations belong together: where three of them contradict the fourth, which one is wrong.

TFLOPs x seconds x GPUs is the count of operations. Where a row is off its group's convention by a factor, the mistakes
that people make are tried, each by counting anew with the digits printed; the one that fits is named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuner.audit.evidence import Evidence, about, short
from tuner.audit.flop_conventions import CONVENTIONS, NEWEST, OLDER, WELL_KNOWN
from tuner.audit.printed_row import PrintedRow, text_of
from tuner.audit.repair import Finding, Repair
from tuner.audit.units import Unit
from tuner.core.text import counted, either, listed

_EXACT: Final = 0.0015
"""What a named mistake may be off beyond rounding."""
_NEARLY: Final = 0.03
_WORTH_SAYING: Final = 0.035
"""Seconds and TFLOPs may be means of different iterations: less than this, and unexplained, is no finding."""
_SEQUENCE: Final = "b seq"
_BATCH: Final = "c batch"
_WORTH_NAMING: Final = 0.015
"""So little is told apart by no mistake: two digits that changed places explain any such difference."""
_MANY: Final = 3
_SMALL_ODD_PARTS: Final = (1, 3, 5, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One explanation of a row's figures."""

    words: str
    suggestion: str
    cells: dict[str, str]
    error: float
    """How far off the figures stay with it."""
    sort: str


def tflops(evidence: Evidence) -> Iterator[Finding]:
    """TFLOPs x seconds x GPUs is the count of operations, by the convention that the row's group follows."""
    by_older = set(_by_older(evidence))
    explained = {
        place: _explanations(evidence, evidence.cases[place], unit)
        for place, unit in evidence.units.items()
        if not unit.allows(evidence.cases[place]) and place not in by_older
    }
    votes = Counter(
        (evidence.cases[place].row.group, sort)
        for place, mistakes in explained.items()
        for sort in {mistake.sort for mistake in mistakes}
    )
    for place, mistakes in explained.items():
        case, unit = evidence.cases[place], evidence.units[place]
        if abs(unit.error(case)) < (_WORTH_NAMING if mistakes else _WORTH_SAYING):
            continue
        # A halved sequence and a halved batch look alike in a count without attention: what explains more rows of the
        # group wins, and where both explain as many, both are named.
        most = max((votes[case.row.group, mistake.sort] for mistake in mistakes), default=0)
        yield _finding(evidence, case, unit, [m for m in mistakes if votes[case.row.group, m.sort] == most])


def _explanations(evidence: Evidence, case: PrintedRow, unit: Unit) -> list[Mistake]:
    """The mistakes that explain a row, of the likeliest sort; of a sequence and a batch both."""
    found = sorted(_mistakes(evidence, case, unit), key=lambda mistake: mistake.sort)
    room = _EXACT + case.rate_rounding + 3 * unit.spread
    exact = [mistake for mistake in found if abs(mistake.error) <= room]
    likely = exact or [mistake for mistake in found if abs(mistake.error) <= _NEARLY and mistake.sort == _SEQUENCE]
    alike = (_SEQUENCE, _BATCH)
    return [m for m in likely if m.sort == likely[0].sort or {m.sort, likely[0].sort} == set(alike)]


def _finding(evidence: Evidence, case: PrintedRow, unit: Unit, mistakes: list[Mistake]) -> Finding:
    row, error = case.row, unit.error(case)
    words = (
        f"{text_of(row, 'tflops')} TFLOPs x {text_of(row, 'sec_per_iter')} s x {counted(case.gpus, 'GPU')} is "
        f"{math.exp(error):.4g} times the operations"
    )
    if not mistakes:
        return _unexplained(evidence, case, unit, f"{words} of an iteration")
    message = f"{words}: {either(dict.fromkeys(mistake.words for mistake in mistakes))}"
    suggestion = either(dict.fromkeys(mistake.suggestion for mistake in mistakes))
    if len({mistake.suggestion for mistake in mistakes}) == 1:
        return about(row, "tflops", "error", message, suggestion, cells=mistakes[0].cells)
    reason = "its TFLOPs and seconds disagree, and more than one mistake explains it"
    return about(row, "tflops", "error", message, suggestion, exclude=reason)


def _mistakes(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    """Every mistake that is worth trying, with what it leaves unexplained."""
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
            words = f"they count {convention.words}, and the rows beside them {CONVENTIONS[unit.convention].words}"
            sort = "a older" if number == OLDER else "d convention"
            yield Mistake(words=words, suggestion=f"tflops={right}", cells={"tflops": right}, error=error, sort=sort)


def _other_sequences(case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    seq = case.run.workload.model.seq
    for other in (seq // 4, seq // 2, seq * 2, seq * 4):
        changed = case.altered(seq=str(other)) if other else None
        if changed is None:
            continue
        error, right = unit.error(changed), _tflops_of(case, unit)
        words = f"they were computed with sequence {other} in place of {seq}"
        batch = case.run.workload.global_batch
        if abs(error) > _EXACT + case.rate_rounding and abs(error) <= _NEARLY:
            words += f", and with a batch of about {batch * math.exp(error):.0f} in place of {batch}"
        yield Mistake(words=words, suggestion=f"tflops={right}", cells={"tflops": right}, error=error, sort=_SEQUENCE)


def _other_batches(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    batch = case.run.workload.global_batch
    implied = batch * math.exp(unit.error(case))
    others = {other.run.workload.global_batch for other in evidence.cases.values()}
    for size in {round(implied), *(other for other in others if abs(other / implied - 1) < 0.02)}:
        step = case.run.topology.dp * case.run.topology.micro_batch
        if size < 1 or size == batch or size % step or not (size in others or _usual(size)):
            continue
        error = math.log(implied / size)
        words = f"they belong to a batch of {size} and not {batch}"
        yield Mistake(words=words, suggestion=f"gbs={size}", cells={"gbs": str(size)}, error=error, sort=_BATCH)


def _usual(batch: int) -> bool:
    """Whether people choose such a batch: a power of two, or a few times one."""
    odd = batch
    while odd % 2 == 0:
        odd //= 2
    return odd in _SMALL_ODD_PARTS


def _other_scales(evidence: Evidence, case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    """A decimal point, milliseconds, or the whole machine's operations in place of one GPU's."""
    error = unit.error(case)
    if case.gpus > 1:
        right = _tflops_of(case, unit)
        words = f"they are of all {case.gpus} GPUs together"
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
            words="milliseconds in place of seconds" if milliseconds else "a decimal point slipped",
            suggestion=f"{column}={number:.6g}",
            cells={column: f"{number:.6g}"},
            error=error - math.log(scale),
            sort="f scale",
        )


def _seconds_slipped(evidence: Evidence, case: PrintedRow, scale: float) -> bool:
    """Whether a factor in TFLOPs x seconds is the seconds': by the neighbours' times, or else by the table's TFLOPs."""
    expected = evidence.expected.get(case.row.index)
    if expected:
        return abs(math.log(case.seconds / scale / expected.seconds)) < abs(math.log(case.seconds / expected.seconds))
    usual = evidence.usual_share or 0.3
    share = case.flops / case.peak
    return abs(math.log(share / usual)) <= abs(math.log(share / scale / usual))


def _exchanged_digits(case: PrintedRow, unit: Unit) -> Iterator[Mistake]:
    for column in ("tflops", "sec_per_iter"):
        text = text_of(case.row, column)
        for place in range(len(text) - 1):
            pair = text[place : place + 2]
            if not pair.isdigit() or pair[0] == pair[1]:
                continue
            other = text[:place] + pair[::-1] + text[place + 2 :]
            error = (
                unit.error(case) + math.log(float(other) / float(text)) if float(other) and float(text) else math.inf
            )
            words = f"two digits of {text} changed places"
            yield Mistake(
                words=words, suggestion=f"{column}={other}", cells={column: other}, error=error, sort="g digits"
            )


def _unexplained(evidence: Evidence, case: PrintedRow, unit: Unit, words: str) -> Finding:
    """No known mistake: the neighbours' times may tell which of the two figures is wrong."""
    row = case.row
    right = _tflops_of(case, unit)
    seconds = short(case.seconds * math.exp(-unit.error(case)))
    expected = evidence.expected.get(row.index)
    suggestion = f"tflops={right} by its seconds, or sec_per_iter={seconds} by its TFLOPs"
    if expected and expected.neighbours >= 2:
        printed_off = abs(math.log(case.seconds / expected.seconds))
        implied_off = abs(math.log(float(seconds) / expected.seconds))
        room = max(0.05, 3 * expected.spread)
        if printed_off < room and implied_off > 2 * room:
            return about(
                row,
                "tflops",
                "error",
                f"{words}; its seconds fit its neighbours",
                f"tflops={right}",
                cells={"tflops": right},
            )
        if implied_off < room and printed_off > 2 * room:
            return about(
                row,
                "tflops",
                "error",
                f"{words}; its TFLOPs fit its neighbours",
                f"sec_per_iter={seconds}",
                cells={"sec_per_iter": seconds},
            )
    return about(row, "tflops", "error", words, suggestion, exclude="its TFLOPs and seconds disagree")


def _tflops_of(case: PrintedRow, unit: Unit) -> str:
    """What the group's convention makes of the row's seconds."""
    return f"{case.flops / 1e12 * math.exp(-unit.error(case)):.5g}"


def _by_older(evidence: Evidence) -> list[int]:
    """The rows by the older estimate that are many in their group; one among others is a mistake of its own."""
    unit = Unit(convention=OLDER, factor=0.0, spread=0.0)
    following = [
        place
        for place, usual in evidence.units.items()
        if unit.allows(evidence.cases[place]) and (usual.convention == OLDER or not usual.allows(evidence.cases[place]))
    ]
    many = Counter(evidence.cases[place].row.group for place in following)
    return [
        place
        for place in following
        if evidence.units[place].convention == OLDER or many[evidence.cases[place].row.group] >= _MANY
    ]


def older(evidence: Evidence) -> Iterator[Finding]:
    """Figures by the older estimate are not comparable with others: said once, for all rows of a table."""
    places = _by_older(evidence)
    if not places:
        return
    newest = Unit(convention=NEWEST, factor=0.0, spread=0.0)
    cases = [evidence.cases[place] for place in places]
    repairs = tuple(Repair(row=case.row.index, cells={"tflops": _tflops_of(case, newest)}) for case in cases)
    ratio = math.exp(sorted(newest.error(case) for case in cases)[len(cases) // 2])
    groups = listed(dict.fromkeys(case.row.group for case in cases), limit=4)
    yield Finding(
        row=None,
        line=cases[0].row.line,
        check="older-unit",
        severity="warning",
        message=(
            f"the TFLOPs of {counted(len(places), 'row')} ({groups}) are by {CONVENTIONS[OLDER].words}, {ratio:.3f} of "
            "what the GPUs compute"
        ),
        suggestion="recompute them from the seconds before comparing them with others",
        rows=tuple(places),
        repairs=repairs,
    )
