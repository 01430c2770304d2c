"""`tuner doctor`: all that a study needs of this machine, and how fast it is."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core import catalog
from tuner.core.errors import NothingUsable, TunerError
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.site_factors import SiteFactors
from tuner.launch.machine import Machine, catalog_name, host_gpu, this_machine
from tuner.launch.preflight import CheckResult, accelerator, clock, disk, frameworks, ports, probe, python, slurm
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial_store import TrialStore


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found, and what was measured."""

    findings: tuple[CheckResult, ...]
    speeds: dict[str, float]
    """FLOP/s of a product, bytes a second of a copy and of a link."""
    calibration: Calibration | None
    """What the speeds say of the model's factors."""


def examine(runs: Path, *, storage: str | None = None, measure: bool = False) -> Examined:
    """Look at everything; where asked, time it too."""
    machine = this_machine()
    found = probe(measure=measure)
    findings = [
        python(),
        *frameworks(found),
        accelerator(machine),
        slurm(),
        ports(),
        disk(runs),
        clock(),
        _storage(storage),
    ]
    speeds = {name: float(found[name]) for name in ("product_flops", "copy_bytes", "link_bytes") if found.get(name)}
    if measure and "product_flops" not in speeds:
        raise NothingUsable(
            f"nothing could be timed: {found.get('error') or 'torch is missing'}; pip install 'tuner[jobs]'."
        )
    return Examined(
        findings=tuple(findings),
        speeds=speeds,
        calibration=_calibration(machine, found, speeds) if measure else None,
    )


def _calibration(machine: Machine, found: dict[str, Any], speeds: dict[str, float]) -> Calibration:
    """Factors by which this machine departs from what the model takes it for.

    On GPUs that is the product alone: what a copy and a ring reach of their data sheets is part of the model's own
    constants. A machine without GPUs has no data sheet, and all three are taken as they were timed.
    """
    if machine.cards:
        card = catalog.gpu(catalog_name(machine, tuple(catalog.catalog().gpu)))
        best = card.peak_flops[str(found["precision"])] * card.achievable
        return Calibration(site=SiteFactors(products=speeds["product_flops"] / best))
    ranks = int(found.get("ranks") or 1)
    card = host_gpu(machine, ranks)
    return Calibration(
        site=SiteFactors(
            products=speeds["product_flops"] / (card.peak_flops["fp32"] * card.achievable),
            traffic=speeds["copy_bytes"] / card.memory_bandwidth,
            inner_link=speeds.get("link_bytes", card.intra_node_bandwidth) / card.intra_node_bandwidth,
        )
    )


def _storage(url: str | None) -> CheckResult:
    """A study made, read and left in a storage of its own, or the one that is named, read."""
    try:
        if url is not None:
            from tuner.study.store.storage import open_storage

            open_storage(url).database.remove_session()
            return CheckResult(name="storage", verdict="ok", evidence="the database answers")
        with tempfile.TemporaryDirectory() as folder:
            study = TrialStore.open(sqlite_url(Path(folder) / "study.db"), "doctor", {"launcher": "none"})
            kept = study.settings["launcher"] == "none"
            study.close()
    except TunerError as error:
        return CheckResult(
            name="storage", verdict="missing", evidence=str(error), remedy="see --storage of tuner optimize"
        )
    return CheckResult(
        name="storage", verdict="ok" if kept else "missing", evidence="SQLite keeps and gives back a study"
    )
