"""The classes that a config names: whether they are those of its family, by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tuner.core.huggingface.keys import Config
from tuner.core.text import shown

_MODELS: Final = ("AutoModel", "AutoModelForCausalLM")
"""Entries of `auto_map` with the class of the language model; the others are tokenizers and models of other tasks."""


def is_model_of(family: str, name: Any) -> bool:
    """Return whether a class is a family's language model."""
    return _is_class_of(family, name, "(Text)?(ForCausalLM|LMHeadModel|Model)")


def is_multimodal_of(family: str, name: Any) -> bool:
    """Return whether a class is the model of a family with a vision tower."""
    return _is_class_of(family, name, "(ForConditionalGeneration|Model)")


def unknown_classes(config: Config, family: str, known: Callable[[str, Any], bool] = is_model_of) -> Iterator[str]:
    """Yield each class of `architectures` or `auto_map` that is not the family's, with its key."""
    named = config.get("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if not known(family, name):
            yield f"architectures ({shown(name)})"
    custom = config.get("auto_map") or {}
    if not isinstance(custom, dict):
        yield f"auto_map ({shown(custom)})"
        return
    for key in _MODELS:
        if key in custom and not known(family, _last_part(custom[key])):
            yield f"auto_map ({shown(custom[key])})"
    if "AutoConfig" in custom and not _is_class_of(family, _last_part(custom["AutoConfig"]), "(Text)?Config"):
        yield f"auto_map ({shown(custom['AutoConfig'])})"


def _is_class_of(family: str, name: Any, suffix: str) -> bool:
    stem = family.removesuffix("_text").replace("_", "")
    return isinstance(name, str) and bool(re.fullmatch(stem + suffix, name.replace("_", ""), re.IGNORECASE))


def _last_part(name: Any) -> Any:
    """Return the class of `repository--module.Class`."""
    return name.rpartition(".")[2] if isinstance(name, str) else name
