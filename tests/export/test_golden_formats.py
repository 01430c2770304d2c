"""What the formats refuse and write, pinned; `python -m tests.golden_formats` writes the table anew."""

from __future__ import annotations

import json

from tests.golden_formats import GOLDEN, table


def test_every_format_refuses_and_writes_what_the_golden_table_says() -> None:
    """A changed row is a decision: regenerate the table and review the difference."""
    golden, found = json.loads(GOLDEN.read_text()), table()
    assert found.keys() == golden.keys()
    for one, rows in found.items():
        changed = {name for name in rows | golden[one] if rows.get(name) != golden[one].get(name)}
        assert not changed, f"{one}: {sorted(changed)[:5]}; run python -m tests.golden_formats"
