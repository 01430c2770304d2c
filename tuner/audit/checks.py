"""The checks of a table, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tuner.audit import memory_laws, neighbours, prose, rates, row_laws, speed_periods
from tuner.audit.evidence import Evidence
from tuner.audit.repair import Finding
from tuner.tables import Table

Check = Callable[[Evidence], Iterable[Finding]]

STAGES: Final[tuple[tuple[Check, ...], ...]] = (
    (
        row_laws.cells,
        row_laws.unnamed,
        row_laws.degrees,
        row_laws.batch,
        row_laws.node,
        row_laws.heads,
        row_laws.size,
        row_laws.endings,
    ),
    (row_laws.milliseconds,),
    (prose.stated_values, prose.formulas),
    (prose.corrections,),
    (rates.older, rates.tflops, row_laws.speed, row_laws.memory),
    (neighbours.reprints,),
    (neighbours.swapped,),
    (neighbours.batches,),
    (
        *(
            neighbours.repeats,
            neighbours.outliers,
            memory_laws.twins,
            memory_laws.micro_batches,
            memory_laws.straight,
            memory_laws.stages,
        ),
        *(memory_laws.out_of_memory, speed_periods.changes),
    ),
)
"""Each stage sees the rows as repaired by the stages before it, so that one mistake makes one finding."""


def audit(table: Table) -> tuple[Finding, ...]:
    """Return every impossible or unlikely figure of a table, by line."""
    evidence, found = Evidence.of(table), list[Finding]()
    for stage in STAGES:
        new = [finding for check in stage for finding in check(evidence)]
        evidence = evidence.after(new)
        found += new
    return tuple(sorted(found, key=lambda finding: (finding.line or 0, finding.row is not None)))
