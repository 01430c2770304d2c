"""The machine's clock may be set while a local job runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.launch.test_local import job, launched, until
from tests.stages import template


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_setting_the_clock_neither_hangs_nor_ages_a_job(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launched(template("hang"), job(tmp_path)) as (launcher, handle):
        until(lambda: launcher.poll([handle])[handle].seconds_in > 0)
        before, clock = launcher.now(), time.time
        monkeypatch.setattr(time, "time", lambda: clock() + jump)
        status = launcher.poll([handle])[handle]
        assert 0 < status.seconds_in < 60
        assert 0 <= launcher.now() - before < 60
