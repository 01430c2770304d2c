"""Evaluation of estimates against measurements: scores, rows left out of them, and the JSON of `tuner evaluate`."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tuner
from tests import reference
from tests.conftest import ROOT, Run
from tests.strategies import few, measured_rows
from tuner.core.errors import NothingUsable
from tuner.core.text import interval
from tuner.costmodel.evaluation import Evaluation, RowEstimate, evaluate, kendall_tau, learn, ordered_pairs, regret
from tuner.tables import Table, table_of, write_csv

TABLES = ROOT / "corpus"
MEGATRON = str(TABLES / "megatron-2021-a100.csv")
few_figures = st.lists(st.tuples(st.sampled_from([1.0, 1.01, 2.0, 3.5]), st.sampled_from([1.0, 2.0, 4.0])), min_size=1)
Rows = list[dict[str, str]]


def table(rows: Rows) -> Table:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return table_of(write_csv(columns, rows), "drawn.csv")


def evaluated(rows: Rows, calibrate_rows: int = 0, seed: int = 0) -> Evaluation:
    try:
        return evaluate(table(rows), calibrate_rows=calibrate_rows, seed=seed)
    except NothingUsable:
        assume(False)
        raise


def same(one: dict[str, float | None], other: dict[str, float | None]) -> bool:
    """Whether two documents agree up to rounding, with None in the same places."""
    return one.keys() == other.keys() and all(
        value is other[key] if value is None or other[key] is None else value == pytest.approx(other[key], rel=1e-9)
        for key, value in one.items()
    )


def numbers(guess: RowEstimate) -> dict[str, float | None]:
    return {name: getattr(guess, name) for name in ("seconds", "low", "high", "memory", "need", "out_of_memory")}


@given(few_figures)
def test_order_is_scored_as_kendalls_tau_b_is_defined(figures: list[tuple[float, float]]) -> None:
    """Tau-b is (C - D) / sqrt((C + D + X) (C + D + Y)), counted pair by pair, and 0 if all pairs are tied."""
    measured, estimated = zip(*figures, strict=True)
    tau = kendall_tau(np.array(measured), np.array(estimated))
    assert tau == pytest.approx(reference.tau_b(measured, estimated))
    assert -1 - 1e-12 <= tau <= 1 + 1e-12


@given(few_figures, st.randoms(use_true_random=False))
def test_regret_is_the_mean_over_the_rows_liked_best_whatever_their_order(
    figures: list[tuple[float, float]], dice: random.Random
) -> None:
    """Regret is the mean over the rows that the model ties as best, independent of the table's order."""
    mixed = dice.sample(figures, len(figures))
    found = [regret(*(np.array(column) for column in zip(*each, strict=True))) for each in (figures, mixed)]
    assert found[0] == pytest.approx(reference.top1_regret(*zip(*figures, strict=True)))
    assert found[0] == pytest.approx(found[1])
    assert found[0] >= 0


@given(few_figures)
def test_only_pairs_that_are_apart_have_an_order(figures: list[tuple[float, float]]) -> None:
    """Pairs within 2% do not count; all others count once, and a tied estimate counts as wrong."""
    right = [
        (a < b) == (x < y) and x != y
        for place, (a, x) in enumerate(figures)
        for b, y in figures[place + 1 :]
        if max(a, b) / min(a, b) > 1.02
    ]
    measured, estimated = (np.array(column) for column in zip(*figures, strict=True))
    assert sorted(ordered_pairs(measured, estimated)) == sorted(right)


@given(measured_rows(), st.integers(0, 3), st.integers(0, 5))
@few
def test_the_summary_and_each_group_are_what_their_rows_say(rows: Rows, drawn: int, seed: int) -> None:
    """Summaries equal a count in plain Python over the document's rows, without skipped and fitted ones."""
    from tuner.cli.commands.evaluate import _row_document

    made = evaluated(rows, calibrate_rows=drawn, seed=seed)
    document = [_row_document(row, made.guesses.get(row.index), made) for row in made.table.rows]
    assert made.groups.keys() == {row["group"] for row in document if row["skipped"] is None}
    for name, summary in (("", made.summary), *made.groups.items()):
        own = [row for row in document if name in ("", row["group"])]
        scored = asdict(summary)
        assert same({key: scored[key] for key in reference.scores(own)}, reference.scores(own))


@given(measured_rows(broken=False), measured_rows(broken=True))
@few
def test_a_row_that_cannot_be_estimated_changes_no_score(rows: Rows, others: Rows) -> None:
    """A row that cannot be estimated has a reason in `skipped`, no guess, and no effect on the scores."""
    bad = [row for row, read in zip(others, table(others).rows, strict=True) if read.skipped]
    before, after = evaluated(rows), evaluated(bad + rows)
    assert same(asdict(before.summary), asdict(after.summary))
    assert all(row.skipped for row in after.table.rows[: len(bad)])
    assert min(after.guesses) == len(bad)


