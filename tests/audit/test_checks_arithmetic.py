"""Rates, neighbours and speed periods: what each check proposes, and where it begins to."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.audit.tables_of import evidence_of, findings
from tuner.audit import neighbours, rates
from tuner.audit.flop_conventions import hardware

NOTES = ("aa", "bb", "cc", "dd")


def exact(scale: float = 1.0, seconds: float = 1.25, **cells: str) -> dict[str, str]:
    """A row whose TFLOPs are a multiple of those of its seconds."""
    (usual,) = evidence_of(cells).cases.values()
    rate = hardware(usual.terms) / usual.gpus / seconds / 1e12 * scale
    return cells | {"sec_per_iter": f"{seconds:.5f}", "tflops": f"{rate:.5f}"}


def beside(row: dict[str, str]) -> list[Any]:
    """What is found of a row beside four exact ones: suggestions, repairs, and words after the colon."""
    rows = [exact(note=note) for note in NOTES] + [row]
    found = findings(rates.tflops, *rows)
    messages = [finding.message for finding in rates.tflops(evidence_of(*rows))]
    assert all(one[:4] == ("tflops", "error", 6, (4,)) for one in found)
    return [(*one[4:], message.partition("FLOPs: ")[2]) for one, message in zip(found, messages, strict=True)]


@pytest.mark.parametrize(
    ("row", "cells", "words"),
    [
        (exact(0.5), {"gbs": "8"}, "they are for a batch of 8, not 16"),
        (exact(1.5), {"gbs": "24"}, "they are for a batch of 24, not 16"),
        (exact(2, gbs="64"), {"gbs": "128"}, "they are for a batch of 128, not 64"),
        (exact(1000), {"tflops": "0.587552"}, "a shifted decimal point"),
        (exact(0.1), {"tflops": "0.5876"}, "a shifted decimal point"),
        (exact(8, gbs="18"), {"tflops": "0.661"}, "they are the total of all 8 GPUs"),
        (exact(1 / 1000, seconds=1250.0), {"sec_per_iter": "1.25"}, None),
        (exact(1.03), None, None),
        (exact(1.036, seconds=1.11), {}, ""),
        (exact(0.97), None, None),
    ],
)
def test_a_row_beside_exact_ones_has_the_mistake_that_explains_its_factor(
    row: dict[str, str], cells: dict[str, str] | None, words: str | None
) -> None:
    found = beside(row)
    if cells is None:
        assert found == []
    elif not cells:
        ((suggestion, repairs, _),) = found
        assert repairs == [(4, {}, "its TFLOPs and seconds disagree", "")]
        assert suggestion == "tflops=0.66166 from its seconds, or sec_per_iter=1.071 from its TFLOPs"
    elif words is not None:
        column, value = next(iter(cells.items()))
        ((suggestion, repairs, after),) = found
        assert suggestion == f"{column}={value}" or after.startswith(words)
        assert [repair[0] for repair in repairs] == [4]
        assert after.startswith(words)


def test_a_batch_is_proposed_that_the_replicas_can_share() -> None:
    """Half of 12 is 6, which 2 replicas with micro batches of 2 cannot share: then the sequence explains it."""
    ((suggestion, _, words),) = beside(exact(0.5, gbs="12", mbs="2"))
    assert suggestion.startswith("tflops=")
    assert "batch of 6" not in words


def test_two_digits_that_are_swapped_are_put_back() -> None:
    """0.58755 printed as 0.85755, which no batch or scale explains."""
    rows = [exact(note=note) for note in NOTES]
    found = beside(rows[0] | {"tflops": "0.85755"})
    ((suggestion, repairs, words),) = found
    assert (suggestion, words) == ("tflops=0.58755", "two digits of 0.85755 are swapped")
    assert repairs == [(4, {"tflops": "0.58755"}, "", "")]


@pytest.mark.parametrize(
    ("text", "others"),
    [("1.23", ["1.32"]), ("12.3", ["21.3"]), ("112", ["121"]), ("7", []), ("11.1", []), ("120", ["210", "102"])],
)
def test_every_pair_of_different_digits_may_be_swapped(text: str, others: list[str]) -> None:
    case: Any = SimpleNamespace(row=SimpleNamespace(cells={"tflops": text}))
    unit: Any = SimpleNamespace(error=lambda _: 0.5)
    made = list(rates._exchanged_digits(case, unit))
    assert [one.cells["tflops"] for one in made] == others
    expected = [0.5 + math.log(float(other) / float(text)) for other in others]
    assert [one.error for one in made] == pytest.approx(expected)


def case_of(row: dict[str, str]) -> Any:
    """The row as the checks see it."""
    (case,) = evidence_of(row).cases.values()
    return case


@pytest.mark.parametrize(
    ("printed", "expected", "spread", "neighbours", "repair"),
    [
        (1.25, 1.25, 0.0, 2, {"tflops": "0.58755"}),
        (1.25, 1.25, 0.0, 1, {}),
        (1.25, 1.25 * math.exp(0.04), 0.0, 2, {"tflops": "0.58755"}),
        (1.25, 1.25 * math.exp(0.06), 0.0, 2, {}),
        (1.25, 1.25 * math.exp(0.06), 0.021, 2, {"tflops": "0.58755"}),
        (1.25, 0.625, 0.0, 2, {"sec_per_iter": "0.625"}),
        (1.25, 0.625 * math.exp(0.06), 0.0, 3, {}),
        (1.25, 0.9, 0.0, 2, {}),
        (1.25, 1.25, 0.2, 2, {}),
    ],
)
def test_similar_rows_show_which_of_two_figures_is_wrong(
    printed: float, expected: float, spread: float, neighbours: int, repair: dict[str, str]
) -> None:
    """TFLOPs twice too high: within max(5%, 3 spreads) of one prediction, and not within twice that of the other."""
    case = case_of(exact(2, seconds=printed))
    known = SimpleNamespace(seconds=expected, spread=spread, neighbours=neighbours)
    evidence: Any = SimpleNamespace(expected={0: known})
    unit: Any = SimpleNamespace(error=lambda _: math.log(2))
    found = rates._unexplained(evidence, case, unit, "twice")
    assert (found.check, found.severity) == ("tflops", "error")
    (made,) = found.repairs
    assert made.cells == repair
    if repair:
        ((column, value),) = repair.items()
        assert found.suggestion == f"{column}={value}"
        agrees = "seconds agree" if column == "tflops" else "TFLOPs agree"
        assert found.message == f"twice; its {agrees} with similar rows"
    else:
        assert found.message == "twice"
        assert made.exclude


@pytest.mark.parametrize(
    ("expected", "usual", "scale", "slipped"),
    [
        (0.125, None, 10, True),
        (1.25, None, 10, False),
        (12.5, None, 0.1, True),
        (None, 0.4, 10, True),
        (None, 0.04, 10, False),
    ],
)
def test_a_shifted_point_is_in_the_figure_that_becomes_likelier(
    expected: float | None, usual: float | None, scale: float, slipped: bool
) -> None:
    """Seconds 1.25 at 40% of the peak: by the neighbours' seconds, else by the table's usual share."""
    case = case_of({"sec_per_iter": "1.25", "tflops": "124.8"})
    known = {0: SimpleNamespace(seconds=expected)} if expected else {}
    evidence: Any = SimpleNamespace(expected=known, usual_share=usual)
    assert rates._seconds_slipped(evidence, case, scale) is slipped


def test_another_sequence_may_go_with_another_batch() -> None:
    """Errors beyond rounding and up to 3% are the batch's: 16 x e^0.02 is about 16, 1600 x e^0.02 is 1632."""
    case = case_of(exact(gbs="1600"))
    words = {}
    for left in (0.0, 0.02, 0.05):
        unit: Any = SimpleNamespace(error=lambda _, left=left: left)
        made = list(rates._other_sequences(case, unit))
        assert [one.words.split(", and")[0] for one in made] == [
            f"they were computed with sequence {other} instead of 1024" for other in (256, 512, 2048, 4096)
        ]
        assert {one.sort for one in made} == {"b seq"}
        words[left] = made[0].words.partition(", and ")[2]
    assert words == {0.0: "", 0.02: "with a batch of about 1632 instead of 1600", 0.05: ""}


