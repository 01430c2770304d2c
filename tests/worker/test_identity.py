"""The worker builds every property of the requested model, or refuses the job and names the property."""

from __future__ import annotations

import cmath
import math
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.worker.test_worker import run_program
from tests.worker.test_worker_arithmetic import maker, torch
from tests.workers import WORKLOAD, tiny, topology
from tuner.core import worker_refusals as refusals
from tuner.core.domain import Workload
from tuner.core.errors import InputError, NothingUsable
from tuner.core.model import IDENTITY, Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.worker_refusals import BUILT, refuse
from tuner.worker import train
from tuner.worker.block import Block, eager_attention
from tuner.worker.linear import Recipe, norm_of
from tuner.worker.mlp import FUNCTIONS, Mlp
from tuner.worker.rotary import alibi_slopes, rotary_rates, rotated
from tuner.worker.vocabulary import Loss, Positions


def recipe(**sizes: Any) -> Recipe:
    return Recipe(workload=replace(WORKLOAD, model=tiny(**sizes)), recompute_attention=False, microbatches=1)


def built(**sizes: Any) -> Block:
    return Block(recipe(**sizes), maker("layer0"), 0)


FORMULAS: dict[str, Any] = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_an_mlp_has_the_models_activation(name: str) -> None:
    """Activations are compared at five points, where no two agree, gated and not."""
    values = [-2.5, -0.7, 0.3, 1.1, 4.0]
    expected = [FORMULAS[name](value) for value in values]
    assert FUNCTIONS[name](torch.tensor(values)).tolist() == pytest.approx(expected, rel=1e-5)  # type: ignore[index]
    for gated in (False, True):
        mlp = Mlp(recipe(activation=name, gated_mlp=gated), maker("mlp"))
        inputs = torch.randn(2, 1, 64)
        inner = mlp.up(inputs)
        middle = FUNCTIONS[name](inner[..., :256]) * (inner[..., 256:] if gated else 1.0)  # type: ignore[index]
        torch.testing.assert_close(mlp(inputs), mlp.down(middle))
    assert set(FORMULAS) == set(FUNCTIONS) == set(refusals.ACTIVATIONS)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_norm_has_the_models_epsilon_and_offset(norm: Any, fused: bool) -> None:
    workload = replace(WORKLOAD, model=tiny(norm=norm, norm_epsilon=0.5, norm_offset=True), fused_norms=fused)
    made = norm_of(workload, maker("norm"), 4)
    values = [1.0, 2.0, 4.0, 9.0]
    mean = sum(values) / 4 if norm == "layernorm" else 0.0
    root = math.sqrt(sum((value - mean) ** 2 for value in values) / 4 + 0.5)
    assert made.weight.tolist() == [0.0] * 4
    unbiased = norm_of(replace(workload, model=replace(workload.model, norm_bias=False)), maker("norm"), 4)
    assert unbiased.bias is None
    assert torch.equal(unbiased(torch.tensor(values)), made(torch.tensor(values)))
    assert made(torch.tensor(values)).tolist() == pytest.approx([(value - mean) / root for value in values], rel=1e-5)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_rotary_positions_rotate_pairs_with_the_models_fraction_and_base(interleaved: bool, fraction: float) -> None:
    """Pair i at position p is multiplied by exp(1j p base^(-2i / width)); the rest of the head is unchanged."""
    model = tiny(positions="rotary", rotary_base=500.0, rotary_fraction=fraction, rotary_interleaved=interleaved)
    heads = torch.randn(5, 1, 1, 8)
    width = int(8 * fraction)
    found = rotated(heads, model)
    for position in range(5):
        for pair in range(width // 2):
            first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + width // 2)
            value = complex(heads[position, 0, 0, first], heads[position, 0, 0, second])
            turned = value * cmath.exp(1j * position * 500.0 ** (-2 * pair / width))
            there = found[position, 0, 0]
            assert (float(there[first]), float(there[second])) == pytest.approx((turned.real, turned.imag), abs=1e-5)
    assert torch.equal(found[..., width:], heads[..., width:])


def test_rotary_scaling_is_linear_or_llama_3s() -> None:
    """Wavelengths above original / low are scaled, those below original / high kept, and those between interpolated."""
    plain = rotary_rates(tiny(rotary_base=5e5), 128).double()
    linear = tiny(rotary_base=5e5, rotary_scaling=RotaryScaling(kind="linear", factor=4.0))
    torch.testing.assert_close(rotary_rates(linear, 128).double(), plain / 4)
    scaling = RotaryScaling(kind="llama3", factor=8.0, original_seq=8192, low_frequency=1.0, high_frequency=4.0)
    found = rotary_rates(tiny(rotary_base=5e5, rotary_scaling=scaling), 128).tolist()
    kinds = set()
    for rate, scaled in zip(plain.tolist(), found, strict=True):
        wavelength = 2 * math.pi / rate
        smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
        expected = (1 - smooth) * rate / 8 + smooth * rate
        expected = rate if wavelength < 8192 / 4 else rate / 8 if wavelength > 8192 else expected
        kinds.add((wavelength < 8192 / 4, wavelength > 8192))
        assert scaled == pytest.approx(expected, rel=1e-5)
    assert len(kinds) == 3
    local = tiny(rotary_base=5e5, rotary_local_base=1e4, rotary_scaling=scaling)
    torch.testing.assert_close(rotary_rates(local, 128, local=True), rotary_rates(tiny(), 128))


def test_alibi_slopes_of_112_heads_are_those_of_bloom() -> None:
    """There are 64 powers of 2^(-1/8), and 48 odd powers of 2^(-1/16)."""
    expected = [2 ** (-(head + 1) / 8) for head in range(64)] + [2 ** (-(2 * head + 1) / 16) for head in range(48)]
    assert alibi_slopes(112).tolist() == pytest.approx(expected, rel=1e-6)
    assert alibi_slopes(4).tolist() == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8])


