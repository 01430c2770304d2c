"""What a run must deliver: its time within the interval, its memory within 5%, and the job that was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tuner.audit.delivery import SCHEMA, ExpectedResult, delivered, mismatch, read_expected
from tuner.audit.subject import Subject
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.logs import LogRun
from tuner.logs.records import PeakMemory
from tuner.space.build import space_for

EXPECTED = ExpectedResult(
    key="tp2-pp1-dp4-mbs1-z1",
    source="measured",
    sec_per_iter=10.0,
    low=9.0,
    high=12.0,
    memory_gib=40.0,
    days=20.0,
    values={"tp": 2, "pp": 1, "cp": 1, "vpp": 1, "dp": 4, "zero": 1, "recompute": "full", "global_batch": 64},
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
    compared = "as expected" if seconds == 10 else "instead of 20.0 days"
    assert f"training takes {2 * seconds:.1f} days{',' * (seconds == 10)} {compared}." in found.sentences[0]
    assert "(measured, 80% interval 9.00 to 12.00)" in found.sentences[0]
    if memory is None:
        assert found.memory_ratio is None
        assert len(found.sentences) == 1
        return
    assert found.memory_ratio == pytest.approx(memory / 40)
    verdict = "within expectation" if memory <= 42 else "above expectation"
    assert found.sentences[1] == f"Memory {verdict}: {memory:.1f} GiB measured, 40.0 GiB expected."


def ran(*, by_log: bool = False, batch: int = 64, **axes: Any) -> Subject:
    """The subject of a log: the expected job with other axes."""
    space = space_for(global_batch=batch)
    topology = Topology(**{"nodes": 1, "tp": 2, "pp": 1, "dp": 4, "micro_batch": 1, "zero": 1, **axes})
    return Subject(workload=space.workload, topology=topology, cluster=space.cluster, by_log=by_log)


def printing(**arguments: str) -> LogRun:
    """A run whose log prints these arguments."""
    return LogRun(iterations=(), source=None, line=0, arguments=arguments, peak=PeakMemory(), failure=None)


SILENT = printing()


def test_another_job_is_named_axis_by_axis_as_far_as_log_or_key_state_it() -> None:
    assert mismatch(EXPECTED, SILENT, ran(), 64) == mismatch(EXPECTED, SILENT, None, None) == ""
    other = ran(tp=1, pp=2, micro_batch=8)
    assert (
        mismatch(EXPECTED, SILENT, other, 32)
        == "tp 1 instead of 2, pp 2 instead of 1 and global_batch 32 instead of 64"
    )
    assert mismatch(EXPECTED, SILENT, ran(batch=128), None) == "global_batch 128 instead of 64"
    stated = printing(tensor_model_parallel_size="1", global_batch_size="64")
    assert mismatch(EXPECTED, stated, ran(), 64) == "tp 1 instead of 2"


def test_only_a_key_states_the_recomputation() -> None:
    assert mismatch(EXPECTED, SILENT, ran(recompute="none"), 64) == "recompute none instead of full"
    assert mismatch(EXPECTED, SILENT, ran(recompute="none", by_log=True), 64) == ""


def test_measure_says_nothing_of_the_speed_of_another_job(run: Run, tmp_path: Path) -> None:
    topology = {"tp": 8, "pp": 12, "dp": 4, "global_batch": 1024}
    document = {"schema": SCHEMA, "key": "tp8-pp12-dp4-mbs1-z1", "topology": topology, "expected": FIGURES}
    (tmp_path / "topology.json").write_text(json.dumps(document))
    said = run("measure", str(ROOT / "docs/example.log"), "--expect", str(tmp_path / "topology.json"))
    assert said.code == 1
    assert "is from a job other than tp8-pp12-dp4-mbs1-z1: global_batch 2048 instead of 1024." in said.err
    assert "than expected" not in said.out


DENSE = {"offload": "none", "hsdp": 1}
"""What an export leaves out of the topology of a dense model."""
FIGURES = {"source": "simulated", "sec_per_iter": 2, "sec_per_iter_low": 1.5, "sec_per_iter_high": 2.5, "days": 3}


def test_expected_figures_are_read_and_the_memory_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    document: dict[str, Any] = {"schema": SCHEMA, "key": "k", "topology": {"tp": 2}, "expected": FIGURES}
    path.write_text(json.dumps(document))
    assert read_expected(path) == ExpectedResult(
        key="k",
        source="SIMULATED",
        sec_per_iter=2,
        low=1.5,
        high=2.5,
        memory_gib=None,
        days=3,
        values={**DENSE, "tp": 2},
    )
    path.write_text(json.dumps({**document, "topology": None, "expected": {**FIGURES, "memory_gib": 7.5}}))
    assert (read_expected(path).memory_gib, read_expected(path).values) == (7.5, {})


def test_an_extrapolated_expectation_is_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    document = {"schema": SCHEMA, "key": "k", "topology": {}, "expected": {**FIGURES, "extrapolated": True}}
    path.write_text(json.dumps(document))
    (sentence,) = delivered(read_expected(path), 2.0, None).sentences
    assert "2.00 s (SIMULATED, extrapolated, 80% interval" in sentence
    assert "extrapolated" not in delivered(EXPECTED, 10.0, None).sentences[0]


@pytest.mark.parametrize("name", ["sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "days"])
@pytest.mark.parametrize("value", [0, -1, 1e30, True, "2", None])
def test_a_figure_that_is_no_positive_number_is_refused(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"schema": SCHEMA, "key": "k", "expected": {**FIGURES, name: value}}))
    with pytest.raises(InputError, match="lacks the expected performance; export the study again"):
        read_expected(path)


LLAMA = ROOT / "tests/data/golden/launch/torchtitan/topology.json"
"""An export of llama-3.1-8b at tp2-pp4-dp4-mbs1-z2-vpp2-sp and a batch of 512, on 32 A100."""


@pytest.fixture
def steps(tmp_path: Path) -> str:
    """A log of the trainer's own format, which states no model, topology or batch."""
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {number} loss 3.0 time 40.0 s\n" for number in range(1, 6)))
    return str(path)


