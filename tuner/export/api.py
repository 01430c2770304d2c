"""Export a measured topology of a study as a production folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import write_files
from tuner.core.columns import Columns
from tuner.core.domain import Framework
from tuner.core.errors import InputError, NothingUsable
from tuner.costmodel.flops import hardware_flops, per_gpu, training_seconds
from tuner.costmodel.memory import limit
from tuner.export.bundle import FORMATS, bundle
from tuner.export.formats import ExportOptions, Fork, Format, ZeroPlusPlus, find
from tuner.export.production import ExpectedPerformance, ProductionRun
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.study.leaderboard import rows_of
from tuner.study.ranking import DAY, INTERVAL, RankedTrial
from tuner.study.result import StudyResult


def production_run(study: StudyResult, ranked: RankedTrial) -> ProductionRun:
    """Return a run of a measured topology with its expected performance.

    The interval of one iteration combines the uncertainty of the mean with the noise of a single run. The days are
    those of the exported model and its tokens, whereas the study's objective compares models at equal compute.
    """
    row = next(row for row in rows_of(study) if row.ranked is ranked)
    base, cluster = study.setting(ranked)
    workload = base.as_in(row.topology)
    columns = Columns.of([row.topology], base, cluster)
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
        ),
    )


def default_format(study: StudyResult, ranked: RankedTrial) -> str:
    """Return the format for the study's framework; for studies without a framework, Slurm."""
    framework = study.setting(ranked)[0].framework
    return _DEFAULTS.get(framework, "slurm") if framework else "slurm"


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
    """Return the options of an export: the given command or that of the study, and the site profile."""
    if command is not None and not chosen.runs_command:
        raise InputError(f"--format {chosen.name} runs {chosen.title}'s own trainer; leave --command out.")
    if command is None and chosen.runs_command:
        command = _command_of(study)
    return ExportOptions(
        fork=fork,
        command=command,
        workdir=str(Path.cwd()) if command is not None else "",
        site=SiteProfile() if site_profile is None else SiteProfile.read(Path(site_profile)),
        zero_plus_plus=tuple(zero_plus_plus),
    )


def _command_of(study: StudyResult) -> str | None:
    """Return the command of a study; raise if only the flags of its `--trainer` set the topology."""
    if trainer := study.settings.get("trainer"):
        raise InputError(
            f"--trainer {trainer} added the topology to the study's command, which an export does not; give --command "
            "with a field for each of its settings, such as --micro-batch {micro_batch}."
        )
    command: str | None = study.settings.get("command")
    return command


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
    ranked = study.ranked(key) if key else study.best
    if ranked is None:
        raise NothingUsable(f"study {study.name} has no measured topology to export.")
    chosen = find(format or default_format(study, ranked), FORMATS)
    options = export_options(
        study, chosen, command=command, site_profile=site_profile, fork=fork, zero_plus_plus=zero_plus_plus
    )
    files = bundle(production_run(study, ranked), chosen.name, options)
    return write_files(Path(folder), files)
