"""Training times of topologies that train another model: at equal compute, in every command."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import Run
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.flops import equal_iterations, model_flops
from tuner.export.api import prepare_export
from tuner.planning.cost import cost
from tuner.planning.plan import plan
from tuner.search.candidates import CandidatePool
from tuner.space.build import space_for
from tuner.study.api import optimize

SHAPES = ("shape=14336x72,14336x36", "heads=64")
HALF = "tp4-pp6-dp16-mbs1-z1-rsel-14336x36"


def test_the_days_of_a_plan_agree_with_its_order_for_models_of_two_sizes() -> None:
    """Days over the probability of fitting never fall from row to row."""
    made = plan(space_for(settings=SHAPES, exact_nodes=True), top=0)
    assert {row.topology.shape is None for row in made.top} == {True, False}
    expected = [row.days / (1 - row.out_of_memory) for row in made.top if row.out_of_memory < 1]
    assert all(first <= second * (1 + 1e-9) for first, second in pairwise(expected))


def test_the_days_of_another_model_are_those_of_as_many_operations() -> None:
    """Seconds per iteration times FLOPs of the workload's training over FLOPs of an iteration of the row's model."""
    space = space_for()
    half, whole = (parse_key(key, **space.key_context) for key in (HALF, HALF.removesuffix("-14336x36")))
    flops = model_flops(Columns.of([half, whole], space.workload, space.cluster))
    tokens = space.workload.global_batch * space.workload.model.seq
    iterations = space.workload.training_tokens / tokens * flops[1] / flops[0]
    found = cost(space, half, CostModel())
    assert found.days == pytest.approx(found.seconds * iterations / 86400, rel=1e-12)


def test_plan_and_search_count_the_same_iterations() -> None:
    """Scores of a plan and candidates of a search multiply seconds by the same number of iterations."""
    space = space_for(settings=SHAPES, exact_nodes=True)
    pool = CandidatePool.of_space(space)
    rows = {row.topology: row for row in plan(space, top=0).top}
    found = [rows[pool.topology(candidate)] for candidate in range(len(pool))]
    assert pool.iterations == pytest.approx([row.training / row.seconds for row in found], rel=1e-12)


def test_explain_and_export_say_which_training_their_days_are_of(run: Run, tmp_path: Path) -> None:
    """`tuner explain` prints the days at equal compute; an export those of its own iterations, and says so."""
    text = run("explain", HALF).out
    document = json.loads(run("explain", HALF, "--json").out)["estimate"]
    assert f"{document['days']:,.1f} days at equal compute" in text
    assert "equal compute" not in run("explain", "tp8-pp12-dp4-mbs1-z1").out
    study = optimize(space_for(settings=("shape=14336x36", "heads=64")), budget=1, study="half", runs=tmp_path)
    made = prepare_export(study)
    expected = made.run.expected
    assert expected.days == pytest.approx(made.run.iterations * expected.sec_per_iter / 86400, rel=1e-5)
    (note,) = (note for note in made.notes if "equal compute" in note)
    assert study.best is not None
    assert f"in {expected.days:,.1f} days; the study shows {study.best.days:,.1f} days" in note


def test_padding_of_the_vocabulary_is_no_progress() -> None:
    """A model is trained in tokens over tokens per iteration, with any tp; 50,257 entries are padded for each."""
    space = space_for(model="gpt-1.3b", nodes=4, gpu="H100-80GB-SXM")
    pool = CandidatePool.of_space(space)
    assert len(set(pool.parts[0].padded_vocab.tolist())) > 2
    tokens = space.workload.global_batch * space.workload.model.seq
    assert set(pool.iterations.tolist()) == {space.workload.training_tokens / tokens}
    wider = space_for(settings=("shape=2048x48",), model="gpt-1.3b", nodes=4, gpu="H100-80GB-SXM")
    columns = CandidatePool.of_space(wider).parts[0]
    assert len(set(columns.padded_vocab.tolist())) > 2
    own, deeper = (12 * layers * 2048**2 + 2 * layers * 2048 * 2048 + 2048 * 50257 for layers in (24, 48))
    expected = space.workload.training_tokens / tokens * own / deeper
    assert equal_iterations(columns) == pytest.approx(expected, rel=1e-12)


def test_the_days_of_a_search_are_those_of_the_exported_run(tmp_path: Path) -> None:
    """For the study's own model: exported iterations times seconds, to the last iteration, which is rounded up."""
    study = optimize(space_for(model="gpt-1.3b", nodes=4, settings=("tp=4",)), budget=1, study="own", runs=tmp_path)
    run = prepare_export(study).run
    assert study.best is not None
    assert study.best.days == pytest.approx(run.expected.days, rel=1e-12)
    assert study.best.days == pytest.approx(run.iterations * study.best.seconds / 86400, abs=study.best.seconds / 86400)
