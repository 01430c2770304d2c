"""Figures printed by commands, from stand-ins for results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tests.cli.test_figures_arithmetic import lines
from tests.conftest import Run
from tuner.cli import max_batch_output
from tuner.cli.commands import compare, flops, plan
from tuner.cli.live import LiveView, opening
from tuner.cli.max_batch_output import _tokens_assumed, answer_document, print_answer, print_answer_json
from tuner.core.domain import Topology
from tuner.costmodel.estimate import CostModel
from tuner.planning import plan as plan_module
from tuner.sizing.fit import Pressure
from tuner.sizing.max_batch import BatchThroughput
from tuner.space.build import space_for
from tuner.space.space import Tally

GIB = 2.0**30


def attempt(batch: int, memory: float | None, seconds: float | None, *, fits: bool = True) -> Any:
    """Return a batch that was tried."""
    outcome = "MEASURED" if fits else "OOM"
    return SimpleNamespace(
        micro_batch=batch, peak_memory=memory, seconds=seconds, fits=fits, outcome=outcome, evidence="" if fits else "x"
    )


def value(batch: int, rate: float | None = None, days: float | None = None) -> BatchThroughput:
    """Return the value of a batch."""
    return BatchThroughput(
        micro_batch=batch, step_batch=8, acc_steps=8 // batch, exact=True, tokens_per_second=rate, days=days
    )


def answer(**fields: Any) -> Any:
    """Return the largest batch, 2, of a GPU with 80 GiB, 76 of them usable, at 20 GiB and 0.5 s."""
    attempts = [attempt(1, 10 * GIB, 0.25), attempt(2, 20 * GIB, 0.5), attempt(4, 90 * GIB, 1.0, fits=False)]
    usual: dict[str, Any] = {
        "found": SimpleNamespace(attempts=attempts, largest=2, open_end=False, stopped=None),
        "fit": SimpleNamespace(per_sample=10 * GIB, at_zero=GIB / 2, stderr=GIB / 8, points=2),
        "worth": [value(1), value(2, 1000.0, 4.0)],
        "card": 80 * GIB,
        "usable": 76 * GIB,
        "peak": 20 * GIB,
        "pressures": [Pressure(micro_batch=2, slower=0.25, share=0.5)],
        "safe": 1,
        "margin": 0.1,
        "strategy": "bisect",
        "source": "table",
        "topology": Topology(nodes=2, tp=4, pp=1, dp=4, micro_batch=1, zero=3, recompute="none"),
        "fills_pipeline": False,
        "fixed": {"pp": (1,)},
    }
    return SimpleNamespace(**usual | fields)


def test_a_largest_batch_is_written_in_gib_and_seconds() -> None:
    document = answer_document(answer())
    assert [(one["peak_memory_gib"], one["sec_per_iter"]) for one in document["attempts"]] == [
        (10.0, 0.25),
        (20.0, 0.5),
        (None, None),
    ]
    assert document["fit"] == {"gib_per_sample": 10.0, "gib_at_zero": 0.5, "stderr": 0.125}
    assert (document["card_gib"], document["usable_gib"], document["headroom_gib"]) == (80.0, 76.0, 60.0)
    assert (document["max_batch"], document["safe_batch"], document["runs"]) == (2, 1, 3)
    assert (document["estimated"], document["stopped"]) == (False, None)
    pressure = {"micro_batch": 2, "slower": 0.25, "share": 0.5, "near_limit": False}
    assert document["allocator_pressure"] == [pressure]
    assert [one["acc_steps"] for one in document["worth"]] == [8, 4]
    bare = answer(fit=None, peak=None, source="estimate")
    assert (answer_document(bare)["fit"], answer_document(bare)["headroom_gib"]) == (None, None)
    assert answer_document(bare)["estimated"] is True
    bare.found.stopped = SimpleNamespace(evidence="hung")
    assert answer_document(bare)["stopped"] == "hung"
    line = SimpleNamespace(per_sample=GIB, at_zero=0.0, stderr=None, points=2)
    assert answer_document(answer(fit=line))["fit"]["stderr"] is None


def test_a_largest_batch_is_printed_with_its_headroom_and_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """345.6M tokens take 4 days at 1000 tokens/s; a claimed 11 GiB per sample is 10% off."""
    print_answer(answer(), claim=11.0)
    out = capsys.readouterr().out
    header, table, rest = out.split("\n\n", 2)
    assert header == "topology tp4-pp1-dp4-mbs1-z3-rnone on 2 nodes, at other micro-batch sizes too"
    assert table.splitlines()[-3].split() == ["1", "1", "MEASURED", "10.00", "0.2500", "8"]
    assert table.splitlines()[-2].split() == ["2", "2", "MEASURED", "20.00", "0.5000", "4", "1,000", "4.0"]
    assert table.splitlines()[-1].split() == ["3", "4", "OOM"]
    lines = rest.splitlines()
    assert lines[0].startswith("largest micro-batch size 2 in 3 runs (bisect), ")
    assert "larger batches were not tried" not in lines[0]
    assert lines[1].startswith("days are for training on 346M tokens")
    assert lines.pop(2) == "fixed: pp=1; change them with --set"
    assert lines[2] == "headroom 60.00 GiB of 80.0 (75.0%); a process can use 76.0"
    assert lines[3] == "memory: 10.0000 +- 0.12500 GiB per sample plus 0.50 GiB at batch 0 (2 points)"
    assert lines[4].startswith("claimed 11 GiB per sample is 10.0% above the fitted slope")
    assert lines[5] == "safe batch with a memory margin of 10%: 1"
    words = "25% slower than the trend of smaller batches at 50% of the usable memory"
    assert lines[6] == f"batch 2 is {words}: far from the memory limit, so not allocator pressure"
    tolerance = max_batch_output.CLAIM_TOLERANCE
    print_answer(answer(), claim=10.0 * (1 + 0.9 * tolerance))
    assert "matches the fitted slope" in capsys.readouterr().out
    print_answer(answer(), claim=10.0 * (1 - 1.1 * tolerance))
    assert "1.1% below the fitted slope" in capsys.readouterr().out
    made = answer(peak=None, fit=None, worth=[], pressures=[])
    made.found.open_end = True
    print_answer(made)
    out = capsys.readouterr().out
    assert "; larger batches were not tried" in out
    assert "headroom" not in out
    assert "days are" not in out
    assert _tokens_assumed(made) == ""


def test_a_largest_batch_is_written_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer_json(answer())
    document = {"schema": "tuner/max-batch/1", **answer_document(answer()), "fixed": {"pp": [1]}}
    assert json.loads(capsys.readouterr().out) == document


def option(**fields: Any) -> Any:
    """Return a way to train on 4 ranks, with micro batch 2, 3 accumulation steps and half a second."""
    found = SimpleNamespace(attempts=[attempt(1, None, 9.0), attempt(2, None, 0.5)], open_end=True)
    fit = SimpleNamespace(per_sample=8 * GIB)
    best = SimpleNamespace(micro_batch=2, step_batch=24, acc_steps=3, tokens_per_second=12345.0, days=1234.56)
    usual: dict[str, Any] = {
        "label": "tp2",
        "topology": SimpleNamespace(dp=4),
        "best": best,
        "answer": SimpleNamespace(fit=fit, peak=20 * GIB, found=found),
        "next_would_fit": 48,
    }
    return SimpleNamespace(**usual | fields)


def test_a_compared_option_is_printed_as_a_row() -> None:
    row = compare._row(option())
    assert row == ("tp2", 4, "24+", 2, 3, "500", "12.3", "1,234.6", "20.00", "2.000", "48 by the fit")
    best = SimpleNamespace(micro_batch=2, step_batch=24, acc_steps=3, tokens_per_second=None, days=None)
    found = SimpleNamespace(attempts=[attempt(2, None, None)], open_end=False)
    bare = option(best=best, answer=SimpleNamespace(fit=None, peak=None, found=found), next_would_fit=None)
    assert compare._row(bare) == ("tp2", 4, "24", 2, 3, "", "", "", "", "", "")
    assert compare._row(option(best=None)) == ("tp2", 4, "none", *[""] * 8)


def view(done_before: int, budget: int, began: float) -> Any:
    """Return the live view of a study."""
    made: Any = LiveView.__new__(LiveView)
    limits = SimpleNamespace(budget=budget)
    made._loop = SimpleNamespace(settings=SimpleNamespace(limits=limits))
    made._done_before, made._began = done_before, began
    return made


@pytest.mark.parametrize(
    ("done", "words"),
    [(2, ""), (4, "at most 0:00:30 left"), (10, "at most 0:00:00 left"), (12, "at most 0:00:00 left"), (1, "")],
)
def test_the_remaining_time_is_that_of_the_remaining_budget(
    done: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trials took 10 s, and 6 of 10 are left."""
    monkeypatch.setattr("tuner.cli.live.time.monotonic", lambda: 110.0)
    assert view(2, 10, 100.0)._time_left(done) == words


