"""Export a measured topology of a study as a production folder."""

from __future__ import annotations

import math
from pathlib import Path

from tuner.core.atomic_write import write_files
from tuner.core.columns import Columns
from tuner.core.errors import NothingUsable
from tuner.costmodel.flops import hardware_flops, per_gpu, training_seconds
from tuner.costmodel.memory import limit
from tuner.export.bundle import bundle
from tuner.export.production import ExpectedPerformance, ProductionRun
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


def write_export(
    study: StudyResult,
    folder: str | Path,
    *,
    key: str | None = None,
    format: str = "slurm",  # noqa: A002
) -> list[Path]:
    """Write the production files of the best topology, or of the measured topology `key`; return their paths."""
    ranked = study.ranked(key) if key else study.best
    if ranked is None:
        raise NothingUsable(f"study {study.name} has no measured topology to export.")
    return write_files(Path(folder), bundle(production_run(study, ranked), format))
