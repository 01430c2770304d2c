"""What a measured topology promises for production.

What Python takes away from a study: the folder that goes to production.
"""

from __future__ import annotations

import math
from pathlib import Path

from tuner.core.atomic_write import write_files
from tuner.core.columns import Columns
from tuner.core.errors import NothingUsable
from tuner.costmodel.flops import hardware_flops, per_gpu, training_seconds
from tuner.costmodel.memory import limit
from tuner.export.bundle import bundle
from tuner.export.production import Expected, Production
from tuner.study.leaderboard import rows_of
from tuner.study.ranking import DAY, INTERVAL, RankedTrial
from tuner.study.result import StudyResult


def promise(study: StudyResult, place: RankedTrial) -> Production:
    """A run of the topology, with what its measurements let expect of one iteration.

    The days are those of this very model and its tokens; where heads or shape differ from the study's own, they are
    not the study's objective, which counts equal compute.
    """
    row = next(row for row in rows_of(study) if row.place is place)
    own, cluster = study.setting(place)
    workload = own.as_in(row.topology)
    columns = Columns.of([row.topology], own, cluster)
    # between the ends of what is known of the mean, and one run's noise beside it
    known = math.log(place.high / place.low) / (2 * INTERVAL)
    width = math.exp(INTERVAL * math.hypot(known, study.spread))
    return Production(
        name=study.name,
        workload=workload,
        cluster=cluster,
        topology=row.topology,
        expected=Expected(
            sec_per_iter=place.seconds,
            low=place.seconds / width,
            high=place.seconds * width,
            memory=row.memory,
            usable=limit(columns),
            days=float(training_seconds(place.seconds, columns)[0]) / DAY,
            tflops=float(per_gpu(hardware_flops(columns), place.seconds, columns)[0]),
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
    """Write the winner's `ds_config.json`, launch script and what to expect; `key` takes another measured topology."""
    place = study.place_of(key) if key else study.best
    if place is None:
        raise NothingUsable(f"study {study.name} has measured nothing to export.")
    return write_files(Path(folder), bundle(promise(study, place), format))
