"""Laws that a row must satisfy by itself: cells, degrees, batch, heads, size, status, and the limits of its GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from tuner.audit.evidence import Evidence, about, short
from tuner.audit.flop_conventions import hardware
from tuner.audit.printed_row import PrintedRow, printed_row_of, shape_words, text_of
from tuner.audit.repair import Finding
from tuner.core.quantity import GIB
from tuner.core.text import counted, either
from tuner.tables import Row
from tuner.tables.column_aliases import rounding_of, size_of

_SIZE_TOLERANCE: Final = 0.04
_DECIMAL_SLACK: Final = GIB / 1e9
"""80 GiB print as 85.9 GB in decimal units."""
_MIN_SHARE_OF_PEAK: Final = 0.001
"""Below this share of the peak, the seconds must be milliseconds."""
_PLAUSIBLE_SHARE: Final = (0.01, 0.9)
"""Shares of the peak that training reaches."""
_MIN_MILLISECONDS: Final = 10.0
"""Shorter steps are those of toy models, which wait for the CPU and may really take a thousand times longer."""
_FASTER: Final = "faster than the GPU's peak"
_SMALLER_STATES: Final = ("8bit", "8-bit", "bnb", "offload", "adafactor", "sgd", "frozen")


def cells(evidence: Evidence) -> Iterator[Finding]:
    """Every cell has the type of its column: positive numbers, known words."""
    for row in evidence.table.rows:
        if row.run is None and row.skipped and not _contradiction(row) and not _without_degrees(row):
            yield about(
                row,
                "cells",
                "error",
                message=f"cannot read the row: {row.skipped}",
                suggestion="fill in the cell" if " is missing" in row.skipped else "correct the cell or leave it empty",
                exclude=row.skipped,
            )


def unnamed(evidence: Evidence) -> Iterator[Finding]:
    """A row names a topology; tables of a report that compare something else are reported once and skipped."""
    rows = [row for row in evidence.table.rows if row.run is None and _without_degrees(row)]
    if rows:
        are = "is" if len(rows) == 1 else "are"
        message = f"{counted(len(rows), 'row')} from line {rows[0].line} on without any parallel degree {are} skipped"
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
    """tp x pp x cp x dp is the number of GPUs; the TFLOPs often show which degree is wrong."""
    for row in evidence.table.rows:
        contradiction = _contradiction(row)
        if not contradiction or (row.skipped and row.run is not None):
            continue
        available, product = contradiction
        if product < available and _agrees(evidence, row):
            continue
        words = f"{_product(row)} = {product} GPUs, but {_machines(row)} {available}"
        finding = partial(about, row, check="degrees")
        if product < available and "tflops" not in row.cells:
            idle = f"{words}: the others are idle"
            yield finding(severity="advice", message=idle, suggestion="state how many nodes were used")
        elif choices := _choices(evidence, row, available):
            column, value, sure = choices[0]
            why = "which matches the number of GPUs" + (" and the printed TFLOPs" if sure else "")
            message = f"{words}{_rate_words(row, available)}"
            suggestion = f"{column}={value}, {why}"
            yield finding(severity="error", message=message, suggestion=suggestion, cells={column: value})
        else:
            yield finding(
                severity="error",
                message=words,
                suggestion="correct a degree or the number of nodes",
                exclude=f"{product} GPUs of {available}",
            )


def _contradiction(row: Row) -> tuple[int, int] | None:
    """Return the GPUs of the nodes and the product of the degrees, if the row prints both and they differ."""
    try:
        numbers = {name: int(float(row.understood.get(name, "1"))) for name in ("tp", "pp", "cp", "dp")}
        available = int(float(row.understood["nodes"])) * int(float(row.understood["gpus_per_node"]))
    except (KeyError, ValueError, OverflowError):
        return None
    product = math.prod(numbers.values())
    if "dp" not in row.cells or product <= 0 or available <= 0 or product == available:
        return None
    return available, product


def _product(row: Row) -> str:
    names = [name for name in ("tp", "pp", "cp", "dp") if name != "cp" or row.understood.get("cp", "1") != "1"]
    return " x ".join(f"{name}({row.understood.get(name, '1')})" for name in names)


def _machines(row: Row) -> str:
    nodes = int(float(row.understood["nodes"]))
    return f"{counted(nodes, 'node')} of {row.understood['gpus_per_node']} {'has' if nodes == 1 else 'have'}"


def _rate_words(row: Row, available: int) -> str:
    return f"; its TFLOPs and seconds are for {available}" if {"tflops", "sec_per_iter"} <= row.cells.keys() else ""


def _agrees(evidence: Evidence, row: Row) -> bool:
    """Return whether the printed TFLOPs confirm the product of the degrees: then the other GPUs were idle."""
    case = evidence.cases.get(row.index)
    unit = evidence.units.get(row.index)
    return bool(case and unit and case.rated and unit.allows(case))


def _choices(evidence: Evidence, row: Row, available: int) -> list[tuple[str, str, bool]]:
    """Return the changes of one degree that match the GPUs: those that the TFLOPs confirm first, dp before others."""
    units = list({unit.convention: unit for unit in evidence.units.values()}.values())
    found = []
    for column in ("dp", "tp", "pp", "nodes"):
        case = _with_product(row, column, available)
        if case is None:
            continue
        sure = case.rated and any(unit.allows(case) for unit in units)
        if sure or not case.rated or not units:
            value = case.run.topology.nodes if column == "nodes" else getattr(case.run.topology, column)
            found.append((column, str(value), sure))
    return sorted(found, key=lambda choice: not choice[2])


def _with_product(row: Row, column: str, available: int) -> PrintedRow | None:
    numbers = {name: int(float(row.understood.get(name, "1"))) for name in ("tp", "pp", "cp", "dp")}
    product = math.prod(numbers.values())
    if column == "nodes":
        per_node = int(float(row.understood["gpus_per_node"]))
        return printed_row_of(row, nodes=str(product // per_node)) if product % per_node == 0 else None
    rest = product // numbers[column] if numbers[column] else 0
    return printed_row_of(row, **{column: str(available // rest)}) if rest and available % rest == 0 else None


def batch(evidence: Evidence) -> Iterator[Finding]:
    """The global batch is a multiple of dp x micro batch."""
    for case in evidence.cases.values():
        topology, size = case.run.topology, case.run.workload.global_batch
        step = topology.step_batch
        if size % step and "gbs" in case.row.cells:
            message = f"gbs({size}) is not a multiple of dp({topology.dp}) x mbs({topology.micro_batch}) = {step}"
            near = either(dict.fromkeys(str(n) for n in (size // step * step, -(-size // step) * step) if n))
            yield about(
                case.row, "batch", "warning", message=message, suggestion=f"gbs={near}, or a different dp or mbs"
            )


def node(evidence: Evidence) -> Iterator[Finding]:
    """Tensor parallelism stays within an NVLink domain, whose links are fast; more is unusual but possible."""
    for case in evidence.cases.values():
        topology, cluster = case.run.topology, case.run.cluster
        if topology.tp > cluster.domain:
            links = "NVLink domain" if cluster.nvlink_domain else "node"
            message = f"tp({topology.tp}) spans more than one {links} of {cluster.domain} GPUs"
            columns = "tp and nvlink_domain" if cluster.nvlink_domain else "tp and gpus_per_node"
            yield about(case.row, "node", "advice", message=message, suggestion=f"check {columns}")


def heads(evidence: Evidence) -> Iterator[Finding]:
    """hidden divides by heads, and heads divide by tp: no program trains anything else."""
    for case in evidence.cases.values():
        model, tp = case.run.workload.model, case.run.topology.tp
        uneven = not (model.head_size or model.latent) and model.hidden % model.heads
        if "heads" in case.row.cells and (uneven or model.heads % tp):
            message = f"hidden {model.hidden}, {model.heads} heads and tp({tp}) do not divide evenly"
            yield about(case.row, "heads", "warning", message=message, suggestion="check heads, hidden and tp")


def size(evidence: Evidence) -> Iterator[Finding]:
    """A stated size is the parameter count of the stated shape, with or without embedding and multi-token prediction.

    So are stated total parameters and, in a mixture of experts, those that a token passes through.
    """
    for case in evidence.cases.values():
        cells, model = case.row.cells, case.run.workload.model
        if "hidden" not in cells or "layers" not in cells:
            continue
        whole, without = model.parameters, model.parameters - model.mtp_parameters
        columns = {"size": (whole, without), "total_params_b": (whole, without)}
        columns["active_params_b"] = (model.active_parameters, model.active_parameters - model.head_parameters)
        for column, counts in columns.items():
            cell = cells.get(column, "").strip()
            stated = size_of(cell if column == "size" else f"{cell}B")
            if not stated:
                continue
            unit = 1e9 if stated >= 1e9 else 1e6
            tolerance = _SIZE_TOLERANCE + rounding_of(cell.rstrip("BbMm")) / (stated / unit)
            known = [count - tables for count in counts for tables in (0, model.embedding_parameters)]
            if all(abs(math.log(stated / count)) > tolerance for count in known):
                message = f"{column} {cell}, but {shape_words(model)}"
                if column == "active_params_b":
                    message += f", of which a token passes through {model.active_parameters / 1e9:.4g}B"
                yield about(case.row, "size", "warning", message=message, suggestion="correct the size or the shape")


def endings(evidence: Evidence) -> Iterator[Finding]:
    """A run that ran out of memory, failed or hung has no time per iteration."""
    for row in evidence.table.rows:
        if row.status != "OK" and row.seconds is not None and not row.skipped:
            message = f"status {row.status}, but an iteration took {text_of(row, 'sec_per_iter')} s"
            yield about(
                row,
                "status",
                "warning",
                message=message,
                suggestion="correct the status or remove the figures",
                exclude=message,
            )


def milliseconds(evidence: Evidence) -> Iterator[Finding]:
    """No training computes at a thousandth of its usual speed: such seconds are milliseconds."""
    for _, case in evidence.fitting:
        row = case.row
        if row.seconds is None or row.seconds < _MIN_MILLISECONDS:
            continue
        share = _rate(case) / case.peak
        if share < _MIN_SHARE_OF_PEAK and _PLAUSIBLE_SHARE[0] < 1000 * share < _PLAUSIBLE_SHARE[1]:
            value = f"{row.seconds / 1000:.6g}"
            yield about(
                row,
                "milliseconds",
                "error",
                message=f"{text_of(row, 'sec_per_iter')} s would mean {share:.2%} of the peak: the unit is ms",
                suggestion=f"sec_per_iter={value}",
                cells={"sec_per_iter": value},
            )


def _rate(case: PrintedRow) -> float:
    """Return the FLOP/s per GPU that the seconds mean, recompute included."""
    return hardware(case.terms) / case.gpus / case.seconds


def speed(evidence: Evidence) -> Iterator[Finding]:
    """No GPU computes faster than its peak."""
    for _, case in evidence.fitting:
        row, peak = case.row, case.peak
        error = partial(about, row, severity="error")
        if row.tflops and row.tflops > peak * (1 + case.rounding("tflops")):
            message = f"{text_of(row, 'tflops')} TFLOPs on a GPU with a peak of {peak / 1e12:g}"
            whole = row.tflops / case.gpus
            if case.gpus > 1 and 0.02 * peak < whole < peak and _allowed_as(evidence, case, whole):
                value, message = short(whole / 1e12), f"{message}: they are the total of all {case.gpus} GPUs"
                yield error(check="peak", message=message, suggestion=f"tflops={value}", cells={"tflops": value})
            elif _allowed_as(evidence, case, row.tflops):
                suggestion = "the seconds are too small or the batch is too large"
                yield error(check="peak", message=message, suggestion=suggestion, exclude=_FASTER)
        elif row.seconds and not row.tflops:
            rate = _rate(case)
            if rate > peak:
                message = (
                    f"{text_of(row, 'sec_per_iter')} s would mean {rate / 1e12:.4g} TFLOPs on a GPU with a peak of "
                    f"{peak / 1e12:g}"
                )
                suggestion = "check the unit of the seconds, the batch and the number of GPUs"
                yield error(check="peak", message=message, suggestion=suggestion, exclude=_FASTER)


def _allowed_as(evidence: Evidence, case: PrintedRow, tflops: float) -> bool:
    """Return whether a figure follows the row's convention, so that the TFLOPs check has nothing to add."""
    unit = evidence.units.get(case.row.index)
    if unit is None or case.row.tflops is None:
        return True
    return abs(unit.error(case) + math.log(tflops / case.row.tflops)) < 0.05


