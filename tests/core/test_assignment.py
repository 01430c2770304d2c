"""An assignment is read as it was written, from wherever its folder lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers import ONE, WORKLOAD
from tuner.core import catalog
from tuner.core.assignment import Assignment
from tuner.core.domain import Ramp
from tuner.core.errors import InputError
from tuner.core.shape import Shape

ASSIGNMENT = Assignment(
    workload=replace(WORKLOAD, ramp=Ramp(start=4, increment=4)),
    topology=replace(ONE, heads=8, shape=Shape(hidden=128, layers=2)),
    gpus_per_node=1,
    ds_config="ds_config.json",
    result="out/result.json",
)


def test_an_assignment_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Its relative paths come out below its own folder, absolute ones as they are."""
    ASSIGNMENT.write(tmp_path / "job.json")
    read = Assignment.read(tmp_path / "job.json")
    assert read == replace(
        ASSIGNMENT, ds_config=str(tmp_path / "ds_config.json"), result=str(tmp_path / "out/result.json")
    )
    read.write(tmp_path / "job.json")
    assert Assignment.read(tmp_path / "job.json") == read


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b", "llama-3-405b"])
def test_every_part_of_a_model_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    assignment = replace(ASSIGNMENT, workload=replace(ASSIGNMENT.workload, model=catalog.model(name)))
    assignment.write(tmp_path / "job.json")
    assert Assignment.read(tmp_path / "job.json").workload.model == catalog.model(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"iterations": 0}, "iterations must be a whole number of at least 1, not 0"),
        ({"iterations": True}, "iterations must be a whole number of at least 1, not True"),
        ({"seed": "1"}, "seed must be a whole number of at least 0, not '1'"),
        ({"timeout": float("inf")}, "timeout must be finite and positive, not inf"),
        ({"result": 3}, "result must be a path, not 3"),
        ({"speed": 3}, "assignment has no field speed"),
        ({"topology": {"tp": 1}}, "topology lacks nodes, pp, dp and micro_batch"),
        ({"batches": [3, 8]}, "batches must have multiples of micro_batch x dp = 4, not 3"),
        ({"batches": [4, 12]}, "the last of an assignment's batches must be the workload's, 8, not 12"),
        ({"workload": []}, "workload must be an object, not a list of 0"),
    ],
)
def test_a_field_that_cannot_be_meant_is_refused_by_name(change: dict[str, object], said: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    ASSIGNMENT.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as caught:
        Assignment.read(path)
    assert said in str(caught.value)
