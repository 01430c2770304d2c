"""Convert a Hugging Face `config.json` to a `Model`.

Each family's function returns the fields that differ from a plain GPT, with the library's defaults for missing keys
(transformers 5.23, configuration and modelling code of each family).
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tuner.core.catalog_entries import naming
from tuner.core.errors import InputError, TunerWarning
from tuner.core.huggingface import deepseek, delta_net, gpt, llama, moe
from tuner.core.huggingface.classes import is_model_of, unknown_classes
from tuner.core.huggingface.keys import Config, Fields, Keys
from tuner.core.huggingface.multimodal import VARIANTS, TextModel, as_known_family, multimodal, text_model
from tuner.core.model import Model
from tuner.core.text import listed, shown, shown_name

LONGEST_DEFAULT_SEQ: Final = 8192
"""Sequence length unless the config allows less; models that allow more are mostly trained at less."""


@dataclass(frozen=True)
class Family:
    """How to read a family, and the library's defaults for sizes that a config omits."""

    read: Callable[[Keys], Fields]
    positions: int = 2048
    ffn: int = 0
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its keys for sizes, where they differ from the usual ones; the first one in the config counts."""


_DENSE: Final = {
    "gpt2": Family(gpt.gpt2, 1024, spellings=gpt.GPT2_SPELLINGS),
    "gpt_bigcode": Family(gpt.gpt_bigcode, 1024, spellings=gpt.GPT2_SPELLINGS),
    "gpt_neo": Family(gpt.gpt_neo, spellings=gpt.GPT_NEO_SPELLINGS),
    "gpt_neox": Family(gpt.gpt_neox, ffn=24576),
    "gptj": Family(gpt.gptj, spellings=gpt.GPT2_SPELLINGS),
    "bloom": Family(gpt.bloom, spellings=gpt.BLOOM_SPELLINGS),
    "opt": Family(gpt.opt, ffn=3072, spellings=gpt.OPT_SPELLINGS),
    "falcon": Family(gpt.falcon, spellings=gpt.FALCON_SPELLINGS),
    "mpt": Family(gpt.mpt, spellings=gpt.MPT_SPELLINGS),
    "phi": Family(gpt.phi, ffn=8192),
    "starcoder2": Family(gpt.starcoder2, 4096, ffn=12288),
    "stablelm": Family(gpt.stablelm, 4096, ffn=6912),
    "nemotron": Family(gpt.nemotron, 4096, ffn=24576),
    "cohere": Family(gpt.cohere, 8192, ffn=22528),
    "cohere2": Family(gpt.cohere2, 8192, ffn=22528),
    "llama": Family(llama.llama, ffn=11008),
    "mistral": Family(llama.mistral, 131072, ffn=14336),
    "ministral3": Family(llama.ministral3, 262144, ffn=14336),
    "qwen2": Family(llama.qwen2, 32768, ffn=22016),
    "qwen3": Family(llama.qwen3, 32768, ffn=22016),
    "phi3": Family(llama.phi3, 4096, ffn=8192),
    "gemma": Family(llama.gemma, 8192, ffn=24576),
    "gemma2": Family(llama.gemma2, 8192, ffn=9216),
    "gemma3_text": Family(llama.gemma3, 131072, ffn=9216),
    "olmo": Family(llama.olmo, ffn=11008),
    "olmo2": Family(llama.olmo2, ffn=11008),
    "olmo3": Family(llama.olmo3, ffn=11008),
    "granite": Family(llama.granite, ffn=11008),
    "glm": Family(llama.glm, 131072, ffn=13696),
    "glm4": Family(llama.glm4, 131072, ffn=13696),
    "smollm3": Family(llama.smollm3, 32768, ffn=11008),
    "arcee": Family(llama.arcee, 4096, ffn=18432),
    "apertus": Family(llama.apertus, 65536, ffn=14336),
    "exaone4": Family(llama.exaone4, ffn=16384),
    "seed_oss": Family(llama.seed_oss, 524288, ffn=27648),
    "ernie4_5": Family(llama.ernie4_5, 131072, ffn=3072),
    "qwen3_5_text": Family(delta_net.qwen3_5, 32768, ffn=12288),
}

_MIXTURES: Final = {
    "mixtral": Family(moe.mixtral, 131072, ffn=14336),
    "qwen2_moe": Family(moe.qwen2_moe, 32768, ffn=5632),
    "qwen3_moe": Family(moe.qwen3_moe, 32768, ffn=6144),
    "deepseek_v2": Family(deepseek.deepseek_v2, 2048, ffn=11008),
    "deepseek_v3": Family(deepseek.deepseek_v3, 4096, ffn=18432),
    "gpt_oss": Family(moe.gpt_oss, 131072, ffn=2880),
    "glm4_moe": Family(deepseek.glm4_moe, 131072, ffn=10944),
    "glm4_moe_lite": Family(deepseek.glm4_moe_lite, 202752, ffn=10240),
    "solar_open": Family(deepseek.solar_open, 131072, ffn=1280),
    "dots1": Family(deepseek.dots1, 2048, ffn=10944),
    "hy_v3": Family(deepseek.hy_v3, 131072, ffn=13312),
    "afmoe": Family(deepseek.afmoe, 16384, ffn=6144),
    "exaone_moe": Family(deepseek.exaone_moe, ffn=16384),
    "llama4_text": Family(moe.llama4, 131072, ffn=8192),
    "olmoe": Family(moe.olmoe, 4096, ffn=2048),
    "phimoe": Family(moe.phimoe, 131072, ffn=6400),
    "granitemoe": Family(moe.granitemoe, 2048, ffn=11008),
    "ernie4_5_moe": Family(moe.ernie4_5_moe, 131072, ffn=12288),
    "minimax_m2": Family(moe.minimax_m2, 196608, ffn=1536),
    "qwen3_next": Family(delta_net.qwen3_next, 32768, ffn=5632),
    "qwen3_5_moe_text": Family(delta_net.qwen3_5_moe, 32768, ffn=512),
}

FAMILIES: Final = {**_DENSE, **_MIXTURES}

_DELTA_NETS: Final = frozenset(
    name for name, family in FAMILIES.items() if family.read.__module__ == delta_net.__name__
)
_UNLIKE: Final = {"hunyuan_v1_dense": "it normalizes queries and keys after their rotation"}
"""How an unknown family differs from the known one whose keys it has, where no field of `Model` describes that."""

_INDESCRIBABLE: Final = {
    **dict.fromkeys(
        ("gemma4_text", "gemma4_unified_text"),
        "it normalizes values, and its layers that attend to all tokens have heads of another width",
    ),
    "gemma3n_text": "each of its layers has an embedding, and its last layers share keys and values",
}
"""Why no field of `Model` describes a family, although it has the keys of a known one."""

_KIN: Final = {
    "llama": {"hidden_size", "intermediate_size", "rms_norm_eps"},
    "gpt_neox": {"hidden_size", "intermediate_size", "rotary_pct"},
    "gpt2": {"n_embd", "n_positions"},
}
"""Keys that identify an unknown family as a variant of a known one."""

_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "moe_intermediate_size")

_HYBRID: Final = re.compile(
    r"(?:falcon_)?mamba2?|zamba2?|bamba|jamba|falcon_h1|nemotron_h|granitemoehybrid"
    r"|recurrent_gemma|rwkv.*|xlstm|lfm\d.*|kimi_linear|olmo_hybrid|minimax(_m1|_text_01)?|bailing_hybrid|hymba|plamo2"
    r"|retnet|mega|hyena|stripedhyena|hgrn.*|gla|zaya"
)
"""Families with state-space, recurrent, convolutional or linear-attention layers, other than Gated DeltaNet."""

_HYBRID_KEYS: Final = re.compile(
    r"hybrid_.*|mamba_.*|ssm_.*|state_size|layers_block_type|block_types|attn_layer_(indices|period|offset)"
    r"|linear_(conv_kernel_dim|num_.*_heads|attn_config)|lru_width|conv_L_cache|full_attention_interval"
)

_REDUNDANT: Final[Mapping[str, tuple[str, ...]]] = {
    "lm_head_bias": ("head_bias",),
    "mlp_bias": ("mlp_bias",),
    "attention_bias": ("qkv_bias", "attention_bias"),
    "qkv_bias": ("qkv_bias",),
    "use_qk_norm": ("qk_norm",),
}
"""Switches that some families read and configs of others repeat, with the fields that they describe."""


def model_from(config: Config, *, name: str, where: str = "") -> Model:
    """Return the model that a config describes. Raise `InputError` for a missing key or an unsupported model.

    Messages name `where` the config is: its path, or else the name of the model.
    """
    where = where or name
    whole = _has_text_model(config)
    inner = text_model(config, where) if whole else TextModel(config)
    text, notes = as_known_family(inner.config)
    _refuse_hybrids(text, where)
    family, exact = _family(text, where)
    if family not in _MIXTURES:
        _refuse_experts(text, where)
    model = _read(text, family, exact, name, where)
    notes.extend(inner.notes)
    for key, value in inner.around.items():
        other = _read({**text, key: value}, family, exact, name, where)
        if other != model:
            new = set(other.not_understood) - set(model.not_understood)
            notes.extend(sorted(new) or [f"{shown_name(key)}={shown(value)}"])
    if whole:
        notes.extend(_differences_of_whole(config, model, where))
    return replace(model, not_understood=tuple(dict.fromkeys((*model.not_understood, *notes))))


def _read(config: Config, family: str, exact: bool, name: str, where: str) -> Model:
    """Return the language model that a config describes, read as one of a known family."""
    reader = FAMILIES[family]
    keys = Keys(config, where, positions=reader.positions, ffn=reader.ffn, spellings=reader.spellings)
    with naming(where):
        model = _model(reader.read(keys), keys, name)
    keys.expects("is_encoder_decoder", False)
    keys.get("architectures", "auto_map")
    unread = (shown_name(key) for key in keys.unread() if not _is_redundant(key, config[key], model))
    keys.not_expressed.update(dict.fromkeys(unread))
    if exact:
        keys.not_expressed.update(dict.fromkeys(unknown_classes(config, family)))
    else:
        keys.not_expressed[f"model_type={shown(config.get('model_type'))}"] = None
    return replace(model, not_understood=tuple(keys.not_expressed), read_as=None if exact else family)


def _model(read: Fields, keys: Keys, name: str) -> Model:
    """Return the model of the sizes of a config and of the fields that its family reads."""
    fields: dict[str, Any] = {
        "name": name,
        **keys.sizes,
        "seq": min(keys.sizes["max_positions"], LONGEST_DEFAULT_SEQ),
        "init_std": keys.number("initializer_range", default=0.02),
        **read,
    }
    if fields.get("head_size", 0) * fields["heads"] == fields["hidden"]:
        fields["head_size"] = 0
    latent = fields.get("latent")
    width = latent.key_size if latent else fields.get("head_size") or fields["hidden"] / fields["heads"]
    if math.isclose(fields.get("attention_scale", 0.0), width**-0.5, rel_tol=1e-9):
        fields["attention_scale"] = 0.0
    return Model(**fields)


def looks_like(config: Config) -> bool:
    """Return whether a JSON object is a Hugging Face config rather than a table of `Model` fields."""
    telling = ("model_type", "architectures", "n_embd", "hidden_size", "num_hidden_layers", "n_layer")
    return any(key in config for key in telling)


def name_of(path: Path) -> str:
    """Return the model's name by its file or folder; in Hugging Face's cache, whose files are links, its repository."""
    if path.name != "config.json":
        return path.stem
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100 (it keeps links)
    if folder.parent.name == "snapshots":
        folder = folder.parent.parent
    return folder.name.removeprefix("models--").rpartition("--")[2] or path.stem


def _is_redundant(key: str, value: Any, model: Model) -> bool:
    """Return whether a key that the family does not read says what its models have anyway."""
    if key in _EXPERTS:
        count = model.experts.count if model.experts and key != "moe_intermediate_size" else 0
        return bool(value in (0, count))
    if key == "shared_expert_intermediate_size":
        return bool(value == (model.experts.shared_ffn if model.experts else 0))
    if key == "layer_types":
        windowed = map(model.is_windowed_layer, range(model.layers))
        return bool(value == ["sliding_attention" if inside else "full_attention" for inside in windowed])
    if key == "scale_attn_weights":
        return value is True and not model.attention_scale
    described = _REDUNDANT.get(key, ())
    return bool(described) and all(getattr(model, name) is value for name in described)


def _has_text_model(config: Config) -> bool:
    """Return whether a config is that of a larger model whose text_config is of a family that tuner knows."""
    if multimodal(config):
        return True
    model_type, text = config.get("model_type"), config.get("text_config")
    inner = text.get("model_type") if isinstance(text, dict) else None
    known = isinstance(inner, str) and (inner in FAMILIES or inner in VARIANTS or inner in _INDESCRIBABLE)
    return known and not (isinstance(model_type, str) and model_type in FAMILIES)


def _differences_of_whole(config: Config, model: Model, name: str) -> Iterator[str]:
    """Warn of the parts that are not read; yield where the whole model may differ from its language model."""
    model_type, kind = shown(config.get("model_type")), multimodal(config)
    if kind is None:
        _warn(f"{name}: model_type {model_type} is unknown; its text_config is read, as a language model.")
        return
    _warn(f"{name} is read without its vision tower, as a language model.")
    by_default = kind.ties_by_default(text=model.tied_embeddings)
    given = config.get("tie_word_embeddings", by_default)
    if kind.tied_by == "text":
        if bool(given) != model.tied_embeddings:
            yield f"tie_word_embeddings={shown(given)} (outside text_config)"
        return
    if "tie_word_embeddings" not in config and by_default != model.tied_embeddings:
        tied, other = ("tied", "does not tie") if model.tied_embeddings else ("not tied", "ties")
        _warn(
            f"{name} does not say whether its embeddings are tied: they are read as {tied}, as in its text_config "
            f"alone, but transformers {other} those of a new {model_type}. To export it, add tie_word_embeddings "
            "outside its text_config."
        )
        yield "tie_word_embeddings (missing outside text_config)"
    for part, none in (("logit_scale", 1.0), ("logit_softcap", 0.0), ("head_bias", False)):
        if (value := getattr(model, part)) != none:
            yield f"{part}={shown(value)} (not in transformers' {config['model_type']})"


def _refuse_hybrids(config: Config, name: str) -> None:
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in _DELTA_NETS:
        return
    layers = config.get("layer_types")
    other = {kind for kind in layers if isinstance(kind, str)} if isinstance(layers, list) else set()
    other -= {"full_attention", "sliding_attention", "chunked_attention", "attention"}
    key = next((key for key in config if _HYBRID_KEYS.fullmatch(key) and config[key]), None)
    known = isinstance(model_type, str) and _HYBRID.fullmatch(model_type)
    if known or key or other:
        reason = f" ({shown_name(key)})" if key else f" ({listed(map(shown_name, sorted(other)))})" if other else ""
        has = "has" if key or other else "may have"
        raise InputError(
            f"{name}: model_type {shown(model_type)} {has} layers other than attention and MLP{reason}; state-space, "
            "linear-attention and hybrid models cannot be described."
        )


def _refuse_experts(config: Config, name: str) -> None:
    if key := next((key for key in _EXPERTS if config.get(key)), None):
        if topk := config.get("index_topk"):
            raise InputError(
                f"{name}: model_type {shown(config.get('model_type'))} has sparse attention "
                f"(index_topk={shown(topk)}), which cannot be described."
            )
        raise InputError(
            f"{name} is a mixture of experts ({key}={shown(config[key])}) of an unknown family; known "
            f"families are {listed(sorted(_MIXTURES), limit=40)}. If its layers are attention and experts, describe "
            "it in a TOML file with a table experts."
        )


def _family(config: Config, name: str) -> tuple[str, bool]:
    """Return the known family of a config, by its model_type, its class, or the keys that it shares with one.

    The second value is false for the last of these.
    """
    given = config.get("model_type")
    if isinstance(given, str) and given in FAMILIES:
        return given, True
    if isinstance(given, str) and given in _INDESCRIBABLE:
        raise InputError(f"{name}: model_type {shown(given)} cannot be described: {_INDESCRIBABLE[given]}.")
    architectures = config.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    for family in FAMILIES:
        if not given and is_model_of(family, architecture):
            return family, True
    _refuse_experts(config, name)
    given_keys = {key for key, value in config.items() if value is not None}
    kin = next((family for family, keys in _KIN.items() if keys <= given_keys), None)
    if kin is None and isinstance(config.get("text_config"), dict):
        raise InputError(
            f"{name}: model_type {shown(given)} is unknown; to plan its language model, save its text_config as a "
            "config.json of its own, and copy the outer tie_word_embeddings."
        )
    if kin is None:
        known = listed(FAMILIES, limit=40)
        raise InputError(
            f"{name}: model_type {shown(given)} is unknown, and so are its keys; encoder and encoder-decoder models "
            f"are not supported. Known families are {known}."
        )
    advice = (
        f"If it is a {kin} in every respect, set its model_type to {kin} and remove its architectures and auto_map; "
        "otherwise its parameter count may be wrong."
    )
    if isinstance(given, str) and given in _UNLIKE:
        advice = f"Unlike a {kin}, {_UNLIKE[given]}, so its parameter count may be wrong and it cannot be exported."
    _warn(f"{name}: model_type {shown(given)} is unknown; it is read as {kin}, whose keys it has. {advice}")
    return kin, False


def _warn(message: str) -> None:
    warnings.warn(message, TunerWarning, stacklevel=4)
