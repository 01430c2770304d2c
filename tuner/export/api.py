"""Export a measured topology of a study as a production folder."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import open_regular, refuse_foreign, write_files
from tuner.core.columns import Columns
from tuner.core.documents import model_notes
from tuner.core.domain import Framework
from tuner.core.errors import InputError, NothingUsable
from tuner.core.text import DAY, either, listed, span, token_count
from tuner.costmodel.estimate import INTERVAL
from tuner.costmodel.flops import hardware_flops, per_gpu, training_seconds
from tuner.costmodel.memory import limit
from tuner.export.bundle import FORMATS, bundle, format_of
from tuner.export.command_difference import command_differences
from tuner.export.flag_table import Difference
from tuner.export.formats import BY_THE_PROGRAM, ExportOptions, Fork, Format, ZeroPlusPlus
from tuner.export.megatron_deepspeed import MEGATRON_DEEPSPEED
from tuner.export.other_framework import other_framework_note
from tuner.export.production import ExpectedPerformance, ProductionRun
from tuner.launch.program import axes_not_passed
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainers.command import TrainerCommand
from tuner.study.leaderboard import rows_of
from tuner.study.ranking import RankedTrial
from tuner.study.result import StudyResult


def production_run(study: StudyResult, ranked: RankedTrial) -> ProductionRun:
    """Return a run of a measured topology with its expected performance.

    The interval of one iteration combines the uncertainty of the mean with the noise of a single run. The days are
    those of the exported model and its tokens, whereas the study's objective compares models at equal compute.
    """
    row = next(row for row in rows_of(study) if row.ranked is ranked)
    base, cluster = study.setting(ranked)
    workload = base.as_in(row.topology)
    columns = Columns.of([row.topology], workload, cluster)
    uncertainty = math.log(ranked.high / ranked.low) / (2 * INTERVAL)
    width = math.exp(INTERVAL * math.hypot(uncertainty, study.noise))
    return ProductionRun(
        name=study.name,
        workload=workload,
        cluster=cluster,
        topology=row.topology,
        expected=ExpectedPerformance(
            sec_per_iter=ranked.seconds,
            low=ranked.seconds / width,
            high=ranked.seconds * width,
            memory=row.memory,
            usable=limit(columns),
            days=float(training_seconds(ranked.seconds, columns)[0]) / DAY,
            tflops=float(per_gpu(hardware_flops(columns), ranked.seconds, columns)[0]),
            source="simulated" if study.simulated else "measured",
            extrapolated=ranked.extrapolated,
        ),
    )


def default_format(study: StudyResult, ranked: RankedTrial) -> str:
    """Return the format for the study's framework; Slurm without one, and for the user's own command."""
    framework = study.setting(ranked)[0].framework
    found = _DEFAULTS.get(framework, "slurm") if framework else "slurm"
    fits_commands = study.settings.get("trainer") is None or FORMATS[found].runs_command
    return found if fits_commands else "slurm"


_DEFAULTS: Final[Mapping[Framework, str]] = {
    "megatron-core": "megatron-core",
    "megatron-deepspeed": "megatron-deepspeed",
    "deepspeed": "slurm",
    "fsdp2": "accelerate",
    "torchtitan": "torchtitan",
}


def export_options(
    study: StudyResult,
    chosen: Format,
    *,
    command: str | None = None,
    site_profile: str | Path | None = None,
    fork: Fork | None = None,
    zero_plus_plus: Sequence[ZeroPlusPlus] = (),
) -> ExportOptions:
    """Return the options of an export: the given command or that of the study, and the site profile.

    A DeepSpeed config that the study's command names also holds for that trainer's own format.
    """
    if command is None and chosen.runs_command:
        command = study.settings.get("command")
    is_same = study.settings.get("trainer") == chosen.name == MEGATRON_DEEPSPEED.name
    fitted = _fitted(study) if chosen.runs_command or is_same else None
    return ExportOptions(
        fork=fork,
        command=command,
        workdir=str(Path.cwd()) if command is not None else "",
        site=SiteProfile() if site_profile is None else SiteProfile.read(Path(site_profile)),
        zero_plus_plus=tuple(zero_plus_plus),
        own_config=None if fitted is None else fitted.own_config,
    )


def _fitted(study: StudyResult) -> TrainerCommand | None:
    """Return the command to which a study's jobs added their topologies; None if there is none."""
    command, trainer = study.settings.get("command"), study.settings.get("trainer")
    return None if command is None or trainer is None else TrainerCommand.parse(trainer, command)


