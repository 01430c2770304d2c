"""Megatron command lines of a run. A property that a framework has no flag for is refused, never dropped.

Flags are those of bigscience-workshop/Megatron-DeepSpeed, which trained BLOOM (megatron/arguments.py at b1246143;
for stages that count the embedding, its later main), and of NVIDIA/Megatron-LM (megatron/training/arguments.py at
307dcf37, 2024). `tests/data/flags/` lists them.
"""

from __future__ import annotations

from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import listed
from tuner.export.production import WARM_UP_SHARE, ProductionRun
from tuner.launch.ds_config import LEARNING_RATE

Flag = tuple[str, ...]

DEEPSPEED_VERSION: Final = "bigscience-workshop/Megatron-DeepSpeed at b1246143, megatron/arguments.py"
LM_VERSION: Final = "NVIDIA/Megatron-LM at 307dcf37, megatron/training/arguments.py"


def megatron_deepspeed(run: ProductionRun) -> list[Flag]:
    """Return the flags for pretrain_gpt.py of Megatron-DeepSpeed."""
    topology, workload = run.topology, run.workload
    model = workload.model
    _refuse(
        "Megatron-DeepSpeed",
        "use --format megatron-lm",
        {
            "sequence parallelism": topology.sequence_parallel,
            "context parallelism": topology.cp > 1,
            "interleaved pipeline stages (vpp > 1)": topology.vpp > 1,
            "selective recompute": topology.recompute == "selective",
            f"{workload.attention} attention": workload.attention in ("flash1", "flash2"),
            "grouped-query attention": model.kv_heads != model.heads,
            "RMSNorm": model.norm == "rmsnorm",
            "an untied output layer": not model.tied_embeddings,
            f"precision {workload.precision}": workload.precision not in ("fp16", "bf16", "fp32"),
            f"the optimizer {workload.optimizer}": workload.optimizer not in ("adam", "sgd"),
        },
    )
    flags = _common(run)
    positions = {"learned": "absolute", "rotary": "rotary", "alibi": "alibi", "none": "absolute"}[model.positions]
    flags.append(("--position-embedding-type", positions))
    flags += [("--embed-layernorm",)] * model.embedding_norm
    flags += [("--glu-activation", "swiglu")] * model.gated_mlp
    flags += [("--checkpoint-activations",)] * (topology.recompute == "full")
    if topology.partition == "embedding":
        flags.append(("--pp-partition-method", "type:transformer|embedding"))
    flags += [("--no-masked-softmax-fusion",)] * (workload.attention == "eager")
    flags += [("--deepspeed",), ("--deepspeed_config", "ds_config.json"), ("--zero-stage", str(topology.zero))]
    flags += [("--deepspeed-activation-checkpointing",)] * (topology.recompute == "full")
    return flags


def megatron_lm(run: ProductionRun) -> list[Flag]:
    """Return the flags for pretrain_gpt.py of Megatron-LM, whose distributed optimizer is ZeRO 1."""
    topology, workload = run.topology, run.workload
    model = workload.model
    _refuse(
        "Megatron-LM",
        "use --format megatron-deepspeed or export another topology",
        {
            f"ZeRO stage {topology.zero}": topology.zero > 1,
            "pipeline partitioning that counts embedding and output layer": topology.partition == "embedding",
            "ALiBi": model.positions == "alibi",
            "embedding LayerNorm": model.embedding_norm,
            f"precision {workload.precision}": workload.precision not in ("fp16", "bf16", "fp32"),
            f"the optimizer {workload.optimizer}": workload.optimizer not in ("adam", "sgd"),
        },
    )
    flags = [*_common(run), ("--use-mcore-models",)]
    flags += [("--position-embedding-type", "rope" if model.positions == "rotary" else "learned_absolute")]
    flags += [("--no-position-embedding",)] * (model.positions == "none")
    if model.kv_heads != model.heads:
        flags += [("--group-query-attention",), ("--num-query-groups", str(model.kv_heads))]
    flags += [("--normalization", "RMSNorm")] * (model.norm == "rmsnorm")
    flags += [("--swiglu",)] * model.gated_mlp
    flags += [("--untie-embeddings-and-output-weights",)] * (not model.tied_embeddings)
    flags += [("--disable-bias-linear",)] * (not model.mlp_bias)
    flags += [("--add-qkv-bias",)] * (model.qkv_bias and not model.mlp_bias)
    flags += [("--qk-layernorm",)] * model.qk_norm
    flags += [("--context-parallel-size", str(topology.cp))] * (topology.cp > 1)
    flags += [("--sequence-parallel",)] * topology.sequence_parallel
    if topology.vpp > 1:
        layers = model.layers // (topology.pp * topology.vpp)
        flags.append(("--num-layers-per-virtual-pipeline-stage", str(layers)))
    if topology.recompute == "full":
        flags += [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", "1"),
        ]
    flags += [("--recompute-activations",)] * (topology.recompute == "selective")
    flags += [("--use-flash-attn",)] * (workload.attention in ("flash1", "flash2"))
    flags += [("--no-masked-softmax-fusion",)] * (workload.attention == "eager")
    flags += [("--use-distributed-optimizer",)] * (topology.zero == 1)
    return flags


def _common(run: ProductionRun) -> list[Flag]:
    topology, workload = run.topology, run.workload
    model = workload.model
    flags: list[Flag] = [
        ("--tensor-model-parallel-size", str(topology.tp)),
        ("--pipeline-model-parallel-size", str(topology.pp)),
        ("--num-layers", str(model.layers)),
        ("--hidden-size", str(model.hidden)),
        ("--num-attention-heads", str(model.heads)),
        ("--ffn-hidden-size", str(model.ffn)),
        ("--seq-length", str(model.seq)),
        ("--max-position-embeddings", str(max(model.max_positions, model.seq))),
        ("--micro-batch-size", str(topology.micro_batch)),
        ("--global-batch-size", str(workload.global_batch)),
        ("--train-samples", str(run.samples)),
        ("--optimizer", workload.optimizer),
        ("--lr", f"{LEARNING_RATE:g}"),
        ("--min-lr", f"{LEARNING_RATE / 10:g}"),
        ("--lr-decay-style", "cosine"),
        ("--lr-warmup-samples", str(round(WARM_UP_SHARE * run.samples))),
        ("--clip-grad", "1.0"),
        ("--weight-decay", "0.1"),
        ("--log-interval", "1"),
        ("--save-interval", str(max(1, round(3 * 3600 / run.expected.sec_per_iter)))),
    ]
    flags += [("--kv-channels", str(model.head_size))] * bool(model.head_size)
    if workload.optimizer == "adam":
        flags += [("--adam-beta1", "0.9"), ("--adam-beta2", "0.95"), ("--adam-eps", "1e-8")]
    if workload.precision == "fp16":
        flags += [("--fp16",), ("--initial-loss-scale", "4096"), ("--loss-scale-window", "500")]
    flags += [("--bf16",)] * (workload.precision == "bf16")
    return flags


def _refuse(framework: str, remedy: str, properties: dict[str, bool]) -> None:
    unsupported = [name for name, needed in properties.items() if needed]
    if unsupported:
        raise InputError(
            f"{framework} at the version of this template does not support {listed(unsupported, last='or')}; {remedy}."
        )
