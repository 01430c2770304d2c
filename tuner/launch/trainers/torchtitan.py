"""torchtitan's flags of a topology, its job configs in TOML, and the sizes of Llama 3 that it registers.

Read in pytorch/torchtitan: `config/job_config.py` of release 0.2.2 (`--job.config_file`, a TOML file),
`config/configs.py` and `distributed/activation_checkpoint.py` of release 0.3.0 (`--module`, `--config`) and of b5bcd76
(August 2026), where the batch is counted in tokens, and `models/llama3/__init__.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.text import shown
from tuner.launch.trainers.kind import Flags, TrainerKind, has_fields, is_on, number

FLAVORS: Final[Mapping[str, Mapping[str, Any]]] = {
    "1B": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "tied_embeddings": True},
    "3B": {"layers": 28, "hidden": 3072, "heads": 24, "kv_heads": 8, "ffn": 8192, "tied_embeddings": True},
    "8B": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "tied_embeddings": False},
    "70B": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "tied_embeddings": False},
    "405B": {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "tied_embeddings": False},
}
"""Sizes of Llama 3 in torchtitan's registry; all have a vocabulary of 128256."""

_CONFIG_FILE: Final = "--job.config_file"
_SEQ: Final = "--training.seq_len"
_LOCAL_BATCH: Final = "--training.local_batch_size"
_COUNTS_TOKENS: Final = (
    *("--training.max_context_length", "--training.num_tokens_per_train_step"),
    *("--training.num_tokens_per_microbatch_per_dp_rank", "--parallelism.num_pp_microbatches"),
)
"""Flags of b5bcd76 that 0.3.0 lacks."""
_PLAIN_CONFIGS: Final = (
    *("llama3.llama3_debugmodel", "llama3.llama3_debugmodel_varlen_attn", "llama3.llama3_debugmodel_dist_gemm"),
    *("llama3.llama3_debugmodel_ce_loss", "llama3.llama3_8b", "llama3.llama3_70b", "llama3.sft_debugmodel"),
)
"""Registered configs of Llama 3 without a converter, in bf16 unless a flag says otherwise (pytorch/torchtitan at
1fdf90d, a candidate of release 0.3.0, and at b5bcd76, `models/llama3/config_registry.py`)."""
_FP8_CONFIGS: Final[Mapping[str, str]] = {
    "llama3.llama3_debugmodel_float8": "rowwise",
    "llama3.llama3_debugmodel_float8_emulate_lora": "rowwise",
    "llama3.llama3_405b": "rowwise",
    "llama3.llama3_8b_mxfp8": "mxfp8",
    "deepseek_v3.deepseek_v3_671b_float8": "rowwise",
    "deepseek_v3.deepseek_v3_debugmodel_mxfp8": "mxfp8",
}
"""Registered configs with Float8LinearConverter, whose default is rowwise, or MXFP8LinearConverter."""
_NVFP4_CONFIGS: Final = tuple(
    f"{family}.{family}_{name}"
    for family in ("llama3", "qwen3")
    for name in ("debugmodel_nvfp4", "debugmodel_first_85_pct_layers_nvfp4", "8b_first_85_pct_layers_nvfp4")
)
_COMPILED: Final = ("model", "loss")
"""Default of the components that are compiled (`CompileConfig`)."""
_COMPILED_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "llama3.llama3_405b": _COMPILED,
    "llama3.llama3_8b_mxfp8": ("model",),
    **{f"deepseek_v3.deepseek_v3_{name}": ("loss",) for name in ("16b", "16b_hybridep", "671b", "671b_float8")},
}
"""Registered configs with `compile`, and what they compile (b5bcd76, `models/*/config_registry.py`)."""
_OVERLAPPED_TP: Final = 7 / 8
"""Share of tensor parallel traffic that asynchronous tensor parallelism overlaps: all but one rank's part, of eight."""
_REGISTERED: Final = re.compile(r"llama3_(\d+b)(?:_|$)")


def parallelism(topology: Topology, units: int) -> dict[str, Any]:
    """Return torchtitan's settings of a topology; `units` are divided among the stages."""
    counted = topology.partition == "embedding"
    found: dict[str, Any] = {
        "data_parallel_replicate_degree": topology.hsdp,
        "data_parallel_shard_degree": topology.dp // topology.hsdp,
        "fsdp_reshard_after_forward": "always" if topology.zero == 3 else "never",
        "tensor_parallel_degree": topology.tp,
        "enable_sequence_parallel": topology.sequence_parallel,
        "pipeline_parallel_degree": topology.pp,
        "context_parallel_degree": topology.cp,
    }
    if topology.pp > 1:
        found |= {
            "pipeline_parallel_schedule": "Interleaved1F1B" if topology.vpp > 1 else "1F1B",
            "pipeline_parallel_layers_per_stage": units // (topology.pp * topology.vpp),
            "pipeline_parallel_first_stage_less_layers": int(counted),
            "pipeline_parallel_last_stage_less_layers": int(counted),
        }
    return found


