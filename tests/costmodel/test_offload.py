"""Offload of optimizer states and parameters, compared with closed forms and a published benchmark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.core.offload import OFFLOAD
from tuner.core.stack import Stack
from tuner.costmodel.constants import STEP_LAYER_SECONDS, STEP_SECONDS
from tuner.costmodel.estimate import CostModel, Scores
from tuner.costmodel.evaluation import evaluate
from tuner.costmodel.offload import HOST_LINK, OFFLOAD_TERM
from tuner.costmodel.offload_constants import CPU_ADAM_SECONDS, HOST_LINK_BANDWIDTH, TORCH_ADAM_SECONDS
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for
from tuner.tables import table_of

LLAMA: dict[str, Any] = {
    "model": "llama-7b",
    "gpu": "A100-80GB-SXM",
    "nodes": 1,
    "seq": 4096,
    "global_batch": 64,
    "framework": "deepspeed",
}


def scored(*keys: str) -> Scores:
    space = space_for(**LLAMA)
    topologies = [parse_key(key, workload=space.workload, cluster=space.cluster) for key in keys]
    return CostModel().score(Columns.of(topologies, space.workload, space.cluster))


@pytest.mark.parametrize(
    ("key", "copies"),
    [
        ("tp1-pp1-dp8-mbs8-z1-offopt", 0),
        ("tp1-pp1-dp8-mbs2-z1-offopt", 2),
        ("tp1-pp1-dp8-mbs2-z2-offopt", 2 * 4 - 1),
        ("tp1-pp1-dp8-mbs2-z3-offopt", 2 * 4 - 1),
    ],
)
def test_the_copies_of_a_shard_are_counted(key: str, copies: int) -> None:
    """Per shard, fp32 gradients leave once, 16-bit ones per microbatch, and the updated parameters return."""
    scores = scored(key)
    shard = Stages.middle(scores.columns).parameters[0] / 8
    assert scores.time_terms[HOST_LINK][0] == pytest.approx((4 + 2 * copies + 2) * shard / HOST_LINK_BANDWIDTH)


def test_parameters_in_main_memory_are_sent_for_both_passes_of_each_microbatch() -> None:
    one, both = scored("tp1-pp1-dp8-mbs2-z3-offopt"), scored("tp1-pp1-dp8-mbs2-z3-offall")
    shard = Stages.middle(one.columns).parameters[0] / 8
    more = both.time_terms[HOST_LINK][0] - one.time_terms[HOST_LINK][0]
    assert more == pytest.approx(2 * (2 * 4 - 1) * shard / HOST_LINK_BANDWIDTH)


def test_the_ranks_of_a_node_share_its_cpus() -> None:
    """The ranks of a node share its CPUs, so that eight shards take as long as the whole model on one rank."""
    scores = scored("tp1-pp1-dp8-mbs2-z2-offopt")
    parameters, layers = Stages.middle(scores.columns).parameters[0], 32
    expected = CPU_ADAM_SECONDS * parameters + STEP_SECONDS + STEP_LAYER_SECONDS * layers
    assert scores.time_terms["optimizer"][0] == pytest.approx(expected)


def test_what_is_offloaded_leaves_the_gpu() -> None:
    """Offload removes states and step from the GPU, from ZeRO 2 on also gradients, and with parameters the weights."""
    keys = [f"tp1-pp1-dp8-mbs2-{rest}" for rest in ("z1", "z1-offopt", "z2-offopt", "z3-offopt", "z3-offall")]
    terms = scored(*keys).memory_terms
    assert (terms["optimizer"] > 0).tolist() == [True, False, False, False, False]
    assert terms["step"][1:].tolist() == [0, 0, 0, 0]
    assert (terms["gradients"] > 0).tolist() == [True, True, False, False, False]
    assert (terms["weights"] > 0).tolist() == [True, True, True, True, False]
    matrix = 32000 * 4096 * 2
    assert terms[OFFLOAD_TERM].tolist() == [0, matrix, matrix, 0, 0]
    rank = scored("tp1-pp1-dp1-mbs2-z3-offall").memory_terms
    assert rank["gathered"][0] > matrix  # even if a single rank has the only shard


def test_a_topology_without_offload_has_the_same_terms_beside_one_with_it() -> None:
    """A topology without offload has the same terms, to the last bit, if scored with one that has offload."""
    alone, beside = scored("tp1-pp1-dp8-mbs2-z2"), scored("tp1-pp1-dp8-mbs2-z2", "tp1-pp1-dp8-mbs2-z3-offall")
    for own, others in ((alone.time_terms, beside.time_terms), (alone.memory_terms, beside.memory_terms)):
        assert all(own[name][0] == others[name][0] for name in own)
        assert {name: others[name][0] for name in others.keys() - own.keys()} in ({HOST_LINK: 0}, {OFFLOAD_TERM: 0})
    assert alone.seconds[0] == beside.seconds[0]
    assert alone.memory[0] == beside.memory[0]


PUBLISHED = {
    "tp1-pp1-dp8-mbs1-z2-offopt": (4.19, 1.81),
    "tp1-pp1-dp8-mbs2-z3-offopt": (4.45, 2.05),
    "tp1-pp1-dp8-mbs4-z3-offall": (4.60, 2.06),
}
"""Samples per second without and with offload, LLaMA-7B on 8 A800, 64 samples of 4096 tokens a step, DeepSpeed 0.14.2
(https://gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a; the third without offload is between its rows for
micro batch 2 and 8)."""


@pytest.mark.parametrize("key", PUBLISHED)
def test_what_offload_costs_is_near_a_published_benchmark(key: str) -> None:
    """The cost of offload agrees with the benchmark within a sixth; the constant is fitted to these rows."""
    without, offloaded = PUBLISHED[key]
    scores = scored(key.removesuffix("-offopt").removesuffix("-offall"), key)
    assert np.diff(scores.seconds)[0] == pytest.approx(64 / offloaded - 64 / without, rel=1 / 6)


MEGATRON: dict[str, Any] = {**LLAMA, "gpu": "H100-80GB-SXM", "framework": "megatron-core"}
PARTS = {"offopt25": 0.25, "offopt50": 0.5, "offopt75": 0.75, "offopt": 1.0}


def of_megatron(*keys: str, **workload: Any) -> Scores:
    space = space_for(**MEGATRON)
    topologies = [parse_key(key, workload=space.workload, cluster=space.cluster) for key in keys]
    return CostModel().score(Columns.of(topologies, replace(space.workload, **workload), space.cluster))


@pytest.mark.parametrize(("part", "share"), PARTS.items())
def test_megatron_offloads_a_share_of_the_optimizer(part: str, share: float) -> None:
    """The CPUs step their share while the GPU steps the rest and copies travel; 12 bytes of each parameter leave."""
    whole, less = of_megatron("tp2-pp1-dp4-mbs1-z1"), of_megatron(f"tp2-pp1-dp4-mbs1-z1-{part}")
    shard = Stages.middle(whole.columns).elements(sharded=True)[0]
    visits = STEP_SECONDS + STEP_LAYER_SECONDS * 32
    assert less.time_terms["optimizer"][0] == pytest.approx(share * TORCH_ADAM_SECONDS * 8 * shard + visits)
    assert less.time_terms[HOST_LINK][0] == 0
    assert less.memory_terms["optimizer"][0] == pytest.approx((1 - share) * 12 * shard)
    assert less.memory_terms["gradients"][0] == whole.memory_terms["gradients"][0]


def test_copies_longer_than_the_step_are_exposed() -> None:
    """One rank of a node with one GPU has all CPUs, and its link is as slow as ever."""
    space = space_for(**{**MEGATRON, "gpus_per_node": 1})
    topology = parse_key("tp1-pp1-dp1-mbs1-z1-offopt", workload=space.workload, cluster=space.cluster)
    scores = CostModel().score(Columns.of([topology], space.workload, space.cluster))
    parameters = Stages.middle(scores.columns).parameters[0]
    exposed = 8 * parameters / HOST_LINK_BANDWIDTH - TORCH_ADAM_SECONDS * parameters
    assert scores.time_terms[HOST_LINK][0] == pytest.approx(exposed)


def test_without_the_precision_aware_optimizer_fp32_weights_stay_on_the_gpu() -> None:
    """Only the moments leave, 8 bytes of each parameter, and the fp32 copy of 16-bit gradients stays."""
    stack = Stack(precision_aware_optimizer=False, grad_precision="bf16")
    keys = ("tp2-pp1-dp4-mbs1-z1", "tp2-pp1-dp4-mbs1-z1-offopt50", "tp2-pp1-dp4-mbs1-z1-offopt")
    terms = of_megatron(*keys, stack=stack).memory_terms
    shard = Stages.middle(of_megatron(*keys).columns).elements(sharded=True)[0]
    assert terms["optimizer"] / shard == pytest.approx([12, 8, 4])
    assert len({*terms["step"].tolist()}) == 1


@pytest.mark.parametrize(
    ("cell", "note", "offload"),
    [
        ("1", "optimizer offload fraction 1", "optimizer"),
        ("1", "activation offload; CUDA graphs", "none"),
        ("1", "", "none"),
        ("0", "optimizer offload fraction 0", "none"),
        ("0.25", "", "optimizer-25"),
        ("optimizer", "", "optimizer"),
    ],
)
def test_a_number_is_a_share_of_the_optimizer_but_one_may_be_a_switch(cell: str, note: str, offload: str) -> None:
    """Tables of NVIDIA's recipes have 1 where activations are offloaded."""
    (row,) = table_of(f"layers,hidden,sec_per_iter,offload,note\n4,1024,1.5,{cell},{note}\n", "one.csv").rows
    assert row.run is not None
    assert row.run.topology.offload == offload


def test_a_published_offload_of_parts_takes_the_memory_and_the_time_that_it_took() -> None:
    """Megatron-Bridge's Qwen3-30B on 16 H100s, whose batch its table does not state: differences to no offload.

    Bytes follow from the count; the seconds of a parameter's step are fitted to the last row, with overlapped copies.
    """
    table = table_of((ROOT / "corpus/modern/bridge-skills-h100.csv").read_text(), "bridge-skills-h100.csv")
    rows = [guess for guess in evaluate(table).guesses.values() if guess.row.group == "bridge-skill-offload"]
    found = [guess.row.run.topology.offload for guess in rows if guess.row.run]
    assert found == ["none", *OFFLOAD[3:], "optimizer", "optimizer"]
    freed, slower = (
        [(own - first, printed - printed_first) for own, printed in pairs]
        for (first, printed_first), *pairs in (
            [(guess.memory, guess.row.memory or 0) for guess in rows],
            [(guess.seconds, guess.row.seconds or 0) for guess in rows],
        )
    )
    assert [own for own, _ in freed] == pytest.approx([printed for _, printed in freed], rel=0.03)
    assert [own for own, _ in slower] == pytest.approx([printed for _, printed in slower], rel=0.2)
