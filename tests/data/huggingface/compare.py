"""Compare what tuner reads from configs with what transformers builds from them; print the differences.

    python -m tests.data.huggingface.compare

Five comparisons: the parameters of every config in this folder, those of random variants at a tiny size (on the meta
device), at a tiny size the constants in transformers' modules: rotary frequencies, norm epsilons, activations,
attention scales, windows, Gated DeltaNet, soft caps, dropouts and factors; every config with itself as transformers
saves it; and all of these with the language model inside each model with a vision tower.
"""

from __future__ import annotations

import json
import math
import random
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.data.huggingface.record import CONFIGS, REQUIRED_BY_FAMILY, counted, has_tower, text_config
from tuner.core.errors import InputError
from tuner.core.huggingface import FAMILIES, model_from
from tuner.core.huggingface.multimodal import MULTIMODAL
from tuner.core.model import Model

VARIANTS: Final = 6
MIN_FACTS: Final = 12
SWITCHES: Final = (
    *("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "enable_bias", "bias", "use_qkv_bias"),
    *("multi_query", "use_parallel_residual", "use_qk_norm", "do_layer_norm_before", "layer_norm_elementwise_affine"),
    *("norm_topk_prob", "rope_interleave"),
    *("parallel_attn", "new_decoder_architecture", "alibi", "use_sliding_window"),
)
NOTED: Final = {"afmoe": {"attention_bias"}}
"""Switches of a family that no field of `Model` describes, so that its config is read with a note."""
SIZES: Final[dict[str, tuple[Any, ...]]] = {
    "intermediate_size": (96,),
    "num_key_value_heads": (2, 4),
    "head_dim": (16, 24),
    "n_positions": (50,),
    "n_inner": (None, 80),
    "ffn_dim": (77,),
    "word_embed_proj_dim": (None, 32),
    "num_kv_heads": (None, 2),
    "q_lora_rank": (None, 16),
    "n_shared_experts": (0, 1, 2),
    "first_k_dense_replace": (0, 1, 3),
    "decoder_sparse_step": (1, 2, 4),
    "mlp_only_layers": ([], [0]),
    "interleave_moe_layer_step": (1, 2),
    "moe_layer_start_index": (0, 1),
    "num_ln_in_parallel_attn": (None, 1, 2),
    "linear_num_value_heads": (4, 8),
    "linear_key_head_dim": (16, 24),
    "linear_value_head_dim": (16, 40),
    "linear_conv_kernel_dim": (2, 4),
    "full_attention_interval": (1, 3, 4, 9),
}
TINY: Final[dict[str, int]] = {
    **dict.fromkeys(("hidden_size", "n_embed", "n_embd", "d_model"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 8),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim"), 96),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    "vocab_size": 512,
    "head_dim": 16,
    "rotary_dim": 8,
    "word_embed_proj_dim": 64,
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "n_group"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"), 24),
    "qk_rope_head_dim": 8,
    "linear_num_key_heads": 4,
    **dict.fromkeys(("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"), 8),
    "topk_group": 1,
    "moe_layer_end_index": 7,
}
_TINY_VIT: Final = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 1}
_TINY_QWEN: Final = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
TINY_TOWERS: Final[dict[str, dict[str, Any]]] = {
    "gemma3": {"model_type": "siglip_vision_model", **_TINY_VIT},
    "llama4": {**_TINY_VIT, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32},
    "qwen3_vl": {**_TINY_QWEN, "deepstack_visual_indexes": [0]},
    "qwen3_vl_moe": {**_TINY_QWEN, "deepstack_visual_indexes": [0]},
    "qwen3_5": _TINY_QWEN,
    "qwen3_5_moe": _TINY_QWEN,
    "glm4v_moe": _TINY_QWEN,
    "kimi_k25": _TINY_VIT,
    "mistral3": {"model_type": "pixtral", **_TINY_VIT, "head_dim": 16},
    "cohere2_vision": {"model_type": "siglip_vision_model", **_TINY_VIT},
    "internvl": {"model_type": "internvl_vision", **_TINY_VIT},
}


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config at a tiny size; lists over layers are cut."""
    small = {key: TINY.get(key, value) for key, value in config.items() if not key.endswith("_token_id")}
    small = {key: value[:8] if isinstance(value, list) and len(value) > 8 else value for key, value in small.items()}
    if "attention_types" in small:
        small["attention_types"] = [[["global", "local"], 4]]
    return {**small, "pad_token_id": 0}


def variants(family: str) -> Iterator[dict[str, Any]]:
    """Return random configs of a family."""
    from transformers import AutoConfig

    chance = random.Random(family)  # noqa: S311
    known = AutoConfig.for_model(family).to_dict()
    smallest = {key: size for key, size in TINY.items() if key in known or key == "vocab_size"}
    for _ in range(VARIANTS):
        config = {"model_type": family, **REQUIRED_BY_FAMILY.get(family, {}), **smallest, "pad_token_id": 0}
        switches = [key for key in SWITCHES if key in known and key not in NOTED.get(family, ())]
        config |= {key: chance.choice([True, False]) for key in switches if chance.random() < 0.6}
        config |= {
            key: chance.choice(values) for key, values in SIZES.items() if key in known and chance.random() < 0.6
        }
        if family == "gpt_neo":
            config["attention_types"] = [[["global", "local"], 4]]
        yield config


def counts() -> Iterator[str]:
    """Return the differences in parameters."""
    configs = [(path.stem, text_config(path)) for path in CONFIGS]
    for name, config in configs + [(family, config) for family in FAMILIES for config in variants(family)]:
        model = model_from(config, name=name)
        read, theirs = model.parameters - model.mtp_parameters, counted(config)
        if read != theirs:
            yield f"{name}: {read:,} parameters, transformers {theirs:,}, of {config}"


def saved_again() -> Iterator[str]:
    """Return the differences between each config and what transformers makes of it, with all of its keys.

    Of Llama 4, which tuner does not understand anyway, it also lists layers that attend to chunks.
    """
    from transformers import AutoConfig

    for path in CONFIGS:
        config = text_config(path)
        stored = {"quantization_config", "architectures"}
        kept = {key: value for key, value in config.items() if key not in stored}
        again = json.loads(json.dumps(AutoConfig.for_model(**kept).to_dict(), default=str))
        first, second = (model_from({**each, "architectures": None}, name=path.stem) for each in (kept, again))
        new = set(second.not_understood) - set(first.not_understood)
        if config["model_type"] == "llama4_text":
            new.discard("layer_types")
        if new or replace(first, not_understood=()) != replace(second, not_understood=()):
            yield f"{path.stem} as transformers saves it: {sorted(new)}, {second}, not {first}"


def constants() -> Iterator[str]:
    """Return the differences in the constants of transformers' modules, of each config and without each of its keys."""
    seen = set()
    for path in CONFIGS:
        config = shrunk(text_config(path))
        yield from _differences(path.stem, config)
        family = config["model_type"]
        for key in [key for key in config if key not in TINY and key != "model_type" and (family, key) not in seen]:
            seen.add((family, key))
            without = {name: value for name, value in config.items() if name != key}
            try:
                yield from _differences(f"{path.stem} without {key}", without)
            except (AssertionError, InputError, TypeError, ValueError) as error:
                print(f"skipped: {path.stem} without {key}: {str(error)[:80]}")


def inside() -> Iterator[str]:
    """Return the differences from the language model inside each model with a vision tower.

    The tower is that of the library's default config, at a tiny size. Of a model whose config does not say whether its
    embeddings are tied, both are compared.
    """
    from transformers import AutoConfig

    for family, kind in MULTIMODAL.items():
        if kind.tied != (tied := AutoConfig.for_model(family).tie_word_embeddings):
            yield f"{family}: tied {kind.tied}, transformers {tied}"
    for path in filter(has_tower, CONFIGS):
        whole = json.loads(path.read_text())
        whole["vision_config"] = TINY_TOWERS[whole["model_type"]]
        whole["text_config"] = {**shrunk(whole["text_config"]), "quantization_config": None}
        if whole["text_config"]["model_type"] == "kimi_k2":
            whole["text_config"]["model_type"] = "deepseek_v3"
        yield from _inside(path.stem, whole)
        for tied in (True, False):
            yield from _inside(f"{path.stem}, tied: {tied}", {**whole, "tie_word_embeddings": tied})
        for key in [key for key in whole["text_config"] if key not in TINY and key != "model_type"]:
            text = {name: value for name, value in whole["text_config"].items() if name != key}
            try:
                yield from _inside(f"{path.stem} without {key}", {**whole, "text_config": text})
            except (AssertionError, InputError, TypeError, ValueError) as error:
                print(f"skipped: {path.stem} without {key}: {str(error)[:80]}")


def _inside(name: str, whole: dict[str, Any]) -> Iterator[str]:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    given = {key: value for key, value in whole.items() if key not in ("architectures", "auto_map")}
    config = AutoConfig.for_model(**json.loads(json.dumps(given)))
    with torch.device("cpu"):
        built = AutoModelForImageTextToText.from_config(config)
    model = model_from(given, name=name)
    language, head = getattr(built, "model", built).language_model, built.get_output_embeddings()
    facts = [*_module_facts(model, language), *_config_facts(model, config.text_config)]
    if len(facts) < MIN_FACTS:
        yield f"{name}: only {len(facts)} constants were found in transformers' modules"
    parameters = {id(one): one for one in [*language.parameters(), *head.parameters()] if one.requires_grad}
    count = sum(one.numel() for one in parameters.values())
    states = [note for note in model.not_understood if note.startswith("tie_word_embeddings")]
    if not states:
        facts.append(("parameters", model.parameters - model.mtp_parameters, count))
    for what, read, theirs in facts:
        if not _close(read, theirs):
            yield f"{name}: {what} {read}, transformers {theirs}"
    for again in (config.to_dict(), config.to_diff_dict()):
        saved = json.loads(json.dumps({**again, "architectures": None}, default=str))
        second = model_from(saved, name=name)
        new = (
            set(second.not_understood)
            - set(model.not_understood)
            - ({"layer_types"} if whole["model_type"] == "llama4" else set())
        )
        same = {"not_understood": (), "tied_embeddings": model.tied_embeddings} if states else {"not_understood": ()}
        if new or replace(second, **same) != replace(model, not_understood=()):
            yield f"{name} as transformers saves it: {sorted(new)}, {second}, not {model}"


def _differences(name: str, config: dict[str, Any]) -> Iterator[str]:
    from transformers import AutoConfig, AutoModelForCausalLM

    built = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model = model_from(config, name=name)
    facts = [*_module_facts(model, built), *_config_facts(model, built.config)]
    if len(facts) < MIN_FACTS:
        yield f"{name}: only {len(facts)} constants were found in transformers' modules"
    count = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)
    for what, read, theirs in [*facts, ("parameters", model.parameters - model.mtp_parameters, count)]:
        if not _close(read, theirs):
            yield f"{name}: {what} {read}, transformers {theirs}"


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return math.isclose(one or 0.0, other or 0.0, rel_tol=1e-4, abs_tol=1e-12)