def check_program(
    study: StudyResult, run: ProductionRun, chosen: Format, *, command: str | None = None, fork: Fork | None = None
) -> None:
    """Raise `InputError` for options that a format ignores, and for a command of the study that lacks its flags."""
    if command is not None and not chosen.runs_command:
        raise InputError(
            f"--format {chosen.name} starts {chosen.title}, not --command: leave it out, or choose --format "
            f"{either(one.name for one in FORMATS.values() if one.runs_command)}."
        )
    if fork is not None and chosen.name != MEGATRON_DEEPSPEED.name:
        raise InputError(f"--fork applies only to Megatron-DeepSpeed, not to --format {chosen.name}: leave it out.")
    if command is None and chosen.runs_command and (fitted := _fitted(study)) is not None:
        job = fitted.job(run.workload, run.topology, Path("{ds_config}"))
        words = (word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in job)
        raise InputError(
            f"--trainer {fitted.kind.name} added the flags of each topology to the command of study {study.name}, and "
            "disabled evaluation and checkpoints: pass the whole command for production, starting from --command "
            f"{shlex.quote(' '.join(words))}."
        )


_PLAIN: Final = re.compile(r"[\w@%+=:,./{}-]+")
"""A word, possibly with fields in braces, that a shell reads as it stands."""


def program_notes(study: StudyResult, run: ProductionRun, chosen: Format, command: str | None) -> list[str]:
    """Return notes on what a command does not get: a format that starts another program, or values of the topology."""
    if not chosen.runs_command:
        if study.settings.get("command") is None:
            return []
        fitted = _fitted(study)
        return [
            f"These files start {chosen.title} with tuner's learning rate, schedule and optimizer settings, not with "
            "those of the study's --command; --format slurm exports the command."
            + ("" if fitted is None else command_differences(fitted, run, chosen.name))
        ]
    if command is None:
        return []
    treatments = chosen.treatments(ExportOptions(command=command))
    by_program = [axis for axis in _USUAL if treatments[axis] is BY_THE_PROGRAM[axis]]  # no file of the format sets it
    missing = axes_not_passed(command, [axis for axis in by_program if getattr(run.topology, axis) != _USUAL[axis]])
    if not missing:
        return []
    variables = listed(f"TUNER_{axis.upper()}" for axis in missing)
    return [f"--command has no field for {listed(missing)}; the program must read {variables} from its environment."]


def equal_compute_note(study: StudyResult, run: ProductionRun, ranked: RankedTrial) -> list[str]:
    """Return a note on the days of a model other than the study's, which the study compares at equal compute."""
    if run.workload.model == study.workload.model:
        return []
    return [
        f"This run trains a model other than the study's on {token_count(run.workload.training_tokens)} tokens, in "
        f"{span(run.expected.days)}; the study shows {span(ranked.days)}, the time at equal compute."
    ]


def profile_notes(chosen: Format, site: SiteProfile) -> list[str]:
    """Return a note on what Kubernetes leaves out of a site profile that starts jobs under Slurm."""
    unused = [name for name in ("modules", "before", "container", "segment") if getattr(site, name)]
    if chosen.name not in ("kubernetes", "jobset") or not unused:
        return []
    return [
        f"Pods do not use {listed(unused)} of the site profile: prepare the image instead, and set variables with "
        "environment."
    ]


