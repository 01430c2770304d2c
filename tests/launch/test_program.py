"""The programs of jobs: the environment of the shipped worker's processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.workers import ONE, WORKLOAD
from tuner.core import catalog
from tuner.launch.contract import STEPS, Job
from tuner.launch.ds_config import ds_config
from tuner.launch.program import CommandTemplate, WorkerProgram


@pytest.mark.parametrize(("own", "expected"), [("/site", f"{ROOT}{os.pathsep}/site"), ("", str(ROOT))])
def test_jobs_keep_the_users_python_path(
    own: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs keep the user's PYTHONPATH, after the path of this tuner."""
    monkeypatch.setenv("PYTHONPATH", own)
    cluster = catalog.cluster("bloom-48")
    job = Job(number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=cluster, topology=ONE)
    program = WorkerProgram(configure=lambda job: ds_config(job.workload, job.topology), accelerator="cpu")
    assert program.prepare(job).environment["PYTHONPATH"] == expected


def test_a_job_of_a_command_reports_its_steps_in_its_folder(tmp_path: Path) -> None:
    job = Job(number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=catalog.cluster("bloom-48"), topology=ONE)
    program = CommandTemplate.parse("train --mbs {micro_batch} {tp}", configure=lambda _: {}, cwd=tmp_path)
    found = program.prepare(job)
    assert found.environment["TUNER_STEPS"] == str(tmp_path / STEPS)
    assert (found.arguments, found.cwd, found.result) == (("train", "--mbs", "4", "1"), tmp_path, None)


def test_ranks_have_the_threads_that_exported_scripts_give_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU those of the environment, or one; on a CPU one, because the ranks share its cores."""
    job = Job(number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=catalog.cluster("bloom-48"), topology=ONE)
    for stated, accelerator, threads in ((None, "cuda", "1"), ("12", "cuda", "12"), ("12", "cpu", "1")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if stated:
            monkeypatch.setenv("OMP_NUM_THREADS", stated)
        program = WorkerProgram(
            configure=lambda job: ds_config(job.workload, job.topology),
            accelerator=accelerator,
        )
        assert program.prepare(job).environment["OMP_NUM_THREADS"] == threads