# ------------------------------------------------------------------------------------------------------ neighbours


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"sec_per_iter": "1.234"}, "warning"),
        ({"sec_per_iter": "1.23"}, "advice"),
        ({"sec_per_iter": "0.0123"}, "advice"),
        ({"sec_per_iter": "0.01234"}, "warning"),
        ({"sec_per_iter": "", "tflops": "100.5"}, "warning"),
        ({"sec_per_iter": "", "tflops": "100"}, "advice"),
        ({"sec_per_iter": "", "mem_gib": "50.00"}, "warning"),
        ({"sec_per_iter": "", "mem_gib": "50"}, "advice"),
        ({"sec_per_iter": "1.2", "tflops": "100.5"}, "advice"),
    ],
)
def test_two_runs_agree_in_three_digits_by_chance_and_not_in_four(figures: dict[str, str], severity: str) -> None:
    repairs: list[Any] = [(1, {}, "a reprint of line 2", "")] if severity == "warning" else []
    assert findings(neighbours.reprints, figures, figures) == [
        ("reprint", severity, 3, (0, 1), "count the measurement once", repairs)
    ]


def test_other_memory_or_other_seconds_make_another_run() -> None:
    first = {"sec_per_iter": "1.234", "mem_gib": "5"}
    assert findings(neighbours.reprints, first, first | {"mem_gib": "6"}) == []
    assert findings(neighbours.reprints, first, first | {"sec_per_iter": "1.235"}) == []
    assert len(findings(neighbours.reprints, first, first | {"mem_gib": ""})) == 1
    assert len(findings(neighbours.reprints, first | {"mem_gib": ""}, first)) == 1


