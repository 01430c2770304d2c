"""A table's rows as columns: as few arrays as the rows' workloads and machines allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from tuner.core.columns import Columns
from tuner.core.domain import Shape, Topology
from tuner.tables.row import MeasuredRun, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows that differ in nothing but what columns hold, in the same order as the columns."""

    columns: Columns
    rows: tuple[Row, ...]


def blocks(rows: Iterable[Row]) -> list[RowBlock]:
    """All rows that describe a run, each in one block."""
    alike: dict[object, list[Row]] = {}
    for row in rows:
        if row.run is not None:
            alike.setdefault(_key(row.run), []).append(row)
    return [_block(members) for members in alike.values()]


def _block(members: list[Row]) -> RowBlock:
    runs = [row.run for row in members if row.run is not None]
    first = runs[0]
    cluster = replace(first.cluster, nodes=max(run.cluster.nodes for run in runs))
    topologies = [_spelt_out(run) for run in runs]
    return RowBlock(columns=Columns.of(topologies, first.workload, cluster), rows=tuple(members))


def _spelt_out(run: MeasuredRun) -> Topology:
    """The topology with its heads, shape and batch named, so that another row's workload can stand for its own."""
    model = run.workload.model
    shape = Shape(hidden=model.hidden, layers=model.layers)
    return replace(run.topology, heads=model.heads, shape=shape, global_batch=run.workload.global_batch)


def _key(run: MeasuredRun) -> object:
    """What columns do not hold. Sizes that follow hidden or heads are compared by how they follow."""
    model = run.workload.model
    follows = Fraction(model.ffn, model.hidden), model.kv_heads if model.kv_heads != model.heads else 0
    alone = replace(
        model, name="any", layers=1, hidden=model.hidden, heads=1, kv_heads=1, ffn=1, embedding_size=model.hidden
    )
    alone = replace(alone, hidden=1, embedding_size=1)
    cluster = replace(run.cluster, nodes=1)
    return repr((follows, replace(run.workload, model=alone, global_batch=1), cluster))
