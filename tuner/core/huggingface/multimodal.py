"""Language models inside larger ones: the text_config of a model with a vision tower, as transformers 5.23 reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tuner.core.huggingface.classes import is_multimodal_of, unknown_classes
from tuner.core.huggingface.keys import Config, has_effect, table_of
from tuner.core.text import shown


@dataclass(frozen=True)
class Multimodal:
    """What the config class of a model with a vision tower says of its language model."""

    text: str
    """Family of a text_config that names none."""
    tied: bool
    """The class's tie_word_embeddings, for configs that omit it."""
    any_text: bool = False
    """Its text_config may be of any family; otherwise the class ignores the family that a text_config names."""
    tied_by: Literal["whole", "text", "either"] = "whole"
    """The config whose tie_word_embeddings counts; either: embeddings are tied if one says so; text: the language
    model inside has an output layer of its own, while others share the class's, a plain matrix."""
    keys: tuple[str, ...] = ()
    """Keys that concern the tower or its projector alone."""

    def ties_by_default(self, *, text: bool) -> bool:
        """Return whether embeddings are tied if the whole config omits it; `text`: if they are by the text_config."""
        return text if self.tied_by == "text" else self.tied or (self.tied_by == "either" and text)


MULTIMODAL: Final = {
    "gemma3": Multimodal("gemma3_text", tied=True, keys=("mm_tokens_per_image",)),
    "llama4": Multimodal("llama4_text", tied=False, tied_by="text"),
    "qwen3_vl": Multimodal("qwen3_vl_text", tied=False),
    "qwen3_vl_moe": Multimodal("qwen3_vl_moe_text", tied=False),
    "qwen3_5": Multimodal("qwen3_5_text", tied=False),
    "qwen3_5_moe": Multimodal("qwen3_5_moe_text", tied=False),
    "glm4v_moe": Multimodal("glm4v_moe_text", tied=False, tied_by="either"),
    "kimi_k25": Multimodal(
        "deepseek_v3",
        tied=True,
        any_text=True,
        keys=(
            *("projection_hidden_size", "projection_layer_norm_eps", "use_unified_vision_chunk", "video_placeholder"),
            "ignore_index",
        ),
    ),
    "mistral3": Multimodal(
        "mistral",
        tied=True,
        any_text=True,
        keys=("multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "vision_feature_layer"),
    ),
    "cohere2_vision": Multimodal(
        "cohere2", tied=True, any_text=True, keys=("alignment_intermediate_size", "downsample_factor")
    ),
    "internvl": Multimodal(
        "qwen2",
        tied=True,
        any_text=True,
        keys=(
            *("downsample_ratio", "image_seq_length", "projector_hidden_act", "vision_feature_layer"),
            "vision_feature_select_strategy",
        ),
    ),
}


@dataclass(frozen=True)
class TextVariant:
    """A family that is another one in every property, but for the library's defaults and keys that it does not read."""

    family: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Its defaults for missing keys, where they differ."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the other family that it does not read, with the values that it has."""


VARIANTS: Final = {
    "kimi_k2": TextVariant("deepseek_v3"),
    "gemma3_text": TextVariant(
        "gemma3_text",
        defaults={"hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "vocab_size": 262208},
    ),
    "qwen3_vl_text": TextVariant(
        "qwen3",
        defaults={"max_position_embeddings": 128_000, "rope_theta": 500_000.0},
        fixed={"use_sliding_window": False},
    ),
    "qwen3_vl_moe_text": TextVariant(
        "qwen3_moe",
        defaults={
            "max_position_embeddings": 128_000,
            "rope_theta": 500_000.0,
            "intermediate_size": 5632,
            "num_key_value_heads": 16,
            "moe_intermediate_size": 1408,
            "num_experts": 60,
            "num_experts_per_tok": 4,
        },
        fixed={"norm_topk_prob": True, "use_sliding_window": False},
    ),
    "glm4v_moe_text": TextVariant(
        "glm4_moe",
        defaults={"max_position_embeddings": 65_536, "attention_bias": True, "router_aux_loss_coef": 0.0001},
        fixed={"use_qk_norm": False, "num_nextn_predict_layers": 0},
    ),
}
"""Published configs of Gemma 3 with a vision tower omit sizes that equal the library's."""

_SAVED_AS: Final = {"num_experts": "num_local_experts"}
"""Keys that transformers saves under another name."""

_PARTS: Final = frozenset({"text_config", "vision_config", "tie_word_embeddings", "architectures", "auto_map"})
"""Keys of a whole config that `TextModel` accounts for."""


@dataclass(frozen=True)
class TextModel:
    """The config of a language model, and what is left of the config around it."""

    config: Config
    notes: Collection[str] = ()
    """What is not understood of the config around it."""
    around: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the config around it. The library does not pass them on, so they may only repeat the model."""


def text_model(whole: Config, name: str) -> TextModel:
    """Return the language model of a config with a text_config.

    transformers 5.23 ties the embeddings of most such models by the whole config, where earlier releases read the
    text_config; `Multimodal.tied_by` has the exceptions. So the whole config counts if it says anything, then the
    text_config. If neither does, the text model's own default counts: it is what published weights have (those of
    Mistral Small 3.2 and InternVL3 store an output layer), and transformers keeps an output layer that it finds,
    whatever the config says. But it would tie the embeddings of the same model trained from random weights. Wherever
    the whole config is silent and its class disagrees with what counts, that is not understood: the model can be
    planned, but not exported before its config says which is meant.

    The sizes that some classes give a model without any text_config (Mistral3Config: Mistral Small 3.1) do not complete
    a text_config that lacks them, and without one there is nothing to read.
    """
    given = whole.get("text_config")
    text = {**table_of({} if given is None else given, f"{name}: text_config")}
    model_type, kind = whole.get("model_type"), multimodal(whole)
    notes: list[str] = []
    if kind is None:
        notes.append(f"model_type={shown(model_type)}")
    else:
        notes.extend(unknown_classes(whole, str(model_type), is_multimodal_of))
        if not kind.any_text:
            if text.get("model_type") not in (None, kind.text, model_type):
                notes.append(f"text_config.model_type={shown(text['model_type'])}")
            text["model_type"] = kind.text
        text = {"model_type": kind.text, **text}
    if whole.get("tie_word_embeddings", False) is None:
        notes.append("tie_word_embeddings=None")
    elif "tie_word_embeddings" in whole:
        by = kind.tied_by if kind else "whole"
        if by == "whole" or (by == "either" and text.get("tie_word_embeddings") is not True):
            text["tie_word_embeddings"] = whole["tie_word_embeddings"]
    tower = _PARTS.union(kind.keys if kind else ())
    others = {key: value for key, value in whole.items() if key not in tower and has_effect(key) and value is not None}
    return TextModel(config=text, notes=notes, around=others)


def multimodal(config: Config) -> Multimodal | None:
    """Return the known family with a vision tower that a config is of."""
    model_type = config.get("model_type")
    return MULTIMODAL.get(model_type) if isinstance(model_type, str) else None


def as_known_family(config: Config) -> tuple[Config, list[str]]:
    """Return a config of a family that is a known one by another name as that one, and what it does not have of it."""
    model_type = config.get("model_type")
    variant = VARIANTS.get(model_type) if isinstance(model_type, str) else None
    if variant is None:
        return config, []
    notes = [
        f"{key}={shown(config[key])}"
        for key, value in variant.fixed.items()
        if config.get(key) is not None and config[key] != value
    ]
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    table = rope if isinstance(rope, dict) else {}
    defaults = {
        key: value
        for key, value in variant.defaults.items()
        if _SAVED_AS.get(key) not in config and table.get(key) is None
    }
    return {**defaults, **config, **variant.fixed, "model_type": variant.family}, notes
