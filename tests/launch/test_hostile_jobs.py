"""Jobs that tamper with their own files do not end the search, and unreadable files are reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import hostile
from tests.conftest import Run
from tests.launch.test_local import ended, job, launched
from tuner.core.outcomes import Outcome
from tuner.launch.program import CommandTemplate

JOB = ("--launcher", "local", "--gpus-per-node", "1", "--model", "tiny", "--set", "tp=1", "--budget", "2", "--json")


@pytest.mark.parametrize(
    ("tampering", "outcome", "reason"),
    [
        ("pipe", "UNREADABLE", "it printed nothing"),
        pytest.param("device", "UNREADABLE", "it printed nothing", marks=pytest.mark.slow),
        ("report_pipe", "MEASURED", ""),
        ("report", "MEASURED", ""),
        ("gone", "CRASHED", "its folder is gone"),
        pytest.param("long_line", "MEASURED", "", marks=pytest.mark.slow),
        ("backwards", "MEASURED", ""),
    ],
)
def test_a_job_that_tampers_with_its_files_does_not_end_the_search(
    tampering: str, outcome: str, reason: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    command = f"{sys.executable} {hostile.__file__} {tampering} {{folder}}"
    said = run("optimize", *JOB, "--command", command, "--study", "tampered", "--runs", str(tmp_path))
    trials = json.loads(said.out)["trials"]
    assert [trial["outcome"] for trial in trials] == [outcome] * 2
    assert all(reason in f"{trial['ended']}: {trial['evidence']}" for trial in trials)
    assert run("report", "tampered", "--runs", str(tmp_path)).code == 0


def test_a_trainer_in_the_background_ends_with_its_first_process_and_is_named(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("nohup sleep 300 >train.log 2>&1 &\necho started\n")
    program = CommandTemplate(words=("bash", str(script)), cwd=tmp_path)
    with launched(program, job(tmp_path)) as (launcher, handle):
        result = ended(launcher, handle)
    assert result.outcome is Outcome.UNREADABLE
    assert "s, which ended the others: run the trainer in the foreground" in result.evidence
