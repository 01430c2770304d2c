"""How much of a disagreement a mistake must explain, and what counts as a convention, at exact thresholds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.audit.test_audit_arithmetic import row_of
from tuner.audit import rates
from tuner.audit.evidence import Unit, _decide, _support, short
from tuner.audit.flop_conventions import CONVENTIONS, OLDER, WELL_KNOWN
from tuner.audit.rates import Mistake


def mistake(sort: str, error: float) -> Mistake:
    """A mistake of a sort that leaves an error."""
    return Mistake(words=sort, suggestion="", cells={}, error=error, sort=sort)


@pytest.mark.parametrize(
    ("spread", "errors", "sorts"),
    [
        (0.01, {"d convention": 0.0324}, ["d convention"]),
        (0.01, {"d convention": -0.0326}, []),
        (0.0, {"d convention": 0.0024, "f scale": 0.001}, ["d convention"]),
        (0.0, {"d convention": 0.0026, "f scale": 0.001}, ["f scale"]),
        (0.0, {"b seq": 0.03}, ["b seq"]),
        (0.0, {"b seq": 0.031}, []),
        (0.0, {"c batch": 0.03}, []),
        (0.0, {"b seq": 0.002, "c batch": 0.002, "d convention": 0.0}, ["b seq", "c batch"]),
        (0.0, {"a older": 0.002, "c batch": 0.0}, ["a older"]),
    ],
)
def test_a_mistake_explains_what_it_leaves_within_rounding_and_three_spreads(
    spread: float, errors: dict[str, float], sorts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.0015 + 0.001 of rounding + 3 x spread; a sequence also up to 0.03; the likeliest sort alone."""
    found = [mistake(sort, error) for sort, error in reversed(list(errors.items()))]
    monkeypatch.setattr(rates, "_mistakes", lambda *_: iter(found))
    case: Any = SimpleNamespace(rate_rounding=0.001)
    evidence: Any = None
    unit = Unit(convention=0, factor=0.0, spread=spread)
    assert [one.sort for one in rates._explanations(evidence, case, unit)] == sorts


@pytest.mark.parametrize(
    ("batch", "usual"), [(1, True), (96, True), (160, True), (448, True), (9, False), (176, False)]
)
def test_a_usual_batch_is_a_small_odd_number_times_a_power_of_two(batch: int, usual: bool) -> None:
    assert rates._usual(batch) is usual


def test_an_error_is_the_logarithm_of_printed_over_counted() -> None:
    """The tolerance is the rounding, and 0.004 or six spreads of the group."""
    row = row_of(tflops="100")
    exact = Unit(convention=0, factor=0.0, spread=0.0)
    counted = CONVENTIONS[0].count(row.terms)
    assert exact.error(row) == pytest.approx(math.log(100e12 * 1.25 * 8 / counted))
    for beyond, spread, allowed in [
        (0.0039, 0.0, True),
        (0.0041, 0.0, False),
        (0.059, 0.01, True),
        (0.061, 0.01, False),
    ]:
        unit = Unit(convention=0, factor=exact.error(row) - row.rate_rounding - beyond, spread=spread)
        assert unit.error(row) == pytest.approx(row.rate_rounding + beyond)
        assert unit.allows(row) is allowed
    assert float(rates._tflops_of(row, exact)) == pytest.approx(100 * math.exp(-exact.error(row)), rel=1e-4)


def test_scales_are_shifted_points_milliseconds_and_totals() -> None:
    """On 8 GPUs a total is off by log 8; a factor of 10 by log 10, in the figure that is farther from usual."""
    row = row_of(tflops="100", sec_per_iter="1.25")
    unit = Unit(convention=0, factor=0.0, spread=0.0)
    evidence: Any = SimpleNamespace(expected={}, usual_share=100e12 / row.peak)
    found = {
        (one.words, one.suggestion): one.error - unit.error(row) for one in rates._other_scales(evidence, row, unit)
    }
    total = next(left for (words, _), left in found.items() if "total of all 8 GPUs" in words)
    assert total == pytest.approx(-math.log(8))
    assert found["a shifted decimal point", "sec_per_iter=0.125"] == pytest.approx(-math.log(10))
    assert found["milliseconds instead of seconds", "sec_per_iter=0.00125"] == pytest.approx(-math.log(1000))
    evidence = SimpleNamespace(expected={}, usual_share=10e12 / row.peak)
    words = [one.suggestion for one in rates._other_scales(evidence, row, unit)]
    assert "tflops=10" in words
    assert "sec_per_iter=12.5" in words


@pytest.mark.parametrize(
    ("errors", "decided"),
    [
        ([0.0, 0.0], (0, 0.0)),
        ([0.0, 1.0], None),
        ([0.0, 0.0, 1.0, -1.0, 3.0], (0, 0.0)),
        ([0.0, 0.0, 1.0, -1.0, 3.0, 7.0], None),
        ([0.05, 0.05, 0.05], (0, 0.05)),
        ([0.13, 0.13, 0.13], None),
        ([0.05, 0.05], None),
        ([0.0, 0.0, 0.05, 0.05, 0.05], (0, 0.05)),
    ],
)
def test_a_convention_needs_two_fifths_exactly_or_three_fifths_by_one_factor(
    errors: list[float], decided: tuple[int, float] | None
) -> None:
    """Tolerance 0.005; a factor up to 0.12 that explains more rows than the exact count."""
    table = np.array([[error, error + 50 * number] for number, error in enumerate(errors, start=1)])
    found = _decide(table, np.full(len(errors), 0.005))
    assert (None if found is None else (found.convention, round(found.factor, 9))) == decided


def test_support_is_of_the_group_before_the_table() -> None:
    errors = np.array([[0.0], [0.004], [0.2], [0.064]])
    unit = Unit(convention=0, factor=0.0, spread=0.01)
    assert _support(unit, errors, np.full(4, 0.005), [0, 2, 3]) == (2, 3)


@pytest.mark.parametrize(
    ("value", "text"), [(9999.4, "9999"), (10000.4, "10000"), (12345.6, "12346"), (0.12345, "0.1235")]
)
def test_figures_have_four_digits(value: float, text: str) -> None:
    assert short(value) in (text, text.replace("1235", "1234"))


@pytest.mark.parametrize("factor", [0.0, 0.1])
def test_the_count_before_2022_is_likelier_than_other_conventions(factor: float) -> None:
    """A convention is another where it leaves a row off by a hundredth more or less."""
    row = row_of(tflops="100", recompute="full")
    unit = Unit(convention=0, factor=factor, spread=0.0)
    counts = [CONVENTIONS[number].count(row.terms) for number in WELL_KNOWN]
    others = [n for n in WELL_KNOWN[1:] if factor or abs(math.log(counts[n] / counts[0])) > 0.01]
    found = list(rates._other_conventions(row, unit))
    assert [one.sort for one in found] == ["a older" if number == OLDER else "d convention" for number in others]
    for one, number in zip(found, others, strict=True):
        assert one.error == pytest.approx(Unit(convention=number, factor=0.0, spread=0.0).error(row))
        assert one.words.startswith(f"they count {CONVENTIONS[number].words}, but")
