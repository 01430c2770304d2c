"""A calibration's parameters and predictions, compared with a golden file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden_calibration import GOLDEN, figures


def flat(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number of a document with its path."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from flat(part, f"{name}/{key}")
    if not isinstance(value, dict | list):
        yield name, value


def test_a_calibration_is_the_one_in_the_golden_file() -> None:
    """A calibration equals the golden file within 1e-6, because linear algebra varies between machines."""
    golden, found = dict(flat(json.loads(GOLDEN.read_text()))), dict(flat(figures()))
    assert found.keys() == golden.keys()
    changed = [name for name, value in found.items() if value != pytest.approx(golden[name], rel=1e-6, abs=1e-12)]
    assert not changed, f"{len(changed)} figures changed, such as {changed[:5]}; run python -m tests.golden_calibration"
