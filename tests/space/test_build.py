"""Model, precision and framework of a described space."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny
from tuner.core.catalog import gpu
from tuner.core.errors import InputError
from tuner.core.stack import Stack
from tuner.space.build import _usual, model_of, of_a_job, space_for


@pytest.mark.parametrize(
    ("preset", "seq", "card", "precision", "framework", "expected"),
    [
        ({}, 2048, "A100-80GB-SXM", None, None, ("bf16", "flash2")),
        ({}, 2048, "V100-32GB-SXM", None, None, ("fp16", "fused")),
        ({"precision": "bf16"}, 2048, "V100-32GB-SXM", None, None, ("fp16", "fused")),
        ({"precision": "fp32"}, 2048, "A100-80GB-SXM", None, None, ("fp32", "flash2")),
        ({}, 2048, "A100-80GB-SXM", "fp32", None, ("bf16", "eager")),
        ({"attention": "fused"}, 4096, "A100-80GB-SXM", None, None, ("bf16", "fused")),
        ({"attention": "fused"}, 4100, "A100-80GB-SXM", None, None, ("bf16", "flash2")),
        ({"attention": "fused"}, 2050, "A100-80GB-SXM", None, None, ("bf16", "flash2")),
        ({"attention": "fused"}, 2048, "H100-80GB-SXM", "fp8", None, ("bf16", "flash2")),
        ({"attention": "fused"}, 8192, "V100-32GB-SXM", None, None, ("fp16", "eager")),
        ({"attention": "flash1"}, 8192, "A100-80GB-SXM", None, None, ("bf16", "flash1")),
        ({"attention": "flash1"}, 2048, "A100-80GB-SXM", None, "megatron-core", ("bf16", "flash2")),
        ({"attention": "fused"}, 2048, "A100-80GB-SXM", None, "fsdp2", ("bf16", "flash2")),
        ({"attention": "fused"}, 2048, "V100-32GB-SXM", None, "fsdp2", ("fp16", "eager")),
        ({"precision": "fp16"}, 2048, "A100-80GB-SXM", None, "torchtitan", ("bf16", "flash2")),
        ({"precision": "fp16"}, 2048, "A100-80GB-SXM", None, "fsdp2", ("fp16", "flash2")),
    ],
)
def test_a_preset_keeps_its_precision_and_kernel_if_they_are_supported(
    preset: dict[str, Any], seq: int, card: str, precision: Any, framework: Any, expected: tuple[str, str]
) -> None:
    """The fused kernel supports 16 bits and up to 4096 tokens in multiples of 4."""
    found = _usual(preset, tiny(seq=seq), gpu(card), precision, framework)
    assert (found["precision"], found["attention"]) == expected


def test_learned_positions_follow_the_sequence_only_if_they_did_before() -> None:
    follows = tiny(seq=32)
    assert (model_of(follows, None), model_of(follows, 64).max_positions) == (follows, 64)
    longer = tiny(seq=32, max_positions=48)
    assert (model_of(longer, 48).seq, model_of(longer, 16).max_positions) == (48, 48)
    with pytest.raises(InputError, match="tiny has 48 learned positions; --seq must be at most that, not 49"):
        model_of(longer, 49)
    assert model_of(replace(longer, positions="rotary"), 49).seq == 49


@pytest.mark.parametrize("suffix", ["toml", "json"])
@pytest.mark.parametrize(("stated", "seq", "positions"), [(True, 16, 32), (False, 16, 16), (False, 64, 64)])
def test_stated_positions_do_not_follow_the_sequence(
    stated: bool, seq: int, positions: int, suffix: str, tmp_path: Path
) -> None:
    described = tmp_path / f"small.{suffix}"
    fields = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 512, "seq": 32, "positions": "learned"}
    fields |= {"max_positions": 32} if stated else {}
    table = "\n".join(["[model.small]", *(f"{name} = {value!r}" for name, value in fields.items())])
    described.write_text(table if suffix == "toml" else json.dumps(fields))
    assert model_of(str(described), seq).max_positions == positions
    if stated:
        with pytest.raises(InputError, match="small has 32 learned positions; --seq must be at most that, not 33"):
            model_of(str(described), 33)


def test_heads_must_be_a_multiple_of_key_value_heads() -> None:
    odd = tiny(heads=6, kv_heads=4, hidden=96)
    with pytest.raises(InputError, match="tiny: heads must be a multiple of kv_heads, but 6 is not a multiple of 4"):
        space_for(model=odd, nodes=1)
    assert space_for(model=odd, nodes=1, settings=["heads=8"]).axes["heads"] == (8,)


@pytest.mark.parametrize("name", ["settings", "allow"])
def test_a_string_is_refused_where_a_list_is_required(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} is a list of strings, such as \['tp=4'\]; got 'tp=4'"):
        space_for(**{name: "tp=4"})  # type: ignore[arg-type]


def test_a_model_may_be_specified_by_its_path(tmp_path: Path) -> None:
    described = tmp_path / "small.toml"
    described.write_text("[model.small]\nlayers = 2\nhidden = 64\nheads = 4\nvocab = 512\nseq = 32\n")
    assert space_for(model=described).workload == space_for(model=str(described)).workload


@pytest.mark.parametrize(("given", "framework"), [({}, "any"), ({"framework": "fsdp2"}, "fsdp2")])
def test_a_job_has_only_an_explicit_framework(given: Any, framework: str) -> None:
    description: Any = {**given, "nodes": 2}
    assert of_a_job(description) == {"nodes": 2, "framework": framework}


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"precision": "bf16"}, "--fp8-weights needs --precision fp8, not bf16"),
        ({"precision": "fp8", "framework": "torchtitan"}, "does not apply to torchtitan"),
        ({"precision": "fp8", "framework": "any"}, "does not apply to any framework"),
    ],
)
def test_fp8_weights_need_fp8_and_megatron_core(described: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=1, fp8_weights=True, **described)


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"precision": "bf16"}, "--bf16-layers needs --precision fp8 or fp4, not bf16"),
        ({"precision": "fp8", "framework": "torchtitan"}, "does not apply to torchtitan"),
        ({"precision": "fp8", "framework": "any"}, "does not apply to any framework"),
        ({"precision": "fp8"}, "not possible with delayed scaling"),
        ({"precision": "fp4", "bf16_layers": "30,4"}, "names 34 layers, but the model has 32"),
        ({"precision": "fp4", "bf16_layers": "4"}, "two numbers"),
    ],
)
def test_layers_in_bf16_need_fp8_or_fp4_and_megatron_core(described: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        space_for(**{"model": "llama-3-8b", "gpu": "B200-180GB-SXM", "nodes": 1, "bf16_layers": "1,4", **described})


def test_no_layers_in_bf16_are_the_default() -> None:
    usual, given = (
        space_for(model="llama-3-8b", gpu="B200-180GB-SXM", nodes=1, precision="fp4", bf16_layers=layers)
        for layers in (None, "0,0")
    )
    assert given.workload == usual.workload
    kept = space_for(model="llama-3-8b", gpu="B200-180GB-SXM", nodes=1, precision="fp4", bf16_layers="0,4")
    assert kept.workload.stack == Stack(bf16_layers=(0, 4))
