"""Cells, stacks and ticks of a report, blocks of a table, and the lines of a search, compared with exact values."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.cli import live
from tuner.cli.live import LiveView, event_line, result_text
from tuner.cli.optimize_output import _gain, _where, print_answer
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.report import summary
from tuner.report.figures import _log_ticks, stacked_bars
from tuner.report.tables import HEADERS, _line
from tuner.study.ranking import RankedTrial
from tuner.study.store.trial import Proposal, Trial
from tuner.tables import blocks, table_of

LEADER = RankedTrial(
    candidate=0, key="t0", seconds=2.5, days=10.0, low=9.5, high=11.0, runs=2, trials=(3, 5), chance_sooner=0.0
)


def test_a_row_of_the_leaderboard_is_in_the_unit_of_its_column() -> None:
    """10.0, 9.5 and 11.0 days are 240.0, 228.0 and 264.0 hours."""
    topology = SimpleNamespace(nodes=2, dp=3, tp=4, pp=5, micro_batch=6)
    workload = SimpleNamespace(model=SimpleNamespace(parameters=1.3e9), global_batch=7)
    row: Any = SimpleNamespace(
        topology=topology, workload=workload, ranked=LEADER, outcome="MEASURED", memory=3 * 2**30, flops=1.5e14
    )
    row.notes, row.era, row.key, row.why, row.ended = "n", "era 2", "t0", "because", "stopped"
    row.extrapolated = None
    study: Any = SimpleNamespace(simulated=False)
    cells = dict(zip(HEADERS, _line(study, row, 24.0), strict=True))
    assert (cells["Days"], cells["80% interval"]) == ("240.0", "228.0 to 264.0")
    assert (cells["Mem"], cells["Sec/it"], cells["TFLOPs"]) == ("3.0GiB", "2.50", "150.00")
    assert [cells[name] for name in ("Nodes", "DP", "TP", "PP", "MBS", "GBS")] == ["2", "3", "4", "5", "6", "7"]
    assert (cells["Notes"], cells["Speed period"], cells["Why"]) == ("n, 2 runs", "2", "because; stopped")


def test_extrapolated_figures_in_the_leaderboard_are_marked() -> None:
    topology = SimpleNamespace(nodes=2, dp=3, tp=4, pp=5, micro_batch=6)
    workload = SimpleNamespace(model=SimpleNamespace(parameters=1.3e9), global_batch=7)
    row: Any = SimpleNamespace(
        topology=topology, workload=workload, ranked=None, extrapolated=replace(LEADER, extrapolated=True)
    )
    row.outcome, row.memory, row.flops = "EXTRAPOLATED", None, None
    row.notes, row.era, row.key, row.why, row.ended = "n", "era 1", "t0", "because", ""
    cells = dict(zip(HEADERS, _line(SimpleNamespace(simulated=True), row, 1.0), strict=True))  # type: ignore[arg-type]
    assert (cells["Sec/it"], cells["Days"], cells["80% interval"]) == ("~2.50", "~10.0", "9.5 to 11.0")
    assert (cells["Outcome"], cells["TFLOPs"], cells["Notes"]) == ("extrapolated", "", "n")


def test_terms_below_1_2_percent_of_the_tallest_bar_are_others() -> None:
    """The tallest bar is 1000: a term of 12 is shown, one of 11 is not; `others` are at the top of the stack."""
    axes = Figure().subplots()
    terms = {"large": [900.0, 977.0], "just": [12.0, 12.0], "small": [9.0, 11.0]}
    stacked_bars(axes, terms, {name: name.upper() for name in terms})
    assert [bars.get_label() for bars in axes.containers] == ["LARGE", "JUST", "others"]
    assert [bars[1].get_y() for bars in axes.containers] == [0, 977, 989]
    assert [bars[1].get_height() for bars in axes.containers] == [977, 12, 11]


@pytest.mark.parametrize(("rest", "shown"), [(2.0, False), (2.1, True)])
def test_others_up_to_a_fifth_of_a_percent_are_omitted(rest: float, shown: bool) -> None:
    axes = Figure().subplots()
    stacked_bars(axes, {"a": [1000.0 - rest], "b": [rest]}, {"a": "A", "b": "B"}, horizontal=True)
    assert [bars.get_label() for bars in axes.containers] == ["A", "others"][: 1 + shown]


@pytest.mark.parametrize(
    ("limits", "ticks"),
    [
        ((2.0, 5.0), [2, 2.5, 3, 4, 5]),
        ((10.0, 11.0), [10, 10.2, 10.4, 10.6, 10.8, 11]),
        ((50.8, 72.0), [55, 60, 65, 70]),
        ((84.0, 99.0), [85, 90, 95]),
        ((1.0, 20.0), [1, 2, 5, 10, 20]),
        ((1.0, 6.0), [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6]),
        ((0.05, 0.2), [0.05, 0.07, 0.1, 0.15, 0.2]),
        ((0.5, 4000.0), [1, 10, 100, 1000]),
    ],
)
def test_ticks_are_round_numbers_within_the_limits(limits: tuple[float, float], ticks: list[float]) -> None:
    assert _log_ticks(limits) == pytest.approx(ticks)


def test_a_block_has_as_many_nodes_as_its_largest_row() -> None:
    text = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter\n"
    rows = [f"A100-80GB-SXM,8,{nodes},4,1024,8,8,1,{nodes},1,16,1\n" for nodes in (1, 4, 2)]
    (block,) = blocks(table_of(text + "".join(rows), "t.csv").rows)
    assert block.columns.cluster.nodes == 4
    assert block.columns.nodes.tolist() == [1, 4, 2]
    assert block.columns.dp.tolist() == [1, 4, 2]


def trial(seconds: float | None = None, *, kind: Any = "search", evidence: str = "", **proposal: Any) -> Trial:
    """Return trial 7, which was measured or ran out of memory."""
    if seconds is None:
        result = JobResult(outcome=Outcome.OOM, failure=Failure(kind="OOM", evidence=evidence))
    else:
        result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=seconds))
    made = Proposal(key="t7", params={}, topology={}, candidate=7, kind=kind, **proposal)
    return Trial(number=7, proposal=made, result=result)


@pytest.mark.parametrize(("seconds", "error"), [(3.98, "99.0% above"), (1.9, "5.0% below"), (35.68, "17.8 times")])
def test_a_result_line_has_the_error_of_the_estimate(seconds: float, error: str) -> None:
    assert result_text(trial(seconds, estimate_sec=2.0)).endswith(f", {error} the estimate")
    assert result_text(trial(seconds, estimate_sec=2.0, kind="final")).endswith(f", {error} the estimate (final)")
    assert result_text(trial(seconds)).startswith(f"{seconds:.2f} s per iteration, ")


@pytest.mark.parametrize(("evidence", "more"), [("", ""), ("stacks of 2", ": stacks of 2")])
def test_a_hung_job_has_the_reason_before_its_stacks(evidence: str, more: str) -> None:
    failure = Failure(kind="", evidence=evidence, meaning="no progress for 31 s")
    hung = replace(trial(), result=JobResult(outcome=Outcome.HUNG, failure=failure))
    assert result_text(hung) == f"HUNG no progress for 31 s{more}"


@pytest.mark.parametrize(
    ("meaning", "line"),
    [
        ("the loss is not a number", "CRASHED the loss is not a number: iteration 2 | loss nan"),
        ("", "CRASHED iteration 2 | loss nan"),
        ("CRASHED", "CRASHED iteration 2 | loss nan"),
        ("iteration 2 | loss nan", "CRASHED iteration 2 | loss nan"),
    ],
)
def test_a_crashed_job_has_what_its_line_means_before_it(meaning: str, line: str) -> None:
    failure = Failure(kind="", evidence="iteration 2 | loss nan", meaning=meaning)
    assert result_text(ended(Outcome.CRASHED, failure=failure)) == line


@pytest.mark.parametrize(("length", "shown"), [(90, "x" * 90), (91, "x" * 87 + "...")])
def test_long_evidence_is_cut(length: int, shown: str) -> None:
    assert result_text(trial(evidence="SIMULATED " + "x" * length)) == f"OOM {shown}"


def test_the_remedy_of_an_unreadable_log_is_not_cut() -> None:
    failure = Failure(kind="", evidence="x" * 99)
    assert result_text(ended(Outcome.UNREADABLE, failure=failure)) == f"UNREADABLE {'x' * 99}"
    assert result_text(ended(Outcome.CRASHED, failure=failure)) == f"CRASHED {'x' * 87}..."
    reason = Failure(kind="", evidence="", meaning="SIMULATED why")
    assert result_text(ended(Outcome.CRASHED, failure=reason)) == "CRASHED why"


def test_a_result_line_has_size_notes_and_retry() -> None:
    note = Measurement(seconds=2.0, note="n")
    failure = Failure(kind="", evidence="", meaning="first it failed")
    one = ended(measurement=note, failure=failure, retried="n1 was down", objective=3.0)
    assert result_text(one) == "2.00 s per iteration, 3.0 days; n; first it failed; retried: n1 was down"
    small = ended(fidelity=SMALL, seconds=2.0)
    assert result_text(small) == f"2.00 s per iteration ({SMALL})"
    assert result_text(replace(small, result=None)) == "running"


def test_events_are_printed_as_lines() -> None:
    def event(kind: str, text: str, about: Trial | None) -> str:
        made: Any = SimpleNamespace(kind=kind, text=text, trial=about)
        return event_line(made)

    assert event("stopping", "over", None) == "Search stopped: over"
    assert event("read", "words", None) == "words"
    assert event("waits", "queue", trial(1.0)) == "   7 t7: waiting: queue"
    assert event("ended", "", trial(evidence="e")) == "   7 t7: OOM e"


@pytest.mark.parametrize(("done", "left"), [(4, ""), (6, "at most 0:01:10 left"), (20, "at most 0:00:00 left")])
def test_the_remaining_time_is_extrapolated_from_the_current_rate(
    done: int, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 jobs were done before; 2 more in 10 s leave 14 of 20 at 5 s each."""
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: 110.0))
    view: Any = LiveView()
    view._loop = SimpleNamespace(settings=SimpleNamespace(limits=SimpleNamespace(budget=20)))
    view._began, view._done_before = 100.0, 4
    assert view._time_left(done) == left


