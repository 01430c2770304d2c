"""The legal space has exactly the grid points that break no rule."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.reference import broken, legal_topologies
from tests.strategies import spaces, whole_spaces
from tuner.core.columns import Columns
from tuner.core.errors import InputError
from tuner.space.build import space_for
from tuner.space.space import BLOCK, Space, Tally


@given(spaces())
@settings(max_examples=200)
def test_exactly_the_legal_topologies_are_enumerated(space: Space) -> None:
    """Nested loops over all grid points give the same topologies in the same order."""
    found = [space.topologies(points) for points in space.blocks()]
    wanted = list(legal_topologies(space))
    columns = Columns.of(wanted, space.workload, space.cluster)
    assert [topology for block in found for topology in block] == [columns.topology(row) for row in range(len(wanted))]


@given(whole_spaces())
@settings(max_examples=50)
def test_no_enumerated_topology_breaks_a_rule(space: Space) -> None:
    """The space has the default axes; both the rules and their independent implementation are checked."""
    for points in space.blocks():
        for topology in space.topologies(points[:: max(1, len(points) // 20)]):
            columns = Columns.of([topology], space.workload, space.cluster)
            assert space.rules.violations(columns) == []
            assert not broken(topology, space)


@given(spaces())
def test_every_grid_point_is_legal_or_removed_by_one_rule(space: Space) -> None:
    tally = Tally()
    legal = sum(len(points) for points in space.blocks(tally))
    assert tally.legal == legal
    assert tally.grid == space.size == legal + sum(tally.removed.values())
    assert all(count >= 0 for count in tally.removed.values())


def test_given_values_without_a_legal_topology_are_named() -> None:
    """A dense model has no experts to distribute, and its heads are not divisible by 3."""
    given = ("ep=1,2", "tp=2,3", "zero=1", "recompute=none,full")
    tally = Tally()
    for _ in space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=2, settings=given).blocks(tally):
        pass
    assert tally.unused == {"tp": [3], "ep": [2]}
    why = "'tuner plan' with the same options and --set tp=3 explains why"
    assert tally.advice() == f"No legal topology has tp=3 or ep=2; {why}."
    switched = ("tp=1", "sequence_parallel=on,off")
    for _ in space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=2, settings=switched).blocks(tally):
        pass
    assert tally.advice().startswith("No legal topology has sequence_parallel=on;")
    for _ in space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=2).blocks(tally):
        pass
    assert tally.advice() == ""


@given(spaces())
def test_points_are_ascending_and_in_blocks_of_bounded_size(space: Space) -> None:
    blocks = list(space.blocks())
    points = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int64)
    assert (np.diff(points) > 0).all()
    assert all(0 < len(block) <= BLOCK for block in blocks)
    assert space.count() == len(points)


@given(spaces())
def test_columns_and_topologies_of_points_agree(space: Space) -> None:
    """Columns are unchanged by the conversion to topologies and back."""
    points = next(space.blocks(), np.empty(0, dtype=np.int64))
    columns, again = space.columns(points), Columns.of(space.topologies(points), space.workload, space.cluster)
    for name, array in again.arrays.items():
        assert np.array_equal(columns.arrays[name], array), name


def test_keys_of_the_default_space_are_unique(default_space: Space) -> None:
    keys = [topology.key for points in default_space.blocks() for topology in default_space.topologies(points[::3])]
    assert len(set(keys)) == len(keys) > 4_000


def test_the_default_study_searches_all_axes_of_layout(default_space: Space) -> None:
    axes = default_space.axes
    assert axes["nodes"] == tuple(range(1, 49))
    assert axes["heads"] == (16, 32, 64, 112, 128, 256)
    assert axes["zero"] == (0, 1, 2, 3)
    assert axes["recompute"] == ("none", "selective", "full")
    assert axes["sequence_parallel"] == (False, True)
    assert len(axes["shape"]) == len(axes["global_batch"]) == 1
    assert space_for(allow=["head-size"]).count() > 2 * 14_000 > default_space.count() > 14_000


@pytest.mark.parametrize("layers", [44, 61, 78, 92, 93, 98, 124])
def test_pipelines_of_2_4_and_8_are_searched_for_any_number_of_layers(layers: int) -> None:
    """GLM-4.5 has 92 layers: 8 divides neither 92 nor 94, and stages of 12 with 8 on the last are a layout."""
    workload = space_for(model="llama-3-70b", gpu="H100-80GB-SXM", global_batch=512).workload
    model = replace(workload.model, layers=layers)
    pinned = ("tp=8", "zero=1", "micro_batch=1", "recompute=full", "sequence_parallel=1", "cp=1")
    for shape in ((), (f"shape={model.hidden}x{layers}",)):
        given = (*pinned, *shape)
        space = space_for(
            model=model, gpu="H100-80GB-SXM", nodes=32, global_batch=512, exact_nodes=True, settings=given
        )
        legal = [topology for points in space.blocks() for topology in space.topologies(points)]
        assert {2, 4, 8} <= {topology.pp for topology in legal if topology.vpp == 1}


def test_heads_are_fixed_for_a_specified_model() -> None:
    assert space_for(model="bloom-14336x72").axes["heads"] == (64,)
    assert space_for(model="bloom-14336x72", settings=["heads=64,112,128"]).axes["heads"] == (64, 112, 128)


def test_each_shape_adds_its_pipeline_degrees() -> None:
    opened = space_for(settings=["shape=14336x72,13824x78", "nodes=48", "recompute=full", "zero=1"])
    depths = {(t.shape.layers if t.shape else 72) for block in opened.blocks() for t in opened.topologies(block)}
    assert depths == {72, 78}
    assert {8, 13} <= set(opened.axes["pp"])


def test_similar_shapes_have_similar_size_and_include_the_contenders(default_space: Space) -> None:
    """The author of the BLOOM report chose 14336x72, 13824x78, 13312x84 and 12288x96 by hand."""
    model = default_space.workload.model
    shapes = space_for(settings=["shape=similar"]).axes["shape"]
    assert shapes[0] == model.shape
    assert {"14336x72", "13824x78", "13312x84", "12288x96"} <= {str(shape) for shape in shapes}
    sizes = [model.with_shape(shape).parameters / model.parameters for shape in shapes]
    assert all(0.97 <= size <= 1.03 for size in sizes)
    assert len(set(shapes)) == len(shapes) > 20


def test_dp_can_be_restricted_although_it_is_derived() -> None:
    pinned = space_for(settings=["dp=4,8", "nodes=48", "vpp=1"])
    degrees = {t.dp for block in pinned.blocks() for t in pinned.topologies(block)}
    assert degrees == {4, 8}


def test_a_space_may_leave_nodes_idle_by_default(default_space: Space) -> None:
    used = {int(n) for points in default_space.blocks() for n in np.unique(default_space.columns(points).nodes)}
    assert min(used) < 48 == max(used)
    exact = space_for(exact_nodes=True)
    assert {t.nodes for points in exact.blocks() for t in exact.topologies(points[::50])} == {48}


def test_a_grid_too_large_to_number_is_refused(default_space: Space) -> None:
    many = tuple(range(1, 100_001))
    axes = {**default_space.axes, "micro_batch": many, "heads": many[:60_000], "global_batch": many, "pp": many}
    with pytest.raises(InputError, match=r"the grid has .* points, more than can be numbered; pin an axis with --set"):
        replace(default_space, axes=axes)


@pytest.mark.slow
def test_the_walk_over_a_hundred_million_points_needs_little_memory() -> None:
    """Only one block is in memory at a time; with nearly all policies disabled, millions of points are legal."""
    program = """
import json, resource
from tuner.space.build import space_for
from tuner.space.rules import POLICIES
from tuner.space.space import Tally

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

def peak_kib():
    # Not getrusage: its peak counts what the parent had in memory when it forked.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

space = space_for(
    framework="any", allow=POLICIES, attention="flash2", nodes=1024, global_batch=20160, seq=8192,
    settings=["micro_batch=1-32", "heads=16,32,64,112,128,256", "cp=1,2,4,8,16"],
)
tally = Tally()
for points in space.blocks(tally):
    pass
print(json.dumps({"grid": tally.grid, "legal": tally.legal, "peak_kib": peak_kib()}))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["grid"] > 100_000_000
    assert found["legal"] > 1_000_000
    assert found["peak_kib"] < 512 * 1024
