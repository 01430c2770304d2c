"""Megatron-LM's flags of a topology, and the model that its arguments describe.

Flags were read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tuner.core.domain import Optimizer, Topology, Workload, layout_chunks
from tuner.core.errors import InputError
from tuner.core.frameworks import context_exchange
from tuner.core.megatron_stack import CORE_OPTIMIZERS
from tuner.core.model import Model, Norm, Positions
from tuner.core.offload import OFFLOADED_SHARE
from tuner.core.recompute import modules_of
from tuner.core.stack import ContextExchange
from tuner.launch.trainers.kind import Flags, TrainerKind, check_sizes, number, refuse_unset
from tuner.launch.trainers.megatron_arguments import (
    check_described,
    check_parts,
    check_understood,
    core_stack,
    dense_model,
    dense_values,
    described,
    describes_model,
    mlp_width,
)
from tuner.launch.trainers.megatron_limits import CONDITIONAL, OFF, conditional, of_optimizer, refuse_unsearched
from tuner.launch.trainers.megatron_parts import check_special_parts, with_training
from tuner.launch.trainers.megatron_positions import check_scaling, scaled_positions
from tuner.launch.trainers.megatron_precision import core_precision, core_scaling

_OVERLAP: Final = "--overlap-moe-expert-parallel-comm"
_OFFLOAD: Final = "--optimizer-cpu-offload"
_OFFLOADED: Final = "--optimizer-offload-fraction"
_PRECISION_AWARE: Final = "--use-precision-aware-optimizer"
"""Needs the distributed optimizer (megatron/core/optimizer/__init__.py)."""
_DELAY: Final = "--delay-wgrad-compute"
"""Needs the overlap of the exchange of tokens."""

MEGATRON_SHARED: Final = (
    *("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--num-layers-per-virtual-pipeline-stage"),
    *("--sequence-parallel", "--micro-batch-size", "--global-batch-size", "--recompute-granularity"),
    *("--recompute-method", "--recompute-num-layers", "--recompute-activations", "--log-interval", "--eval-iters"),
    *("--eval-interval", "--save", "--save-interval", "--load", "--rampup-batch-size", "--tensorboard-dir"),
    *("--wandb-project", "--wandb-exp-name", "--wandb-save-dir", "--wandb-entity"),
)
"""Flags of Megatron-LM and its forks that each job sets, or that a short run omits."""
_REPLACED: Final = (
    *MEGATRON_SHARED,
    *("--context-parallel-size", "--num-virtual-stages-per-pipeline-rank", "--use-distributed-optimizer"),
    *("--overlap-grad-reduce", "--overlap-param-gather", "--recompute-modules", "--moe-layer-recompute"),
    *("--persistent-save-interval", "--non-persistent-save-interval", "--save-retain-interval", "--log-progress"),
    *("--save-params-interval", "--save-activations-interval", "--save-tokens-per-expert-interval"),
    *("--save-wgrads-interval", "--save-dgrads-interval", "--pretrained-checkpoint"),
    *("--log-throughput", "--expert-model-parallel-size", "--expert-tensor-parallel-size"),
    *("--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend", "--moe-enable-deepep"),
    *(_OVERLAP, _DELAY, *CONDITIONAL, _OFFLOAD, _OFFLOADED),
    *("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"),
    *("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"),
    "--pipeline-model-parallel-layout",
)
_CHANGES_MODEL: Final = (
    *("--num-experts", "--multi-latent-attention", "--mtp-num-layers", "--spec", "--window-size", "--moe-layer-freq"),
    *("--hybrid-layer-pattern", "--hybrid-override-pattern", "--heterogeneous-layers-config-path", "--mamba-num-heads"),
    *("--experimental-attention-variant", "--attention-output-gate"),
)
"""Flags of models that the arguments describe only in part."""


def connections(topology: Topology) -> dict[str, str]:
    """Return the variable without which Megatron refuses tp and cp before Blackwell.

    The overlap of the exchange of tokens needs more connections (NVIDIA/Megatron-LM at d98e8a64, megatron/training/
    arguments.py: CUDA_DEVICE_MAX_CONNECTIONS; NVIDIA-NeMo/Megatron-Bridge at 067f987d, src/megatron/bridge/
    perf_recipes/qwen/h100/qwen3_moe.py).
    """
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "32" if topology.moe_overlap else "1"}


FIRST_LOSS_SCALE: Final = "4096"
"""Also the scale of DeepSpeed's jobs (`initial_scale_power` 12)."""
_POSITIONS: Final[Mapping[str, Positions]] = {"rope": "rotary", "learned_absolute": "learned", "none": "none"}


