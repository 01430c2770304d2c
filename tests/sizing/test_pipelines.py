"""Batches of a pipeline: its memory and time are those of a whole step, as `tuner explain` estimates them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.conftest import Run
from tests.workers import ONE, WORKLOAD
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.costmodel.site_file import cost_model
from tuner.sizing.compare import reasons
from tuner.sizing.fit import BatchResult, pressures
from tuner.sizing.jobs import jobs_of
from tuner.sizing.max_batch import throughput_of
from tuner.sizing.options import options
from tuner.sizing.probes import pipeline_steps

JOB = ("--model", "llama-3-70b", "--gpu", "H100-80GB-SXM", "--nodes", "16", "--framework", "megatron-core")
AXES = ("tp=8", "zero=1", "sequence_parallel=true", "recompute=none")
SETTINGS = tuple(word for axis in AXES for word in ("--set", axis))


@pytest.mark.parametrize(("pp", "vpp", "global_batch"), [(4, 1, "1024"), (4, 2, "1024"), (2, 1, "1024"), (4, 1, "12")])
def test_a_batch_of_a_pipeline_has_the_memory_and_days_that_explain_prints(
    pp: int, vpp: int, global_batch: str, run: Run
) -> None:
    """Also where the global batch has fewer microbatches than stages: 12 sequences are 3 of dp = 4."""
    step = (*JOB, "--global-batch", global_batch)
    axes = (*AXES[:-1], "recompute=full", f"pp={pp}", f"vpp={vpp}")
    said = run("max-batch", *step, *(word for axis in axes for word in ("--set", axis)), "--most", "1", "--json")
    found = json.loads(said.out)
    (attempt,), key = found["attempts"], found["topology"]
    explained = json.loads(run("explain", key, *step, "--json").out)["estimate"]
    assert attempt["peak_memory_gib"] == pytest.approx(explained["memory_gib"])
    (batch,) = found["worth"]
    assert batch["days"] == pytest.approx(explained["days"])
    assert attempt["sec_per_iter"] * batch["acc_steps"] == pytest.approx(explained["sec_per_iter"])


def test_a_batch_fits_only_with_a_full_pipeline_in_memory() -> None:
    """At micro batch 4, one or two microbatches fit, but the four that a pipeline of four stages has do not."""
    described: Any = {"model": "llama-3-70b", "gpu": "H100-80GB-SXM", "nodes": 16, "framework": "megatron-core"}
    found = tuner.max_batch(**described, settings=(*AXES, "pp=4"), global_batch=1024, step="x2", most=4)
    assert (found.found.largest, found.found.smallest_failed) == (2, 4)
    compared = tuner.compare(**described, settings=(*AXES, "pp=2,4"), global_batch=1024, most=4)
    four = compared.models[0][1]
    assert (four.label, four.answer.found.largest) == ("pp=4", 2)
    assert four.best.days == pytest.approx(found.worth[-1].days)


@pytest.mark.parametrize(
    ("pp", "vpp", "micro_batch", "global_batch", "steps"),
    [
        (1, 1, 2, 64, None),
        (4, 1, 2, 64, 8),
        (4, 1, 2, 65, 9),
        (4, 1, 64, 64, 1),
        (4, 1, 2, None, 4),
        (4, 2, 2, None, 8),
        (4, 2, 2, 64, 8),
        (4, 2, 2, 72, 8),
        (4, 2, 2, 8, 4),
    ],
)
def test_a_pipeline_runs_the_global_batch_or_as_much_as_fills_it(
    pp: int, vpp: int, micro_batch: int, global_batch: int | None, steps: int | None
) -> None:
    """With dp = 4, 64 sequences are 8 microbatches of 2; interleaved stages take multiples of pp."""
    topology = Topology(nodes=1, tp=1, pp=pp, vpp=vpp, dp=4, micro_batch=1)
    assert pipeline_steps(topology, micro_batch, global_batch) == steps


def test_only_batches_that_fill_the_pipeline_are_tried() -> None:
    """With fewer microbatches than stages, a larger one may need less memory; strategies rely on the opposite."""
    described: Any = {"model": "llama-3-70b", "gpu": "H100-80GB-SXM", "nodes": 8, "framework": "megatron-core"}
    axes = ("tp=8", "pp=8", "sequence_parallel=true", "recompute=selective")
    found = [tuner.max_batch(**described, settings=axes, global_batch=16, strategy=one) for one in ("model", "bisect")]
    assert {(one.found.largest, one.safe) for one in found} == {(2, 2)}  # 16 sequences are 8 microbatches of 2


def test_no_throughput_counts_more_than_the_global_batch() -> None:
    """With vpp=2, four stages take at least four microbatches of 2 x 4 sequences, of which the batch has 8."""
    result = BatchResult(micro_batch=2, outcome="ESTIMATED", seconds=1.0, acc_steps=4)
    found = throughput_of(result, dp=4, seq=10, tokens=160.0, global_batch=8)
    assert found.tokens_per_second == pytest.approx(8 * 10 / 4.0)
    assert found.days == pytest.approx(160 / 20 / 86400)


def test_the_bubble_of_a_pipeline_is_no_pressure() -> None:
    slow = [BatchResult(micro_batch=batch, outcome="MEASURED", seconds=batch**2.0) for batch in (1, 2, 4)]
    assert pressures(slow, 1.0)
    assert not pressures([replace(result, acc_steps=8) for result in slow], 1.0)


@pytest.mark.parametrize("vpp", [1, 2, 4])
def test_without_a_global_batch_the_pipeline_is_full(vpp: int, run: Run) -> None:
    """More microbatches need no more memory; the text says what is assumed, and with a global batch it does not."""
    own = ("max-batch", *JOB, *SETTINGS, "--set", "pp=4", "--set", f"vpp={vpp}", "--most", "1")
    short, long = (json.loads(run(*own, *more, "--json").out) for more in ((), ("--global-batch", "4096")))
    (one,), (other,) = short["attempts"], long["attempts"]
    assert one["peak_memory_gib"] == pytest.approx(other["peak_memory_gib"])
    assert short["worth"][0]["acc_steps"] == (4 if vpp == 1 else 8)
    assert one["sec_per_iter"] > other["sec_per_iter"]  # a larger share of the step is the bubble
    sentence = "without --global-batch, a step of a pipeline is assumed to have as many microbatches as fill it"
    assert sentence in run(*own).out
    assert sentence not in run(*own, "--global-batch", "4096").out
    assert sentence not in run("max-batch", "--model", "enoki-40", "--nodes", "1", "--most", "1").out
    assert sentence[1:] in run("compare", *JOB, *SETTINGS, "--set", "pp=2,4", "--most", "1").out


def test_reasons_of_a_pipeline_are_terms_of_the_whole_step() -> None:
    described: Any = {"model": "llama-3-70b", "gpu": "H100-80GB-SXM", "nodes": 16, "framework": "megatron-core"}
    made = tuner.compare(**described, settings=(*AXES, "pp=2,4"), global_batch=1024, most=2)
    (two, four), model = made.models[0], cost_model(None)
    for option, terms in zip((two, four), reasons(two, four, 8, model, global_batch=1024), strict=True):
        whole = replace(option.topology, micro_batch=8 // option.topology.dp, global_batch=1024)
        estimate = model.score(Columns.of([whole], option.workload, option.cluster)).estimate(0)
        assert terms.memory == estimate.memory
        assert terms.time.terms == pytest.approx({name: value / 128 for name, value in estimate.time.terms.items()})
        (seconds,) = (one.seconds for one in option.answer.found.attempts if one.micro_batch == whole.micro_batch)
        assert sum(terms.time.terms.values()) == pytest.approx(seconds)


def test_a_command_of_a_pipeline_passes_the_global_batch(tmp_path: Path) -> None:
    """Otherwise the number of microbatches that its job has in flight is unknown."""

    def refusal(command: str, topology: Topology) -> str:
        given: Any = {"step_pattern": None, "iterations": (2,), "timeout": 1.0, "site_profile": None}
        where: Any = {"workload": WORKLOAD, "cluster": cluster("bloom-48"), "folder": tmp_path, "global_batch": 8}
        try:
            with jobs_of("local", command=command, topology=topology, on_attempt=print, **where, **given):
                return ""
        except InputError as error:
            return str(error)

    two = replace(ONE, pp=2)
    assert "does not pass the global batch" in refusal("train {micro_batch}", two)
    for command, topology in (("train {micro_batch} {global_batch}", two), ("train {micro_batch}", ONE)):
        assert refusal(command, topology) == ""
    assert refusal("train {micro_batch} {microbatches}", two) == ""


@pytest.mark.parametrize(
    ("description", "axes", "part"),
    [
        ({"model": "llama-3-8b", "framework": "torchtitan"}, ("tp=2", "pp=2"), "z3"),
        ({"model": "llama-3-8b", "framework": "torchtitan"}, ("tp=2", "pp=2", "zero=2"), "z2"),
        ({"model": "deepseek-v3"}, ("tp=1", "pp=4", "ep=4", "partition=layout"), "lay"),
        ({"model": "deepseek-v3"}, ("tp=1", "pp=4", "ep=4"), "lay"),
    ],
)
def test_a_pipeline_is_one_that_its_framework_runs(description: Any, axes: tuple[str, ...], part: str) -> None:
    """torchtitan shards the stages of a pipeline; Megatron-Core takes a layout for 61 layers on 4 stages."""
    space = tuner.space_for(**description, gpu="H100-80GB-SXM", nodes=2, settings=("recompute=full", *axes))
    (topology,) = options(space)
    assert part in topology.key.split("-")
    assert tuner.explain(space, replace(topology, nodes=2)).legal
