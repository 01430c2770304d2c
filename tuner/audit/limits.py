"""What a card can do bounds what a row may show: its peak, its memory, and what a model's states take at the least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuner.audit.evidence import Evidence, about, short
from tuner.audit.flop_conventions import hardware
from tuner.audit.printed_row import PrintedRow, text_of
from tuner.audit.repair import Finding

_GB: Final = 2**30 / 1e9
"""A card of 80 GiB prints as 85.9 GB where somebody counts in decimals."""
_SLOWEST: Final = 0.001
"""Less of its peak than this no GPU that trains computes: the seconds are milliseconds."""
_SMALLER_STATES: Final = ("8bit", "8-bit", "bnb", "offload", "adafactor", "sgd", "lora", "frozen")


def speed(evidence: Evidence) -> Iterator[Finding]:
    """No GPU computes faster than its peak, and none that trains a thousand times slower."""
    for _, case in evidence.fitting:
        row, peak = case.row, case.peak
        if row.tflops and row.tflops > peak * (1 + case.rounding("tflops")):
            message = f"{text_of(row, 'tflops')} TFLOPs on a card whose peak is {peak / 1e12:g}"
            whole = row.tflops / case.gpus
            if case.gpus > 1 and 0.02 * peak < whole < peak and _allowed_as(evidence, case, whole):
                value = short(whole / 1e12)
                yield about(
                    row,
                    "peak",
                    "error",
                    f"{message}: they are of all {case.gpus} GPUs together",
                    f"tflops={value}",
                    cells={"tflops": value},
                )
            elif _allowed_as(evidence, case, row.tflops):
                yield about(
                    row,
                    "peak",
                    "error",
                    message,
                    "the seconds are too short by a factor, or the batch too large",
                    exclude="faster than its peak",
                )
        elif row.seconds and not row.tflops:
            rate = hardware(case.terms) / case.gpus / row.seconds
            if rate > peak:
                message = (
                    f"{text_of(row, 'sec_per_iter')} s would take {rate / 1e12:.4g} TFLOPs of a card whose peak is "
                    f"{peak / 1e12:g}"
                )
                yield about(
                    row,
                    "peak",
                    "error",
                    message,
                    "check the unit of the seconds, the batch and the GPUs",
                    exclude="faster than its peak",
                )
            elif rate < _SLOWEST * peak and rate * 1000 < 0.9 * peak and rate * 1000 > 0.05 * peak:
                value = f"{row.seconds / 1000:.6g}"
                message = (
                    f"{text_of(row, 'sec_per_iter')} s would be {rate / peak:.2%} of the peak: these are milliseconds"
                )
                yield about(
                    row, "milliseconds", "error", message, f"sec_per_iter={value}", cells={"sec_per_iter": value}
                )


def _allowed_as(evidence: Evidence, case: PrintedRow, tflops: float) -> bool:
    """Whether a figure agrees with the seconds by the row's unit, so that the unit check has nothing to add."""
    unit = evidence.units.get(case.row.index)
    if unit is None or case.row.tflops is None:
        return True
    return abs(unit.error(case) + math.log(tflops / case.row.tflops)) < 0.05


def memory(evidence: Evidence) -> Iterator[Finding]:
    """What a run used is no more than its card has, and no less than its weights, gradients and optimizer states."""
    for _, case in evidence.fitting:
        row, card = case.row, case.run.cluster.gpu
        if row.memory is None:
            continue
        most = card.memory * (1 + case.rounding("mem_gib"))
        printed = text_of(row, "mem_gib")
        if row.memory > most * _GB:
            if 0.02 * card.memory < row.memory / 1024 <= most:
                value = short(row.memory / 2**30 / 1024)
                message = f"{printed} GiB on a card of {card.memory / 2**30:g}: these are MiB"
                yield about(row, "memory", "error", message, f"mem_gib={value}", cells={"mem_gib": value})
            else:
                message = f"{printed} GiB on a card of {card.memory / 2**30:g}"
                yield about(
                    row,
                    "memory",
                    "error",
                    message,
                    "check the figure, its unit and the card",
                    exclude="more memory than the card has",
                    exclude_column="mem_gib",
                )
        elif row.memory * (1 + case.rounding("mem_gib")) < 0.9 * (least := least_memory(case)):
            message = (
                f"{printed} GiB cannot hold weights, gradients and optimizer states, {least / 2**30:.3g} GiB a GPU"
            )
            yield about(
                row,
                "memory",
                "error",
                message,
                "check the figure, the degrees and the model's size",
                exclude="less memory than the model's states",
                exclude_column="mem_gib",
            )


def least_memory(case: PrintedRow) -> float:
    """Bytes of a rank's weights, gradients and optimizer states at the least, evenly spread over the stages.

    Two for a weight and two for its gradient; Adam's fp32 copy and two moments add 12 (Rajbhandari et al. 2020, arXiv
    1910.02054, section 3.1), which each ZeRO stage spreads over the ranks; only 2 where the row speaks of a smaller
    optimizer or of offload, and none is counted where the parameters are frozen.
    """
    topology, model = case.run.topology, case.run.workload.model
    said = " ".join(case.row.cells.values()).lower()
    states = 2.0 if any(word in said for word in _SMALLER_STATES) else 12.0
    ranks = topology.dp * topology.cp
    share = model.parameters / (topology.tp * topology.pp)
    per_parameter = 2 / (ranks if topology.zero >= 3 else 1) + 2 / (ranks if topology.zero >= 2 else 1)
    per_parameter += states / (ranks if topology.zero >= 1 else 1)
    return 0.0 if "frozen" in said or "offload" in said or "lora" in said else share * per_parameter
