"""`tuner optimize` with real processes: hangs, interruptions and output."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tests.launch.test_local import alive, until
from tests.stages import command
from tests.studies import run_tuner
from tests.workers import needs_deepspeed
from tuner.core import catalog
from tuner.launch.supervisor import members

SMALL = ("--model", "tiny", "--gpus-per-node", "4", "--nodes", "1")


def local(*words: str, runs: Path, trainer: tuple[str, ...] = ("good",)) -> list[str]:
    return ["optimize", "--launcher", "local", *SMALL, "--command", command(*trainer), "--runs", str(runs), *words]


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture(autouse=True)
def _processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the CPU, so that studies are the same on a machine with a GPU."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


def test_a_study_of_a_users_command(run: Run, tmp_path: Path) -> None:
    said = run(*local("--budget", "3", "--jobs", "2", "--json", runs=tmp_path))
    assert said.code == 0, said.err
    assert "--launcher local runs one job at a time, so --jobs 2 has no effect." in said.err
    found = document(said.out)
    assert (found["launcher"], found["simulated"], found["jobs_launched"]) == ("local", False, 3)
    assert all(trial["sec_per_iter"] == 0.05 for trial in found["trials"] if trial["outcome"] == "MEASURED")
    assert len({trial["key"] for trial in found["trials"]}) == 3
    assert "the command passes no tp" in said.err
    assert "add {tp} " in said.err
    alone = local("--budget", "1", "--study", "alone", runs=tmp_path)
    passed = local("--budget", "2", "--study", "passed", runs=tmp_path, trainer=("good", "{key}"))
    for words in (alone, passed):
        said = run(*words)
        assert said.code == 0
        assert "the command passes" not in said.err


@pytest.mark.slow
def test_a_mixture_is_searched_with_the_shipped_worker_and_its_export_runs(run: Run, tmp_path: Path) -> None:
    """Trials of each ep use balanced routing and their share of the experts; the export uses the model's own router."""
    needs_deepspeed()
    words = "--launcher local --model tiny-moe --gpus-per-node 4 --global-batch 8 --budget 3 --study moe --json"
    pins = [f"--set={pin}" for pin in ("ep=1,2,4", "tp=1", "pp=1", "dp=4", "micro_batch=2", "zero=1", "recompute=none")]
    said = run("optimize", *words.split(), *pins, "--runs", str(tmp_path))
    assert said.code == 0, said.err
    trials = document(said.out)["trials"]
    assert {trial["topology"].get("ep", 1) for trial in trials} == {1, 2, 4}
    assert {trial["outcome"] for trial in trials} <= {"MEASURED", "PRUNED"}
    finished = [path.parent for path in (tmp_path / "moe/jobs").glob("*/result.json")]
    assert finished
    model = catalog.model("tiny-moe")
    for job in finished:
        result = json.loads((job / "result.json").read_text())
        ep = int((re.search(r"-ep(\d)", result["key"]) or ["", "1"])[1])
        elsewhere = 3 * 8 * model.expert_parameters * (ep - 1) // ep
        assert [rank["trained"] for rank in result["parameters"]] == [model.parameters - elsewhere] * 4
        assert re.search(r"moe_router_force_load_balancing \.* True", (job / "stdout.log").read_text())
    folder = tmp_path / "export"
    said = run("export", "moe", "--format", "torchrun", "-o", str(folder), "--runs", str(tmp_path))
    assert said.code == 0, said.err
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    launched = subprocess.run(
        [str(folder / "launch.sh")], env={**os.environ, **python}, capture_output=True, text=True, timeout=300
    )
    assert launched.returncode == 0, launched.stderr[-3000:]
    assert re.search(r"moe_router_force_load_balancing \.* False", launched.stdout)
    losses = [iteration["loss"] for iteration in json.loads((folder / "result.json").read_text())["iterations"]]
    assert len(losses) == 10
    assert losses[0] == pytest.approx(math.log(512), abs=0.1)


