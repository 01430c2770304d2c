"""A row of the measurement table, as it was printed and as the product understands it.

A measurement table as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tuner.core.domain import Cluster, MemoryKind, Topology, Workload
from tuner.core.errors import InputError

Status = Literal["OK", "OOM", "FAIL", "HANG"]

COLUMNS: Final = (
    *("group", "gpu", "gpus_per_node", "nodes", "node_gbit_s"),
    *("layers", "hidden", "heads", "kv_heads", "ffn", "gated_mlp", "seq", "vocab"),
    *("tp", "pp", "vpp", "cp", "dp", "sequence_parallel", "zero", "mbs", "gbs"),
    *("recompute", "attention", "fused_norm", "precision"),
    *("sec_per_iter", "tflops", "mem_gib", "mem_kind", "status", "note", "source"),
)
"""The columns of the format, in the order in which they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a row says was run: the workload, the machines and the decision."""

    workload: Workload
    cluster: Cluster
    topology: Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run that somebody measured."""

    index: int
    """Its place in the table, from 0."""
    line: int
    """Its line in the file, from 1."""
    cells: Mapping[str, str]
    """What is printed, by column; empty cells are left out."""
    understood: Mapping[str, str]
    """The same with its defaults and without units and placeholders: what the run was made of."""
    group: str
    """Only rows of one group are comparable."""
    status: Status
    run: MeasuredRun | None
    """None where the cells do not describe a run; `skipped` says why."""
    seconds: float | None = None
    tflops: float | None = None
    """FLOP/s a GPU, as printed."""
    memory: float | None = None
    """Bytes on the fullest GPU."""
    memory_kind: MemoryKind = "smi"
    skipped: str | None = None
    """Why the row cannot be estimated."""

    @property
    def timed(self) -> bool:
        """Whether it shows how long an iteration takes."""
        return self.status == "OK" and self.run is not None and self.seconds is not None and self.skipped is None

    @property
    def weighed(self) -> bool:
        """Whether it shows how much memory was used."""
        return self.status == "OK" and self.run is not None and self.memory is not None and self.skipped is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A file's rows, and its columns in their own order."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    lines: tuple[str, ...] = ()
    """A report's text, line by line; empty for CSV, which says nothing beside its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a table leaves out and its reader knows, by column of the format; the cells of a row win."""

    cells: Mapping[str, str]

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Defaults:
        """Return the defaults that `COLUMN=VALUE` settings give."""
        cells: dict[str, str] = {}
        for setting in settings:
            column, sign, value = setting.partition("=")
            if not sign or not value or column not in COLUMNS:
                raise InputError(
                    f"--default {setting!r} is not COLUMN=VALUE with a column of the table format, such as gpu."
                )
            cells[column] = value
        return cls(cells=cells)


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """The rows as CSV text, every cell as it is given; what a row lacks stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return text.getvalue()
