"""Imports run strictly downward, each library has one owner, and the check catches planted violations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import LAYERS, complaints, layers, table, violations
from tests.conftest import ROOT


def test_the_package_keeps_to_its_layers_and_owners() -> None:
    assert violations(ROOT / "tuner") == []


PLANTS = {
    "upward": ("core/domain.py", "from tuner.space.space import Space", "core/domain: core may not import space"),
    "upward, inside a function": (
        "space/axes.py",
        "def f():\n    import tuner.cli",
        "space/axes: space may not import cli",
    ),
    "sideways": ("report/notes.py", "from tuner.export import api", "report/notes: report may not import export"),
    "cost model in a launcher": (
        "launch/slurm/queue.py",
        "from tuner.costmodel.time import time_terms",
        "launch/slurm/queue: launch may not import costmodel",
    ),
    "another back end": (
        "launch/slurm/queue.py",
        "from tuner.launch.local.launcher import LocalLauncher",
        "launch/slurm/queue: imports another launch back end, launch/local/launcher",
    ),
    "subprocess": ("space/build.py", "import subprocess", "space/build: imports subprocess, which belongs to launch"),
    "optuna": ("space/space.py", "from optuna.study import Study", "space/space: imports optuna, which belongs to"),
    "optuna in the study's loop": ("study/loop.py", "import optuna", "study/loop: imports optuna, which belongs to"),
    "torch": ("planning/plan.py", "import torch.nn", "planning/plan: imports torch, which belongs to worker"),
    "numpy below": ("core/domain.py", "import numpy", "core/domain: imports numpy, which belongs to"),
    "unowned": ("core/catalog.py", "import requests", "core/catalog: imports requests, which has no owner"),
    "clock": ("space/rules/ruleset.py", "import time", "space/rules/ruleset: is pure and imports time"),
    "print": ("space/nearest.py", "print(1)", "space/nearest: calls print, which only __main__ and cli and worker may"),
    "raise": ("space/rules/quantities.py", "raise ValueError", "space/rules/quantities: raises in line"),
    "raise in an estimate": ("costmodel/time.py", "raise ValueError", "costmodel/time: raises in line"),
    "shell": ("space/build.py", "run('ls', shell=True)", "space/build: starts a shell in line"),
    "stdout": ("study/loop.py", "sys.stdout.write('x')", "study/loop: calls sys.stdout.write, which only"),
    "exit": ("space/rules/ruleset.py", "sys.exit(1)", "space/rules/ruleset: calls sys.exit, which only"),
    "import by name": ("core/domain.py", "import importlib", "core/domain: imports importlib"),
    "import by builtin": ("core/columns.py", "__import__('torch')", "core/columns: calls __import__"),
    "numpy in the command line": (
        "cli/commands/plan.py",
        "import numpy",
        "cli/commands/plan: imports numpy, which belongs to",
    ),
    "pickle": ("core/catalog.py", "import pickle", "core/catalog: imports pickle"),
    "no layer": ("misc.py", "x = 1", "misc: is in no layer; add misc to LAYERS"),
    "from a worker": (
        "worker/train.py",
        "import tuner.space.rules",
        "worker/train: worker may not import space",
    ),
    "of the worker": ("launch/program.py", "import tuner.worker.mesh", "launch/program: imports the worker, which"),
    "heavy package": ("__init__.py", "from tuner.space.space import Space", "__init__: the package itself imports"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_violation_is_caught(plant: str) -> None:
    file, line, complaint = PLANTS[plant]
    package = ROOT / "tuner"
    modules = {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")}
    home = package / file
    found = complaints(file.removesuffix(".py"), f"{home.read_text() if home.exists() else ''}\n{line}\n", modules)
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_there_are_at_most_ten_layers_and_each_package_is_in_one() -> None:
    every = [name for layer in layers() for name in layer]
    assert sorted(every) == sorted(LAYERS)
    assert len(layers()) <= 10


def test_the_table_in_contributing_is_generated() -> None:
    """CONTRIBUTING.md contains the layer table printed by `python -m tests.architecture`."""
    assert table() in (ROOT / "CONTRIBUTING.md").read_text()


def public_classes(package: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path.relative_to(package).as_posix()


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for name, home in public_classes(ROOT / "tuner"):
        homes.setdefault(name, []).append(home)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_files_stay_short_enough_to_read() -> None:
    """No Python file has more than 400 lines."""
    long = {
        path.name: lines
        for folder in ("tuner", "tests", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := path.read_text().count("\n")) > 400
    }
    assert long == {}