@pytest.mark.parametrize("words", [("--every", "10"), ("--start", "5001"), ("--start", "5001", "--every", "10")])
@pytest.mark.parametrize("style", ["megatron", pytest.param("pipeline", marks=pytest.mark.slow)])
def test_a_trainer_that_logs_every_tenth_iteration_or_resumes_is_measured(
    words: tuple[str, ...], style: str, run: Run, tmp_path: Path
) -> None:
    said = run(*local("--budget", "2", "--json", runs=tmp_path, trainer=("logged", "--style", style, *words)))
    assert said.code == 0, said.err
    trials = document(said.out)["trials"]
    assert [(trial["outcome"], trial["sec_per_iter"]) for trial in trials] == [("MEASURED", 0.25)] * 2
    assert len({trial["key"] for trial in trials}) == 2
    mean = "each time is a mean of 10 iterations" if "--every" in words else ""
    assert [trial["note"] for trial in trials] == [mean, mean]
    assert (mean or "s per iteration, ") in said.err
    shown = run("report", "--runs", str(tmp_path))  # the note is stored with the study
    assert shown.code == 0


def test_logs_without_a_measurable_iteration_end_the_study_after_three_jobs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three jobs with unreadable logs the study ends; each trial has the reason and the remedy."""
    trainer = ("logged", "--every", "10", "--lines", "1")
    said = run(*local("--budget", "8", "--json", runs=tmp_path, trainer=trainer))
    assert said.code == 1
    found = document(said.out)
    assert [trial["outcome"] for trial in found["trials"]] == ["UNREADABLE"] * 3
    assert {trial["ended"] for trial in found["trials"]} == {"no iteration could be measured"}
    assert all("log every iteration, or train for longer" in trial["evidence"] for trial in found["trials"])
    assert found["ended"] == (
        "the last 3 jobs succeeded, but none could be measured: stdout.log has iteration 10 in 1 line, and line 2 is "
        "measured; log every iteration, or train for longer"
    )
    line = "UNREADABLE stdout.log has iteration 10 in 1 line, and line 2 is measured; log every iteration, or train for"
    assert line in said.err
    monkeypatch.setenv("TRAINER", "good")  # the trainer is repaired
    again = run(*local("--budget", "4", "--json", runs=tmp_path, trainer=trainer))
    assert [trial["outcome"] for trial in document(again.out)["trials"]][3:] == ["MEASURED"]


def test_durations_of_a_tiny_model_are_printed_in_a_suitable_unit(run: Run, tmp_path: Path) -> None:
    """Durations below a day are not printed as 0.0 days, and the winner is not compared with itself."""
    said = run(*local("--budget", "1", runs=tmp_path))
    assert said.code == 0
    assert re.search(r" 0\.0[0-9]{3} s per iteration, [0-9.]+ minutes \(", said.out)
    assert " 0.0 days" not in said.out + said.err
    assert " 0.0 node-hours" not in said.out
    assert "It was the first topology tried." in said.out
    assert "sooner than" not in said.out


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "outcome"), [(["--retry-hang-sync"], "MEASURED"), ([], "HUNG")])
def test_a_hung_job_is_retried_with_synchronous_kernels_on_request(
    flag: list[str], outcome: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung job is run again with synchronous kernels only with --retry-hang-sync, and the trial records the retry."""
    monkeypatch.setattr("tuner.study.watchdog.DEFAULT_MAX_START", 0.5)
    monkeypatch.setattr("tuner.study.watchdog.MIN_PATIENCE", 0.5)
    monkeypatch.setattr("tuner.study.watchdog.MAX_STALLED_ITERATIONS", 0.01)
    words = local("--budget", "1", "--json", *flag, runs=tmp_path, trainer=("hang_unless_in_sync",))
    said = run(*words)
    (trial,) = document(said.out)["trials"]
    assert trial["outcome"] == outcome
    assert "no progress for" in trial["ended"]
    assert ("and was retried with CUDA_LAUNCH_BLOCKING=1" in trial["ended"]) == bool(flag)
    folders = sorted(path.name for path in tmp_path.glob("*/jobs/*"))
    assert [name.endswith("-sync") for name in folders] == [False, True][: 1 + bool(flag)]


