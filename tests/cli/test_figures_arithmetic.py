"""Figures and words of each command's output, from results that are nothing but these values."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.conftest import Run
from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.cli import live, options, output
from tuner.cli.commands import calibrate, compare, doctor, evaluate, explain, flops, max_batch, measure, memory
from tuner.cli.live import EventLines, LiveView
from tuner.cli.optimize_output import (
    _answer,
    _finishes,
    _gain,
    _model,
    _outcomes,
    _ranked_document,
    _removed,
    print_answer,
    trial_document,
)
from tuner.cli.output import print_csv
from tuner.core import catalog
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.space.build import space_for
from tuner.study.ranking import RankedTrial
from tuner.study.store.trial import Proposal, Trial

GIB = 2.0**30


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed."""
    return capsys.readouterr().out.splitlines()


# -- words of the header


@pytest.mark.parametrize(
    ("number", "words"),
    [(181e9, "181B"), (1e9, "1B"), (999e6, "999M"), (1e6, "1M"), (999_000, "999K"), (12_345, "12.3K")],
)
def test_a_count_of_parameters_has_its_unit(number: float, words: str) -> None:
    assert output._parameters(int(number)) == words


def test_the_header_tells_model_cluster_and_tokens() -> None:
    space = space_for(model="mixtral-8x7b", nodes=2, gpu="H100-80GB-SXM", gpus_per_node=8, tokens=2e12)
    model, machines, tokens, *notes = output.space_lines(space)
    own = space.workload.model
    assert own.experts is not None
    counts = f"{own.parameters / 1e9:.4g}B parameters ({own.active_parameters / 1e9:.4g}B active, 2 of 8 experts)"
    assert model.startswith(f"mixtral-8x7b: {counts}, 32 layers, hidden 4096, 32 heads, sequence ")
    assert f"global batch {space.workload.global_batch}, " in model
    assert machines.startswith("2 nodes of 8 H100-80GB-SXM")
    assert tokens == "training on 2T tokens"
    assert all(note.startswith("note: ") for note in notes)
    searched = space_for(settings=["shape=14336x72,13824x78", "heads=56,112,128"])
    assert output.space_lines(searched)[0].endswith("; searched: 2 shapes, 3 head counts")
    assert output.space_lines(searched)[2].endswith(" tokens (20 per parameter; set with --tokens)")
    one = space_for(settings=["heads=56"])
    assert ", 56 heads, " in output.space_lines(one)[0]
    assert output.changes_the_model(searched)
    assert output.changes_the_model(space_for(settings=["shape=13824x78", "heads=112"]))
    assert not output.changes_the_model(space_for(model="gpt-1.3b"))


@pytest.mark.parametrize(("domain", "words"), [(None, ""), (72, " in NVLink domains of 72")])
def test_a_cluster_names_its_nvlink_domain(domain: int | None, words: str) -> None:
    cluster: Any = SimpleNamespace(nvlink_domain=domain)
    assert output._domain(cluster) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"framework": "megatron-core", "precision": "bf16"}, "framework megatron-core"),
        ({"framework": "any"}, "any framework"),
        (
            {"framework": "megatron-core", "precision": "fp8", "precision_recipe": "tensorwise"},
            "framework megatron-core with the tensorwise recipe",
        ),
    ],
)
def test_a_framework_is_named_with_the_recipe_of_fp8(given: dict[str, Any], words: str) -> None:
    space = space_for(model="gpt-1.3b", gpu="H100-80GB-SXM", nodes=1, **given)
    assert output.framework_words(space.workload) == words


@pytest.mark.parametrize(
    ("seq", "positions", "words"),
    [
        (8192, 131072, " (the model allows 131072; set with --seq)"),
        (8192, 8192, ""),
        (4096, 131072, ""),
    ],
)
def test_a_model_that_allows_longer_sequences_says_so(seq: int, positions: int, words: str) -> None:
    model: Any = SimpleNamespace(seq=seq, max_positions=positions)
    assert output._seq_origin(model) == words


def test_csv_has_a_header_and_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv(["a", "b"], [[1, "x,y"], [None, 2.5]])
    assert lines(capsys)[:2] == ["a,b", '1,"x,y"']


@pytest.mark.parametrize("text", ["0", "-1", "nan", "x", "1e30", "inf"])
def test_a_number_is_positive_and_no_larger_than_a_training_needs(text: str) -> None:
    number = options.Positive()
    assert number.convert("0.5", None, None) == 0.5
    assert number.convert("9e29", None, None) == 9e29
    with pytest.raises(Exception, match=r"is not a positive number|is too large"):
        number.convert(text, None, None)


# -- evaluate


