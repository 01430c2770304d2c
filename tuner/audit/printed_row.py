"""A row as the checks see it: the run, the printed figures and their rounding."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tuner.audit.flop_conventions import ForwardFlops, terms_of
from tuner.core.errors import TunerError
from tuner.core.model import Model
from tuner.tables import COLUMNS, MeasuredRun, Row
from tuner.tables.column_aliases import MEASURED, plain, rounding_of
from tuner.tables.run import run_of

_NOT_IDENTIFYING: Final = ("size", "gpus", "audit")
"""Columns outside the format that do not distinguish two runs."""


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """One row that describes a run, with the quantities that the laws compare."""

    row: Row
    run: MeasuredRun

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Everything that defines the run and nothing measured: equal for runs that should measure the same."""
        cluster, cells = self.run.cluster, self.row.cells
        other = tuple((c, v) for c, v in sorted(cells.items()) if c not in COLUMNS and c not in _NOT_IDENTIFYING)
        network = cluster.inter_node.bandwidth
        # Heads that are not stated are a guess; such a row equals only others without stated heads.
        stated = "heads" in cells
        return (self.run.workload, self.run.topology, cluster.gpu.name, cluster.gpus_per_node, network, stated, other)

    @cached_property
    def note_words(self) -> str:
        """The words of its note, without dates and numbers: runs with different notes may differ."""
        note = self.row.cells.get("note", "").split("audit: ")[0]
        return " ".join(re.findall(r"[A-Za-z]{2,}", note)).lower()

    @cached_property
    def terms(self) -> ForwardFlops:
        """The FLOPs of the run by product."""
        return terms_of(self.run)

    @property
    def line(self) -> int:
        """Line in the file."""
        return self.row.line

    @property
    def micro_batch(self) -> int:
        """Sequences per GPU and microbatch."""
        return self.run.topology.micro_batch

    @property
    def gpus(self) -> int:
        """Product of the parallel degrees."""
        return self.run.topology.gpus

    @property
    def peak(self) -> float:
        """FLOP/s of one GPU by its data sheet."""
        card = self.run.cluster.gpu
        return card.peak_flops.get(self.run.workload.precision, max(card.peak_flops.values()))

    @property
    def microbatches(self) -> int:
        """Microbatches per iteration and replica."""
        return max(1, self.run.topology.microbatches(self.run.workload.global_batch))

    @property
    def bubble(self) -> float:
        """Pipeline slowdown factor: 1 + (pp - 1) / (vpp x microbatches)."""
        topology = self.run.topology
        return 1 + (topology.pp - 1) / (topology.vpp * self.microbatches)

    def text(self, column: str) -> str:
        """Return a figure as printed, in the unit of its column."""
        return text_of(self.row, column)

    def rounding(self, column: str) -> float:
        """Return half of the last digit of a measured figure, relative to the figure."""
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            return 0.0
        return rounding_of(text) / number if number else 0.0

    @property
    def seconds(self) -> float:
        """Seconds per iteration as printed; NaN if absent."""
        return math.nan if self.row.seconds is None else self.row.seconds

    @property
    def flops(self) -> float:
        """FLOP/s per GPU as printed; NaN if absent."""
        return math.nan if self.row.tflops is None else self.row.tflops

    @property
    def memory(self) -> float:
        """Bytes as printed; NaN if absent."""
        return math.nan if self.row.memory is None else self.row.memory

    @property
    def rated(self) -> bool:
        """Whether the run succeeded and both seconds and TFLOPs are printed."""
        return self.row.status == "OK" and self.row.tflops is not None and self.row.seconds is not None

    @property
    def printed_rate(self) -> float:
        """log(FLOP/s x seconds x GPUs): the FLOPs that the printed figures imply."""
        return math.log(self.flops * self.seconds * self.gpus)

    @property
    def rate_rounding(self) -> float:
        """Error of `printed_rate` from rounding."""
        return self.rounding("tflops") + self.rounding("sec_per_iter")

    def altered(self, **cells: str) -> PrintedRow | None:
        """Return the row with other cells; None if they describe no run."""
        return printed_row_of(self.row, **cells)


def printed_row_of(row: Row, **cells: str) -> PrintedRow | None:
    """Return the row with some cells changed; None if they describe no run."""
    try:
        run = run_of({**row.understood, **cells})
    except TunerError:
        return None
    return PrintedRow(row=row, run=run)


def printed_rows(rows: Iterable[Row]) -> dict[int, PrintedRow]:
    """Return the rows that describe a run and are not excluded, by their index in the table."""
    return {
        row.index: PrintedRow(row=row, run=row.run)
        for row in rows
        if row.run is not None and row.skipped in (None, row.overfull)
    }


def text_of(row: Row, column: str) -> str:
    """Return a figure as printed, in the unit of its column; seconds may follow from the printed tokens per second."""
    derived = column == "sec_per_iter" and column not in row.cells and row.seconds is not None
    return f"{row.seconds:.4g}" if derived else plain(column, row.cells.get(column, "")) or "nothing"


def shape_words(model: Model) -> str:
    """Return the shape and size of a model as text."""
    billions = f"{model.parameters / 1e9:.4g}B"
    experts = model.experts
    mixture = f" and {experts.count} experts of {experts.ffn}" if experts else ""
    return f"{model.layers} layers with hidden {model.hidden} and ffn {model.ffn}{mixture} make {billions}"


def measured_texts(row: Row) -> tuple[str, ...]:
    """Return all measured figures as printed."""
    return tuple(plain(column, row.cells.get(column, "")) for column in MEASURED)
