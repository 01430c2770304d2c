"""`tuner doctor --command` runs one job and reports in one sentence whether a study could work."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.stages import command

SMALL = ("--model", "tiny", "--gpus-per-node", "4", "--nodes", "1", "--json")


def test_a_measurable_trainer_passes(run: Run) -> None:
    said = run("doctor", "--command", command("good"), *SMALL)
    assert said.code == 0
    (job,) = [finding for finding in json.loads(said.out)["findings"] if finding["name"] == "job"]
    assert job["verdict"] == "ok"
    assert "0.05 s per iteration" in job["evidence"]


@pytest.mark.parametrize("writes", ["step {}, loss: 4.0, time: 50.0 ms", pytest.param("hello", marks=pytest.mark.slow)])
def test_the_log_of_the_check_is_not_in_the_way_of_a_study(writes: str, run: Run, tmp_path: Path) -> None:
    """A study's job does not start if its log exists, unless a job of a study beside it wrote it."""
    log = tmp_path / "train.log"
    lines = f"[f.write({writes!r}.format(i) + chr(10)) for i in range(1, 5)]"
    code = f"with open({str(log)!r}, 'w') as f: {lines}"
    words = ("--command", shlex.join([sys.executable, "-c", code.replace("{", "{{").replace("}", "}}")]))
    first, second = (run("doctor", *words, "--log", str(log), *SMALL) for _ in range(2))
    assert (first.code, second.code) == ((0, 0) if "step" in writes else (1, 1))
    assert not log.exists()
    if "step" not in writes:
        folder = Path(second.err.strip().rsplit(" in ", 1)[1].rstrip("."))
        assert (folder / "trainer.log").read_text() == "hello\n" * 4


BROKEN = {
    "missing module": ("import no_such_module", "a dependency is missing", "install it for the Python"),
    "bad flag": (
        "import argparse; argparse.ArgumentParser().parse_args(['--tensor', '2'])",
        "the trainer refused its arguments",
        "correct --command",
    ),
    "no output": ("pass", "it printed nothing", "name the trainer's log file with --log"),
    "no iteration": ("print('saved')", "no iteration could be measured", "match its lines with --step-pattern"),
    "an error of its own": (
        "raise ValueError('the sequence is too long')",
        "an exception ended a rank",
        "read stderr.log",
    ),
}


QUICK = ("missing module", "no output")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BROKEN]
)
def test_a_broken_trainer_is_explained_in_one_sentence_with_a_remedy(name: str, run: Run) -> None:
    code, reason, remedy = BROKEN[name]
    said = run("doctor", "--command", shlex.join([sys.executable, "-c", code.replace("{", "{{")]), *SMALL)
    assert said.code == 1
    (job,) = [finding for finding in json.loads(said.out)["findings"] if finding["name"] == "job"]
    assert job["verdict"] == "missing"
    (sentence,) = said.err.strip().splitlines()
    assert sentence.startswith("tuner: no study could measure this command: ")
    assert reason in sentence
    assert remedy in sentence


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_trainer_costs_a_study_three_jobs(name: str, run: Run, tmp_path: Path) -> None:
    """An unknown error, which may depend on the tensor parallel degree of all jobs, costs six."""
    code, reason, remedy = BROKEN[name]
    words = ("--launcher", "local", "--budget", "8", "--study", "s", "--runs", str(tmp_path))
    said = run("optimize", "--command", shlex.join([sys.executable, "-c", code.replace("{", "{{")]), *words, *SMALL)
    assert said.code == 1
    trials = json.loads(said.out)["trials"]
    assert len(trials) == (6 if name == "an error of its own" else 3)
    assert remedy in said.err
    assert reason in said.err or reason in said.out


def test_a_program_that_does_not_exist_has_a_remedy_beside_its_empty_logs(run: Run, tmp_path: Path) -> None:
    missing = str(tmp_path / "torchrunx")
    remedy = r"No such file or directory: '/.*/torchrunx'\); correct what the message names; --command begins with "
    assert re.search(remedy, run("doctor", "--command", f"{missing} train.py", *SMALL).err)
    words = ("--launcher", "local", "--budget", "8", "--study", "s", "--runs", str(tmp_path))
    assert re.search(remedy, run("optimize", "--command", f"{missing} {{key}}", *words, *SMALL).err)


def test_a_model_without_a_command_is_refused(run: Run) -> None:
    assert "add --command" in run("doctor", "--model", "tiny").err
