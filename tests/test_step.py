"""`tuner.step` reports the iterations of a silent trainer, and `--log` reads a file instead of stdout."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tuner.step
from tests.conftest import ROOT, Run
from tuner.logs import read_log

SMALL = ("--model", "tiny", "--gpus-per-node", "4", "--nodes", "1", "--budget", "2", "--json", "--study", "s")


def test_each_report_is_one_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps.log"
    monkeypatch.setenv(tuner.step.VARIABLE, str(path))
    clock = iter([11.0, 11.5, 12.25])
    monkeypatch.setattr("tuner.step.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("tuner.step._Clock.ended", 1.0)
    monkeypatch.setattr("tuner.step._Clock.number", 0)
    tuner.step.step()
    tuner.step.step(loss=5.125)
    tuner.step.step(loss=float("nan"))
    (run,) = read_log(path.read_text().splitlines()).runs
    assert run.source == "tuner.step"
    assert [(one.number, one.seconds) for one in run.iterations] == [(1, 10.0), (2, 0.5), (3, 0.75)]
    assert (run.iterations[0].loss, run.iterations[1].loss) == (None, 5.125)
    assert run.failure


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_only_the_first_rank_reports(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps.log"
    monkeypatch.setenv(tuner.step.VARIABLE, str(path))
    monkeypatch.setenv(variable, "1")
    tuner.step.step(loss=1.0)
    assert not path.exists()
    monkeypatch.setenv(variable, "0")
    tuner.step.step(loss=1.0)
    assert path.exists()


def test_it_does_nothing_outside_a_job_and_imports_only_the_standard_library() -> None:
    code = (
        "import sys; from tuner.step import step; step(loss=1.0); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout.strip() == "['tuner']"


def trainer(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


REPORTS = """
import sys, time
sys.path.insert(0, {root!r})
from tuner.step import step
while True:
    time.sleep(0.05)
    step(loss=5.0)
"""


def test_a_study_is_measured_by_the_reports(run: Run, tmp_path: Path) -> None:
    command = trainer(REPORTS.format(root=str(ROOT)))
    said = run("optimize", "--launcher", "local", "--command", command, "--runs", str(tmp_path), *SMALL)
    assert said.code == 0
    assert all(0.05 <= trial["sec_per_iter"] < 1 for trial in json.loads(said.out)["trials"])


WRITES = """
import sys, time
with open(sys.argv[1], "w") as file:
    for number in range(1, 1000):
        time.sleep(0.02)
        file.write(f"iter {{number}}: loss 5.1, time 123.00ms, mfu 1.00%\\n")
        file.flush()
"""


def test_a_study_is_measured_by_a_log_file(run: Run, tmp_path: Path) -> None:
    """A study is measured by the trainer's log file; one that a job of another study wrote is renamed and not read."""
    log = str(tmp_path / "logs/{key}/rank0.log")
    command = f"{trainer(WRITES)} {shlex.quote(log)}"
    words = ("--launcher", "local", "--command", command, "--log", log, "--runs", str(tmp_path / "runs"), *SMALL)
    for stale in range(2):
        said = run("optimize", *words[:-1], f"s{stale}")
        assert said.code == 0
        assert [trial["sec_per_iter"] for trial in json.loads(said.out)["trials"]] == [0.123, 0.123]
        for path in tmp_path.glob("logs/*/rank0.log"):
            path.write_text("iter 1: loss 5.1, time 9000.00ms, mfu 1%\niter 2: loss 5.1, time 9000.00ms, mfu 1%\n")
    assert list(tmp_path.glob("logs/*/rank0.log.before-*"))


def test_a_log_needs_a_command_and_known_fields(run: Run) -> None:
    assert "--log applies to your own trainer" in run("optimize", "--launcher", "local", "--log", "x").err
    said = run("optimize", "--launcher", "local", *SMALL, "--command", "true", "--log", "{rank}.log")
    assert "--log: unknown field {rank}" in said.err
