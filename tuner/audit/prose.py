"""What a report says outside its tables, held against them: its formulas, its stated values, its own corrections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tuner.audit.evidence import Evidence, about
from tuner.audit.formulas import Factor, Formula, formulas_in
from tuner.audit.printed_row import PrintedRow, shape_words
from tuner.audit.repair import Finding, Repair
from tuner.core.text import listed
from tuner.tables import Row
from tuner.tables.column_aliases import size_of
from tuner.tables.context import Context

_BATCH: Final = ("gbs", "bs", "batch", "batch_size", "global_batch", "global_batch_size")
_SEQUENCE: Final = ("seq", "seqlen", "seq_len", "seq_length", "sequence", "s", "sl")
_GPUS: Final = ("ng", "gpus", "ngpus", "n_gpus", "num_gpus", "world_size", "ws")
_SIZE: Final = ("ms", "size", "model_size", "params", "n_params")
_MODEL: Final = re.compile(r"\b([0-9]+(?:\.[0-9]+)?\s?B)(?:illion)?(?:[- ]parameters?)?\s+model\b")
_CORRECTION: Final = re.compile(
    r"\b(really|actually|in fact|mistaken?(ly)?|incorrect(ly)?|wrong(ly)?|invalid|instead|error)\b", re.IGNORECASE
)
_NEAR: Final = 40
"""Lines around a formula in which the row stands that it was made for."""
_OTHER_SIZE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValues:
    """What is stated at a line, and under which heading."""

    heading: str
    values: Mapping[str, str]
    said_at: Mapping[str, int]


def places(lines: tuple[str, ...]) -> list[StatedValues]:
    """What holds at each line of a report."""
    context, found = Context(), []
    for number, line in enumerate(lines, start=1):
        if not line.strip().startswith("|"):
            context.read(number, line.strip())
        found.append(StatedValues(heading=context.heading, values=dict(context.workload), said_at=dict(context.stated)))
    return found


def formulas(evidence: Evidence) -> Iterator[Finding]:
    """A formula that a report shows is computed with the sequence, batch, GPUs and size that the report states."""
    stated = places(evidence.table.lines)
    for formula in formulas_in(evidence.table.lines):
        row = _row_of(evidence, formula)
        wrong = _wrong_factors(evidence, formula, stated[formula.line - 1], row)
        if not wrong:
            continue
        right = formula.result
        for _, used, meant in wrong:
            right *= meant / used
        words = listed(f"{name} {used:g} where {meant:g} is stated" for name, used, meant in wrong)
        message = (
            f"the formula in line {formula.line} is computed with {words}: {formula.result:.4g} in place of {right:.4g}"
        )
        if row is not None:
            yield about(row, "formula", "error", message, f"tflops={right:.4g}", cells={"tflops": f"{right:.4g}"})
        else:
            suggestion = "compute it anew"
            yield Finding(
                row=None, line=formula.line, check="formula", severity="error", message=message, suggestion=suggestion
            )


def _row_of(evidence: Evidence, formula: Formula) -> Row | None:
    """The row that a formula was made for: near it, with its seconds among the factors and its result as TFLOPs."""
    for case in sorted(evidence.cases.values(), key=lambda case: abs(case.row.line - formula.line)):
        row = case.row
        if row.seconds is None or row.tflops is None or abs(row.line - formula.line) > _NEAR:
            continue
        room = 0.001 + case.rounding("tflops")
        if (
            any(factor.value == row.seconds for factor in formula.below)
            and abs(formula.result / (row.tflops / 1e12) - 1) < room
        ):
            return row
    return None


def _wrong_factors(
    evidence: Evidence, formula: Formula, stated: StatedValues, row: Row | None
) -> list[tuple[str, float, float]]:
    """Name, value used and value stated of each factor that is not what the report says around it."""
    case = evidence.cases.get(row.index) if row else None
    batch, seq = _stated(stated, case, "gbs"), _stated(stated, case, "seq")
    wrong = []
    rest = list(formula.above)
    if used := _named(rest, _BATCH) or next((f for f in rest if batch and f.value == batch and f.value != seq), None):
        rest.remove(used)
        if batch and used.value != batch:
            wrong.append(("batch", used.value, batch))
    if seq and not any(factor.value == seq for factor in rest):
        likely = (seq / 4, seq / 2, seq * 2, seq * 4)
        used = _named(rest, _SEQUENCE) or next((f for f in rest if f.value in likely and f.value >= 64), None)
        if used:
            wrong.append(("sequence", used.value, seq))
    if case and (used := _named(formula.below, _GPUS)) and used.value != case.gpus:
        # More GPUs below the line make fewer TFLOPs, so it goes the other way round.
        wrong.append(("1/GPUs", 1 / used.value, 1 / case.gpus))
    size = size_of(stated.values.get("size", ""))
    if size and (used := _named(rest, _SIZE)):
        billions = size / 1e9 if used.value < 1e6 else size
        if abs(used.value / billions - 1) > _OTHER_SIZE:
            wrong.append(("size", used.value, billions))
    return wrong


def _named(factors: list[Factor] | tuple[Factor, ...], names: tuple[str, ...]) -> Factor | None:
    return next((factor for factor in factors if factor.name in names), None)


def _stated(place: StatedValues, case: PrintedRow | None, column: str) -> float | None:
    text = case.row.cells.get(column) if case else place.values.get(column)
    try:
        return float(text) if text else None
    except ValueError:
        return None


def stated_values(evidence: Evidence) -> Iterator[Finding]:
    """A value stated right above a table is that of at least one of its rows."""
    stated = places(evidence.table.lines)
    for block in _blocks(evidence):
        start = block[0].line - 1
        place = stated[start - 1]
        for column in ("gbs", "hidden", "layers", "seq", "heads"):
            said_at = place.said_at.get(column, -9)
            own = {row.cells[column] for row in block if column in row.cells}
            value = place.values.get(column)
            if (
                start - said_at <= 6
                and value
                and len(own) == 1
                and value not in own
                and _printed(evidence, block, column)
            ):
                message = f"line {said_at} states {column} {value}, and all rows of the table below have {own.pop()}"
                yield Finding(
                    row=None, line=said_at, check="stated-value", severity="warning", message=message,
                    suggestion=f"see which holds: the TFLOPs may tell; {column}={value} or the column's",
                    rows=tuple(row.index for row in block),
                )  # fmt: skip


def _blocks(evidence: Evidence) -> Iterator[list[Row]]:
    """The rows of each table of a report."""
    block: list[Row] = []
    for row in evidence.table.rows:
        if block and any(
            not line.strip().startswith("|") for line in evidence.table.lines[block[-1].line : row.line - 1]
        ):
            yield block
            block = []
        block.append(row)
    if block and evidence.table.lines:
        yield block


def _printed(evidence: Evidence, block: list[Row], column: str) -> bool:
    """Whether the table itself has the column, so that the value does not come from the line above it."""
    from tuner.tables.column_aliases import column_named

    for line in reversed(evidence.table.lines[: block[0].line - 1]):
        if not line.strip().startswith("|"):
            return False
        if column in (column_named(cell) for cell in line.strip().strip("|").split("|")):
            return True
    return False


def corrections(evidence: Evidence) -> Iterator[Finding]:
    """A section whose text says that another model was run than it states holds no rows of that model."""
    stated = places(evidence.table.lines)
    for number, line in enumerate(evidence.table.lines, start=1):
        if line.strip().startswith("|") or not _CORRECTION.search(line):
            continue
        heading = stated[number - 1].heading
        cases = [case for case in evidence.cases.values() if stated[case.row.line - 1].heading == heading]
        for text in _MODEL.findall(line):
            spoken = size_of(text)
            sizes = [case.run.workload.model.parameters for case in cases]
            if spoken and sizes and all(abs(math.log(spoken / size)) > _OTHER_SIZE for size in sizes):
                yield _correction(evidence, number, text, spoken, cases)


def _correction(evidence: Evidence, number: int, text: str, spoken: float, cases: list[PrintedRow]) -> Finding:
    model = cases[0].run.workload.model
    message = f"the text says that a {text} model was run, and {shape_words(model)}"
    elsewhere = [
        f"{case.says('sec_per_iter')} s (line {case.line}) where the stated run takes {other.says('sec_per_iter')} "
        f"elsewhere (line {other.line})"
        for case in cases
        for other in evidence.cases.values()
        if other.identity == case.identity
        and other.row.group != case.row.group
        and other.row.seconds
        and case.row.seconds
    ]
    if elsewhere:
        message += f"; {elsewhere[0]}"
    wider = cases[0].altered(ffn=str(model.ffn + 1024))
    suggestion = "leave these rows out, or correct their shape"
    if wider:
        each = (wider.run.workload.model.parameters - model.parameters) / 1024
        ffn = model.ffn - (model.parameters - spoken) / each
        if ffn > 0:
            suggestion += f": ffn of about {ffn:,.0f} makes {text}"
    return Finding(
        row=None,
        line=number,
        check="other-model",
        severity="error",
        message=message,
        suggestion=suggestion,
        rows=tuple(case.row.index for case in cases),
        repairs=tuple(Repair(row=case.row.index, exclude=f"a {text} model by line {number}") for case in cases),
    )
