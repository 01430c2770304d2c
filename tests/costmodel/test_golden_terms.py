"""The cost model's terms, compared with a golden table; `python -m tests.golden_terms` rewrites it."""

from __future__ import annotations

import csv

import pytest

from tests.golden_terms import CASES, GOLDEN, HEADER, rows
from tuner.core.columns import Columns
from tuner.core.domain import PARTITION
from tuner.core.offload import OFFLOAD
from tuner.core.recompute import GRANULARITIES


def test_every_term_is_the_one_in_the_golden_table() -> None:
    """All terms equal the golden table to twelve digits; after an intended change, regenerate it and review it."""
    with GOLDEN.open(newline="") as file:
        header, *lines = csv.reader(file)
    assert tuple(header) == HEADER
    golden = {tuple(words): float(value) for *words, value in lines}
    computed = {tuple(words): value for *words, value in rows()}
    assert list(computed) == list(golden)
    changed = [name for name, value in computed.items() if value != pytest.approx(golden[name], rel=1e-12, abs=0)]
    assert not changed, f"{len(changed)} terms changed, such as {changed[:5]}; run python -m tests.golden_terms"


def test_the_golden_table_exercises_every_axis() -> None:
    """The golden cases contain several values of each degree and all choices, and each term is positive somewhere."""
    columns = [case.columns() for case in CASES]

    def taken(name: str) -> set[int]:
        return {int(getattr(one, name)[0]) for one in columns}

    for degree in ("hsdp", "tp", "pp", "vpp", "cp", "dp", "micro_batch", "nodes"):
        assert len(taken(degree)) >= 3, degree
        assert 1 in taken(degree), degree
    assert taken("zero") == {0, 1, 2, 3}
    assert taken("granularity") == set(range(len(GRANULARITIES)))
    assert taken("partition") == set(range(len(PARTITION)))
    assert taken("sequence_parallel") == {0, 1}
    assert taken("offload") == set(range(len(OFFLOAD)))
    workloads = [one.workload for one in columns]
    assert {workload.precision for workload in workloads} == {"fp32", "fp16", "bf16", "fp8", "fp4"}
    assert {workload.attention for workload in workloads} == {"eager", "fused", "flash1", "flash2"}
    assert {workload.optimizer for workload in workloads} == {"adam", "adam-bf16", "adam8bit", "adafactor", "sgd"}
    for flag in ("plain_layers", "parallel_loss", "fused_norms"):
        assert {getattr(workload, flag) for workload in workloads} == {False, True}, flag
    for flag in ("gated_mlp", "tied_embeddings"):
        assert {getattr(workload.model, flag) for workload in workloads} == {False, True}, flag
    assert {workload.model.kv_heads == workload.model.heads for workload in workloads} == {False, True}
    assert len({one.cluster.gpu.name for one in columns}) >= 6
    found = list(rows())
    unused = {(quantity, term) for *_, quantity, term, _ in found}
    unused -= {(quantity, term) for *_, quantity, term, value in found if value > 0}
    assert not unused


def test_every_case_stays_a_single_row() -> None:
    """The names of the golden cases are unique."""
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(isinstance(case.columns(), Columns) for case in CASES)