def _module_facts(model: Model, built: Any) -> Iterator[tuple[str, Any, Any]]:
    import torch

    head = model.latent.key_size if model.latent else model.head_size or model.hidden // model.heads
    points = torch.linspace(-3, 3, 13)
    norms = 0
    for name, module in built.named_modules():
        kind = type(module).__name__
        if kind.endswith(("Norm", "Norm1P")) and (hasattr(module, "eps") or hasattr(module, "variance_epsilon")):
            yield (
                f"{name} epsilon",
                model.latent.norm_epsilon if model.latent and "_a_layernorm" in name else model.norm_epsilon,
                getattr(module, "eps", getattr(module, "variance_epsilon", None)),
            )
            norms += ".0." in name and not any(part in name for part in ("q_", "k_", "kv_", "attn.norm"))
        if name.rpartition(".")[2] in ("act", "act_fn", "activation_fn", "gelu_impl") and model.activation != "xielu":
            assert model.activation is not None
            yield f"{name}(x)", _activated(points, model.activation), module(points).tolist()
        if name.endswith(("attn", "attention", "self_attn")) and ".0" in name:
            scale = model.attention_scale or head**-0.5
            found = [
                getattr(module, key) for key in ("scaling", "softmax_scale", "inv_norm_factor") if hasattr(module, key)
            ]
            yield from ((f"{name} scale", scale, value) for value in found)
            dropout = next(
                (getattr(module, k) for k in ("attention_dropout", "attn_dropout") if hasattr(module, k)), None
            )
            if dropout is not None:
                yield f"{name} dropout", model.attention_dropout, getattr(dropout, "p", dropout)
        if kind.endswith("GatedDeltaNet"):
            yield from _delta_net_facts(model, name, module)
        if hasattr(module, "sliding_window") and (layer := next(filter(str.isdigit, name.split(".")), None)):
            index = int(layer) - model.window_start
            inside = index >= 0 and (not model.window_skip or (index + 1) % model.window_skip != 0)
            theirs = module.sliding_window if getattr(module, "is_sliding", True) else 0
            yield f"{name} window", model.sliding_window * inside, theirs
        if hasattr(module, "scalar_embed_scale"):
            yield f"{name} scale", model.embedding_scale, module.scalar_embed_scale
    if model.norm_weight:
        yield "norms in a layer", model.norms_per_layer, norms
    linear = sum(type(module).__name__.endswith("GatedDeltaNet") for module in built.modules())
    yield "layers with Gated DeltaNet", model.delta_layers, linear
    for name, buffer in built.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            yield name, _frequencies(model, head, local="sliding" in name), buffer.tolist()


