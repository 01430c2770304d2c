"""The blind table: sources in the fit, and the baseline with one constant per group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy_plot import plot_accuracy, time_lines
from benchmarks.blind import IN_FIT, OTHER_TIMES, baseline_errors, mixture_errors, source_errors
from tests.conftest import ROOT
from tuner.costmodel.evaluation import evaluate
from tuner.tables import read_table

HEADER = "group,gpu,layers,hidden,heads,seq,vocab,tp,mbs,gbs,recompute,sec_per_iter,note\n"


def row(seconds: float, *, group: str = "g", batch: int = 8, note: str = "") -> str:
    return f"{group},A100-80GB-SXM,24,2048,16,2048,51200,1,1,{batch},none,{seconds},{note}\n"


def test_the_baseline_gives_each_row_the_median_throughput_of_the_others(tmp_path: Path) -> None:
    """The baseline predicts each row at the median throughput of the others, independent of the absolute level."""
    path = tmp_path / "t.csv"
    path.write_text(HEADER + row(1.0) + row(2.0, batch=16) + row(1.5), encoding="utf-8")
    group = list(evaluate(read_table(path)).guesses.values())
    half = (1 + 1 / 1.5) / 2  # the median of two rates, one of them a third slower
    assert baseline_errors(group) == pytest.approx([1 / half - 1, 1 / half - 1, 1 - 1 / 1.5])
    twice = [replace(guess, row=replace(guess.row, seconds=2 * (guess.row.seconds or 0))) for guess in group]
    assert baseline_errors(twice) == pytest.approx(baseline_errors(group)), "a level is not what it is judged by"


def test_rows_alone_and_partly_trained_models_are_left_out(tmp_path: Path) -> None:
    lines = row(1.0) + row(2.0) + row(3.0, group="alone") + row(9.0, note="LoRA rank 16")
    (tmp_path / "new.csv").write_text(HEADER + lines, encoding="utf-8")
    (tmp_path / f"{IN_FIT[0]}.csv").write_text(HEADER + row(1.0), encoding="utf-8")
    blind, fitted = source_errors(tmp_path)
    assert (blind.rows, blind.baseline_rows, blind.in_fit) == (3, 2, False)
    assert blind.baseline == pytest.approx((1.0 + 0.5) / 2)
    assert (fitted.rows, fitted.in_fit, fitted.baseline) == (1, True, None)


def test_mixtures_have_lines_of_their_own(tmp_path: Path) -> None:
    """Mixtures have a line of their own; twice and half the estimates give a median error of 0.75 and a level of 1."""
    header = HEADER.replace("note", "experts,top_k,moe_ffn,note")
    rows = [row(1.0).replace(",\n", ",8,2,1024,\n"), row(2.0, batch=16).replace(",\n", ",8,2,1024,\n")]
    path = tmp_path / "new.csv"
    path.write_text(header + "".join(rows), encoding="utf-8")
    estimates = [guess.seconds for guess in evaluate(read_table(path)).guesses.values()]
    halves = [row(estimates[0] * 2), row(estimates[1] / 2, batch=16), row(1.0)]
    dense = halves[2].replace(",\n", ",,,,\n")
    path.write_text(
        header + "".join(line.replace(",\n", ",8,2,1024,\n") for line in halves[:2]) + dense, encoding="utf-8"
    )
    (found,) = mixture_errors(tmp_path)
    assert (found.name, found.rows) == ("new", 2)
    assert (found.error, found.level) == pytest.approx((0.75, 1.0))
    assert [errors.rows for errors in source_errors(tmp_path)] == [1]


@pytest.mark.parametrize("name", [*IN_FIT, *OTHER_TIMES])
def test_a_source_that_is_named_is_in_the_corpus(name: str) -> None:
    assert list((ROOT / "corpus").rglob(f"{name}.csv"))


def test_the_plot_has_the_runs_of_the_printed_errors(tmp_path: Path) -> None:
    """Each line of the plot has the rows and the median error that the tables print."""
    for name in ("modern/dgxc-25.05.csv", "tr8-104b-v100.csv"):
        (tmp_path / Path(name).name).write_bytes((ROOT / "corpus" / name).read_bytes())
    printed = {(errors.name, errors.rows, errors.estimate) for errors in source_errors(tmp_path)}
    printed |= {(errors.name, errors.rows, errors.error) for errors in mixture_errors(tmp_path)}
    lines = time_lines(tmp_path)
    drawn = {(line.name, len(line.ratios), line.error) for line in lines}
    assert drawn == printed
    assert [line.kind for line in lines] == ["dense", "dense", "mixture of experts", "in sample"]
    plot_accuracy(tmp_path, tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
