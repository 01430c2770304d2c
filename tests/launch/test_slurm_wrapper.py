"""A site that wraps Slurm's commands, on the live cluster."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests import slurm_cluster
from tests.slurm_stage import OnSlurm
from tuner.core.errors import LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobState

pytestmark = pytest.mark.cluster


def test_a_site_that_wraps_sbatch_leaves_no_orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is measured and leaves no orphan even if sbatch's wrapper prints extra lines and exits with an error."""
    cluster = slurm_cluster.running()
    cluster.clear()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "Welcome to 2026"\n{shutil.which("sbatch")} "$@"\necho 12345\nexit 3\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    stage = OnSlurm(tmp_path)
    launcher = stage.open()
    handle = launcher.submit(stage.job("good"))
    deadline = time.monotonic() + 60
    while launcher.poll([handle])[handle].state is not JobState.ENDED:
        assert time.monotonic() < deadline
        launcher.wait(1.0)
    assert launcher.collect(handle).outcome is Outcome.MEASURED
    assert not cluster.until_empty(10)  # an ended job may still be completing


def test_a_job_that_cannot_be_cancelled_stays_open_and_is_cancelled_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If scancel fails, the error is raised and the job stays RUNNING; a later cancel succeeds."""
    cluster = slurm_cluster.running()
    cluster.clear()
    wrapper = tmp_path / "bin" / "scancel"
    wrapper.parent.mkdir()
    wrapper.write_text('#!/bin/sh\necho "scancel: error: Access/permission denied" >&2\nexit 1\n')
    wrapper.chmod(0o755)
    stage = OnSlurm(tmp_path)
    launcher = stage.open()
    handle = launcher.submit(stage.job("hang"))
    deadline = time.monotonic() + 60
    while launcher.poll([handle])[handle].state is not JobState.RUNNING:
        assert time.monotonic() < deadline
        launcher.wait(1.0)
    monkeypatch.setattr("tuner.launch.slurm.launcher.MAX_CANCEL_SECONDS", 2.0)
    with monkeypatch.context() as site:
        site.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        with pytest.raises(LaunchError, match=r"job \d+ cannot be cancelled: .* still RUNNING .*permission denied"):
            launcher.cancel(handle)
        assert len(cluster.queue()) == 1
    assert launcher.poll([handle])[handle].state is JobState.RUNNING
    monkeypatch.setattr("tuner.launch.slurm.launcher.MAX_CANCEL_SECONDS", 60.0)
    launcher.cancel(handle)
    assert launcher.collect(handle).outcome is Outcome.CANCELLED
