"""Contents and refusals of all formats; `python -m tests.golden_formats` rewrites the golden table."""

from __future__ import annotations

import json

from tests.golden_formats import GOLDEN, table


def test_the_golden_table_of_formats_is_current() -> None:
    """Review every changed row after regenerating the table."""
    golden, found = json.loads(GOLDEN.read_text()), table()
    assert found.keys() == golden.keys()
    for one, rows in found.items():
        changed = {name for name in rows | golden[one] if rows.get(name) != golden[one].get(name)}
        assert not changed, f"{one}: {sorted(changed)[:5]}; run python -m tests.golden_formats"
