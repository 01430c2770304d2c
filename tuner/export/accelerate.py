"""FSDP through Hugging Face accelerate: a config and a script that launches the user's program with it.

Names and values are those of accelerate 1.15's config file with `fsdp_version: 2` and `parallelism_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.export.formats import (
    BY_THE_PROGRAM,
    OFFLOADS_OF_FSDP,
    WITHOUT_EXPERT_PARALLELISM,
    ExportOptions,
    Format,
    Treatment,
    expressed,
    offloads_as_fsdp,
    trains_only,
)
from tuner.export.production import ProductionRun
from tuner.export.program import override_treatments, program_of_export
from tuner.export.rendering import as_yaml, rendered
from tuner.launch.trainers.accelerate import PRECISIONS


def accelerate_document(run: ProductionRun) -> dict[str, Any]:
    """Return the config for `accelerate launch --config_file`.

    ZeRO 3 frees the gathered parameters after the forward pass, and ZeRO 2 keeps them for the backward pass.
    """
    topology = run.topology
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": PRECISIONS[run.workload.precision],
        "num_machines": topology.nodes,
        "num_processes": topology.gpus,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
        "debug": False,
        "downcast_bf16": "no",
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": topology.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": topology.recompute == "full",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_offload_params": topology.offload == "optimizer+parameters",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        },
        "parallelism_config": {
            "parallelism_config_dp_replicate_size": topology.hsdp,
            "parallelism_config_dp_shard_size": topology.dp // topology.hsdp,
            "parallelism_config_tp_size": topology.tp,
            "parallelism_config_cp_size": topology.cp,
        },
    }


def _render(run: ProductionRun, options: ExportOptions, _: Format) -> Mapping[str, str]:
    program = program_of_export(run, options)
    if program.starts_ranks:
        raise InputError(
            f"--format accelerate starts the ranks with accelerate launch, and {program.words[0]} in --command would "
            "start them again: give only the training program, or choose another --format."
        )
    if not program.worker and program.reads_config:
        raise InputError(
            "--format accelerate shards with FSDP 2 and exports no ds_config.json, which --command passes to the "
            "program: leave it out, or choose another --format."
        )
    return {
        "accelerate.yaml": as_yaml(accelerate_document(run)),
        "launch.sh": rendered("accelerate.launch.sh", run, program=program, site=options.site, trainer_environment={}),
    }


_TREATMENTS: Final[Mapping[str, Treatment]] = {
    **BY_THE_PROGRAM,
    **WITHOUT_EXPERT_PARALLELISM,
    "precision": expressed(
        "mixed_precision", only="fp32, bf16 and fp16", accepts=lambda run: run.workload.precision in PRECISIONS
    ),
    "tp": expressed("parallelism_config_tp_size"),
    "cp": expressed("parallelism_config_cp_size"),
    "dp": expressed("parallelism_config_dp_shard_size"),
    "hsdp": expressed("parallelism_config_dp_replicate_size"),
    "pp": trains_only("1", lambda run: run.topology.pp == 1),
    "vpp": trains_only("1", lambda run: run.topology.vpp == 1),
    "zero": expressed("fsdp_reshard_after_forward", only="2 and 3", accepts=lambda run: run.topology.zero in (2, 3)),
    "sequence_parallel": trains_only("off", lambda run: not run.topology.sequence_parallel),
    "recompute": expressed(
        "fsdp_activation_checkpointing",
        only="none and full",
        accepts=lambda run: run.topology.recompute in ("none", "full"),
    ),
    "partition": trains_only("layers", lambda run: run.topology.partition == "layers"),
    "offload": expressed("fsdp_offload_params", only=OFFLOADS_OF_FSDP, accepts=offloads_as_fsdp),
}


def _treatments(options: ExportOptions) -> Mapping[str, Treatment]:
    """Return the treatments of the config, and of the model and the batch that a command passes to its program."""
    return _TREATMENTS if options.command is None else {**_TREATMENTS, **override_treatments(options.command)}


ACCELERATE: Final = Format(
    name="accelerate",
    title="accelerate",
    summary="FSDP through Hugging Face accelerate, with your program",
    framework="fsdp2",
    launch_files=("launch.sh",),
    render=_render,
    treatments=_treatments,
    runs_command=True,
)