@pytest.mark.parametrize(("second", "found"), [("1.084", False), ("1.085", True), ("0.923", False), ("0.922", True)])
def test_a_repeat_differs_by_less_than_8_percent_and_rounding(second: str, found: bool) -> None:
    """|log(second / 1.000)| against 0.08 + 0.0005 + 0.0005 / second."""
    repeat: Any = ("repeat", "advice", 3, (0, 1), "measure it again, or state what differed", [])
    rows = [{"sec_per_iter": "1.000"}, {"sec_per_iter": second}]
    assert findings(neighbours.repeats, *rows) == ([repeat] if found else [])
    assert findings(neighbours.repeats, rows[0], rows[1] | {"note": "other words"}) == []
    assert findings(neighbours.repeats, rows[0], rows[1] | {"group": "h"}) == []


def test_of_two_exchanged_rows_the_later_is_wrong_unless_others_say_so() -> None:
    """At micro batches of 1 and 4 the topology takes about 20 s: then it is the first row, of 100 s, that is wrong."""
    pair = [{"mbs": "2", "sec_per_iter": "100", "tflops": "20"}, {"mbs": "2", "sec_per_iter": "20", "tflops": "100"}]
    cells = [{"sec_per_iter": "100", "tflops": "20"}, {"sec_per_iter": "20", "tflops": "100"}]
    suggestions = [f"sec_per_iter={one['sec_per_iter']}, tflops={one['tflops']}" for one in cells]
    later = ("swapped", "error", 3, (0, 1), suggestions[0], [(1, cells[0], "", "")])
    assert findings(neighbours.swapped, *pair) == [later]
    first = ("swapped", "error", 2, (0, 1), suggestions[1], [(0, cells[1], "", "")])
    near = [{"mbs": "1", "sec_per_iter": "21"}, {"mbs": "4", "sec_per_iter": "19"}]
    assert first in findings(neighbours.swapped, *pair, *near)
    assert first in findings(neighbours.swapped, *pair, near[1])
    elsewhere = [row | {"layers": "5"} for row in near]
    assert findings(neighbours.swapped, *pair, *elsewhere)[0] == later


