"""Every field of every model of the catalog is written by every format, or refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import pytest

from tests.export.test_export import SITE, bloom
from tuner.core.catalog import catalog
from tuner.core.catalog import model as catalog_model
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.bundle import FORMATS
from tuner.export.formats import ExportOptions

OPTIONS = ExportOptions(site=SITE)
MEGATRON = ("megatron-core", "megatron-bridge", "megatron-deepspeed")
QWEN = catalog_model("qwen3-30b-a3b")
assert QWEN.experts is not None
UNBALANCED = replace(QWEN, experts=replace(QWEN.experts, aux_loss=0.0))
CATALOG = [catalog_model(name) for name in catalog().model_names()]
FAMILIES = {re.split(r"[-\d]", model.name)[0]: model for model in CATALOG if not model.experts}
MODELS = [
    *((name, model) for name in MEGATRON for model in (*FAMILIES.values(), *(one for one in CATALOG if one.experts))),
    *(("torchtitan", model) for model in (catalog_model("llama-3-8b"), UNBALANCED)),
    ("torchrun", catalog_model("tiny-moe")),
]
"""All mixtures of the catalog, and one dense model per family, whose members differ only in sizes."""


def variants(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each field, including nested ones, with a copy of the value that differs only in it."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        old, label = getattr(value, field.name), f"{name}{field.name}"
        inner = variants(old, f"{label}.") if is_dataclass(old) else ((label, new) for new in others(old, hints, field))
        for found, new in inner:
            with contextlib.suppress(InputError):
                yield found, replace(value, **{field.name: new})


def others(old: Any, hints: dict[str, Any], field: Any) -> list[Any]:
    """Return other values of a field's type."""
    hint = hints[field.name]
    words = [word for one in (hint, *get_args(hint)) for word in get_args(one) if isinstance(word, str)]
    if words and field.name != "name":
        return [word for word in words if word != old]
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int):
        return [2 * old, old + 1] if old else [1, 2]
    if isinstance(old, float):
        return [0.5 * old, 2 * old] if old else [0.5]
    return []


SCALED_BY = {
    **dict.fromkeys(("low_frequency", "high_frequency"), ("llama3",)),
    **dict.fromkeys(("beta_fast", "beta_slow", "truncate"), ("yarn",)),
    "attention_factor": ("yarn", "longrope"),
}
"""Kinds of rotary scaling that use a field."""


def unused(label: str, model: Model) -> bool:
    """Return whether a field has no effect on a model."""
    experts, rotary = model.experts, model.positions == "rotary"
    windowed, scaling = 0 < model.sliding_window < model.seq, model.rotary_scaling
    return {
        "activation": model == replace(model, activation=model.mlp_activation) or model.activation is None,
        "experts.aux_loss_per_sequence": experts is not None and not experts.aux_loss,
        "experts.router_bias_rate": experts is not None and not experts.router_bias,
        "experts.router_group_scores": experts is not None and not experts.router_groups,
        "ffn": model.dense_mlp_layers == 0,
        "head_size": model.latent is not None,
        "max_positions": model.positions != "learned",
        "mtp_loss": not model.mtp_layers,
        "norm_bias": model.norm == "rmsnorm",
        "qk_norm_span": not model.qk_norm,
        "rotary_base": not rotary,
        "rotary_fraction": not rotary,
        "rotary_interleaved": not rotary,
        "rotary_local_base": not rotary,
        "rotary_skip": not rotary,
        **{
            f"rotary_scaling.{name}": scaling is not None and scaling.kind not in kinds
            for name, kinds in SCALED_BY.items()
        },
        "window_start": not windowed,
        "window_skip": not windowed,
    }.get(label, False)


def written(name: str, model: Model) -> object:
    """Return what the trainer reads of a run of the model; None if the format refuses it."""
    chosen = FORMATS[name]
    run = bloom("tp1-pp1-dp8-mbs1-z1", model="bloom-14336x72", nodes=1, global_batch=8, precision="bf16")
    topology = replace(run.topology, zero=2 if name == "torchtitan" else 1)
    run = replace(run, topology=topology, workload=replace(run.workload, model=model, attention="flash2"))
    if chosen.refusals(run, OPTIONS):
        return None
    options = chosen.resolve(run, OPTIONS)
    try:
        if name in MEGATRON:
            return sorted(chosen.settings(run, options))
        files = chosen.render(run, options, chosen)
    except InputError:  # the worker refuses some attention kernels only when a job starts
        return None
    return {file: text for file, text in files.items() if not file.endswith(".md")}


CASES = [(name, model) for name, model in MODELS if written(name, model) is not None]
"""The models that each format supports."""


def test_every_format_supports_a_model() -> None:
    assert {name for name, _ in CASES} == {name for name, _ in MODELS}


@pytest.mark.parametrize(("name", "model"), CASES, ids=lambda one: getattr(one, "name", one))
def test_a_field_that_changes_the_model_is_written_or_refused(name: str, model: Model) -> None:
    usual = written(name, model)
    dropped = {
        label
        for label, other in variants(model)
        if label not in ("name", "read_as") and not unused(label, model) and written(name, other) == usual
    }
    padded_alike = name in ("torchtitan", "megatron-core", "megatron-deepspeed")  # to nothing, or to the same rows
    assert dropped <= ({"vocab_multiple"} if padded_alike else set())
