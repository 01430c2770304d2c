"""Train a GPT built from megatron-core's layers on one GPU, and print its iterations as Megatron does.

python -m benchmarks.gpu.megatron --hidden 2048 --layers 8 --seq 2048 --micro-batch 4
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

ITERATIONS = 4


def main() -> None:
    """Train a few iterations."""
    parser = argparse.ArgumentParser()
    for name, value in (("hidden", 2048), ("layers", 8), ("seq", 2048), ("vocab", 51200), ("micro-batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("megatron-core trains on a GPU only, and torch finds none.")
    model = _model(given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5, fused=True)
    shape = given.micro_batch, given.seq
    for number in range(1, ITERATIONS + 1):
        tokens = torch.randint(0, given.vocab, shape, device="cuda")
        positions = torch.arange(given.seq, device="cuda").expand(shape)
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = model(tokens, positions, None, labels=tokens).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        milliseconds = (time.perf_counter() - began) * 1e3
        fields = f"elapsed time per iteration (ms): {milliseconds:.3f} | global batch size: {given.micro_batch:5d}"
        samples = number * given.micro_batch
        loss_field = f"lm loss: {float(loss):.6E} | number of skipped iterations:   0"
        print(
            f" iteration {number:8d}/{ITERATIONS:8d} | consumed samples: {samples:12d} | {fields} | {loss_field} |",
            flush=True,
        )
    print(f"peak memory: {torch.cuda.max_memory_allocated() / 2**30:.3f} GiB", flush=True)


def _model(given: argparse.Namespace) -> Any:
    """Return the model, built from layers that need neither Transformer Engine nor apex."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig

    defaults = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(1, 1)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=given.layers,
        hidden_size=given.hidden,
        num_attention_heads=given.hidden // 128,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=given.vocab,
        max_sequence_length=given.seq,
        share_embeddings_and_output_weights=True,
    )
    return model.cuda().bfloat16()


if __name__ == "__main__":
    main()
