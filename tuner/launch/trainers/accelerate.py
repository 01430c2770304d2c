"""accelerate: the flags of `accelerate launch` for FSDP2 and DeepSpeed, and those of the script's batch.

Flags were read from the parser of accelerate 1.15.0 (`commands/launch.py`) and, for the script, in transformers 5.23.0,
`examples/pytorch/language-modeling/run_clm_no_trainer.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.frameworks import ANY, FrameworkChoice
from tuner.launch.trainers.hugging_face import BATCH, SEQUENCE, fused_layers, with_agreed_sequence
from tuner.launch.trainers.kind import Flags, RankLauncher, TrainerKind

PRECISIONS: Final = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Values of `--mixed_precision`."""

_PARALLEL: Final = tuple(f"--parallelism_config_{name}_size" for name in ("dp_replicate", "dp_shard", "tp", "cp"))

_CONFIG: Final = "--deepspeed_config_file"
_MIXED: Final = "--mixed_precision"


def _framework(flags: Flags) -> FrameworkChoice:
    """Return the back end of `accelerate launch`: DeepSpeed, data parallelism on the CPU, or FSDP2."""
    if "--config_file" in flags:
        raise InputError(
            "--trainer accelerate does not read --config_file; write its settings as flags of accelerate launch."
        )
    return "deepspeed" if "--use_deepspeed" in flags else ANY if "--cpu" in flags else "fsdp2"