def _delta_net_facts(model: Model, name: str, module: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the sizes of a layer's Gated DeltaNet, all 0 where the model has attention in that layer."""
    delta, layer = model.delta_net, next(filter(str.isdigit, name.split(".")))
    linear = delta is not None and not delta.has_attention(int(layer))
    sizes = [delta.key_heads, delta.value_heads, delta.key_size, delta.value_size, delta.kernel] if delta else []
    keys = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "conv_kernel_size")
    yield f"{name} sizes", [size * linear for size in sizes], [getattr(module, key) for key in keys]


def _config_facts(model: Model, config: Any) -> Iterator[tuple[str, Any, Any]]:
    keys = {
        "attn_logit_softcapping": model.attention_softcap,
        "final_logit_softcapping": model.logit_softcap,
        "embedding_multiplier": model.embedding_scale,
        "residual_multiplier": model.residual_scale,
        "initializer_range": model.init_std,
        "resid_pdrop": model.hidden_dropout,
        "residual_dropout": model.hidden_dropout,
        "logits_scaling": 1 / model.logit_scale,
    }
    for key, read in keys.items():
        if hasattr(config, key):
            yield key, read, getattr(config, key)
    if config.model_type in ("cohere", "cohere2"):
        yield "logit_scale", model.logit_scale, config.logit_scale
    if config.model_type in ("mistral", "starcoder2", "phi3"):
        yield "sliding_window", model.sliding_window, config.sliding_window


