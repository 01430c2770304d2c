"""Small finished studies on the simulated cluster or a measured table, made once for all tests."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.conftest import ROOT
from tuner.launch.virtual.simulated import SpeedChange
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.result import StudyResult, open_study
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.tables import read_table

BLOOM = ROOT / "tests" / "data" / "tables" / "bloom-a100.csv"
PINNED = ("tp=4,8", "pp=6,12", "micro_batch=1,2,4", "zero=1", "vpp=1", "cp=1", "recompute=full,none", "heads=32,64")


def settings() -> dict[str, StudySettings]:
    """Return the settings of each study by name."""
    small = space_for(settings=PINNED, exact_nodes=True, framework="any")
    return {
        "bloom-48": StudySettings(space=small, limits=Limits(budget=12), seed=1, fidelity="full"),
        "reduced": StudySettings(space=small, limits=Limits(budget=12), seed=1, fidelity="auto"),
        "drifting": StudySettings(
            space=small, limits=Limits(budget=16), seed=1, sampler="grid", drift=SpeedChange(factor=1.1, after_jobs=8)
        ),
        "replayed": StudySettings(
            space=small,
            limits=Limits(budget=8),
            launcher="replay",
            table=read_table(BLOOM),
            group="bloom-02-25-h14336-L72",
        ),
    }


@cache
def _made(name: str) -> Path:
    """Return the folder of studies that contains the study; the first call creates it."""
    from dataclasses import replace

    runs = Path(mkdtemp(prefix="tuner-study-"))
    with open_loop(replace(settings()[name], study=name, runs=runs)) as loop:
        loop.run()
    return runs


def study_in(runs: Path, name: str = "bloom-48") -> Path:
    """Copy the study into a folder of studies, and return that folder."""
    shutil.copytree(_made(name) / name, runs / name)
    return runs


def opened(name: str = "bloom-48") -> StudyResult:
    """Return the result of the study, read from storage."""
    return open_study(name, runs=_made(name))
