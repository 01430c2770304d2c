"""Compare the logits of Megatron-LM's own model, built from exported flags, with those of transformers, on a CPU.

    MEGATRON_LM=CHECKOUT python tests/export/megatron_logits.py [--fused] NAME...

Prints one JSON object with the largest difference of a logit for each config. Kernels that need a GPU are replaced by
Megatron's local ones, which compute the same. `--fused` builds the layers that Megatron builds for Transformer Engine.
"""

from __future__ import annotations

import contextlib
import importlib
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
    *("--moe-token-dispatcher-type", "allgather", "--use-cpu-initialization"),
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

PROVIDERS = (
    *("extensions.transformer_engine_spec_provider", "models.gpt.gpt_layer_specs", "models.gpt.moe_module_specs"),
)
"""Modules of megatron-core with a name for Transformer Engine's modules."""
FUSED = {
    "input_layernorm": "self_attention.linear_qkv",
    "pre_mlp_layernorm": "mlp.linear_fc1",
    "self_attention.q_layernorm": "self_attention.linear_q_up_proj",
    "self_attention.kv_layernorm": "self_attention.linear_kv_up_proj",
}
"""Norms that Transformer Engine's layers fuse with the projection that follows."""


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


def megatron(run: ProductionRun, layers: str = "local") -> Any:
    """Return the model that Megatron builds from the exported flags of a run, with the layers of an implementation."""
    from megatron.training import argument_utils, arguments
    from megatron.training.models.gpt import GPTModelBuilder

    flags = [word for flag in megatron_core_flags(run) if flag[0] not in GPU_ONLY for word in flag]
    sys.argv = ["pretrain_gpt.py", *flags, *(one for one in INSTEAD if one not in flags), "--transformer-impl", layers]
    args = arguments.parse_args()
    arguments.validate_args(args)
    config = argument_utils.gpt_config_from_args(args)
    config.transformer.params_dtype = torch.float32
    return GPTModelBuilder(config).build_model(groups(), pre_process=True, post_process=True).float().eval()


class Norm(torch.nn.Module):
    """Transformer Engine's norm, whose weight may be stored as its difference from one."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.epsilon, self.root, self.offset = (
            eps,
            config.normalization == "RMSNorm",
            config.layernorm_zero_centered_gamma,
        )
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        if not self.root:
            self.bias = torch.nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden: Any) -> Any:
        """Return the normalized states."""
        centered, scale = hidden if self.root else hidden - hidden.mean(-1, keepdim=True), self.weight + self.offset
        normalized = centered * (centered.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * scale
        return normalized if self.root else normalized + self.bias


def fused(run: ProductionRun) -> Any:
    """Return the model that Megatron builds with the modules of Transformer Engine's layers, on local kernels.

    These fuse norms into the projections that follow, and Megatron adds some where its local layers have none.
    """
    from megatron.core.models import backends
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear

    class NormLinear(ColumnParallelLinear):  # type: ignore[misc]
        """A norm and a projection, with the names of TELayerNormColumnParallelLinear's weights."""

        def __init__(self, size: int, output_size: int, *, config: Any, **given: Any) -> None:
            super().__init__(size, output_size, config=config, **given)
            self.norm = [Norm(config, size, config.layernorm_epsilon)]  # in a list, which registers no module
            for name, parameter in self.norm[0].named_parameters():
                self.register_parameter(f"layer_norm_{name}", parameter)

        def forward(self, hidden: Any, *given: Any, **named: Any) -> Any:
            return super().forward(self.norm[0](hidden), *given, **named)

    class Provider(backends.LocalSpecProvider):  # type: ignore[misc]
        """Transformer Engine's modules, where they differ in more than their kernels."""

        linear = backends.LocalSpecProvider.column_parallel_linear

        def column_parallel_layer_norm_linear(self) -> Any:
            return NormLinear

        def fuse_layernorm_and_linear(self) -> bool:
            return True

        def layer_norm(self, **_: Any) -> Any:
            return Norm

    for place in PROVIDERS:
        importlib.import_module(f"megatron.core.{place}").TESpecProvider = Provider  # type: ignore[attr-defined]
    importlib.import_module("megatron.core.models.gpt.gpt_layer_specs").TENorm = Norm  # type: ignore[attr-defined]
    importlib.import_module("megatron.core.transformer.transformer_block").LayerNormImpl = Norm  # type: ignore[attr-defined]
    return megatron(run, layers="transformer_engine")


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
            if (whole := state.get(f"{source}self_attn.qkv_proj{part}")) is not None:
                three = list(whole.split((model.query_width, model.kv_width, model.kv_width)))
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


def _fused(target: str) -> str:
    """Return the name of a norm's weight in the projection that the norm is fused with."""
    for norm, projection in FUSED.items():
        target = target.replace(f".{norm}.", f".{projection}.layer_norm_")
    return target


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
            target = target if target in targets else _fused(target)
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
    chosen, names = "--fused" in sys.argv, [name for name in sys.argv[1:] if name != "--fused"]
    prepared()
    sys.path.insert(0, os.environ["MEGATRON_LM"])
    with contextlib.redirect_stdout(io.StringIO()):
        found = {name: difference(name, fused if chosen else megatron) for name in names}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
