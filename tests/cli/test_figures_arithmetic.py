"""Figures and sentences of each command's output, from stand-ins for results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.cli import options, output
from tuner.cli.commands import evaluate, explain, memory
from tuner.cli.output import print_csv, print_skipped
from tuner.core.quantity import format_count
from tuner.space.build import space_for

GIB = 2.0**30


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines."""
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("number", "words"),
    [(1.0267e12, "1.027T"), (181e9, "181B"), (999.98e6, "1B"), (999e6, "999M"), (1e6, "1M"), (12_346, "12.35K")],
)
def test_a_count_of_parameters_has_its_unit(number: float, words: str) -> None:
    assert format_count(number, digits=4) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"framework": "megatron-core", "precision": "bf16"}, "framework megatron-core"),
        ({"framework": "any"}, "any framework"),
        (
            {"framework": "megatron-core", "precision": "fp8", "precision_recipe": "tensorwise"},
            "framework megatron-core with the tensorwise recipe",
        ),
        (
            {"framework": "megatron-core", "precision": "fp8", "fp8_weights": True},
            "framework megatron-core with the delayed recipe and weights in fp8",
        ),
        (
            {"framework": "megatron-core", "precision": "fp8", "precision_recipe": "tensorwise", "bf16_layers": "1,4"},
            "framework megatron-core with the tensorwise recipe and the first layer and the last 4 layers in bf16",
        ),
        (
            {
                "framework": "megatron-core",
                "precision": "fp8",
                "precision_recipe": "tensorwise",
                "fp8_weights": True,
                "bf16_layers": "0,1",
            },
            "framework megatron-core with the tensorwise recipe, weights in fp8 and the last layer in bf16",
        ),
    ],
)
def test_a_framework_is_named_with_its_fp8_recipe(given: dict[str, Any], words: str) -> None:
    space = space_for(model="gpt-1.3b", gpu="H100-80GB-SXM", nodes=1, **given)
    assert output.framework_words(space.workload) == words
    document = output.space_document(space)["workload"]
    assert document["fp8_weights"] == ("weights in fp8" in words)
    assert document["bf16_layers"] == [int(each) for each in given.get("bf16_layers", "0,0").split(",")]


@pytest.mark.parametrize(
    ("seq", "positions", "words"),
    [
        (8192, 131072, " (the model allows 131072; set with --seq)"),
        (8192, 8192, ""),
        (4096, 131072, ""),
    ],
)
def test_the_maximum_sequence_length_of_a_model_is_stated(seq: int, positions: int, words: str) -> None:
    model: Any = SimpleNamespace(seq=seq, longest_seq=positions)
    assert output._seq_origin(model) == words


def test_csv_has_a_header_and_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv(["a", "b"], [[1, "x,y"], [None, 2.5]])
    assert lines(capsys)[:2] == ["a,b", '1,"x,y"']


@pytest.mark.parametrize("text", ["0", "-1", "nan", "x", "1e30", "inf"])
def test_a_number_must_be_positive_and_plausible(text: str) -> None:
    number = options.Positive()
    assert number.convert("0.5", None, None) == 0.5
    assert number.convert("9e29", None, None) == 9e29
    with pytest.raises(Exception, match=r"is not a positive number|is too large"):
        number.convert(text, None, None)


def test_a_row_of_evaluate_has_the_estimate_and_its_error() -> None:
    guess = SimpleNamespace(
        seconds=2.2, low=2.0, high=2.5, memory=30 * GIB, need=31 * GIB, out_of_memory=0.25, fits=True
    )
    row: Any = SimpleNamespace(
        index=4,
        line=7,
        group="g",
        run=None,
        tokens=None,
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
        "2.000",
        "2.200",
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
    for skipped, last in ((10, "line 9 skipped: why 9"), (11, "1 more line skipped; list the reasons with --json")):
        rows = [SimpleNamespace(line=line, skipped=f"why {line}", run=None) for line in range(skipped)]
        made: Any = SimpleNamespace(
            table=SimpleNamespace(
                rows=[*rows, SimpleNamespace(line=99, skipped="", run=None)], name="t", simulated=False
            ),
            calibrated_on=(),
            doubts=["t: a column in other units"],
            calibration=SimpleNamespace(known=None, weighed=0),
            summary=summary,
            groups={"a": summary},
        )
        evaluate._print_text(made, rows=False)
        printed = lines(capsys)
        assert printed[0] == f"t: {skipped + 1} rows, {skipped} skipped"
        assert printed[1].startswith("the cost model is not calibrated")
        assert printed[2] == "t: a column in other units"
        assert printed[-1] == last
        assert sum(line.startswith("all ") for line in printed) == 1
        assert not any(line.startswith("a ") for line in printed)
    made.groups, made.calibrated_on, made.calibration.weighed = {"a": summary, "b": summary}, (1, 2), 3
    evaluate._print_text(made, rows=False)
    printed = lines(capsys)
    assert printed[0].endswith("11 skipped; calibrated on 2 rows, which are not scored")
    assert printed[1:3] == ["t: a column in other units", ""]
    assert any(line.startswith("b ") for line in printed)
    made.calibrated_on = (1,)
    evaluate._print_text(made, rows=False)
    assert lines(capsys)[0].endswith("; calibrated on 1 row, which is not scored")


def test_a_waterfall_starts_each_bar_where_the_last_one_ends(capsys: pytest.CaptureFixture[str]) -> None:
    explain._print_waterfall(
        {"a": 30.0, "none": 0.0, "rounding": 1e-15, "b": 10.0, "tiny": 0.001}, unit="s", scale=10.0
    )
    first, second, third = lines(capsys)
    width = explain._BAR_WIDTH
    assert first.split() == ["a", "3.000", "s", "75.0%", "#" * round(0.75 * width)]
    assert second.endswith("  " + " " * round(0.75 * width) + "#" * round(0.25 * width))
    assert third.split()[3:] == ["0.0%", "#"]
    assert {line.index(" s ") for line in (first, second, third)} == {30}


def test_a_narrow_terminal_has_shorter_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terms = {"products": 30.0, "a_term_of_18_chars": 10.0, "tiny": 0.001}
    explain._print_waterfall(terms, unit="GiB", scale=10.0)
    printed = lines(capsys)
    assert max(map(len, printed)) == 60
    assert printed[0].endswith(f"75.0%  {'#' * 12}")
    monkeypatch.setenv("COLUMNS", "20")
    explain._print_waterfall(terms, unit="GiB", scale=10.0)
    assert lines(capsys)[0].endswith(f"75.0%  {'#' * 7}")


def cost(key: str, seconds: float, **terms: float) -> Any:
    """Return the cost of a topology."""
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
        days=10.0,
        memory=15 * GIB,
        limit=76 * GIB,
        stage=2,
        out_of_memory=0.125,
        fits=True,
    )


