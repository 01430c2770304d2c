"""tp2-pp4-dp4-mbs1-z2-vpp2-sp on 4 x 8 GPUs, by tuner export.

For pytorch/torchtitan at b5bcd76: `--module recipe --config run`. Set TOKENIZER to the folder of the tokenizer,
CHECKPOINTS to that of the checkpoints, and DATASET to the name of a data set in torchtitan's DATASETS.
"""

import os
from functools import partial

from torch import nn
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.hf_datasets.text_datasets import DATASETS
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def run() -> Trainer.Config:
    """Return the configuration of the run."""
    spec = model_registry('8B')
    model = spec.model
    sizes = {"dim": model.dim, "vocab_size": model.vocab_size, "layers": len(model.layers)}
    if sizes != {'dim': 4096, 'vocab_size': 128256, 'layers': 32}:
        raise ValueError(f"this torchtitan's llama3 8B has other sizes: {sizes}")
    model.norm.eps = 1e-05
    initial = partial(nn.init.normal_, std=0.02)
    model.lm_head.param_init = {"weight": initial, "bias": nn.init.zeros_}
    model.tok_embeddings.param_init = {"weight": initial}
    for layer in model.layers:
        layer.attention_norm.eps = layer.ffn_norm.eps = 1e-05
        layer.attention.rope.theta = 500000.0
        layer.attention.rope.scaling = 'llama'
        layer.attention.rope.max_context_length = 8192
        layer.attention.rope.scaling_factor = 8.0
        layer.attention.rope.low_freq_factor = 1.0
        layer.attention.rope.high_freq_factor = 4.0
        layer.attention.rope.original_max_position_embeddings = 8192
    return Trainer.Config(
        model_spec=spec,
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))),
        hf_assets_path=os.environ["TOKENIZER"],
        dataloader=GrainDataLoader.Config(
            dataset=ConcatThenSplitPackingConfig(dataset=DATASETS[os.environ["DATASET"]])
        ),
        checkpoint=CheckpointManager.Config(
            enable=True, folder=os.path.abspath(os.environ["CHECKPOINTS"]), interval=103
        ),
        optimizer=default_adamw(lr=6e-05),
        lr_scheduler=LRSchedulersContainer.Config(
            warmup_steps=436, decay_type="cosine", min_lr_factor=0.1
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=1,
            data_parallel_shard_degree=4,
            fsdp_reshard_after_forward='never',
            tensor_parallel_degree=2,
            enable_sequence_parallel=True,
            pipeline_parallel_degree=4,
            context_parallel_degree=1,
            pipeline_parallel_schedule='Interleaved1F1B',
            pipeline_parallel_layers_per_stage=4,
            pipeline_parallel_first_stage_less_layers=0,
            pipeline_parallel_last_stage_less_layers=0,
            num_pp_microbatches=128,
        ),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=8192,
            num_tokens_per_train_step=4194304,
            max_context_length=8192,
            steps=87262,
            dtype='float32',
            mixed_precision_param='bfloat16',
            mixed_precision_reduce='float32',
            disable_cuda_graphs=True,
        ),
        activation_checkpoint=FullAC.Config(),
        compile=CompileConfig(enable=False, components=["model"]),
    )
