"""Gated DeltaNet: its kernels beside published benchmarks, and counts of operations, traffic, memory and exchanges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.costmodel.test_muon import orthogonal
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.delta_net import DeltaNet
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.shape import Shape
from tuner.costmodel.activations import layer_activations
from tuner.costmodel.delta_net import delta_rule, kept_values, moved_values
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.flops import forward_terms, megatron_core_count
from tuner.costmodel.fully_sharded import fully_sharded_terms
from tuner.costmodel.kernels import linear
from tuner.costmodel.layer import layer_seconds
from tuner.costmodel.layer_exchanges import context_exchanges
from tuner.costmodel.links import Links
from tuner.costmodel.matrices import attention_weights
from tuner.costmodel.microbatch import MicrobatchTimes
from tuner.costmodel.muon import _mixing
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for

QWEN35 = catalog.model("qwen3.6-35b-a3b")
DENSE = catalog.model("qwen3.8-27b")
SITE = SiteFactors()
KEYS, VALUES, HEADS = 16 * 128, 32 * 128, 32
"""Columns of the 35B's queries and of its values, and its value heads."""


def columns_of(model: Model, card: str = "H200-141GB-SXM", **topology: Any) -> Columns:
    fields: dict[str, Any] = {"nodes": 1, "tp": 1, "pp": 1, "dp": 1, "micro_batch": 1, "recompute": "none", **topology}
    found = Topology(**fields)
    space = space_for(model=model, gpu=card, nodes=1, framework="megatron-core", global_batch=8)
    return Columns.of([found], space.workload, space.cluster)


def uniform(model: Model, *, linear: bool) -> Model:
    """Return the model with attention or with Gated DeltaNet in all layers."""
    assert model.delta_net is not None
    return replace(model, delta_net=replace(model.delta_net, period=0) if linear else None)


FORWARD = [
    ("H200-141GB-SXM", 64, 1, 8192, 0.814),
    ("H200-141GB-SXM", 32, 1, 8192, 0.472),
    ("H200-141GB-SXM", 8, 1, 32768, 0.902),
    ("H200-141GB-SXM", 8, 4, 8192, 0.467),
    ("H200-141GB-SXM", 64, 4, 8192, 3.362),
    ("H200-141GB-SXM", 48, 8, 1024, 0.650),
    ("GB200-192GB", 64, 1, 8192, 0.761),
    ("GB200-192GB", 16, 1, 8192, 0.346),
    ("GB200-192GB", 8, 8, 4096, 0.383),
    ("GB200-192GB", 64, 4, 8192, 3.005),
    ("H20-96GB-SXM", 96, 1, 8192, 3.1985),
    ("H20-96GB-SXM", 64, 8, 1024, 1.9568),
]
BACKWARD = [
    ("H200-141GB-SXM", 32, 1, 8192, 1.444),
    ("H200-141GB-SXM", 16, 1, 32768, 3.701),
    ("H200-141GB-SXM", 8, 1, 32768, 2.743),
    ("GB200-192GB", 32, 1, 32768, 6.171),
    ("GB200-192GB", 8, 1, 8192, 0.843),
    ("GB200-192GB", 4, 1, 32768, 2.690),
]


@pytest.mark.parametrize(
    ("index", "card", "heads", "sequences", "seq", "measured"),
    [*((0, *row) for row in FORWARD), *((1, *row) for row in BACKWARD)],
)
def test_the_delta_rule_takes_as_long_as_in_published_benchmarks(
    index: int, card: str, heads: int, sequences: int, seq: int, measured: float
) -> None:
    """Milliseconds of flash-linear-attention (FlashQLA's benchmark on H200 and GB200, FlashKDA's on H20)."""
    delta = DeltaNet(key_heads=heads, value_heads=heads, period=0)
    model = replace(QWEN35, delta_net=delta, seq=seq, max_positions=seq)
    columns = columns_of(model, card, micro_batch=sequences)
    seconds = delta_rule(columns, delta, columns.tokens, SITE)[index]
    assert float(seconds[0]) * 1e3 == pytest.approx(measured, rel=0.17)


