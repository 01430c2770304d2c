"""Acceptance test with six real DeepSpeed jobs on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.test_local import alive, until
from tests.workers import needs_deepspeed
from tuner.launch.supervisor import members

LONG = 300


@pytest.mark.slow
def test_six_real_jobs_are_searched_also_when_the_tuner_is_killed_in_the_first(tmp_path: Path) -> None:
    """A study of six real jobs with different topologies finds the fastest, even if the tuner is killed.

    The tuner is killed while the ranks of the first job run; they end, and the same command
    continues the study.
    """
    needs_deepspeed()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}
    words = [
        sys.executable,
        "-m",
        "tuner",
        "optimize",
        "--launcher",
        "local",
        "--model",
        "tiny",
        "--gpus-per-node",
        "4",
    ]
    words += ["--nodes", "1", "--budget", "6", "--json", "--runs", str(tmp_path)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tuner:
        until(lambda: any(tmp_path.glob("*/jobs/*/keeper.json")), LONG)
        kept = json.loads(next(tmp_path.glob("*/jobs/*/keeper.json")).read_text())
        until(lambda: len(members(kept["tag"])) == 5, LONG)
        mine = {*members(kept["tag"], kept["keeper"]), kept["keeper"]}
        tuner.kill()
        until(lambda: not [pid for pid in mine if alive(pid)])
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(said.stdout)
    trials = found["trials"]
    assert trials[0]["outcome"] == "CANCELLED"
    assert found["jobs_launched"] == 6
    real = trials[1:]
    assert {trial["outcome"] for trial in real} <= {"MEASURED", "PRUNED"}
    assert len({trial["key"] for trial in real}) == 5
    measured = [trial for trial in real if trial["outcome"] == "MEASURED"]
    assert found["best"]["key"] in {trial["key"] for trial in measured}
    for axis in ("tp", "pp", "dp", "zero", "micro_batch"):
        assert len({trial["topology"][axis] for trial in real}) > 1, axis
