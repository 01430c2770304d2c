"""Compare the logits of Megatron-LM's own model, built from exported flags, with those of transformers, on a CPU.

    MEGATRON_LM=CHECKOUT python tests/export/megatron_logits.py NAME...

Prints one JSON object with the largest difference of a logit for each config. Kernels that need a GPU are replaced by
Megatron's local ones, which compute the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.export.test_export import bloom
from tests.record_flags import Mocks
from tests.worker.test_published_models import small
from tuner.core.huggingface import model_from
from tuner.core.model import Model
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.production import ProductionRun

EXTRA = {
    "n_routed_experts": 16,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "experts_per_token": 2,
}
GPU_ONLY = {
    *("--moe-grouped-gemm", "--moe-permute-fusion", "--bf16", "--use-distributed-optimizer", "--overlap-grad-reduce"),
    *("--overlap-param-gather", "--recompute-granularity", "--recompute-method", "--recompute-num-layers"),
    *("--attention-backend", "--cross-entropy-loss-fusion", "--transformer-impl", "--moe-token-dispatcher-type"),
}
INSTEAD = (
    *("--transformer-impl", "local", "--moe-token-dispatcher-type", "allgather", "--use-cpu-initialization"),
    *("--no-masked-softmax-fusion", "--no-gradient-accumulation-fusion", "--no-rope-fusion", "--no-persist-layer-norm"),
    *("--tokenizer-type", "NullTokenizer", "--mock-data"),
)
LATENT = {
    "q_a_proj": "linear_q_down_proj",
    "q_b_proj": "linear_q_up_proj",
    "kv_b_proj": "linear_kv_up_proj",
    "kv_a_proj_with_mqa": "linear_kv_down_proj",
    "q_a_layernorm": "q_layernorm",
    "kv_a_layernorm": "kv_layernorm",
    "o_proj": "linear_proj",
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
}


def prepared() -> None:
    """Let Megatron build a model on a CPU."""
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getpid() % 30_000)}
    whole: Any = torch
    whole.compile = lambda function=None, **_: function or (lambda inner: inner)
    whole.jit.script = lambda function=None, *_, **__: function or (lambda inner: inner)
    properties, ones = MagicMock(major=9, minor=0, multi_processor_count=132), torch.ones
    whole.cuda.get_device_properties = lambda *_: properties
    whole.cuda.get_device_capability = lambda *_: (9, 0)
    whole.cuda.current_device = lambda: torch.device("cpu")
    whole.ones = lambda *sizes, **given: ones(*sizes, **given | ({"device": "cpu"} if "device" in given else {}))
    sys.meta_path.insert(0, Mocks("triton"))
    import typing

    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]


def megatron(run: ProductionRun) -> Any:
    """Return the model that Megatron builds from the exported flags of a run."""
    from megatron.training import argument_utils, arguments
    from megatron.training.models.gpt import GPTModelBuilder

    flags = [word for flag in megatron_core_flags(run) if flag[0] not in GPU_ONLY for word in flag]
    sys.argv = ["pretrain_gpt.py", *flags, *(one for one in INSTEAD if one not in flags)]
    args = arguments.parse_args()
    arguments.validate_args(args)
    config = argument_utils.gpt_config_from_args(args)
    config.transformer.params_dtype = torch.float32
    return GPTModelBuilder(config).build_model(groups(), pre_process=True, post_process=True).float().eval()


def groups() -> Any:
    """Return Megatron's groups of the only rank."""
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import dot_product_attention

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", world_size=1, rank=0)
        parallel_state.initialize_model_parallel(1, 1)
        random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
        plain = dot_product_attention.DotProductAttention.__init__
        # The local kernel takes no sizes of keys and values, which are equal here.
        dot_product_attention.DotProductAttention.__init__ = lambda self, *given, k_channels=0, v_channels=0, **named: (  # noqa: ARG005
            plain(self, *given, **named)
        )
    return ProcessGroupCollection.use_mpu_process_groups()


