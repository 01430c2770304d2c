"""Refusals of each format for models that differ in one property."""

from __future__ import annotations

import json

from tests.golden_refusals import GOLDEN, table


def test_refusals_match_the_golden_table() -> None:
    golden, found = json.loads(GOLDEN.read_text()), table()
    assert found.keys() == golden.keys()
    changed = {case: (found[case], golden[case]) for case in found if found[case] != golden[case]}
    assert not changed, f"{len(changed)} cases changed, such as {next(iter(changed.items()))}; " + (
        "run python -m tests.golden_refusals"
    )
