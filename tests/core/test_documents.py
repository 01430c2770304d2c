"""Workloads as JSON: they are read as they were written, and an older one continues."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from tests.mixtures import QWEN3_30B
from tests.tables.test_writing import STACK
from tuner.core.documents import workload_document, workload_of
from tuner.core.domain import Ramp, Workload
from tuner.core.stack import Stack
from tuner.study.store.settings_difference import difference_of

WORKLOAD = Workload(model=QWEN3_30B, global_batch=256, precision="fp8", ramp=Ramp(start=8, increment=8))


@pytest.mark.parametrize("name", [None, *(each.name for each in fields(Stack))])
def test_a_workload_is_read_as_it_was_written(name: str | None) -> None:
    whole = STACK if name is None else replace(Stack(), **{name: getattr(STACK, name)})
    workload = replace(WORKLOAD, stack=whole)
    assert workload_of(json.loads(json.dumps(workload_document(workload)))) == workload


def test_a_study_continues_that_began_before_a_setting_of_the_software_was_recorded() -> None:
    now = workload_document(replace(WORKLOAD, stack=Stack(quantized_weights=True)))
    before = {**now, "stack": {name: value for name, value in now["stack"].items() if name != "bf16_layers"}}
    assert difference_of({"workload": before}, {"workload": now}) == ""
    kept = {**now, "stack": {**now["stack"], "bf16_layers": [0, 4]}}
    assert difference_of({"workload": before}, {"workload": kept}) == "workload.stack.bf16_layers none, not 0,4"


def test_a_study_continues_that_recorded_a_setting_as_unknown_that_no_longer_exists() -> None:
    now = workload_document(replace(WORKLOAD, stack=Stack(quantized_weights=True)))
    before = {**now, "stack": {**now["stack"], "recompute_modules": None, "moe_overlap": None}}
    assert difference_of({"workload": before}, {"workload": now}) == ""
    assert workload_of(before) == workload_of(now)
