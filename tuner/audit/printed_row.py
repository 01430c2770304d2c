"""A row as the checks look at it: what was run, what was printed, and to how many digits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tuner.audit.flop_conventions import ForwardFlops, terms_of
from tuner.core.domain import Model
from tuner.core.errors import TunerError
from tuner.tables import COLUMNS, MeasuredRun, Row
from tuner.tables.column_aliases import MEASURED, plain, rounding_of
from tuner.tables.run import run_of

_SAID_ELSEWHERE: Final = ("size", "gpus", "audit")
"""Columns that are not of the format and do not tell two runs apart."""


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """One row that some run made, with what the laws need of it."""

    row: Row
    run: MeasuredRun

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Everything that fixes a run and nothing that was measured: equal for runs that should measure alike."""
        cluster, cells = self.run.cluster, self.row.cells
        other = tuple((c, v) for c, v in sorted(cells.items()) if c not in COLUMNS and c not in _SAID_ELSEWHERE)
        network = cluster.inter_node.bandwidth
        # Heads that nobody stated are a guess, which makes no row another's twin.
        stated = "heads" in cells
        return (self.run.workload, self.run.topology, cluster.gpu.name, cluster.gpus_per_node, network, stated, other)

    @cached_property
    def told(self) -> str:
        """What its note says, without dates and numbers: runs whose notes differ may differ in what they say."""
        note = self.row.cells.get("note", "").split("audit: ")[0]
        return " ".join(re.findall(r"[A-Za-z]{2,}", note)).lower()

    @cached_property
    def terms(self) -> ForwardFlops:
        """Its operations."""
        return terms_of(self.run)

    @property
    def line(self) -> int:
        """Its line of the file."""
        return self.row.line

    @property
    def micro_batch(self) -> int:
        """Sequences that a GPU handles at once."""
        return self.run.topology.micro_batch

    @property
    def gpus(self) -> int:
        """GPUs that its degrees multiply to."""
        return self.run.topology.gpus

    @property
    def peak(self) -> float:
        """FLOP/s of one GPU, by its data sheet."""
        card = self.run.cluster.gpu
        return card.peak_flops.get(self.run.workload.precision, max(card.peak_flops.values()))

    @property
    def microbatches(self) -> int:
        """Steps of accumulation."""
        topology = self.run.topology
        return max(1, self.run.workload.global_batch // (topology.micro_batch * topology.dp))

    @property
    def bubble(self) -> float:
        """How much longer the pipeline takes for filling and draining, as a factor of at least 1."""
        topology = self.run.topology
        return 1 + (topology.pp - 1) / (topology.vpp * self.microbatches)

    def says(self, column: str) -> str:
        """A figure as it is printed."""
        return text_of(self.row, column)

    def rounding(self, column: str) -> float:
        """Half of the last digit of a measured figure, as a fraction of it."""
        text = plain(column, self.row.cells.get(column, ""))
        try:
            number = float(text)
        except ValueError:
            return 0.0
        return rounding_of(text) / number if number else 0.0

    @property
    def seconds(self) -> float:
        """Of one iteration, as printed; not a number where nothing is."""
        return math.nan if self.row.seconds is None else self.row.seconds

    @property
    def flops(self) -> float:
        """FLOP/s of a GPU, as printed; not a number where nothing is."""
        return math.nan if self.row.tflops is None else self.row.tflops

    @property
    def memory(self) -> float:
        """Bytes, as printed; not a number where nothing is."""
        return math.nan if self.row.memory is None else self.row.memory

    @property
    def rated(self) -> bool:
        """Whether seconds and TFLOPs of a finished run are printed."""
        return self.row.status == "OK" and self.row.tflops is not None and self.row.seconds is not None

    @property
    def printed_rate(self) -> float:
        """Logarithm of the operations that its own figures make: TFLOPs x seconds x GPUs."""
        return math.log(self.flops * self.seconds * self.gpus)

    @property
    def rate_rounding(self) -> float:
        """How far rounding may have moved `printed_rate`."""
        return self.rounding("tflops") + self.rounding("sec_per_iter")

    def altered(self, **cells: str) -> PrintedRow | None:
        """The same row with other cells; None where they describe no run."""
        return case_of(self.row, **cells)


def case_of(row: Row, **cells: str) -> PrintedRow | None:
    """A row with some cells changed as the run that it describes, if it does."""
    try:
        run = run_of({**row.understood, **cells})
    except TunerError:
        return None
    return PrintedRow(row=row, run=run)


def cases_of(rows: Iterable[Row]) -> dict[int, PrintedRow]:
    """The rows that describe a run and are not taken out, by their place in the table."""
    return {row.index: PrintedRow(row=row, run=row.run) for row in rows if row.run is not None and row.skipped is None}


def text_of(row: Row, column: str) -> str:
    """A figure as it is printed."""
    return row.cells.get(column, "nothing")


def shape_words(model: Model) -> str:
    """A model's shape and what it makes, in words."""
    billions = f"{model.parameters / 1e9:.4g}B"
    return f"{model.layers} layers of hidden {model.hidden} with ffn {model.ffn} make {billions}"


def measured_texts(row: Row) -> tuple[str, ...]:
    """All that was measured, as printed."""
    return tuple(plain(column, row.cells.get(column, "")) for column in MEASURED)