def test_attention_has_the_models_scale_soft_cap_and_window() -> None:
    query, key, value = (torch.randn(1, 1, 6, 4, dtype=torch.float64) for _ in range(3))
    found = eager_attention(query, key, value, None, scale=3.0, softcap=2.0, window=3)
    for position in range(6):
        seen = range(max(0, position - 2), position + 1)
        scores = [2 * math.tanh(3 * float(query[0, 0, position] @ key[0, 0, other]) / 2) for other in seen]
        weights = [math.exp(score) for score in scores]
        expected = sum(weight * value[0, 0, other] for weight, other in zip(weights, seen, strict=True)) / sum(weights)
        torch.testing.assert_close(found[0, 0, position], expected, rtol=1e-5, atol=1e-6)


def _windowed(made: Recipe) -> list[bool]:
    return [made.workload.model.is_windowed_layer(number) for number in range(6)]


def test_layers_alternate_windows_and_rotary_positions() -> None:
    """Every sixth layer of Gemma 3 has full attention, and every fourth layer of SmolLM3 no positions."""
    windows = recipe(sliding_window=4, window_skip=3, positions="rotary", rotary_skip=4)
    assert _windowed(windows) == [True, True, False] * 2
    assert [windows.turned(number) for number in range(8)] == ([True] * 3 + [False]) * 2
    assert _windowed(recipe(sliding_window=4, window_start=2, window_skip=3)) == [False, False, True, True, False, True]
    every = recipe(sliding_window=4)
    assert all(_windowed(every))
    assert not any(every.turned(number) for number in range(4))