def _launch_flags(flags: Flags, workload: Workload, topology: Topology, ds_config: Path) -> list[object]:
    framework = _framework(flags)
    found: list[object] = ["--num_processes", topology.gpus, "--num_machines", 1]
    if _MIXED in flags or (workload.precision != _usual_precision(flags) and not flags.get(_CONFIG)):
        found += [_MIXED, PRECISIONS[workload.precision]]
    if framework == "deepspeed":
        parameters = topology.offload == "optimizer+parameters"
        return [
            *found,
            *("--zero_stage", topology.zero),
            *("--gradient_accumulation_steps", topology.microbatches(workload.global_batch)),
            *("--offload_optimizer_device", "none" if topology.offload == "none" else "cpu"),
            *("--offload_param_device", "cpu" if parameters else "none"),
            *((_CONFIG, ds_config) if flags.get(_CONFIG) else ()),
        ]
    if framework == ANY:
        return found
    found += [
        *("--use_fsdp", "--fsdp_version", 2, "--fsdp_reshard_after_forward", _word(topology.zero == 3)),
        *("--fsdp_activation_checkpointing", _word(topology.recompute == "full")),
        *("--fsdp_offload_params", _word(topology.offload != "none")),
    ]
    if "--fsdp_auto_wrap_policy" not in flags:
        found += ["--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"]
    sizes = (topology.hsdp, topology.dp // topology.hsdp, topology.tp, topology.cp)
    if max(topology.hsdp, topology.tp, topology.cp) > 1:
        found += ["--use_parallelism_config"]
        found += [word for pair in zip(_PARALLEL, sizes, strict=True) for word in pair]
    return found


def _script_flags(flags: Flags, workload: Workload, topology: Topology, _: Path) -> list[object]:
    """Return the flags of the script; none if its command has fields for the batch."""
    if any("{micro_batch}" in value for value in flags.values()):
        return []
    return [
        *("--per_device_train_batch_size", topology.micro_batch),
        *("--gradient_accumulation_steps", topology.microbatches(workload.global_batch)),
    ]


def _batch_on(flags: Flags, gpus: int) -> int | None:
    """Return the global batch, if the script gets its micro-batch size as transformers' examples do."""
    words = [
        flags.get(name, "1") for name in (BATCH[1], *(f"--parallelism_config_{axis}_size" for axis in ("tp", "cp")))
    ]
    if not all(word.isdecimal() and int(word) for word in (*words, flags.get(BATCH[0], ""))):
        return None
    accumulation, tp, cp = map(int, words)
    return int(flags[BATCH[0]]) * accumulation * gpus // (tp * cp)


def _word(is_on: bool) -> str:
    return "true" if is_on else "false"


def _precision(flags: Flags) -> str | None:
    named = flags.get(_MIXED)
    return next((precision for precision, word in PRECISIONS.items() if word == named), named)


def _usual_precision(flags: Flags) -> str:
    """Return the precision without `--mixed_precision`: that of accelerate's default config, or else fp32.

    `accelerate launch` replaces the variable ACCELERATE_MIXED_PRECISION, and ignores the file on the CPU.
    """
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    try:
        text = (Path(home).expanduser() / "accelerate/default_config.yaml").read_text()
    except (OSError, UnicodeError, RuntimeError):  # the last: no home directory
        return "fp32"
    named = re.search(r"^mixed_precision:\s*['\"]?(\w+)", text, re.MULTILINE)
    word = named[1] if named and "--cpu" not in flags else "no"
    return next((precision for precision, known in PRECISIONS.items() if known == word), word)


def _pinned(flags: Flags) -> dict[str, str]:
    """Return the axes that accelerate lacks: only FSDP2 has tensor and context parallelism, and recompute by a flag."""
    framework = _framework(flags)
    found = {"pp": "1", "ep": "1", **({} if framework == "fsdp2" else {"tp": "1", "cp": "1", "recompute": "none"})}
    return {**found, "zero": "0"} if framework == ANY else found


def _stack(flags: Flags, workload: Workload) -> dict[str, Any]:
    found = fused_layers(flags, workload)
    return found if flags.get("--dynamo_backend", "no").lower() == "no" else {**found, "compiled": True}


ACCELERATE: Final = TrainerKind(
    name="accelerate",
    framework=_framework,
    launcher=RankLauncher(
        starts=(("accelerate", "launch"), ("accelerate-launch",)),
        switches=frozenset(
            {
                *("--cpu", "--debug", "--downcast_bf16", "--dynamo_use_dynamic", "--dynamo_use_fullgraph", "-m", "-q"),
                *("--dynamo_use_regional_compilation", "--enable_cpu_affinity", "--fp8_use_autocast_during_eval"),
                *("--module", "--multi_gpu", "--no_python", "--quiet", "--same_network", "--use_deepspeed"),
                *("--use_fsdp", "--use_megatron_lm", "--use_parallelism_config", "--tpu", "--tpu_cluster"),
                *("--no_tpu_cluster", "--tpu_use_sudo"),
            }
        ),
        replaced=(
            *("--num_processes", "--num_machines", _MIXED, "--multi_gpu", "--use_fsdp", "--fsdp_version"),
            *("--fsdp_reshard_after_forward", "--fsdp_activation_checkpointing", "--fsdp_offload_params"),
            *("--fsdp_sharding_strategy", "--use_parallelism_config", *_PARALLEL, _CONFIG),
            *("--zero_stage", "--gradient_accumulation_steps", "--offload_optimizer_device", "--offload_param_device"),
        ),
        flags=_launch_flags,
    ),
    replaced=(*BATCH, "--checkpointing_steps", "--resume_from_checkpoint"),
    job_flags=_script_flags,
    precision=_precision,
    usual_precision=_usual_precision,
    stack=_stack,
    batch_on=_batch_on,
    batch_flags=BATCH[:1],
    processes="--num_processes",
    sequence=SEQUENCE,
    length={"--max_train_steps": "steps", "--max_steps": "steps"},  # the second of scripts with HF Trainer
    expand=with_agreed_sequence,
    pinned=_pinned,
    # only scripts that shard their model and their batches themselves support them
    cautious=lambda flags, _wanted: {"tp": "1", "cp": "1"} if _framework(flags) == "fsdp2" else {},
    is_hyphen_underscore=True,
    max_nodes=1,
    ds_config_flags=(_CONFIG,),
)