def has_no_cuda_graphs(topology: Topology) -> bool:
    """Whether torchtitan refuses CUDA graphs for a topology; otherwise it captures them (`trainer.py` since 0.3.0)."""
    return topology.pp > 1 or topology.ep > 1


def _job_flags(flags: Flags, workload: Workload, topology: Topology, _: Path) -> list[object]:
    """Return the flags of a job; releases differ in the batch, in checkpointing and in sequence parallelism."""
    model, reads_toml = workload.model, _reads_toml(flags)
    settings = parallelism(topology, topology.split_units(model.layers))
    has_sequence_parallel = settings.pop("enable_sequence_parallel")
    microbatches = topology.microbatches(workload.global_batch)
    if model.experts:
        settings["expert_parallel_degree"] = topology.ep
    training: dict[str, Any] = {"enable_cpu_offload": topology.offload != "none"}
    if any(flag in flags for flag in _COUNTS_TOKENS):
        training |= {
            "num_tokens_per_microbatch_per_dp_rank": topology.micro_batch * model.seq,
            "num_tokens_per_train_step": workload.global_batch * model.seq,
            "max_context_length": model.seq,
        }
        settings |= {"num_pp_microbatches": microbatches} if topology.pp > 1 else {}
    else:
        local_batch = workload.global_batch // topology.dp if topology.pp > 1 else topology.micro_batch
        training |= {"local_batch_size": local_batch, "global_batch_size": workload.global_batch, "seq_len": model.seq}
        settings |= {"pipeline_parallel_microbatch_size": topology.micro_batch} if topology.pp > 1 else {}
    if not reads_toml:
        settings["enable_sequence_parallel"] = has_sequence_parallel
        if has_no_cuda_graphs(topology):
            training["disable_cuda_graphs"] = True
    recompute: tuple[object, ...] = (f"activation-checkpoint:{topology.recompute}",)
    if reads_toml:
        recompute = ("--activation_checkpoint.mode", topology.recompute)
        recompute += ("--activation_checkpoint.selective_ac_option", "op") * (topology.recompute == "selective")
    validation = "validation" if reads_toml else "validator"
    return [
        *(word for name, value in settings.items() for word in _words("parallelism", name, value)),
        *(word for name, value in training.items() for word in _words("training", name, value)),
        *("--metrics.log_freq", 1, "--checkpoint.no-enable", f"--{validation}.no-enable"),
        *recompute,  # a subcommand from 0.3.0 on, which must come last
    ]


def _words(section: str, name: str, value: object) -> tuple[object, ...]:
    """Return a setting as words; a switch is set by its name alone."""
    if isinstance(value, bool):
        return (f"--{section}.{name if value else 'no-' + name.replace('_', '-')}",)
    return (f"--{section}.{name}", value)


def _reads_toml(flags: Flags) -> bool:
    return "--config" not in flags and "--module" not in flags