@given(measured_rows(), st.randoms(use_true_random=False))
@few
def test_the_order_of_a_table_changes_neither_guesses_nor_scores(rows: Rows, dice: random.Random) -> None:
    """Guesses and scores do not depend on the order of the rows."""
    order = dice.sample(range(len(rows)), len(rows))
    one, other = evaluated(rows), evaluated([rows[place] for place in order])
    assert same(asdict(one.summary), asdict(other.summary))
    for place, old in enumerate(order):
        if old in one.guesses:
            assert same(numbers(one.guesses[old]), numbers(other.guesses[place]))


@given(measured_rows(most=8), st.integers(0, 3), st.integers(0, 9))
@few
def test_the_rows_that_were_fitted_are_drawn_from_each_group_and_scored_nowhere(
    rows: Rows, drawn: int, seed: int
) -> None:
    """The given number of rows is drawn from each group, timed ones if there are any, reproducibly for a seed."""
    made = evaluated(rows, calibrate_rows=drawn, seed=seed)
    assert made.calibrated_on == evaluated(rows, calibrate_rows=drawn, seed=seed).calibrated_on
    usable = [row for row in made.table.rows if row.usable]
    for name in {row.group for row in usable}:
        own = [row for row in usable if row.group == name]
        timed = [row for row in own if row.timed] or own
        fitted = [row for row in own if row.index in made.calibrated_on]
        assert len(fitted) == min(drawn, len(timed))
        assert all(row in timed for row in fitted)


@given(measured_rows(), st.integers(0, 3))
@few
def test_every_guess_is_finite_and_inside_its_own_interval(rows: Rows, drawn: int) -> None:
    """Seconds lie between low and high, memory is positive, and probabilities lie between 0 and 1."""
    for guess in evaluated(rows, calibrate_rows=drawn).guesses.values():
        assert 0 < guess.low < guess.seconds < guess.high < np.inf
        assert 0 < guess.memory < np.inf
        assert 0 < guess.need < np.inf
        assert 0 <= guess.out_of_memory <= 1
        assert guess.fits == (guess.out_of_memory < 0.5)


def test_a_time_above_the_peak_of_the_gpu_is_estimated_but_neither_scored_nor_drawn() -> None:
    """`evaluate` skips the rows that `learn` skips, for the same reasons."""
    sound = {"tp": "1", "dp": "1", "layers": "8", "hidden": "1024", "gbs": "64", "mem_gib": "10", "sec_per_iter": "2"}
    rows = [sound, {**sound, "mbs": "2", "sec_per_iter": "1e-4"}]
    alone, both = evaluate(table([sound])), evaluate(table(rows))
    assert both.summary == alone.summary
    assert both.guesses.keys() == {0, 1}
    report = learn(table(rows), ["", ""])
    assert [row.skipped for row in both.table.rows] == [row.skipped for row in report.table.rows]
    assert str(both.table.rows[1].skipped).startswith("sec_per_iter is 0.0001, which would mean ")
    others = [{**sound, "group": "other", "mbs": mbs} for mbs in ("1", "2", "4")]
    assert [index for index in evaluate(table(rows + others), calibrate_rows=2).calibrated_on if index < 2] == [0]
    with pytest.raises(NothingUsable, match=r"^no row of drawn\.csv can be scored: line 2: sec_per_iter is 0\.0001"):
        evaluate(table(rows[1:]))


def test_a_slower_repeat_adds_no_regret_to_the_best_topology() -> None:
    """A best topology that was measured at 2.0 and 2.2 s has a regret of 5%, independent of the rows' order."""
    five = [str(mbs) for mbs in (1, 1, 2, 4, 8)]
    seconds = ["2.0", "2.2", "9", "9", "9"]
    rows = [
        {"tp": "1", "dp": "1", "layers": "8", "hidden": "1024", "gbs": "64", "mbs": mbs, "sec_per_iter": sec}
        for mbs, sec in zip(five, seconds, strict=True)
    ]
    liked = {guess.row.understood["mbs"]: guess.seconds for guess in evaluate(table(rows)).guesses.values()}
    best = min(liked, key=lambda mbs: liked[mbs])
    for row in rows:
        row["mbs"] = {"1": best, best: "1"}.get(row["mbs"], row["mbs"])
    for order in (rows, rows[::-1]):
        assert evaluate(table(order)).summary.top1_regret == pytest.approx(0.05)


def test_rows_of_a_group_are_ranked_by_seconds_per_token() -> None:
    """The larger of two batches is estimated to take less time per token; it was measured to take 9.375% more."""
    header = "gpu,layers,hidden,heads,dp,mbs,gbs,sec_per_iter"
    rows = [f"A100-80GB-SXM,4,1024,16,8,1,{batch},{seconds}" for batch, seconds in ((64, 64), (128, 140))]
    made = evaluate(table_of("\n".join([header, *[rows[0]] * 4, rows[1]]), "t.csv"))
    assert made.summary.top1_regret == pytest.approx(140 / 128 - 1)