def memory(evidence: Evidence) -> Iterator[Finding]:
    """Memory used is at most that of the GPU, and at least weights, gradients and optimizer states."""
    for _, case in evidence.fitting:
        row, card = case.row, case.run.cluster.gpu
        if row.memory is None:
            continue
        error = partial(about, row, check="memory", severity="error")
        most = card.memory * (1 + case.rounding("mem_gib"))
        printed = text_of(row, "mem_gib")
        if row.memory > most * _DECIMAL_SLACK:
            if 0.02 * card.memory < row.memory / 1024 <= most:
                value = short(row.memory / GIB / 1024)
                message = f"{printed} GiB on a GPU with {card.memory / GIB:g}: the unit is MiB"
                yield error(message=message, suggestion=f"mem_gib={value}", cells={"mem_gib": value})
            else:
                yield error(
                    message=f"{printed} GiB on a GPU with {card.memory / GIB:g}",
                    suggestion="check the figure, its unit and the GPU",
                    exclude="more memory than the GPU has",
                    exclude_column="mem_gib",
                )
        elif row.memory * (1 + case.rounding("mem_gib")) < 0.9 * (least := least_memory(case)):
            message = (
                f"{printed} GiB cannot hold weights, gradients and optimizer states of {least / GIB:.3g} GiB per GPU"
            )
            yield error(
                message=message,
                suggestion="check the figure, the degrees and the model's size",
                exclude="less memory than the model's states",
                exclude_column="mem_gib",
            )


