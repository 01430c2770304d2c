"""Plan, explain, and the ways out of an empty space."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import spaces, topologies
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import OPT_IN, Topology
from tuner.core.errors import EmptySpace
from tuner.core.keys import parse_key
from tuner.core.shape import Shape
from tuner.planning.explain import changes, explain
from tuner.planning.plan import _first_rows, plan
from tuner.space.axes import searched
from tuner.space.build import space_for
from tuner.space.nearest import distance, nearest
from tuner.space.relaxations import openings
from tuner.space.remedies import varied
from tuner.space.rules import BY_NAME, RULES
from tuner.space.space import Space


def asked(key: str, space: Space) -> Topology:
    return parse_key(key, workload=space.workload, cluster=space.cluster)


@pytest.mark.slow
@given(spaces(), st.integers(0, 5))
def test_the_first_rows_do_not_depend_on_how_many_are_asked_for(space: Space, top: int) -> None:
    try:
        every = plan(space, top=0)
    except EmptySpace:
        assert not space.count()
        return
    assert len(every.top) == every.tally.legal == space.count()
    if top:
        assert plan(space, top=top).top == every.top[:top]


@pytest.mark.slow
def test_rows_are_listed_in_the_documented_order(default_space: Space) -> None:
    """By time over the chance to fit, then by time; heads leave the model's operations as they are."""
    made = plan(default_space, top=0)
    fast = [(1 - row.out_of_memory) / row.training for row in made.top]
    assert all(a >= b * (1 - 1e-9) for a, b in pairwise(fast))
    hopeless = [row.training for row in made.top if row.out_of_memory == 1]
    assert len(hopeless) > 1
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(hopeless))
    assert made.fitting == sum(row.out_of_memory < 0.5 for row in made.top)


@pytest.mark.parametrize("keep", [1, 2, 3, 4, 5, 9])
def test_the_first_rows_are_those_of_a_full_sort(keep: int) -> None:
    """Equal last keys are ordered by the first, and equal rows by their points, also where all are infinite."""
    points, training = np.array([4, 1, 3, 0, 2, 5]), np.array([2.0, 1.0, 2.0, 2.0, 9.0, 1.0])
    expected = np.array([3.0, np.inf, 3.0, 1.0, np.inf, 3.0])
    found, keys = _first_rows(points, np.stack([training, expected]), keep)
    assert found.tolist() == [0, 5, 3, 4, 1, 2][:keep]
    assert keys.T.tolist() == [[2.0, 1.0], [1.0, 3.0], [2.0, 3.0], [2.0, 3.0], [1.0, np.inf], [9.0, np.inf]][:keep]


def test_a_topology_that_may_not_fit_comes_behind_one_that_does_and_is_a_little_slower() -> None:
    space = space_for(model="llama-3-8b", gpu="A100-40GB-SXM", nodes=1, global_batch=64)
    first, *others = plan(space, top=0).top
    risky = [row for row in others if row.training < first.training]
    assert risky
    assert all(1 - row.out_of_memory < row.training / first.training for row in risky)


def test_a_long_exchange_of_tokens_suggests_to_overlap_it() -> None:
    mixture: dict[str, Any] = {"model": "qwen3-235b", "gpu": "H100-80GB-SXM", "nodes": 32, "global_batch": 2048}
    pins = ["tp=2", "pp=8", "micro_batch=1", "zero=1", "dispatcher=deepep", "vpp=1,6"]
    hint = plan(space_for(**mixture, settings=[*pins, "ep=32"]), top=1).hint
    assert re.fullmatch(
        r"The exchange of tokens takes [1-9][0-9]% of the first row's time; --set moe_overlap=on,off also tries .*",
        hint,
    )
    assert plan(space_for(**mixture, settings=[*pins, "ep=32", "moe_overlap=on,off"]), top=1).hint == ""
    assert plan(space_for(**mixture, settings=[*pins[:4], "ep=1"]), top=1).hint == ""
    assert plan(space_for(**mixture, settings=[*pins[:4], "ep=32", "dispatcher=allgather"]), top=1).hint == ""
    assert plan(space_for(**mixture, settings=["tp=2", "ep=32"], framework="torchtitan"), top=1).hint == ""


