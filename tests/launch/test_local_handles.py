"""Handles and progress of local jobs, without processes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.stages import template
from tuner.launch.local.launcher import LocalLauncher, _LocalJob
from tuner.launch.log_tail import JobTail, LogProgress


@pytest.mark.parametrize(("finished", "began", "seconds_in"), [(940.0, 900.0, 60.0), (None, 900.0, 100.0)])
def test_an_iteration_starts_where_the_previous_one_ended(
    finished: float | None, began: float, seconds_in: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = LocalLauncher(template("good"), ranks=1)
    monkeypatch.setattr(launcher, "now", lambda: 1000.0)
    one = _LocalJob(tmp_path, "t", 1, 3, JobTail(tmp_path, None), supervisor=1, began=began)
    monkeypatch.setattr(_LocalJob, "running", True)
    monkeypatch.setattr(JobTail, "progress", LogProgress(finished=finished, iterations=1 if finished else 0))
    launcher._jobs["it"] = one
    status = launcher.poll(["it"])["it"]
    assert (status.seconds_in, status.began, status.moved) == (seconds_in, began, began)


@pytest.mark.parametrize(
    ("changes", "known"), [({}, True), ({"tag": "other"}, False), ({"host": "elsewhere"}, False), (None, False)]
)
def test_a_handle_names_a_job_of_this_machine_by_its_tag(
    changes: dict[str, str] | None, known: bool, tmp_path: Path
) -> None:
    note = {"tag": "mine", "host": socket.gethostname(), "nodes": 1, "last": 3, "keeper": 2**22}
    if changes is not None:
        (tmp_path / "keeper.json").write_text(json.dumps(note | changes))
    found = LocalLauncher(template("good"), ranks=1)._find(json.dumps({"folder": str(tmp_path), "tag": "mine"}))
    assert (found is not None) is known
    if found is not None:
        assert (found.tag, found.nodes, found.last_iteration, found.supervisor) == ("mine", 1, 3, 2**22)