_MUON: Final = "Megatron-LM's Muon needs the Python package emerging-optimizers."

_USUAL: Final[Mapping[str, object]] = {
    "micro_batch": None,
    "zero": 0,
    "sequence_parallel": False,
    "recompute": "none",
    "partition": "layers",
    "dispatcher": "alltoall",
    "moe_overlap": False,
    "offload": "none",
    "hsdp": 1,
}
"""Values of the topology that a program may be assumed to have by default; None: no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The production files of one topology, before they are written."""

    run: ProductionRun
    format: Format
    options: ExportOptions
    files: Mapping[str, str]
    """Texts by file name."""
    notes: tuple[str, ...]
    """What the model and the program do not have of the run."""

    @property
    def differences(self) -> list[Difference]:
        """Return the flags whose values are not the trainer's defaults."""
        return self.format.differences(self.run, self.options)


def prepare_export(
    study: StudyResult,
    *,
    key: str | None = None,
    format: str | None = None,  # noqa: A002
    command: str | None = None,
    site_profile: str | Path | None = None,
    fork: Fork | None = None,
    zero_plus_plus: Sequence[ZeroPlusPlus] = (),
) -> Export:
    """Return the production files of the best topology, or of the measured topology `key`, without writing them."""
    ranked = study.best if key is None else study.ranked(key)
    if ranked is None:
        raise NothingUsable(f"study {study.name} has no measured topology to export.")
    chosen = format_of(default_format(study, ranked) if format is None else format)
    options = export_options(
        study, chosen, command=command, site_profile=site_profile, fork=fork, zero_plus_plus=zero_plus_plus
    )
    run = production_run(study, ranked)
    check_program(study, run, chosen, command=command, fork=fork)
    other = other_framework_note(run, chosen, options)
    return Export(
        run=run,
        format=chosen,
        options=options,
        files=bundle(run, chosen.name, options, note=other),
        notes=(
            *model_notes(run.workload.model),
            *equal_compute_note(study, run, ranked),
            *program_notes(study, run, chosen, options.command),
            *profile_notes(chosen, options.site),
            *([_MUON] * (run.workload.optimizer == "muon")),
            *((other,) if other else ()),
        ),
    )


def write_export(
    study: StudyResult,
    folder: str | Path,
    *,
    key: str | None = None,
    format: str | None = None,  # noqa: A002
    command: str | None = None,
    site_profile: str | Path | None = None,
    fork: Fork | None = None,
    zero_plus_plus: Sequence[ZeroPlusPlus] = (),
) -> list[Path]:
    """Write the production files of the best topology, or of the measured topology `key`; return their paths.

    Every argument is the option of `tuner export` with the same name.
    """
    made = prepare_export(
        study,
        key=key,
        format=format,
        command=command,
        site_profile=site_profile,
        fork=fork,
        zero_plus_plus=zero_plus_plus,
    )
    written, _ = write_bundle(Path(folder), made.files)
    return written


def write_bundle(folder: Path, files: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """Write the files of an export; return their paths, and those of the scripts of an earlier export in the folder.

    These are removed: they would start another run than the README describes.
    """
    refuse_foreign(folder, files, mark="topology.json")
    written = write_files(folder, files)
    earlier = [path for path in sorted(folder.iterdir()) if path.name not in files and _is_exported(path)]
    try:
        for path in earlier:
            path.unlink()
    except OSError as error:
        raise InputError(
            f"an earlier export in {folder} cannot be removed: {error.strerror or error}; choose another with -o DIR."
        ) from None
    return written, earlier


def _is_exported(path: Path) -> bool:
    """Return whether a file is a launch script, manifest or recipe whose first line says that tuner exported it."""
    if path.suffix not in (".sh", ".sbatch", ".py", ".yaml"):
        return False
    with suppress(OSError), open_regular(path) as file:
        return b" GPUs, by tuner export" in file.read(1024)
    return False