def least_memory(case: PrintedRow) -> float:
    """Return the minimum bytes of a rank's weights, gradients and optimizer states, evenly spread over the stages.

    Per parameter: 2 for the weight (over dp x cp ranks with ZeRO 3), 2 for the gradient (ZeRO 2 and up), and 12 for
    Adam's fp32 copy and moments (ZeRO 1 and up), by Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1. A row
    that mentions a smaller optimizer counts 2 for its states; one with offload or frozen parameters counts 0.
    Routed experts are spread over etp x ep ranks instead of tp, and their copies over the rest of tp x cp x dp.
    """
    topology, model = case.run.topology, case.run.workload.model
    words = " ".join(case.row.cells.values()).lower()
    if "frozen" in words or "offload" in words:
        return 0.0
    states = 2.0 if any(word in words for word in _SMALLER_STATES) else 12.0
    experts, width = topology.etp * topology.ep, topology.tp * topology.cp * topology.dp

    def size(parameters: int, spread: int) -> float:
        ranks = [width // spread if topology.zero >= least else 1 for least in (3, 2, 1)]
        per_parameter = sum(each / max(1, copies) for each, copies in zip((2, 2, states), ranks, strict=True))
        return parameters / (spread * topology.pp) * per_parameter

    routed = model.routed_parameters
    return size(model.parameters - routed, topology.tp) + size(routed, experts)
