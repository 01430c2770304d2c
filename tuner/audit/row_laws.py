"""Laws that a row must keep by itself: its cells, its degrees, its batch, its heads, its size and its status."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuner.audit.evidence import Evidence, about
from tuner.audit.printed_row import PrintedRow, case_of, shape_words, text_of
from tuner.audit.repair import Finding
from tuner.core.text import counted, either
from tuner.tables import Row
from tuner.tables.column_aliases import rounding_of, size_of

_SIZE_ROOM: Final = 0.04


def cells(evidence: Evidence) -> Iterator[Finding]:
    """Every cell is what its column promises: numbers are numbers and positive, words are known."""
    for row in evidence.table.rows:
        if row.run is None and row.skipped and not _degrees(row) and not _without_degrees(row):
            yield about(
                row,
                "cells",
                "error",
                f"the row cannot be read: {row.skipped}",
                "correct the cell, or leave it empty",
                exclude=row.skipped,
            )


def unnamed(evidence: Evidence) -> Iterator[Finding]:
    """A row of a topology names one; tables of a report that compare something else are told once and left out."""
    rows = [row for row in evidence.table.rows if row.run is None and _without_degrees(row)]
    if rows:
        message = f"{counted(len(rows), 'row')} from line {rows[0].line} on name no parallel degree: they are left out"
        yield Finding(
            row=None,
            line=rows[0].line,
            check="no-topology",
            severity="advice",
            message=message,
            suggestion="add columns such as TP, PP and DP",
            rows=tuple(row.index for row in rows),
        )


def _without_degrees(row: Row) -> bool:
    return not {"tp", "pp", "dp"} & row.cells.keys()


def degrees(evidence: Evidence) -> Iterator[Finding]:
    """tp x pp x cp x dp is the number of GPUs; where it is not, the figures often tell which degree was meant."""
    for row in evidence.table.rows:
        degrees = _degrees(row)
        if not degrees or (row.skipped and row.run is not None):
            continue
        there, product = degrees
        if product == there or (product < there and _agrees(evidence, row)):
            continue
        words = f"{_product(row)} = {product} GPUs, and {_machines(row)} have {there}"
        if product < there and "tflops" not in row.cells:
            yield about(row, "degrees", "advice", f"{words}: the others stand idle", "say how many nodes were used")
            continue
        choices = _choices(evidence, row, there)
        if choices:
            column, value, sure = choices[0]
            why = "which makes both the GPUs and the printed TFLOPs right" if sure else "which makes the GPUs right"
            message = f"{words}{_rate_words(row, there)}"
            yield about(row, "degrees", "error", message, f"{column}={value}, {why}", cells={column: value})
        else:
            yield about(
                row, "degrees", "error", words, "correct a degree or the nodes", exclude=f"{product} GPUs of {there}"
            )


def _degrees(row: Row) -> tuple[int, int] | None:
    """GPUs that are there and GPUs that the degrees make, where the row prints enough to tell and they differ."""
    try:
        numbers = {name: int(float(row.understood.get(name, "1"))) for name in ("tp", "pp", "cp", "dp")}
        there = int(float(row.understood["nodes"])) * int(float(row.understood["gpus_per_node"]))
    except (KeyError, ValueError, OverflowError):
        return None
    product = math.prod(numbers.values())
    if "dp" not in row.cells or product <= 0 or there <= 0 or product == there:
        return None
    return there, product


def _product(row: Row) -> str:
    names = [name for name in ("tp", "pp", "cp", "dp") if name != "cp" or row.understood.get("cp", "1") != "1"]
    return " x ".join(f"{name}({row.understood.get(name, '1')})" for name in names)


def _machines(row: Row) -> str:
    return f"{row.understood['nodes']} nodes of {row.understood['gpus_per_node']}"


def _rate_words(row: Row, there: int) -> str:
    return f"; its TFLOPs and seconds belong to {there}" if {"tflops", "sec_per_iter"} <= row.cells.keys() else ""


def _agrees(evidence: Evidence, row: Row) -> bool:
    """Whether the printed TFLOPs confirm the GPUs that the degrees make: then the others stood idle, as they may."""
    case = evidence.cases.get(row.index)
    unit = evidence.units.get(row.index)
    return bool(case and unit and case.rated and unit.allows(case))


def _choices(evidence: Evidence, row: Row, there: int) -> list[tuple[str, str, bool]]:
    """Single degrees that would make the product right: those that the TFLOPs confirm first, dp before the others."""
    units = list({unit.convention: unit for unit in evidence.units.values()}.values())
    found = []
    for column in ("dp", "tp", "pp", "nodes"):
        case = _with_product(row, column, there)
        if case is None:
            continue
        sure = case.rated and any(unit.allows(case) for unit in units)
        if sure or not case.rated or not units:
            value = case.run.topology.nodes if column == "nodes" else getattr(case.run.topology, column)
            found.append((column, str(value), sure))
    return sorted(found, key=lambda choice: not choice[2])


def _with_product(row: Row, column: str, there: int) -> PrintedRow | None:
    numbers = {name: int(float(row.understood.get(name, "1"))) for name in ("tp", "pp", "cp", "dp")}
    product = math.prod(numbers.values())
    if column == "nodes":
        per_node = int(float(row.understood["gpus_per_node"]))
        return case_of(row, nodes=str(product // per_node)) if product % per_node == 0 else None
    rest = product // numbers[column] if numbers[column] else 0
    return case_of(row, **{column: str(there // rest)}) if rest and there % rest == 0 else None


def batch(evidence: Evidence) -> Iterator[Finding]:
    """The global batch is a whole number of micro batches on every rank."""
    for case in evidence.cases.values():
        topology, size = case.run.topology, case.run.workload.global_batch
        step = topology.dp * topology.micro_batch
        if size % step and "gbs" in case.row.cells:
            message = f"gbs({size}) is no multiple of dp({topology.dp}) x mbs({topology.micro_batch}) = {step}"
            near = either(dict.fromkeys(str(n) for n in (size // step * step, -(-size // step) * step) if n))
            yield about(case.row, "batch", "warning", message, f"gbs={near}, or another dp or mbs")


def node(evidence: Evidence) -> Iterator[Finding]:
    """Tensor parallelism stays within a node, where the links are fast; somebody may have run it otherwise."""
    for case in evidence.cases.values():
        topology, per_node = case.run.topology, case.run.cluster.gpus_per_node
        if topology.tp > per_node:
            message = f"tp({topology.tp}) spans nodes of {per_node} GPUs"
            yield about(case.row, "node", "advice", message, "check tp and gpus_per_node")


def heads(evidence: Evidence) -> Iterator[Finding]:
    """hidden divides by heads, and heads by tp: no program trains anything else."""
    for case in evidence.cases.values():
        model, tp = case.run.workload.model, case.run.topology.tp
        if "heads" in case.row.cells and (model.hidden % model.heads or model.heads % tp):
            message = f"{model.heads} heads of hidden {model.hidden} on tp({tp}) do not divide"
            yield about(case.row, "heads", "warning", message, "check heads, hidden and tp")


def size(evidence: Evidence) -> Iterator[Finding]:
    """A stated size is the parameter count of the stated shape, with its embedding or without."""
    for case in evidence.cases.values():
        stated = size_of(case.row.cells.get("size", ""))
        model = case.run.workload.model
        if not stated or "hidden" not in case.row.cells or "layers" not in case.row.cells:
            continue
        room = _SIZE_ROOM + rounding_of(case.row.cells["size"].strip().rstrip("BbMm")) / (
            stated / 1e9 if stated >= 1e9 else stated / 1e6
        )
        counts = (model.parameters, model.parameters - model.embedding_parameters)
        if all(abs(math.log(stated / count)) > room for count in counts):
            message = f"size {case.row.cells['size']}, but {shape_words(model)}"
            yield about(case.row, "size", "warning", message, "correct the size, or the shape that it belongs to")


def endings(evidence: Evidence) -> Iterator[Finding]:
    """A run that ran out of memory, failed or hung has no time of an iteration."""
    for row in evidence.table.rows:
        if row.status != "OK" and row.seconds is not None and not row.skipped:
            message = f"status {row.status}, and yet an iteration took {text_of(row, 'sec_per_iter')} s"
            yield about(
                row, "status", "warning", message, "correct the status, or leave the figures out", exclude=message
            )