def _cautious(flags: Flags, wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return tp = 1 for a job in TOML, whose tensor parallelism always shards the sequence.

    If `--set` requests tensor parallelism, return sequence parallelism instead.
    """
    if not _reads_toml(flags):
        return {}
    tp = wanted.get("tp", "1")
    degrees = [part.partition("-")[0] for part in tp.split(",")]
    if degrees == ["1"] and "-" not in tp:
        return {"tp": "1", "sequence_parallel": "off"}
    if "1" in degrees or wanted.get("sequence_parallel", "on") not in ("on", "1", "true", "True"):
        raise InputError(
            f"with a TOML job config, torchtitan shards the sequence if tp > 1, so --set tp={tp} would mix both; "
            "search --set tp=1, or larger degrees with --set sequence_parallel=on."
        )
    return {"sequence_parallel": "on"}


def _with_toml(flags: Flags) -> Flags:
    """Return the flags with the values of the job config in TOML, which they override."""
    found: dict[str, str] = {}
    document = catalog.read_toml(Path(flags[_CONFIG_FILE])) if _CONFIG_FILE in flags else {}
    for name, value in _flat(document):
        found[f"--{name}"] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    # -1 stands for the default, which tuner sets
    return {name: value for name, value in {**found, **flags}.items() if value != "-1"}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table and of those in it, by their names with dots."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _flavor(flags: Flags) -> str:
    """Return the registered size that a command trains, or an empty string where another model is trained."""
    if _reads_toml(flags):
        is_llama = flags.get("--model.name", "llama3") == "llama3"
        return flags.get("--model.flavor", "") if is_llama else ""
    is_llama = flags.get("--module", "").rpartition(".")[2] == "llama3"
    named = _REGISTERED.match(flags.get("--config", ""))
    return named[1].upper() if is_llama and named else ""


def _model(flags: Flags) -> Model | None:
    """Return the model of a registered size of Llama 3."""
    flavor = FLAVORS.get(_flavor(flags))
    if flavor is None:
        return None
    seq = number(flags, _SEQ) or number(flags, "--training.max_context_length")
    like = catalog.model("llama-3.1-8b")  # all sizes scale the rotary embedding as Llama 3.1 does
    name = f"torchtitan-llama3-{_flavor(flags)}"
    return replace(like, name=name, **flavor, embedding_size=0, seq=seq or like.seq, vocab_multiple=0)


def _check(flags: Flags, model: Model) -> None:
    """Raise if the model is not the registered size that the command trains."""
    flavor = FLAVORS.get(_flavor(flags), {})
    for name, value in {**flavor, **({"vocab": 128256} if flavor else {})}.items():
        if getattr(model, name) != value:
            raise InputError(
                f"--command trains Llama 3 {_flavor(flags)}, whose {name} is {value}, but the model "
                f"{shown(model.name)} has {getattr(model, name)}; correct --model or the command."
            )


def _batch_on(flags: Flags, gpus: int) -> int | None:
    """Return the global batch of a job config, whose default is a local batch of 8 on each data parallel rank.

    The degrees of a registered config are not known, unlike tokens per step and sequence in flags.
    """
    if not _reads_toml(flags):
        tokens, seq = number(flags, _COUNTS_TOKENS[1]), number(flags, _COUNTS_TOKENS[0])
        return tokens // seq if tokens and seq and tokens % seq == 0 else None
    if _CONFIG_FILE not in flags:
        return None
    degrees = [f"--parallelism.{axis}_parallel_degree" for axis in ("tensor", "context", "pipeline")]
    if has_fields(flags, degrees):
        return None
    ranks = math.prod(number(flags, name) or 1 for name in degrees)
    return (number(flags, _LOCAL_BATCH) or 8) * gpus // ranks if gpus % ranks == 0 else None


def _converter(flags: Flags) -> str:
    """Return what a job config in TOML quantizes with: float8, mx or nothing; it does not combine both."""
    words = re.split(r"[\s,]+", flags.get("--model.converters", ""))
    return next((kind for kind in ("float8", "mx") if any(word.split(".")[-1] == kind for word in words)), "")


def _recipe(flags: Flags) -> str | None:
    """Return how the command scales fp8 tensors, None in other precisions; raise for a recipe that is not modeled."""
    if not _reads_toml(flags):
        return _FP8_CONFIGS.get(_config(flags))
    if not (converter := _converter(flags)):
        return None
    usual = "tensorwise" if converter == "float8" else "mxfp8"
    flag = f"--quantize.linear.{converter}.recipe_name"
    if flag not in flags:
        flag = f"--{converter}.recipe_name"  # release 0.1
    named = flags.get(flag, usual).strip("\"'")
    if named in ("None", ""):
        return usual
    if named in ("tensorwise", "rowwise"):
        return named
    if named.startswith("mxfp8"):
        return "mxfp8"
    raise InputError(f"{flag} {shown(named)} in --command is not modeled, only tensorwise, rowwise and mxfp8.")


def _config(flags: Flags) -> str:
    """Return module and name of a registered config, such as `llama3.llama3_8b`."""
    return f"{flags.get('--module', '').split('.')[-1]}.{flags.get('--config', '')}"


def _precision(flags: Flags) -> str | None:
    """Return the precision of the command; None for a config whose precision is not known."""
    if _config(flags) in _NVFP4_CONFIGS:
        raise InputError(
            f"--config {flags['--config']} in --command trains in NVFP4, which tuner does not model for torchtitan; "
            "name a config in bf16 or fp8."
        )
    if _recipe(flags) is not None:
        return "fp8"
    if not _reads_toml(flags) and _config(flags) not in _PLAIN_CONFIGS:
        return None
    return "fp32" if flags.get("--training.mixed_precision_param") == "float32" else "bf16"


def _scaling(flags: Flags) -> dict[str, str | bool | None]:
    return {} if (recipe := _recipe(flags)) is None else {"precision_recipe": recipe}


_EXPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "--training.dtype": ("float32",),
    "--training.mixed_precision_reduce": ("float32",),
}
"""Values with which an export trains."""
_SAME_NUMERICS: Final = (
    *("recipe_name", "enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "filter_fqns"),
)
"""Settings of a converter that are read, or affect only what FSDP gathers."""
_FP8_OUTPUT_LAYERS: Final = ("llama3.llama3_8b_mxfp8",)
"""Registered configs that convert the output layer too."""

_FILTERS: Final[Mapping[str, str]] = {"float8": "", "mx": "output"}
"""Converters to fp8, and the default names of the layers that each leaves in bf16 (release 0.2.2)."""


def _trained(flags: Flags, model: Model) -> Model:
    """Return the model with the settings of its precision that no export has."""
    found = [f"{flag} {flags[flag]}" for flag, values in _EXPORTED.items() if flags.get(flag, values[0]) not in values]
    found += [
        flag
        for flag in flags
        if flag.startswith(("--quantize.", "--float8.", "--mx.")) and flag.rpartition(".")[2] not in _SAME_NUMERICS
    ]
    converters = re.findall(r"[\w.]+", flags.get("--model.converters", ""))
    kinds = {name: name.rpartition(".")[2] for name in converters}
    found += [f"--model.converters {name}" for name, kind in kinds.items() if kind not in _FILTERS]
    for kind, usual in _FILTERS.items():
        filters = next((value for flag, value in flags.items() if flag.endswith(f"{kind}.filter_fqns")), usual)
        if kind in kinds.values() and {*re.findall(r"[\w.]+", filters)} not in ({"output"}, {"lm_head"}):
            found.append(f"{kind}.filter_fqns {filters}" if filters else "the output layer in fp8 (no filter_fqns)")
    found += [f"the output layer of {name} in fp8" for name in _FP8_OUTPUT_LAYERS if name == _config(flags)]
    return replace(model, not_understood=(*model.not_understood, *found)) if found else model


def _stack(flags: Flags, _: Workload) -> dict[str, Any]:
    """Return what is compiled and overlaps; before release 0.3, the loss is not computed in chunks."""
    usual = _COMPILED_CONFIGS.get(_config(flags), ())
    on = bool(usual) or any(is_on(flags, f"--{name}") for name in ("compile.enable", "training.compile"))
    stated = re.findall(r"\w+", flags.get("--compile.components", ""))
    components = stated or usual or _COMPILED if on and "--compile.no_enable" not in flags else ()
    found: dict[str, Any] = {"compiled": True} if "model" in components else {}
    if "loss" in components:
        found["fused_loss"] = True
    if any(is_on(flags, f"--{section}.enable_async_tensor_parallel") for section in ("parallelism", "compile")):
        found["overlap_tp"] = _OVERLAPPED_TP
    return {**found, "loss_chunks": 1} if _reads_toml(flags) else found


TORCHTITAN: Final = TrainerKind(
    name="torchtitan",
    framework=lambda _: "torchtitan",
    replaced=(
        *(f"--parallelism.{name}" for name in ("data_parallel_replicate_degree", "data_parallel_shard_degree")),
        *("--parallelism.fsdp_reshard_after_forward", "--parallelism.tensor_parallel_degree"),
        *("--parallelism.enable_sequence_parallel", "--parallelism.no_enable_sequence_parallel"),
        *("--parallelism.pipeline_parallel_degree", "--parallelism.pipeline_parallel_schedule"),
        *("--parallelism.pipeline_parallel_layers_per_stage", "--parallelism.module_fqns_per_model_part"),
        *("--parallelism.pipeline_parallel_first_stage_less_layers", "--parallelism.context_parallel_degree"),
        *("--parallelism.pipeline_parallel_last_stage_less_layers", "--parallelism.pipeline_parallel_microbatch_size"),
        *("--parallelism.expert_parallel_degree", "--parallelism.expert_tensor_parallel_degree"),
        *(_LOCAL_BATCH, "--training.global_batch_size", _SEQ, *_COUNTS_TOKENS),
        *("--training.enable_cpu_offload", "--training.no_enable_cpu_offload", "--metrics.log_freq"),
        *("--checkpoint.enable", "--checkpoint.no_enable", "--validation.enable", "--validation.no_enable"),
        *("--validator.enable", "--validator.no_enable"),
        *("--activation_checkpoint.", "activation_checkpoint:"),
    ),
    job_flags=_job_flags,
    precision=_precision,
    scaling=_scaling,
    stack=_stack,
    pinned=lambda _: {"etp": "1", "dispatcher": "alltoall"},
    cautious=_cautious,
    batch_on=_batch_on,
    batch_flags=(_LOCAL_BATCH, _COUNTS_TOKENS[1]),
    sequence=(_SEQ, _COUNTS_TOKENS[0]),
    global_batch=("--training.global_batch_size",),
    length={"--training.steps": "steps"},
    check=_check,
    model=_model,
    trained=_trained,
    expand=_with_toml,
    config_flags=(_CONFIG_FILE,),
    is_hyphen_underscore=True,
)