def _activated(points: Any, activation: str) -> list[float]:
    from torch.nn import functional

    values = {
        "gelu": functional.gelu(points),
        "gelu_tanh": functional.gelu(points, approximate="tanh"),
        "silu": functional.silu(points),
        "relu": functional.relu(points),
        "relu2": functional.relu(points).square(),
    }
    found: list[float] = values[activation].tolist()
    return found


def _frequencies(model: Model, head: int, *, local: bool) -> list[float]:
    """Return the rotary frequencies that the fields of a model describe."""
    base = (local and model.rotary_local_base) or model.rotary_base
    width = model.latent.rope_size if model.latent else int(head * model.rotary_fraction)
    plain = [base ** (-index / width) for index in range(0, width, 2)]
    scaling = None if local else model.rotary_scaling
    if scaling is None or scaling.kind == "dynamic":  # which scales longer sequences alone
        return plain
    if scaling.kind == "linear":
        return [frequency / scaling.factor for frequency in plain]
    if scaling.kind == "yarn":
        low, high = (
            width * math.log(scaling.original_seq / (beta * 2 * math.pi)) / (2 * math.log(base))
            for beta in (scaling.beta_fast, scaling.beta_slow)
        )
        if scaling.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        kept = [1 - min(1.0, max(0.0, (index - low) / (high - low))) for index in range(width // 2)]
        return [f * keep + f / scaling.factor * (1 - keep) for f, keep in zip(plain, kept, strict=True)]
    smooth = []
    for frequency in plain:  # llama3
        turns = scaling.original_seq * frequency / (2 * math.pi)
        span = scaling.high_frequency - scaling.low_frequency
        share = (turns - scaling.low_frequency) / span if span else float(turns > scaling.high_frequency)
        share = min(1.0, max(0.0, share))
        smooth.append(share * frequency + (1 - share) * frequency / scaling.factor)
    return smooth


def main() -> int:
    """Print all differences and return whether there are any."""
    warnings.simplefilter("ignore")
    differences = [*counts(), *saved_again(), *constants(), *inside()]
    print("\n".join([*differences, f"{len(differences)} differences"]))
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