def test_a_row_of_evaluate_has_its_estimate_and_its_error() -> None:
    guess = SimpleNamespace(
        seconds=2.2, low=2.0, high=2.5, memory=30 * GIB, need=31 * GIB, out_of_memory=0.25, fits=True
    )
    row: Any = SimpleNamespace(
        index=4,
        line=7,
        group="g",
        run=None,
        seconds=2.0,
        timed=True,
        memory=20 * GIB,
        status="OK",
        assumed={},
        skipped="",
    )
    made: Any = SimpleNamespace(guesses={4: guess}, calibrated_on=(9,))
    assert evaluate._cells(row, made) == (
        "7",
        "g",
        "",
        "2",
        "2.2",
        "2.000 to 2.500",
        "+10.0%",
        "20.0",
        "30.0",
        "25%",
        "",
    )
    document = evaluate._row_document(row, guess, made)  # type: ignore[arg-type]
    assert (document["measured_gib"], document["estimated_gib"], document["needed_gib"]) == (20.0, 30.0, 31.0)
    assert (document["estimated_sec_low"], document["estimated_sec_high"], document["calibrated"]) == (2.0, 2.5, False)
    made.calibrated_on = (4,)
    assert evaluate._cells(row, made)[-1] == "calibration"
    made.calibrated_on, row.status, row.timed, row.memory = (), "OOM", False, None
    assert evaluate._cells(row, made)[-1] == "OOM"
    assert (evaluate._cells(row, made)[6], evaluate._cells(row, made)[7]) == ("", "")
    made.guesses = {}
    assert evaluate._cells(row, made) == ("7", "g", "", *[""] * 7, "skipped")


def test_a_summary_of_evaluate_is_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    summary: Any = SimpleNamespace(
        timed_rows=5,
        sec_median_ape=0.05,
        sec_mape=0.06,
        kendall_tau=0.876,
        top1_regret=0.01,
        pairs_in_order=0.9,
        within_interval=0.8,
        mem_rows=4,
        mem_mape=0.07,
        oom_rows=3,
        oom_recall=None,
        fit_recall=1.0,
    )
    cells = ("5", "5.0%", "6.0%", "0.88", "1.0%", "90.0%", "80.0%", "4", "7.0%", "3", "", "100.0%")
    assert evaluate._summary_cells(summary) == cells
    for skipped, last in ((10, "line 9 skipped: why"), (11, "1 more lines skipped; list the reasons with --json")):
        rows = [SimpleNamespace(line=line, skipped="why") for line in range(skipped)]
        made: Any = SimpleNamespace(
            table=SimpleNamespace(rows=[*rows, SimpleNamespace(line=99, skipped="")], name="t"),
            calibrated_on=(),
            calibration=SimpleNamespace(known=None, weighed=0),
            summary=summary,
            groups={"a": summary},
        )
        evaluate._print_text(made, rows=False)
        printed = lines(capsys)
        assert printed[0] == f"t: {skipped + 1} rows, {skipped} skipped"
        assert printed[1].startswith("the cost model is not calibrated")
        assert printed[-1] == last
        assert sum(line.startswith("all ") for line in printed) == 1
        assert not any(line.startswith("a ") for line in printed)
    made.groups, made.calibrated_on, made.calibration.weighed = {"a": summary, "b": summary}, (1, 2), 3
    evaluate._print_text(made, rows=False)
    printed = lines(capsys)
    assert printed[0].endswith("11 skipped; calibrated on 2 rows, which are not scored")
    assert not printed[1]
    assert any(line.startswith("b ") for line in printed)


# -- explain


def test_a_waterfall_starts_each_bar_where_the_last_one_ends(capsys: pytest.CaptureFixture[str]) -> None:
    explain._print_waterfall({"a": 30.0, "none": 0.0, "b": 10.0, "tiny": 0.001}, unit="s", scale=10.0)
    first, second, third = lines(capsys)
    width = explain._BAR_WIDTH
    assert first.split() == ["a", "3", "s", "75.0%", "#" * round(0.75 * width)]
    assert second.endswith("  " + " " * round(0.75 * width) + "#" * round(0.25 * width))
    assert third.split()[3:] == ["0.0%", "#"]


def cost(key: str, seconds: float, **terms: float) -> Any:
    """The cost of a topology."""
    estimate = SimpleNamespace(
        time=SimpleNamespace(terms=terms), memory=SimpleNamespace(terms={"weights": 10 * GIB, "states": 5 * GIB})
    )
    return SimpleNamespace(
        topology=SimpleNamespace(key=key),
        seconds=seconds,
        low=seconds - 0.5,
        high=seconds + 1,
        estimate=estimate,
        flops=150e12,
        training=864000.0,
        memory=15 * GIB,
        limit=76 * GIB,
        stage=2,
        out_of_memory=0.125,
        fits=True,
    )


