"""`tuner audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_defaults
from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.audit import Finding
    from tuner.logs import Log
    from tuner.tables import Table


@click.command(
    short_help="Find impossible figures in a table, report or log.",
    epilog="Example: tuner audit corpus/bloom-a100.csv",
)
@click.argument("file", metavar="TABLE|LOG")
@takes_defaults
@click.option("--fix", is_flag=True, help="Write the repaired table, with a note in every changed row; requires -o.")
@click.option("-o", "--output", metavar="FILE", help="CSV file that --fix writes.")
@as_json
def audit(file: str, defaults: tuple[str, ...], fix: bool, output: str | None, as_json: bool) -> None:
    """Find impossible or unlikely figures in a CSV table, a Markdown report or a training log, and suggest repairs.

    --fix applies every repair that is unambiguous, and marks the other impossible rows in the column audit; all
    commands skip marked rows.
    """
    from tuner.core.errors import InputError
    from tuner.core.text import counted
    from tuner.logs import Log

    if fix != (output is not None):
        raise InputError("--fix and -o FILE require each other.")
    found = _read(file, defaults)
    if isinstance(found, Log):
        name, findings = file, _findings_of_log(found)
        size, document = counted(len(found.runs), "run"), {"log": name, "runs": len(found.runs)}
        if output is not None:
            raise InputError(f"{file} is a log; --fix repairs tables only.")
    else:
        name, findings = found.name, _findings(found)
        size, document = counted(len(found.rows), "row"), {"table": name, "rows": len(found.rows)}
        if output is not None:
            _write(output, found, findings)
    if as_json:
        from tuner.cli.output import print_json

        print_json("audit", {**document, "findings": [_document(f) for f in findings]})
    else:
        _print_text(name, size, findings)


def _read(file: str, defaults: tuple[str, ...]) -> Table | Log:
    """Read the file as a table, else as a log; fail with the table's error if it is neither."""
    from tuner.cli.arguments import read
    from tuner.core.errors import InputError, TunerError
    from tuner.logs import read_log
    from tuner.logs.files import log_lines

    try:
        return read(file, defaults)
    except InputError as error:
        no_table = error
    try:
        log = read_log(log_lines(file))
    except TunerError:
        raise no_table from None
    if not log.runs:
        raise no_table
    return log


def _findings_of_log(log: Log) -> tuple[Finding, ...]:
    from tuner.audit import Contradiction, audit_run
    from tuner.audit.measure import differences, subject_of
    from tuner.space.build import space_for

    space = space_for()
    found: list[Finding] = []
    for run in log.runs:
        subject, _ = subject_of(run, space, None, ())
        rates = differences(run, subject) if subject else []
        found += audit_run(run, [Contradiction(d.iteration, d.printed, d.counted, d.reason) for d in rates])
    return tuple(found)


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


def _print_text(name: str, size: str, findings: tuple[Finding, ...]) -> None:
    from tuner.core.text import listed

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
    print(f"{name}: {size}, {listed(words) if words else 'no findings'}")


def _write(output: str, table: Table, findings: tuple[Finding, ...]) -> None:
    """Write the repaired table, whole or not at all."""
    import sys
    from pathlib import Path

    from tuner.audit import fixed
    from tuner.core.atomic_write import write_whole
    from tuner.core.errors import InputError
    from tuner.core.text import counted

    try:
        write_whole(Path(output), fixed(table, findings))
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}.") from None
    changed = {repair.row for finding in findings for repair in finding.repairs}
    print(f"tuner: wrote {output}, {counted(len(changed), 'row')} changed.", file=sys.stderr)
