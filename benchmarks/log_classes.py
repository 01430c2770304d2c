"""Classification of logs and failures: confusion tables of each fixture's class and the class that tuner reads.

    python -m benchmarks.log_classes

The class of a good log is the reader that must measure it; the class of a failure is its outcome. A failure with the
right outcome but another meaning, or another line as its evidence, counts as wrong. Harmless lines must not be read as
failures. The fixtures, written by hand in each program's own format, are in `tests/data/logs` and `tests/logs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.logs import test_failures, test_frameworks, test_logs
from tests.logs.failures import FAILURES, HARMLESS
from tests.logs.working import GOOD_LOGS
from tuner.logs import read_log

LOGS: Final = Path(__file__).resolve().parent.parent / "tests/data/logs"
NONE: Final = "none"
WRONG_CAUSE: Final = "wrong cause"
"""The outcome is right, but its reason or its evidence line is wrong."""

Pair = tuple[str, str, str]
"""A case: its name, its true class, and the class that tuner reads."""


def good_logs() -> Iterator[Pair]:
    """Yield each good log with the expected reader and the reader that measures it (`NONE` if it reads a failure)."""
    expected = {name: str(row[0]) for name, row in {**test_frameworks.FRAMEWORKS, **test_logs.FORMATS}.items()}
    logs = {name: (source, (LOGS / f"{name}.log").read_text(errors="replace")) for name, source in expected.items()}
    logs |= {name: (source, text) for name, (text, source, *_) in GOOD_LOGS.items()}
    for name, (source, text) in logs.items():
        runs = read_log(text.splitlines()).runs
        measures = len(runs) == 1 and runs[0].failure is None
        yield name, source, str(runs[0].source) if measures else NONE


def failures() -> Iterator[Pair]:
    """Yield each failure and harmless line with its outcome and the one that tuner reads."""
    for name, (outcome, line, evidence) in test_failures.FAILURES.items():
        lines = (LOGS / f"failure-{name}.log").read_text().splitlines()
        seen = test_failures.failure_of(*lines)
        right = seen is not None and seen.line == line and seen.failure.evidence.startswith(evidence)
        yield name, outcome.value, _got(outcome.value, seen.failure.kind if seen else NONE, right)
    for name, (text, kind, meaning, evidence) in FAILURES.items():
        seen = test_failures.failure_of(*text.splitlines())
        found = seen.failure.evidence.removeprefix("[rank0]: ") if seen else ""
        right = seen is not None and seen.meaning == meaning and found.startswith(evidence)
        yield name, kind, _got(kind, seen.failure.kind if seen else NONE, right)
    for harmless in HARMLESS:
        seen = test_failures.failure_of(harmless)
        yield harmless, NONE, seen.failure.kind if seen else NONE


def _got(expected: str, found: str, right: bool) -> str:
    return WRONG_CAUSE if found == expected and not right else found


def right(pairs: list[Pair]) -> int:
    """Return the number of correctly classified cases."""
    return sum(expected == got for _, expected, got in pairs)


def table(pairs: list[Pair]) -> str:
    """Return the confusion table: a row for each true class, a column for each class that tuner read."""
    counts = Counter((expected, got) for _, expected, got in pairs)
    rows, columns = (sorted({pair[index] for pair in pairs}) for index in (1, 2))
    width = max(map(len, rows))
    head = f"{'':{width}}  " + "  ".join(columns)
    body = [
        f"{row:{width}}  " + "  ".join(f"{counts[row, column] or '.':>{len(column)}}" for column in columns)
        for row in rows
    ]
    total = f"{right(pairs)} of {len(pairs)} right ({right(pairs) / len(pairs):.1%})"
    wrong = [f"  {name}: {expected}, read as {got}" for name, expected, got in pairs if expected != got]
    return "\n".join([head, *body, total, *wrong])


def main() -> None:
    """Print both tables."""
    for title, pairs in (("Good logs, by reader", good_logs()), ("Failures, by outcome", failures())):
        print(f"{title}\n\n{table(list(pairs))}\n")


if __name__ == "__main__":
    main()