def test_two_topologies_are_compared_by_their_terms(capsys: pytest.CaptureFixture[str]) -> None:
    """8 s against 10: a fifth less, by 3 s of bubble and against 1 s of sends, whichever is named first."""
    slow, fast = cost("slow", 10.0, bubble=5.0, sends=1.0), cost("fast", 8.0, bubble=2.0, sends=2.0)
    for pair in ((slow, fast), (fast, slow)):
        explain._print_comparison(*pair)
        printed = lines(capsys)
        assert printed[1] == "fast takes 20.0% less time than slow: bubble -3 s, against sends +1 s"
        assert printed[2].split() == ["bubble", "2", "s", "5", "s", "+3", "s"]
        assert printed[-1].split() == ["total", "8", "s", "10", "s", "+2", "s"]
    document = explain._cost_document(slow)
    assert (document["memory_gib"], document["usable_gib"], document["days"], document["tflops"]) == (15, 76, 10, 150)
    assert document["memory_terms_gib"] == {"weights": 10.0, "states": 5.0}
    assert (document["sec_per_iter_low"], document["sec_per_iter_high"], document["worst_stage"]) == (9.5, 11.0, 2)


@pytest.mark.parametrize(
    ("word", "level", "line"),
    [
        ("broken", "law", "x law     r: message; remedy; hint; nearest legal with a change here: k"),
        ("broken", "advice", "! advice  r: message; remedy; hint; nearest legal with a change here: k"),
        ("open", "law", "? law     r: cannot be checked: message"),
        ("holds", "policy", ". policy  r: sentence"),
        ("allowed", "policy", "- policy  r: disabled; message"),
        ("moot", "law", "- law     r: not applicable: sentence"),
    ],
)
def test_a_rule_is_one_line(word: str, level: str, line: str) -> None:
    verdict: Any = SimpleNamespace(
        word=word,
        level=level,
        rule="r",
        message="message",
        sentence="sentence",
        remedies=["remedy"],
        hint="hint",
        nearest=SimpleNamespace(key="k"),
    )
    assert explain._rule_line(verdict) == line


def test_rules_that_hold_are_counted_or_listed(capsys: pytest.CaptureFixture[str]) -> None:
    def verdict(word: str) -> Any:
        return SimpleNamespace(
            word=word, level="law", rule=word, message="m", sentence="s", remedies=[], hint="", nearest=None
        )

    verdicts = [verdict(word) for word in ("holds", "broken", "moot", "holds", "moot", "moot")]
    explanation: Any = SimpleNamespace(verdicts=verdicts, outside={"tp": (1, 2)}, legal=True)
    explain._print_rules(explanation, all_rules=False)
    assert lines(capsys)[1:] == [
        "x space   tp is not among the values searched: 1 and 2",
        "x law     broken: m",
        "2 rules hold and 3 do not apply; list them with --rules",
    ]
    explanation.legal = False
    explain._print_rules(explanation, all_rules=True)
    assert [line.split()[2] for line in lines(capsys)[1:]] == ["broken:", *["holds:"] * 2, *["moot:"] * 3]


# -- memory


def budget(gpu: str, ranks: int, sample: float = 2e9) -> Any:
    """A budget of a GPU of 80 GB."""
    parts = {"frozen": 16e9, "trainable": 1e9, "gradients": 2e9, "optimizer": 3e9, "overhead": 4e9}
    return SimpleNamespace(
        gpu=gpu,
        ranks=ranks,
        components=parts,
        card=80e9,
        left=54e9,
        sample=sample,
        target=0.8,
        margin=0.111,
        recommended=16,
        largest=lambda: 19,
        used=lambda batch: batch / 25,
    )


def test_a_memory_budget_is_printed_in_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    request = SimpleNamespace(
        frozen=[SimpleNamespace(name="a"), SimpleNamespace(name="b")],
        trainable=100_000_000,
        precision="bf16",
        optimizer="adam",
        overhead=0.08,
        checkpointing=True,
    )
    claim = SimpleNamespace(closes=True, claim="frozen=16", sentence="yes")
    made: Any = SimpleNamespace(request=request, budgets=[budget("X", 1), budget("X", 2)], claims=[claim])
    memory._print_text(made, ["f"], unit=memory._unit(decimal=True))
    printed = lines(capsys)
    rows = {line.split()[0]: line.split() for line in printed if line}
    assert rows["frozen"] == ["frozen", "16.0", "a", "+", "b"]
    assert rows["trainable"] == ["trainable", "1.0", "100M", "parameters,", "bf16"]
    assert rows["overhead"] == ["overhead", "4.0", "8%", "of", "GPU", "memory"]
    assert rows["left"][1:] == ["54.0", "for", "activations"]
    assert rows["card"][1:] == ["80.0", "GB"]
    assert rows["1"] == ["1", "X", "19", "16", "11%", "16", "64%", "2.000"]
    assert rows["2"] == ["2", "X", "19", "16", "11%", "32", "64%", "2.000"]
    assert "Batch sizes per GPU that use at most 80% of its memory. Estimates, not measurements." in printed
    assert printed[-2].split() == [".", "frozen=16", "yes"]
    assert printed[-1] == "wrote f"
    made.budgets, request.frozen = [budget("X", 1, sample=0.0)], []
    memory._print_text(made, [], unit=memory._unit(decimal=False))
    printed = lines(capsys)
    assert any(line.startswith("The activation memory of a sample is unknown") for line in printed)
    assert any(line.split() == ["frozen", f"{16e9 / GIB:.1f}", "none"] for line in printed)