def translated(state: Mapping[str, Any], model: Model) -> Iterator[tuple[str, Any]]:
    """Yield the weights of transformers under Megatron's names."""
    yield "embedding.word_embeddings.weight", state["model.embed_tokens.weight"]
    if not model.tied_embeddings:
        yield "output_layer.weight", state["lm_head.weight"]
    for part in (".weight", ".bias"):
        yield f"decoder.final_layernorm{part}", state.get(f"model.norm{part}")
    for layer in range(model.layers):
        source, target = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        block = source + ("block_sparse_moe." if f"{source}block_sparse_moe.gate.weight" in state else "mlp.")
        for part in (".weight", ".bias"):
            yield f"{target}input_layernorm{part}", state.get(f"{source}input_layernorm{part}")
            yield f"{target}pre_mlp_layernorm{part}", state.get(f"{source}post_attention_layernorm{part}")
            for old, new in LATENT.items():
                yield f"{target}self_attention.{new}{part}", state.get(f"{source}self_attn.{old}{part}")
            three = [state[key] for one in "qkv" if (key := f"{source}self_attn.{one}_proj{part}") in state]
            if len(three) == 3:
                groups = [one.unflatten(0, (model.kv_heads, -1)) for one in three]
                yield f"{target}self_attention.linear_qkv{part}", torch.cat(groups, 1).flatten(0, 1)
            for old, new in (("", ""), ("shared_expert.", "shared_experts."), ("shared_experts.", "shared_experts.")):
                both = [state[key] for one in ("gate", "up") if (key := f"{block}{old}{one}_proj{part}") in state]
                for wide in ("gate_up_proj", "c_fc"):
                    yield f"{target}mlp.{new}linear_fc1{part}", state.get(f"{block}{old}{wide}{part}")
                yield f"{target}mlp.{new}linear_fc1{part}", torch.cat(both) if both else None
                for narrow in ("down_proj", "c_proj"):
                    yield f"{target}mlp.{new}linear_fc2{part}", state.get(f"{block}{old}{narrow}{part}")
            for old in ("gate", "router"):
                yield f"{target}mlp.router{part}", state.get(f"{block}{old}{part}")
        yield f"{target}self_attention.core_attention.softmax_offset", state.get(f"{source}self_attn.sinks")
        yield f"{target}mlp.router.expert_bias", state.get(f"{block}gate.e_score_correction_bias")
        yield f"{target}mlp.shared_experts.gate_weight", state.get(f"{block}shared_expert_gate.weight")
        for number in range(model.experts.count if model.experts and model.is_moe_layer(layer) else 0):
            expert = f"{target}mlp.experts.local_experts.{number}.linear_fc"
            for part, suffix in ((".weight", ""), (".bias", "_bias")):
                if f"{block}experts.down_proj{suffix}" not in state:
                    continue
                inner, outer = (state[f"{block}experts.{one}_proj{suffix}"][number] for one in ("gate_up", "down"))
                if f"{block}experts.down_proj_bias" in state:  # gpt-oss: transposed, with gate and input interleaved
                    inner, outer = (one.t() if one.dim() == 2 else one for one in (inner, outer))
                    inner = torch.cat([inner[0::2], inner[1::2]])
                yield f"{expert}1{part}", inner
                yield f"{expert}2{part}", outer


def difference(name: str, build: Callable[[ProductionRun], Any] = megatron) -> float:
    """Return the largest difference between a logit of transformers and one of the model built for a run."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = {key: value for key, value in small(name).items() if key != "quantization_config"}
    config |= {key: value for key, value in EXTRA.items() if config.get(key) is not None}
    if "kv_lora_rank" in config:
        config |= {"num_key_value_heads": config["num_attention_heads"], "num_experts_per_tok": 4}
        config.pop("head_dim", None)
    if name.startswith("glm-4.5"):
        config |= {"n_group": 1, "topk_group": 1}
    unread = ("transformers_version", "torch_dtype", "architectures", "auto_map")
    known = AutoConfig.for_model(**{key: value for key, value in config.items() if key not in unread})
    known._attn_implementation = "eager"
    torch.manual_seed(0)
    published = AutoModelForCausalLM.from_config(known).float().eval()
    for tensor in (one for one in published.state_dict().values() if one.dim() == 1 and one.is_floating_point()):
        tensor += 0.3 * torch.rand_like(tensor)
    run = bloom("tp1-pp1-dp1-mbs1-z0", model="bloom-14336x72", nodes=1, global_batch=1, precision="bf16")
    model = replace(model_from(config, name=name), seq=64, vocab_multiple=0)
    run = replace(run, workload=replace(run.workload, model=model, attention="flash2"))
    built = build(run)
    targets, loaded = {**dict(built.named_parameters()), **dict(built.named_buffers())}, set()
    for target, value in translated(published.state_dict(), model):
        if value is not None:
            assert targets[target].shape == value.shape, target
            targets[target].data.copy_(value)
            loaded.add(target)
    assert loaded >= set(dict(built.named_parameters())), set(dict(built.named_parameters())) - loaded
    tokens, positions = torch.randint(0, model.vocab, (1, model.seq)), torch.arange(model.seq)[None]
    hidden = torch.triu(torch.ones(model.seq, model.seq), 1)[None, None] > 0
    with torch.no_grad():
        return float((published(tokens).logits - built(tokens, positions, hidden)).abs().max())


def main() -> None:
    """Print the differences for the configs in the arguments."""
    names = sys.argv[1:]
    prepared()
    sys.path.insert(0, os.environ["MEGATRON_LM"])
    with contextlib.redirect_stdout(io.StringIO()):
        found = {name: difference(name) for name in names}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
