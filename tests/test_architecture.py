"""Imports run strictly downward, each library has one owner, and the check that says so catches a plant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.architecture import FLOORS, violations
from tests.conftest import ROOT


def test_the_package_keeps_to_its_floors_and_owners() -> None:
    assert violations(ROOT / "tuner") == []


PLANTS = {
    "upward": ("domain.py", "from tuner.space.space import Space", "domain: floor 1 imports space of floor 2"),
    "upward, inside a function": ("axes.py", "def f():\n    import tuner.cli", "axes: floor 2 imports cli of floor 8"),
    "neighbour": ("planning.py", "from tuner import explaining", "planning: imports its neighbour explaining"),
    "out of order": ("errors.py", "import tuner.core.catalog", "errors: imports its neighbour catalog"),
    "subprocess": ("request.py", "import subprocess", "request: imports subprocess, which belongs to launch"),
    "optuna": ("space.py", "from optuna.study import Study", "space: imports optuna, which belongs to search"),
    "torch": ("planning.py", "import torch.nn", "planning: imports torch, which belongs to worker"),
    "numpy below": ("domain.py", "import numpy", "domain: imports numpy, which belongs to"),
    "unowned": ("catalog.py", "import requests", "catalog: imports requests, which has no owner"),
    "clock": ("rules/table.py", "import time", "rules/table: is pure and imports time"),
    "print": ("nearest.py", "print(1)", "nearest: calls print, which only __main__ and cli and worker may"),
    "raise": ("rules/shapes.py", "raise ValueError", "rules/shapes: raises in line"),
    "shell": ("request.py", "run('ls', shell=True)", "request: starts a shell in line"),
    "print on a high floor": (
        "explaining.py",
        "print(1)",
        "explaining: calls print, which only __main__ and cli and worker may",
    ),
    "stdout": (
        "space.py",
        "sys.stdout.write('x')",
        "space: calls sys.stdout.write, which only __main__ and cli and worker may",
    ),
    "exit": (
        "rules/table.py",
        "sys.exit(1)",
        "rules/table: calls sys.exit, which only __main__ and cli and worker may",
    ),
    "import by name": ("domain.py", "import importlib", "domain: imports importlib"),
    "import by builtin": ("columns.py", "__import__('torch')", "columns: calls __import__"),
    "numpy in the command line": ("cli/plan.py", "import numpy", "cli/plan: imports numpy, which belongs to"),
    "raise in a rule": ("rules/rule.py", "raise ValueError", "rules/rule: raises in line"),
    "pickle": ("catalog.py", "import pickle", "catalog: imports pickle"),
    "no floor": ("misc.py", "x = 1", "misc: stands on no floor; give misc one"),
    "worker": (
        "worker/train.py",
        "import tuner.space.rules",
        "worker/train: stands apart and imports rules of floor 2",
    ),
    "heavy package": (
        "__init__.py",
        "from tuner.space.space import Space",
        "__init__: the package itself imports space",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_violation_is_caught(plant: str, tmp_path: Path) -> None:
    file, line, complaint = PLANTS[plant]
    shutil.copytree(ROOT / "tuner", tmp_path / "tuner", ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "tuner" / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text((planted.read_text() if planted.exists() else "") + "\n" + line + "\n")
    found = violations(tmp_path / "tuner")
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_no_unit_stands_on_two_floors() -> None:
    every = [name for floor in FLOORS for name in floor]
    assert len(set(every)) == len(every)


def test_files_stay_short_enough_to_read() -> None:
    """A file that passes 400 lines wants splitting."""
    long = {
        path.name: lines
        for folder in ("tuner", "tests", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := path.read_text().count("\n")) > 400
    }
    assert long == {}
