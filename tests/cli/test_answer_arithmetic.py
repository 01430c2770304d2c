"""The answer of a search and its live output, from stand-ins for results."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.cli.test_figures_arithmetic import GIB, lines
from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.cli import live
from tuner.cli.live import EventLines, LiveView
from tuner.cli.optimize_output import (
    _answer,
    _gain,
    _outcomes,
    _ranked_document,
    _removed,
    _unread,
    print_answer,
    trial_document,
)
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.space.space import Tally
from tuner.study.ranking import RankedTrial
from tuner.study.store.trial import Proposal, Trial


def ranked(candidate: int, days: float, **fields: Any) -> RankedTrial:
    """Return a measured topology."""
    usual: dict[str, Any] = {
        "seconds": days / 4,
        "low": days * 0.9,
        "high": days * 1.2,
        "runs": 2,
        "trials": (candidate,),
    }
    return RankedTrial(candidate=candidate, key=f"t{candidate}", days=days, **{**usual, **fields})


def trial(number: int, **fields: Any) -> Trial:
    """Return a measured trial."""
    return replace(ended(candidate=number, number=number), **fields)


def study(*ranking: RankedTrial, **fields: Any) -> Any:
    """Return a study in which topology 2 changes the model."""

    def model(heads: int) -> Any:
        return SimpleNamespace(heads=heads, hidden=1024, layers=24)

    def setting(one: RankedTrial) -> Any:
        return SimpleNamespace(as_in=lambda _: SimpleNamespace(model=model(16 if one.candidate == 2 else 8))), None

    own = next((one for one in ranking if one.candidate != 2), None)
    usual: dict[str, Any] = {
        "simulated": False,
        "name": "s",
        "ranking": ranking,
        "best": ranking[0] if ranking else None,
        "best_of_own_model": own,
        "ties": (),
        "trains_other_models": any(one.candidate == 2 for one in ranking),
        "launcher": "simulated",
        "workload": SimpleNamespace(model=model(8), training_tokens=2e12, tokens=2e12),
        "launched": [trial(one.candidate) for one in ranking],
        "trials": [],
        "running": [],
        "incidents": "",
        "node_hours": 3.0,
        "ended": "done",
        "outcomes": {"MEASURED": 2, "OOM": 1},
        "speed_periods": [],
        "folder": "runs/s",
        "setting": setting,
        "topology": lambda one: one,
        "rank_of": lambda tried: next((one for one in ranking if one.candidate == tried.proposal.candidate), None),
    }
    return SimpleNamespace(**{**usual, **fields})


def test_the_answer_is_the_best_topology_of_the_specified_model() -> None:
    first, second, other = ranked(0, 10.0), ranked(1, 12.0), ranked(2, 8.0)
    assert _answer(study(first, second)) == [
        "t0 finishes soonest: 2.50 s per iteration, 10.0 days (9.0 to 12.0) for 2T tokens.",
        "It was the first topology tried.",
    ]
    tied = _answer(study(first, second, ties=(second,), launched=[trial(1), trial(0)]))
    assert tied[1:] == [
        "It is statistically tied with t1.",
        "It finishes 16.7% sooner than the first topology tried, t1.",
    ]
    both = _answer(study(other, first, second, ties=(first,)))
    assert both[0].startswith("t0 finishes soonest with 8 heads: ")
    assert both[-1] == (
        "As another model: t2, with 16 heads, takes 2.00 s per iteration, 8.0 days (7.2 to 9.6), 20.0% sooner."
    )
    alone = _answer(study(other))
    assert alone[0] == "No topology with the model's own 8 heads was measured."
    assert alone[-1].endswith("8.0 days (7.2 to 9.6).")


@pytest.mark.parametrize(
    ("heads", "layers", "own", "other"),
    [
        (16, 24, "8 heads", "16 heads"),
        (8, 24, "shape (hidden 1024, 30 layers)", "hidden 1024 and 24 layers"),
        (16, 24, "8 heads and shape (hidden 1024, 30 layers)", "16 heads, hidden 1024 and 24 layers"),
    ],
)
def test_another_model_is_named_by_what_it_changes(heads: int, layers: int, own: str, other: str) -> None:
    """Its heads, its shape or both; the specified model, in contrast, by the same ones."""
    trained = SimpleNamespace(heads=heads, hidden=1024, layers=layers)
    specified = SimpleNamespace(heads=8, hidden=1024, layers=30 if "shape" in own else 24)

    def setting(one: RankedTrial) -> Any:
        return SimpleNamespace(as_in=lambda _: SimpleNamespace(model=trained if one.candidate == 2 else specified)), 0

    workload = SimpleNamespace(model=specified, training_tokens=2e12, tokens=2e12)
    alone = _answer(study(ranked(2, 8.0), setting=setting, workload=workload))
    assert alone[0] == f"No topology with the model's own {own} was measured."
    assert f", with {other}, takes " in alone[-1]
    both = _answer(study(ranked(2, 8.0), ranked(0, 10.0), setting=setting, workload=workload))
    words = own.replace("shape (", "").rstrip(")")
    assert both[0].startswith(f"t0 finishes soonest with {words}: ")


def test_the_gain_is_relative_to_the_first_measured_topology_if_the_first_choice_failed() -> None:
    own, other = ranked(0, 10.0), ranked(1, 8.0)
    failed = ended(Outcome.OOM, candidate=5)
    assert _gain(study(own, other, launched=[failed, trial(1)]), own) == [
        "The first topology tried, t5, ended as OOM.",
        "It finishes 25.0% later than the first measured topology, t1.",
    ]
    small = ended(candidate=5, fidelity=SMALL)
    assert _gain(study(own, launched=[small, trial(0)]), own) == [
        "The first topology tried, t5, was measured at a reduced size only.",
        "t0 was the first measured topology.",
    ]


def test_what_was_not_measured_is_predicted() -> None:
    own, other = ranked(0, 10.0, extrapolated=True), ranked(2, 8.0, extrapolated=True)
    both = _answer(study(other, own))
    assert both[0].startswith("t0 is predicted to finish soonest with 8 heads: ")
    assert both[-1].startswith("As another model: t2, with 16 heads, is predicted to take 2.00 s per iteration")


def test_jobs_are_counted_by_outcome_and_size() -> None:
    trials = [ended(fidelity=SMALL), ended(), ended(Outcome.REJECTED, fidelity=SMALL)]
    assert _outcomes(study(trials=trials)) == "2 measured, 1 OOM; 1 at a reduced size"
    assert _outcomes(study(outcomes={})) == "none was launched"
    assert _outcomes(study(outcomes={}, running=[ended()])) == "1 running"


def test_the_rules_that_removed_most_topologies_are_named() -> None:
    removed = {"a": 5, "b": 0, "c": 7000, "d": 6, "e": 5}
    tally = Tally(removed=removed, legal=1234, grid=56789, unused={"tp": [3]})
    loop: Any = SimpleNamespace(tally=tally)
    words = " Legal: 1,234 of 56,789 grid points (top rules: c 7,000, d 6, e 5)."
    assert _removed(loop) == f"{words} {tally.advice()}"
    tally.unused = {}
    assert _removed(loop) == words
    loop.tally = None
    assert _removed(loop) == ""


def test_the_table_of_an_answer_has_the_first_five_topologies(capsys: pytest.CaptureFixture[str]) -> None:
    ranking = [ranked(number, 10.0 + number, chance_sooner=0.0 if number == 3 else 0.25) for number in range(3, 10)]
    period = SimpleNamespace(sentence=lambda: "Slower.")
    loop: Any = SimpleNamespace(tally=None, settings=SimpleNamespace(limits=SimpleNamespace(budget=7)))
    made = study(*ranking, speed_periods=[period], incidents="Incident.", running=[ended(number=8, candidate=8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.cli.optimize_output.study_command", lambda command, name: f"{command} {name}")
        print_answer(made, loop)
    printed = lines(capsys)
    assert printed[:3] == [
        "study s: 7 jobs, 3.0 node-hours. Ended because done.",
        "still running: trial 8, t8",
        "Incident.",
    ]
    table = [line.split() for line in printed if line.startswith("t") and "%" in line and "finishes" not in line]
    assert [row[0] for row in table if "soonest" not in row] == ["t4", "t5", "t6", "t7"]
    assert table[-1][-2:] == ["25%", "7"]
    assert "2 more: report s" in printed
    assert "Jobs: 2 measured, 1 OOM, 1 running." in printed
    assert "Slower. The table shows times at the present speed." in printed
    assert printed[-2:] == ["Saved to runs/s. Rerun with a larger --budget to continue.", "Next: report s or export s"]


@pytest.mark.parametrize(
    ("count", "line"),
    [(0, ""), (2, "Not compared, because 2 jobs ran but could not be measured: call tuner.step.")],
)
def test_an_answer_says_which_jobs_are_not_compared(count: int, line: str) -> None:
    """They may be better than the best one of those that were measured."""
    failure = Failure(kind="", evidence="call tuner.step", meaning="no iteration could be measured")
    jobs = [ended(Outcome.OOM), *[ended(Outcome.UNREADABLE, failure=failure)] * count, ended()]
    assert _unread(study(ranked(3, 10.0), launched=jobs)) == line


def test_a_trial_is_written_as_its_proposal_and_result() -> None:
    small = Measurement(seconds=6.0, batch_seconds=(4.0, 6.0), peak_memory=3 * GIB, tflops=7.0, note="n")
    reduced = ended(fidelity=SMALL, measurement=small, forecast=9.0, node_hours=2.0, retried="again")
    document = trial_document(reduced)
    assert (document["fidelity"], document["batch_seconds"]) == (SMALL.document(), [4.0, 6.0])
    assert (document["extrapolated_sec"], document["sec_per_iter"], document["peak_memory_gib"]) == (9.0, 6.0, 3.0)
    assert (document["node_hours"], document["again"], document["note"], document["tflops"]) == (2.0, "again", "n", 7.0)
    failed = ended(Outcome.OOM, failure=Failure(kind="", evidence="line", meaning="why"), objective=5.0)
    document = trial_document(failed)
    assert (document["ended"], document["evidence"], document["objective"]) == ("why", "line", 5.0)
    assert "fidelity" not in document
    running = trial_document(Trial(number=3, proposal=Proposal(key="k", params={}, topology={}, fidelity=SMALL)))
    assert (running["outcome"], running["sec_per_iter"], running["node_hours"]) == ("RUNNING", None, 0.0)
    assert (running["batch_seconds"], running["extrapolated_sec"]) == ([], None)
    row = _ranked_document(ranked(2, 8.0, trials=(5, 2), chance_sooner=0.25, extrapolated=True), {5: {"tp": 1}})
    assert (row["topology"], row["days_low"], row["days_high"]) == ({"tp": 1}, 7.2, 8.0 * 1.2)
    assert (row["extrapolated"], row["chance_sooner"], row["trials"]) == (True, 0.25, [5, 2])
    assert "extrapolated" not in _ranked_document(ranked(2, 8.0), {})


def event(kind: str, text: str, about: Trial | None = None) -> Any:
    """Return an event."""
    return SimpleNamespace(kind=kind, text=text, trial=about)


@pytest.mark.parametrize("simulated", [True, False])
def test_events_other_than_starts_are_printed_as_lines(
    simulated: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "opening", lambda _: ["first"])
    loop: Any = SimpleNamespace(launcher=SimpleNamespace(simulated=simulated))
    view = EventLines()
    with view.live(loop):
        view.event(event("started", "why", trial(7)))
        view.event(event("note", "words", trial(7)))
    label = "SIMULATED " if simulated else ""
    assert capsys.readouterr().err.splitlines() == ["first", f"{label}   7 t7: words"]


@pytest.mark.parametrize("simulated", [True, False])
def test_a_live_view_shows_the_best_the_cost_and_the_last_events(
    simulated: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "opening", lambda _: ["first"])
    state = SimpleNamespace(ranking=[], node_hours=2.0, trials=[])
    earlier = [trial(0), Trial(number=1, proposal=trial(1).proposal)]
    loop: Any = SimpleNamespace(
        launcher=SimpleNamespace(simulated=simulated),
        state=state,
        store=SimpleNamespace(trials=lambda: earlier),
        settings=SimpleNamespace(limits=SimpleNamespace(budget=10)),
    )
    view = LiveView()
    view.event(event("note", "early"))
    with view.live(loop):
        view.event(event("started", "why", trial(7)))
        view.event(event("waits", "queue", trial(8)))
        shown = Console(width=80, file=None, record=True)
        with shown.capture() as first:
            shown.print(view._picture())
        state.ranking = [ranked(3, 10.0, extrapolated=True)]
        state.trials = [trial(0), trial(1), Trial(number=2, proposal=trial(2).proposal), ended(Outcome.REJECTED)]
        with shown.capture() as second:
            shown.print(view._picture())
        (task,) = view._bar.tasks
        assert (task.completed, task.total) == (2, 10)
    assert view._done_before == 1
    best = "SIMULATED best  " if simulated else "best         "
    assert f"{best}nothing measured yet" in first.get()
    assert [line.split()[0] for line in first.get().splitlines()[:4]] == [best.split()[0], "cost", "last", "next"]
    assert "8 t8: waiting: queue" in first.get()
    assert "t7: why" in first.get()
    assert "t3" in second.get()
    assert re.search(r"finishes in +10\.0 days \(9\.0 to 12\.0\) \(extrapolated\)", second.get())
    assert "2.0 node-hours" in second.get()
    err = capsys.readouterr().err
    assert err.startswith("early\nfirst\n")


@pytest.mark.parametrize("extrapolated", [True, False])
def test_an_extrapolated_answer_is_labelled_in_its_first_sentence(
    extrapolated: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    made = study(ranked(0, 10.0, extrapolated=extrapolated), simulated=True)
    loop: Any = SimpleNamespace(tally=None, settings=SimpleNamespace(limits=SimpleNamespace(budget=7)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.cli.optimize_output.study_command", lambda command, name: f"{command} {name}")
        print_answer(made, loop)
    words = "SIMULATED: The result is extrapolated from trials at a reduced size: nothing was measured at full size."
    assert (lines(capsys)[0] == words) is extrapolated
