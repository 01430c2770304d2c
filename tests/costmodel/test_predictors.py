"""Layers of multi-token prediction: their parameters, memory and time on the last stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.costmodel.test_fully_sharded import DENSE, HIDDEN, TOKENS, memory
from tests.mixtures import DEEPSEEK
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.model import Model
from tuner.core.stack import Stack
from tuner.costmodel.kernels import linear
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import time_terms
from tuner.space.build import space_for

SITE = SiteFactors()
GLM = catalog.model("glm-4.5")
TABLE = DEEPSEEK.vocab * DEEPSEEK.hidden


def columns(model: Model, *, pp: int = 1, recompute: str = "none", ep: int = 1) -> Columns:
    """Return one topology on 64 H100 with a vocabulary that is not padded."""
    space = space_for(model=replace(model, vocab_multiple=0), gpu="H100-80GB-SXM", nodes=8, global_batch=1024)
    row = Topology(nodes=8, tp=1, pp=pp, dp=64 // pp, micro_batch=1, zero=1, recompute=recompute, ep=ep)
    return Columns.of([row], space.workload, space.cluster)


def last(model: Model, **fields: object) -> dict[str, float]:
    """Return the memory of the last stage."""
    found = memory_terms(Stages.last(columns(model, **fields)), SITE)  # type: ignore[arg-type]
    return {name: float(np.asarray(value)[0]) for name, value in found.items()}


@pytest.mark.parametrize("model", [DEEPSEEK, GLM, catalog.model("qwen3.8-27b"), catalog.model("qwen3.5-397b-a17b")])
@pytest.mark.parametrize("pp", [1, 2, 4, 8])
def test_the_stages_store_all_parameters(model: Model, pp: int) -> None:
    """The parameters of all stages are the model's, and in a pipeline the last stage's copy of the embedding."""
    one = columns(model, pp=pp)
    stages = Stages(one, np.arange(pp)[:, np.newaxis])
    stored = float(np.sum(stages.parameters) + np.sum(stages.expert_parameters))
    copied = model.vocab * model.hidden if pp > 1 else 0
    assert stored == pytest.approx(model.parameters + copied, rel=1e-4)


@pytest.mark.parametrize("pp", [1, 4])
def test_the_last_stage_stores_and_updates_them(pp: int) -> None:
    """A layer of multi-token prediction has 2 bytes of weights, 4 of gradients and 12 of optimizer states a parameter,
    the last spread over the ranks that store the same ones."""
    without = replace(DEEPSEEK, mtp_layers=0)
    more = {name: value - last(without, pp=pp, ep=8)[name] for name, value in last(DEEPSEEK, pp=pp, ep=8).items()}
    assert DEEPSEEK.experts
    experts = DEEPSEEK.experts.count * DEEPSEEK.expert_parameters
    own = DEEPSEEK.mtp_parameters - experts + (TABLE if pp > 1 else 0)
    assert more["weights"] == pytest.approx(2 * (own + experts / 8), rel=1e-4)
    assert more["gradients"] == pytest.approx(4 * (own + experts / 8), rel=1e-4)
    assert more["optimizer"] == pytest.approx(12 * (own / (64 / pp) + experts / (64 / pp)), rel=1e-4)


@pytest.mark.parametrize(("recompute", "kept"), [("none", 5), ("full", 3)])
def test_one_microbatch_is_kept_for_each_layer_and_its_logits(recompute: str, kept: int) -> None:
    """It keeps what a layer keeps and what surrounds it, and its loss the softmax in fp32."""
    dense = replace(DEEPSEEK, experts=None, ffn=18432, layers=8)
    number = {n: last(replace(dense, mtp_layers=n), pp=4, recompute=recompute) for n in (0, 1, 2)}
    output = 2 * dense.seq * dense.hidden
    layer = (number[0]["activations"] - 3 * output) / 2  # of two layers, with the stage's output and the last norm's
    assert number[1]["activations"] - number[0]["activations"] == pytest.approx(layer + kept * output)
    assert number[2]["activations"] - number[1]["activations"] == pytest.approx(layer + kept * output)
    assert number[1]["logits"] - number[0]["logits"] == pytest.approx(4 * dense.seq * dense.vocab)


def test_each_takes_a_layer_a_projection_and_a_head() -> None:
    """A dense model of 8 layers with one predictor takes as long as 9 layers, two heads and a product of 2 h x h."""
    dense = replace(DEEPSEEK, experts=None, ffn=18432, mtp_layers=0)
    eight, nine, predicting = (
        {name: float(value[0]) for name, value in time_terms(columns(model), SITE).items()}
        for model in (replace(dense, layers=8), replace(dense, layers=9), replace(dense, layers=8, mtp_layers=1))
    )
    one = columns(replace(dense, layers=8))
    ahead, back = linear(one.cluster.gpu, one.workload, SITE, one.tokens, one.hidden, 2 * one.hidden)
    projections = float(((ahead + back) * one.microbatches)[0])
    layer = sum(nine[name] - eight[name] for name in eight if name not in ("stragglers", "data_parallel", "optimizer"))
    head = eight["head"]  # with the embedding's lookup, which a predictor does not repeat
    more = predicting["head"] - head
    assert more == pytest.approx(layer + projections + head, rel=5e-3)


@pytest.mark.parametrize("model", [DEEPSEEK, replace(DEEPSEEK, experts=None, ffn=18432)])
def test_a_stage_picked_from_two_is_that_stage(model: Model) -> None:
    """Its layers and parameters are those of the stage itself."""
    one = columns(model, pp=4)
    both = Stages(one, np.array([[0], [3]]))
    for index, own in enumerate((Stages.first(one), Stages.last(one))):
        picked = both.second_where(np.array([index == 1]))
        assert (picked.at[0], picked.layers[0]) == (own.at[0], own.layers[0])
        assert picked.table_parameters[0] == own.table_parameters[0]
        for sharded in (False, True):
            assert picked.elements(sharded)[0] == own.elements(sharded)[0]


@pytest.mark.parametrize(
    ("stack", "each"),
    [
        (Stack(loss_chunks=1), 4 * 151936),
        (Stack(loss_chunks=1, loss_precision="bf16"), 2 * 151936),
        (Stack(loss_chunks=1, fused_loss=True), 2 * 151936),
        (Stack(loss_chunks=8), 4 * HIDDEN),
    ],
)
def test_a_loss_keeps_its_softmax_under_fully_shard(stack: Stack, each: float) -> None:
    """Each keeps it until the backward pass; in chunks the gradients of its inputs, compiled its logits."""
    for tp, share in ((1, 1), (2, 1 if stack.loss_chunks == 8 else 2)):
        row = {"stack": stack, "tp": tp, "sequence_parallel": tp > 1}
        none, one, two = (memory(model=replace(DENSE, mtp_layers=n), **row)["logits"] for n in (0, 1, 2))
        assert one - none == pytest.approx(TOKENS * each / share, rel=1e-3)
        assert two - one == pytest.approx(one - none)
