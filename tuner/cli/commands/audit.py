"""`tuner audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_defaults
from tuner.cli.options import FilePath, as_json

if TYPE_CHECKING:
    from tuner.audit import Finding
    from tuner.audit.api import FileAudit


@click.command(
    short_help="Find impossible figures in a table, report or log.",
    epilog="Example: tuner audit corpus/bloom-a100.csv",
)
@click.argument("file", type=FilePath(), metavar="TABLE|LOG")
@takes_defaults
@click.option("--fix", is_flag=True, help="Write the repaired table, with a note in every changed row; requires -o.")
@click.option("-o", "--output", type=FilePath(), metavar="FILE", help="CSV file that --fix writes.")
@click.option("--strict", is_flag=True, help="Exit with code 1 if there are errors, for CI.")
@as_json
def audit(file: str, defaults: tuple[str, ...], fix: bool, output: str | None, strict: bool, as_json: bool) -> None:
    """Find impossible or unlikely figures in a CSV table, a Markdown report or a training log, and suggest repairs.

    --fix applies every repair that is unambiguous, and marks the other impossible rows in the column audit; all
    commands skip marked rows.
    """
    import sys

    from tuner.audit.api import audit_file
    from tuner.core.errors import NothingUsable
    from tuner.core.text import counted

    found = audit_file(file, defaults=defaults, fix=fix, output=output)
    if output is not None:
        print(f"tuner: wrote {output}, {counted(found.repaired, 'row')} changed.", file=sys.stderr)
    if as_json:
        from tuner.cli.output import print_json

        read: dict[str, Any] = {"log": found.name, "runs": found.runs} if found.rows is None else {"table": found.name}
        if found.rows is not None:
            read |= {"rows": found.rows, "unused_columns": list(found.unused_columns)}
        print_json("audit", {**read, "findings": [_document(finding) for finding in found.findings]})
    else:
        _print_text(found)
    errors = sum(finding.severity == "error" for finding in found.findings)
    if strict and errors:
        raise NothingUsable(f"{found.name} has {counted(errors, 'error')}.")


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


def _print_text(found: FileAudit) -> None:
    from tuner.core.text import counted, listed

    for finding in found.findings:
        print(f"line {finding.line}: {finding.severity}, {finding.check}: {finding.message}")
        print(f"    -> {finding.suggestion}")
    severities = ("error", "warning", "advice")
    counts = {severity: sum(finding.severity == severity for finding in found.findings) for severity in severities}
    nouns = {"advice": "suggestion"}
    words = [counted(number, nouns.get(severity, severity)) for severity, number in counts.items() if number]
    size = counted(found.runs or 0, "run") if found.rows is None else counted(found.rows, "row")
    print(f"{found.name}: {size}, {listed(words) if words else 'no findings'}")
