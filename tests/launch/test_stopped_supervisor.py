"""A job that stops its own supervisor is ended all the same."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.launch.test_local import alive, job, launched, printed, until
from tests.stages import template
from tuner.core.outcomes import Outcome
from tuner.launch.local import launcher as local_launcher
from tuner.launch.supervisor import members


def test_a_supervisor_that_its_job_has_stopped_is_killed_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_launcher, "MAX_CANCEL_SECONDS", 0.5)
    one = job(tmp_path)
    with launched(template("deaf"), one) as (launcher, handle):
        keeper = json.loads((one.folder / "keeper.json").read_text())["keeper"]
        until(lambda: printed(one))
        mine = members(one.tag, keeper)
        os.kill(keeper, signal.SIGSTOP)
        launcher.cancel(handle)
        assert not [pid for pid in (*mine, keeper) if alive(pid)]
        assert launcher.collect(handle).outcome is not Outcome.MEASURED