def test_the_slowness_between_micro_batches_is_weighted_by_doublings() -> None:
    """Micro batch 1 is one doubling away and 8 two: (s1 / 1 + s8 / 2) / (1 + 1/2); 16 is farther on the same side."""
    rows = [{"mbs": mbs, "gbs": "64", "sec_per_iter": text} for mbs, text in [("1", "3"), ("2", "9"), ("8", "2")]]
    evidence = evidence_of(*rows, {"mbs": "16", "gbs": "64", "sec_per_iter": "50"})
    slow = [neighbours._slowness(case) for case in evidence.cases.values()]
    assert neighbours._between(evidence, evidence.cases[1]) == pytest.approx((slow[0] + slow[2] / 2) / 1.5)
    assert neighbours._between(evidence, evidence.cases[0]) == pytest.approx(slow[1])
    assert neighbours._between(evidence_of(rows[0]), evidence.cases[0]) is None


def expecting(**fields: Any) -> Any:
    """An expectation of 1 s by four neighbours."""
    usual = {"seconds": 1.0, "same": 1.0, "spread": 0.0, "nearest": 0.5, "neighbours": 4}
    return SimpleNamespace(**usual | fields)


def given(row: dict[str, str], expected: Any, share: float | None = None) -> Any:
    """Evidence of one row with this expectation."""
    case = case_of(row)
    return SimpleNamespace(
        fitting=[(0, case)], cases={0: case}, expected={0: expected} if expected else {}, usual_share=share
    )


@pytest.mark.parametrize(
    ("seconds", "expected", "found"),
    [
        ("1.4920", expecting(), True),
        ("1.4910", expecting(), False),
        ("0.6700", expecting(), True),
        ("0.6710", expecting(), False),
        ("1.5000", expecting(neighbours=3), False),
        ("1.5000", expecting(spread=0.1), False),
        ("1.6500", expecting(spread=0.1), True),
        ("2.0000", expecting(same=1.9), False),
        ("2.0000", expecting(seconds=1.9), False),
        ("1.6000", expecting(seconds=0.9, same=2.0), False),
    ],
)
def test_an_outlier_is_40_percent_or_five_spreads_off_both_predictions(
    seconds: str, expected: Any, found: bool
) -> None:
    """The logarithm against 0.4 and half of the last digit: e^0.4 = 1.4918, e^-0.4 = 0.6703."""
    made = list(neighbours.outliers(given({"sec_per_iter": seconds}, expected)))
    assert bool(made) == found
    if found:
        (one,) = made
        assert (one.check, one.severity) == ("outlier", "warning")
        assert one.suggestion == "check the seconds, the batch and the degrees"
        assert one.message == f"{seconds} s, but 4 similar rows suggest about 1 s"
        assert one.repairs[0].exclude == f"{float(seconds):.3g} times the seconds of similar rows"


@pytest.mark.parametrize(
    ("seconds", "tflops", "expected", "found"),
    [
        ("100", "20", expecting(seconds=20.0), True),
        ("100", "20", expecting(seconds=22.0), True),
        ("100", "20", expecting(seconds=22.2), False),
        ("100", "20", expecting(seconds=22.2, spread=0.06), True),
        ("100", "20", expecting(seconds=20.5, nearest=0.1), True),
        ("100", "20", expecting(seconds=20.7, nearest=0.1), False),
        ("26.9", "20", expecting(seconds=20.0), False),
        ("27.1", "20", expecting(seconds=20.0), True),
        ("100", "20", expecting(seconds=20.0, spread=0.45), False),
        ("21.8", "20", expecting(seconds=20.0, nearest=0.0), False),
        ("21.9", "20", expecting(seconds=20.0, nearest=0.0), True),
    ],
)
def test_figures_are_swapped_that_fit_only_once_exchanged(
    seconds: str, tflops: str, expected: Any, found: bool
) -> None:
    """Turned within 10% (3% of a near neighbour) or two spreads, and printed three times as far, or four spreads."""
    made = list(neighbours.swapped(given({"sec_per_iter": seconds, "tflops": tflops}, expected)))
    assert bool(made) == found
    if found:
        assert (made[0].check, made[0].severity) == ("swapped", "error")
        assert made[0].repairs[0].cells == {"sec_per_iter": tflops, "tflops": seconds}


