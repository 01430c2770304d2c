"""The golden table of refusals: what each export format refuses for runs that differ in one property.

`python -m tests.golden_refusals` rewrites `tests/data/golden/refusals.json`; review the change as a diff.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from tests.export.test_export import EXPECTED
from tests.mixtures import DEEPSEEK, QWEN3_30B
from tuner.core import catalog
from tuner.core.domain import Attention, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.stack import Stack
from tuner.export.bundle import FORMATS
from tuner.export.formats import ExportOptions
from tuner.export.production import ProductionRun

GOLDEN: Final = Path(__file__).parent / "data" / "golden" / "refusals.json"

GPT: Final = Model(name="gpt", layers=4, hidden=256, heads=4, vocab=512, seq=128)
LLAMA: Final = replace(
    QWEN3_30B, name="llama", experts=None, qk_norm=False, head_size=0, hidden=4096, embedding_size=4096
)
MODELS: Final = {"gpt": GPT, "llama": LLAMA, "mixture": QWEN3_30B, "latent": DEEPSEEK}
OPTIONS: Final = {
    "slurm": ("slurm", ExportOptions()),
    "command": ("slurm", ExportOptions(command="python train.py --config {ds_config}")),
    "megatron-core": ("megatron-core", ExportOptions()),
    "megatron-bridge": ("megatron-bridge", ExportOptions()),
    "deepspeed's fork": ("megatron-deepspeed", ExportOptions(fork="deepspeed")),
    "bloom's fork": ("megatron-deepspeed", ExportOptions(fork="bloom")),
    "accelerate": ("accelerate", ExportOptions()),
    "torchtitan": ("torchtitan", ExportOptions()),
}
SCALINGS: Final = (
    RotaryScaling(kind="linear", factor=2.0),
    RotaryScaling(kind="linear", factor=2.5),
    RotaryScaling(kind="llama3", factor=8.0, original_seq=8192),
    RotaryScaling(kind="llama3", factor=4.0, original_seq=8192),
    RotaryScaling(kind="llama3", factor=8.0, original_seq=4096),
    RotaryScaling(kind="yarn", factor=4.0, original_seq=4096),
    RotaryScaling(kind="yarn", factor=4.0, original_seq=4096, truncate=False),
    RotaryScaling(kind="yarn", factor=4.0, original_seq=4096, attention_factor=1.5),
    RotaryScaling(kind="yarn", factor=4.0),
    RotaryScaling(kind="dynamic", factor=2.0),
)
WINDOWED: Final[tuple[tuple[Attention, int], ...]] = (("flash2", 1), ("eager", 1), ("flash2", 2))
ONE: Final = Topology(nodes=2, tp=2, pp=2, dp=4, micro_batch=1)
AXES: Final[tuple[dict[str, Any], ...]] = (
    *({"zero": zero} for zero in (0, 2, 3)),
    *({"recompute": recompute} for recompute in ("none", "selective", "core_attn+mlp")),
    *({"pp": 1, "zero": zero} for zero in (2, 3)),
    *({"tp": 1, "pp": 1, "zero": 3, **offload} for offload in ({}, {"offload": "optimizer"}, {"hsdp": 2})),
    *({axis: 2} for axis in ("vpp", "cp", "ep", "etp")),
    {"sequence_parallel": True},
    {"partition": "embedding"},
    {"partition": "layout"},
    {"offload": "optimizer"},
    *({"ep": 4, "dispatcher": dispatcher} for dispatcher in ("allgather", "deepep", "hybridep")),
    {"ep": 2, "etp": 2, "sequence_parallel": True},
    {"ep": 4, "moe_overlap": True},
)


def other_values(value: Any, hint: Any) -> list[Any]:
    """Return other values of a field: the other switch, all other choices, or twice and half a number."""
    choices = [choice for part in (hint, *get_args(hint)) for choice in get_args(part) if isinstance(choice, str)]
    if choices:
        return [choice for choice in choices if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        half: float = value // 2 if isinstance(value, int) else value / 2
        return [2 * value, half] if value else [2, 1] if isinstance(value, int) else [0.5, 1.0]
    return []


def allowed(value: Any, **changes: Any) -> Any:
    """Return the value with these changes, or None if it would be invalid."""
    try:
        return replace(value, **changes)
    except InputError:
        return None


def varied(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all valid copies of a dataclass with one changed field, each with `field=value`."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        if field.name in ("name", "layers", "read_as", "not_understood"):
            continue
        for other in other_values(getattr(value, field.name), hints[field.name]):
            if (changed := allowed(value, **{field.name: other})) is not None:
                yield f"{field.name}={other}", changed


def models(model: Model) -> Iterator[tuple[str, Model]]:
    """Yield a model and its variations in one property."""
    yield "", model
    if model.experts is None or model.latent is not None:
        yield from varied(model)
    if model.positions == "rotary" and model.experts is None:
        for number, scaling in enumerate(SCALINGS):
            yield f"scaling {number}", replace(model, rotary_scaling=scaling)
    parts: tuple[Any, ...] = (model.experts, model.latent)
    for part in filter(None, parts):
        name = "experts" if isinstance(part, Experts) else "latent"
        for words, other in varied(part):
            if (changed := allowed(model, **{name: other})) is not None:
                yield f"{name}.{words}", changed


def runs() -> Iterator[tuple[str, ProductionRun]]:
    """Yield every case with its name."""
    cluster = catalog.cluster("bloom-48")

    def run(workload: Workload, topology: Topology) -> ProductionRun:
        return ProductionRun(name="r", workload=workload, cluster=cluster, topology=topology, expected=EXPECTED)

    unscaled = {"rotary_local_base": 1e6, "rotary_scaling": SCALINGS[0]}
    for changes in ({}, {"window_start": 2}, {"window_skip": 2}, {"rotary_local_base": 1e6}, unscaled):
        windowed = replace(LLAMA, sliding_window=1024, **changes)
        for attention, cp in WINDOWED:
            job = Workload(model=windowed, global_batch=64, precision="bf16", attention=attention)
            yield f"windows {changes} {attention} cp={cp}", run(job, replace(ONE, cp=cp))
    for name, base in MODELS.items():
        plain = Workload(model=base, global_batch=64, precision="bf16", attention="flash2")
        for words, model in models(base):
            yield f"{name} {words}", run(replace(plain, model=model), ONE)
        for words, workload in varied(plain):
            yield f"{name} with {words}", run(workload, ONE)
        for stack in (Stack(cp_comm="a2a"),):
            yield f"{name} with {stack}", run(replace(plain, stack=stack), ONE)
        for axes in AXES:
            words = " ".join(f"{axis}={value}" for axis, value in axes.items())
            if (topology := allowed(ONE, **axes)) is not None:
                yield f"{name} on {words}", run(plain, topology)


def table() -> dict[str, dict[str, str]]:
    """Return the refused properties by case and format: all for a plain model, otherwise the differences from it."""
    found: dict[str, dict[str, str]] = {}
    plain: dict[str, list[str]] = {label: [] for label in OPTIONS}
    for case, run in runs():
        refused = {label: FORMATS[name].refused(run, options) for label, (name, options) in OPTIONS.items()}
        if case.endswith(" "):
            plain = refused
            found[case] = {label: " ".join(names) for label, names in refused.items() if names}
            continue
        words = {
            label: [
                *(f"+{name}" for name in names if name not in plain[label]),
                *(f"-{name}" for name in plain[label] if name not in names),
            ]
            for label, names in refused.items()
        }
        found[case] = {label: " ".join(listed) for label, listed in words.items() if listed}
    return found


def main() -> None:
    """Write the golden file."""
    GOLDEN.write_text(json.dumps(table(), indent=0) + "\n")


if __name__ == "__main__":
    main()
