"""Build Megatron Bridge's own model providers from exported recipes, and from Hugging Face configs, on a CPU.

    python tests/export/bridge_provider.py < CASES.json

Reads `[{"recipe": TEXT, "config": PATH or null, "named": "MODULE:CLASS" or null}, ...]`; prints one JSON list with the
fields of the provider that the recipe builds and finalizes (`exported`), of the one that Bridge derives from the config
(`derived`), of the one that Bridge has for the model by name (`named`, only what its module states), and of optimizer
and schedule after the recipe has set them (`training`). Packages that need a GPU are mocked.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

GPU_ONLY = ("transformer_engine", "transformer_engine_torch", "mamba_ssm", "causal_conv1d", "nvidia_resiliency_ext")
OPTIONAL: tuple[str, ...] = (
    "modelopt",
    "omegaconf",
    "hydra",
    "wandb",
    "nvdlfw_inspect",
    "multistorageclient",
    "nemo_run",
    "einops",
)
OPTIONAL = (*OPTIONAL, "qwen_vl_utils", "tensorboard", "megatron.energon")
DATA = ("megatron.bridge.data", "megatron.bridge.training.tokenizers")
"""Parts of Bridge that need packages for data sets; training configs are read after all models."""

PARTS = ("dataset", "train", "ddp", "optimizer", "scheduler", "logger")


def fields(provider: Any) -> dict[str, Any]:
    """Return a provider's fields as plain values."""
    return {name: _plain(value) for name, value in vars(provider).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return getattr(value, "__name__", None) or str(value)


def derived(path: str) -> dict[str, Any]:
    """Return the fields that Bridge derives from a Hugging Face config."""
    transformers = importlib.import_module("transformers")
    bridge = importlib.import_module("megatron.bridge").AutoBridge
    config = json.loads(Path(path).read_text())
    known = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    rotary = {**config, **(config.get("rope_parameters") or {})}
    for key in {"rope_theta", "partial_rotary_factor"} & set(rotary):  # transformers 5 moved what Bridge 0.3.1 reads
        setattr(known, key, rotary[key])
    return fields(bridge.from_hf_config(known).to_megatron_provider(load_weights=False))


def named(name: str) -> dict[str, Any]:
    """Return the fields that Bridge states for a model in the module of its provider."""
    module, kind = name.split(":")
    provider = getattr(importlib.import_module(f"megatron.bridge.models.{module}"), kind)
    own = [parent for parent in provider.__mro__ if parent.__module__ == provider.__module__]
    stated = {field for parent in own for field in parent.__annotations__}
    return {field: value for field, value in fields(provider()).items() if field in stated}


def configured(recipe: str, **parts: Any) -> Any:
    """Return a config of these parts after the recipe has set model, training and optimizer."""
    space: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe, "recipe.py", "exec"), space)  # noqa: S102 - the export under test
    return space["set_optimizer"](space["configure"](SimpleNamespace(**parts)))


def training(recipe: str) -> dict[str, Any]:
    """Return the fields of optimizer and schedule, starting with the weight decay of Bridge's common recipe."""
    config = importlib.import_module("megatron.bridge.training.config")
    sharding = importlib.import_module("megatron.core.distributed").DistributedDataParallelConfig()
    parts = {"optimizer": config.OptimizerConfig(), "train": config.TrainingConfig(), "logger": config.LoggerConfig()}
    parts["scheduler"] = config.SchedulerConfig(start_weight_decay=0.033, end_weight_decay=0.033)
    before = {name: set(vars(part)) for name, part in parts.items()}
    configured(recipe, **parts, ddp=sharding, dataset=SimpleNamespace())
    parts["scheduler"].finalize()
    unknown = [field for name, part in parts.items() for field in set(vars(part)) - before[name]]
    return {**fields(parts["optimizer"]), **fields(parts["scheduler"]), "unknown": unknown}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return both providers' fields, or the error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        provider = configured(case["recipe"], **{name: SimpleNamespace() for name in PARTS}).model
        provider.finalize()
        found: dict[str, Any] = {"exported": fields(provider), "derived": None}
        if case["config"]:
            try:
                found["derived"] = derived(case["config"])
            except Exception as error:
                found["reason"] = f"{type(error).__name__}: {error}"[:300]
        found["named"] = named(case["named"]) if case.get("named") else None
    return found


def main() -> None:
    """Answer all cases on stdin."""
    from tests.record_flags import Mocks, stub

    stub()
    sys.meta_path.insert(0, Mocks(*GPU_ONLY, *OPTIONAL))
    cases = json.load(sys.stdin)
    answers = [answer(case) for case in cases]
    sys.meta_path.insert(0, Mocks(*DATA))
    for case, found in zip(cases, answers, strict=True):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found["training"] = training(case["recipe"])
    sys.__stdout__.write(json.dumps(answers))  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
