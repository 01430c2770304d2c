"""Every constant of the cost model has a record."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from tuner.costmodel import (
    calibration_constants,
    constants,
    delta_constants,
    expert_constants,
    offload_constants,
    stack_constants,
)
from tuner.costmodel.constants import ConstantRecords

UNIT = re.compile(
    r"(?:share|bytes|seconds|elements|passes|rows|copies|doublings|streams|candidates|runs|ranks|heads|GPUs?|SMs|FLOP/s"
    r"|FLOP per joule|watts|(?:mean and |relative )?standard deviations?|probability|logarithm|ratio|relative to)\b"
)
"""Matches the start of a unit, and of no source."""
MODULES = (
    "flops",
    "kernels",
    "layer",
    "links",
    "memory",
    "memory_calibration",
    "offload",
    "residual_features",
    "stages",
    "time",
)


@pytest.mark.parametrize(
    "package",
    [constants, stack_constants, expert_constants, delta_constants, offload_constants, calibration_constants],
    ids=["costmodel", "stacks", "experts", "delta net", "offload", "calibration"],
)
def test_every_constant_has_a_unit_and_a_source(package: ModuleType) -> None:
    check(package)


def check(package: ModuleType) -> None:
    """Check that every constant has a record with its value, a unit, a source, and an interval that contains it."""
    names = {
        name
        for name in vars(package)
        if name.isupper() and name not in ("RECORDS", "FITTED", "FITTED_TO_ENOKI", "LIKELY", "T")
    }
    records: ConstantRecords = package.RECORDS
    assert names == records.keys()
    for name, record in records.items():
        assert record.value is getattr(package, name), name
        assert UNIT.match(record.unit), name
        assert record.source, name
        assert not UNIT.match(record.source), name
        if record.interval is not None:
            assert record.interval[0] <= record.value <= record.interval[1], name


def test_no_module_of_the_model_keeps_a_number_of_its_own() -> None:
    """The cost model's modules define no numbers of their own; fitted and published ones are in `constants.py`."""
    folder = Path(constants.__file__).parent
    for module in MODULES:
        for node in ast.parse((folder / f"{module}.py").read_text()).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = node.value
                number = isinstance(value, ast.Constant) and isinstance(value.value, float)
                assert not number or node.target.id in ALGORITHMS, f"{module}.{node.target.id}"


ALGORITHMS = frozenset({"HUBER", "IGNORED_FROM"})
"""Numbers that control an algorithm and do not describe a machine."""
