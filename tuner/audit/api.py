"""`tuner.audit_file`: audit a table, a report or a log, and write the repaired table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.audit.checks import audit
from tuner.audit.log_checks import audit_run
from tuner.audit.measure import differences
from tuner.audit.repair import Finding, fixed
from tuner.audit.subject import subject_of
from tuner.core.atomic_write import write_output
from tuner.core.errors import InputError, TunerError
from tuner.logs import Log, read_log
from tuner.logs.files import log_lines
from tuner.space.build import space_for
from tuner.tables import Defaults, Table, read_table, unused_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAudit:
    """The findings in a file."""

    name: str
    findings: tuple[Finding, ...]
    rows: int | None = None
    """Rows of a table."""
    runs: int | None = None
    """Runs of a log."""
    unused_columns: tuple[str, ...] = ()
    """Columns of a table that are not read."""

    @property
    def repaired(self) -> int:
        """Return the number of rows that a repair changes."""
        return len({repair.row for finding in self.findings for repair in finding.repairs})


def audit_file(
    file: str | Path, *, defaults: Iterable[str] = (), fix: bool = False, output: str | Path | None = None
) -> FileAudit:
    """Find impossible figures in a CSV table, a Markdown report or a log, and suggest repairs.

    Every argument is the option of `tuner audit` with the same name: with `fix`, the repaired table is written to
    `output`, whole or not at all.

    >>> import tuner
    >>> found = tuner.audit_file("corpus/bloom-a100.csv")
    >>> found.rows, sorted({finding.severity for finding in found.findings})
    (102, ['advice', 'error', 'warning'])
    """
    if fix != (output is not None):
        raise InputError("--fix and -o FILE require each other.")
    found = _read(str(file), defaults)
    if isinstance(found, Log):
        if output is not None:
            raise InputError(f"{file} is a log; --fix repairs tables only.")
        return FileAudit(name=str(file), findings=_of_log(found), runs=len(found.runs))
    findings = audit(found)
    if output is not None:
        write_output(Path(output), fixed(found, findings))
    return FileAudit(name=found.name, findings=findings, rows=len(found.rows), unused_columns=unused_columns(found))


def _read(file: str, defaults: Iterable[str]) -> Table | Log:
    """Read the file as a table, else as a log; fail with the table's error if it is neither."""
    try:
        return read_table(file, Defaults.parse(defaults))
    except InputError as error:
        no_table = error
    try:
        log = read_log(log_lines(file))
    except TunerError:
        raise no_table from None
    if not log.runs:
        raise no_table
    return log


def _of_log(log: Log) -> tuple[Finding, ...]:
    space = space_for()
    found: list[Finding] = []
    for run in log.runs:
        subject, _ = subject_of(run, space)
        found += audit_run(run, differences(run, subject) if subject else [])
    return tuple(found)
