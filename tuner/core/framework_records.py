"""One record per training framework: its capabilities, every one with its source."""

from __future__ import annotations

from typing import Final

from tuner.core.capabilities import Capability, Fork, FrameworkRecord
from tuner.core.domain import DISPATCHERS, EVEN_PARTITION, PARTITION
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD_OF_OPTIMIZER, OFFLOAD_WHOLE
from tuner.core.recompute import GRANULARITIES, MODULES

_LM: Final = "NVIDIA/Megatron-LM at d98e8a64, "
_LM_ARGUMENTS: Final = _LM + "megatron/training/arguments.py: "
_LM_CONFIG: Final = _LM + "megatron/core/transformer/transformer_config.py: "
_MDS: Final = "deepspeedai/Megatron-DeepSpeed at 4efb479, "
_MDS_ARGUMENTS: Final = _MDS + "megatron/arguments.py: "
_BLOOM_FORK: Final = "bigscience-workshop/Megatron-DeepSpeed at 8387ae17, megatron/arguments.py: "
_WORKER: Final = "tuner/core/worker_refusals.py"
_DEEPSPEED: Final = "DeepSpeed 0.19.8, "
_OFFLOAD_CONFIG: Final = (
    _DEEPSPEED + "runtime/zero/offload_config.py: offload_optimizer with ZeRO 1 to 3, offload_param with 3"
)
_ACCELERATE: Final = "huggingface/accelerate at 0422db7e, src/accelerate/"
_TITAN: Final = "pytorch/torchtitan at b5bcd76, torchtitan/"
_TITAN_CONFIG: Final = _TITAN + "config/configs.py: "


def _deepspeedai_lacks(model: Model) -> bool:
    parts = (model.latent, model.experts, model.delta_net)
    return model.positions == "alibi" or model.embedding_norm or any(part is not None for part in parts)


def _bigscience_lacks(model: Model) -> bool:
    other = model.kv_heads != model.heads or model.norm != "layernorm" or model.delta_net is not None
    return other or not model.tied_embeddings


MEGATRON_DEEPSPEED_FORKS: Final = (
    Fork(
        name="deepspeed",
        model_lacks=_deepspeedai_lacks,
        attention=("eager", "fused", "flash1", "flash2"),
        partition=("layers",),
        recompute=GRANULARITIES,
        zero=(0, 1, 2, 3),
        offload=OFFLOAD_WHOLE,
        source=_MDS + "megatron/model/gpt_model.py: partition_method is type:transformer; no ALiBi, embedding norm or "
        "latent attention; its experts drop tokens, which is not modeled",
    ),
    Fork(
        name="bloom",
        model_lacks=_bigscience_lacks,
        attention=("eager", "fused"),
        partition=EVEN_PARTITION,
        recompute=("none", "full"),
        zero=(0, 1),
        offload=("none",),
        source=_BLOOM_FORK + "--pp-partition-method, --checkpoint-activations; pretrain_gpt.py: always a pipeline",
    ),
)

