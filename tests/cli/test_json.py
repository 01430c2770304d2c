"""`--json`: stdout is one complete document or empty, whatever the exit code; errors are text on stderr."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.found_studies import BLOOM, study_in
from tuner.cli import app

LOGS = ROOT / "tests/data/logs"
KEY = "tp8-pp12-dp4-mbs2-z1"
SPACE = ("--nodes", "48", "--set", "tp=8", "--set", "pp=12", "--set", "heads=64")

DONE = {
    "audit": (str(BLOOM),),
    "calibrate": (str(BLOOM), "-o", "site.toml"),
    "catalog": ("gpus",),
    "compare": ("--model", "gpt-1.3b", "--gpu", "A100-80GB-SXM", "--nodes", "1"),
    "dashboard": ("bloom-48", "--check"),
    "doctor": (),
    "evaluate": (str(BLOOM),),
    "explain": (KEY, "--nodes", "48"),
    "export": ("bloom-48", "-o", "out"),
    "flops": (KEY, "--nodes", "48", "--seconds", "100"),
    "list": (),
    "max-batch": ("--model", "gpt-1.3b", "--gpu", "A100-80GB-SXM", "--nodes", "1"),
    "measure": (str(LOGS / "megatron-lm.log"),),
    "memory": ("--frozen", "1B", "--gpu", "A100-80GB-SXM"),
    "optimize": (*SPACE, "--budget", "2", "--study", "new"),
    "plan": SPACE,
    "recover": ("lost",),
    "report": ("bloom-48",),
    "rules": (),
    "stop": ("bloom-48",),
}
"""Arguments of every command with which it succeeds."""

REFUSED = {
    "audit": (("missing.csv",), 2),
    "calibrate": (("missing.csv",), 2),
    "catalog": (("planets",), 2),
    "compare": (("--model", "missing"), 2),
    "dashboard": (("missing", "--check"), 2),
    "doctor": (("--output", "site.toml"), 2),
    "evaluate": (("missing.csv",), 2),
    "explain": (("tp8-xyz",), 2),
    "export": (("bloom-48", "-o", "out", "--format", "missing"), 2),
    "flops": (("--model", "missing"), 2),
    "list": (("--storage", "sqlite:///missing.db"), 2),
    "max-batch": (("--model", "missing"), 2),
    "measure": (("missing.log",), 2),
    "memory": (("--frozen", "missing"), 2),
    "optimize": (("--set", "tp=3", "--study", "none"), 1),
    "plan": (("--set", "tp=3"), 1),
    "recover": (("missing",), 2),
    "report": (("missing",), 2),
    "rules": (("more",), 2),
    "stop": (("missing",), 2),
}
"""Arguments of every command with which it fails, and the exit code."""

UNUSABLE = {
    "audit": ("audit", "wrong.csv", "--strict"),
    "max-batch": ("max-batch", "--model", "bloom-176b", "--gpu", "A100-80GB-SXM", "--nodes", "1"),
    "measure": ("measure", str(LOGS / "failure-oom.log")),
    "memory": ("memory", "--frozen", "999B", "--gpu", "A100-80GB-SXM"),
}
"""Commands whose answer is that there is no usable result."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder with a study, and with one whose database is lost."""
    (tmp_path / "runs").mkdir()
    shutil.copytree(study_in(tmp_path / "runs") / "bloom-48", tmp_path / "runs/lost")
    (tmp_path / "runs/lost/study.db").unlink()
    (tmp_path / "wrong.csv").write_text("gpu,nodes,gpus_per_node,tp,pp,dp\nA100-80GB-SXM,1,8,2,2,4\n")
    monkeypatch.chdir(tmp_path)


def test_every_command_has_json_and_is_tried() -> None:
    commands = {name for name, command in app.commands.items() if any("--json" in one.opts for one in command.params)}
    assert commands == set(app.commands) == set(DONE) == set(REFUSED)


@pytest.mark.parametrize("command", DONE)
def test_a_command_that_succeeds_prints_one_document(command: str, run: Run) -> None:
    said = run(command, *DONE[command], "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["schema"].startswith("tuner/")


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_that_fails_prints_one_sentence_and_no_document(command: str, run: Run) -> None:
    arguments, code = REFUSED[command]
    for given, expected in ((arguments, code), (("--no-such-option",), 2)):
        said = run(command, *given, "--json")
        assert (said.code, said.out) == (expected, ""), said.err
        assert said.err.splitlines()[-1].startswith("tuner: ")


@pytest.mark.parametrize("command", UNUSABLE)
def test_a_command_without_a_usable_result_prints_a_document_and_exits_with_1(command: str, run: Run) -> None:
    said = run(*UNUSABLE[command], "--json")
    assert said.code == 1, said.err
    assert json.loads(said.out)["schema"].startswith(f"tuner/{command}/")
    assert said.err.splitlines()[-1].startswith("tuner: ")
