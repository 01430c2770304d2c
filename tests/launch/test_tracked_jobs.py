"""Slurm jobs that are unknown, on suspect nodes, or of another study."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.launch.test_slurm_arithmetic import Answering
from tests.launch.test_tracker_arithmetic import Clock, job, launcher, tracker
from tuner.core.errors import LaunchError


def test_an_unknown_job_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="a job that has not ended has no result"):
        tracker(Clock(), Answering(), tmp_path).result("no handle")


def test_only_suspect_nodes_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    made, examined = launcher(Clock(), Answering(squeue="")), list[Any]()
    suspect, sound = (SimpleNamespace(state=SimpleNamespace(suspect_nodes=nodes)) for nodes in ("n1", ""))
    monkeypatch.setattr(made._tracker, "jobs", {"a": suspect, "b": sound})
    monkeypatch.setattr(made._tracker, "open_jobs", list)
    monkeypatch.setattr(made, "_examine_nodes", examined.append)
    made._read_queue(1000.0)
    assert examined == [suspect]


@pytest.mark.parametrize("step", [True, False])
def test_a_step_of_another_study_is_cancelled(step: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that an earlier tuner started as a step of an allocation is cancelled when it is adopted."""
    made, cancelled, one = launcher(Clock(), Answering(squeue="")), list[Any](), job(tmp_path)
    (tmp_path / "slurm.json").write_text(json.dumps({"tag": one.tag, "job": "7", "step": step}))
    monkeypatch.setattr(made._tracker, "cancel_steps", cancelled.append)
    handle = made.adopt(one, None)
    assert handle is not None
    tracked = made._tracker.jobs[handle]
    assert cancelled == [tracked] * step
    assert tracked.state.cancel_reason == ("cancelled" if step else "")
