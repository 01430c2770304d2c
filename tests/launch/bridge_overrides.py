"""Apply overrides to Megatron Bridge's config of a pretraining run, on a CPU.

    python tests/launch/bridge_overrides.py OVERRIDE...

Prints the config's sections as one JSON object. Packages that need a GPU are mocked.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

SECTIONS = ("model", "train", "dataset", "ddp", "optimizer", "checkpoint", "logger")


def main(overrides: list[str]) -> None:
    """Print Llama 3 8B's config with the overrides applied."""
    provider = importlib.import_module("tests.export.bridge_provider")
    flags = importlib.import_module("tests.record_flags")
    flags.stub()
    real = ("omegaconf", "hydra")
    sys.meta_path.insert(
        0, flags.Mocks(*provider.GPU_ONLY, "datasets", *(name for name in provider.OPTIONAL if name not in real))
    )
    bridge = importlib.import_module("megatron.bridge")
    recipes = types.ModuleType("megatron.bridge.recipes")  # skip __init__, which imports every model
    recipes.__path__ = [f"{folder}/recipes" for folder in bridge.__path__]
    sys.modules[recipes.__name__] = recipes
    config: Any = importlib.import_module("megatron.bridge.recipes.common")._pretrain_common()
    config.dataset.seq_length = 1024
    config.model = importlib.import_module("megatron.bridge.models.gpt_provider").GPTModelProvider(
        num_layers=32, hidden_size=4096, num_attention_heads=32, ffn_hidden_size=14336, num_query_groups=8
    )
    utilities = importlib.import_module("megatron.bridge.training.utils.omegaconf_utils")
    made = utilities.process_config_with_overrides(config, cli_overrides=overrides)
    print(json.dumps({name: provider.fields(getattr(made, name)) for name in SECTIONS}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
