"""`tuner audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import as_json
from tuner.cli.tables import takes_a_table

if TYPE_CHECKING:
    from tuner.audit import Finding
    from tuner.tables import Table


@click.command(epilog="Example: tuner audit tests/data/tables/bloom-a100.csv")
@takes_a_table
@click.option("--fix", is_flag=True, help="Write the repaired table, with a note in each touched row; needs -o.")
@click.option("-o", "--output", metavar="FILE", help="Where --fix writes it, as CSV.")
@as_json
def audit(table: Table, fix: bool, output: str | None, as_json: bool) -> None:
    """Find figures that cannot be true in a measurement table or a Markdown report, and suggest the repair.

    --fix mends what has one repair and marks, in the column audit, what cannot be true and has none; every command
    skips what is marked.
    """
    from tuner.errors import InputError

    if fix != (output is not None):
        raise InputError("--fix and -o FILE go together.")
    findings = _findings(table)
    if output is not None:
        _write(output, table, findings)
    if as_json:
        from tuner.cli.output import print_json

        print_json(
            "audit", {"table": table.name, "rows": len(table.rows), "findings": [_document(f) for f in findings]}
        )
    else:
        _print_text(table, findings)


def _findings(table: Table) -> tuple[Finding, ...]:
    from tuner.audit import audit as audited

    return audited(table)


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "row": finding.row,
        "line": finding.line,
        "check": finding.check,
        "severity": finding.severity,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "rows": list(finding.rows),
        "repairs": [
            {
                "row": repair.row,
                "cells": dict(repair.cells),
                "exclude": repair.exclude or None,
                "exclude_column": repair.exclude_column or None,
            }
            for repair in finding.repairs
        ],
    }


def _print_text(table: Table, findings: tuple[Finding, ...]) -> None:
    from tuner.errors import counted, listed

    for finding in findings:
        print(f"line {finding.line}: {finding.severity}, {finding.check}: {finding.message}")
        print(f"    -> {finding.suggestion}")
    severities = ("error", "warning", "advice")
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in severities}
    words = [
        f"{number} {severity}{'s' * (number != 1 and severity != 'advice')}"
        for severity, number in counts.items()
        if number
    ]
    print(f"{table.name}: {counted(len(table.rows), 'row')}, {listed(words) if words else 'nothing found'}")


def _write(output: str, table: Table, findings: tuple[Finding, ...]) -> None:
    """The repaired table, by a temporary name, so that a failure leaves nothing half written."""
    import sys
    from pathlib import Path

    from tuner.audit import fixed
    from tuner.errors import InputError, counted

    path = Path(output)
    beside = path.with_name(f".{path.name}.partial")
    try:
        beside.write_text(fixed(table, findings), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror or error}.") from None
    touched = {repair.row for finding in findings for repair in finding.repairs}
    print(f"tuner: wrote {output}, {counted(len(touched), 'row')} touched.", file=sys.stderr)
