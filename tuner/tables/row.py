"""Rows of the measurement table, as printed and as parsed; blocks of rows as columns; CSV output."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, MemoryKind, MemoryStage, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.quantity import GIB
from tuner.core.shape import Shape
from tuner.core.text import csv_cell

Status = Literal["OK", "OOM", "FAIL", "HANG"]

COLUMNS: Final = (
    *("group", "gpu", "gpus_per_node", "nodes", "node_gbit_s"),
    *("layers", "hidden", "heads", "kv_heads", "ffn", "gated_mlp", "seq", "vocab"),
    *("tp", "pp", "vpp", "cp", "dp", "sequence_parallel", "zero", "mbs", "gbs"),
    *("recompute", "attention", "fused_norm", "precision"),
    *("sec_per_iter", "tflops", "mem_gib", "mem_kind", "status", "note", "source"),
)
"""The columns of the format, in the order in which they are written."""

OPTIONAL_COLUMNS: Final = (
    *("nvlink_domain", "fabric", "partition", "parallel_loss", "offload", "hsdp_replicas", "framework"),
    *("precision_recipe", "optimizer", "grad_precision", "state_precision"),
    *("loss_precision", "loss_chunks", "fused_loss", "unsharded_gradients"),
    *("precision_aware_optimizer", "fused_permutation", "padded_experts", "compiled", "early_stop"),
    *("overlap_grad", "overlap_param", "overlap_tp", "split_sends", "recompute_modules", "mem_stage"),
    *("cuda_graph", "cp_comm", "quantized_weights", "bf16_layers", "cudnn"),
    *("model", "head_dim", "other_layers"),
    *("experts", "top_k", "moe_ffn", "shared_ffn", "dense_layers", "ep", "etp", "dispatcher", "moe_overlap"),
    *("capacity_factor", "routing", "mtp", "release"),
)
"""Columns of the format that are written only where a row needs them."""

_MAX_FILLING: Final = 2.0
"""Multiple of the GPU's memory above which a figure is in another unit or of several GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The run that a row describes: workload, cluster and topology."""

    workload: Workload
    cluster: Cluster
    topology: Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured run."""

    index: int
    """Index in the table, from 0."""
    line: int
    """Line in the file, from 1."""
    cells: Mapping[str, str]
    """Printed cells by column, without empty ones."""
    understood: Mapping[str, str]
    """Cells with defaults, without units and placeholders."""
    group: str
    """Only rows of one group are comparable."""
    status: Status
    run: MeasuredRun | None
    """None if the cells do not describe a run; `skipped` has the reason."""
    seconds: float | None = None
    tflops: float | None = None
    """FLOP/s per GPU as printed."""
    memory: float | None = None
    """Bytes on the fullest GPU."""
    memory_kind: MemoryKind = "smi"
    memory_stage: MemoryStage = "first"
    """Pipeline stage whose GPU was looked at."""
    skipped: str | None = None
    """Why the row cannot be estimated."""
    assumed: Mapping[str, str] = field(default_factory=dict)
    """Columns that decide time or memory and that neither the row nor the surrounding text states, with the assumed
    values."""

    @property
    def overfull(self) -> str | None:
        """Why the memory is no memory of one GPU; None if it may be."""
        if self.run is None or self.memory is None or self.memory <= _MAX_FILLING * self.run.cluster.gpu.memory:
            return None
        card = self.run.cluster.gpu
        return f"mem_gib is {self.memory / GIB:.6g}, but {card.name} has {card.memory / GIB:.3g} GiB; check its unit."

    @property
    def tokens(self) -> int | None:
        """Tokens of an iteration; None for a row that describes no run."""
        return None if self.run is None else self.run.workload.global_batch * self.run.workload.model.seq

    @property
    def usable(self) -> bool:
        """Whether the row describes a run that can be estimated."""
        return self.run is not None and self.skipped is None

    @property
    def timed(self) -> bool:
        """Whether the row measures the time of an iteration."""
        return self.usable and self.status == "OK" and self.seconds is not None

    @property
    def weighed(self) -> bool:
        """Whether the row measures memory."""
        return self.usable and self.status == "OK" and self.memory is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of a file, and its columns in file order."""

    name: str
    columns: tuple[str, ...] = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)
    lines: tuple[str, ...] = field(default=(), repr=False)
    """The lines of a Markdown report; empty for CSV."""

    @property
    def simulated(self) -> bool:
        """Whether some rows are from the simulated cluster, as their column `source` says."""
        return any(row.cells.get("source", "").startswith("SIMULATED") for row in self.rows)

    def first_skipped(self, group: str | None = None) -> str:
        """Return the line of the first skipped row, of a group if given, with the reason; empty if none is skipped."""
        return first_skipped(row for row in self.rows if group in (None, row.group))

    def why_none_of(self, rows: Iterable[Row], group: str | None = None) -> str:
        """Return why none of these rows is usable: the first one skipped, or else the table's if it has no usable row.

        Empty if other rows, of the group if given, are usable.
        """
        if reason := first_skipped(rows):
            return reason
        usable = any(row.usable for row in self.rows if group in (None, row.group))
        return "" if usable else self.first_skipped(group)