@pytest.mark.parametrize("axis", ["tp", "cp"])
def test_ranks_share_the_heads_but_not_the_scan_over_chunks(axis: str) -> None:
    model = uniform(QWEN35, linear=True)
    assert model.delta_net is not None
    one, four = (
        float(delta_rule(columns, model.delta_net, columns.tokens, SITE)[0][0])
        for columns in (columns_of(model), columns_of(model, tp=4) if axis == "tp" else columns_of(model, cp=4))
    )
    each, scan = 1.27e-9, 18.3e-9
    assert one - four == pytest.approx(4096 * each * (HEADS - HEADS / 4), rel=1e-3)
    assert four == pytest.approx(4096 * (each * HEADS / 4 + scan), rel=1e-3)


def test_a_model_averages_its_kinds_of_layers() -> None:
    """Three quarters of the layers have Gated DeltaNet; each term of a layer is the mean, and so is what it keeps."""
    topology: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "micro_batch": 2}
    whole = columns_of(DENSE, **topology)
    parts = [columns_of(uniform(DENSE, linear=linear), **topology) for linear in (False, True)]
    found = MicrobatchTimes.of(whole, SITE).layer(whole).terms()
    apart = [layer_seconds(part, SITE, Links(part, SITE)).terms() for part in parts]
    assert apart[0]["attention"] != apart[1]["attention"]
    for name, seconds in found.items():
        assert float(seconds[0]) == pytest.approx(float(0.25 * apart[0][name][0] + 0.75 * apart[1][name][0])), name
    kept, with_attention, without = (float(layer_activations(Stages.first(columns))[0]) for columns in (whole, *parts))
    assert kept == pytest.approx(0.25 * with_attention + 0.75 * without)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_selective_recompute_repeats_attention_alone(recompute: Any) -> None:
    """Megatron checkpoints the core of attention, not the delta rule; with full recompute a layer is computed again."""
    linear, attention = (
        layer_seconds(columns, SITE, Links(columns, SITE)).terms()["recompute"]
        for columns in (columns_of(uniform(DENSE, linear=kind), recompute=recompute) for kind in (True, False))
    )
    assert (float(linear[0]) > 0) == (recompute == "full")
    assert (float(attention[0]) > 0) == (recompute != "none")


def test_torchtitans_selective_checkpoints_repeat_the_rule_and_the_output() -> None:
    """Of the two products the first is saved; no kernel of flash-linear-attention is among the saved operations."""
    model = uniform(DENSE, linear=True)
    space = space_for(model=model, gpu="H100-80GB-SXM", nodes=1, framework="torchtitan", global_batch=8)
    rows = [
        Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=3, recompute=kind) for kind in ("none", "selective")
    ]
    columns = Columns.of(rows, space.workload, space.cluster)
    seconds = layer_seconds(columns, SITE, Links(columns, SITE)).terms()
    assert model.delta_net is not None
    rule = delta_rule(columns, model.delta_net, columns.tokens, SITE)[0]
    tokens, width = columns.tokens, model.delta_net.value_width
    output = linear(space.cluster.gpu, space.workload, SITE, tokens, 5120, width)[0]
    up = linear(space.cluster.gpu, space.workload, SITE, tokens, 17408, 5120)[0]
    assert seconds["recompute"][0] == 0
    assert float(seconds["recompute"][1]) >= float((rule + output + up)[1])
    kept = fully_sharded_terms(Stages.first(columns), SITE)["activations"]
    saved = 5120 + model.delta_net.projected + 17408 + 5120  # a sum's input, both first products, the gated product
    assert float(kept[1]) == pytest.approx(64 * 4096 * 2 * saved, rel=0.25)
    assert kept[1] < kept[0]


def test_each_depth_has_its_own_share_of_attention() -> None:
    """Rows of several depths are estimated as each alone, together or not."""
    depths = (2, 3, 6, 64)
    shapes = [Shape(hidden=5120, layers=layers) for layers in depths]
    rows = [Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, shape=shape) for shape in shapes]
    space = space_for(model=DENSE, gpu="H100-80GB-SXM", nodes=1, framework="megatron-core", global_batch=8)
    together = CostModel().score(Columns.of(rows, space.workload, space.cluster))
    assert Columns.of(rows, space.workload, space.cluster).attention_layers.tolist() == [0, 0, 1, 16]
    for index, row in enumerate(rows):
        one = space.workload.as_in(row)
        alone = CostModel().score(Columns.of([replace(row, shape=None)], one, space.cluster))
        assert float(alone.seconds[0]) == pytest.approx(float(together.seconds[index]), rel=1e-12)
        assert float(alone.memory[0]) == pytest.approx(float(together.memory[index]), rel=1e-12)