FRAMEWORK_RECORDS: Final = (
    FrameworkRecord(
        name="megatron-core",
        upstream="NVIDIA/Megatron-LM at d98e8a64 (August 2026)",
        tp=Capability(True, _LM_ARGUMENTS + "--tensor-model-parallel-size"),
        pp=Capability(True, _LM_ARGUMENTS + "--pipeline-model-parallel-size"),
        cp=Capability(True, _LM_ARGUMENTS + "--context-parallel-size, --cp-comm-type"),
        vpp=Capability(True, _LM_ARGUMENTS + "--num-layers-per-virtual-pipeline-stage"),
        sequence_parallel=Capability(True, _LM_ARGUMENTS + "--sequence-parallel, switched off where tp is 1"),
        zero=Capability(
            (0, 1),
            _LM_ARGUMENTS + "--use-distributed-optimizer",
            "2 and 3 only through --use-megatron-fsdp or --use-torch-fsdp2, which need other launch settings and "
            "checkpoints and are not searched",
        ),
        sharding_with_pp=Capability(False, _LM_ARGUMENTS + "--use-torch-fsdp2 excludes a pipeline"),
        tied_embeddings_with_pp=Capability(
            True, _LM + "megatron/core/distributed/finalize_model_grads.py: sums gradients over first and last stage"
        ),
        partition=Capability(
            PARTITION,
            _LM_ARGUMENTS + "--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split, "
            "--pipeline-model-parallel-layout",
        ),
        recompute=Capability(
            (*GRANULARITIES, *MODULES), _LM_ARGUMENTS + "--recompute-granularity full, selective; --recompute-modules"
        ),
        offload=Capability(
            ("none", *OFFLOAD_OF_OPTIMIZER),
            _LM_ARGUMENTS
            + "--optimizer-cpu-offload with --use-precision-aware-optimizer, --optimizer-offload-fraction",
        ),
        hsdp=Capability(
            False, _LM_ARGUMENTS + "--num-distributed-optimizer-instances, which is not searched for ZeRO 1"
        ),
        ep=Capability(True, _LM_ARGUMENTS + "--expert-model-parallel-size"),
        etp=Capability(True, _LM_ARGUMENTS + "--expert-tensor-parallel-size, whose default is tp"),
        zero_with_ep=Capability((0, 1), _LM_ARGUMENTS + "--use-distributed-optimizer"),
        dispatcher=Capability(
            DISPATCHERS, _LM_ARGUMENTS + "--moe-token-dispatcher-type, --moe-flex-dispatcher-backend deepep, hybridep"
        ),
        moe_overlap=Capability(True, _LM_ARGUMENTS + "--overlap-moe-expert-parallel-comm"),
        precision=Capability(
            ("fp32", "fp16", "bf16", "fp8", "fp4"), _LM_ARGUMENTS + "--fp16, --bf16, --fp8-format, --fp4-format"
        ),
        precision_recipe=Capability(
            ("delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"), _LM_CONFIG + "fp8_recipe, fp4_recipe"
        ),
        optimizer=Capability(
            ("adam", "adam-bf16", "sgd", "muon"), _LM_ARGUMENTS + "--optimizer, --exp-avg-dtype, --exp-avg-sq-dtype"
        ),
        attention=Capability(
            ("eager", "fused", "flash2"),
            _LM + "megatron/core/transformer/enums.py: AttnBackend; arguments.py: --no-masked-softmax-fusion",
        ),
        delta_net=Capability(
            ("tp", "cp"),
            _LM + "megatron/core/ssm/gated_delta_net/common.py: num_v_heads_local_tp, tensor_a2a_cp2hp",
        ),
        formats=("megatron-core", "megatron-bridge"),
        log="megatron",
    ),
    FrameworkRecord(
        name="megatron-deepspeed",
        upstream="deepspeedai/Megatron-DeepSpeed at 4efb479 (July 2025), or BLOOM's fork (--fork bloom)",
        tp=Capability(True, _MDS_ARGUMENTS + "--tensor-model-parallel-size"),
        pp=Capability(True, _MDS_ARGUMENTS + "--pipeline-model-parallel-size"),
        cp=Capability(
            False,
            _MDS_ARGUMENTS + "no context parallelism",
            "--ds-sequence-parallel-size is Ulysses, which its README calls incompatible with tp and pp",
        ),
        vpp=Capability(False, _DEEPSPEED + "runtime/pipe/schedule.py: TrainSchedule is 1F1B"),
        sequence_parallel=Capability(
            False,
            _MDS + "megatron/training.py: train_step calls reduce_model_grads only without DeepSpeed",
            "--sequence-parallel is parsed, but DeepSpeed's engine never sums the gradients of the norms over the "
            "tensor parallel ranks, so that another model is trained",
        ),
        zero=Capability((0, 1, 2, 3), _MDS_ARGUMENTS + "--zero-stage; 2 and 3 with --no-pipeline-parallel"),
        sharding_with_pp=Capability(False, _DEEPSPEED + "runtime/pipe/engine.py: ZeRO 2 and 3 exclude pipelines"),
        tied_embeddings_with_pp=Capability(True, _MDS + "megatron/model/gpt_model.py: TiedLayerSpec"),
        partition=Capability(
            EVEN_PARTITION,
            _BLOOM_FORK + "--pp-partition-method 'type:transformer|embedding'",
            "embedding only in BLOOM's fork, which lacks selective recompute, flash attention, grouped-query "
            "attention, RMSNorm and untied output layers",
        ),
        recompute=Capability(GRANULARITIES, _MDS_ARGUMENTS + "--recompute-granularity, --checkpoint-activations"),
        offload=Capability(
            OFFLOAD_WHOLE,
            _MDS_ARGUMENTS + "--cpu-optimizer, --remote-device; " + _OFFLOAD_CONFIG,
            "not in BLOOM's fork",
        ),
        hsdp=Capability(False, _DEEPSPEED + "runtime/zero: MiCS is not searched"),
        ep=Capability(
            False, _MDS_ARGUMENTS + "--moe-expert-parallel-size", "its experts drop tokens, which is not modeled"
        ),
        etp=Capability(False, _MDS_ARGUMENTS + "--enable-expert-tensor-parallelism, not modeled"),
        zero_with_ep=Capability((), _MDS_ARGUMENTS + "--moe-expert-parallel-size, not modeled"),
        dispatcher=Capability((), _DEEPSPEED + "moe/sharded_moe.py: an all-to-all with dropped tokens"),
        moe_overlap=Capability(False, _DEEPSPEED + "moe/sharded_moe.py: _AllToAll is synchronous"),
        precision=Capability(
            ("fp32", "fp16", "bf16"),
            _MDS_ARGUMENTS + "--fp16, --bf16",
            "--fp8-hybrid needs Transformer Engine's layers, which its pipeline modules are not built from",
        ),
        precision_recipe=Capability((), _MDS_ARGUMENTS + "no --fp8-recipe"),
        optimizer=Capability(("adam", "sgd"), _MDS_ARGUMENTS + "--optimizer"),
        attention=Capability(
            ("eager", "fused", "flash1", "flash2"),
            _MDS_ARGUMENTS + "--use-flash-attn-v1, --use-flash-attn-v2, --no-masked-softmax-fusion",
        ),
        delta_net=Capability((), _MDS + "megatron/model/transformer.py: no such layer"),
        formats=("megatron-deepspeed",),
        log="megatron",
        forks=MEGATRON_DEEPSPEED_FORKS,
    ),
    FrameworkRecord(
        name="deepspeed",
        upstream="DeepSpeed 0.19.8 with the worker that tuner ships",
        tp=Capability(True, "tuner/worker/linear.py: column and row parallel layers"),
        pp=Capability(True, "tuner/worker/model.py: DeepSpeed's PipelineModule"),
        cp=Capability(False, _WORKER + ": the worker has no context parallelism"),
        vpp=Capability(False, _WORKER + ": the worker's pipeline does not interleave"),
        sequence_parallel=Capability(True, "tuner/worker/parallel.py"),
        zero=Capability((0, 1, 2, 3), _DEEPSPEED + "runtime/zero"),
        sharding_with_pp=Capability(False, _DEEPSPEED + "runtime/pipe/engine.py: ZeRO 2 and 3 exclude pipelines"),
        tied_embeddings_with_pp=Capability(True, _DEEPSPEED + "runtime/pipe/module.py: TiedLayerSpec"),
        partition=Capability(EVEN_PARTITION, _WORKER + ": units of a stage"),
        recompute=Capability(GRANULARITIES, "tuner/worker/block.py: recomputed"),
        offload=Capability(OFFLOAD_WHOLE, _OFFLOAD_CONFIG),
        hsdp=Capability(False, _DEEPSPEED + "runtime/zero: MiCS is not searched"),
        ep=Capability(True, _DEEPSPEED + "utils/groups.py: _create_expert_and_data_parallel; tuner/worker/mlp.py"),
        etp=Capability(False, _DEEPSPEED + "utils/groups.py: experts are split only where tp splits them too"),
        zero_with_ep=Capability(
            (0, 1, 2), _DEEPSPEED + "runtime/engine.py: _validate_zero3_moe_compatibility excludes its own MoE layer"
        ),
        dispatcher=Capability(
            ("alltoall",), "tuner/worker/parallel.py: exchanged; " + _DEEPSPEED + "moe/sharded_moe.py: _AllToAll"
        ),
        moe_overlap=Capability(False, _DEEPSPEED + "moe/sharded_moe.py: _AllToAll is synchronous"),
        precision=Capability(("fp32", "fp16", "bf16"), _WORKER + ": fp32, bf16 or fp16, not fp8"),
        precision_recipe=Capability((), _WORKER + ": no fp8"),
        optimizer=Capability(
            ("adam", "sgd", "adafactor", "adam8bit"),
            _WORKER + ": WORKER_OPTIMIZERS; transformers 5.23.0, training_args.py: OptimizerNames",
            "8-bit Adam only in a trainer of your own",
        ),
        attention=Capability(("eager", "flash1", "flash2"), _WORKER + ": no fused attention"),
        alibi_attention=("eager",),
        delta_net=Capability((), _WORKER + ": the worker has no Gated DeltaNet"),
        formats=("slurm", "torchrun", "hostfile", "kubernetes", "jobset"),
        log="tuner",
    ),
    FrameworkRecord(
        name="fsdp2",
        upstream="PyTorch's fully_shard through Hugging Face accelerate at 0422db7e",
        tp=Capability(True, _ACCELERATE + "parallelism_config.py: tp_size"),
        pp=Capability(False, _ACCELERATE + "parallelism_config.py: no pipeline axis"),
        cp=Capability(True, _ACCELERATE + "parallelism_config.py: cp_size"),
        vpp=Capability(False, _ACCELERATE + "parallelism_config.py: no pipeline axis"),
        sequence_parallel=Capability(False, _ACCELERATE + "parallelism_config.py: no such option"),
        zero=Capability((2, 3), _ACCELERATE + "utils/dataclasses.py: reshard_after_forward false and true"),
        sharding_with_pp=Capability(False, _ACCELERATE + "parallelism_config.py: no pipeline axis"),
        tied_embeddings_with_pp=Capability(False, _ACCELERATE + "parallelism_config.py: no pipeline axis"),
        partition=Capability(("layers",), _ACCELERATE + "parallelism_config.py: no pipeline axis"),
        recompute=Capability(
            ("none", "full"),
            _ACCELERATE + "utils/dataclasses.py: FullyShardedDataParallelPlugin.activation_checkpointing",
        ),
        offload=Capability(
            ("none", "optimizer+parameters"),
            _ACCELERATE + "utils/dataclasses.py: FullyShardedDataParallelPlugin.cpu_offload",
            "PyTorch's CPUOffloadPolicy offloads parameters, gradients and states together",
        ),
        hsdp=Capability(True, _ACCELERATE + "parallelism_config.py: dp_replicate_size"),
        ep=Capability(False, _ACCELERATE + "parallelism_config.py: no expert axis"),
        etp=Capability(False, _ACCELERATE + "parallelism_config.py: no expert axis"),
        zero_with_ep=Capability((), _ACCELERATE + "parallelism_config.py: no expert axis"),
        dispatcher=Capability((), _ACCELERATE + "parallelism_config.py: no expert axis"),
        moe_overlap=Capability(False, _ACCELERATE + "parallelism_config.py: no expert axis"),
        precision=Capability(
            ("fp32", "fp16", "bf16"),
            _ACCELERATE + "utils/dataclasses.py: mixed_precision_policy",
            "fp8 through torchao, Transformer Engine or MS-AMP is not searched",
        ),
        precision_recipe=Capability((), _ACCELERATE + "utils/dataclasses.py: fp8 is not searched"),
        optimizer=Capability(
            ("adam", "sgd", "adafactor", "adam8bit"), "transformers 5.23.0, training_args.py: OptimizerNames"
        ),
        attention=Capability(("eager", "flash2"), "transformers 5.23.0: attn_implementation eager, sdpa"),
        delta_net=Capability(
            (),
            "transformers 5.23.0, models/qwen3_5/configuration_qwen3_5.py: base_model_tp_plan gathers each projection",
            "PyTorch's context parallelism shards attention alone",
        ),
        formats=("accelerate",),
        log="transformers",
    ),
    FrameworkRecord(
        name="torchtitan",
        upstream="pytorch/torchtitan at b5bcd76 (August 2026)",
        tp=Capability(True, _TITAN_CONFIG + "tensor_parallel_degree"),
        pp=Capability(True, _TITAN_CONFIG + "pipeline_parallel_degree"),
        cp=Capability(True, _TITAN_CONFIG + "context_parallel_degree"),
        vpp=Capability(
            True, _TITAN_CONFIG + "pipeline_parallel_schedule Interleaved1F1B, pipeline_parallel_layers_per_stage"
        ),
        sequence_parallel=Capability(True, _TITAN_CONFIG + "enable_sequence_parallel"),
        zero=Capability(
            (2, 3),
            _TITAN_CONFIG + "data_parallel_shard_degree; fsdp_reshard_after_forward never and always",
            "plain data parallelism (data_parallel_replicate_degree) is not searched",
        ),
        sharding_with_pp=Capability(True, _TITAN + "distributed/pipeline_parallel.py: each stage is sharded"),
        tied_embeddings_with_pp=Capability(
            False, _TITAN + "models/common/decoder.py: enable_weight_tying excludes pipeline_parallel_degree > 1"
        ),
        partition=Capability(
            EVEN_PARTITION,
            _TITAN_CONFIG + "pipeline_parallel_first_stage_less_layers, pipeline_parallel_last_stage_less_layers",
        ),
        recompute=Capability(
            GRANULARITIES,
            _TITAN + "distributed/activation_checkpoint.py: FullAC, SelectiveAC",
            "selective saves the outputs of chosen operations; Megatron's recomputes only attention",
        ),
        offload=Capability(
            ("none", "optimizer+parameters"),
            _TITAN_CONFIG + "enable_cpu_offload",
            "PyTorch's CPUOffloadPolicy offloads parameters, gradients and states together",
        ),
        hsdp=Capability(True, _TITAN_CONFIG + "data_parallel_replicate_degree"),
        ep=Capability(True, _TITAN_CONFIG + "expert_parallel_degree"),
        etp=Capability(False, _TITAN_CONFIG + "expert_tensor_parallel_degree was removed in c4b409af2"),
        zero_with_ep=Capability((2, 3), _TITAN_CONFIG + "data_parallel_shard_degree"),
        dispatcher=Capability(("alltoall", "deepep", "hybridep"), _TITAN_CONFIG + "expert_parallel_comm_backend"),
        moe_overlap=Capability(False, _TITAN_CONFIG + "no field of ParallelismConfig"),
        precision=Capability(
            ("fp32", "bf16", "fp8"), _TITAN_CONFIG + "mixed_precision_param; components/quantization/float8.py"
        ),
        precision_recipe=Capability(
            ("rowwise", "mxfp8", "tensorwise"),
            _TITAN + "components/quantization/float8.py: recipe_name, tensorwise in release 0.2 only; mx.py: "
            "MXFP8LinearConverter",
        ),
        optimizer=Capability(("adam",), _TITAN + "components/optimizer/optimizer.py: AdamW"),
        attention=Capability(
            ("flash2",), _TITAN + "models/common/config_utils.py: FlexAttention, estimated as FlashAttention-2"
        ),
        delta_net=Capability(
            ("tp",),
            _TITAN + "models/qwen3_5/sharding.py: _set_deltanet_sharding; parallelize.py: no context parallelism",
        ),
        formats=("torchtitan",),
        log="torchtitan",
    ),
)