def test_the_terms_of_a_row_add_up_and_the_interval_holds_it(default_space: Space) -> None:
    for row in plan(default_space, top=20).top:
        assert sum(row.estimate.time.terms.values()) == pytest.approx(row.seconds)
        assert sum(row.estimate.memory.terms.values()) == pytest.approx(row.memory)
        assert min(*row.estimate.time.terms.values(), *row.estimate.memory.terms.values()) >= 0
        assert row.low < row.seconds < row.high


@given(spaces(), topologies())
@settings(max_examples=60)
def test_a_topology_is_called_legal_exactly_when_it_breaks_no_rule_in_force(space: Space, topology: Topology) -> None:
    explanation = explain(space, topology)
    broken = {v.rule for v in space.rules.violations(Columns.of([topology], space.workload, space.cluster))}
    judged = {verdict.rule for verdict in explanation.violations}
    open_rules = {verdict.rule for verdict in explanation.verdicts if verdict.word == "open"}
    assert judged <= broken <= judged | open_rules
    assert explanation.legal == (not broken)
    unused = {axis for axis in OPT_IN.keys() - searched(space.axes) if getattr(topology, axis) == OPT_IN[axis]}
    names = [rule.name for rule in RULES if not (own := OPT_IN.keys() & set(rule.reads)) or own - unused]
    assert [verdict.rule for verdict in explanation.verdicts] == names


@given(spaces())
@settings(max_examples=60)
def test_explain_finds_in_the_space_exactly_what_plan_lists(space: Space) -> None:
    """Every combination of the axes' values, and of shapes mixed from two of them."""
    listed = {t for points in space.blocks() for t in space.topologies(points)}
    mixed = {Shape(hidden=a.hidden, layers=b.layers) for a in space.axes["shape"] for b in space.axes["shape"]}
    for topology in sorted(listed, key=lambda t: t.key)[:20]:
        found = explain(space, topology)
        assert found.legal
        assert not found.outside
    for topology in sorted(listed, key=lambda t: t.key)[:3]:
        for shape in mixed - set(space.axes["shape"]):
            assert "shape" in explain(space, replace(topology, shape=shape)).outside


@given(spaces(), topologies())
@settings(max_examples=60)
def test_the_nearest_topologies_are_legal_and_none_is_nearer(space: Space, topology: Topology) -> None:
    every = [t for points in space.blocks() for t in space.topologies(points)]
    found = nearest(space, topology, most=3)
    assert len(found) == min(3, len(every))
    assert all(t in every for t in found)
    if every:
        one = Columns.of([topology], space.workload, space.cluster)
        best = np.sort(distance(Columns.of(every, space.workload, space.cluster), one))[: len(found)]
        assert np.allclose(distance(Columns.of(found, space.workload, space.cluster), one), best)


@given(spaces(), topologies())
@settings(max_examples=60)
def test_every_value_of_a_remedy_mends_the_rule_that_it_is_for(space: Space, topology: Topology) -> None:
    columns = Columns.of([topology], space.workload, space.cluster)
    for verdict in explain(space, topology).verdicts:
        for way in verdict.remedies:
            assert verdict.word == "broken"
            mended = varied(columns, way.axis, np.array(way.values), hold_dp="dp" in way.given)
            assert not BY_NAME[verdict.rule].broken_rows(mended).any()
            assert int(columns.arrays[way.axis][0]) not in way.values


@given(spaces())
@settings(max_examples=40)
def test_a_legal_topology_is_its_own_nearest(space: Space) -> None:
    for points in space.blocks():
        topology = space.topologies(points[:1])[0]
        assert nearest(space, topology, most=1) == [topology]
        return


