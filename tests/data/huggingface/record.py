"""Record what transformers and tuner make of the configs in this folder.

    python tests/data/huggingface/record.py counts [NAME ...]     counts.json, with transformers
    python -m tests.data.huggingface.record identity              identity.json and defaults.json, with tuner

`counts.json` holds the trained parameters of transformers' causal language model on the meta device, tied ones once and
without multi-token prediction, which the library leaves out; a number that stays the same keeps its source.
`identity.json` holds the fields of `Model` that differ from their defaults; `defaults.json` those of each family's
config without optional keys, and what each switch and size changes. Review each change of them against the family's
modelling code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SAME = {
    "kimi_k2": "deepseek_v3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "glm4v_moe_text": "glm4_moe",
}
"""Families whose language model transformers has under another name alone."""
CONFIGS = sorted(path for path in FOLDER.glob("*.json") if path.stem not in ("counts", "defaults", "identity"))
BARE = {"num_hidden_layers": 6, "hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 1000}
"""The keys that a config must have, beside its family."""


REQUIRED_BY_FAMILY = {"dots1": {"n_routed_experts": 16, "num_experts_per_tok": 2, "n_shared_experts": 1}}
"""Further ones of a family."""


def bare_config(family: str) -> dict[str, Any]:
    """Return a family's config without any optional key."""
    return {"model_type": family, **BARE, **REQUIRED_BY_FAMILY.get(family, {})}


def has_tower(path: Path) -> bool:
    """Return whether a config is that of a model with a vision tower."""
    return "text_config" in json.loads(path.read_text())


def text_config(path: Path) -> dict[str, Any]:
    """Return a config; of a model with a vision tower, that of its language model alone."""
    whole: dict[str, Any] = json.loads(path.read_text())
    config = whole.get("text_config", whole)
    if "tie_word_embeddings" in whole:
        config["tie_word_embeddings"] = whole["tie_word_embeddings"]
    return {**config, "model_type": SAME.get(config["model_type"], config["model_type"])}


def on_meta(config: dict[str, Any]) -> Any:
    """Return transformers' causal language model of a config, without memory for its parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    stored = {"quantization_config", "pad_token_id"}
    config = {key: value for key, value in config.items() if key not in stored}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config, pad_token_id=0))


def counted(config: dict[str, Any]) -> int:
    """Return the trained parameters of a config's model, tied ones once."""
    return sum(parameter.numel() for parameter in on_meta(config).parameters() if parameter.requires_grad)


def identity_of(model: Any) -> dict[str, Any]:
    """Return the fields of a `Model` that differ from their defaults, but for its name."""
    from dataclasses import asdict, fields

    defaults = {field.name: field.default for field in fields(model)}
    document = json.loads(json.dumps(asdict(model)))
    return {name: value for name, value in document.items() if name != "name" and value != _plain(defaults[name])}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def record_counts(names: list[str]) -> None:
    """Count with transformers and write counts.json."""
    import transformers

    path = FOLDER / "counts.json"
    recorded = json.loads(path.read_text())
    for name in names or [path.stem for path in CONFIGS]:
        count = counted(text_config(FOLDER / f"{name}.json"))
        if count != recorded.get(name, {}).get("parameters"):
            source = f"transformers {transformers.__version__} AutoModelForCausalLM on the meta device, tied ones once"
            recorded[name] = {"parameters": count, "source": source}
    path.write_text(json.dumps(dict(sorted(recorded.items())), indent=2) + "\n")


def record_identities() -> None:
    """Read with tuner and write identity.json."""
    import warnings

    from tuner.core.catalog import model

    warnings.simplefilter("ignore")  # a model with a vision tower is read as its language model
    identities = {path.stem: identity_of(model(str(path))) for path in CONFIGS}
    (FOLDER / "identity.json").write_text(json.dumps(identities, indent=1) + "\n")
    (FOLDER / "defaults.json").write_text(json.dumps(defaults(), indent=1) + "\n")


def defaults() -> dict[str, Any]:
    """Return what each family is without any optional key, and the fields that change with one of them.

    A switch is set to its other value, a size to 4 or 8, and each to null; null stands for a size that no such model
    has.
    """
    from tuner.core.errors import InputError
    from tuner.core.huggingface import FAMILIES, model_from

    recorded = {}
    for family in FAMILIES:
        config = bare_config(family)
        bare = identity_of(model_from(config, name=family))
        flat = _flat(bare)
        changed: dict[str, Any] = {}
        optional = optional_keys(config)
        for key, value in [*optional.items(), *((key, None) for key in optional)]:
            try:
                other = _flat(identity_of(model_from({**config, key: value}, name=family)))
            except InputError:
                changed[f"{key}={value}"] = None
                continue
            names = sorted(name for name in flat | other if flat.get(name) != other.get(name))
            if names or value is not None:
                changed[f"{key}={value}"] = {name: other.get(name, "the default") for name in names}
        recorded[family] = {**bare, "changed by": changed}
    return recorded


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in identity.items()}
    return {f"{name}.{part}".strip("."): value for name, values in parts.items() for part, value in values.items()}


def optional_keys(config: dict[str, Any]) -> dict[str, Any]:
    """Return the switches and sizes that tuner looks for in a config, with values other than their defaults."""
    from unittest.mock import patch

    from tuner.core.huggingface import model_from
    from tuner.core.huggingface.keys import Keys

    found: dict[str, Any] = {}
    flag, size = Keys.flag, Keys.size

    def switched(self: Keys, key: str, *, default: bool) -> bool:
        found[key] = not default
        return flag(self, key, default=default)

    def sized(self: Keys, key: str, *, default: int = 0, null: int | None = None, least: int = 0) -> int:
        found[key] = 8 if default == 4 else 4
        return size(self, key, default=default, null=null, least=least)

    with patch.object(Keys, "flag", switched), patch.object(Keys, "size", sized):
        model_from(config, name="m")
    return found


if __name__ == "__main__":
    if sys.argv[1] == "counts":
        record_counts(sys.argv[2:])
    else:
        record_identities()
