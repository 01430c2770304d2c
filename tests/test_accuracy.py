"""The accuracy gate: a figure that is worse than recorded fails with one sentence."""

from __future__ import annotations

import copy

import pytest

from benchmarks import accuracy
from benchmarks.recorded_accuracy import SOURCES, TOLERANCE, Figures, read_record, worse
from tuner.costmodel.constants import SUSTAINED_PRODUCT_SHARE

FIGURES: Figures = {
    "table": {
        "uncalibrated": {
            "sec_median_ape": 0.04,
            "top1_regret": 0.01,
            "mem_mape": 0.05,
            "pairs_in_order": 0.9,
            "balanced_accuracy": 0.98,
            "within_interval": 0.84,
        }
    }
}


def changed(name: str, by: float) -> Figures:
    figures = copy.deepcopy(FIGURES)
    figures["table"]["uncalibrated"][name] += by
    return figures


@pytest.mark.parametrize("name", ["sec_median_ape", "top1_regret", "mem_mape", "within_interval"])
def test_a_figure_that_rises_is_worse(name: str) -> None:
    (sentence,) = worse(FIGURES, changed(name, 2 * TOLERANCE))
    assert sentence.startswith("table, uncalibrated: the ")
    assert "got worse" in sentence
    assert worse(FIGURES, changed(name, -2 * TOLERANCE)) == []


@pytest.mark.parametrize("name", ["pairs_in_order", "balanced_accuracy"])
def test_a_score_that_falls_is_worse(name: str) -> None:
    assert len(worse(FIGURES, changed(name, -2 * TOLERANCE))) == 1
    assert worse(FIGURES, changed(name, 2 * TOLERANCE)) == []


def test_rounding_is_no_regression() -> None:
    assert worse(FIGURES, changed("mem_mape", TOLERANCE / 2)) == []


def test_an_interval_that_covers_too_little_is_worse_too() -> None:
    assert len(worse(FIGURES, changed("within_interval", -0.1))) == 1
    assert worse(FIGURES, changed("within_interval", -0.06)) == []


def test_a_figure_may_not_vanish_and_a_new_one_is_to_be_recorded() -> None:
    fewer = copy.deepcopy(FIGURES)
    del fewer["table"]["uncalibrated"]["mem_mape"]
    assert worse(FIGURES, fewer) == [
        "table, uncalibrated: the mean error of memory is recorded and no longer computed."
    ]
    assert "--record" in worse(fewer, FIGURES)[0]
    assert len(worse(FIGURES, {})) == len(FIGURES["table"]["uncalibrated"])


def test_every_source_is_recorded() -> None:
    assert set(read_record()) == set(SOURCES)


def test_the_gate_passes_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main(["--check", "--source", "megatron-2021-a100"]) == 0
    assert capsys.readouterr().out == "1 source: no figure is worse than recorded.\n"


def test_the_gate_fails_on_a_planted_regression(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gate fails with one sentence if matrix products are assumed a fifth slower."""
    monkeypatch.setattr("tuner.costmodel.kernels.SUSTAINED_PRODUCT_SHARE", 0.8 * SUSTAINED_PRODUCT_SHARE)
    assert accuracy.main(["--check", "--source", "megatron-2021-a100"]) == 1
    assert "megatron-2021-a100, uncalibrated: the median error of time got worse: " in capsys.readouterr().out
