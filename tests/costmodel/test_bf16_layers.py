"""First and last layers in bf16 beside fp8 or fp4 layers: time of the slowest stage, memory by stage, the space."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.precision import bf16_layers, parse_bf16_layers
from tuner.core.stack import Stack
from tuner.costmodel.kernels import gathered_weight_bytes
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import seconds, time_terms
from tuner.space.build import space_for

DENSE = replace(QWEN3_30B, experts=None, qk_norm=False, ffn=6144)
SITE = SiteFactors()


def columns(kept: tuple[int, int] | None, pp: int = 1, vpp: int = 1, **fields: Any) -> Columns:
    """Return one topology of 48 layers on 8 GPUs, with so many first and last layers in bf16."""
    space = space_for(model=DENSE, gpu="B200-180GB-SXM", nodes=1, global_batch=256)
    stack = Stack(bf16_layers=kept, quantized_weights=fields.pop("stored", None))
    usual = {"framework": "megatron-core", "precision": "fp4", "stack": None if stack == Stack() else stack}
    workload = replace(space.workload, **{**usual, **fields})
    row = Topology(nodes=1, tp=1, pp=pp, dp=8 // pp, micro_batch=1, vpp=vpp, recompute="none", zero=1)
    return Columns.of([row], workload, space.cluster)


def time(kept: tuple[int, int] | None, **fields: Any) -> float:
    return float(seconds(columns(kept, **fields), SITE)[0])


def memory(kept: tuple[int, int] | None, at: int, **fields: Any) -> dict[str, float]:
    one = columns(kept, **fields)
    terms = memory_terms(Stages(one, np.array([at])), SITE)
    return {name: float(value[0]) for name, value in terms.items()}


@pytest.mark.parametrize(
    ("kept", "pp", "vpp", "expected"),
    [
        ((1, 4), 1, 1, [5]),
        ((1, 4), 4, 1, [1, 0, 0, 4]),
        ((14, 0), 4, 1, [12, 2, 0, 0]),
        ((0, 14), 4, 1, [0, 0, 2, 12]),
        ((3, 5), 4, 4, [3, 0, 2, 3]),
        ((0, 0), 4, 1, [0, 0, 0, 0]),
    ],
)
def test_each_stage_keeps_those_of_its_layers(kept: tuple[int, int], pp: int, vpp: int, expected: list[int]) -> None:
    one = columns(kept, pp=pp, vpp=vpp)
    assert [float(Stages(one, np.array([at])).bf16_layers[0]) for at in range(pp)] == expected


def test_all_layers_in_bf16_take_the_time_of_bf16() -> None:
    assert time((48, 0)) == pytest.approx(time(None, precision="bf16"), rel=1e-9)
    assert time((24, 24)) == pytest.approx(time(None, precision="bf16"), rel=1e-9)


def test_time_grows_by_the_same_amount_with_each_layer() -> None:
    steps = np.diff([time((0, kept)) for kept in range(5)])
    assert steps == pytest.approx(np.full(4, steps[0]))
    assert steps[0] > 0


def test_a_pipeline_waits_for_the_stage_with_layers_in_bf16() -> None:
    """Its layers delay every microbatch; those of another stage only fill and drain the pipeline."""
    base = time(None, pp=4)
    last, first, both = (time(kept, pp=4) - base for kept in ((0, 4), (4, 0), (4, 4)))
    assert 0 < first < last / 100, "the last stage has the head"
    assert both == pytest.approx(first + last)
    assert time_terms(columns((0, 4), pp=4), SITE)["products"][0] > time_terms(columns(None, pp=4), SITE)["products"][0]


@pytest.mark.parametrize("pp", [1, 2, 8])
def test_no_term_is_negative(pp: int) -> None:
    for kept in ((6, 0), (0, 6), (3, 2)):
        assert all((value >= 0).all() for value in time_terms(columns(kept, pp=pp), SITE).values()), kept


def test_only_the_stage_of_the_layers_needs_more_memory_for_activations_and_less_for_copies() -> None:
    """A stage with only such layers needs what a stage in bf16 does."""
    plain, kept = (memory(layers, 3, pp=4) for layers in (None, (0, 12)))
    halves = memory(None, 3, pp=4, precision="bf16")
    assert kept == pytest.approx(halves)
    assert kept["activations"] > plain["activations"]
    assert kept["weights"] < plain["weights"]
    assert memory((0, 12), 0, pp=4) == memory(None, 0, pp=4)


def test_weights_stored_in_fp8_are_gathered_in_16_bits_where_they_stay_in_bf16() -> None:
    fields: dict[str, Any] = {"precision": "fp8", "precision_recipe": "tensorwise", "stored": True}
    sizes = [gathered_weight_bytes(columns(kept, **fields).workload) for kept in (None, (12, 12), (48, 0))]
    assert sizes == pytest.approx([1, 1.5, 2])


def test_without_fp8_and_fp4_no_layer_is_kept() -> None:
    workload = Workload(model=DENSE, global_batch=8, precision="bf16", stack=Stack(bf16_layers=(1, 4)))
    assert bf16_layers(workload) == (0, 0)
    assert bf16_layers(replace(workload, precision="fp8")) == (1, 4)


@pytest.mark.parametrize("text", ["1,4", " 1, 4 ", "1 4", "0,14"])
def test_two_numbers_are_read(text: str) -> None:
    first, last = parse_bf16_layers(text)
    assert (first, last) in ((1, 4), (0, 14))


@pytest.mark.parametrize("text", ["", "4", "1,2,3", "-1,4", "1.5,2", "one,two", "1,9999999"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="two numbers"):
        parse_bf16_layers(text)


@pytest.mark.parametrize("value", [(1,), (1, 2, 3), (-1, 2), (1.0, 2), [1, 2], "1,4"])
def test_a_stack_refuses_anything_but_two_counts(value: Any) -> None:
    with pytest.raises(InputError, match="bf16_layers must be two numbers"):
        Stack(bf16_layers=value)