@pytest.mark.parametrize(
    ("key", "rule", "said"),
    [
        (
            "tp8-pp5-mbs2-z1",
            "fill-nodes",
            "tp(8) x pp(5) = 40 does not divide 384 GPUs; with tp=8, pp may be 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48",
        ),
        (
            "tp8-pp12-dp4-mbs3-z1",
            "batch-by-dp",
            "global batch 2048 is not divisible by micro_batch x dp = 3 x 4 = 12; micro_batch may be 1, 2, 4, 8, ",
        ),
        (
            "tp8-pp12-dp4-mbs2-z2",
            "zero-without-pipeline",
            "ZeRO 2 does not work with a pipeline, but pp is 12; with pp=12, zero may be 0 or 1",
        ),
        (
            "tp8-pp12-dp3-mbs1-z1",
            "dp-multiple-of-4",
            "dp=3 is not a multiple of 4; pp may be 1, 3 or 9; dp may be 4",
        ),
        (
            "tp3-pp12-dp8-mbs1-z1",
            "tp-in-nvlink-domain",
            "tp=3 does not fit evenly into nodes of 8 GPUs; with dp=8, tp may be 1, 2 or 4",
        ),
        (
            "tp8-pp12-dp4-mbs2-z1-vpp4",
            "layers-by-vpp",
            "72 layers are not divisible by pp x vpp = 12 x 4 = 48; with pp=12, vpp may be 1, 2, 3 or 6",
        ),
        (
            "tp8-pp12-dp5-mbs1-z1",
            "enough-nodes",
            "it needs 60 nodes, but the cluster has 48; dp may be 1, 2, 3 or 4; "
            "with dp=5, pp may be 1, 2, 3, 4, 6, 8 or 9",
        ),
    ],
)
def test_a_violation_comes_with_its_numbers_and_its_remedy(
    key: str, rule: str, said: str, default_space: Space
) -> None:
    explanation = explain(default_space, asked(key, default_space))
    verdict = next(verdict for verdict in explanation.verdicts if verdict.rule == rule)
    assert verdict.word == "broken"
    assert "; ".join([verdict.message, *map(str, verdict.remedies)]).startswith(said)
    assert verdict.nearest is not None
    assert default_space.rules.violations(_columns(verdict.nearest, default_space)) == []


def _columns(topology: Topology, space: Space) -> Columns:
    return Columns.of([topology], space.workload, space.cluster)


@pytest.mark.parametrize("key", ["tp8-pp12-dp4-mbs2-z1", "tp4-pp12-dp8-mbs2-z1", "tp8-pp6-dp8-mbs4-z1-h112"])
def test_a_legal_topology_is_told_so_and_needs_no_other(key: str, default_space: Space) -> None:
    explanation = explain(default_space, asked(key, default_space))
    assert explanation.legal
    assert explanation.nearest == ()


def test_what_follows_from_an_impossible_split_is_left_open(default_space: Space) -> None:
    """dp follows from the split, so that nothing can be said of it yet."""
    words = {v.rule: v.word for v in explain(default_space, asked("tp8-pp5-mbs1-z1", default_space)).verdicts}
    assert words["fill-nodes"] == "broken"
    assert words["dp-multiple-of-4"] == words["batch-by-dp"] == "open"


def test_the_nearest_names_what_changes_from_what_to_what(default_space: Space) -> None:
    topology = asked("tp8-pp5-dp9-mbs2-z1", default_space)
    near = explain(default_space, topology).nearest[0]
    assert near.key == "tp8-pp6-dp8-mbs2-z1"
    assert changes(topology, near, default_space) == {"nodes": (45, 48), "pp": (5, 6), "dp": (9, 8)}


def test_a_way_out_prefers_the_axes_of_its_own_rule() -> None:
    """112 heads are as near as another tensor degree, but the kernel's rule names heads first."""
    space = space_for(allow=["head-size"])
    topology = asked("tp8-pp6-dp8-mbs1-z1-h16", space)
    broken = {v.rule: v for v in explain(space, topology).violations}
    way = broken["fused-softmax"].nearest
    assert way is not None
    plain = nearest(space, topology, most=1)[0]
    along = nearest(space, topology, most=1, along=("heads",))[0]
    assert (along.heads, along.micro_batch) == (32, 1)
    assert (plain.heads, plain.micro_batch) == (16, 2)
    assert way == nearest(space, topology, most=1, along=BY_NAME["fused-softmax"].vary)[0]


def test_a_key_with_heads_of_another_width_is_explained(default_space: Space) -> None:
    """The rule names the width, the numbers of heads that have a kernel, and the closest legal topology."""
    explanation = explain(default_space, asked("tp8-pp12-dp4-mbs2-z1-h16", default_space))
    (verdict,) = explanation.violations
    assert (verdict.rule, verdict.message) == ("head-size", "16 heads of hidden 14336 have size 896, not 64 to 256")
    assert [str(remedy) for remedy in verdict.remedies] == ["heads may be 64, 112, 128 or 224"]
    assert verdict.nearest is not None
    assert verdict.nearest.key == "tp8-pp12-dp4-mbs2-z1"


