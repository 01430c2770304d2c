"""Sliding windows: their effect on the time, exchange and operations of attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.costmodel.test_closed_forms import headless
from tests.costmodel.test_framework_terms import node_of, terms, under
from tuner.core.columns import Columns
from tuner.core.domain import Topology, Workload
from tuner.core.frameworks import context_exchange
from tuner.core.stack import Stack
from tuner.costmodel.flops import forward_terms, hardware_flops, megatron_core_count, printed_counts
from tuner.costmodel.kernels import flash_rates, head_speeds
from tuner.costmodel.site_factors import SiteFactors


def windowed(seq: int = 4096, *, window: int, skip: int = 0, start: int = 0) -> Workload:
    """Return a Megatron-Core workload with 24 layers, of which some have a sliding window."""
    workload = under("megatron-core", headless(4))
    model = replace(workload.model, seq=seq, sliding_window=window, window_skip=skip, window_start=start)
    return replace(workload, model=model, attention="flash2")


def attention_of(workload: Workload, gpu_name: str = "A100-80GB-SXM") -> float:
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")
    return terms(workload, node_of(gpu_name), topology)["attention"]


@pytest.mark.parametrize(("window", "skip", "share"), [(512, 0, 1.0), (512, 2, 0.5), (1024, 4, 0.75)])
def test_a_window_leaves_what_its_tiles_touch(window: int, skip: int, share: float) -> None:
    """With a window w, a token attends to w (1 - w / 2s) others on average, plus a tile of 64; without it, to s / 2."""
    kept = (window * (1 - window / 8192) + 64) / 2048
    whole, found = attention_of(windowed(window=0)), attention_of(windowed(window=window, skip=skip))
    assert found / whole == pytest.approx(1 - share + share * kept)


def test_a_window_from_a_later_layer_on_counts_those_layers_only() -> None:
    whole, all_layers = attention_of(windowed(window=0)), attention_of(windowed(window=512))
    assert attention_of(windowed(window=512, start=6)) == pytest.approx(0.25 * whole + 0.75 * all_layers)


@pytest.mark.parametrize("window", [4096, 8192])
def test_a_window_as_long_as_the_sequence_is_none(window: int) -> None:
    assert attention_of(windowed(window=window)) == attention_of(windowed(window=0))


def test_attention_in_a_window_runs_at_the_rate_of_a_short_sequence() -> None:
    """On Hopper, attention in a window has cuDNN's rate for a sequence with equally many attended tokens."""
    kept = 1024 * (1 - 1024 / 16384) + 64
    full = attention_of(windowed(8192, window=0), "H100-80GB-SXM")
    found = attention_of(windowed(8192, window=1024), "H100-80GB-SXM")
    short, long = 2 / 484 + 5 / 370, 2 / 644 + 5 / 541  # two products forward and five backward, at 2k and 8k tokens
    assert found / full == pytest.approx(kept / 4096 * short / long)


def test_transformer_engine_exchanges_what_windows_and_sinks_can_do_with() -> None:
    """Transformer Engine's ring supports neither windows nor sinks; a stated exchange overrides the default."""
    window, sinks = windowed(window=512), windowed(window=512)
    sinks = replace(sinks, model=replace(sinks.model, attention_sinks=True))
    assert context_exchange(window) == "all_gather"
    assert context_exchange(sinks) == "a2a"
    assert context_exchange(windowed(window=4096)) == "p2p"
    assert context_exchange(replace(window, framework=None)) == "p2p"
    assert context_exchange(replace(sinks, stack=Stack(cp_comm="all_gather"))) == "all_gather"


def test_operations_of_a_window_are_those_inside_it() -> None:
    """Only scores inside a window count as operations, while Megatron-Core's printed count includes all scores."""
    workload = windowed(window=512, skip=2)
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")
    columns, whole = (Columns.of([topology], each, node_of("A100-80GB-SXM")) for each in (workload, windowed(window=0)))
    scores, full = forward_terms(columns)["scores"], forward_terms(whole)["scores"]
    assert float(scores[0] / full[0]) == pytest.approx(0.5 + 0.5 * 512 * (2 - 512 / 4096) / 4096)
    assert megatron_core_count(columns) == pytest.approx(megatron_core_count(whole))
    name = "the count with the scores outside of windows"
    assert printed_counts(columns)[name] == pytest.approx(hardware_flops(whole))
    assert name not in printed_counts(whole)


@pytest.mark.parametrize(
    ("gpu", "forward", "backward"),
    [
        ("H100-80GB-SXM", [0.77, 0.77, 0.885, 1.0, 1.0, 1.0], [0.86, 0.86, 0.93, 1.0, 0.85, 0.85]),
        ("B200-180GB-SXM", [0.62, 0.62, 0.81, 1.0, 1.0, 1.0], [0.82, 0.82, 0.91, 1.0, 0.92, 0.92]),
        ("A100-80GB-SXM", 1.0, 1.0),
    ],
)
def test_attention_is_slower_with_narrow_heads_from_hopper_on(gpu: str, forward: object, backward: object) -> None:
    """From Hopper on, the speed depends on the head width, constant below 64 and above 192."""
    widths = np.array([32.0, 64.0, 96.0, 128.0, 192.0, 256.0])
    speeds = head_speeds(node_of(gpu).gpu, windowed(window=0), widths)
    assert speeds[0] == pytest.approx(forward)
    assert speeds[1] == pytest.approx(backward)


def test_only_transformer_engines_kernel_is_known_by_the_width_of_its_heads() -> None:
    gpu, narrow = node_of("H100-80GB-SXM").gpu, np.array([64.0])
    assert head_speeds(gpu, replace(under("deepspeed", headless(4)), attention="flash2"), narrow) == (1.0, 1.0)
    assert head_speeds(gpu, replace(windowed(window=0), attention="eager"), narrow) == (1.0, 1.0)


def test_twice_the_heads_of_half_the_width_take_longer_by_what_their_kernel_is_slower() -> None:
    """Twice as many heads of half the width have the same operations, but run at the slower rate of their kernel."""
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")
    model = replace(windowed(window=0).model, hidden=2048, heads=16, kv_heads=16)
    wide, narrow = (
        terms(
            replace(windowed(window=0), model=replace(model, heads=heads, kv_heads=heads)),
            node_of("B200-180GB-SXM"),
            topology,
        )
        for heads in (16, 32)
    )
    gpu = node_of("B200-180GB-SXM").gpu
    ahead, back = flash_rates(gpu, windowed(window=0), SiteFactors(), 4096)
    slower = (1 / ahead / 0.62 + 2.5 / back / 0.82) / (1 / ahead + 2.5 / back)
    assert narrow["attention"] / wide["attention"] == pytest.approx(slower)
