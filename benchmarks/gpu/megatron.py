"""One process that trains many assignments with Megatron-Core on one GPU: `python -m benchmarks.gpu.megatron`.

It answers the path of an assignment on each line of stdin with a line of JSON, and writes to the assignment's folder
what Megatron-LM would log. Layers, schedule, gradient buffers and optimizer are Megatron-Core's, the layers with
Transformer Engine if it is installed. A time is that of a whole training step, from one synchronization to the next.
"""

from __future__ import annotations

import gc
import importlib.util
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.worker import answer_lines, memory, own_rank
from tuner.core.assignment import Assignment
from tuner.core.domain import Topology, Workload

PACKAGES: Final = ("megatron-core", "transformer-engine", "torch")


def run(path: Path) -> dict[str, Any]:
    """Train one assignment and return the answer."""
    import torch

    answer: dict[str, Any] = {"began": time.time()}
    try:
        if not torch.cuda.is_available():
            return {"status": "REFUSED", "meaning": "Megatron-Core trains on a GPU only, and torch finds none."}
        start()
        answer["before"] = memory()
        answer |= train(Assignment.read(path))
    except torch.OutOfMemoryError as error:
        traceback.print_exc()
        answer |= {"status": "OOM", "meaning": str(error).splitlines()[0][:300]}
    except Exception as error:  # a failed job is a row, and its log has the reason
        traceback.print_exc()
        answer |= {"status": "FAIL", "meaning": f"{type(error).__name__}: {error}"[:400]}
    answer["ended"] = time.time()
    with suppress(Exception):
        release()
        answer["after"] = memory()
    return answer