def test_a_table_of_which_nothing_can_be_estimated_says_why() -> None:
    wide = table([{"tp": "2", "layers": "8", "hidden": "wide"}])
    reason = "line 2: hidden must be a whole number of at least 1, not 'wide'"
    with pytest.raises(NothingUsable, match=rf"^no row of drawn\.csv can be estimated: {reason}"):
        evaluate(wide)
    with pytest.raises(NothingUsable, match=rf"^cannot calibrate on drawn\.csv: {reason}"):
        learn(wide, [""])


ROW = {
    *("index", "group", "key", "status", "measured_sec", "estimated_sec", "measured_gib", "estimated_gib"),
    *("fits", "skipped"),
}
SUMMARY = {
    *("timed_rows", "sec_mape", "sec_median_ape", "kendall_tau", "top1_regret", "mem_rows", "mem_mape", "oom_rows"),
    *("oom_recall", "fit_recall", "balanced_accuracy"),
}


@pytest.mark.parametrize("options", [(), ("--calibrate-rows", "1", "--seed", "3")])
def test_evaluate_keeps_its_json_contract(options: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    """Every row, even an unusable one, has all keys of the JSON contract, with numbers as numbers."""
    good = (TABLES / "enoki-h100.csv").read_text().splitlines()
    file = tmp_path / "with a broken row.csv"
    file.write_text("\n".join([*good, good[-1].replace("H100", "none")]) + "\n")
    said = run("evaluate", str(file), *options, "--json")
    assert said.code == 0
    document: dict[str, Any] = json.loads(said.out)
    assert document["schema"] == "tuner/evaluate/1"
    assert all(row.keys() >= ROW for row in document["rows"])
    assert [row["index"] for row in document["rows"]] == list(range(len(good)))
    assert document["groups"].keys() == {row["group"] for row in document["rows"] if not row["skipped"]}
    for summary in (document["summary"], *document["groups"].values()):
        assert summary.keys() >= SUMMARY
        assert all(value is None or isinstance(value, int | float) for value in summary.values())
    last = document["rows"][-1]
    assert "none" in last["skipped"]
    assert last["estimated_sec"] is last["estimated_gib"] is last["fits"] is None
    scored = reference.scores(document["rows"])
    assert same({key: document["summary"][key] for key in scored}, scored)


def test_evaluate_prints_a_line_for_every_group_and_reason(tmp_path: Path, run: Run) -> None:
    rows = [{"group": "a", "tp": "1", "layers": "8", "hidden": "1024", "sec_per_iter": "1"}]
    rows += [{"group": "b", "tp": "1", "layers": "8", "hidden": hidden} for hidden in ("1024", "wide")]
    file = tmp_path / "few.csv"
    file.write_text(write_csv(["group", "tp", "layers", "hidden", "sec_per_iter"], rows))
    said = run("evaluate", str(file), "--rows")
    assert said.code == 0
    assert "few.csv: 3 rows, 1 skipped" in said.out
    assert "line 4 skipped: hidden must be a whole number" in said.out
    assert [line.split()[0] for line in said.out.splitlines() if line.startswith(("all ", "a ", "b "))] == [
        *("all", "a", "b")
    ]
    guess = next(iter(evaluate(tuner.read_table(file)).guesses.values()))
    shown = interval(guess.low, guess.high)
    assert guess.low < guess.seconds < guess.high
    assert next(line for line in said.out.splitlines() if line.split()[:1] == ["2"]).count(shown) == 1


def test_a_calibration_and_rows_to_draw_exclude_each_other(run: Run) -> None:
    said = run("evaluate", MEGATRON, "--calibration", "site.toml", "--calibrate-rows", "3")
    assert said.code == 2
    assert "exclude each other" in said.err


def test_an_interval_covers_the_recompute_that_a_table_does_not_state() -> None:
    """If a row does not state recompute, its interval is wider on the side of the other choice only."""
    cells = {"layers": "8", "hidden": "4096", "tp": "1", "framework": "megatron-core", "sec_per_iter": "1"}
    made = evaluate(table([{**cells, "recompute": "none"}, cells, {**cells, "recompute": "full"}]))
    stated, left_open, full = (made.guesses[index] for index in range(3))
    assert left_open.seconds == stated.seconds
    assert left_open.low == pytest.approx(stated.low)
    assert stated.high < left_open.high < full.high
    assert left_open.row.assumed["recompute"] == "none"
    assert "recompute" not in stated.row.assumed


@pytest.mark.parametrize(("seconds", "doubted"), [("11.8", False), ("11800", True), ("0.0118", False)])
def test_times_far_from_the_estimates_are_doubted(seconds: str, doubted: bool, run: Run, tmp_path: Path) -> None:
    """Below the time at the GPU's peak, the row is skipped instead."""
    header = "gpu,nodes,model,seq,tp,pp,mbs,gbs,sec_per_iter"
    (tmp_path / "t.csv").write_text(f"{header}\nH100-80GB-SXM,4,llama-3-8b,8192,2,1,1,512,{seconds}\n")
    said = run("evaluate", str(tmp_path / "t.csv"))
    assert ("times the estimates (median): check their unit with tuner audit" in said.out) == doubted
    if doubted:
        (doubt,) = json.loads(run("evaluate", str(tmp_path / "t.csv"), "--json").out)["doubts"]
        assert doubt in said.out
