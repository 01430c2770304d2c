"""Read the keys of a `config.json` and record which ones have been understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.text import listed, shown
from tuner.core.validation import largest

Config = Mapping[str, Any]
Fields = dict[str, Any]
"""Some fields of a `Model`."""

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings",),
    "ffn": ("intermediate_size",),
}
"""For each size, the keys that most families use for it; the first one in the config counts."""

ALL_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embed", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
}
"""For each size, the keys that one family or another uses for it; in any other family they have no effect."""

_NO_EFFECT: Final = re.compile(
    r"_.*|.*_token_(id|index)|model_type|(torch_)?dtype|use_cache|trust_remote_code|transformers(js)?_.*|.*name_or_path"
    r"|task_specific_params|summary_.*|id2label|label2id|num_labels|problem_type|classifier_dropout|pretraining_tp"
    r"|return_dict.*|output_(attentions|hidden_states|scores|router_logits)|torchscript|tf_legacy_loss|use_bfloat16"
    r"|tokenizer_class|is_decoder|tie_encoder_decoder|chunk_size_feed_forward|finetuning_task|prefix"
    r"|max_length|max_sequence_length|model_max_length|min_length|do_sample|early_stopping|(num_)?(beams|beam_groups|return_sequences)|diversity_penalty"
    r"|temperature|top_[kp]|typical_p|(repetition|length)_penalty|(encoder_)?no_repeat_ngram_size|bad_words_ids"
    r"|exponential_decay_length_penalty|(begin_)?suppress_tokens|remove_invalid_values|gradient_checkpointing"
    r"|attn_implementation|attention_softmax_in_fp32|scale_attention_softmax_in_fp32|reorder_and_upcast_attn"
    r"|slow_but_exact|init_device|cache_implementation|max_window_layers|pruned_heads|cross_attention_hidden_size"
    r"|use_flash_attn|fused_bias_fc|unsloth_.*|ep_size|(bias_dropout|masked_softmax)_fusion|skip_bias_add(_qkv)?"
    r"|offset_alibi|use_parallel_embedding"
)
"""Keys without effect on the model that is trained."""

_WEIGHTS_STORED_DIFFERENTLY: Final = ("quantization_config", "per_layer_config")
_STORED_NARROW: Final = ("fp8", "mxfp4")
"""Formats of published weights whose training keeps them in bf16 (DeepSeek-V3, Kimi K2, gpt-oss)."""


class Keys:
    """A config that records which keys were read, and which have no field in `Model`."""

    def __init__(
        self, config: Config, name: str, *, positions: int, ffn: int, spellings: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Read the sizes that all families have, by the family's `spellings` where they differ from the usual ones.

        `positions` and `ffn` are the library's for this family.
        """
        self.config = config
        self.name = name
        self.not_expressed: dict[str, None] = {}
        self._read: set[str] = set()
        self.sizes = {field: self._size(field, keys) for field, keys in {**SPELLINGS, **spellings}.items()}
        self.sizes["max_positions"] = self.sizes["max_positions"] or positions
        self.sizes["ffn"] = self.sizes["ffn"] or ffn
        for key in _WEIGHTS_STORED_DIFFERENTLY:
            stored = config.get(key)
            method = stored.get("quant_method") if isinstance(stored, dict) else None
            if not isinstance(method, str):
                self.expects(key)
            elif method not in _STORED_NARROW:
                self.not_expressed[f"{key} ({method[:40]!r})"] = None
            self._read.add(key)

    def get(self, *spellings: str, default: Any = None) -> Any:
        """Return the value of the first of these keys that is in the config and not null."""
        self._read.update(spellings)
        return next((self.config[key] for key in spellings if self.config.get(key) is not None), default)

    def has(self, key: str) -> bool:
        """Return whether the config has the key, even if its value is null."""
        self._read.add(key)
        return key in self.config

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a switch as transformers reads it: an explicit null is off."""
        self._read.add(key)
        value = self.config.get(key, default)
        return value is not None and switch(value, f"{self.name}: {key}")

    def number(self, *spellings: str, default: float) -> float:
        """Return a number."""
        value = self.get(*spellings, default=default)
        key = next((key for key in spellings if key in self.config), spellings[0])
        return number_of(value, f"{self.name}: {key}")

    def size(self, key: str, *, default: int = 0, null: int | None = None, least: int = 0) -> int:
        """Return a whole number of at least `least`; a null counts as `null`, or else as the default."""
        given = self.get(key)
        if given is None:
            return default if null is None or not self.has(key) else null
        value = whole(given, f"{self.name}: {key}")
        if value < least:
            raise InputError(f"{self.name}: {key} must be at least {least}, not {value}.")
        return value

    def numbers(self, key: str, *, default: Sequence[int]) -> list[int]:
        """Return a list of whole numbers or switches; a null takes the default."""
        value = self.get(key, default=default)
        if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
            raise InputError(f"{self.name}: {key} must be a list of whole numbers, not {shown(value)}.")
        return value

    def table(self, *spellings: str) -> Mapping[str, Any]:
        """Return an object, which is empty if the config has none."""
        return table_of(self.get(*spellings, default={}), f"{self.name}: {spellings[0]}")

    def _size(self, field: str, spellings: tuple[str, ...]) -> int:
        """Return a size under whichever key; 0 if the config has none and the family has a default."""
        value = self.get(*spellings)
        if value is None and field in ("ffn", "max_positions"):
            return 0
        if value is None:
            raise InputError(f"{self.name} lacks {listed(spellings, last='or')}.")
        key = next(key for key in spellings if self.config.get(key) is not None)
        if not 0 < whole(value, f"{self.name}: {key}") <= largest(field):
            raise InputError(f"{self.name}: {key} must be between 1 and {largest(field):,}, not {shown(value)}.")
        return int(value)

    def expects(self, key: str, *neutral: Any) -> None:
        """Note the key as not expressed if its value is neither null nor one of `neutral`."""
        value = self.get(key)
        if value is not None and value not in neutral:
            self.not_expressed[f"{key}={shown(value)}"] = None

    def repeats(self, key: str, *others: str) -> None:
        """Note the key as not expressed if its value is neither null nor that of the first other key with one."""
        self.expects(key, self.get(*others))

    def unread(self) -> list[str]:
        """Return the keys that nothing has read and that may have an effect, unless they are null."""
        keys = [key for key in self.config if key not in self._read and has_effect(key)]
        return [key for key in keys if self.config[key] is not None and not self._repeats_a_size(key)]

    def _repeats_a_size(self, key: str) -> bool:
        """Return whether a key is another family's spelling of a size and has this model's value."""
        sizes = {**self.sizes, "ffn": self.sizes["ffn"] or 4 * self.sizes["hidden"]}
        return any(key in keys and self.config[key] == sizes[field] for field, keys in ALL_SPELLINGS.items())


def has_effect(key: str) -> bool:
    """Return whether a key may have an effect on the model that is trained."""
    return not _NO_EFFECT.fullmatch(key)


def number_of(value: Any, label: str) -> float:
    """Return a number of a config. Raise `InputError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise InputError(f"{label} must be a number, not {shown(value)}.")
    return float(value)


def switch(value: Any, label: str) -> bool:
    """Return a switch of a config. Raise `InputError` for anything else."""
    if not isinstance(value, bool):
        raise InputError(f"{label} must be true or false, not {shown(value)}.")
    return value


def table_of(value: Any, label: str) -> Mapping[str, Any]:
    """Return an object of a config. Raise `InputError` for anything else."""
    if not isinstance(value, dict):
        raise InputError(f"{label} must be an object, not {shown(value)}.")
    return value


def whole(value: Any, label: str) -> int:
    """Return a whole number of a config. Raise `InputError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10**15:
        raise InputError(f"{label} must be a whole number, not {shown(value)}.")
    return value