def test_norms_and_residuals_are_placed_as_in_the_model() -> None:
    stream = torch.randn(3, 1, 64)
    for placement, norms in (("before", 2), ("after", 2), ("around", 4)):
        layer = built(norm_placement=placement, norms_per_layer=norms, residual_scale=0.25)
        before, after = placement != "after", placement != "before"
        assert (layer.before_mlp is not None, layer.after_mlp is not None) == (before, after)
        inner = layer.attention(layer.before_attention(stream) if layer.before_attention else stream)
        middle = stream + 0.25 * (layer.after_attention(inner) if layer.after_attention else inner)
        inner = layer.mlp(layer.before_mlp(middle) if layer.before_mlp else middle)
        expected = middle + 0.25 * (layer.after_mlp(inner) if layer.after_mlp else inner)
        torch.testing.assert_close(layer(stream), expected)


@pytest.mark.parametrize("norms", [1, 2])
def test_attention_and_mlp_are_parallel_if_the_model_requires_it(norms: int) -> None:
    layer = built(parallel_attention=True, norms_per_layer=norms)
    stream = torch.randn(3, 1, 64)
    assert (layer.before_mlp is None) == (norms == 1)
    assert layer.before_attention
    of_mlp = layer.before_mlp or layer.before_attention
    expected = stream + layer.attention(layer.before_attention(stream)) + layer.mlp(of_mlp(stream))
    torch.testing.assert_close(layer(stream), expected)


def test_embeddings_and_logits_have_the_models_multipliers() -> None:
    positions = Positions(recipe(positions="none", embedding_scale=8.0), maker("positions"))
    assert positions(torch.ones(2, 1, 64)).tolist() == torch.full((2, 1, 64), 8.0).tolist()
    logits, labels = torch.randn(2, 1, 128), torch.zeros(1, 2, dtype=torch.long)
    workload = replace(WORKLOAD, model=tiny(logit_scale=0.5, logit_softcap=2.0))
    expected = Loss(WORKLOAD, maker().mesh)(2 * torch.tanh(0.5 * logits / 2), labels)
    torch.testing.assert_close(Loss(workload, maker().mesh)(logits, labels), expected)


def test_initial_weights_have_the_models_standard_deviation() -> None:
    weights = dict(built(init_std=0.5).named_parameters())
    for name, deviation in (("mlp.up", 0.5), ("attention.qkv", 0.5), ("mlp.down", 0.5 / math.sqrt(8))):
        assert float(weights[f"{name}.weight"].detach().std()) == pytest.approx(deviation, rel=0.02)


def test_a_norm_over_all_heads_has_their_total_width() -> None:
    layer = built(norm="rmsnorm", qk_norm=True, qk_norm_span="width", kv_heads=2)
    assert [len(norm.weight) for norm in layer.attention.norms] == [64, 32]  # type: ignore[arg-type]
    assert layer(torch.randn(3, 1, 64)).shape == (3, 1, 64)


def test_every_field_of_the_model_is_built_or_refused() -> None:
    names = {field.name for field in fields(Model)}
    assert names >= BUILT
    assert {name for name in IDENTITY if name not in BUILT} >= {"attention_dropout", "hidden_dropout", "not_understood"}


