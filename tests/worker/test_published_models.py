"""The worker's model of a published config has the logits of transformers for the same weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.worker.test_worker_arithmetic import maker, torch
from tests.workers import WORKLOAD
from tuner.core.huggingface import model_from
from tuner.core.model import Model
from tuner.worker.linear import Recipe
from tuner.worker.model import Whole

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "head_dim": 16,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "moe_intermediate_size": 48,
    "sliding_window": 12,
    "sliding_window_size": 12,
    "shared_expert_intermediate_size": 80,
    "num_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
"""Sizes that replace those of a config; the window is shorter than a sequence."""
NAMES = (
    *("llama-3.1-8b", "llama-3.2-1b", "qwen2-7b", "qwen3-8b", "gemma-2b", "gemma-2-9b", "gemma-3-1b", "glm-4-9b"),
    *("glm-4-9b-0414", "olmo-2-7b", "minitron-4b", "stablelm-2-1.6b", "command-r", "command-r7b", "smollm3-3b"),
    *("mistral-7b-v0.1", "starcoder2-7b", "granite-3.1-8b", "mixtral-8x7b", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b"),
    *("olmoe-1b-7b", "granite-3.0-3b-a800m", "exaone-4.0-32b", "ernie-4.5-0.3b", "seed-oss-36b"),
)
NORMS: dict[str, Mapping[str, str]] = {
    "before": {"input_layernorm": "before_attention", "post_attention_layernorm": "before_mlp"},
    "after": {"post_attention_layernorm": "after_attention", "post_feedforward_layernorm": "after_mlp"},
    "gemma": {
        "input_layernorm": "before_attention",
        "post_attention_layernorm": "after_attention",
        "pre_feedforward_layernorm": "before_mlp",
        "post_feedforward_layernorm": "after_mlp",
    },
    "glm": {
        "input_layernorm": "before_attention",
        "post_self_attn_layernorm": "after_attention",
        "post_attention_layernorm": "before_mlp",
        "post_mlp_layernorm": "after_mlp",
    },
}
"""Names of a layer's norms in transformers and in the worker, by placement; two families have norms on both sides."""
PARTS = {
    "self_attn.o_proj": "attention.out",
    **{f"self_attn.{name}_norm": f"attention.norms.{index}" for index, name in enumerate("qk")},
    **{f"mlp.{name}": "mlp.down" for name in ("down_proj", "c_proj")},
    **{f"mlp.{name}": "mlp.up" for name in ("up_proj", "c_fc", "gate_up_proj")},
    "mlp.shared_expert.down_proj": "mlp.shared.down",
}
MIXTURE = {
    "gate.weight": "router.weight",
    "router.weight": "router.weight",
    "shared_expert_gate.weight": "gate",
    "experts.gate_up_proj": "experts.up",
    "experts.down_proj": "experts.down",
}


def small(name: str) -> dict[str, Any]:
    """Return a published config at small sizes."""
    config = json.loads((ROOT / "tests" / "data" / "huggingface" / f"{name}.json").read_text())
    config |= {key: value for key, value in SMALL.items() if config.get(key) is not None}
    for key in ("layer_types", "no_rope_layers"):
        if key in config:
            config[key] = config[key][: SMALL["num_hidden_layers"]]
    return {**config, "initializer_range": 0.15, **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))}


def translated(state: Mapping[str, Any], model: Model) -> Iterator[tuple[str, Any]]:
    """Yield the weights of transformers under the worker's names."""

    def joined(words: tuple[str, ...], part: str) -> Any:
        found = [state[word + part] for word in words if word + part in state]
        return torch.cat(found) if len(found) == len(words) else None

    yield "words.weight", state["model.embed_tokens.weight"]
    if not model.tied_embeddings:
        yield "head.weight", state["lm_head.weight"]
    for part in (".weight", ".bias"):
        yield f"final_norm.norm{part}", state.get(f"model.norm{part}")
    around = "gemma" if "model.layers.0.pre_feedforward_layernorm.weight" in state else "glm"
    names = NORMS[around if model.norm_placement == "around" else model.norm_placement]
    for layer in range(model.layers):
        source, target = f"model.layers.{layer}.", f"layers.{layer}."
        for part in (".weight", ".bias"):
            yield f"{target}attention.qkv{part}", joined(tuple(f"{source}self_attn.{one}_proj" for one in "qkv"), part)
            for inner in ("", "shared_expert."):
                pair = tuple(f"{source}mlp.{inner}{one}_proj" for one in ("gate", "up"))
                yield f"{target}mlp.{inner.replace('_expert', '')}up{part}", joined(pair, part)
            for old, new in {**names, **PARTS}.items():
                gated = model.gated_mlp and old == "mlp.up_proj"
                yield target + new + part, None if gated else state.get(source + old + part)
        for block in ("mlp.", "block_sparse_moe."):
            for old, new in MIXTURE.items():
                yield f"{target}mlp.{new}", state.get(source + block + old)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
@pytest.mark.parametrize("name", NAMES)
def test_a_published_model_has_the_logits_of_transformers(name: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = small(name)
    unread = ("transformers_version", "torch_dtype", "architectures", "auto_map")
    known = AutoConfig.for_model(**{key: value for key, value in config.items() if key not in unread})
    known._attn_implementation = "eager"
    torch.manual_seed(0)
    published = AutoModelForCausalLM.from_config(known).float().eval()
    for parameter in (one for one in published.parameters() if one.dim() == 1):
        parameter.data += 0.3 * torch.randn_like(parameter)
    model = replace(model_from(config, name=name), seq=64, vocab_multiple=0)
    assert not model.not_understood
    workload = replace(WORKLOAD, model=model, precision="fp32", attention="eager", routing="natural")
    recipe = Recipe(workload=workload, recompute_attention=False, microbatches=1)
    built: Any = Whole(recipe, maker(), recompute_layers=False).float().eval()
    parameters, loaded = dict(built.named_parameters()), set()
    for target, value in translated(published.state_dict(), model):
        if value is not None:
            parameters[target].data.copy_(value.reshape(parameters[target].shape))
            loaded.add(target)
    assert loaded == set(parameters)
    built.loss = lambda logits, _: logits
    tokens = torch.randint(0, model.vocab, (1, model.seq))
    with torch.no_grad():
        expected, found = published(tokens).logits, built(tokens, tokens).transpose(0, 1) * model.logit_scale
    if model.logit_softcap:
        found = model.logit_softcap * torch.tanh(found / model.logit_softcap)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