def loop(budget: int) -> Any:
    """Return a loop with this budget."""
    return SimpleNamespace(settings=SimpleNamespace(limits=SimpleNamespace(budget=budget)))


def study(**fields: Any) -> Any:
    """Return a study without a measurement."""
    usual: dict[str, Any] = {
        "simulated": False,
        "ended": "done",
        "name": "s",
        "launched": [SimpleNamespace(number=number, result=None) for number in range(2)],
        "trials": (),
        "node_hours": 2.0,
        "running": [],
        "incidents": "",
        "best": None,
        "outcomes": {"OOM": 2},
        "folder": "runs/s",
    }
    return SimpleNamespace(**usual | fields)


@pytest.mark.parametrize(
    ("fields", "budget", "words"),
    [
        ({"ended": None}, 2, "Rerun the same command to continue."),
        ({}, 2, "Rerun with a larger --budget to continue."),
        ({}, 3, "Rerun the same command to print this summary again."),
    ],
)
def test_the_next_command_continues_or_shows_the_study(fields: dict[str, Any], budget: int, words: str) -> None:
    assert _where(study(**fields), loop(budget)) == f"Saved to runs/s. {words}"


@pytest.mark.parametrize(("simulated", "label"), [(True, "SIMULATED: "), (False, "")])
def test_simulated_answers_are_labelled(simulated: bool, label: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(study(simulated=simulated), loop(3))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{label}study s: 2 jobs, 2.0 node-hours. Ended because done."
    assert second == f"{label}No job was measured: 2 OOM."
    assert third.startswith("Saved to ")


@pytest.mark.parametrize(
    ("days", "words"), [(12.5, "20.0% sooner"), (8.0, "25.0% later"), (10.0, "0.0% sooner"), (None, "It was ")]
)
def test_the_gain_is_relative_to_the_models_first_choice(days: float | None, words: str) -> None:
    """1 - 10 / 12.5 = 20%."""
    other = LEADER if days is None else SimpleNamespace(days=days, key="t1")
    (line,) = _gain(study(launched=[trial(1.0)], rank_of=lambda _trial: other), LEADER)
    assert words in line
    assert "the first topology tried" in line


def finished(*ranking: RankedTrial, **fields: Any) -> Any:
    """Return a study of these topologies."""
    usual: dict[str, Any] = {
        "ranking": ranking,
        "best": ranking[0] if ranking else None,
        "ties": (),
        "outcomes": {"MEASURED": 3, "TIMED_OUT": 1},
        "launched": [trial(1.0)],
        "topology": lambda _: SimpleNamespace(nodes=4),
        "workload": SimpleNamespace(training_tokens=2e12, model=SimpleNamespace(heads=8, hidden=1024, layers=24)),
    }
    return study(**{**usual, **fields})


def ranked_trial(candidate: int, days: float, **fields: Any) -> RankedTrial:
    """Return a measured topology."""
    return replace(LEADER, candidate=candidate, key=f"t{candidate}", days=days, seconds=days / 4, **fields)


def test_the_lead_is_over_the_runner_up_the_first_measured_and_the_slowest() -> None:
    """10 days are compared with 12.5, 16 and 30 days; no topology is named twice."""
    measured = [trial(1.0)]  # of topology 7
    assert summary._lead(finished(ranked_trial(0, 10.0))) == "It is the only topology that was measured."
    two = finished(ranked_trial(0, 10.0), ranked_trial(7, 12.5), launched=measured)
    assert summary._lead(two) == "It takes 20.0% (2.5 days) less time than the runner-up t7."
    three = finished(ranked_trial(0, 10.0), ranked_trial(1, 12.5), ranked_trial(7, 16.0), launched=measured)
    words = (
        "It takes 20.0% (2.5 days) less time than the runner-up t1 and 37.5% less than t7, the first topology measured"
    )
    assert summary._lead(three) == f"{words}."
    four = finished(
        ranked_trial(0, 10.0), ranked_trial(1, 12.5), ranked_trial(7, 16.0), ranked_trial(3, 30.0), launched=measured
    )
    assert summary._lead(four) == f"{words}; the slowest of 4 takes 3 times as long."
    first = finished(ranked_trial(7, 10.0), ranked_trial(1, 12.5), ranked_trial(3, 19.0), launched=measured)
    assert summary._lead(first).endswith("runner-up t1; the slowest of 3 takes 90.0% longer.")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (2.5, "2.5 times"),
        (1.0, "1.0 times"),
        (0.5, "50.00% of"),
        (1e-4, "0.01% of"),
        (0.9e-4, "less than 0.01% of"),
    ],
)
def test_a_share_is_a_percentage_or_a_multiple(share: float, words: str) -> None:
    assert summary._share(share) == words


