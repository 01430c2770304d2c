"""The start of a speed period within the window given by the last repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.study.test_arithmetic import trial
from tuner.study import drift
from tuner.study.drift import SpeedPeriod


@pytest.mark.parametrize(
    ("recent", "window", "first"), [([2, 3, 4, 5], (3, 5), 5), ([2, 3, 4], (3, 5), 4), ([1, 2], (3, 5), 5)]
)
def test_a_speed_period_starts_within_its_window(recent: list[int], window: tuple[int, int], first: int) -> None:
    """A period starts at the most likely trial within the window, or at the window's end if none was measured in it."""
    runs = [trial(number, 1, 10.0 if number < 4 else 11.0) for number in range(7)]
    periods = [SpeedPeriod(first=0, factor=1.0)]

    def later(firsts: Sequence[int], /, **_: Any) -> float:
        return 100.0 * len(firsts) + firsts[-1]

    found = drift._locate(runs, periods, [runs[number] for number in recent], window, later)
    assert [period.first for period in found] == [0, first]
