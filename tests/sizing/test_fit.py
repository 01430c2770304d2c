"""The line through the memory of several micro-batches, against the closed forms of least squares."""

from __future__ import annotations

from math import sqrt

import pytest

from tuner.sizing.fit import BatchResult, fitted, pressures, ratio_at


def result(batch: int, memory: float | None = None, seconds: float | None = None) -> BatchResult:
    return BatchResult(micro_batch=batch, outcome="MEASURED", peak_memory=memory, seconds=seconds)


def test_four_points_make_the_line_of_least_squares_with_its_standard_error() -> None:
    """Slope 2.1 and offset 1 leave residuals of -0.1, -0.2, 0.7 and -0.4 over two degrees of freedom."""
    line = fitted([result(1, 3.0), result(2, 5.0), result(3, 8.0), result(4, 9.0)])
    assert line
    assert (line.per_sample, line.at_zero) == pytest.approx((2.1, 1.0))
    assert line.points == 4
    assert line.stderr == pytest.approx(sqrt(0.7 / 2 / 5))
    assert line.at(10) == pytest.approx(22.0)


def test_two_points_leave_no_error_to_estimate_and_one_makes_no_line() -> None:
    two = fitted([result(1, 3.0), result(2, 5.0)])
    assert two
    assert two.stderr is None
    assert fitted([result(1, 3.0)]) is None
    assert fitted([result(1, 5.0), result(2, 3.0)]) is None


def test_a_batch_slower_than_the_trend_is_under_memory_pressure() -> None:
    """One second more for each sample makes three expected, and four were measured."""
    (found,) = pressures([result(1, 1.0, 1.0), result(2, 2.0, 2.0), result(3, 6.0, 4.0)], usable=8.0)
    assert found.micro_batch == 3
    assert found.slower == pytest.approx(1 / 3)
    assert found.share == pytest.approx(0.75)
    assert pressures([result(1, 1.0, 1.0), result(2, 2.0, 2.0), result(3, 6.0, 3.0)], usable=8.0) == []


def test_a_claim_that_is_memory_over_samples_is_recognised() -> None:
    seen = [result(1, 3.0), result(2, 5.0), result(4, 9.0)]
    assert ratio_at(2.5, seen, digit=0.1) == seen[1]
    assert ratio_at(2.0, seen, digit=0.1) is None