@pytest.mark.parametrize(("ratio", "words"), [(1.041, "4.1% longer"), (1.99, "99.0% longer"), (2.0, "2 times as long")])
def test_a_ratio_is_a_percentage_below_two(ratio: float, words: str) -> None:
    assert summary._longer(ratio) == words


def test_terms_explain_the_lead_as_far_as_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bubble is 0.2 s shorter, the head 0.1 s longer and the total 0.1 s shorter; 0.5 s less was measured."""
    changes: list[tuple[str, float]] = [("bubble", 0.2), ("head", -0.1), ("launch", 0.0049)]
    costs = {"t0": SimpleNamespace(seconds=2.0), "t1": SimpleNamespace(seconds=2.1)}
    monkeypatch.setattr(summary, "cost_breakdown", lambda _study, row: costs[row.key])
    monkeypatch.setattr(summary, "difference", lambda first, _other: changes if first is costs["t0"] else [])
    rows: Any = [SimpleNamespace(key="t0"), SimpleNamespace(key="t1")]
    found = finished(ranked_trial(0, 8.0), ranked_trial(1, 10.0))
    words = "Compared with the runner-up, the cost model predicts"
    total = "per iteration in total; measured: 0.50 s less"
    assert summary._reason(found, rows) == (
        f"{words} 0.20 s less for the pipeline bubble, but 0.10 s more for the output layer: 0.10 s less {total}."
    )
    costs["t1"].seconds = 1.9
    assert summary._reason(found, rows) == (
        f"{words} 0.20 s less for the pipeline bubble, but 0.10 s more for the output layer and 0.20 s more for the "
        f"other terms: 0.10 s more {total}, a difference that the cost model does not explain."
    )
    changes[:] = [("launch", 0.001), ("head", -0.001)]
    assert summary._reason(found, rows) == f"{words} nearly the same time in every term."
    changes[:], costs["t1"].seconds = [("head", -0.5)], 1.5
    assert summary._reason(found, rows).startswith(f"{words} 0.50 s more for the output layer: ")
    changes[:], costs["t1"].seconds = [("bubble", 0.5), ("head", 0.25), ("launch", -0.001)], 2.749
    assert summary._reason(found, rows).startswith(
        f"{words} 0.50 s less for the pipeline bubble and 0.25 s less for the output layer: "
    )
    assert summary._more_or_less(-0.25, 0.9) == "0.2500 s more"


def test_certainty_names_at_most_three_ties() -> None:
    alone = finished(ranked_trial(0, 10.0, low=9.5, high=11.0))
    assert summary._certainty(alone) == "With 2 runs, its 80% interval is 9.5 to 11.0 days."
    ahead = finished(ranked_trial(0, 10.0, low=9.5, high=11.0), ranked_trial(1, 20.0))
    assert summary._certainty(ahead) == (
        "With 2 runs, its 80% interval is 9.5 to 11.0 days; no other measured topology is more than 2.5% likely to be "
        "faster."
    )
    ties = tuple(ranked_trial(number, 10.5, chance_sooner=number / 10) for number in range(1, 5))
    tied = finished(ranked_trial(0, 10.0, low=9.5, high=11.0), *ties, ties=ties)
    assert summary._certainty(tied).endswith(
        "; it is statistically tied with t1 (10% likely to be faster), t2 (20% likely to be faster), "
        "t3 (30% likely to be faster) and 1 more."
    )
    three = finished(ranked_trial(0, 10.0), *ties[:3], ties=ties[:3])
    assert summary._certainty(three).endswith("t2 (20% likely to be faster) and t3 (30% likely to be faster).")


def test_the_cost_is_a_share_of_the_training() -> None:
    """48 node-hours of 10 days x 24 x 4 nodes are 5%."""
    found = finished(ranked_trial(0, 10.0), node_hours=48.0, launched=[trial(1.0)] * 4)
    assert summary._cost(found) == (
        "The study ran 4 jobs (3 measured, 1 timed out) and used 48.0 node-hours, 5.00% of the training itself."
    )
    found.best = None
    assert summary._cost(found) == "The study ran 4 jobs (3 measured, 1 timed out) and used 48.0 node-hours."
    found.outcomes = {"OOM": 4}
    assert summary._cost(found) == "The study ran 4 jobs (4 OOM) and used 48.0 node-hours."
    small = [ended(fidelity=SMALL, node_hours=2.0), ended(fidelity=SMALL, node_hours=3.0), trial(1.0)]
    reduced = finished(ranked_trial(0, 10.0), node_hours=48.0, launched=small, outcomes={})
    assert summary._cost(reduced) == (
        "The study ran 3 jobs and used 48.0 node-hours (5.0 node-hours in 2 jobs at a reduced size), 5.00% of the "
        "training itself."
    )


def test_a_confirmation_compares_the_prediction_with_the_measurement() -> None:
    """Only topologies that ran at a reduced size before are listed, each once."""
    small = replace(trial(9.0), proposal=replace(trial(9.0).proposal, fidelity=SMALL))
    predicted: dict[str, Any] = {"estimate_sec": 2.0, "estimate_low": 1.5, "estimate_high": 2.25}
    for seconds, side in ((1.5, "inside"), (2.25, "inside"), (1.49, "outside"), (2.26, "outside")):
        full = trial(seconds, **predicted)
        found = summary.confirmations(finished(launched=[full, small, full, full]))
        assert found == [
            "t7 was extrapolated to 2.00 s per iteration (1.50 to 2.25) and measured at full size in trial 7: "
            f"{seconds:.2f} s, {side} the 80% interval."
        ]
    assert summary.confirmations(finished(launched=[small, trial(1.0), trial(None)])) == []


def test_the_fastest_topology_is_named_with_its_nodes_and_model() -> None:
    row: Any = SimpleNamespace(
        key="t0",
        workload=SimpleNamespace(model=SimpleNamespace(heads=16, hidden=2048, layers=12, parameters=1.3e9)),
        topology=SimpleNamespace(nodes=2, heads=None, shape=None),
        cluster=SimpleNamespace(node_gpus="8 X"),
        other_model=False,
    )
    figures = "2.50 s per iteration on 2 nodes of 8 X, 10.0 days for 2 trillion tokens with 1.3B parameters"
    words = f"t0 is the fastest topology: {figures}."
    assert summary._fastest(finished(ranked_trial(0, 10.0)), row) == words
    row.other_model, row.topology.heads = True, 16
    different = "This is a different model from the one specified:"
    assert summary._fastest(finished(ranked_trial(0, 10.0)), row) == f"{words} {different} 16 heads instead of 8."
    row.topology.heads, row.topology.shape = None, "2048x12"
    assert (
        summary._fastest(finished(ranked_trial(0, 10.0)), row) == f"{words} {different} 2048 x 12 instead of 1024 x 24."
    )
    assert "t0 is predicted to be the fastest topology: " in summary._fastest(
        finished(ranked_trial(0, 10.0, extrapolated=True)), row
    )