def first_skipped(rows: Iterable[Row]) -> str:
    """Return the line of the first skipped row with the reason; empty if none is skipped."""
    return next((f"line {row.line}: {row.skipped}" for row in rows if row.skipped), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Values by column for cells that a table lacks; the cells of a row take precedence."""

    cells: Mapping[str, str]

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Defaults:
        """Return the defaults that `COLUMN=VALUE` settings give."""
        cells: dict[str, str] = {}
        for setting in settings:
            column, sign, value = setting.partition("=")
            if not sign or not value or column not in (*COLUMNS, *OPTIONAL_COLUMNS):
                raise InputError(
                    f"--default {setting!r} is not COLUMN=VALUE with a column of the table format, such as gpu."
                )
            cells[column] = value
        return cls(cells=cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows that differ only in fields of `Columns`, in the same order."""

    columns: Columns
    rows: tuple[Row, ...]


def blocks(rows: Iterable[Row]) -> list[RowBlock]:
    """Return all rows that describe a run, in as few blocks as possible."""
    alike: dict[object, list[Row]] = {}
    for row in rows:
        if row.run is not None:
            alike.setdefault(_block_key(row.run), []).append(row)
    return [_block(members) for members in alike.values()]


def _block(members: list[Row]) -> RowBlock:
    runs = [row.run for row in members if row.run is not None]
    first = runs[0]
    cluster = replace(first.cluster, nodes=max(run.cluster.nodes for run in runs))
    topologies = [_spelt_out(run) for run in runs]
    return RowBlock(columns=Columns.of(topologies, first.workload, cluster), rows=tuple(members))


def _spelt_out(run: MeasuredRun) -> Topology:
    """Return the topology with its own heads, shape and batch, so that the rows of a block share one workload."""
    model = run.workload.model
    shape = Shape(hidden=model.hidden, layers=model.layers)
    return replace(run.topology, heads=model.heads, shape=shape, global_batch=run.workload.global_batch)


def _block_key(run: MeasuredRun) -> object:
    """Return the fields that are not in `Columns`. Sizes that follow from hidden or heads are compared by their
    ratio."""
    model = run.workload.model
    cluster = replace(run.cluster, nodes=1)
    if model.experts or model.latent:  # the sizes of experts are in no ratio to hidden that is worth a block
        return repr((replace(run.workload, model=replace(model, name="any"), global_batch=1), cluster))
    follows = Fraction(model.ffn, model.hidden), model.kv_heads if model.kv_heads != model.heads else 0
    alone = replace(
        model, name="any", layers=1, hidden=model.hidden, heads=1, kv_heads=1, ffn=1, embedding_size=model.hidden
    )
    alone = replace(alone, hidden=1, embedding_size=1)
    return repr((follows, replace(run.workload, model=alone, global_batch=1), cluster))


def columns_of(rows: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the columns of the format that rows need, in the order in which they are written."""
    filled = {column for row in rows for column in row}
    return (*COLUMNS, *(column for column in OPTIONAL_COLUMNS if column in filled))


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return the rows as CSV text; missing cells stay empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows([csv_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()