def megatron_flags(workload: Workload, topology: Topology) -> tuple[str, ...]:
    """Return Megatron-LM's flags of a topology, for a short measuring run."""
    parameters = topology.offload == "optimizer+parameters"
    refuse_unset(
        "megatron-lm",
        {"offload of parameters": parameters, "hsdp": topology.hsdp > 1, "ZeRO 2 and 3": topology.zero > 1},
    )
    return short_run(
        workload,
        topology,
        [
            ("--context-parallel-size", str(topology.cp)),
            *([("--sequence-parallel",)] * topology.sequence_parallel),
            *virtual_stages(workload.model, topology),
            *stage_split(workload.model, topology),
            *gradient_exchange(topology),
            *offloading(topology),
            *recomputation(topology),
            *expert_parallelism(workload.model, topology),
        ],
    )


def core_exchange(workload: Workload) -> ContextExchange:
    """Return how Megatron-LM's context parallel ranks exchange keys and values, also for a study of no framework."""
    return context_exchange(replace(workload, framework="megatron-core"))


def context_parallelism(workload: Workload, topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of context parallelism."""
    if topology.cp == 1:
        return []
    return [("--context-parallel-size", str(topology.cp)), ("--cp-comm-type", core_exchange(workload))]


def exchange_kind(flags: Flags, workload: Workload, topology: Topology) -> tuple[str, ...]:
    """Return the communication type of context parallel ranks if Megatron-LM's default fails and the user sets none."""
    kind = context_exchange(workload)
    return () if topology.cp == 1 or kind == "p2p" or "--cp-comm-type" in flags else ("--cp-comm-type", kind)


def loss_scale(flags: Flags, workload: Workload) -> tuple[str, ...]:
    """Return the initial loss scale of a short run in fp16, unless the user sets one.

    With Megatron-LM's default of 2^32, the first optimizer steps would be skipped and not measured.
    """
    if workload.precision != "fp16" or not flags.keys().isdisjoint(("--initial-loss-scale", "--loss-scale")):
        return ()
    return ("--initial-loss-scale", FIRST_LOSS_SCALE)


def short_run(workload: Workload, topology: Topology, settings: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return settings as words, with those of all forks: tp, pp, batch, every iteration logged, no evaluation."""
    shared = [
        ("--tensor-model-parallel-size", str(topology.tp)),
        ("--pipeline-model-parallel-size", str(topology.pp)),
        ("--micro-batch-size", str(topology.micro_batch)),
        ("--global-batch-size", str(workload.global_batch)),
        *settings,
        ("--log-interval", "1"),
        ("--eval-iters", "0"),
    ]
    return tuple(word for setting in shared for word in setting)


def recomputation(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of activation recomputation."""
    if modules := modules_of(topology.recompute):
        return [("--recompute-granularity", "selective"), ("--recompute-modules", *modules)]
    if topology.recompute == "full":
        return [("--recompute-granularity", "full"), ("--recompute-method", "uniform"), ("--recompute-num-layers", "1")]
    return []


def virtual_stages(model: Model, topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flag of interleaved stages, which a layout implies."""
    if topology.vpp == 1 or topology.partition == "layout":
        return []
    chunk = topology.split_units(model.layers) // (topology.pp * topology.vpp)
    return [("--num-layers-per-virtual-pipeline-stage", str(chunk))]


def stage_split(model: Model, topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of stages with an uneven split of the layers."""
    if topology.partition == "layers":
        return []
    if topology.partition == "layout":
        return [("--pipeline-model-parallel-layout", stage_layout(model, topology))]
    return [("--account-for-embedding-in-pipeline-split",), ("--account-for-loss-in-pipeline-split",)]


def stage_layout(model: Model, topology: Topology) -> str:
    """Return the layers of each chunk in Megatron-Core's notation.

    `Et*4|(tttt|)*14tmL` is 61 layers and a layer of multi-token prediction on 16 chunks
    (megatron/core/transformer/pipeline_parallel_layer_layout.py).
    """
    chunks = topology.pp * topology.vpp
    most, last = layout_chunks(model.layers, chunks)
    end = "t" * last + "m" * model.mtp_layers + "L"
    return f"Et*{most}|({'t' * most}|)*{chunks - 2}{end}" if chunks > 2 else f"Et*{most}|{end}"


def gradient_exchange(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of ZeRO 1, and of an exchange of gradients and weights beside the passes."""
    if topology.zero == 1:
        return [("--use-distributed-optimizer",), ("--overlap-grad-reduce",), ("--overlap-param-gather",)]
    return [("--overlap-grad-reduce",)] * overlaps_gradients(topology)


def overlaps_gradients(topology: Topology) -> bool:
    """Whether a reduction of gradients runs beside the backward pass, with the distributed optimizer or without it."""
    copies = topology.dp * topology.cp
    return topology.zero == 1 or copies > 1 or topology.tp * copies > topology.etp * topology.ep


def moments_in_bf16(workload: Workload) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of Adam's moments in bf16."""
    if workload.optimizer != "adam-bf16":
        return []
    return [(_PRECISION_AWARE,), ("--exp-avg-dtype", "bf16"), ("--exp-avg-sq-dtype", "bf16")]


def offloading(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags that keep the optimizer, or a share of it, in main memory and step it there.

    Gradients and weights are copied while the CPUs step, as NVIDIA recommends (megatron/core/optimizer/cpu_offloading/
    README.md).
    """
    share = OFFLOADED_SHARE[topology.offload]
    if not share:
        return []
    return [(_OFFLOAD,), (_OFFLOADED, f"{share:g}"), ("--overlap-cpu-optimizer-d2h-h2d",), (_PRECISION_AWARE,)]


def expert_parallelism(model: Model, topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of expert parallelism; none for a dense model."""
    if model.experts is None:
        return []
    # expert tensor parallelism defaults to the tensor parallel degree
    return [
        ("--expert-model-parallel-size", str(topology.ep)),
        ("--expert-tensor-parallel-size", str(topology.etp)),
        *dispatch(topology),
        *overlap(topology),
    ]


def dispatch(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of the token dispatcher."""
    if topology.dispatcher in ("allgather", "alltoall"):
        return [("--moe-token-dispatcher-type", topology.dispatcher)]
    return [("--moe-token-dispatcher-type", "flex"), ("--moe-flex-dispatcher-backend", topology.dispatcher)]


def overlap(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flag of an exchange of tokens beside another microbatch's pass."""
    return [(_OVERLAP,)] * topology.moe_overlap


def megatron_model(flags: Flags) -> Model:
    """Return the model that Megatron-LM's arguments describe; raise if they are incomplete."""
    check_understood(flags, "megatron-lm", _CHANGES_MODEL)
    positions = flags.get("--position-embedding-type", "rope")
    if positions not in _POSITIONS:
        raise InputError(f"--position-embedding-type {positions} is not understood; describe the model with --model.")
    fields = {**_described(flags), **scaled_positions(flags)}
    model = dense_model(flags, kv_heads="--num-query-groups", fields=fields, optimizers=CORE_OPTIMIZERS)
    # without the first flag Megatron-LM ignores the second
    return model if "--group-query-attention" in flags else replace(model, kv_heads=model.heads)


def _described(flags: Flags) -> dict[str, Any]:
    default = "rope" if "--use-rotary-position-embeddings" in flags else "learned_absolute"
    positions: Any = flags.get("--position-embedding-type", default)
    norm: Norm = "rmsnorm" if flags.get("--normalization") == "RMSNorm" else "layernorm"
    return described(flags, positions={**_POSITIONS, "yarn": "rotary"}.get(positions, positions), norm=norm)


def _optimizer(flags: Flags) -> Optimizer:
    """Return the optimizer of the flags; those that tuner does not know have the states of Adam."""
    found = CORE_OPTIMIZERS.get(flags.get("--optimizer", "adam"), "adam")
    in_bf16 = {flags.get("--exp-avg-dtype"), flags.get("--exp-avg-sq-dtype")} == {"bf16"}
    return "adam-bf16" if found == "adam" and in_bf16 else found


def _pinned(flags: Flags) -> dict[str, str]:
    """Return ZeRO 1 for an optimizer that needs the distributed optimizer or brings it along."""
    return {"zero": "1"} if _PRECISION_AWARE in flags or flags.get("--optimizer") == "dist_muon" else {}


def _check(flags: Flags, model: Model) -> None:
    """Raise if the arguments, or Megatron-LM's defaults for missing ones, describe another model."""
    parts = {"--num-experts": model.experts is not None, "--multi-latent-attention": model.latent is not None}
    check_parts(flags, model, {**parts, "--mtp-num-layers": model.mtp_layers > 0})
    sizes = core_sizes(model)
    check_sizes(flags, sizes)
    for flag, default in _defaults(flags).items():
        if flag in sizes and default != sizes[flag]:
            lacking = "--group-query-attention" if flag in flags else flag
            raise InputError(
                f"--command lacks {lacking}, and Megatron-LM's default of {flag} {default} contradicts the model, "
                f"whose value is {sizes[flag]}; correct --model or the command."
            )
    if model.experts and model.dense_mlp_layers and describes_model(flags):
        check_parts(flags, model, {"--moe-layer-freq": True})
    if describes_model(flags):
        check_scaling(model)
    check_described(flags, model, _described(flags))
    check_special_parts(flags, model)


def core_sizes(model: Model) -> dict[str, float]:
    """Return the values of Megatron-LM's flags of a model's numbers, experts included."""
    sizes = {**dense_values(model), "--num-query-groups": model.kv_heads}
    if model.latent is None:
        sizes["--kv-channels"] = model.head_width
    if experts := model.experts:
        sizes |= {"--num-experts": experts.count, "--moe-router-topk": experts.top_k}
        sizes |= {"--moe-ffn-hidden-size": experts.ffn, "--moe-shared-expert-intermediate-size": experts.shared_ffn}
    return sizes


def _defaults(flags: Flags) -> dict[str, int]:
    """Return the sizes that Megatron-LM assumes for missing arguments; none where they do not describe a model."""
    if not describes_model(flags):
        return {}
    hidden, heads, width = number(flags, "--hidden-size"), number(flags, "--num-attention-heads"), mlp_width(flags)
    sizes = {"--ffn-hidden-size": width, "--moe-ffn-hidden-size": width, "--kv-channels": hidden // max(1, heads)}
    sizes |= {"--moe-router-topk": 2, "--moe-shared-expert-intermediate-size": 0, "--num-query-groups": 1}
    missing = {flag: size for flag, size in sizes.items() if flag not in flags}
    # without the first flag Megatron-LM ignores the second
    return missing if "--group-query-attention" in flags else {**missing, "--num-query-groups": heads}


_DEGREES: Final = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
MEGATRON_BATCH: Final = ("--micro-batch-size", *_DEGREES)
"""The flags from which Megatron-LM and its forks compute a missing global batch."""


def batch_on(flags: Flags, gpus: int) -> int | None:
    """Return the global batch without `--global-batch-size`: one micro-batch for each data parallel rank."""
    ranks = math.prod(number(flags, degree) or 1 for degree in _DEGREES)
    micro_batch = number(flags, MEGATRON_BATCH[0])
    return micro_batch * gpus // ranks if micro_batch and gpus % ranks == 0 else None


MEGATRON_LM: Final = TrainerKind(
    name="megatron-lm",
    framework=lambda _: "megatron-core",
    replaced=_REPLACED,
    job_flags=lambda flags, workload, topology, _config: (
        *of_optimizer(flags, workload, megatron_flags(workload, topology)),
        *loss_scale(flags, workload),
        *exchange_kind(flags, workload, topology),
        *([_DELAY] * (_DELAY in flags and topology.moe_overlap)),
        *conditional(flags, topology),
    ),
    precision=core_precision,
    scaling=core_scaling,
    optimizer=_optimizer,
    stack=lambda flags, workload: core_stack({**dict.fromkeys(OFF, "false"), **flags}, workload),
    pinned=_pinned,
    cautious=lambda flags, _wanted: {
        **({"moe_overlap": "on,off"} if _OVERLAP in flags else {}),
        **({"offload": "none,optimizer-50,optimizer"} if _OFFLOAD in flags else {}),
    },
    lacks={"hsdp": "1"},
    sequence=("--seq-length",),
    global_batch=("--global-batch-size",),
    batch_on=batch_on,
    batch_flags=MEGATRON_BATCH,
    length={"--train-iters": "steps", "--train-samples": "sequences"},
    environment=lambda _, topology: connections(topology),
    check=_check,
    model=megatron_model,
    trained=with_training,
    expand=lambda flags: refuse_unsearched("megatron-lm", flags),
)
