"""tp8-pp12-dp4-mbs2-z1-vpp2-sp on 48 x 8 GPUs, by tuner export, for megatron-bridge 0.3.1.

`configure(config)` sets model, parallelism, batch, precision and sharding of any ConfigContainer, and
`set_optimizer(config)` its optimizer and learning rate; run as a program, this file trains with Bridge's common
pretraining config, on the data that DATA_PATH names.
"""

import os

import torch.nn.functional as F  # noqa: F401
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.utils.fusions import can_enable_gradient_accumulation_fusion
from megatron.core.activations import fast_gelu, quick_gelu, squared_relu  # noqa: F401
from megatron.core.transformer.enums import AttnBackend

MODEL = dict(
    num_layers=72,
    hidden_size=14336,
    num_attention_heads=64,
    num_query_groups=64,
    kv_channels=224,
    ffn_hidden_size=57344,
    activation_func=fast_gelu,
    gated_linear_unit=False,
    bias_activation_fusion=False,
    normalization='LayerNorm',
    layernorm_epsilon=1e-05,
    layernorm_zero_centered_gamma=False,
    qk_layernorm=False,
    add_qkv_bias=True,
    add_bias_linear=True,
    position_embedding_type='learned_absolute',
    rotary_base=10000,
    rotary_percent=1.0,
    rotary_interleaved=False,
    no_rope_freq=None,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    init_method_std=0.02,
    share_embeddings_and_output_weights=True,
    vocab_size=-(-250880 // 1024) * 1024,
    should_pad_vocab=False,
    seq_length=2048,
    transformer_impl='transformer_engine',
    attention_backend=AttnBackend.unfused,
    tensor_model_parallel_size=8,
    pipeline_model_parallel_size=12,
    virtual_pipeline_model_parallel_size=2,
    context_parallel_size=1,
    cp_comm_type='p2p',
    sequence_parallel=True,
    recompute_granularity='full',
    recompute_method='uniform',
    recompute_num_layers=1,
    bias_dropout_fusion=True,
    cross_entropy_loss_fusion=True,
    masked_softmax_fusion=True,
    persist_layer_norm=True,
    deallocate_pipeline_outputs=True,
)


def configure(config):
    """Make a ConfigContainer train this model in this topology."""
    config.model = GPTModelProvider(**MODEL)
    config.model.gradient_accumulation_fusion = can_enable_gradient_accumulation_fusion()
    config.dataset.seq_length = MODEL["seq_length"]
    config.train.micro_batch_size = 2
    config.train.global_batch_size = 2048
    config.train.rampup_batch_size = None
    config.train.train_iters = 87262
    config.mixed_precision = get_mixed_precision_config("fp16_mixed")
    config.mixed_precision.initial_loss_scale = 4096.0
    config.mixed_precision.loss_scale_window = 500.0
    config.ddp.use_distributed_optimizer = True
    config.ddp.overlap_grad_reduce = True
    config.ddp.overlap_param_gather = True
    config.optimizer.use_distributed_optimizer = True
    config.logger.log_interval = 1
    return config


def set_optimizer(config):
    """Set optimizer and learning rate: common defaults, to be adjusted to your model."""
    config.optimizer.optimizer = 'adam'
    config.optimizer.lr = 6e-05
    config.optimizer.min_lr = 6e-06
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_grad = 1.0
    config.optimizer.adam_beta1 = 0.9
    config.optimizer.adam_beta2 = 0.95
    config.optimizer.adam_eps = 1e-08
    config.scheduler.start_weight_decay = 0.1
    config.scheduler.end_weight_decay = 0.1
    config.scheduler.lr_decay_style = 'cosine'
    config.scheduler.lr_decay_iters = 87262
    config.scheduler.lr_warmup_iters = 436
    return config


if __name__ == "__main__":
    from megatron.bridge.recipes.common import _pretrain_common
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    config = set_optimizer(configure(_pretrain_common()))
    config.dataset.blend = ([os.environ["DATA_PATH"]], None)
    config.tokenizer.tokenizer_type = os.environ.get("TOKENIZER_TYPE", "HuggingFaceTokenizer")
    config.tokenizer.tokenizer_model = os.environ["TOKENIZER"]
    config.checkpoint.save = config.checkpoint.load = os.environ["CHECKPOINTS"]
    pretrain(config, forward_step)