def test_long_sequences_name_the_mfu_without_the_masked_half_of_attention() -> None:
    described: Any = {"model": "llama-3-8b", "gpu": "H100-80GB-SXM", "nodes": 4, "global_batch": 32}
    made = plan(space_for(**described, seq=131072), top=1)
    layers, scores = 32 * 218_103_808, 32 * 2 * 131072 * 4096  # elements that a token meets in a forward pass
    whole = layers + 4096 * 128256 + scores
    without = made.top[0].mfu * (whole - scores / 2) / whole
    assert made.hint.endswith(f"without it, the first row's MFU is {without:.1%}.")
    assert plan(space_for(**described), top=1).hint == ""


def test_each_opening_of_an_empty_space_opens_it() -> None:
    """The number said is the number found when the change is made."""
    space = space_for(model="bloom-14400x80", exact_nodes=True)
    said = {opening.change: opening.legal for opening in openings(space)}
    assert said["40 nodes"] == space.where(nodes=(40,)).count() > 0
    assert said["global batch 2016"] == space_for(model="bloom-14400x80", exact_nodes=True, global_batch=2016).count()
    assert said["global batch 1920"] > said["global batch 2016"]


@pytest.mark.parametrize(
    ("described", "opening"),
    [
        ({"settings": ["tp=3"]}, "values of tp other than 3 (14,538 legal)"),
        ({"settings": ["heads=100"]}, "values of heads other than 100 (14,538 legal)"),
        ({"settings": ["shape=13824x78", "pp=7"]}, "values of pp other than 7 (9,352 legal)"),
        ({"global_batch": 2047}, "global batch 2048 (14,538 legal) or global batch 1920 ("),
        ({"precision": "fp32", "attention": "fused"}, "--attention eager ("),
        ({"settings": ["dp=7"]}, "values of dp other than 7 ("),
        ({"settings": ["micro_batch=3"]}, "values of micro_batch other than 3 ("),
        ({"settings": ["sequence_parallel=on", "tp=1"]}, "values of sequence_parallel other than on ("),
        ({"model": "llama-3-8b", "attention": "fused"}, "--allow fused-softmax ("),
        ({"nodes": 5, "exact_nodes": True, "settings": ["vpp=1", "pp=1"]}, "4 nodes ("),
        ({"settings": ["heads=11"]}, "values of heads other than 11 ("),
        ({"settings": ["heads=11", "micro_batch=3"]}, "no single change of nodes, global batch, policies or depth"),
    ],
)
def test_an_empty_space_names_the_change_that_opens_it(described: dict[str, object], opening: str) -> None:
    with pytest.raises(EmptySpace, match=r"none of .* topologies is legal") as empty:
        plan(space_for(**described))  # type: ignore[arg-type]
    assert opening in str(empty.value)


@pytest.mark.parametrize(
    ("nodes", "gpus", "batch", "framework"), [(3, 5, 75, None), (1, 2, 10, "fsdp2"), (1, 1, 7, None)]
)
def test_policies_that_only_together_empty_a_space_are_named_and_all_needed(
    nodes: int, gpus: int, batch: int, framework: Any
) -> None:
    """A machine of one GPU has neither dp in multiples of 4 nor, often, a batch in multiples of 32."""
    given: dict[str, Any] = {
        "model": replace(catalog.model("llama-3-8b"), name="bloom-8b"),
        "gpu": "H100-80GB-SXM",
        "nodes": nodes,
        "gpus_per_node": gpus,
    }
    given |= {"global_batch": batch, "framework": framework}
    (opening,) = openings(space_for(**given))
    policies = opening.change.replace("--allow ", "").split()
    assert policies == ["dp-multiple-of-4", "batch-multiple-of-32"]
    assert space_for(**given, allow=policies).count() == opening.legal > 0
    assert all(space_for(**given, allow=[policy]).count() == 0 for policy in policies)


def test_an_open_space_keeps_its_count_under_a_policy_switched_off(default_space: Space) -> None:
    freed = replace(default_space, rules=type(default_space.rules)(allowed=frozenset(["microbatches-fill-pipeline"])))
    assert freed.count() > default_space.count()