def test_a_study_continues_after_its_tuner_is_killed(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the tuner is killed, its job ends, and the next run cancels the trial and continues."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu", "TRAINER": "hang"}
    words = local("--budget", "2", "--json", runs=tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "tuner", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tuner:
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("*/jobs/*/stdout.log")), 60)
        (noted,) = tmp_path.glob("*/jobs/*/keeper.json")
        kept = json.loads(noted.read_text())
        mine = {*members(kept["tag"], kept["keeper"]), kept["keeper"]}
        assert len(mine) >= 2
        tuner.send_signal(signal.SIGKILL)
        until(lambda: not [pid for pid in mine if alive(pid)])
        tuner.communicate()
    monkeypatch.setenv("TRAINER", "good")
    again = run(*words)
    first, second = document(again.out)["trials"]
    assert first["outcome"] == "CANCELLED"
    assert second["outcome"] == "MEASURED"
    assert "the tuner that ran it exited" in first["ended"]


def test_two_studies_on_one_machine_at_once_both_end(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "tuner", *local("--budget", "2", "--json", runs=tmp_path / name)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in "ab"
    ]
    for each in both:
        out, _ = each.communicate(timeout=100)
        assert [trial["outcome"] for trial in document(out)["trials"]] == ["MEASURED"] * 2


@pytest.mark.slow
def test_the_documented_command_runs_a_trainer_under_torchrun(tmp_path: Path) -> None:
    """The command in docs/local.md works exactly as printed, with a trainer of two ranks under torchrun."""
    pytest.importorskip("torch")
    (line,) = re.findall(
        r"^\$ tuner (optimize --launcher local --command .*)$", (ROOT / "docs/local.md").read_text(), re.M
    )
    (tmp_path / "train.py").write_text(TRAINER, encoding="utf-8")
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{binaries}:{os.environ['PATH']}",
    }
    words = [*shlex.split(line), "--model", "tiny", "--gpus-per-node", "2", "--budget", "2", "--json"]
    said = run_tuner(*words, folder=tmp_path, environment=environment)
    assert said.code == 0, said.err
    found = document(said.out)
    assert [trial["outcome"] for trial in found["trials"]] == ["MEASURED"] * 2
    for trial, folder in zip(found["trials"], sorted((tmp_path / "runs").glob("*/jobs/*")), strict=True):
        tp = trial["topology"]["tp"]
        assert f"2 ranks, tp {tp}, ds_config of 8 sequences" in (folder / "stdout.log").read_text()


TRAINER = '''"""Two ranks that agree, and the line that Megatron prints."""
import argparse, json, time
import torch, torch.distributed as dist

given = argparse.ArgumentParser()
given.add_argument("--tp")
given.add_argument("--config")
given = given.parse_args()
dist.init_process_group("gloo")
batch = json.load(open(given.config))["train_batch_size"]
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks, tp {given.tp}, ds_config of {batch} sequences", flush=True)
for number in range(1, 1000):
    time.sleep(0.05)
    dist.all_reduce(torch.ones(8))
    if dist.get_rank() == 0:
        print(f" iteration {number}/ 1000 | elapsed time per iteration (ms): 50.0 |", flush=True)
'''


@pytest.mark.slow
def test_reduced_trials_run_on_fewer_ranks_of_this_machine(run: Run, tmp_path: Path) -> None:
    """Reduced trials use 1 or 2 of 4 ranks and measure two batches; the leaders then run on all 4 ranks."""
    needs_deepspeed()
    words = (
        "--launcher local --model tiny --gpus-per-node 4 --global-batch 256 --fidelity auto --budget 7 --study cheap"
    )
    space = "--set tp=1 --set pp=1 --set dp=4 --set zero=0 --set micro_batch=1,2 --set recompute=none,full"
    said = run("optimize", *shlex.split(words), *shlex.split(space), "--runs", str(tmp_path), "--json")
    assert said.code == 0, said.err
    trials = [trial for trial in document(said.out)["trials"] if trial["outcome"] == "MEASURED"]
    small, full = ([trial for trial in trials if ("fidelity" in trial) == wanted] for wanted in (True, False))
    assert {trial["fidelity"]["dp"] for trial in small} & {1, 2}
    for trial in small:
        first, second = trial["batch_seconds"]
        assert first > 0
        assert second == trial["sec_per_iter"]
        started = json.loads((tmp_path / "cheap/jobs" / f"{trial['number']:04d}-{trial['key']}/start.json").read_text())
        assert started["gpus"] == trial["fidelity"]["dp"]
    assert len(full) >= 2
    assert {trial["key"] for trial in full} & {trial["key"] for trial in small}
    report = run("report", "cheap", "--runs", str(tmp_path))
    assert "was extrapolated to" in report.out
