"""`tuner doctor` reports evidence and remedies; the dashboard shows a study and cleans up after itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.found_studies import opened, study_in
from tests.workers import needs_deepspeed
from tuner.costmodel.site_file import read_site
from tuner.launch import preflight as checks
from tuner.launch.dashboard_server import dashboard
from tuner.launch.preflight import frameworks
from tuner.report.dashboard import annotate, trial_note
from tuner.study.result import open_study

CHECKS = {"python", "torch", "accelerator", "slurm", "ports", "disk", "extensions", "clock", "storage"}


def test_every_finding_has_evidence_and_a_bad_one_a_remedy(run: Run) -> None:
    document = json.loads(run("doctor", "--json").out)
    assert document["schema"] == "tuner/doctor/1"
    assert {finding["name"] for finding in document["findings"]} >= CHECKS
    for finding in document["findings"]:
        assert finding["verdict"] in ("ok", "warning", "missing")
        assert finding["evidence"]
        assert finding["remedy"] or finding["verdict"] == "ok"


def test_every_finding_without_gpus_has_a_remedy_unless_ok() -> None:
    """On a machine without GPUs, every finding that is not ok has a remedy."""
    found = frameworks({"torch": "2.8", "accelerator": "cpu", "gloo": True})
    assert {finding.name: finding.verdict for finding in found}["nccl"] == "warning"
    assert all(finding.remedy for finding in found if finding.verdict != "ok")


def test_a_failed_probe_is_reported_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launch.preflight.sys.executable", "/no/such/python")
    found = checks.probe()
    assert found["error"] == "the probe failed: FileNotFoundError"
    assert frameworks(found)[0].verdict == "missing"


def test_a_full_disk_and_an_unwritable_folder_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tuner.launch.preflight.shutil.disk_usage", lambda _path: type("Usage", (), {"free": 1e9})())
    assert checks.disk(tmp_path / "runs").verdict == "warning"
    (tmp_path / "file").touch()
    for path in ("file", "file/runs"):
        found = checks.disk(tmp_path / path)
        assert (found.verdict, found.evidence) == ("missing", f"{tmp_path / 'file'} is not a folder")
    monkeypatch.setattr("tuner.launch.preflight.os.access", lambda _path, _mode: False)
    assert checks.disk(tmp_path).verdict == "missing"


@pytest.mark.slow
def test_measured_speeds_become_a_calibration_file(run: Run, tmp_path: Path) -> None:
    """`doctor --measure` writes measured speeds to a calibration file that `plan` accepts."""
    needs_deepspeed()
    site = tmp_path / "site.toml"
    document = json.loads(run("doctor", "--measure", "-o", str(site), "--json").out)
    assert document["speeds"]["product_flops"] > 1e8
    assert document["speeds"]["copy_bytes"] > 1e7
    assert read_site(site).site.products > 0
    assert run("plan", "--nodes", "8", "--calibration", str(site)).code == 0


def test_the_note_of_a_trial_has_its_reason_and_result() -> None:
    for trial in opened("bloom-48").trials:
        note = trial_note(trial)
        assert trial.proposal.key in note
        assert trial.proposal.why in note
        assert ("SIMULATED" in note) == (trial.result is not None and trial.result.simulated)


def test_notes_and_graphs_are_written_once(tmp_path: Path) -> None:
    """Annotating a study a second time does not change its database."""
    study = open_study("bloom-48", runs=study_in(tmp_path))
    annotate(study, tmp_path / "artifacts")
    first = (tmp_path / "bloom-48" / "study.db").stat().st_size
    annotate(study, tmp_path / "artifacts")
    assert (tmp_path / "bloom-48" / "study.db").stat().st_size == first
    again = open_study("bloom-48", runs=tmp_path)
    assert [place.key for place in again.ranking] == [place.key for place in study.ranking]
    assert any((tmp_path / "artifacts").iterdir())


@pytest.mark.skipif(find_spec("optuna_dashboard") is None, reason="pip install '.[dashboard]'")
def test_the_dashboard_shows_notes_files_and_graphs_and_cleans_up(tmp_path: Path) -> None:
    study = open_study("bloom-48", runs=study_in(tmp_path))
    annotate(study, tmp_path / "artifacts")
    with dashboard(study.url, tmp_path / "artifacts") as running:
        base = running.url.removesuffix("/dashboard/")
        with urllib.request.urlopen(f"{base}/api/studies") as answer:  # noqa: S310 - our own server
            (summary,) = json.load(answer)["study_summaries"]
        with urllib.request.urlopen(f"{base}/api/studies/{summary['study_id']}?after=0") as answer:  # noqa: S310 - the same
            shown = json.load(answer)
    assert study.ranking[0].key in shown["note"]["body"]
    assert f"(/dashboard/studies/{summary['study_id']}/trials?numbers=" in shown["note"]["body"]
    assert shown["objective_names"] == ["training time (days)"]
    assert len(shown["plotly_graph_objects"]) == 4
    assert all(trial["note"]["body"] for trial in shown["trials"])
    assert shown["trials"][0]["artifacts"]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(running.url)  # noqa: S310 - it is gone


@pytest.mark.slow
@pytest.mark.skipif(find_spec("optuna_dashboard") is None, reason="pip install '.[dashboard]'")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_the_dashboard_ends_with_the_tuner_and_hides_the_storage(sign: signal.Signals, tmp_path: Path) -> None:
    """The dashboard's processes end with the tuner, and their command lines hide the URL, which may hold a password."""
    runs = study_in(tmp_path)
    command = [sys.executable, "-m", "tuner", "dashboard", "bloom-48", "--runs", str(runs), "--no-browser", "--json"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, cwd=ROOT, env=buffered, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")["url"]
        assert page.endswith("/dashboard/studies/1")
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        assert children
        assert all(b"study.db" not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
        process.send_signal(sign)
        process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/exe").exists() for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_missing_dashboard_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launch.dashboard_server.find_spec", lambda _name: None)
    said = run("dashboard", "bloom-48", "--runs", str(study_in(tmp_path)))
    assert said.code == 3
    assert "pip install '.[dashboard]' in tuner's checkout" in said.err
