"""Check the text of a report against its tables: formulas, stated values, corrections."""

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
from tuner.tables.markdown import Context

_BATCH: Final = ("gbs", "bs", "batch", "batch_size", "global_batch", "global_batch_size")
_SEQUENCE: Final = ("seq", "seqlen", "seq_len", "seq_length", "sequence", "s", "sl")
_GPUS: Final = ("ng", "gpus", "ngpus", "n_gpus", "num_gpus", "world_size", "ws")
_SIZE: Final = ("ms", "size", "model_size", "params", "n_params")
_MODEL: Final = re.compile(r"\b([0-9]+(?:\.[0-9]+)?\s?B)(?:illion)?(?:[- ]parameters?)?\s+model\b")
_CORRECTION: Final = re.compile(
    r"\b(really|actually|in fact|mistaken?(ly)?|incorrect(ly)?|wrong(ly)?|invalid|instead|error)\b", re.IGNORECASE
)
_MAX_LINES_APART: Final = 40
"""A formula and its row are at most this many lines apart."""
_MIN_SIZE_DIFFERENCE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValues:
    """The values that apply at a line, and its heading."""

    heading: str
    values: Mapping[str, str]
    line_stated: Mapping[str, int]


def stated_by_line(lines: tuple[str, ...]) -> list[StatedValues]:
    """Return the values that apply at each line of a report."""
    context, found = Context(), []
    for number, line in enumerate(lines, start=1):
        if not line.strip().startswith("|"):
            context.read(number, line.strip())
        found.append(
            StatedValues(heading=context.heading, values=dict(context.workload), line_stated=dict(context.stated))
        )
    return found


def formulas(evidence: Evidence) -> Iterator[Finding]:
    """A formula in a report uses the sequence, batch, GPUs and size that the report states."""
    stated = stated_by_line(evidence.table.lines)
    for formula in formulas_in(evidence.table.lines):
        row = _row_of(evidence, formula)
        wrong = _wrong_factors(evidence, formula, stated[formula.line - 1], row)
        if not wrong:
            continue
        right = formula.result
        for _, used, meant in wrong:
            right *= meant / used
        words = listed(f"{name} {used:g} where {meant:g} is stated" for name, used, meant in wrong)
        message = f"the formula in line {formula.line} uses {words}: {formula.result:.4g} instead of {right:.4g}"
        if row is not None:
            yield about(
                row,
                "formula",
                "error",
                message=message,
                suggestion=f"tflops={right:.4g}",
                cells={"tflops": f"{right:.4g}"},
            )
        else:
            suggestion = "recompute it"
            yield Finding(
                row=None, line=formula.line, check="formula", severity="error", message=message, suggestion=suggestion
            )


def _row_of(evidence: Evidence, formula: Formula) -> Row | None:
    """Return the row of a formula: near it, with its seconds among the factors and its TFLOPs as the result."""
    for case in sorted(evidence.cases.values(), key=lambda case: abs(case.row.line - formula.line)):
        row = case.row
        if row.seconds is None or row.tflops is None or abs(row.line - formula.line) > _MAX_LINES_APART:
            continue
        tolerance = 0.001 + case.rounding("tflops")
        if (
            any(factor.value == row.seconds for factor in formula.below)
            and abs(formula.result / (row.tflops / 1e12) - 1) < tolerance
        ):
            return row
    return None


def _wrong_factors(
    evidence: Evidence, formula: Formula, stated: StatedValues, row: Row | None
) -> list[tuple[str, float, float]]:
    """Return name, value used and value stated of each factor that contradicts the report around it."""
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
        # GPUs are in the denominator, so the correction is inverse.
        wrong.append(("1/GPUs", 1 / used.value, 1 / case.gpus))
    size = size_of(stated.values.get("size", ""))
    if size and (used := _named(rest, _SIZE)):
        billions = size / 1e9 if used.value < 1e6 else size
        if abs(used.value / billions - 1) > _MIN_SIZE_DIFFERENCE:
            wrong.append(("size", used.value, billions))
    return wrong


def _named(factors: list[Factor] | tuple[Factor, ...], names: tuple[str, ...]) -> Factor | None:
    return next((factor for factor in factors if factor.name in names), None)


def _stated(above: StatedValues, case: PrintedRow | None, column: str) -> float | None:
    text = case.row.cells.get(column) if case else above.values.get(column)
    try:
        return float(text) if text else None
    except ValueError:
        return None


def stated_values(evidence: Evidence) -> Iterator[Finding]:
    """A value stated directly above a table is that of at least one of its rows."""
    stated = stated_by_line(evidence.table.lines)
    for block in _blocks(evidence):
        start = block[0].line - 1
        above = stated[start - 1]
        for column in ("gbs", "hidden", "layers", "seq", "heads"):
            line_stated = above.line_stated.get(column, -9)
            own = {row.cells[column] for row in block if column in row.cells}
            value = above.values.get(column)
            if (
                start - line_stated <= 6
                and value
                and len(own) == 1
                and value not in own
                and _printed(evidence, block, column)
            ):
                message = (
                    f"line {line_stated} states {column} {value}, but all rows of the table below have {own.pop()}"
                )
                yield Finding(
                    row=None, line=line_stated, check="stated-value", severity="warning", message=message,
                    suggestion=f"check which is right, for example by the TFLOPs: {column}={value} or the column",
                    rows=tuple(row.index for row in block),
                )  # fmt: skip


def _blocks(evidence: Evidence) -> Iterator[list[Row]]:
    """Yield the rows of each table of a report."""
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
    """Return whether the table itself has the column, so that its values are not taken from the line above."""
    from tuner.tables.headers import header_of

    for line in reversed(evidence.table.lines[: block[0].line - 1]):
        if not line.strip().startswith("|"):
            return False
        if column in (header_of(cell).column for cell in line.strip().strip("|").split("|")):
            return True
    return False


def corrections(evidence: Evidence) -> Iterator[Finding]:
    """The rows of a section are of the model that its text names; text that corrects the model contradicts them."""
    stated = stated_by_line(evidence.table.lines)
    for number, line in enumerate(evidence.table.lines, start=1):
        if line.strip().startswith("|") or not _CORRECTION.search(line):
            continue
        heading = stated[number - 1].heading
        cases = [case for case in evidence.cases.values() if stated[case.row.line - 1].heading == heading]
        for text in _MODEL.findall(line):
            named_size = size_of(text)
            sizes = [case.run.workload.model.parameters for case in cases]
            if named_size and sizes and all(abs(math.log(named_size / size)) > _MIN_SIZE_DIFFERENCE for size in sizes):
                yield _correction(evidence, number, text, named_size, cases)


def _correction(evidence: Evidence, number: int, text: str, named_size: float, cases: list[PrintedRow]) -> Finding:
    model = cases[0].run.workload.model
    message = f"the text says that a {text} model was run, but {shape_words(model)}"
    elsewhere = [
        f"{case.text('sec_per_iter')} s (line {case.line}), but the same run takes {other.text('sec_per_iter')} "
        f"s in line {other.line}"
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
    suggestion = "remove these rows or correct their shape"
    if wider:
        parameters_per_ffn = (wider.run.workload.model.parameters - model.parameters) / 1024
        ffn = model.ffn - (model.parameters - named_size) / parameters_per_ffn
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
