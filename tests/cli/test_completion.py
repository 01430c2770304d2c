"""Shell completion of commands, flags, names and topology keys, set up as in docs/install.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.conftest import ROOT
from tuner.cli import app

BASH = shutil.which("bash")


def _printed(environment: dict[str, str]) -> str:
    completed = subprocess.run(
        [sys.executable, "-m", "tuner"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_that_the_install_page_names(shell: str) -> None:
    assert "_tuner_completion" in _printed({"_TUNER_COMPLETE": f"{shell}_source"})
    assert f"_TUNER_COMPLETE={shell}_source tuner" in (ROOT / "docs/install.md").read_text()


def test_commands_are_completed() -> None:
    printed = _printed({"_TUNER_COMPLETE": "bash_complete", "COMP_WORDS": "tuner ", "COMP_CWORD": "1"})
    assert {line.split(",")[1] for line in printed.split()} == set(app.commands)


def test_flags_are_completed() -> None:
    printed = _printed({"_TUNER_COMPLETE": "bash_complete", "COMP_WORDS": "tuner report --o", "COMP_CWORD": "2"})
    assert printed.split() == ["plain,--output"]


def _completions(*words: str) -> list[tuple[str, str]]:
    """Return kind and value of the completions of the last word."""
    args, incomplete = list(words[:-1]), words[-1]
    found = ShellComplete(app, {}, "tuner", "_TUNER_COMPLETE").get_completions(args, incomplete)
    return [(item.type, item.value) for item in found]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("plan", "--model", "llama-3-70"), ["llama-3-70b"]),
        (("plan", "--gpu", "H100-80GB-S"), ["H100-80GB-SXM"]),
        (("optimize", "--cluster", "bloom-"), ["bloom-48"]),
        (("export", "any", "--format", "kub"), ["kubernetes"]),
        (("plan", "--set", "micro"), ["micro_batch="]),
        (("plan", "--allow", "tp-"), ["tp-in-nvlink-domain"]),
        (("catalog", "g"), ["gpus"]),
    ],
)
def test_names_are_completed(words: tuple[str, ...], offered: list[str]) -> None:
    assert _completions(*words) == [("plain", name) for name in offered]


def test_a_model_that_matches_no_preset_is_completed_as_a_file() -> None:
    assert _completions("plan", "--model", "./my") == [("file", "./my")]


def test_studies_are_completed_from_the_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second", "no-study"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / "runs" / name / "study.db").touch()
    monkeypatch.chdir(tmp_path)
    assert _completions("report", "") == [("plain", "first"), ("plain", "second")]
    assert _completions("export", "--runs", str(tmp_path / "runs"), "s") == [("plain", "second")]
    assert _completions("report", "--runs", str(tmp_path), "") == []


def test_keys_are_completed_for_the_space_of_the_command_line() -> None:
    offered = _completions("explain", "--model", "gpt-1.3b", "--nodes", "1", "--set", "tp=2", "tp2-pp1-")
    assert offered
    assert all(kind == "plain" and key.startswith("tp2-pp1-") for kind, key in offered)
    assert _completions("explain", "--model", "no-such-model", "tp2") == []


@pytest.mark.skipif(BASH is None, reason="no bash on the path")
def test_bash_completes_with_the_documented_line(tmp_path: Path) -> None:
    """A real bash runs the line of the page."""
    (line,) = re.findall(r"^eval .*bash_source.*$", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    program = tmp_path / "tuner"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tuner "$@"\n')
    program.chmod(0o755)
    script = f"""
{line.split("#")[0]}
COMP_WORDS=(tuner exp) COMP_CWORD=1
_tuner_completion tuner exp tuner
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    completed = subprocess.run(
        [BASH or "bash", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.stdout.split() == ["explain", "export"], completed.stderr
