"""The benchmark of one GPU: its plan, the resuming of its results, and its table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.jobs import Runner
from benchmarks.gpu.megatron import settings
from benchmarks.gpu.plan import GPU, PlannedRow, Planner, repeated, tiny
from benchmarks.gpu.plots import CLASSES, class_of, ladders
from benchmarks.gpu.results import FILE, Clock, Results
from benchmarks.gpu.rows import ADAM, ALONE, choose_adam, row_items
from benchmarks.gpu.searches import CONFIG, batches, findings, scan, searched
from benchmarks.gpu.stage import Context, Item, missing, run_items
from benchmarks.gpu.table import by_column, measured_rows, repeats, settled, write_table
from benchmarks.wheels import needed
from tests.conftest import ROOT
from tuner.core.worker_refusals import refuse
from tuner.costmodel.evaluation import evaluate
from tuner.launch.ds_config import ds_config
from tuner.tables import read_table
from tuner.tables.run import run_of

PLANNER = Planner()
PLAN = PLANNER.rows()
MOE = PLANNER.moe_rows()


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the environment variables and the signal handler that the benchmark sets for its process."""
    for name in ("DS_ACCELERATOR", "OMP_NUM_THREADS", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def context(folder: Path, seconds: float = 100.0) -> Context:
    return Context(Results.open(folder), Runner(folder, "cpu"), Clock.of(seconds), tiny=True)


def measured(row: PlannedRow, factor: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Return a result as from the runner, of a GPU that takes `factor` times the estimate."""
    seconds = row.estimate[0] * factor
    return {
        "status": "OK",
        "cells": row.cells,
        "seconds": [2 * seconds, seconds, seconds],
        "memory_kind": "device",
        "allocated_gib": 10.0,
        "reserved_gib": 11.0,
        "smi_gib": 12.0,
        "how": "shared",
        **changes,
    }


def test_the_plan_has_sixty_rows_and_every_axis() -> None:
    def values(of: str) -> set[Any]:
        return {eval(of, {}, {"m": r.workload.model, "w": r.workload, "t": r.topology}) for r in PLAN}  # noqa: S307

    assert len({row.name for row in PLAN}) == len(PLAN) >= 60
    assert values("m.hidden") == {1024, 2048, 4096, 8192}
    assert values("m.seq") >= {1024, 2048, 4096, 8192, 16384, 32768}
    assert values("t.recompute") == {"none", "selective", "full"}
    assert values("t.zero") == {0, 1, 2, 3}
    assert values("t.offload") == {"none", "optimizer", "optimizer+parameters"}
    assert values("m.hidden // m.heads") >= {64, 128, 256}
    assert values("m.tied_embeddings") == {True, False}
    assert values("w.attention") == {"eager", "flash2"}
    assert values("w.precision") >= {"bf16", "fp16"}
    assert values("t.tp * t.pp * t.dp") == {1}
    over = [row for row in PLAN if not row.estimate[1]]
    assert len(over) >= 6
    assert min(row.topology.micro_batch for row in PLAN) == 1


@pytest.mark.parametrize("row", [*PLAN, *MOE, *tiny(PLAN), *tiny(MOE)], ids=lambda row: row.name)
def test_the_worker_trains_every_row(row: PlannedRow) -> None:
    refuse(row.workload, row.topology, ds_config(row.workload, row.topology))


@pytest.mark.parametrize("row", [*PLAN, *MOE], ids=lambda row: row.name)
def test_the_table_describes_what_ran(row: PlannedRow) -> None:
    """The cells of a row are read back as the run that was measured."""
    read = run_of(row.cells)
    assert replace(read.workload.model, name=row.workload.model.name) == row.workload.model
    assert replace(read.topology, dispatcher="alltoall") == row.topology
    for name in ("global_batch", "precision", "attention", "fused_norms", "framework"):
        assert getattr(read.workload, name) == getattr(row.workload, name), name
    assert read.cluster.gpu == row.cluster.gpu


def test_ten_rows_are_repeated_one_of_which_runs_out_of_memory() -> None:
    again = repeated(PLAN)
    assert len({row.name for row in again}) == 10
    assert sum(not row.estimate[1] for row in again) == 1
    names = [item.name for item in row_items(Context(Results(Path()), Runner(Path(), "cuda"), Clock.of(1)))]
    assert len(names) == len(set(names)) == len(PLAN) + 20
    assert sum(name.endswith("-alone") for name in names) == ALONE


def test_all_stages_take_less_than_half_an_hour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["plan", "-o", str(tmp_path)]) == 0
    minutes = float(capsys.readouterr().out.split()[-2])
    assert minutes < 27


def test_results_resume_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    Results.open(tmp_path).add("rows", "a", {"status": "OK"})
    with (tmp_path / FILE).open("a") as file:
        file.write('{"stage": "rows", "na')
    found = Results.open(tmp_path)
    assert [each["name"] for each in found.entries] == ["a"]
    found.add("rows", "b", {"status": "FAIL"})
    assert [json.loads(line)["name"] for line in (tmp_path / FILE).read_text().splitlines()] == ["a", "b"]


def test_items_run_once_and_a_failure_is_a_result(tmp_path: Path) -> None:
    ran: list[str] = []

    def item(name: str, *, fails: bool = False) -> Item:
        def run() -> dict[str, Any]:
            ran.append(name)
            if fails:
                raise OSError("no space left")
            return {"status": "OK"}

        return Item(name, 0.0, run)

    items = [item("a"), item("b", fails=True), item("c")]
    assert run_items("s", items, context(tmp_path)) == 0
    again = context(tmp_path)
    assert run_items("s", items, again) == 0
    assert ran == ["a", "b", "c"]
    assert [each["status"] for each in again.results.of("s")] == ["OK", "FAIL", "OK"]
    again.results.forget_failures("s")
    assert [each.name for each in missing("s", items, again.results)] == ["b"]


def test_a_result_is_found_by_the_name_of_its_item(tmp_path: Path) -> None:
    Results.open(tmp_path).add("rates", "machine", {"name": "NVIDIA H200", "stage": "other"})
    assert Results.open(tmp_path).find("rates", "machine")


def test_a_stage_is_left_after_three_failures_in_a_row(tmp_path: Path) -> None:
    """The time of a GPU is short, and whatever fails three times will fail again."""
    outcomes = ["FAIL", "FAIL", "OK", "FAIL", "FAIL", "FAIL", "OK"]
    items = [Item(str(number), 0.0, lambda status=status: {"status": status}) for number, status in enumerate(outcomes)]  # type: ignore[misc]
    one = context(tmp_path)
    assert run_items("rows", items, one) == 1
    assert [each["status"] for each in one.results.of("rows")] == outcomes[:-1]


def test_an_item_that_would_not_end_in_time_is_left(tmp_path: Path) -> None:
    """An item that would not end in time is skipped, and a shorter one after it still runs."""
    given = context(tmp_path, seconds=20)
    assert run_items("s", [Item(str(seconds), seconds, dict) for seconds in (1.0, 13.0, 50.0, 1.5)], given) == 2
    assert [each["name"] for each in given.results.of("s")] == ["1.0", "1.5"]


def test_torchs_adam_serves_where_deepspeeds_does_not_compile(tmp_path: Path) -> None:
    given = context(tmp_path)
    given.results.add("prepare", ADAM, {"status": "OK"})
    choose_adam(given)
    assert not given.runner.torch_adam
    given.results.add("prepare", ADAM, {"status": "FAIL"})
    choose_adam(given)
    assert given.runner.torch_adam


def test_the_table_has_times_memory_and_failures(tmp_path: Path) -> None:
    results = Results.open(tmp_path)
    over = next(row for row in PLAN if not row.estimate[1])
    results.add("rows", PLAN[0].name, measured(PLAN[0], 2.0))
    results.add("rows", f"{PLAN[0].name}-alone", measured(PLAN[0], 2.2, how="alone", reserved_gib=11.5))
    results.add("rows", over.name, {"status": "OOM", "cells": over.cells, "how": "shared"})
    results.add("rates", "bandwidth", {"status": "OK"})
    results.add("searches", "optimize", {"status": "OK"})
    path = tmp_path / "table.csv"
    assert write_table(results, path, "smi") == 3
    first, second, third = read_table(path).rows
    assert first.seconds == pytest.approx(2 * PLAN[0].estimate[0], rel=1e-5)
    assert (first.memory, first.memory_kind) == (12 * 2**30, "smi")
    assert first.cells["allocated_gib"] == "10.0000"
    assert "a job of its own" in second.cells["note"]
    assert third.status == "OOM"
    evaluation = evaluate(read_table(path))
    assert evaluation.summary.timed_rows == 2
    assert evaluation.summary.oom_rows == 1
    by = by_column(evaluation.guesses.values())
    assert by["status"]["OK"]["seconds"] == pytest.approx((1 / 2 + 1 / 2.2) / 2 - 1, abs=0.02)
    assert repeats(results) == [
        {"name": PLAN[0].name, "alone": pytest.approx(0.1), "alone GiB": pytest.approx(0.5)},
    ]


def test_rows_of_a_cpu_have_no_memory_of_a_gpu(tmp_path: Path) -> None:
    results = Results.open(tmp_path)
    results.add("rows", "a", measured(PLAN[0], memory_kind="resident"))
    assert "mem_gib" not in measured_rows(results, "reserved")[0]


def test_ladders_are_rows_that_differ_in_their_batch_alone(tmp_path: Path) -> None:
    results = Results.open(tmp_path)
    for row in PLAN:
        over = {} if row.estimate[1] else {"status": "OOM"}
        results.add("rows", row.name, measured(row) | over)
    write_table(results, tmp_path / "table.csv")
    found = ladders(evaluate(read_table(tmp_path / "table.csv")).guesses.values())
    assert len(found) >= 3
    for own in found.values():
        assert len({(each.row.cells["hidden"], each.row.cells["recompute"]) for each in own}) == 1
        assert any(each.row.status == "OOM" for each in own)


def test_every_row_belongs_to_a_class_of_the_plot() -> None:
    rows = [*PLAN, *MOE, *PLANNER.megatron_rows()]
    assert {class_of(SimpleNamespace(cells=row.cells)) for row in rows} == set(CLASSES)  # type: ignore[arg-type]


def test_a_time_is_the_second_iterations_or_the_median_of_many() -> None:
    assert settled([9.0, 1.0, 2.0]) == 1.0
    assert settled([9.0, 1.0, 5.0, 2.0, 3.0, 4.0]) == 3.0


def test_memory_that_an_earlier_row_left_is_no_rows_own(tmp_path: Path) -> None:
    results = Results.open(tmp_path)
    results.add("megatron", "a", measured(PLAN[0], before={"allocated": 2**31}))
    assert "mem_gib" not in measured_rows(results, "reserved")[0]


@pytest.mark.parametrize("row", PLANNER.megatron_rows(), ids=lambda row: row.name)
def test_megatron_core_trains_the_model_of_each_row(row: PlannedRow) -> None:
    """The settings name the model's sizes, and only fields that Megatron-Core has."""
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    values, model = settings(row.workload, row.topology), row.workload.model
    of = config.MLATransformerConfig if model.latent else config.TransformerConfig
    assert values.keys() <= {field.name for field in fields(of)}
    assert [values[name] for name in ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size")] == [
        *(model.layers, model.hidden, model.heads, model.ffn)
    ]
    assert values.get("num_moe_experts", 0) == (model.experts.count if model.experts else 0)
    assert ("fp8" in values) == (row.workload.precision == "fp8")


def test_the_scanned_space_is_the_one_that_is_searched(tmp_path: Path) -> None:
    """The scan contains every legal topology of the search on the 1B model, and the worker can train each."""
    model = tmp_path / "1b.json"
    model.write_text(json.dumps(CONFIG))
    found = scan(searched(model, GPU, tiny=False), PLANNER)
    parts = {(r.topology.zero, r.topology.recompute, r.topology.micro_batch) for r in found}
    assert parts == {(z, r, m) for z in (1, 2, 3) for r in ("none", "full") for m in (1, 2, 4, 8)}
    assert len(found) == len(parts)
    for row in [*found, *batches(searched(model, GPU, tiny=False), PLANNER, tiny=False)]:
        refuse(row.workload, row.topology, ds_config(row.workload, row.topology))
    assert found[0].workload.model.parameters == pytest.approx(1.16e9, rel=0.01)


def test_searches_are_judged_by_the_scan(tmp_path: Path) -> None:
    results = Results.open(tmp_path)
    for key, seconds in (("a", 1.0), ("b", 1.1)):
        results.add("searches", f"scan-{key}", {"status": "OK", "seconds": [9.0, seconds, 9.0]})
    for batch, status in ((16, "OK"), (24, "OK"), (28, "OOM")):
        results.add("searches", f"batch-{batch}", {"status": status})
    best = {"best": {"key": "b"}, "jobs_launched": 6}
    results.add("searches", "optimize", {"status": "OK", "document": best})
    results.add("searches", "max-batch-ramp", {"status": "OK", "document": {"max_batch": 24, "runs": 3}})
    results.add("faults", "fault-hang", {"status": "OK", "found": "HUNG"})
    found = findings(results)
    assert found["regret"] == pytest.approx(0.1)
    assert (found["best"], found["winner"], found["jobs"], found["largest batch"]) == ("a", "b", 6, 24)
    assert found["max-batch"]["ramp"] == {"max_batch": 24, "runs": 3}
    assert found["faults"]["hang"] == "HUNG"


def test_wheels_are_those_that_jobs_need_and_the_machine_lacks() -> None:
    pytest.importorskip("deepspeed")
    found = needed("3.12", {"torch", "numpy", "pandas", "matplotlib"})
    assert {"tuner", "deepspeed", "optuna", "pydantic-core", "hjson"} <= found.keys()
    assert not {"torch", "numpy", "sympy", "tomli"} & found.keys(), "what only torch needs is not carried"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["rates", "moe", "megatron", "searches", "faults", "trainers"])
def test_a_stage_runs_on_a_cpu(stage: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    while gpu.main([stage, "-o", str(tmp_path), "--tiny", "--seconds", "600"]) == gpu.UNFINISHED:
        pass
    entries = Results.open(tmp_path).of(stage)
    failed = {each["name"]: each.get("meaning") for each in entries if each["status"] not in ("OK", "REFUSED", "OOM")}
    assert entries
    assert not failed


@pytest.mark.slow
def test_rows_that_are_cut_off_are_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is ended during a row leaves no process; the next one runs that row and the rest, none twice."""
    pytest.importorskip("deepspeed")
    words = [sys.executable, "-m", "benchmarks.gpu", "rows", "-o", str(tmp_path), "--tiny", "--seconds", "600"]
    with subprocess.Popen(words, cwd=ROOT) as first:
        while first.poll() is None and len(Results.open(tmp_path).entries) < 4:
            time.sleep(0.2)
        first.terminate()
    assert first.returncode == 143
    begun = Results.open(tmp_path).of("rows")
    (shared,) = {each["process"]["pid"] for each in begun}
    assert not Path(f"/proc/{shared}").exists(), "what it started ended with it"
    with (tmp_path / FILE).open("a") as file:
        file.write('{"stage": "rows", "na')
    while gpu.main(["rows", "-o", str(tmp_path), "--tiny", "--seconds", "600"]) == gpu.UNFINISHED:
        pass
    entries = Results.open(tmp_path).of("rows")
    assert len(Results.open(tmp_path).entries) == len(entries) + 1  # plus the row that compiles Adam
    assert [each["at"] for each in entries[: len(begun)]] == [each["at"] for each in begun]
    others = {each["name"]: each["status"] for each in entries if each["status"] != "OK"}
    assert list(others.values()) == ["OOM"]
    assert next(iter(others)).startswith("huge")
    assert {each["how"] for each in entries} == {"shared", "alone"}
    assert gpu.main(["blind", "-o", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"estimates.png", "memory.png"}
    assert f"{len(entries)} rows; blind" in capsys.readouterr().out


@pytest.mark.slow
def test_a_shared_process_keeps_nothing_of_a_row(tmp_path: Path) -> None:
    """After each row of a shared process no parameter, module, engine or process group is left."""
    pytest.importorskip("deepspeed")
    program = (
        "import gc, json, sys, pathlib, torch; from benchmarks.gpu.worker import run\n"
        "from deepspeed.runtime.engine import DeepSpeedEngine\n"
        "exits = [run(pathlib.Path(name))['exit'] for name in sys.argv[1:]]\n"
        "kinds = [type(each) for each in gc.get_objects()]\n"
        "left = [kind for kind in kinds if issubclass(kind, (torch.nn.Parameter, DeepSpeedEngine, torch.nn.Module))]\n"
        "print(json.dumps([exits, len(left), torch.distributed.is_initialized()]))"
    )
    chosen = [each for each in tiny(PLAN) if each.topology.offload == "none"]
    runner, files = Runner(tmp_path, "cpu"), []
    for number, row in enumerate(chosen):
        job = runner.job(row, str(number))
        job.folder.mkdir(parents=True)
        runner.program.prepare(job)
        files.append(str(job.folder / "assignment.json"))
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", program, *files]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    exits, left, connected = json.loads(done.stdout.splitlines()[-1])
    assert exits == [int(row.workload.model.name == "huge") for row in chosen]
    assert left == 0
    assert not connected
