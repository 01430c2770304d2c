"""Formats that launch a training program under DeepSpeed: torchrun, a hostfile, Slurm and Kubernetes.

The program is the bundled worker, so the folder runs without changes, or the user's command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.text import counted, listed, shown
from tuner.core.worker_refusals import refuse
from tuner.export.formats import ExportOptions, Format, ZeroPlusPlus
from tuner.export.kubernetes import jobset, kustomization, pytorchjob
from tuner.export.production import ProductionRun, config_notes, production_config
from tuner.export.program import (
    TrainingProgram,
    assignment_text,
    program_of_export,
    program_treatments,
    worker_workload,
)
from tuner.export.rendering import as_json, rendered, trainer_environment

DATA_FILES: Final = ("assignment.json", "ds_config.json")
"""Files that the program reads."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_@+=:,./ -]+")
"""Values of variables and words of a command that DeepSpeed's launcher passes unchanged to other machines: their shells
expand both, and pdsh expands %n in a command."""

Files = dict[str, str]


def deepspeed_config_files(
    run: ProductionRun,
    *,
    with_optimizer: bool,
    zero_plus_plus: tuple[ZeroPlusPlus, ...] = (),
    for_hf_trainer: bool = False,
    own: Mapping[str, Any] | None = None,
) -> Files:
    """Return `ds_config.json` and its explanation."""
    config = production_config(
        run, with_optimizer=with_optimizer, zero_plus_plus=zero_plus_plus, for_hf_trainer=for_hf_trainer, own=own
    )
    notes = config_notes(run, config, by_command=with_optimizer, for_hf_trainer=for_hf_trainer, own=own)
    return {"ds_config.json": as_json(config), "ds_config.md": notes}


def program_files(
    run: ProductionRun, program: TrainingProgram, options: ExportOptions, result: str = "result.json"
) -> Files:
    """Return the files that the program reads."""
    if options.zero_plus_plus and not program.reads_config:
        raise InputError(
            "--zero-plus-plus is set in ds_config.json, which --command does not read: pass it {ds_config}, or leave "
            "the option out."
        )
    files: Files = {}
    if program.reads_config:
        files = deepspeed_config_files(
            run,
            with_optimizer=True,
            zero_plus_plus=options.zero_plus_plus,
            for_hf_trainer=program.passes_config_to_hf,
            own=options.own_config if not program.worker else None,
        )
    if program.worker:
        refuse(worker_workload(run), run.topology, production_config(run, with_optimizer=True))
        files["assignment.json"] = assignment_text(run, result)
    return files


def _torchrun(run: ProductionRun, options: ExportOptions) -> Files:
    program = program_of_export(run, options)
    return {
        **program_files(run, program, options),
        "launch.sh": rendered("torchrun.launch.sh", run, program=program, site=options.site),
    }


def _hostfile(run: ProductionRun, options: ExportOptions) -> Files:
    program, site = program_of_export(run, options), options.site
    if program.starts_ranks:
        raise InputError("DeepSpeed's launcher starts the ranks, and so does --command; use --format torchrun.")
    if site.container:
        raise InputError(
            "DeepSpeed's launcher does not start containers, which the site profile requires; use another format."
        )
    if site.hosts and len(site.hosts) < run.topology.nodes:
        hosts = counted(len(site.hosts), "host")
        raise InputError(f"{run.topology.key} needs {run.topology.nodes} nodes; the site profile has {hosts}.")
    variables = {**trainer_environment(run, program), "OMP_NUM_THREADS": "1", **dict(site.environment)}
    variables |= dict(program.environment)
    if run.topology.nodes > 1:
        odd = [f"{name}={shown(value)}" for name, value in variables.items() if not _PLAIN.fullmatch(value)]
        odd += [shown(word) for word in program.plain("/") if not _PLAIN_WORD.fullmatch(word)]
        if odd:
            raise InputError(
                f"DeepSpeed's launcher cannot pass {listed(odd, last='or')} to other machines; use Slurm or torchrun."
            )
    files = program_files(run, program, options)
    files["launch.sh"] = rendered("hostfile.launch.sh", run, program=program, site=site)
    files["hostfile"] = rendered("hostfile.hostfile", run, hosts=site.hosts[: run.topology.nodes])
    if run.topology.nodes > 1:
        files[".deepspeed_env"] = "".join(f"{name}={value}\n" for name, value in variables.items())
    return files


def _slurm(run: ProductionRun, options: ExportOptions) -> Files:
    program = program_of_export(run, options)
    return {
        **program_files(run, program, options),
        "launch.sbatch": rendered("slurm.launch.sbatch", run, program=program, site=options.site),
    }


def _kubernetes(manifest: Callable[..., str]) -> Callable[[ProductionRun, ExportOptions], Files]:
    def render(run: ProductionRun, options: ExportOptions) -> Files:
        if not options.site.image:
            raise InputError(
                "Kubernetes needs an image with torch, deepspeed and the training program: give --site-profile FILE "
                'with image = "registry/name:tag".'
            )
        program = program_of_export(run, options)
        files = program_files(run, program, options, result="/tmp/result.json")  # noqa: S108 - the container's own
        data = [name for name in DATA_FILES if name in files]
        manifests = {
            "launch.yaml": manifest(run, program, options.site, data),
            "kustomization.yaml": kustomization(run, data),
        }
        return files | manifests

    return render


def _format(
    name: str, summary: str, render: Callable[[ProductionRun, ExportOptions], Files], *launch_files: str
) -> Format:
    def files_of(run: ProductionRun, options: ExportOptions, _: Format) -> Mapping[str, str]:
        return render(run, options)

    return Format(
        name=name,
        title="DeepSpeed",
        summary=summary,
        framework="deepspeed",
        launch_files=launch_files,
        render=files_of,
        treatments=program_treatments,
        zero_plus_plus=True,
        runs_command=True,
        remedy="give a program that does with --command 'template'",
    )


DEEPSPEED_FORMATS: Final = (
    _format("torchrun", "torchrun on every node", _torchrun, "launch.sh"),
    _format("hostfile", "DeepSpeed's launcher and a hostfile", _hostfile, "launch.sh", "hostfile"),
    _format("slurm", "sbatch and srun", _slurm, "launch.sbatch"),
    _format("kubernetes", "a PyTorchJob", _kubernetes(pytorchjob), "launch.yaml", "kustomization.yaml"),
    _format("jobset", "a JobSet of Kubernetes", _kubernetes(jobset), "launch.yaml", "kustomization.yaml"),
)