# -- optimize


def ranked(candidate: int, days: float, **fields: Any) -> RankedTrial:
    """A measured topology."""
    usual: dict[str, Any] = {
        "seconds": days / 4,
        "low": days * 0.9,
        "high": days * 1.2,
        "runs": 2,
        "trials": (candidate,),
    }
    return RankedTrial(candidate=candidate, key=f"t{candidate}", days=days, **{**usual, **fields})


def trial(number: int, **fields: Any) -> Trial:
    """A measured trial."""
    return replace(ended(candidate=number, number=number), **fields)


def study(*ranking: RankedTrial, **fields: Any) -> Any:
    """A study of topologies of which 2 changes the model."""

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


def test_the_answer_is_the_best_topology_of_the_model_as_it_is() -> None:
    first, second, other = ranked(0, 10.0), ranked(1, 12.0), ranked(2, 8.0)
    assert _answer(study(first, second)) == [
        "t0 finishes soonest: 2.50 s per iteration, 10.0 days (9.0 to 12.0) for 2T tokens.",
        "It was the cost model's first choice.",
    ]
    tied = _answer(study(first, second, ties=(second,), launched=[trial(1), trial(0)]))
    assert tied[1:] == [
        "It is statistically tied with t1.",
        "It finishes 16.7% sooner than the cost model's first choice, t1.",
    ]
    both = _answer(study(other, first, second, ties=(first,)))
    assert both[0].startswith("t0 finishes soonest with 8 heads: ")
    assert both[-1] == (
        "As another model: t2, with 16 heads, takes 2.00 s per iteration, 8.0 days (7.2 to 9.6), 20.0% sooner."
    )
    alone = _answer(study(other))
    assert alone[0] == "No topology of the model as it is, with 8 heads, was measured."
    assert alone[-1].endswith("8.0 days (7.2 to 9.6).")


def test_the_gain_is_on_the_first_measured_topology_where_the_first_choice_failed() -> None:
    own, other = ranked(0, 10.0), ranked(1, 8.0)
    failed = ended(Outcome.OOM, candidate=5)
    assert _gain(study(own, other, launched=[failed, trial(1)]), own) == [
        "The cost model's first choice, t5, ended as OOM.",
        "It finishes 25.0% later than the first measured topology, t1.",
    ]
    small = ended(candidate=5, fidelity=SMALL)
    assert _gain(study(own, launched=[small, trial(0)]), own) == [
        "The cost model's first choice, t5, was measured at a reduced size only.",
        "It was the first measured topology.",
    ]


@pytest.mark.parametrize(
    ("extrapolated", "verb", "words"),
    [
        (False, "finishes", "finishes"),
        (True, "finishes", "is predicted to finish"),
        (False, "takes", "takes"),
        (True, "takes", "is predicted to take"),
    ],
)
def test_what_was_not_measured_is_predicted(extrapolated: bool, verb: str, words: str) -> None:
    assert _finishes(ranked(0, 10.0, extrapolated=extrapolated), verb) == words


def test_another_shape_is_named_beside_the_heads() -> None:
    made = study(ranked(2, 8.0))
    assert _model(made, made.best) == "16 heads"
    made.workload.model.layers = 30
    assert _model(made, made.best) == "16 heads, hidden 1024 and 24 layers"


def test_jobs_are_counted_by_outcome_and_size() -> None:
    trials = [ended(fidelity=SMALL), ended(), ended(Outcome.REJECTED, fidelity=SMALL)]
    assert _outcomes(study(trials=trials)) == "2 measured, 1 oom; 1 at a reduced size"
    assert _outcomes(study(outcomes={})) == "none was launched"


def test_the_rules_that_removed_most_are_named() -> None:
    removed = {"a": 5, "b": 0, "c": 7000, "d": 6, "e": 1}
    tally = SimpleNamespace(removed=removed, legal=1234, grid=56789, unused=["x"], advice=lambda: "Advice.")
    loop: Any = SimpleNamespace(tally=tally)
    words = " Legal: 1,234 of 56,789 grid points (removed most: c 7,000, d 6, a 5)."
    assert _removed(loop) == f"{words} Advice."
    tally.unused = []
    assert _removed(loop) == words
    loop.tally = None
    assert _removed(loop) == ""


