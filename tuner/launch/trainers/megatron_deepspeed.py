"""Megatron-DeepSpeed's flags of a topology, and the model that its arguments describe.

Flags were read in deepspeedai/Megatron-DeepSpeed at 4efb479, `megatron/arguments.py`. BigScience's fork, which trained
BLOOM, has others for stages, positions and recomputation and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model, Positions
from tuner.core.text import listed
from tuner.launch.trainers.kind import Flags, TrainerKind, check_sizes, refuse_unset
from tuner.launch.trainers.megatron_arguments import (
    check_described,
    check_parts,
    check_understood,
    dense_model,
    dense_values,
    described,
    with_unexpressed,
)
from tuner.launch.trainers.megatron_limits import refuse_unsearched
from tuner.launch.trainers.megatron_lm import (
    MEGATRON_BATCH,
    MEGATRON_SHARED,
    batch_on,
    connections,
    short_run,
)
from tuner.launch.trainers.megatron_precision import half_precision

_BIGSCIENCE: Final = (
    *("--position-embedding-type", "--embed-layernorm", "--pad-vocab-size-to", "--glu-activation"),
    "--pp-partition-method",
)
"""Flags that only BigScience's fork has."""
_CHANGES_MODEL: Final = (
    *("--num-experts", "--encoder-num-layers", "--decoder-num-layers", "--bert-no-binary-head"),
    *("--retro-add-retriever", "--squared-relu", "--apply-residual-connection-post-layernorm"),
)
_FP8: Final = ("--fp8-e4m3", "--fp8-hybrid")
_KV_HEADS: Final = "--num-key-value-heads"


def zero_flags(topology: Topology, ds_config: str) -> list[tuple[str, ...]]:
    """Return the flags of DeepSpeed and its ZeRO stage."""
    return [("--deepspeed",), ("--deepspeed_config", ds_config), ("--zero-stage", str(topology.zero))]


def offload_flags(topology: Topology) -> list[tuple[str, ...]]:
    """Return the flags of offloading."""
    flags: list[tuple[str, ...]] = [("--cpu-optimizer",)] if topology.offload != "none" else []
    return flags + [("--remote-device", "cpu")] * (topology.offload == "optimizer+parameters")


def recompute_flags(topology: Topology) -> list[tuple[str, ...]]:
    """Return the flags of activation recomputation."""
    if topology.recompute == "full":
        return [("--checkpoint-activations",), ("--deepspeed-activation-checkpointing",)]
    return [("--recompute-granularity", "selective")] * (topology.recompute == "selective")


def _understood(flags: Flags) -> Flags:
    """Return the flags; raise for those of BigScience's fork, and for what is not searched."""
    if foreign := [flag for flag in _BIGSCIENCE if flag in flags]:
        raise InputError(
            f"--trainer megatron-deepspeed sets the flags of deepspeedai/Megatron-DeepSpeed, and {listed(foreign)} "
            "belongs to BigScience's fork; write a template with fields in --command, without --trainer."
        )
    if found := [flag for flag in _FP8 if flag in flags]:
        raise InputError(
            f"tuner does not model fp8 for --trainer megatron-deepspeed; leave {listed(found)} out of --command."
        )
    return refuse_unsearched("megatron-deepspeed", flags)


def _job_flags(_: Flags, workload: Workload, topology: Topology, ds_config: Path) -> Sequence[object]:
    refuse_unset("megatron-deepspeed", {"stages that count the embedding": topology.partition != "layers"})
    return short_run(
        workload,
        topology,
        [
            *zero_flags(topology, str(ds_config)),
            *([("--no-pipeline-parallel",)] * (topology.pp == 1)),
            *recompute_flags(topology),
            *offload_flags(topology),
        ],
    )


def _model(flags: Flags) -> Model:
    check_understood(flags, "megatron-deepspeed", _CHANGES_MODEL)
    return dense_model(flags, kv_heads=_KV_HEADS, fields=_described(flags))


def _described(flags: Flags) -> dict[str, Any]:
    positions: Positions = "rotary" if "--use-rotary-position-embeddings" in flags else "learned"
    found = described(
        flags,
        positions="none" if "--no-position-embedding" in flags else positions,
        norm="rmsnorm" if flags.get("--normalization") == "rmsnorm" else "layernorm",
    )
    return {**found, "activation": "gelu_tanh"} if "--openai-gelu" in flags else found


def _check(flags: Flags, model: Model) -> None:
    check_parts(flags, model, {"--num-experts": model.experts is not None})
    check_sizes(flags, {**dense_values(model), _KV_HEADS: model.kv_heads})
    check_described(flags, model, _described(flags))


MEGATRON_DEEPSPEED: Final = TrainerKind(
    name="megatron-deepspeed",
    framework=lambda _: "megatron-deepspeed",
    replaced=(
        *MEGATRON_SHARED,
        *("--deepspeed", "--deepspeed_config", "--zero-stage", "--no-pipeline-parallel", "--checkpoint-activations"),
        *("--deepspeed-activation-checkpointing", "--cpu-optimizer", "--remote-device", "--checkpoint-num-layers"),
        *("--partition-activations", "--checkpoint-in-cpu", "--ds-sequence-parallel-size"),
    ),
    job_flags=_job_flags,
    precision=half_precision,
    pinned=lambda _: {"partition": "layers"},
    ds_config=lambda config: {name: value for name, value in config.items() if name != "optimizer"},
    environment=lambda _, topology: connections(topology),
    check=_check,
    model=_model,
    trained=with_unexpressed,
    expand=_understood,
    sequence=("--seq-length",),
    global_batch=("--global-batch-size",),
    batch_on=batch_on,
    batch_flags=MEGATRON_BATCH,
    length={"--train-iters": "steps", "--train-samples": "sequences", "--train-tokens": "tokens"},
)
