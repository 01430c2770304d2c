"""`tuner plan`: the whole legal space ranked by estimate, with nothing launched."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import Workload
from tuner.core.errors import EmptySpace, InputError
from tuner.core.frameworks import record_of
from tuner.core.quantity import GIB
from tuner.core.text import ResultTable, Tabular, column, either, four_digits, interval, listed
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.flops import causal_flops, model_flops
from tuner.costmodel.site_file import warn_of_mismatch
from tuner.planning.cost import TopologyCost, costs, impossible
from tuner.planning.memory_remedies import memory_remedy
from tuner.planning.offload_hint import OffloadHint
from tuner.space.relaxations import openings
from tuner.space.rules import BY_NAME, OF_EXPERTS, frameworks_with_more
from tuner.space.space import Space, Tally

ORDER: Final = "estimated training time divided by the probability of fitting in memory"
"""The order of rows: by expected throughput at equal compute, including the risk of running out of memory, highest
first; ties in the order of the grid."""

MAX_ROWS: Final = 500_000
"""Rows that are listed at most when all are asked for."""

_LONG_EXCHANGE: Final = 0.1
"""Share of the first row's time from which an exchange of tokens is worth overlapping."""

_MUCH_MASKED: Final = 0.2
"""Share of the operations from which the masked half of attention is named beside the MFU that counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Tabular):
    """The legal space, counted, and its first rows."""

    tally: Tally
    fitting: int
    """Legal topologies that are more likely to fit than to run out of memory."""
    seconds: float
    top: tuple[TopologyCost, ...]
    remedy: str = ""
    """Where nothing fits: the offload with which some topologies would; empty if none does."""
    hint: str = ""
    """What else could be searched."""

    def _shown(self) -> ResultTable:
        unit, per_day = column([row.days for row in self.top])
        rows = [
            (
                row.topology.key,
                four_digits(row.seconds),
                interval(row.low, row.high),
                f"{row.days * per_day:,.1f}",
                f"{row.flops / 1e12:,.1f}",
                f"{row.mfu:.1%}",
                f"{row.memory / GIB:,.1f}",
                f"{row.out_of_memory:.0%}",
                ", ".join(row.advice),
            )
            for row in self.top
        ]
        return ResultTable(
            title=f"{self.tally.legal:,} legal topologies of {self.tally.grid:,}, {self.fitting:,} fit",
            headers=("Topology", "Sec/it", "80% between", unit, "TFLOPs", "MFU", "GiB", "P(OOM)", "Advice"),
            words=frozenset({"Topology", "80% between", "Advice"}),
            rows=rows,
            notes=(f"Estimates, not measurements. Sorted by {ORDER}.", *filter(None, [self.remedy, self.hint])),
        )


def plan(space: Space, *, top: int = 10, model: CostModel | None = None) -> Plan:
    """Enumerate and score the whole space and keep its first `top` rows, or all if `top` is 0.

    >>> import tuner
    >>> made = tuner.plan(tuner.space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=4, global_batch=512), top=3)
    >>> len(made.top), made.fitting <= made.tally.legal
    (3, True)

    Raises `EmptySpace` with the rules that removed everything and the changes that would help.
    """
    warn_of_mismatch((model or CostModel()).calibration, [(space.workload, space.cluster)])
    return ranked(space, top=top, model=model)


def ranked(space: Space, *, top: int, model: CostModel | None) -> Plan:
    """Return the plan of a space, without a warning of a calibration on another GPU or framework."""
    if top < 0:
        raise InputError(f"top must be a number of rows, or 0 for all (got {top}).")
    started, tally, keep, known = time.perf_counter(), Tally(), top or MAX_ROWS, model or CostModel()
    points: IntArray = np.empty(0, dtype=np.int64)
    keys: FloatArray = np.empty((2, 0))
    fitting, offload = 0, OffloadHint(space)
    for block in space.blocks(tally):
        columns = space.columns(block)
        scores = known.score(columns)
        fitting += int(np.count_nonzero(scores.fits))
        points = np.concatenate([points, block])
        offload.add(block, columns, scores)
        with np.errstate(divide="ignore"):
            expected = scores.training / (1 - scores.out_of_memory)
        keys = np.concatenate([keys, np.stack([scores.training, expected])], axis=1)
        if len(points) > 2 * keep:
            points, keys = _first_rows(points, keys, keep)
    if not tally.legal:
        raise EmptySpace(why_empty(space, tally))
    if not top and tally.legal > MAX_ROWS:
        raise InputError(f"{tally.legal:,} rows are too many to list; limit them with --top, or pin axes with --set.")
    points, keys = _first_rows(points, keys, keep)
    rows = costs(space.topologies(points), space.columns(points), known)
    remedy = "" if fitting else memory_remedy(space, known)
    hints = [impossible(rows), _overlap_hint(space, rows[0]), _masked_hint(space.columns(points[:1]), rows[0])]
    hints += [offload.words(keys[0, 0], keys[1, 0], known)] if fitting else []
    return Plan(
        tally=tally,
        fitting=fitting,
        seconds=time.perf_counter() - started,
        top=tuple(rows),
        remedy=remedy,
        hint=" ".join(filter(None, hints)),
    )


def _first_rows(points: IntArray, keys: FloatArray, keep: int) -> tuple[IntArray, FloatArray]:
    """Return the first points with their keys, in order of the last key; what comes behind them is not sorted."""
    if len(points) > keep:
        last = np.partition(keys[-1], keep - 1)[keep - 1]
        near = keys[-1] <= last
        points, keys = points[near], keys[:, near]
    first = np.lexsort((points, *keys))[:keep]
    return points[first], keys[:, first]


def _masked_hint(first: Columns, row: TopologyCost) -> str:
    """Return the MFU of the first row without the masked half of attention, if that is much of the operations."""
    share = float(causal_flops(first)[0] / model_flops(first)[0])
    if 1 - share < _MUCH_MASKED:
        return ""
    return (
        f"TFLOPs and MFU count the masked half of attention; without it, the first row's MFU is {share * row.mfu:.1%}."
    )


def _overlap_hint(space: Space, first: TopologyCost) -> str:
    """Return how to try the overlap of a mixture's exchange of tokens if it takes much of the first row's time."""
    record, exchange = record_of(space.workload), first.estimate.time.terms.get("dispatch", 0.0) / first.seconds
    if record is None or not record.moe_overlap.value or True in space.axes["moe_overlap"] or exchange < _LONG_EXCHANGE:
        return ""
    other = replace(first.topology, moe_overlap=True, vpp=2, recompute="none")
    if BY_NAME["overlap-of-experts"].violation(Columns.of([other], space.workload, space.cluster)):
        return ""
    return (
        f"The exchange of tokens takes {exchange:.0%} of the first row's time; --set moe_overlap=on,off also tries to "
        "overlap it."
    )


def removal(rule: str, count: int, workload: Workload) -> str:
    """Return a rule with the number of topologies that it removes, and the frameworks that could run some of them."""
    if rule in OF_EXPERTS and workload.model.experts is None:
        return f"{rule} ({count:,}; {workload.model.name} has no experts)"
    others = frameworks_with_more(rule, workload)
    return f"{rule} ({count:,}" + (f"; supported by {listed(others)})" if others else ")")


def why_empty(space: Space, tally: Tally) -> str:
    """Return one sentence: how many topologies each rule removed, and the nearest changes that make some legal."""
    causes = ", ".join(removal(name, count, space.workload) for count, name in tally.removals())
    found = openings(space)
    remedy = (
        "try " + either(f"{opening.change} ({opening.legal:,} legal)" for opening in found)
        if found
        else "no single change of nodes, global batch, policies or depth makes one legal"
    )
    return f"none of {tally.grid:,} topologies is legal; removed by {causes}; {remedy}."
