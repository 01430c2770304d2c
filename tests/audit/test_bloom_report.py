"""What the BLOOM report's author worked out by hand comes out of the rules alone.

Quoted lines are from the report, "chronicles-prequel", BigScience, February 2022.
"""

from __future__ import annotations

import pytest

from tuner.core.catalog import model
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import EmptySpace
from tuner.core.keys import parse_key
from tuner.core.shape import Shape
from tuner.planning.plan import plan
from tuner.space.build import space_for

TOPOLOGIES_OF_02_20 = """
|    48 | 200B | 12 |  8 |  4 |   1 | 2040 | 47GB | 189.06 |  91.67 | 02-20 |
|    45 | 200B |  9 |  8 |  5 |   1 | 2043 | 44GB | 208.40 |  88.84 | 02-20 |
|    48 | 194B |  8 |  8 |  6 |   1 | 2048 | 39GB | 183.64 |  92.38 | 02-20 |
|    42 | 191B |  6 |  8 |  7 |   1 | 2046 | 39GB | 202.99 |  94.20 | 02-20 |
|    48 | 200B |  6 |  8 |  8 |   1 | 2046 | 36GB | 185.75 |  93.59 | 02-20 |
|    45 | 205B |  5 |  8 |  9 |   1 | 2045 | 37GB | 199.14 |  94.23 | 02-20 |
|    40 | 200B |  4 |  8 | 10 |   1 | 2048 | 35GB | 221.21 |  94.39 | 02-20 |
|    44 | 195B |  4 |  8 | 11 |   1 | 2048 | 32GB | 197.15 |  92.67 | 02-20 |
|    48 | 183B |  4 |  8 | 12 |   1 | 2048 | 30GB | 172.40 |  90.84 | 02-20 |
"""
"""The report: "the number of layers had to be tweaked to fit PP and NHIDDEN was fixed"."""

KEPT = [(8, 8, 6), (4, 8, 10), (4, 8, 11), (4, 8, 12)]
"""Its second table, DP / TP / PP: "from the above list only a few configs are suitable, and these are"."""


def _topologies() -> list[Topology]:
    found = []
    for line in TOPOLOGIES_OF_02_20.split("\n"):
        cells = [cell.strip() for cell in line.split("|") if cell.strip()]
        if not cells:
            continue
        nodes, size, dp, tp, pp, mbs, gbs = (int(cell.rstrip("B")) for cell in cells[:7])
        # The depth that makes the printed size at hidden 14400 and divides by PP.
        layers = pp * round(size * 1e9 / (12 * 14400**2) / pp)
        found.append(
            Topology(
                nodes=nodes,
                tp=tp,
                pp=pp,
                dp=dp,
                micro_batch=mbs,
                shape=Shape(hidden=14400, layers=layers),
                global_batch=gbs,
            )
        )
    return found


@pytest.mark.parametrize(
    ("described", "reasons"),
    [({}, {"dp-multiple-of-4", "batch-multiple-of-32"}), ({"ramp": "32,32"}, {"ramp-up"})],
    ids=["shorthand", "exact law"],
)
def test_of_the_nine_topologies_exactly_the_authors_four_survive(described: dict[str, str], reasons: set[str]) -> None:
    """ "So really we have an additional constraint of `DP % 4 = 0` and `GBS % 32 = 0`." """
    space = space_for(model="bloom-14400x80", **described)  # type: ignore[arg-type]
    kept, why = [], set()
    for topology in _topologies():
        broken = space.rules.violations(Columns.of([topology], space.workload, space.cluster))
        why |= {violation.rule for violation in broken}
        if not broken:
            kept.append((topology.dp, topology.tp, topology.pp))
    assert kept == KEPT
    assert why == reasons


def test_with_increments_of_32_and_dp_4_the_largest_micro_batch_is_8() -> None:
    """ "if the rampup steps are in increments of 32 with DP=4 highest MBS is 8" """
    space = space_for(ramp="32,32", settings=["dp=4", "tp=8", "pp=12", "nodes=48"])
    largest = max(t.micro_batch for points in space.blocks() for t in space.topologies(points))
    assert largest == 8


def test_108_heads_break_the_fused_softmax_kernel() -> None:
    """ "NHEADS=108 breaks constraints for invoking optimized fused softmax kernel", with (HEADS/TP)*MBS % 4 = 0."""
    space = space_for(model="bloom-13824x78")
    topology = parse_key("tp8-pp6-dp8-mbs4-z1-h108", workload=space.workload, cluster=space.cluster)
    broken = space.rules.violations(Columns.of([topology], space.workload, space.cluster))
    said = {violation.rule: violation.message for violation in broken}
    assert said["fused-softmax"] == "(heads/tp) x micro_batch = (108/8) x 4 = 54 is not a multiple of 4"


@pytest.mark.parametrize("heads", [16, 32, 64, 112, 128, 256])
def test_the_heads_that_the_author_tried_pass(heads: int) -> None:
    """NHEADs comparison, NHIDDEN=14336: "for `MBS=4, TP=8` `HEADS % 16 = 0`", whatever their size."""
    space = space_for(allow=["head-size"])
    key = f"tp8-pp6-dp8-mbs4-z1-h{heads}"
    topology = parse_key(key, workload=space.workload, cluster=space.cluster)
    assert space.rules.violations(Columns.of([topology], space.workload, space.cluster)) == []


def test_80_layers_on_exactly_48_nodes_are_empty_with_a_remedy() -> None:
    """384 = 3 x 128: 80 layers take no factor 3, so it lands in dp, and 2048 is not divisible by 3."""
    with pytest.raises(EmptySpace) as empty:
        plan(space_for(model="bloom-14400x80", exact_nodes=True))
    said = str(empty.value)
    assert said.startswith("none of 691,200 topologies is legal; removed by fill-nodes (")
    for opening in ("40 nodes (", "global batch 2016 (", "global batch 1920 ("):
        assert opening in said


@pytest.mark.parametrize("opened", [{"nodes": 40}, {"global_batch": 1920}, {"global_batch": 2016}])
def test_what_the_message_names_does_open_it(opened: dict[str, int]) -> None:
    space = space_for(model="bloom-14400x80", exact_nodes=True, **opened)  # type: ignore[arg-type]
    assert next(space.blocks(), None) is not None


def test_bloom_as_it_was_trained_is_legal_on_its_cluster_under_its_ramp_up() -> None:
    """tr11-176B-ml.slurm: TP 4, PP 12, MBS 2, --rampup-batch-size 192 16, type:transformer|embedding, 70 layers."""
    space = space_for(model="bloom-176b", ramp="192,16")
    topology = parse_key("tp4-pp12-dp8-mbs2-z1", workload=space.workload, cluster=space.cluster)
    assert topology.partition == "embedding"
    assert space.rules.violations(Columns.of([topology], space.workload, space.cluster)) == []
    everything = {t.key for points in space.blocks() for t in space.topologies(points)}
    assert topology.key == "tp4-pp12-dp8-mbs2-z1-emb"
    assert topology.key in everything


@pytest.mark.parametrize(
    ("name", "billions"),
    [("bloom-14336x72", 181), ("bloom-13824x78", 182), ("bloom-13312x84", 182), ("bloom-12288x96", 177)],
)
def test_the_contenders_have_the_sizes_that_the_report_prints(name: str, billions: int) -> None:
    assert round(model(name).parameters / 1e9) == billions