def test_a_layer_of_multi_token_prediction_takes_as_long_as_one_with_attention() -> None:
    model = replace(DENSE, seq=131072, max_positions=262144)
    columns = columns_of(model, tp=4, sequence_parallel=True)
    times = MicrobatchTimes.of(columns, SITE)
    part = columns_of(uniform(model, linear=False), tp=4, sequence_parallel=True)
    attended = layer_seconds(part, SITE, Links(part, SITE)).total
    average = times.layer(columns)
    ahead, back = linear(part.cluster.gpu, part.workload, SITE, part.tokens, part.hidden / 4, 2 * part.hidden)
    assert float(times.predictor(average)[0]) == pytest.approx(float((attended + ahead + back)[0]))
    assert float(attended[0]) > 1.5 * float(average.total[0])


def test_a_rank_stores_its_share_of_both_kinds_of_layers() -> None:
    """The 27B: attention of 24 heads of 256 with a gate, and 4 key/value heads; three layers in four have Gated
    DeltaNet with 16 key and 48 value heads of 128."""
    attention = 5120 * (3 * 24 + 2 * 4) * 256
    linear = 5120 * (2 * 16 * 128 + 2 * 48 * 128 + 2 * 48) + 48 * 128 * 5120
    each = (attention + 3 * linear) / 4
    assert float(attention_weights(columns_of(DENSE, tp=4))[0]) == pytest.approx(each / 4)
    assert float(columns_of(DENSE).mixing_matrices[0]) == pytest.approx(each)
    tables = 2 * 248320 * 5120
    outside = 64 * 3 * 5120 * 17408 + tables + 64 * 2 * 5120  # MLPs, embedding, output layer and norms
    stored = float(Stages.first(columns_of(replace(DENSE, mtp_layers=0))).parameters[0])
    assert stored == pytest.approx(64 * each + outside)
    assert float(Stages.first(columns_of(DENSE)).parameters[0]) == pytest.approx(DENSE.parameters, rel=1e-4)


def test_operations_are_those_that_megatron_core_counts() -> None:
    """`num_floating_point_operations` with linear attention, written out for Qwen3-Next."""
    model = replace(catalog.model("qwen3-next-80b-a3b"), seq=4096)
    hidden, width, keys = 2048, 16 * 256, 2 * 256
    attention = hidden * (2 * width + 2 * keys) + width * hidden + width * 4096  # the last: half of the scores, twice
    linear = hidden * (2 * KEYS + 2 * VALUES + 2 * HEADS) + 4 * (2 * KEYS + VALUES) + HEADS * 128**2 * 4
    linear += hidden * VALUES
    experts = 3 * hidden * (10 * 512 + 512)
    token = 12 * attention + 36 * linear + 48 * experts + hidden * 151936
    found = megatron_core_count(columns_of(model))
    assert float(found[0]) == pytest.approx(6 * 8 * 4096 * token)


def test_multi_token_prediction_has_attention() -> None:
    """Its layer has scores and the matrices of attention, whatever most layers have."""
    plain, predicting = (forward_terms(columns_of(replace(DENSE, mtp_layers=number))) for number in (0, 1))
    tokens = 8 * 4096
    assert float(predicting["scores"][0] / plain["scores"][0]) == pytest.approx(17 / 16)
    layer = 5120 * (3 * 24 + 2 * 4) * 256 + 3 * 5120 * 17408 + 2 * 5120**2
    assert float(predicting["layers"][0] - plain["layers"][0]) == pytest.approx(2 * tokens * layer)


