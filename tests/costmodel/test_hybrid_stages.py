"""Pipeline stages of models with linear or windowed attention: their own kinds of layers, and the slowest and the
fullest of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.costmodel.test_delta_net import DENSE, QWEN35, SITE, uniform
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.model import Model
from tuner.core.shape import Shape
from tuner.costmodel.layer import layer_seconds
from tuner.costmodel.links import Links
from tuner.costmodel.memory import needed_bytes, worst_need
from tuner.costmodel.microbatch import MicrobatchTimes
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import _sends, time_terms
from tuner.space.build import space_for

MIXTURE = replace(QWEN35, mtp_layers=0)
LONG = replace(DENSE, seq=131072, max_positions=262144, vocab=1024, mtp_layers=0)
"""Attention takes over twice as long as Gated DeltaNet. The last stage has little beside its layers, so that an inner
one is slowest."""
SHORT = replace(DENSE, seq=4096, vocab=1024, mtp_layers=0)
"""Gated DeltaNet takes longer than attention."""
WINDOWED = replace(LONG, delta_net=None, attention_gate=False, sliding_window=1024)


def of_period(model: Model, period: int) -> Model:
    """Return the model with attention to all tokens in the last layer of each period."""
    if model.delta_net:
        return replace(model, delta_net=replace(model.delta_net, period=period))
    return replace(model, window_skip=period)


def of_kind(model: Model, *, whole: bool) -> Model:
    """Return the model with layers of one kind, those that attend to all tokens or the others."""
    if model.delta_net:
        return uniform(model, linear=not whole)
    return replace(model, sliding_window=0 if whole else model.sliding_window)


def columns_of(model: Model, layers: int, **fields: Any) -> Columns:
    topology = Topology(**{"tp": 1, "dp": 1, "nodes": 1, "micro_batch": 1, **fields})
    space = space_for(model=model, gpu="H200-141GB-SXM", nodes=1, framework="megatron-core", global_batch=32)
    return Columns.of(
        [replace(topology, shape=Shape(hidden=model.hidden, layers=layers))], space.workload, space.cluster
    )


def stages_of(columns: Columns) -> list[Stages]:
    return [Stages(columns, np.array([at])) for at in range(int(columns.pp[0]))]


def chunk_sizes(layers: int, chunks: int, partition: str) -> list[int]:
    """Return the layers of each chunk of a pipeline, the first ones of the first stage first."""
    if partition == "layout":
        most = -(-layers // chunks)
        return [most] * (chunks - 1) + [layers - most * (chunks - 1)]
    units = layers + 2 * (partition == "embedding")
    sizes = [units // chunks + (chunk < units % chunks) for chunk in range(chunks)]
    if partition == "embedding":
        sizes[0] -= 1
        sizes[-1] -= 1
    return sizes


@given(
    st.sampled_from([DENSE, WINDOWED]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(2, 6),
    st.integers(0, 4),
    st.integers(1, 70),
    st.sampled_from(["layers", "embedding", "layout"]),
)
def test_a_stage_has_the_layers_of_its_chunks(
    model: Model, pp: int, vpp: int, period: int, start: int, layers: int, partition: Any
) -> None:
    sizes = chunk_sizes(layers, pp * vpp, partition)
    if min(sizes) < 0 or (pp == 1 and vpp > 1):
        return
    mixed = of_period(model, period)
    if mixed.delta_net:
        whole = [mixed.delta_net.has_attention(layer) for layer in range(layers)]
    else:
        mixed = replace(mixed, window_start=start)
        whole = [not mixed.is_windowed_layer(layer) for layer in range(layers)]
    columns = columns_of(mixed, layers, pp=pp, vpp=vpp, partition=partition)
    expected = [0] * pp
    for chunk, size in enumerate(sizes):
        before = sum(sizes[:chunk])
        expected[chunk % pp] += sum(whole[before : before + size])
    stages = stages_of(columns)
    assert [int(stage.whole_layers[0]) for stage in stages] == expected
    surplus = sum(whole) - layers * float(np.broadcast_to(columns.whole_share, 1)[0])
    assert sum(float(stage.whole_surplus[0]) for stage in stages) == pytest.approx(surplus, abs=1e-9)
    alone = columns_of(of_kind(model, whole=True), layers, pp=pp, vpp=vpp, partition=partition)
    assert [int(stage.whole_layers[0]) for stage in stages_of(alone)] == [
        int(stage.layers[0]) for stage in stages_of(alone)
    ]


SLOWEST = [
    ({"layers": 64, "pp": 16}, 4, (1, 3)),
    ({"layers": 64, "pp": 32}, 4, (1, 1)),
    ({"layers": 68, "pp": 34}, 8, (1, 1)),
    ({"layers": 22, "pp": 4}, 16, (1, 4)),
    ({"layers": 64, "pp": 16, "vpp": 2}, 4, (2, 2)),
    ({"layers": 64, "pp": 1}, 4, (16, 48)),
    ({"layers": 24, "pp": 8}, 4, (1, 2)),
    ({"layers": 26, "pp": 4}, 4, (2, 5)),
    ({"layers": 61, "pp": 8, "vpp": 2, "partition": "layout"}, 4, (2, 6)),
    ({"layers": 62, "pp": 16, "partition": "embedding"}, 4, (1, 3)),
    ({"layers": 38, "pp": 8, "partition": "embedding"}, 4, (2, 3)),
]


@pytest.mark.parametrize(
    ("model", "pipeline", "period", "slowest"),
    [(model, *case) for model in (LONG, WINDOWED) for case in SLOWEST]
    + [(SHORT, {"layers": 38, "pp": 8, "partition": "embedding"}, 4, (1, 4))],
)
def test_the_slowest_stage_is_the_one_whose_own_layers_take_longest(
    model: Model, pipeline: dict[str, Any], period: int, slowest: tuple[int, int]
) -> None:
    columns = columns_of(of_period(model, period), **pipeline)
    whole, other = (
        layer_seconds(part, SITE, Links(part, SITE)).terms()
        for part in (columns_of(of_kind(model, whole=whole), **pipeline) for whole in (True, False))
    )
    ratio = sum(float(each[0]) for each in whole.values()) / sum(float(each[0]) for each in other.values())
    assert ratio < 1 if model is SHORT else ratio > 2
    terms = time_terms(columns, SITE)
    for name in other:
        expected = slowest[0] * whole[name] + slowest[1] * other[name]
        assert float(terms[name][0]) == pytest.approx(float((columns.microbatches * expected)[0]), rel=1e-9), name


def test_a_term_that_the_slowest_stage_does_not_have_is_zero() -> None:
    """Gated DeltaNet repeats nothing with selective recompute, and the slowest stage has no other layers."""
    columns = columns_of(of_period(SHORT, 6), 33, pp=11, recompute="selective", micro_batch=1)
    recomputed = float(time_terms(columns, SITE)["recompute"][0])
    assert 0 <= recomputed < 1e-12


FULLEST = [*SLOWEST, ({"layers": 88, "pp": 10, "vpp": 3, "partition": "embedding"}, 8, None)]


@pytest.mark.parametrize(("pipeline", "period", "_"), FULLEST)
@pytest.mark.parametrize("model", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_the_worst_need_of_memory_is_that_of_the_fullest_of_all_stages(
    pipeline: dict[str, Any], period: int, _: Any, model: Model
) -> None:
    assert model.delta_net is not None
    columns = columns_of(replace(model, delta_net=replace(model.delta_net, period=period)), **pipeline)
    every = [float(needed_bytes(stage, SITE)[0]) for stage in stages_of(columns)]
    found = worst_need(columns, SITE)
    assert float(found.total[0]) == pytest.approx(max(every))
    assert every[int(found.stage[0])] == pytest.approx(max(every))


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("model", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_the_stages_have_the_parameters_of_the_model(model: Model, tp: int) -> None:
    """A stage without attention stores the matrices of Gated DeltaNet alone, of which each rank has a share."""
    columns = columns_of(model, model.layers, pp=model.layers // 2, tp=tp)
    first, second = (float(stage.parameters[0] - stage.table_parameters[0]) for stage in stages_of(columns)[:2])
    assert first - second == pytest.approx(float((columns.delta_net_matrices - columns.attention_matrices)[0]) / tp)
    whole = columns_of(model, model.layers, pp=1, tp=tp)
    together = sum(float(stage.parameters[0]) for stage in stages_of(columns))
    copied = bool(model.mtp_layers) * float((columns.padded_vocab * columns.hidden)[0]) / tp  # of the embedding
    assert together == pytest.approx(float(stages_of(whole)[0].parameters[0]) + copied)


def test_windows_change_nothing_in_what_context_parallel_ranks_exchange() -> None:
    """Transformer Engine gathers keys and values of all layers where some have a window, also of those without."""
    columns = columns_of(of_period(WINDOWED, 4), 64, pp=16, cp=4)
    times = MicrobatchTimes.of(columns, SITE)
    assert float(times.layer(columns).terms()["context_parallel"][0]) > 0
    assert float(times.more_of_whole()["context_parallel"][0]) == 0


def test_the_pipelines_fill_and_drain_have_the_layers_of_the_model() -> None:
    """Of 26 layers 6 attend to all tokens, more than a model of 64 layers has in the mean: 13 of 52."""
    columns = columns_of(of_period(WINDOWED, 4), 26, pp=13)
    whole, other = (
        layer_seconds(part, SITE, Links(part, SITE)).total[0]
        for part in (columns_of(of_kind(WINDOWED, whole=whole), 26, pp=13) for whole in (True, False))
    )
    times, links = MicrobatchTimes.of(columns, SITE), Links(columns, SITE)
    ends = float((times.head + times.embedding)[0])
    sends = float(_sends(columns, links)[0])
    passes = 6 * float(whole) + 20 * float(other) + ends + 13 * sends
    slowest = float(whole) + float(other) + sends
    assert float(time_terms(columns, SITE)["bubble"][0]) == pytest.approx(passes - slowest)
