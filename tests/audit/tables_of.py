"""Tables for the checks: rows of 4 layers of hidden 1024 on one node of 8 A100s, with some cells of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tuner.audit.evidence import Evidence
from tuner.audit.repair import Finding
from tuner.tables import table_of

USUAL: dict[str, str] = {
    "group": "g",
    "gpu": "A100-80GB-SXM",
    "gpus_per_node": "8",
    "nodes": "1",
    "layers": "4",
    "hidden": "1024",
    "heads": "8",
    "vocab": "1024",
    "seq": "1024",
    "tp": "2",
    "pp": "2",
    "cp": "1",
    "dp": "2",
    "vpp": "1",
    "zero": "1",
    "mbs": "1",
    "gbs": "16",
    "recompute": "none",
    "precision": "fp16",
    "sec_per_iter": "1.25",
}


def evidence_of(*rows: Mapping[str, str], without: Iterable[str] = ()) -> Evidence:
    """The evidence of rows that differ from the usual one in these cells; the first is in line 2."""
    cells = [{name: value for name, value in USUAL.items() if name not in without} | dict(row) for row in rows]
    columns = list(dict.fromkeys(name for row in cells for name in row))
    lines = [",".join(columns), *(",".join(row.get(column, "") for column in columns) for row in cells)]
    return Evidence.of(table_of("\n".join(lines) + "\n", "t.csv"))


def summary(finding: Finding) -> tuple[Any, ...]:
    """What a finding says but for its message: check, severity, line, rows, suggestion and repairs."""
    repairs = [(repair.row, dict(repair.cells), repair.exclude, repair.exclude_column) for repair in finding.repairs]
    return finding.check, finding.severity, finding.line, finding.rows, finding.suggestion, repairs


def findings(
    check: Callable[[Evidence], Iterable[Finding]], *rows: Mapping[str, str], without: Iterable[str] = ()
) -> list[tuple[Any, ...]]:
    """What one check finds in these rows."""
    return [summary(finding) for finding in check(evidence_of(*rows, without=without))]
