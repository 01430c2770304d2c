"""Check this machine for everything that a study needs, and measure its speed (`tuner doctor`)."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core import catalog
from tuner.core.domain import HOST
from tuner.core.errors import NothingUsable, TunerError
from tuner.core.outcomes import Outcome
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.kernels import host_pace
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import LINEAR_LAUNCH_SECONDS
from tuner.launch.contract import JobResult
from tuner.launch.machine import Machine, catalog_name, host_gpu, this_machine
from tuner.launch.preflight import (
    CheckResult,
    accelerator,
    clock,
    disk,
    extensions,
    frameworks,
    ports,
    probe,
    python,
    slurm,
)
from tuner.launch.trainer_log import take_logs
from tuner.logs.signatures import REMEDIES, SEE_LOGS
from tuner.study.api import study_settings
from tuner.study.setup import open_loop
from tuner.study.store.storage import open_storage, sqlite_url
from tuner.study.store.trial_store import TrialStore

SPEEDS: Final = ("product_flops", "copy_bytes", "link_bytes", "launch_seconds")
"""What `tuner.worker.probe` measures."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """Results of the checks and measurements."""

    findings: tuple[CheckResult, ...]
    speeds: dict[str, float]
    """FLOP/s of a matrix product, bytes/s of a copy and of a link, and seconds to launch a linear layer."""
    calibration: Calibration | None
    """Site factors derived from the speeds; None without measurements."""


def examine(runs: Path, *, storage: str | None = None, measure: bool = False) -> Examined:
    """Run all checks and, with `measure`, the benchmarks."""
    machine = this_machine()
    probed = probe(measure=measure)
    findings = [
        python(),
        *frameworks(probed),
        accelerator(machine),
        slurm(),
        ports(),
        disk(runs),
        extensions(),
        clock(),
        _storage(storage),
    ]
    speeds = {name: float(probed[name]) for name in SPEEDS if probed.get(name)}
    if measure and "product_flops" not in speeds:
        raise NothingUsable(
            f"nothing could be timed: {probed.get('error') or 'torch is missing'}; pip install '.[jobs]' in tuner's "
            "checkout."
        )
    return Examined(
        findings=tuple(findings),
        speeds=speeds,
        calibration=_calibration(machine, probed, speeds) if measure else None,
    )


def try_command(*, launcher: str = "local", **given: Any) -> CheckResult:
    """Run one job of two iterations with the topology that is predicted to be fastest; return whether it is measured.

    The arguments are those of `study_settings`. The files of a job that fails are named, and kept until the next check.
    """
    with ExitStack() as locks, ExitStack() as files:
        runs = _new_folder(locks)
        files.callback(shutil.rmtree, runs, ignore_errors=True)
        settings = study_settings(launcher=launcher, study="doctor", runs=runs, budget=1, **given)
        try:
            with open_loop(settings) as loop:
                loop.run()
                trial = loop.state.trials[0] if loop.state.trials else None
        finally:
            take_logs(settings.folder)
        result = trial.result if trial is not None else None
        if result is None or result.outcome is not Outcome.MEASURED:
            files.pop_all()
    if trial is None or result is None:
        return CheckResult("job", "missing", "no job could be started", SEE_LOGS)
    if result.outcome is not Outcome.MEASURED:
        return _failed(trial.proposal.key, result, trial.job_folder(settings.folder))
    note = f" ({result.note})" if result.note else ""
    took = f"{trial.proposal.key}: {result.seconds:.4g} s per iteration{note}; the job took {result.elapsed:.1f} s"
    return CheckResult("job", "ok", took)


def _new_folder(locks: ExitStack) -> Path:
    """Create a private folder, locked until `locks` is closed, and remove those of this user's earlier checks."""
    prefix = f"tuner-doctor-{os.geteuid()}-"
    for earlier in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with ExitStack() as lock:
            if _lock(earlier, lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(earlier, ignore_errors=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        _lock(folder, locks, fcntl.LOCK_EX)
        if folder.is_dir():  # no other check has removed it before it was locked
            return folder


def _lock(folder: Path, locks: ExitStack, operation: int) -> bool:
    """Lock a folder until `locks` is closed; return whether it is locked and belongs to this user."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        locks.callback(os.close, handle)
        fcntl.flock(handle, operation)
    except OSError:
        return False
    return os.fstat(handle).st_uid == os.geteuid()


def _failed(key: str, result: JobResult, folder: Path) -> CheckResult:
    """Return the check of a job that was not measured, whose logs are in a folder."""
    # What tuner says itself of an unreadable log ends with the remedy.
    unreadable = result.outcome is Outcome.UNREADABLE
    evidence = result.evidence if unreadable else result.evidence[:200]
    said = f"{result.reason} ({evidence})" if result.evidence != result.reason else result.reason
    remedy = REMEDIES.get(result.reason)
    logs = f"its logs are in {folder}" if remedy or unreadable else f"read stderr.log and stdout.log in {folder}"
    return CheckResult(
        "job", "missing", f"{key} {result.outcome.value}: {said}", f"{remedy}; {logs}" if remedy else logs
    )


def _calibration(machine: Machine, probed: dict[str, Any], speeds: dict[str, float]) -> Calibration:
    """Return the factors by which this machine's speed differs from the cost model's assumptions.

    On GPUs only the matrix product and the host's launches count: the fractions of the data sheet that a copy and a
    ring reach are constants of the model. Machines without GPUs have no data sheet, so that their copy and link count.
    """
    if machine.cards:
        card = catalog.gpu(catalog_name(machine))
        best = card.peak_flops[str(probed["precision"])] * card.achievable
        usual = LINEAR_LAUNCH_SECONDS * host_pace(card, SiteFactors())
        host = speeds.get("launch_seconds", usual) / usual
        site = SiteFactors(products=speeds["product_flops"] / best, host=host)
        return Calibration(site=site, measured_on=frozenset({(card.name, "")}))
    ranks = int(probed.get("ranks") or 1)
    card = host_gpu(machine, ranks)
    return Calibration(
        site=SiteFactors(
            products=speeds["product_flops"] / (card.peak_flops["fp32"] * card.achievable),
            traffic=speeds["copy_bytes"] / card.memory_bandwidth,
            inner_link=speeds.get("link_bytes", card.intra_node_bandwidth) / card.intra_node_bandwidth,
        ),
        measured_on=frozenset({(HOST, "")}),
    )


def _storage(url: str | None) -> CheckResult:
    """Check the storage: open the given one, or else create and read a study in a temporary SQLite file."""
    try:
        if url is not None:
            open_storage(url, create=True).close()
            return CheckResult("storage", "ok", "the database answers")
        with tempfile.TemporaryDirectory() as folder:
            study = TrialStore.open(sqlite_url(Path(folder) / "study.db"), "doctor", {"launcher": "none"})
            read_back = study.settings["launcher"] == "none"
            study.close()
    except TunerError as error:
        return CheckResult("storage", "missing", str(error), "see --storage of tuner optimize")
    return CheckResult("storage", "ok" if read_back else "missing", "SQLite stores and loads a study")