def test_what_a_token_moves_and_keeps_is_counted_from_megatrons_code() -> None:
    """Queries and keys are repeated for twice as many value heads; a chunk of 64 tokens keeps its inverted matrix."""
    delta = QWEN35.delta_net
    assert delta is not None
    convolved, repeated = 2 * KEYS + VALUES, 2 * HEADS * 128
    norms = 2 * 2 * KEYS + 2 * 2 * KEYS  # a copy of queries and keys, and their L2 norm: read and write
    assert moved_values(delta) == 2 * convolved + norms + (2 * KEYS + repeated) + 2 * VALUES + 2 * VALUES + 5 * VALUES
    kept = 2 * KEYS + 2 * VALUES + 2 * HEADS + 2 * KEYS + repeated + 5 * VALUES + HEADS * (64 + 3)
    assert kept_values(delta) == kept
    equal = replace(delta, key_heads=32)
    assert kept_values(equal) == 4 * VALUES + 2 * HEADS + 2 * VALUES + 5 * VALUES + HEADS * 67  # nothing to repeat
    columns = columns_of(uniform(QWEN35, linear=True))
    more = columns_of(uniform(replace(QWEN35, delta_net=replace(delta, value_heads=48)), linear=True))
    beside = [float(layer_activations(Stages.first(each))[0]) for each in (columns, more)]
    wider = replace(delta, value_heads=48)
    assert beside[1] - beside[0] == pytest.approx(4096 * 2 * (kept_values(wider) - kept))


def test_context_parallel_ranks_exchange_the_projections_of_their_heads() -> None:
    """Before the convolution and after the output, each rank sends all but its share of its tokens' columns."""
    columns = columns_of(uniform(QWEN35, linear=True), cp=4)
    links = Links(columns, SITE)
    zeros = np.zeros(1)
    ahead, back = context_exchanges(columns, columns.tokens, SITE, links, (zeros, zeros))
    moved = 1024 * (2 * KEYS + 2 * VALUES + 2 * HEADS + VALUES) * 2 * 3 / 4
    bandwidth, latency = (float(np.ravel(one)[0]) for one in links.heads)
    assert float(ahead[0]) == float(back[0]) == pytest.approx(moved / bandwidth + 2 * latency)


def test_the_gate_of_attention_is_a_third_matrix_of_its_width() -> None:
    gated, plain = (replace(QWEN35, attention_gate=on, delta_net=None) for on in (True, False))
    width = 16 * 256
    assert gated.attention_matrices - plain.attention_matrices == 2048 * width
    assert gated.attention_parameters - plain.attention_parameters == 2048 * width
    kept = [float(layer_activations(Stages.first(columns_of(model)))[0]) for model in (gated, plain)]
    assert kept[0] - kept[1] == pytest.approx(4096 * 2 * 2 * width)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key_heads": 16, "value_heads": 24}, "value_heads must be a multiple of key_heads=16, not 24"),
        ({"key_heads": 16, "value_heads": 32, "period": 1}, "period must be 0 or at least 2"),
        ({"key_heads": 0, "value_heads": 32}, "key_heads must be between 1 and"),
    ],
)
def test_impossible_sizes_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DeltaNet(**fields)


def test_what_no_layer_has_together_is_refused() -> None:
    with pytest.raises(InputError, match="sliding_window must be 0 with delta_net"):
        replace(QWEN35, sliding_window=128)
    with pytest.raises(InputError, match="attention_gate must be false with latent"):
        replace(catalog.model("deepseek-v3"), attention_gate=True)


def test_muon_updates_the_projections_of_both_kinds() -> None:
    """An average layer has three quarters of Gated DeltaNet's two matrices and a quarter of attention's four, the first
    of them twice as wide with its gate."""
    columns = columns_of(QWEN35)
    found, most = _mixing(columns)
    attention = sum(map(orthogonal, (2 * 4096, 512, 512, 4096), (2048,) * 4))
    projected = 2 * KEYS + 2 * VALUES + 2 * HEADS
    linear = orthogonal(projected, 2048) + orthogonal(2048, VALUES)
    assert float(np.ravel(found)[0]) == pytest.approx(0.25 * attention + 0.75 * linear)
    assert float(np.ravel(most)[0]) == pytest.approx(orthogonal(projected, 2048))
