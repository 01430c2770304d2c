"""Calibrations, catalogs, logs and comparisons as text, JSON and CSV."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.test_figures_arithmetic import GIB, budget, lines
from tests.conftest import Run
from tuner.cli.commands import calibrate, compare, doctor, max_batch, measure, memory
from tuner.core import catalog
from tuner.core.outcomes import Measurement


def test_a_calibration_is_printed_with_its_uncertainty(capsys: pytest.CaptureFixture[str]) -> None:
    site = catalog_site()
    table: Any = SimpleNamespace(
        name="t", columns=(), simulated=False, rows=[SimpleNamespace(line=7, skipped="why", run=None)]
    )
    learnt: Any = SimpleNamespace(
        table=table,
        calibration=SimpleNamespace(site=site, weighed=3, memory_deviation=0.07, period="june"),
        uncertainty={"products": 0.05},
        timed=4,
        before=0.123,
        left_out=0.045,
        doubts=(),
    )
    calibrate._print_text(table, "out", learnt)
    printed = lines(capsys)
    products = next(line.split() for line in printed if line.startswith("products "))
    assert products == ["products", "x", f"{site.products:.3f}", "+-", "5%"]
    assert printed[-4:] == [
        "t: 4 timed rows, 3 rows with memory or OOM; memory uncertainty 7%",
        "median error of time: 12.3% before calibration, 4.5% after (5-fold cross-validation)",
        "line 7 skipped: why",
        "wrote out; pass it to other commands with --calibration",
    ]
    learnt.timed = 1500
    calibrate._print_text(table, "out", learnt)
    assert "calibrated on 1,000 of the timed rows, evenly spaced" in lines(capsys)
    learnt.left_out, learnt.timed = None, 4
    calibrate._print_text(table, "out", learnt)
    assert lines(capsys)[-3] == "median error of time: 12.3% before calibration"
    calibrate._print_json(table, "out", learnt, period_column=None)
    document = json.loads(capsys.readouterr().out)
    assert (document["timed_rows"], document["memory_rows"], document["memory_deviation"]) == (4, 3, 0.07)
    assert document["skipped"] == [{"line": 7, "reason": "why"}]
    assert (document["table"], document["output"], document["era"]) == ("t", "out", "june")
    assert (document["median_error_before"], document["median_error_left_out"]) == (0.123, None)


def catalog_site() -> Any:
    """Return the factors of a site."""
    from tuner.costmodel.site_factors import SiteFactors

    return SiteFactors(products=1.25)


def test_the_catalog_is_printed_in_the_units_of_its_headers(run: Run) -> None:
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
    assert "GEMM: 2 TFLOP/s\nmemory copy: 3 GB/s\ncollective, per rank: 4 GB/s\n" in printed
    shown: list[str] = []

    def progress(what: str) -> Any:
        shown.append(what)
        return nullcontext()

    monkeypatch.setattr(doctor, "progress", progress)
    run("doctor")
    run("doctor", "--measure")
    assert shown == ["checking", "measuring"]
    assert [doctor._was_given(value) for value in (None, False, (), 2, "x", ("y",))] == [False] * 3 + [True] * 3


def test_terms_that_differ_are_printed_in_their_unit(capsys: pytest.CaptureFixture[str]) -> None:
    terms = [("a", 0.010, 0.012), ("b", 0.5, 0.5), ("c", 0.003, 0.0030000001), *((str(n), 0.0, 1.0) for n in range(3))]
    compare._print_terms("time", terms, "ms", 1e-3)
    compare._print_terms("memory", terms[1:3], "GiB", 1.0)
    assert lines(capsys) == ["  time: a 10 -> 12 ms, 0 0 -> 1000 ms, 1 0 -> 1000 ms", "  memory: equal terms"]


def test_a_tried_batch_is_printed_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Any = SimpleNamespace(micro_batch=4, outcome="MEASURED", peak_memory=3 * GIB)
    max_batch._show(seen)
    seen.peak_memory = None
    max_batch._show(seen)
    assert capsys.readouterr().err.splitlines() == [
        "micro-batch size 4: MEASURED, 3.000 GiB",
        "micro-batch size 4: MEASURED",
    ]


def measured(count: int, chosen: tuple[int, ...], **fields: Any) -> Any:
    """Return a log with so many iterations of 2 s at 150 TFLOPs."""
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


def test_a_measured_log_is_printed_with_the_measured_iteration_first(capsys: pytest.CaptureFixture[str]) -> None:
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
    difference = SimpleNamespace(iteration=2, printed=1400.0, counted=1500.0, reason="why")
    measure._print_text("log", measured(1, (1,), flops=1.5e15, difference=difference))
    printed = lines(capsys)
    assert "measured, iteration 1: 2.5 s, 1,500.00 TFLOPs per GPU, 3.00 GiB reserved" in printed
    assert "iteration 2: the log prints 1,400 TFLOPs, but its time gives 1,500.00: why" in printed


def test_failures_of_a_log_and_differences_from_the_key_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
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
    for remedy, printed in (("less", "less"), ("", None)):
        failure.remedy = remedy
        measure._print_json("log", measured(0, (), failure=failure, difference=difference, runs=1, run=1))
        document = json.loads(capsys.readouterr().out)
        assert document["failure"] == {
            "kind": "OOM",
            "evidence": "line of it",
            "line": 7,
            "meaning": "out of memory",
            "remedy": printed,
        }
        assert document["difference"] == {"iteration": 2, "tflops_logged": 140.0, "tflops": 150.0, "reason": "why"}
        assert (document["log"], document["measurement"], document["iterations"]) == ("log", None, [])
    assert (measure._tflops(1.5e14), measure._tflops(None), measure._finite(float("inf"))) == (150.0, None, None)


def test_a_memory_budget_is_written_in_gib(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_measured_log_is_written_with_its_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    made = measured(2, (1, 2), runs=3, run=1)
    for number, row in enumerate(made.rows):
        row.iteration.line = 10 + number
    made.rows[1].iteration.loss, made.rows[1].global_batch = float("nan"), None
    made.delivery = SimpleNamespace(
        expected=SimpleNamespace(key="k", source="STUDY", extrapolated=True, sec_per_iter=2.0),
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
    assert (expected["source"], expected["extrapolated"]) == ("study", True)
    assert (expected["delivered"], expected["mismatch"]) == (0.8, None)
    assert (expected["sec_ratio"], expected["memory_ratio"], expected["days"]) == (1.25, 1.5, 7.0)
    assert (document["runs"], document["run"], document["key"], document["failure"]) == (3, 1, None, None)


def way(label: str, rate: float, **fields: Any) -> Any:
    """Return a way to train a model, by its best batch."""
    best = SimpleNamespace(micro_batch=2, step_batch=16, acc_steps=3, tokens_per_second=rate, days=5.0)
    found = SimpleNamespace(
        attempts=[SimpleNamespace(micro_batch=2, seconds=0.5, peak_memory=None, fits=True, outcome="", evidence="")],
        open_end=True,
        largest=2,
        stopped=None,
    )
    answer = SimpleNamespace(found=found, fit=None, peak=20 * GIB, pressures=[], fills_pipeline=False)
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
    """Return two ways, the second faster, matched at batches of 8 and 16."""
    pairs = [
        SimpleNamespace(step_batch=8, slower=1.25, fuller=0.5),
        SimpleNamespace(step_batch=16, slower=1.5, fuller=None),
    ]

    def terms(share: float) -> Any:
        return SimpleNamespace(
            time=SimpleNamespace(terms={"a": 0.5 * share}), memory=SimpleNamespace(terms={"b": share * GIB})
        )

    monkeypatch.setattr("tuner.sizing.compare.matched", lambda *_: pairs)
    monkeypatch.setattr(
        "tuner.sizing.compare.reasons",
        lambda _first, _other, batch, _model, global_batch: (terms(1), terms(batch * global_batch)),
    )
    monkeypatch.setattr(
        "tuner.sizing.compare.apart", lambda one, other: [(name, one[name], other[name]) for name in one]
    )
    monkeypatch.setattr("tuner.cli.max_batch_output.answer_document", lambda _: "answer")
    models = [[way("slow", 1000.0), way("fast", 2000.0)]]
    chosen: dict[str, Any] = {"fixed": {"zero": (1, 3)}, "chose_recompute": False}
    return SimpleNamespace(models=models, cost_model=None, source="table", global_batch=1, **chosen)


def test_the_fastest_way_is_compared_with_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared at matched batches, and by the terms at the largest of them."""
    made = compared(monkeypatch)
    compare._print_text(made)
    printed = lines(capsys)
    assert printed[-6:] == [
        "",
        "m: fast against slow",
        "  slow takes 1.25 to 1.50 times the time of fast at matched batches of 8, 16",
        "  slow takes 0.50 times the memory of fast at matched batches of 8, 16",
        "  time at batch 16, estimated: a 500 -> 8000 ms",
        "  memory at batch 16, estimated: b 1 -> 16 GiB",
    ]
    assert "Measured by the table. A + marks the largest batch tried, or allowed by the global batch." in printed
    assert "Days are for training on 2T tokens." in printed
    assert sum(line.startswith("m ") for line in printed) == 2


@pytest.mark.parametrize(
    ("share", "near", "words"),
    [
        (0.9, True, " at 90% of the memory: possibly allocator pressure"),
        (0.5, False, " at 50% of the memory: far from the memory limit, so not allocator pressure"),
        (None, False, ": far from the memory limit, so not allocator pressure"),
    ],
)
def test_slow_batches_in_a_comparison_have_a_cause(
    share: float | None, near: bool, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 4 replicas, a micro batch of 2 is a batch of 8."""
    made = compared(monkeypatch)
    (made.models[0],) = [made.models[0][:1]]
    made.models[0][0].answer.pressures = [SimpleNamespace(micro_batch=2, slower=0.25, share=share, near_limit=near)]
    compare._print_text(made)
    assert lines(capsys)[-1] == f"m, slow: batch 8 is 25% slower than the trend of smaller batches{words}"


def test_a_comparison_is_written_as_ways_and_pairs(
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
    assert (document["source"], document["written"], document["fixed"]) == ("table", ["f"], {"zero": [1, 3]})
    assert model["model"] == {"name": "m", "heads": 8, "parameters": 9}