def start() -> None:
    """Initialize the process groups of one rank, once."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    if not torch.distributed.is_initialized():
        torch.cuda.set_device(0)
        torch.distributed.init_process_group("nccl")
        parallel_state.initialize_model_parallel(1, 1)
        model_parallel_cuda_manual_seed(1)


def release() -> None:
    """Free all GPU memory that Python no longer uses, and start counting peaks anew."""
    import torch

    with suppress(ImportError):
        from transformer_engine.pytorch.quantization import (  # type: ignore[import-not-found,unused-ignore]
            FP8GlobalStateManager,
        )

        FP8GlobalStateManager.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def train(assignment: Assignment) -> dict[str, Any]:
    """Train an assignment's iterations and return their seconds and the memory."""
    import torch
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

    workload, topology = assignment.workload, assignment.topology
    config, model = built(workload, topology)
    buffers = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=topology.zero > 0, check_for_nan_in_grad=True
    )
    chunk = DistributedDataParallel(config, buffers, model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-5,
            weight_decay=0.1,
            clip_grad=1.0,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=topology.zero > 0,
        ),
        [chunk],
        use_gloo_process_groups=False,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    config.no_sync_func = chunk.no_sync
    microbatches = workload.global_batch // topology.micro_batch
    schedule = get_forward_backward_func()
    batches = random_batches(workload.model.vocab, topology.micro_batch, workload.model.seq)
    done: list[float] = []
    for number in range(1, assignment.iterations + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = schedule(
            forward_step_func=forward_step,
            data_iterator=batches,
            model=[chunk],
            num_microbatches=microbatches,
            seq_length=workload.model.seq,
            micro_batch_size=topology.micro_batch,
            forward_only=False,
        )
        optimizer.step()
        mean = float(torch.stack([each["lm loss"] for each in losses]).mean())
        torch.cuda.synchronize()
        done.append(time.perf_counter() - began)
        print(_logged(number, assignment, done[-1], mean), flush=True)
    used = memory()["in_use"] / 2**30
    return {
        "status": "OK",
        "seconds": done,
        "memory_kind": "device",
        "parameters": sum(each.numel() for each in chunk.parameters()),
        "allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "smi_gib": used,
        "versions": {name: version(name) for name in PACKAGES if _installed(name)},
        "device": torch.cuda.get_device_name(),
    }


def _logged(number: int, assignment: Assignment, seconds: float, loss: float) -> str:
    """Return Megatron-LM's line about an iteration."""
    batch = assignment.workload.global_batch
    fields = f"elapsed time per iteration (ms): {seconds * 1e3:.3f} | global batch size: {batch:5d}"
    count = f"iteration {number:8d}/{assignment.iterations:8d} | consumed samples: {number * batch:12d}"
    return f" {count} | {fields} | lm loss: {loss:.6E} | number of skipped iterations:   0 |"


def _installed(name: str) -> bool:
    with suppress(Exception):
        return bool(version(name))
    return False


def forward_step(batches: Iterator[Any], model: Any) -> tuple[Any, Any]:
    """Run one microbatch's forward pass, as Megatron-LM's pretrain_gpt.py does."""
    tokens, labels, mask, positions = (each.cuda(non_blocking=True) for each in next(batches))
    return model(tokens, positions, None, labels=labels), partial(mean_loss, mask)


def mean_loss(mask: Any, losses: Any) -> tuple[Any, dict[str, Any]]:
    """Return the mean loss of a microbatch's tokens, and what is logged of it."""
    mean = (losses.float().view(-1) * mask.view(-1)).sum() / mask.sum()
    return mean, {"lm loss": mean.detach()}


def random_batches(vocab: int, batch: int, seq: int) -> Iterator[Any]:
    """Yield random tokens with labels, mask and positions, on the host."""
    import torch

    mask, positions = torch.ones(batch, seq), torch.arange(seq).expand(batch, seq)
    while True:
        text = torch.randint(0, vocab, (batch, seq + 1))
        yield text[:, :-1].contiguous(), text[:, 1:].contiguous(), mask, positions


def built(workload: Workload, topology: Topology) -> tuple[Any, Any]:
    """Return Megatron-Core's configuration of a workload, and the model on the GPU."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    model = workload.model
    values = settings(workload, topology)
    config = (MLATransformerConfig if model.latent else TransformerConfig)(**values)
    spec = get_gpt_decoder_block_spec(
        config, use_transformer_engine=importlib.util.find_spec("transformer_engine") is not None
    )
    made = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=model.padded_vocab(1),
        max_sequence_length=model.seq,
        share_embeddings_and_output_weights=model.tied_embeddings,
        position_embedding_type="rope" if model.positions == "rotary" else "learned_absolute",
        rotary_base=int(model.rotary_base),
    ).cuda()
    return config, Float16Module(config, made)


def settings(workload: Workload, topology: Topology) -> dict[str, Any]:
    """Return the fields of Megatron-Core's configuration that describe a workload, as its recipes set them."""
    import torch

    model, experts = workload.model, workload.model.experts
    gated = model.gated_mlp
    values: dict[str, Any] = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "ffn_hidden_size": model.ffn,
        "gated_linear_unit": gated,
        "activation_func": torch.nn.functional.silu if gated else torch.nn.functional.gelu,
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "add_bias_linear": model.mlp_bias,
        "qk_layernorm": model.qk_norm,
        "bf16": True,
        "params_dtype": torch.bfloat16,
        "pipeline_dtype": torch.bfloat16,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "bias_activation_fusion": True,
        "bias_dropout_fusion": True,
        "masked_softmax_fusion": True,
        "apply_rope_fusion": model.positions == "rotary",
        "gradient_accumulation_fusion": importlib.util.find_spec("fused_weight_gradient_mlp_cuda") is not None,
    }
    if model.latent:
        values |= {
            "q_lora_rank": model.latent.query_rank or None,
            "kv_lora_rank": model.latent.kv_rank,
            "qk_head_dim": model.latent.nope_size,
            "qk_pos_emb_head_dim": model.latent.rope_size,
            "v_head_dim": model.latent.value_size,
        }
    else:
        values |= {"num_query_groups": model.kv_heads or model.heads, "kv_channels": model.query_width // model.heads}
    if experts:
        values |= {
            "num_moe_experts": experts.count,
            "moe_router_topk": experts.top_k,
            "moe_ffn_hidden_size": experts.ffn,
            "moe_shared_expert_intermediate_size": experts.shared_ffn or None,
            "moe_layer_freq": [int(index >= experts.dense_layers) for index in range(model.layers)],
            "moe_router_score_function": experts.router,
            "moe_router_pre_softmax": experts.router == "softmax" and not experts.normalized,
            "moe_router_dtype": "fp32",
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": 1e-3,
            "moe_router_force_load_balancing": workload.routing == "balanced",
            "moe_grouped_gemm": True,
            "moe_token_dispatcher_type": "alltoall",
            "moe_permute_fusion": workload.stack is None or workload.stack.fused_permutation is not False,
        }
    if topology.recompute == "full":
        values |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    elif topology.recompute == "selective":
        values |= {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if workload.is_quantized:
        recipe = workload.precision_recipe or "delayed"
        values |= {"fp8": "e4m3" if recipe == "blockwise" else "hybrid", "fp8_recipe": recipe}
        if recipe == "delayed":
            values |= {"fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"}
    return values


if __name__ == "__main__":
    own_rank()
    answer_lines(run)
