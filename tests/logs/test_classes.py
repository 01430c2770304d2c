"""The confusion table of logs, and its totals in the documentation."""

from __future__ import annotations

import ast
from collections import Counter

from benchmarks.log_classes import failures, good_logs, right, table
from tests.conftest import ROOT


def test_the_documentation_states_the_totals() -> None:
    good, failed = list(good_logs()), list(failures())
    stated = f"{right(good)} of {len(good)} good logs and {right(failed)} of {len(failed)} failures"
    assert stated in " ".join((ROOT / "docs/benchmarks.md").read_text().split()), table(failed)


def test_the_table_counts_every_case_and_names_misclassified_ones() -> None:
    pairs = [("a", "OOM", "OOM"), ("b", "OOM", "HUNG"), ("c", "none", "none")]
    lines = table(pairs).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["HUNG", "OOM", "none"],
        ["OOM", "1", "1", "."],
        ["none", ".", ".", "1"],
    ]
    assert lines[3:] == ["2 of 3 right (66.7%)", "  b: OOM, read as HUNG"]


def test_case_names_are_unique() -> None:
    """The tables of cases are merged, so a duplicate name would hide a case."""
    names: Counter[str] = Counter()
    for path in (ROOT / "tests/logs").glob("*/*.py"):
        tables = (node.value for node in ast.parse(path.read_text()).body if isinstance(node, ast.AnnAssign))
        keys = (key for table in tables if isinstance(table, ast.Dict) for key in table.keys)
        names.update(str(key.value) for key in keys if isinstance(key, ast.Constant))
    assert len(names) > 700
    assert [name for name, times in names.items() if times > 1] == []
