"""What is expected of a row, speed periods and formulas, in closed form."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.audit.tables_of import evidence_of, findings
from tuner.audit import speed_periods
from tuner.audit.expectation import _axes, _kernels, _median, expected_seconds
from tuner.audit.formulas import formulas_in


def case_of(row: dict[str, str]) -> Any:
    """The row as the checks see it."""
    (case,) = evidence_of(row).cases.values()
    return case


# ----------------------------------------------------------------------------------------------------- expectation


def test_runs_are_as_far_apart_as_their_weighted_doublings() -> None:
    base = case_of({})

    def apart(**cells: str) -> float:
        other = case_of(cells)
        return sum(abs(a - b) for a, b in zip(_axes(base), _axes(other), strict=True))

    changes = {
        0.5: {"mbs": "2"},
        0.4: {"pp": "4", "nodes": "2"},
        0.3: {"dp": "4", "nodes": "2"},
        0.15: {"gbs": "32"},
        0.7: {"seq": "2048"},
        1.0: {"heads": "16"},
    }
    for weight, cells in changes.items():
        assert apart(**cells) == pytest.approx(weight), cells
    assert apart(cp="2", nodes="2") == pytest.approx(0.3)
    assert apart(zero="3") == pytest.approx(0.6)
    assert apart(layers="8") == pytest.approx(0.3)
    assert apart(tp="4", nodes="2") == pytest.approx(2.0)
    assert apart(hidden="2048") == pytest.approx(1.5)


def test_kernels_differ_in_recompute_attention_norms_and_other_columns() -> None:
    base = _kernels(case_of({}))
    for cells in [{"recompute": "full"}, {"attention": "eager"}, {"fused_norm": "false"}, {"release": "2"}]:
        assert sum(a != b for a, b in zip(base, _kernels(case_of(cells)), strict=True)) == 1, cells


def test_a_weighted_median_is_the_first_value_that_reaches_half_of_the_weight() -> None:
    import numpy as np

    def median(values: list[float], weights: list[float]) -> float:
        return _median(np.array(values), np.array(weights))

    assert median([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == 2.0
    assert median([3.0, 1.0, 2.0], [9.0, 1.0, 1.0]) == 3.0
    assert median([3.0, 1.0], [1.0, 1.0]) == 1.0


def test_an_expectation_is_the_neighbours_time_for_each_operation() -> None:
    """Two rows of twice the batch: expected at equal time per FLOP, the same at equal time; a single row has none."""
    rows = [{"sec_per_iter": "1.0"}, {"gbs": "32", "sec_per_iter": "3.0"}]
    found = expected_seconds(evidence_of(*rows).cases)
    assert found[0].seconds == pytest.approx(3.0 * 9 / 17)
    assert found[0].same == pytest.approx(3.0)
    assert found[1].seconds == pytest.approx(17 / 9)
    assert found[0].nearest == pytest.approx(0.15)
    assert found[0].neighbours == 1
    off = math.log(1.0 / (27 / 17))
    assert found[0].spread == pytest.approx(1.4826 * abs(off))
    assert expected_seconds(evidence_of(rows[0]).cases) == {}
    far = [rows[0], rows[1] | {"hidden": "4096", "heads": "32"}]
    assert expected_seconds(evidence_of(*far).cases) == {}
    assert expected_seconds(evidence_of(rows[0], rows[1] | {"precision": "bf16"}).cases) == {}
    grouped = expected_seconds(evidence_of(rows[0], rows[1] | {"group": "h"}).cases)
    assert grouped[0].nearest == pytest.approx(0.4)
    kernel = expected_seconds(evidence_of(rows[0], rows[1] | {"attention": "eager"}).cases)
    assert kernel[0].nearest == pytest.approx(1.15)


def test_a_reprint_counts_once_among_the_neighbours() -> None:
    rows = [{"sec_per_iter": "1.0"}, {"sec_per_iter": "2.0", "gbs": "32"}, {"sec_per_iter": "2.0", "gbs": "32"}]
    assert expected_seconds(evidence_of(*rows).cases)[0].neighbours == 1
    other = expected_seconds(evidence_of(rows[0], rows[1], rows[2] | {"sec_per_iter": "2.1"}).cases)
    assert other[0].neighbours == 2


# --------------------------------------------------------------------------------------------------- speed periods


def test_a_change_of_speed_names_its_days_and_factor() -> None:
    rows = [
        {"note": f"{day} run", "mbs": mbs, "sec_per_iter": f"{scale * base:.4f}"}
        for day, scale in (("01-10", 1.0), ("01-12", 0.9))
        for mbs, base in (("1", 10.0), ("2", 9.0))
    ]
    suggestion = "compare only rows of one speed period, or fit a factor between periods"
    assert findings(lambda evidence: speed_periods.changes(evidence), *rows) == [
        ("speed-period", "advice", 4, (2, 3), suggestion, [])
    ]
    (found,) = speed_periods.changes(evidence_of(*rows))
    assert found.message == "2 runs of 01-10 took 10.0 to 10.0% less time on 01-12: a factor of 0.900"
    (single,) = speed_periods.changes(evidence_of(rows[0], rows[2] | {"sec_per_iter": "11"}))
    assert single.message == "1 run of 01-10 took 10.0% more time on 01-12: a factor of 1.100"
    assert single.rows == (1,)


# -------------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize(
    ("text", "result", "above", "below"),
    [
        ("perl -le 'print 6*4 / 8'", 3.0, [6.0, 4.0], [8.0]),
        ("perl -le '$a=2+5; print $a*4 / 2'", 14.0, [7.0, 4.0], [2.0]),
        ("perl -le '$a=9-4; print $a*4 / (2*5)'", 2.0, [5.0, 4.0], [2.0, 5.0]),
        ("perl -le '$a=2**3; print $a*3 / 4'", 6.0, [8.0, 3.0], [4.0]),
        ("perl -le '$a=2**9; print $a*3 / 4'", 384.0, [512.0, 3.0], [4.0]),
        ("perl -le '$a=999999**1; print $a*3 / 1'", 2999997.0, [999999.0, 3.0], [1.0]),
        ("perl -le 'print 6*4 / (8/2)'", 6.0, [6.0, 4.0, 2.0], [8.0]),
        ("perl -le '$A=8; print $a*4 / $A'", 4.0, [8.0, 4.0], [8.0]),
    ],
)
def test_a_formula_has_the_factors_above_and_below_its_fraction(
    text: str, result: float, above: list[float], below: list[float]
) -> None:
    (found,) = formulas_in(("", text))
    assert found.line == 2
    assert found.result == pytest.approx(result)
    assert [factor.value for factor in found.above] == above
    assert [factor.value for factor in found.below] == below


@pytest.mark.parametrize(
    "text",
    [
        "print 6*4",
        "print 6*4 / 0",
        "6*4 / 2",
        "print 2**10*3 / 4",
        "print (0-2)**2*3 / 4",
        "print 0**2*3 / 4",
        "print 1000000**2*3 / 4",
        "print 1e61*3 / 4",
        "print 6*f(4) / 2",
        "print " + "1*" * 500 + "4/2",
    ],
)
def test_what_is_no_quotient_of_products_is_no_formula(text: str) -> None:
    assert list(formulas_in((text,))) == []
