"""Record what transformers and tuner make of the configs in this folder.

    python tests/data/huggingface/record.py counts [NAME ...]     counts.json, with transformers
    python -m tests.data.huggingface.record identity              identity.json and defaults.json, with tuner

`counts.json` holds the trained parameters of transformers' causal language model on the meta device, tied ones once and
without multi-token prediction, which the library leaves out; a number that stays the same keeps its source.
`identity.json` holds the fields of `Model` that differ from their defaults; `defaults.json` those of each family's config
without optional keys. Review each change of them against the family's modelling code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SAME = {"kimi_k2": "deepseek_v3"}
"""Families that transformers has under another name."""
CONFIGS = sorted(path for path in FOLDER.glob("*.json") if path.stem not in ("counts", "defaults", "identity"))
BARE = {"num_hidden_layers": 6, "hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 1000}
"""The keys that a config must have, beside its family."""


def text_config(path: Path) -> dict[str, Any]:
    """Return a config; of a model with a vision tower, that of its language model."""
    config: dict[str, Any] = json.loads(path.read_text())
    text = config.pop("text_config", None)
    config.pop("vision_config", None)
    config = {**config, **(text or {})}
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
    from tuner.core.catalog import model

    identities = {path.stem: identity_of(model(str(path))) for path in CONFIGS}
    (FOLDER / "identity.json").write_text(json.dumps(identities, indent=1) + "\n")
    (FOLDER / "defaults.json").write_text(json.dumps(defaults(), indent=1) + "\n")


def defaults() -> dict[str, Any]:
    """Return what each family is without any optional key."""
    from tuner.core.huggingface import FAMILIES, model_from

    return {family: identity_of(model_from({"model_type": family, **BARE}, name=family)) for family in FAMILIES}


if __name__ == "__main__":
    if sys.argv[1] == "counts":
        record_counts(sys.argv[2:])
    else:
        record_identities()