def test_the_table_of_an_answer_has_the_first_five(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "Jobs: 2 measured, 1 oom." in printed
    assert "Slower. The table shows times at the present speed." in printed
    assert printed[-2:] == ["Saved to runs/s. Rerun with a larger --budget to continue.", "Next: report s or export s"]


def test_a_trial_is_a_document_of_its_proposal_and_its_result() -> None:
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
    place = _ranked_document(ranked(2, 8.0, trials=(5, 2), chance_sooner=0.25, extrapolated=True), {5: {"tp": 1}})
    assert (place["topology"], place["days_low"], place["days_high"]) == ({"tp": 1}, 7.2, 8.0 * 1.2)
    assert (place["extrapolated"], place["chance_sooner"], place["trials"]) == (True, 0.25, [5, 2])
    assert "extrapolated" not in _ranked_document(ranked(2, 8.0), {})


# -- while a search runs


def event(kind: str, text: str, about: Trial | None = None) -> Any:
    """Something that happened."""
    return SimpleNamespace(kind=kind, text=text, trial=about)


@pytest.mark.parametrize("simulated", [True, False])
def test_events_are_printed_as_lines_but_for_starts(
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


def test_a_live_view_shows_the_best_the_cost_and_the_last_events(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "opening", lambda _: ["first"])
    state = SimpleNamespace(ranking=[], node_hours=2.0, trials=[], launched=1)
    loop: Any = SimpleNamespace(
        launcher=SimpleNamespace(simulated=True),
        state=state,
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
    assert "SIMULATED best  nothing measured yet" in first.get()
    assert [line.split()[0] for line in first.get().splitlines()[:4]] == ["SIMULATED", "cost", "last", "next"]
    assert "8 t8: waiting: queue" in first.get()
    assert "t7: why" in first.get()
    assert "t3" in second.get()
    assert "10.0 days (9.0 to 12.0) (extrapolated)" in second.get()
    assert "2.0 node-hours" in second.get()
    err = capsys.readouterr().err
    assert err.startswith("early\nfirst\n")


# -- other commands


def test_a_calibration_is_printed_with_its_uncertainty(capsys: pytest.CaptureFixture[str]) -> None:
    site = catalog_site()
    learnt: Any = SimpleNamespace(
        calibration=SimpleNamespace(site=site, weighed=3, memory_deviation=0.07, period="june"),
        uncertainty={"products": 0.05},
        timed=4,
        before=0.123,
        left_out=0.045,
    )
    table: Any = SimpleNamespace(name="t")
    calibrate._print_text(table, "out", learnt)
    printed = lines(capsys)
    products = next(line.split() for line in printed if line.startswith("products "))
    assert products == ["products", "x", f"{site.products:.3f}", "+-", "5%"]
    assert printed[-3:] == [
        "t: 4 timed rows, 3 rows with memory or OOM; memory uncertainty 7%",
        "median error of time: 12.3% before calibration, 4.5% after (5-fold cross-validation)",
        "wrote out; pass it to other commands with --calibration",
    ]
    learnt.left_out = None
    calibrate._print_text(table, "out", learnt)
    assert lines(capsys)[-2] == "median error of time: 12.3% before calibration"
    calibrate._print_json(table, "out", learnt)
    document = json.loads(capsys.readouterr().out)
    assert (document["timed_rows"], document["memory_rows"], document["memory_deviation"]) == (4, 3, 0.07)
    assert (document["table"], document["output"], document["era"]) == ("t", "out", "june")
    assert (document["median_error_before"], document["median_error_left_out"]) == (0.123, None)


def catalog_site() -> Any:
    """Factors of a site."""
    from tuner.costmodel.site_factors import SiteFactors

    return SiteFactors(products=1.25)


def test_the_catalog_lists_figures_in_the_units_of_its_headers(run: Run) -> None:
    gpus = {row["name"]: row for row in json.loads(run("catalog", "gpus", "--json").out)["gpus"]}
    card = catalog.gpu("H100-80GB-SXM")
    assert gpus[card.name] == {
        "name": card.name,
        "memory_gib": card.memory / GIB,
        "memory_gb_s": card.memory_bandwidth / 1e9,
        "sms": card.sms,
        "peak_fp16_tflops": round(card.peak_flops["fp16"] / 1e12, 1),
        "intra_node_gb_s": card.intra_node_bandwidth / 1e9,
        "inter_node_gbit_s": card.inter_node_bandwidth * 8 / 1e9,
        "attention": card.attention,
    }
    clusters = {row["name"]: row for row in json.loads(run("catalog", "clusters", "--json").out)["clusters"]}
    bloom = catalog.cluster("bloom-48")
    assert clusters["bloom-48"]["node_gbit_s"] == bloom.inter_node.bandwidth * 8 / 1e9
    models = {row["name"]: row for row in json.loads(run("catalog", "models", "--json").out)["models"]}
    assert (models["mixtral-8x7b"]["experts"], models["mixtral-8x7b"]["top_k"]) == (8, 2)
    assert (models["gpt-1.3b"]["experts"], models["gpt-1.3b"]["top_k"]) == (0, 0)
    header, rule, first = run("catalog", "models").out.splitlines()[:3]
    assert header.split()[:3] == ["name", "parameters", "active"]
    assert set(rule.replace(" ", "")) == {"-"}
    assert first.startswith(next(iter(models)))


def test_doctor_prints_speeds_in_their_units(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(
        findings=(), speeds={"product_flops": 2e12, "copy_bytes": 3e9, "link_bytes": 4e9}, calibration=None
    )
    monkeypatch.setattr("tuner.study.doctor.examine", lambda *_, **__: found)
    printed = run("doctor").out
    assert "matrix product: 2 TFLOP/s\nmemory copy: 3 GB/s\ncollective, per rank: 4 GB/s\n" in printed
    assert [doctor._was_given(value) for value in (None, False, (), 2, "x", ("y",))] == [False] * 3 + [True] * 3


def test_flops_are_printed_in_petaflop_and_percent(capsys: pytest.CaptureFixture[str]) -> None:
    space = space_for(model="gpt-1.3b", nodes=1, framework="megatron-core")
    found: Any = SimpleNamespace(
        topology=SimpleNamespace(key="k"),
        model=2e15,
        hardware=3e15,
        hardware_rate=1.5e14,
        older_rate=1.4e14,
        megatron_core_rate=1.3e14,
        peak=3.12e14,
        hfu=0.48,
        mfu=0.36,
        days=10.0,
        gpu_hours=1920.0,
        cost=3840.0,
        tokens=2e12,
    )
    flops._print_text(space, found)
    assert lines(capsys)[-6:] == [
        "  2 PFLOP for the model, 3 PFLOP with recompute",
        "  150.00 TFLOPs per GPU with recompute: HFU 48.0% of 312 TFLOPs",
        "  MFU 36.0% (without recompute)",
        "  130.00 TFLOPs as Megatron-Core prints them",
        "  140.00 TFLOPs by the formula of Megatron-DeepSpeed before February 2022",
        "  2T tokens take 10.0 days, 1,920 GPU-hours, cost 3,840",
    ]
    found.hardware_rate = None
    flops._print_text(space, found)
    assert lines(capsys)[-1] == "  pass --seconds for TFLOPs, MFU, HFU and days of training"


def test_terms_that_differ_are_printed_in_their_unit(capsys: pytest.CaptureFixture[str]) -> None:
    terms = [("a", 0.010, 0.012), ("b", 0.5, 0.5), ("c", 0.003, 0.0030000001), *((str(n), 0.0, 1.0) for n in range(3))]
    compare._print_terms("time", terms, "ms", 1e-3)
    compare._print_terms("memory", terms[1:3], "GiB", 1.0)
    assert lines(capsys) == ["  time: a 10 -> 12 ms, 0 0 -> 1000 ms, 1 0 -> 1000 ms", "  memory: equal terms"]


def test_a_tried_batch_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Any = SimpleNamespace(micro_batch=4, outcome="MEASURED", peak_memory=3 * GIB)
    max_batch._show(seen)
    seen.peak_memory = None
    max_batch._show(seen)
    assert capsys.readouterr().err.splitlines() == ["micro batch 4: MEASURED, 3.000 GiB", "micro batch 4: MEASURED"]


def measured(count: int, chosen: tuple[int, ...], **fields: Any) -> Any:
    """A log of so many iterations of 2 s at 150 TFLOPs."""
    rows = [
        SimpleNamespace(
            iteration=SimpleNamespace(number=number, tflops=140.0, loss=1.25),
            seconds=2.0 + number,
            flops=1.5e14,
            global_batch=64,
        )
        for number in range(1, count + 1)
    ]
    usual: dict[str, Any] = {
        "rows": rows,
        "subject": None,
        "lacks": "",
        "measurement": Measurement(seconds=2.5, iterations=chosen, peak_memory=3 * GIB, tflops=140.0)
        if chosen
        else None,
        "memory_kind": "reserved",
        "flops": 1.5e14,
        "difference": None,
        "failure": None,
        "notes": ["n"],
        "delivery": None,
    }
    return SimpleNamespace(**{**usual, **fields})


def test_a_measured_log_is_printed_with_what_was_measured_first(capsys: pytest.CaptureFixture[str]) -> None:
    most = measure._MAX_ROWS
    measure._print_text("log", measured(most + 2, (most + 1, most + 2)))
    printed = lines(capsys)
    assert printed[0] == f"log: {most + 2} iterations"
    table = [line.split() for line in printed[4:] if line and line.split()[0].isdigit()]
    assert len(table) == most
    assert [int(row[0]) for row in table] == [*range(1, most - 1), most + 1, most + 2]
    assert table[-1] == [str(most + 2), f"{most + 4}", "140.00", "150.00", "64", "1.2500", "*"]
    assert table[0][-1] == "1.2500"
    assert "... 2 more; list them with --json" in printed
    words = f"the median of iterations {most + 1} and {most + 2}"
    assert f"measured, {words}: 2.5 s, 150.00 TFLOPs per GPU, 3.00 GiB reserved" in printed
    assert printed[-1] == "note: n"
    measure._print_text("log", measured(1, (1,), flops=None))
    printed = lines(capsys)
    assert "measured, iteration 1: 2.5 s, 140.00 TFLOPs per GPU (as logged), 3.00 GiB reserved" in printed
    assert not any("more; list" in line for line in printed)


def test_a_failure_and_a_difference_of_a_log_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    failure = SimpleNamespace(
        failure=SimpleNamespace(kind="OOM", evidence="line of it"), meaning="out of memory", line=7, remedy="less"
    )
    difference = SimpleNamespace(iteration=2, printed=140.0, counted=150.0, reason="why")
    measure._print_text("log", measured(2, (), failure=failure, difference=difference, notes=[]))
    assert lines(capsys)[-3:] == [
        "iteration 2: the log prints 140 TFLOPs, but its time gives 150.00: why",
        "OOM after iteration 2: out of memory; line 7: line of it",
        "remedy: less",
    ]
    assert (measure._tflops(1.5e14), measure._tflops(None), measure._finite(float("inf"))) == (150.0, None, None)


def test_a_memory_budget_is_a_document_in_gib(capsys: pytest.CaptureFixture[str]) -> None:
    request = SimpleNamespace(
        frozen=[SimpleNamespace(name="a", parameters=7)],
        trainable=100,
        optimizer="adam",
        precision="bf16",
        checkpointing=True,
    )
    claim = SimpleNamespace(claim="frozen=16", closes=True, sentence="yes")
    one = budget("X", 2)
    made: Any = SimpleNamespace(request=request, budgets=[one], claims=[claim])
    memory._print_json(made, ["f"])
    document = json.loads(capsys.readouterr().out)
    (found,) = document["budgets"]
    assert (found["card_gib"], found["left_gib"], found["sample_gib"]) == (80e9 / GIB, 54e9 / GIB, 2e9 / GIB)
    assert found["components_gib"] == {name: size / GIB for name, size in one.components.items()}
    assert (found["gpus"], found["largest_batch"], found["recommended_batch"], found["effective_batch"]) == (
        2,
        19,
        16,
        32,
    )
    assert (found["margin"], found["used"], found["target"]) == (0.111, 16 / 25, 0.8)
    assert document["frozen"] == [{"name": "a", "parameters": 7}]
    assert document["claims"] == [{"claim": "frozen=16", "closes": True, "sentence": "yes"}]
    assert (document["trainable"], document["checkpointing"], document["written"]) == (100, True, ["f"])


def test_a_measured_log_is_a_document_of_its_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    made = measured(2, (1, 2), runs=3, run=1)
    for number, row in enumerate(made.rows):
        row.iteration.line = 10 + number
    made.rows[1].iteration.loss, made.rows[1].global_batch = float("nan"), None
    made.delivery = SimpleNamespace(
        expected=SimpleNamespace(key="k", source="STUDY", sec_per_iter=2.0),
        delivered=0.8,
        mismatch="",
        sec_ratio=1.25,
        memory_ratio=1.5,
        days=7.0,
    )
    made.difference = SimpleNamespace(iteration=2, printed=140.0, counted=150.0, reason="")
    measure._print_json("log", made)
    document = json.loads(capsys.readouterr().out)
    first, second = document["iterations"]
    assert first == {
        "number": 1,
        "sec_per_iter": 3.0,
        "tflops_logged": 140.0,
        "tflops": 150.0,
        "global_batch": 64,
        "samples_per_sec": 64 / 3,
        "loss": 1.25,
        "line": 10,
    }
    assert (second["loss"], second["samples_per_sec"], second["line"]) == (None, None, 11)
    assert document["measurement"] == {
        "iteration": 1,
        "iterations": [1, 2],
        "sec_per_iter": 2.5,
        "tflops": 150.0,
        "tflops_logged": 140.0,
        "peak_memory_gib": 3.0,
        "memory_kind": "reserved",
    }
    assert document["difference"] == {"iteration": 2, "tflops_logged": 140.0, "tflops": 150.0, "reason": None}
    expected = document["expected"]
    assert (expected["source"], expected["delivered"], expected["mismatch"]) == ("study", 0.8, None)
    assert (expected["sec_ratio"], expected["memory_ratio"], expected["days"]) == (1.25, 1.5, 7.0)
    assert (document["runs"], document["run"], document["key"], document["failure"]) == (3, 1, None, None)


def way(label: str, rate: float, **fields: Any) -> Any:
    """One way to train a model, by its best batch."""
    best = SimpleNamespace(micro_batch=2, step_batch=16, acc_steps=3, tokens_per_second=rate, days=5.0)
    found = SimpleNamespace(
        attempts=[SimpleNamespace(micro_batch=2, seconds=0.5, peak_memory=None, fits=True, outcome="", evidence="")],
        open_end=True,
        largest=2,
        stopped=None,
    )
    answer = SimpleNamespace(found=found, fit=None, peak=20 * GIB, pressures=[])
    usual: dict[str, Any] = {
        "label": label,
        "title": "m",
        "topology": SimpleNamespace(dp=4, key=f"key of {label}"),
        "best": best,
        "fastest": SimpleNamespace(step_batch=8, tokens_per_second=rate),
        "next_would_fit": 24,
        "answer": answer,
        "model": SimpleNamespace(name="m", heads=8, parameters=9),
        "workload": SimpleNamespace(tokens=2e12),
    }
    return SimpleNamespace(**{**usual, **fields})


def compared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two ways, of which the second is faster; matched at batches of 8 and 16."""
    pairs = [
        SimpleNamespace(step_batch=8, slower=1.25, fuller=0.5),
        SimpleNamespace(step_batch=16, slower=1.5, fuller=None),
    ]

    def terms(share: float) -> Any:
        return SimpleNamespace(
            time=SimpleNamespace(terms={"a": 0.5 * share}), memory=SimpleNamespace(terms={"b": share * GIB})
        )

    monkeypatch.setattr("tuner.sizing.compare.matched", lambda *_: pairs)
    monkeypatch.setattr("tuner.sizing.compare.reasons", lambda _first, _other, batch, _model: (terms(1), terms(batch)))
    monkeypatch.setattr(
        "tuner.sizing.compare.apart", lambda one, other: [(name, one[name], other[name]) for name in one]
    )
    monkeypatch.setattr("tuner.cli.max_batch_output.answer_document", lambda _: "answer")
    return SimpleNamespace(models=[[way("slow", 1000.0), way("fast", 2000.0)]], cost_model=None, source="table")


def test_the_fastest_way_is_compared_with_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At matched batches, and by the terms at the largest of them."""
    made = compared(monkeypatch)
    compare._print_text(made)
    printed = lines(capsys)
    assert printed[-6:] == [
        "",
        "m: fast against slow",
        "  slow takes 1.25 to 1.50 times the time of fast at matched batches of 8, 16",
        "  slow takes 0.50 to 0.50 times the memory of fast at matched batches of 8, 16",
        "  time at batch 16, estimated: a 500 -> 8000 ms",
        "  memory at batch 16, estimated: b 1 -> 16 GiB",
    ]
    assert "Measured by the table. A + marks the largest batch tried: larger ones may fit." in printed
    assert "Days are for training on 2T tokens." in printed
    assert sum(line.startswith("m ") for line in printed) == 2


def test_a_comparison_is_a_document_of_ways_and_pairs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compared(monkeypatch)
    made.models[0][1].best = made.models[0][1].fastest = made.models[0][1].answer.peak = None
    compare._print_json(made, ["f"])
    document = json.loads(capsys.readouterr().out)
    (model,) = document["models"]
    slow, fast = model["ways"]
    assert slow == {
        "way": "slow",
        "key": "key of slow",
        "dp": 4,
        "max_global_batch": 16,
        "max_tried": True,
        "next_by_the_line": 24,
        "local_batch": 2,
        "acc_steps": 3,
        "tokens_per_second": 1000.0,
        "days": 5.0,
        "fastest_batch": 8,
        "peak_memory_gib": 20.0,
        "answer": "answer",
    }
    nothing = ("max_global_batch", "local_batch", "acc_steps", "tokens_per_second", "fastest_batch", "peak_memory_gib")
    assert [fast[name] for name in nothing] == [0, 0, None, None, None, None]
    first, second = model["matched"]
    assert (first["ways"], first["batch"], first["slower"], first["fuller"]) == (["slow", "fast"], 8, 1.25, 0.5)
    assert (second["terms_sec"], second["terms_gib"]) == ([{"a": 0.5}, {"a": 8.0}], [{"b": 1.0}, {"b": 16.0}])
    assert (document["source"], document["written"]) == ("table", ["f"])
    assert model["model"] == {"name": "m", "heads": 8, "parameters": 9}