@pytest.mark.parametrize(
    ("seconds", "tflops", "found"),
    [("100", "33", True), ("100", "34", False), ("149", "20", True), ("151", "20", False), ("67", "20", True)],
)
def test_without_neighbours_swapped_figures_are_far_from_the_usual_tflops(
    seconds: str, tflops: str, found: bool
) -> None:
    """Usual 100 TFLOPs: printed beyond a factor of 3, and exchanged within 1.5."""
    evidence = given({"sec_per_iter": seconds, "tflops": tflops}, None, 100 / 312)
    made = list(neighbours.swapped(evidence))
    assert bool(made) == found
    if found:
        assert (made[0].check, made[0].severity) == ("swapped", "error")
        assert made[0].message.endswith("the rows of the table reach about 100 TFLOPs")
        assert made[0].suggestion == f"sec_per_iter={tflops}, tflops={seconds}"


@pytest.mark.parametrize(
    ("small", "large", "contradict"),
    [
        ({"gbs": "16"}, {"gbs": "64", "sec_per_iter": "2.14"}, True),
        ({"gbs": "16"}, {"gbs": "64", "sec_per_iter": "2.17"}, False),
        ({"gbs": "16"}, {"gbs": "64", "sec_per_iter": "3.88"}, False),
        ({"gbs": "16"}, {"gbs": "64", "sec_per_iter": "3.92"}, True),
        ({"gbs": "6"}, {"gbs": "64", "sec_per_iter": "90"}, False),
        ({"gbs": "8"}, {"gbs": "64", "sec_per_iter": "90"}, True),
        ({"gbs": "16"}, {"gbs": "16", "sec_per_iter": "90"}, False),
    ],
)
def test_two_batches_imply_a_fixed_cost_between_nothing_and_half_a_step(
    small: dict[str, str], large: dict[str, str], contradict: bool
) -> None:
    """Work is microbatches + 1: 9 and 33; fixed = (33 - 9 x ratio) / 24, within 3% of noise and rounding of each."""
    first, second = case_of({"sec_per_iter": "1.000"} | small), case_of(large)
    assert neighbours._contradict(first, second) is contradict
    assert neighbours._contradict(second, first) is contradict


def test_a_batch_out_of_line_with_most_others_is_doubted() -> None:
    """Work of 17, 33, 65 and 129 takes as many tenths of a second; the second takes twice as long."""
    rows = [{"gbs": gbs, "sec_per_iter": text} for gbs, text in [("32", "1.7"), ("64", "6.6"), ("128", "6.5")]]
    rows.append({"gbs": "256", "sec_per_iter": "12.9"})
    suggestion = "measure it again; the seconds are probably from another run or batch"
    reason = "its time per sample contradicts other batches of the same topology"
    assert findings(neighbours.batches, *rows) == [
        ("batch-time", "warning", 3, (0, 1, 2, 3), suggestion, [(1, {}, reason, "")])
    ]
    (finding,) = neighbours.batches(evidence_of(*rows))
    assert finding.message == (
        "6.6 s at gbs 64 is 100% more time per sample than at gbs 32 with the same topology (line 2), "
        "pipeline bubble removed"
    )
    assert findings(neighbours.batches, *(row | {"group": row["gbs"]} for row in rows)) == []


def test_of_two_batches_the_one_away_from_its_model_and_tp_is_doubted() -> None:
    """Without another row, the slower one per sample."""
    rows = [{"gbs": "16", "sec_per_iter": "0.9"}, {"gbs": "64", "sec_per_iter": "6.6"}]
    assert [one[2] for one in findings(neighbours.batches, *rows)] == [3]
    slow = {"gbs": "64", "pp": "1", "dp": "4", "sec_per_iter": "3.2"}
    other_tp = slow | {"tp": "1", "dp": "8", "sec_per_iter": "0.1"}
    assert [one[2] for one in findings(neighbours.batches, *rows, slow)] == [3]
    fast = slow | {"sec_per_iter": "6.4"}
    assert [one[2] for one in findings(neighbours.batches, *rows, fast)] == [2]
    assert [one[2] for one in findings(neighbours.batches, *rows, other_tp)] == [3]
    for seconds in ("6.4", "12.8"):
        deeper = fast | {"layers": "8", "sec_per_iter": seconds}
        assert [one[2] for one in findings(neighbours.batches, *rows, deeper)] == [3]
