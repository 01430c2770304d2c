"""Build Megatron Bridge's own model providers from exported recipes, and from Hugging Face configs, on a CPU.

    python tests/export/bridge_provider.py < CASES.json

Reads `[{"recipe": TEXT, "config": PATH or null}, ...]`; prints one JSON list with the fields of the provider that
the recipe builds and finalizes (`exported`), and of the one that Bridge derives from the config (`derived`).
Packages that need a GPU are mocked.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
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


def fields(provider: Any) -> dict[str, Any]:
    """Return a provider's fields in plain values."""
    return {name: _plain(value) for name, value in vars(provider).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return getattr(value, "__name__", None) or str(value)


def derived(path: str) -> dict[str, Any]:
    """Return what Bridge derives from a Hugging Face config."""
    transformers = importlib.import_module("transformers")
    bridge = importlib.import_module("megatron.bridge").AutoBridge
    config = json.loads(Path(path).read_text())
    known = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    rotary = {**config, **(config.get("rope_parameters") or {})}
    for key in {"rope_theta", "partial_rotary_factor"} & set(rotary):  # transformers 5 moved what Bridge 0.3.1 reads
        setattr(known, key, rotary[key])
    return fields(bridge.from_hf_config(known).to_megatron_provider(load_weights=False))


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return both providers' fields, or the error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        space: dict[str, Any] = {"__name__": "recipe"}
        exec(compile(case["recipe"], "recipe.py", "exec"), space)  # noqa: S102 - the export under test
        provider = (space.get("MLAModelProvider") or space["GPTModelProvider"])(**space["MODEL"])
        provider.finalize()
        found: dict[str, Any] = {"exported": fields(provider), "derived": None}
        if case["config"]:
            try:
                found["derived"] = derived(case["config"])
            except Exception as error:
                found["reason"] = f"{type(error).__name__}: {error}"[:300]
    return found


def main() -> None:
    """Answer all cases on stdin."""
    from tests.record_flags import Mocks, stub

    stub()
    sys.meta_path.insert(0, Mocks(*GPU_ONLY, *OPTIONAL))
    answers = [answer(case) for case in json.load(sys.stdin)]
    sys.__stdout__.write(json.dumps(answers))  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