def test_two_topologies_are_compared_by_their_terms(capsys: pytest.CaptureFixture[str]) -> None:
    """8 s are 20% less than 10 s, due to 3 s of bubble and despite 1 s of sends, in either order of the topologies."""
    slow, fast = cost("slow", 10.0, bubble=5.0, sends=1.0), cost("fast", 8.0, bubble=2.0, sends=2.0)
    for pair in ((slow, fast), (fast, slow)):
        explain._print_comparison(*pair)
        printed = lines(capsys)
        assert printed[1] == "fast takes 20.0% less time than slow: bubble -3.00 s; partly offset by sends +1.00 s"
        assert printed[2].split() == ["Term", "fast", "slow", "Difference"]
        assert printed[4].split() == ["bubble", "2.00", "s", "5.00", "s", "-3.00", "s"]
        assert printed[-1].split() == ["total", "8.00", "s", "10.00", "s", "-2.00", "s"]
    explain._print_comparison(cost("fast", 8.0, bubble=3.0), cost("slow", 10.0, bubble=5.0, step=0.001))
    assert lines(capsys)[-2].split() == ["step", "0.00", "s", "0.00", "s", "+0.00", "s"]
    document = explain._cost_document(slow)
    assert (document["memory_gib"], document["usable_gib"], document["days"], document["tflops"]) == (15, 76, 10, 150)
    assert document["memory_terms_gib"] == {"weights": 10.0, "states": 5.0}
    assert (document["sec_per_iter_low"], document["sec_per_iter_high"], document["worst_stage"]) == (9.5, 11.0, 2)


def test_a_comparison_fits_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns headed by keys are too wide for 60 characters."""
    fast, slow = cost("tp4-pp12-dp8-mbs2-z1", 8.0, bubble=2.0), cost("tp8-pp12-dp4-mbs1-z1", 10.0, bubble=5.0)
    for columns, headings in (("60", ["Faster", "Slower"]), ("70", [fast.topology.key, slow.topology.key])):
        monkeypatch.setenv("COLUMNS", columns)
        explain._print_comparison(slow, fast)
        table = lines(capsys)[2:]
        assert table[0].split() == ["Term", *headings, "Difference"]
        assert max(map(len, table)) <= int(columns)


def test_neither_of_two_equal_topologies_is_the_faster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep their order, also where their times differ by rounding."""
    first = cost("tp4-pp12-dp8-mbs2-z1", 8.0 + 1e-14, bubble=2.0, sends=1.0)
    second = cost("tp8-pp12-dp4-mbs1-z1", 8.0, bubble=1.0, sends=2.0)
    for columns, headings in (("60", ["First", "Second"]), ("70", [first.topology.key, second.topology.key])):
        monkeypatch.setenv("COLUMNS", columns)
        explain._print_comparison(first, second)
        said, *table = lines(capsys)[1:]
        assert said == "tp4-pp12-dp8-mbs2-z1 and tp8-pp12-dp4-mbs1-z1 take the same time"
        assert table[0].split() == ["Term", *headings, "Difference"]
        assert table[2].split() == ["bubble", "2.000", "s", "1.000", "s", "+1.000", "s"]


@pytest.mark.parametrize(
    ("word", "level", "line"),
    [
        ("broken", "law", "x law     r: message; remedy; hint; nearest legal topology that keeps this rule: k"),
        ("broken", "advice", "! advice  r: message; remedy; hint; nearest legal topology that keeps this rule: k"),
        ("open", "law", "? law     r: cannot be checked: message"),
        ("holds", "policy", ". policy  r: sentence"),
        ("allowed", "policy", "- policy  r: disabled; message"),
        ("moot", "law", "- law     r: not applicable: sentence"),
    ],
)
def test_a_rule_is_printed_as_one_line(word: str, level: str, line: str) -> None:
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


def budget(gpu: str, ranks: int, sample: float = 2e9) -> Any:
    """Return the budget of a GPU of 80 GB."""
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
        zero=0,
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
    request.zero = 3
    memory._print_text(made, ["f"], unit=memory._unit(decimal=True))
    assert any(line.endswith("54.0  for activations on one GPU alone") for line in lines(capsys))
    request.zero = 0
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


def test_lines_skipped_for_one_reason_are_listed_together(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [SimpleNamespace(line=line, skipped="why" if line % 2 else None) for line in range(15)]
    table: Any = SimpleNamespace(rows=[*rows, SimpleNamespace(line=20, skipped="else")])
    print_skipped(table)
    assert capsys.readouterr().out == "lines 1, 3, 5, 7, 9 and 2 more skipped: why\nline 20 skipped: else\n"