FLASH = replace(WORKLOAD, precision="bf16", attention="flash2")
REFUSED: dict[str, tuple[Workload, dict[str, Any], str]] = {
    "attention dropout": (replace(WORKLOAD, model=tiny(attention_dropout=0.1)), {}, "has no attention_dropout"),
    "hidden dropout": (replace(WORKLOAD, model=tiny(hidden_dropout=0.1)), {}, "has no hidden_dropout"),
    "what tuner does not understand": (
        replace(WORKLOAD, model=tiny(not_understood=("mamba blocks",))),
        {},
        "mamba blocks, which tuner does not understand",
    ),
    "yarn": (
        replace(WORKLOAD, model=tiny(rotary_scaling=RotaryScaling(kind="yarn", factor=4.0))),
        {},
        "rotary_scaling is linear or llama3, not yarn",
    ),
    "xielu": (replace(WORKLOAD, model=tiny(activation="xielu")), {}, "silu, not xielu"),
    "the original transformer's norms": (
        replace(WORKLOAD, model=tiny(norm_placement="after_residual")),
        {},
        "around, not after_residual",
    ),
    "norms without weights": (replace(WORKLOAD, model=tiny(norm_weight=False)), {}, "has no norm_weight"),
    "norms of each of the heads": (
        replace(WORKLOAD, model=tiny(norm="rmsnorm", qk_norm=True, qk_norm_span="heads")),
        {},
        "head or width, not heads",
    ),
    "a qk norm of a LayerNorm model": (replace(WORKLOAD, model=tiny(qk_norm=True)), {}, "qk_norm is an RMSNorm"),
    "a wide qk norm in parts": (
        replace(WORKLOAD, model=tiny(norm="rmsnorm", qk_norm=True, qk_norm_span="width")),
        {"tp": 2},
        "qk_norm_span",
    ),
    "a window without its kernel": (replace(FLASH, model=tiny(sliding_window=8)), {}, "no sliding_window"),
    "a soft cap without its kernel": (replace(FLASH, model=tiny(attention_softcap=50.0)), {}, "no attention_softcap"),
    "four norms before": (replace(WORKLOAD, model=tiny(norms_per_layer=4)), {}, "the model has 4"),
    "an odd share of the head": (
        replace(WORKLOAD, model=tiny(positions="rotary", rotary_fraction=0.2)),
        {},
        "not 16 x rotary_fraction 0.2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unsupported_property_is_refused_by_name(case: str) -> None:
    workload, axes, sentence = REFUSED[case]
    with pytest.raises(InputError, match=sentence):
        refuse(workload, topology(**axes), {})


def test_an_unknown_field_of_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "BUILT", BUILT - {"rotary_base"})
    with pytest.raises(InputError, match="has no rotary_base"):
        refuse(replace(WORKLOAD, model=tiny(rotary_base=5e5)), topology(), {})


def test_a_parameter_of_another_precision_ends_the_job() -> None:
    module = torch.nn.Linear(2, 2)
    train.check_precision(module, maker().mesh)
    module.weight.ds_tensor = torch.zeros(2, dtype=torch.bfloat16)
    with pytest.raises(NothingUsable, match=r"parameter weight in torch.bfloat16 instead of torch.float32"):
        train.check_precision(module, maker().mesh)


@pytest.mark.slow
def test_parameters_have_the_precision_of_the_job_on_every_host() -> None:
    """Jobs use ZeRO 0 to 3, fp32 and bf16, on hosts with and without fp16."""
    lines = run_program(INITIALIZED).splitlines()
    found = [line.split(": ")[1] for line in lines if line.startswith("dtypes of ")]
    assert found == ["torch.float32", "torch.bfloat16"] * 8


INITIALIZED = """
import os
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
from tuner.core.ports import free_port
os.environ["MASTER_PORT"] = str(free_port("127.0.0.1"))
from dataclasses import replace
import deepspeed
from deepspeed.accelerator import get_accelerator
from tests.workers import WORKLOAD, tiny, topology
from tuner.launch.ds_config import ds_config
from tuner.worker.mesh import build_mesh, connect
from tuner.worker.train import adapt, start
connect(30)
for knows_fp16 in (True, False):
    get_accelerator().is_fp16_supported = lambda: knows_fp16
    for zero in range(4):
        for precision in ("fp32", "bf16"):
            workload = replace(WORKLOAD, precision=precision, model=tiny(layers=1))
            config = ds_config(workload, topology(zero=zero))
            adapt(config)
            mesh = build_mesh(topology(zero=zero), 4, precision)
            engine, step = start(workload, topology(zero=zero), mesh, 0, config, iter(()))
            kinds = {part.dtype for p in engine.module.parameters() for part in (p, getattr(p, "ds_tensor", p))}
            print(f"dtypes of {zero}: {' '.join(map(str, kinds))}", flush=True)
os._exit(0)
"""
