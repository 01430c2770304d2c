"""What a run must deliver: its time within the interval, its memory within 5%, and the job that was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tuner.audit.delivery import SCHEMA, ExpectedResult, delivered, mismatch, read_expected
from tuner.core.domain import Topology
from tuner.core.errors import InputError

EXPECTED = ExpectedResult(
    key="tp2-pp1-dp4-mbs1-z1",
    source="measured",
    sec_per_iter=10.0,
    low=9.0,
    high=12.0,
    memory_gib=40.0,
    days=20.0,
    topology={"tp": 2, "pp": 1, "cp": 1, "vpp": 1, "dp": 4, "zero": 1, "global_batch": 64},
)


@pytest.mark.parametrize(
    ("seconds", "memory", "difference", "ok", "words"),
    [
        (12.0, 42.0, "", True, "As fast as expected: 12.00 s per iteration, 20.0% more than 10.00 s"),
        (12.001, 40.0, "", False, "Slower than expected: 12.00 s per iteration, 20.0% more than 10.00 s"),
        (9.0, 40.0, "", True, "As fast as expected: 9.00 s per iteration, 10.0% less than 10.00 s"),
        (8.0, None, "", True, "Faster than expected: 8.00 s per iteration, 20.0% less than 10.00 s"),
        (10.0, 42.1, "", False, "As fast as expected: 10.00 s per iteration, 0.0% more than 10.00 s"),
        (10.0, 40.0, "tp 4 instead of 2", False, "As fast as expected"),
    ],
)
def test_a_run_delivers_within_the_interval_and_five_percent_of_memory(
    seconds: float, memory: float | None, difference: str, ok: bool, words: str
) -> None:
    found = delivered(EXPECTED, seconds, memory, difference=difference)
    assert (found.delivered, found.mismatch) == (ok, difference)
    assert found.sec_ratio == pytest.approx(seconds / 10)
    assert found.days == pytest.approx(2 * seconds)
    assert found.sentences[0].startswith(words)
    assert f"training takes {2 * seconds:.1f} days instead of 20.0 days." in found.sentences[0]
    assert "(measured, 80% interval 9.00 to 12.00)" in found.sentences[0]
    if memory is None:
        assert found.memory_ratio is None
        assert len(found.sentences) == 1
        return
    assert found.memory_ratio == pytest.approx(memory / 40)
    verdict = "within expectation" if memory <= 42 else "above expectation"
    assert found.sentences[1] == f"Memory {verdict}: {memory:.1f} GiB measured, 40.0 GiB expected."


def test_another_job_is_named_axis_by_axis_as_far_as_the_log_tells() -> None:
    same = Topology(nodes=1, tp=2, pp=1, dp=4, micro_batch=1, zero=1)
    assert mismatch(EXPECTED, same, 64) == mismatch(EXPECTED, None, None) == mismatch(EXPECTED, same, None) == ""
    other = Topology(nodes=1, tp=1, pp=2, dp=4, micro_batch=8, zero=1)
    assert mismatch(EXPECTED, other, 32) == "tp 1 instead of 2, pp 2 instead of 1 and global_batch 32 instead of 64"


def test_measure_says_nothing_of_the_speed_of_another_job(run: Run, tmp_path: Path) -> None:
    topology = {"tp": 8, "pp": 12, "dp": 4, "global_batch": 1024}
    document = {"schema": SCHEMA, "key": "tp8-pp12-dp4-mbs1-z1", "topology": topology, "expected": FIGURES}
    (tmp_path / "topology.json").write_text(json.dumps(document))
    said = run("measure", str(ROOT / "docs/example.log"), "--expect", str(tmp_path / "topology.json"))
    assert said.code == 1
    assert "is from a job other than tp8-pp12-dp4-mbs1-z1: global_batch 2048 instead of 1024." in said.err
    assert "than expected" not in said.out


FIGURES = {"source": "simulated", "sec_per_iter": 2, "sec_per_iter_low": 1.5, "sec_per_iter_high": 2.5, "days": 3}


def test_expected_figures_are_read_and_the_memory_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    document: dict[str, Any] = {"schema": SCHEMA, "key": "k", "topology": {"tp": 2}, "expected": FIGURES}
    path.write_text(json.dumps(document))
    assert read_expected(path) == ExpectedResult(
        key="k", source="SIMULATED", sec_per_iter=2, low=1.5, high=2.5, memory_gib=None, days=3, topology={"tp": 2}
    )
    path.write_text(json.dumps({**document, "topology": None, "expected": {**FIGURES, "memory_gib": 7.5}}))
    assert (read_expected(path).memory_gib, read_expected(path).topology) == (7.5, {})


@pytest.mark.parametrize("name", ["sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "days"])
@pytest.mark.parametrize("value", [0, -1, 1e30, True, "2", None])
def test_a_figure_that_is_no_positive_number_is_refused(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"schema": SCHEMA, "key": "k", "expected": {**FIGURES, name: value}}))
    with pytest.raises(InputError, match="lacks the expected performance; export the study again"):
        read_expected(path)
