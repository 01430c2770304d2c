"""A tuner that dies between claiming a trial and starting its job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.studies import ENVIRONMENT, SMALL, kept, optimize, url_of
from tuner.core.outcomes import Outcome

DIES = """
import os, sys
from tuner.__main__ import main
from tuner.launch.virtual.simulated import SimulatedLauncher

left, submit = int(sys.argv.pop(1)), SimulatedLauncher.submit
def dying(self, job):
    global left
    left -= 1
    return submit(self, job) if left >= 0 else os._exit(9)
SimulatedLauncher.submit = dying
main()
"""
"""A tuner that dies instead of starting its job number N."""


@pytest.mark.parametrize("started", [0, 2])
def test_a_topology_whose_job_never_started_is_proposed_again(started: int, tmp_path: Path) -> None:
    """The study goes on as one that was not disturbed, with the same jobs in the same order."""
    same = ("--budget", "7", "--seed", "3")
    assert optimize("--study", "undisturbed", *same, folder=tmp_path).code == 0
    words = ["optimize", *SMALL, "--runs", str(tmp_path / "runs"), "--study", "killed", *same]
    dying = [sys.executable, "-c", DIES, str(started), *words]
    assert subprocess.run(dying, cwd=tmp_path, env=ENVIRONMENT, check=False).returncode == 9
    assert optimize("--study", "killed", *same, folder=tmp_path).code == 0
    undisturbed, killed = (kept(url_of(tmp_path, name), name) for name in ("undisturbed", "killed"))
    (unstarted,) = [trial for trial in killed if not trial.launched]
    assert (unstarted.number, unstarted.result and unstarted.result.outcome) == (started, Outcome.REJECTED)
    assert [trial.proposal.key for trial in killed if trial.launched] == [trial.proposal.key for trial in undisturbed]
