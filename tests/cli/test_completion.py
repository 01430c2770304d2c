"""A shell completes commands and flags of `tuner`, by the lines that docs/install.md shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.cli import app

BASH = shutil.which("bash")


def _told(environment: dict[str, str]) -> str:
    said = subprocess.run(
        [sys.executable, "-m", "tuner"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell_and_the_install_page_names_it(shell: str) -> None:
    assert "_tuner_completion" in _told({"_TUNER_COMPLETE": f"{shell}_source"})
    assert f"_TUNER_COMPLETE={shell}_source tuner" in (ROOT / "docs/install.md").read_text()


def test_commands_are_completed() -> None:
    told = _told({"_TUNER_COMPLETE": "bash_complete", "COMP_WORDS": "tuner ", "COMP_CWORD": "1"})
    assert {line.split(",")[1] for line in told.split()} == set(app.commands)


def test_flags_are_completed() -> None:
    told = _told({"_TUNER_COMPLETE": "bash_complete", "COMP_WORDS": "tuner report --o", "COMP_CWORD": "2"})
    assert told.split() == ["plain,--output"]


@pytest.mark.skipif(BASH is None, reason="no bash on the path")
def test_bash_itself_completes(tmp_path: Path) -> None:
    """With the very line of the page, in a shell of its own."""
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
    said = subprocess.run(
        [BASH or "bash", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.split() == ["explain", "export"], said.stderr