def begun(
    *, table: str | None = None, trial_nodes: int | None = None, fidelity: str | None = None, **fields: Any
) -> Any:
    """Return the start of a study of twelve topologies."""
    settings = SimpleNamespace(
        table=SimpleNamespace(name=table) if table else None,
        calibration=None,
        space=SimpleNamespace(workload=None, cluster=None),
        tokens_from=None,
        command=None,
        seed=7,
        limits=SimpleNamespace(budget=3),
        trial_nodes=trial_nodes,
        fidelity=fidelity,
    )
    usual: dict[str, Any] = {"launcher": SimpleNamespace(name="local"), "pool": range(12), "tally": None, "resumed": 0}
    usual["plan"] = None
    return SimpleNamespace(**{**usual, "settings": settings, "store": SimpleNamespace(name="s"), **fields})


@pytest.mark.parametrize(
    ("launcher", "table", "resumed", "words"),
    [
        ("simulated", None, 0, "up to 3 jobs on a SIMULATED cluster (seed 7); nothing is launched"),
        ("local", None, 2, "up to 3 jobs with the local launcher"),
        ("replay", "t.csv", 0, "replaying up to 3 jobs from t.csv"),
    ],
)
@pytest.mark.parametrize(
    ("nodes", "trial_nodes", "fidelity", "sizes"),
    [
        (None, None, None, []),
        ((6, 12), None, "auto", ["(6 to 12 nodes) where that saves node-hours; the leaders run at full size"]),
        (
            (6, 6),
            None,
            None,
            [
                "(6 nodes) where that saves node-hours; the leaders run at full size "
                "(--fidelity full runs every trial at full size)"
            ],
        ),
        ((1, 1), 1, None, ["(1 node) where that saves node-hours; full size is extrapolated from them"]),
    ],
)
def test_a_search_starts_with_its_space_launcher_and_sizes(
    launcher: str,
    table: str | None,
    resumed: int,
    words: str,
    nodes: tuple[int, int] | None,
    trial_nodes: int | None,
    fidelity: str | None,
    sizes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = [f"trials run at a reduced size {size}" for size in sizes]
    monkeypatch.setattr("tuner.cli.output.space_lines", lambda _, **_given: ["the space"])
    monkeypatch.setattr("tuner.export.support.export_note", lambda *_, **__: "")
    plan = nodes and SimpleNamespace(nodes=nodes)
    lines = opening(
        begun(
            table=table,
            launcher=SimpleNamespace(name=launcher),
            resumed=resumed,
            plan=plan,
            trial_nodes=trial_nodes,
            fidelity=fidelity,
        )
    )
    assert (lines[0] == "the space") is (table is None)
    assert lines[0 if table else 1].startswith(f"12 legal topologies; {words}")
    assert lines[1 if table else 2 :] == [*sizes, *(["Continuing study s with 2 trials"] if resumed else [])]


class Selected(list[int]):
    """Candidates selected from a larger space."""

    values: Any = None


@pytest.mark.parametrize(
    ("values", "tally", "words"),
    [
        ({}, SimpleNamespace(legal=1500), "1,500 legal topologies, of which the 12 most promising are searched; up to"),
        (None, SimpleNamespace(legal=12), "12 legal topologies; up to 3 jobs with the local launcher"),
        ({}, None, "12 legal topologies; up to 3 jobs with the local launcher"),
    ],
)
def test_a_search_of_a_selection_is_labelled(values: Any, tally: Any, words: str) -> None:
    pool = Selected(range(12))
    pool.values = values
    (line,) = opening(begun(table="t.csv", pool=pool, tally=tally))
    assert line.startswith(words)


def test_plans_are_written_with_the_computed_figures(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON and CSV have the GiB, TFLOPs and days of each row."""
    made: list[Any] = []
    original = plan_module.plan

    def kept(*given: Any, **more: Any) -> Any:
        made.append(original(*given, **more))
        return made[-1]

    monkeypatch.setattr(plan_module, "plan", kept)
    axes = ("--model", "gpt-1.3b", "--nodes", "1", "--set", "tp=2", "--set", "pp=1", "--top", "2")
    document = json.loads(run("plan", *axes, "--json").out)
    lines = run("plan", *axes, "--csv").out.splitlines()
    assert made
    for printed, row in zip(document["top"], made[0].top, strict=True):
        assert printed["memory_gib"] == pytest.approx(row.memory / 2**30)
        assert printed["tflops"] == pytest.approx(row.flops / 1e12)
        assert printed["days"] == pytest.approx(row.training / 86400)
        assert (printed["sec_per_iter_low"], printed["sec_per_iter_high"]) == (row.low, row.high)
        assert sum(printed["memory_terms_gib"].values()) == pytest.approx(
            sum(row.estimate.memory.terms.values()) / 2**30
        )
    header = lines[0].split(",")
    for line, printed in zip(lines[1:], document["top"], strict=True):
        cells = dict(zip(header, line.split(","), strict=True))
        for column in ("sec_per_iter", "memory_gib", "tflops", "days", "mfu"):
            assert float(cells[column]) == pytest.approx(printed[column], rel=1e-5), column


@pytest.mark.parametrize(
    ("rules", "rest"),
    [(0, ""), (6, ""), (7, ", 1 other rule (--json lists them)"), (8, ", 2 other rules (--json lists them)")],
)
def test_a_plan_names_the_six_rules_that_removed_most(
    rules: int, rest: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that removed nothing are omitted; topologies that do not fit are separate, with a remedy if none fits."""
    monkeypatch.setattr(plan_module, "removal", lambda name, count, _: f"{name} {count}")
    monkeypatch.setattr(plan, "_print_rows", lambda rows, unit: click.echo(f"{[row.key for row in rows]} {unit[0]}"))
    space = space_for(model="gpt-1.3b", nodes=1)
    removed = {"none": 0, **{f"rule-{number}": 10 + number for number in range(rules)}}
    tally = Tally(grid=1000, legal=900, removed=removed)

    def row(key: str, *, fits: bool) -> Any:
        return SimpleNamespace(key=key, fits=fits, days=1.0)

    made: Any = SimpleNamespace(
        tally=tally, fitting=1, seconds=0.5, remedy="", hint="", top=[row("a", fits=True), row("b", fits=False)]
    )
    plan._print_text(space, made, CostModel())
    printed = capsys.readouterr().out
    named = [f"rule-{number} {10 + number}" for number in range(rules - 1, max(-1, rules - 7), -1)]
    assert "1,000 grid points, 900 legal, 1 fit; enumerated in 0.50 s\n" in printed
    assert f"\n{'Removed by rule: ' if rules else ''}{', '.join(named)}{rest}\n" in printed
    assert "\n['a'] Days\n\nUnlikely to fit in memory:\n\n['b'] Days\n" in printed
    assert "\nUncalibrated estimates, not measurements. Sorted by " in printed
    assert "No topology is likely to fit." not in printed
    made.top, made.remedy, made.fitting = [row("b", fits=False)], "Take more nodes.", 0
    plan._print_text(space, made, CostModel())
    printed = capsys.readouterr().out
    assert "\n\nUnlikely to fit in memory:\n\n['b'] Days\n\nNo topology is likely to fit. Take more nodes.\n" in printed
    made.remedy = ""
    for fitting, words in (
        (1, "1 topology that probably fits ranks lower;"),
        (1200, "1,200 topologies that probably fit rank lower;"),
    ):
        made.fitting = fitting
        plan._print_text(space, made, CostModel())
        assert f"\n\n{words} list more rows with --top.\n" in capsys.readouterr().out
    made.top = [row("a", fits=True)]
    plan._print_text(space, made, CostModel())
    assert "Unlikely" not in capsys.readouterr().out


def test_flops_are_printed_in_petaflop_and_percent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = space_for(model="gpt-1.3b", nodes=1, framework="megatron-core")
    found: Any = SimpleNamespace(
        topology=SimpleNamespace(key="k"),
        seconds=10.0,
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
    monkeypatch.setattr("tuner.core.documents.topology_document", lambda topology, _: f"document of {topology.key}")
    found.seconds, found.megatron_core = 7.0, 2.5e15
    flops._print_json(space, found)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tuner/flops/1"
    figures = {"key": "k", "topology": "document of k", "sec_per_iter": 7.0, "peak_tflops": 312.0}
    figures |= {"model_flops": 2e15, "hardware_flops": 3e15, "megatron_core_flops": 2.5e15}
    figures |= {"tflops": 150.0, "tflops_by_older_formula": 140.0, "tflops_by_megatron_core": 130.0}
    figures |= {"mfu": 0.36, "hfu": 0.48, "tokens": 2e12, "days": 10.0, "gpu_hours": 1920.0, "cost": 3840.0}
    assert figures.items() <= document.items()
    found.hardware_rate = found.older_rate = found.megatron_core_rate = None
    flops._print_json(space, found)
    document = json.loads(capsys.readouterr().out)
    rates = ("tflops", "tflops_by_older_formula", "tflops_by_megatron_core")
    assert [document[name] for name in rates] == [None, None, None]
    flops._print_text(space, found)
    assert lines(capsys)[-1] == "  pass --seconds for TFLOPs, MFU, HFU and days of training"
    found.hardware_rate, found.older_rate, found.megatron_core_rate, found.peak = 1.5e15, 1.4e15, 1.3e15, 2.25e15
    flops._print_text(space, found)
    printed = lines(capsys)
    assert printed[-5] == "  1,500.00 TFLOPs per GPU with recompute: HFU 48.0% of 2,250 TFLOPs"
    assert printed[-3].split()[0] == "1,300.00"
    assert printed[-2].split()[0] == "1,400.00"