def measured(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    said = run("measure", *arguments, "--json")
    assert said.code == code
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_an_export_describes_the_job_of_a_log_that_does_not(run: Run, steps: str) -> None:
    """Key, model, batch and cluster are the export's, and the command line replaces them."""
    found = measured(run, steps, "--expect", str(LLAMA))
    described = ("--model", "llama-3.1-8b", "--global-batch", "512", "--gpu", "A100-80GB-SXM", "--nodes", "4")
    alone = measured(run, steps, "tp2-pp4-dp4-mbs1-z2-vpp2-sp", *described)
    assert found["key"] == alone["key"] == "tp2-pp4-dp4-mbs1-z2-vpp2-sp"
    assert found["measurement"] == alone["measurement"]
    assert found["iterations"][1]["global_batch"] == 512
    assert found["expected"]["mismatch"] is None
    said = run("measure", steps, "--expect", str(LLAMA))
    assert said.out.startswith(f"{steps}: 5 iterations, llama-3.1-8b, tp2-pp4-dp4-mbs1-z2-vpp2-sp\n")
    assert "than expected: " in said.out
    halved = measured(run, steps, "--expect", str(LLAMA), "--global-batch", "256", code=1)
    assert halved["measurement"]["tflops"] == pytest.approx(found["measurement"]["tflops"] / 2)
    assert halved["expected"]["mismatch"] == "global_batch 256 instead of 512"


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (("tp4-pp4-dp2-mbs1-z2-vpp2-sp",), "tp 4 instead of 2 and dp 2 instead of 4"),
        (("tp2-pp4-dp4-mbs1-z2-vpp2-sp-rnone",), "recompute none instead of full"),
        (("tp2-pp4-dp4-mbs1-z2-vpp2-sp-gbs256",), "global_batch 256 instead of 512"),
        (("--model", "qwen3-8b"), "layers 36 instead of 32"),
    ],
)
def test_a_key_or_model_other_than_the_exports_gets_no_verdict(
    run: Run, steps: str, arguments: tuple[str, ...], difference: str
) -> None:
    said = run("measure", steps, *arguments, "--expect", str(LLAMA))
    assert said.code == 1
    assert f"{steps} is from a job other than tp2-pp4-dp4-mbs1-z2-vpp2-sp: {difference}" in said.err
    assert "than expected: " not in said.out


@pytest.mark.parametrize(
    "part",
    [{"model": 3}, {"model": {"identity": {"layers": 2}}}, {"model": {"identity": [], "name": "m"}}, {"cluster": [8]}],
)
def test_an_export_whose_model_cannot_be_read_is_refused(part: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({**json.loads(LLAMA.read_text()), **part}))
    with pytest.raises(InputError, match="a model or cluster that cannot be read"):
        read_expected(path)
