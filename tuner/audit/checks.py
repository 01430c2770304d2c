"""The table of checks, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tuner.audit import limits, neighbours, prose, rates
from tuner.audit import memory_laws as memories
from tuner.audit import row_laws as rows
from tuner.audit import speed_periods as eras
from tuner.audit.evidence import Evidence
from tuner.audit.repair import Finding
from tuner.tables import Table

Check = Callable[[Evidence], Iterable[Finding]]

STAGES: Final[tuple[tuple[Check, ...], ...]] = (
    (rows.cells, rows.unnamed, rows.degrees, rows.batch, rows.node, rows.heads, rows.size, rows.endings),
    (prose.stated_values, prose.formulas),
    (prose.corrections,),
    (rates.older, rates.tflops, limits.speed, limits.memory),
    (neighbours.reprints,),
    (neighbours.swapped,),
    (neighbours.batches,),
    (
        *(
            neighbours.repeats,
            neighbours.outliers,
            memories.twins,
            memories.micro_batches,
            memories.straight,
            memories.stages,
        ),
        *(memories.out_of_memory, eras.changes),
    ),
)
"""Each stage sees the rows as the ones before it have mended them, so that one mistake is told once."""


def audit(table: Table) -> tuple[Finding, ...]:
    """Everything in a table that cannot be true or hardly is, by line."""
    evidence, found = Evidence.of(table), list[Finding]()
    for stage in STAGES:
        new = [finding for check in stage for finding in check(evidence)]
        evidence = evidence.after(new)
        found += new
    return tuple(sorted(found, key=lambda finding: (finding.line or 0, finding.row is not None)))
