"""`tuner doctor`: the calibration of this machine, the storage check, and the trial run of a command."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core import catalog
from tuner.core.errors import InputError
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.costmodel.stack_constants import GRACE_HOST_RATIO, LINEAR_LAUNCH_SECONDS
from tuner.launch.contract import JobResult
from tuner.logs.signatures import REMEDIES, SEE_LOGS
from tuner.study import doctor
from tuner.study.store.trial import Proposal, Trial

# --------------------------------------------------------------------------------------------------------- doctor


def test_a_machine_without_gpus_is_calibrated_by_three_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each factor is the measured speed over the cost model's assumption; without a measured link its factor is 1."""
    card = SimpleNamespace(peak_flops={"fp32": 100.0}, achievable=0.5, memory_bandwidth=40.0, intra_node_bandwidth=20.0)
    ranks: list[int] = []
    monkeypatch.setattr(doctor, "host_gpu", lambda _, count: ranks.append(count) or card)  # type: ignore[func-returns-value]
    machine: Any = SimpleNamespace(cards=0)
    speeds = {"product_flops": 25.0, "copy_bytes": 30.0, "link_bytes": 5.0}
    site = doctor._calibration(machine, {"ranks": 2}, speeds).site
    assert (site.products, site.traffic, site.inner_link) == (0.5, 0.75, 0.25)
    assert doctor._calibration(machine, {"ranks": 1}, speeds).measured_on == {("CPU", "")}
    del speeds["link_bytes"]
    assert doctor._calibration(machine, {}, speeds).site.inner_link == 1.0
    assert ranks == [2, 1, 1]


def test_a_machine_with_gpus_is_calibrated_by_its_matrix_products_and_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "catalog_name", lambda *_: "A100-80GB-SXM")
    card = catalog.gpu("A100-80GB-SXM")
    speeds = {"product_flops": 0.5 * card.peak_flops["bf16"] * card.achievable, "copy_bytes": 1.0}
    machine: Any = SimpleNamespace(cards=8)
    site = doctor._calibration(machine, {"precision": "bf16"}, speeds).site
    assert site.products == pytest.approx(0.5)
    assert (site.traffic, site.inner_link, site.host) == (1.0, 1.0, 1.0)
    speeds["launch_seconds"] = 3 * LINEAR_LAUNCH_SECONDS
    assert doctor._calibration(machine, {"precision": "bf16"}, speeds).site.host == pytest.approx(3.0)


def test_a_grace_host_is_compared_with_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "catalog_name", lambda *_: "GB200-186GB")
    speeds = {"product_flops": 1e15, "launch_seconds": 2 * GRACE_HOST_RATIO * LINEAR_LAUNCH_SECONDS}
    site = doctor._calibration(SimpleNamespace(cards=4), {"precision": "bf16"}, speeds).site  # type: ignore[arg-type]
    assert site.host == pytest.approx(2.0)


def test_the_storage_check_reads_back_a_study() -> None:
    found = doctor._storage(None)
    assert (found.name, found.verdict, found.evidence) == ("storage", "ok", "SQLite stores and loads a study")
    assert doctor._storage("sqlite:////nowhere/at/all.db").verdict == "missing"


@pytest.mark.parametrize(
    ("result", "verdict", "evidence", "remedy"),
    [
        (None, "missing", "no job could be started", SEE_LOGS),
        (
            JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=1.23456, note="n"), elapsed=7.6),
            "ok",
            "k: 1.235 s per iteration (n); the job took 7.6 s",
            "",
        ),
        (
            JobResult(outcome=Outcome.CRASHED, failure=Failure(kind="", evidence="e" * 201, meaning="a crash")),
            "missing",
            f"k CRASHED: a crash ({'e' * 200})",
            "read stderr.log and stdout.log in {folder}",
        ),
        (
            JobResult(
                outcome=Outcome.CRASHED, failure=Failure(kind="", evidence="e", meaning="a dependency is missing")
            ),
            "missing",
            "k CRASHED: a dependency is missing (e)",
            f"{REMEDIES['a dependency is missing']}; its logs are in {{folder}}",
        ),
        (
            JobResult(outcome=Outcome.UNREADABLE, failure=Failure(kind="", evidence="e" * 201, meaning="none")),
            "missing",
            f"k UNREADABLE: none ({'e' * 201})",
            "its logs are in {folder}",
        ),
        (
            JobResult(outcome=Outcome.HUNG, failure=Failure(kind="", evidence="same", meaning="same")),
            "missing",
            "k HUNG: same",
            "read stderr.log and stdout.log in {folder}",
        ),
    ],
)
def test_a_command_is_tried_with_one_job(
    result: JobResult | None,
    verdict: str,
    evidence: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command is tried with one job; its folder is kept only on failure, and long evidence is cut at 200 characters.

    The evidence of an UNREADABLE job is not cut.
    """
    runs = tmp_path / "runs"
    folder = runs / "doctor" / "jobs" / "0000-k"
    folder.mkdir(parents=True)
    trial = Trial(number=0, proposal=Proposal(key="k", params={}, topology={}), result=result)
    asked: dict[str, Any] = {}

    def settings(**given: Any) -> Any:
        asked.update(given)
        return SimpleNamespace(folder=runs / "doctor")

    loop = SimpleNamespace(run=lambda: None, state=SimpleNamespace(trials=[trial] if result else []))
    monkeypatch.setattr("tuner.study.doctor.tempfile.mkdtemp", lambda **_: str(runs))
    monkeypatch.setattr("tuner.study.doctor.study_settings", settings)
    monkeypatch.setattr("tuner.study.doctor.open_loop", lambda _settings: nullcontext(loop))
    found = doctor.try_command(command="train")
    assert asked == {"launcher": "local", "study": "doctor", "runs": runs, "budget": 1, "command": "train"}
    assert (found.name, found.verdict, found.evidence) == ("job", verdict, evidence)
    assert found.remedy == remedy.format(folder=folder)
    assert folder.exists() is (verdict == "missing")


def test_a_check_removes_the_folders_of_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept are folders in use, links, and what belongs to another user."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "target").mkdir()
    for name in ("failed", "used"):
        (tmp_path / f"tuner-doctor-{os.geteuid()}-{name}" / "doctor").mkdir(parents=True)
    (tmp_path / f"tuner-doctor-{os.geteuid()}-link").symlink_to(tmp_path / "target")
    (tmp_path / f"tuner-doctor-{os.geteuid()}-file").touch()
    (tmp_path / f"tuner-doctor-{os.geteuid() + 1}-other").mkdir()
    with ExitStack() as locks, ExitStack() as new:
        assert doctor._lock(tmp_path / f"tuner-doctor-{os.geteuid()}-used", locks, fcntl.LOCK_EX)
        folder = doctor._new_folder(new)
        assert folder.stat().st_mode & 0o777 == 0o700
        doctor._new_folder(new)
        left = {path.name.rpartition("-")[2] for path in tmp_path.iterdir() if path.name != folder.name}
    assert left >= {"target", "used", "link", "file", "other"}
    assert "failed" not in left
    assert folder.exists()
    with ExitStack() as new:
        doctor._new_folder(new)
    assert not folder.exists()


def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = os.geteuid() + 1
    monkeypatch.setattr("tuner.study.doctor.os.geteuid", lambda: other)
    (tmp_path / f"tuner-doctor-{os.geteuid()}-planted").mkdir()
    with ExitStack() as new:
        doctor._new_folder(new)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_command_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InputError, match="--set 'tp' lacks a value"):
        doctor.try_command(command="train", settings=["tp"])
    assert list(tmp_path.iterdir()) == []
