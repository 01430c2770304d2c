"""The Slurm launcher on a live cluster of four nodes, including its failures; `make test-cluster` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import slurm_cluster
from tests.conftest import ROOT
from tests.slurm_cluster import SlurmCluster
from tests.slurm_stage import ONCE, Acting, OnSlurm
from tuner.core.atomic_write import read_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobResult, JobState, JobStatus, Launcher
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.site_profile import SiteProfile

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    """The live cluster; a test fails if it leaves a job in the queue."""
    live = slurm_cluster.running()
    live.clear()
    yield live
    left = live.until_empty(10)  # an ended job may still be completing
    live.clear()
    assert left == []


@pytest.fixture
def stage(cluster: SlurmCluster, tmp_path: Path) -> OnSlurm:
    assert cluster
    return OnSlurm(tmp_path)


def until(launcher: Launcher, handle: str, right: Callable[[JobStatus], bool], seconds: float = 60.0) -> JobStatus:
    """Poll a job until a status satisfies a condition, and return that status."""
    deadline = time.monotonic() + seconds
    while True:
        status = launcher.poll([handle])[handle]
        if right(status):
            return status
        assert time.monotonic() < deadline, status
        launcher.wait(1.0)


def is_in(*states: JobState) -> Callable[[JobStatus], bool]:
    return lambda status: status.state in states


def ended(launcher: Launcher, handle: str, seconds: float = 60.0) -> JobResult:
    until(launcher, handle, is_in(JobState.ENDED), seconds)
    return launcher.collect(handle)


def evidence(result: JobResult) -> str:
    assert result.failure is not None
    return f"{result.failure.kind}: {result.failure.evidence}"


def number(handle: str) -> str:
    return str(json.loads(handle)["job"])


# -- a whole study of real jobs


STUDY = ("--nodes", "2", "--gpus-per-node", "1", "--exact-nodes", "--set", "zero=0,1", "--set", "micro_batch=4")


def tuner(folder: Path, *more: str, budget: int = 2) -> list[str]:
    site = folder / "site.toml"
    site.write_text('gres = ""\nsrun = ["--cpu-bind=none"]\n')
    words = ["optimize", "--launcher", "slurm", *STUDY, "--budget", str(budget), "--slurm-site", str(site)]
    return [sys.executable, "-m", "tuner", *words, "--runs", str(folder / "runs"), "--json", *more]


def environment(cluster: SlurmCluster) -> dict[str, str]:
    return {**cluster.environment, "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}


def test_a_study_of_real_deepspeed_jobs_across_two_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    done = subprocess.run(tuner(tmp_path), env=environment(cluster), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["launcher"], document["simulated"], document["jobs_launched"]) == ("slurm", False, 2)
    outcomes = [trial["outcome"] for trial in document["trials"]]
    assert outcomes[0] == "MEASURED", document["trials"]
    assert set(outcomes) <= {"MEASURED", "PRUNED"}
    assert document["best"]["sec_per_iter"] > 0
    folders = sorted((tmp_path / "runs").glob("*/jobs/*"))
    began = [read_object(folder / "began.json") for folder in folders]
    assert all("-" in each["nodes"] or "," in each["nodes"] for each in began), "two nodes each"
    assert read_object(folders[0] / "result.json")["ranks"] == 2


def test_a_killed_and_restarted_tuner_adopts_its_jobs(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A restarted tuner adopts the jobs of the killed one, and loses or duplicates none."""
    first = subprocess.Popen(
        tuner(tmp_path), env=environment(cluster), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "runs").glob("*/jobs/*/began.json")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        first.kill()
        first.wait()
    assert len(cluster.queue()) == 1, "the job goes on by itself"
    again = subprocess.run(tuner(tmp_path), env=environment(cluster), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "adopted: from a tuner that exited" in again.stderr
    document = json.loads(again.stdout)
    assert document["jobs_launched"] == 2
    assert [trial["number"] for trial in document["trials"]] == [0, 1]
    assert document["trials"][0]["outcome"] == "MEASURED"
    names = [read_object(path)["job"] for path in sorted((tmp_path / "runs").glob("*/jobs/*/slurm.json"))]
    assert len(set(names)) == 2
    every = cluster.said("squeue", "--states=all", "-h", "-o", "%i %j").splitlines()
    own = [line for line in every if line.split()[0] in names]
    assert len({line.split()[1] for line in own}) == len(own) == 2


# -- what goes wrong


def test_a_job_cancelled_by_somebody_else_is_cancelled_from_outside(stage: OnSlurm, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    runs, waits = launcher.submit(stage.job("hang")), ""
    until(launcher, runs, is_in(JobState.RUNNING))
    cluster.said("scancel", number(runs))
    result = ended(launcher, runs)
    assert result.outcome is Outcome.CANCELLED
    assert "from outside" in evidence(result)
    cluster.said("scontrol", "update", "PartitionName=debug", "State=DOWN")
    try:
        waits = launcher.submit(stage.job())
        cluster.said("scancel", number(waits))
        assert ended(launcher, waits).outcome is Outcome.CANCELLED
    finally:
        cluster.said("scontrol", "update", "PartitionName=debug", "State=UP")


def test_a_held_job_waits_and_says_how_to_release_it(stage: OnSlurm, cluster: SlurmCluster) -> None:
    stage.site = replace(ONCE, lines=("--hold",))
    launcher = stage.open()
    handle = launcher.submit(stage.job())
    status = until(launcher, handle, lambda status: "scontrol release" in status.reason)
    assert (status.state, status.began) == (JobState.WAITING, None)
    cluster.said("scontrol", "release", number(handle))
    assert ended(launcher, handle).outcome is Outcome.MEASURED


def test_a_suspended_job_makes_no_progress_and_does_not_time_out(stage: OnSlurm, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    handle = launcher.submit(stage.job(iterations=(20,)))
    until(launcher, handle, lambda status: status.iterations > 0)
    cluster.said("scontrol", "suspend", number(handle))
    until(launcher, handle, lambda status: status.reason == "suspended")
    time.sleep(2)
    cluster.said("scontrol", "resume", number(handle))
    status = until(launcher, handle, is_in(JobState.RUNNING))
    assert launcher.now() - (status.moved or 0.0) < 2
    assert ended(launcher, handle).outcome is Outcome.MEASURED


@pytest.mark.parametrize("site", [replace(ONCE, partition="closed"), replace(ONCE, lines=("--dependency=afterok:1",))])
def test_a_job_that_would_wait_forever_is_ended_with_the_reason(
    site: SiteProfile, stage: OnSlurm, cluster: SlurmCluster
) -> None:
    """A job that could never start (wrong account, failed dependency) is cancelled with the reason.

    The next such job is refused before it is submitted.
    """
    stage.site = replace(site, account="chemistry")
    if site.lines:
        failed = cluster.said("sbatch", "--parsable", "--output=/dev/null", "--wrap", "exit 1").strip()
        stage.site = replace(ONCE, lines=(f"--dependency=afterok:{failed}",))
    launcher = stage.open()
    job = stage.job()
    handle = launcher.submit(job)
    result = ended(launcher, handle)
    assert result.outcome is Outcome.CANCELLED
    assert ("set account" if not site.lines else "dependency") in evidence(result)
    assert launcher.collect(handle) == stage.open().collect(handle)
    with pytest.raises(LaunchError, match="would never start"):
        launcher.submit(stage.job())


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (SiteProfile(tasks="once", gres="", qos="x", reservation="none"), "set another reservation"),
        (SiteProfile(tasks="once", gres="", constraint="fast"), "set another constraint"),
        (SiteProfile(tasks="once", gres="", time="soon"), "set another time"),
        (SiteProfile(tasks="once", gres="gpu:8"), "set gres"),
        (SiteProfile(tasks="once", gres="", exclude=("n9",)), "set another exclude"),
    ],
)
def test_a_refused_submission_has_the_reason_and_leaves_nothing(site: SiteProfile, why: str, stage: OnSlurm) -> None:
    stage.site = site
    with pytest.raises(LaunchError, match=why):
        stage.open().submit(stage.job())
    assert list(stage.folder.iterdir()) == []


def test_a_job_larger_than_any_partition_is_refused_before_submission(cluster: SlurmCluster) -> None:
    assert cluster
    with pytest.raises(InputError, match=r"debug has 4.*at most 4"):
        SlurmLauncher(Acting(), nodes=9).check()
    with pytest.raises(InputError, match="no partition nope"):
        SlurmLauncher(Acting(), nodes=1, site=SiteProfile(partition="nope")).check()
    SlurmLauncher(Acting(), nodes=4, site=SiteProfile(partition="debug")).check()


def test_a_folder_that_a_node_cannot_write_is_named(stage: OnSlurm) -> None:
    """A job whose folder is missing when it starts is CRASHED, and the evidence names the node and --runs."""
    stage.site = replace(ONCE, lines=("--begin=now+2",))
    launcher = stage.open()
    job = stage.job()
    handle = launcher.submit(job)
    job.folder.rename(job.folder.with_name("moved"))
    job.folder.write_text("in the way")
    result = ended(launcher, handle)
    assert result.outcome is Outcome.CRASHED
    assert "on n" in evidence(result)
    assert "--runs" in evidence(result)


def test_a_job_at_its_time_limit_is_timed_out(stage: OnSlurm) -> None:
    stage.site = replace(ONCE, time="1")
    launcher = stage.open()
    handle = launcher.submit(stage.job("hang"))
    result = ended(launcher, handle, 150)
    assert result.outcome is Outcome.TIMED_OUT
    assert "TIMEOUT" in evidence(result)
    assert 55 <= result.elapsed <= 120
    assert stage.open().collect(handle) == result


def test_a_preempted_job_restarts_and_is_measured_once(stage: OnSlurm, cluster: SlurmCluster) -> None:
    """A preempted job is not ended: Slurm requeues it, and it is measured once."""
    launcher, job = stage.open(), stage.job(iterations=(40,))
    handle = launcher.submit(job)
    until(launcher, handle, lambda status: status.iterations > 0)
    log = job.folder / "of the trainer.txt"
    (job.folder / "trainer.log").symlink_to(log)
    for path in (log, job.folder / "steps.log"):
        path.write_text("the first run's\n")
    other = cluster.said(
        "sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "--output=/dev/null", "--wrap", "sleep 60"
    )
    status = until(launcher, handle, is_in(JobState.WAITING))
    assert (status.began, status.iterations) == (None, status.iterations)
    cluster.said("scancel", other.strip())
    # Shorten Slurm's delay of two minutes, but not to zero: slurmd refuses a job that is restarted within the second in
    # which it was killed ("Job credential revoked").
    cluster.said("scontrol", "update", f"JobId={number(handle)}", "StartTime=now+2")
    again = until(launcher, handle, is_in(JobState.RUNNING), 150)
    assert again.began is not None
    result = ended(launcher, handle, 60)
    assert result.outcome is Outcome.MEASURED
    assert result.retried == "Slurm requeued it"
    assert all((job.folder / f"{name}.before-1").is_file() for name in ("stdout.log", "steps.log", log.name))
    assert read_object(job.folder / "ended.json")["restart"] == 1


@pytest.fixture
def mended(cluster: SlurmCluster) -> Iterator[list[str]]:
    """A list of killed nodes, which are started again after the test."""
    killed: list[str] = []
    yield killed
    for name in killed:
        cluster.start_node(name)
    cluster.clear()
    deadline = time.monotonic() + 60
    while set(cluster.said("sinfo", "-h", "-N", "-o", "%T").split()) != {"idle"}:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_that_fails_under_a_job_is_excluded(
    requeue: bool, stage: OnSlurm, cluster: SlurmCluster, mended: list[str], tmp_path: Path
) -> None:
    """A failed node is excluded from later jobs, whether its job is requeued (dead node) or ends (dead slurmd)."""
    stage.site = replace(ONCE, requeue=requeue)
    launcher = SlurmLauncher(Acting(), nodes=4, site=stage.site, notes=tmp_path)
    handle = launcher.submit(stage.job("hang"))
    until(launcher, handle, is_in(JobState.RUNNING))
    node = cluster.said("squeue", "-h", "-j", number(handle), "-o", "%N").strip()
    mended.append(node)
    cluster.kill_node(node, whole=requeue)
    if requeue:
        assert f"after {node} failed" in until(launcher, handle, is_in(JobState.WAITING), 120).reason
        launcher.cancel(handle)
    else:
        result = ended(launcher, handle, 120)
        assert result.outcome is Outcome.CRASHED
        assert "NODE_FAIL" in evidence(result)
        assert node in evidence(result)
    assert list(launcher.excluded) == [node]
    later = SlurmLauncher(Acting(), nodes=4, site=stage.site, notes=tmp_path)
    assert list(later.excluded) == [node]
    job = stage.job()
    assert ended(later, later.submit(job)).outcome is Outcome.MEASURED
    assert f"--exclude={node}\n" in (job.folder / "job.sh").read_text()


def test_a_restarted_controller_loses_and_fails_no_job(stage: OnSlurm, cluster: SlurmCluster) -> None:
    """During an outage of the controller a running job is UNKNOWN; one whose script reported its end is ENDED."""
    launcher = stage.open()
    quick, slow = launcher.submit(stage.job(iterations=(10,))), launcher.submit(stage.job("hang"))
    until(launcher, slow, is_in(JobState.RUNNING))
    until(launcher, quick, is_in(JobState.RUNNING))
    cluster.stop_controller()
    try:
        until(launcher, slow, is_in(JobState.UNKNOWN), 60)
        assert ended(launcher, quick).outcome is Outcome.MEASURED
    finally:
        cluster.start_controller()
    until(launcher, slow, is_in(JobState.RUNNING), 60)
    launcher.cancel(slow)
    assert launcher.collect(slow).outcome is Outcome.CANCELLED
    cluster.until_empty(90)  # the node repeats its report of the quick job's end until the controller receives it


def test_a_job_is_submitted_once_despite_an_outage(stage: OnSlurm, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    cluster.stop_controller()
    waker = subprocess.Popen(["/bin/sleep", "3"])
    started: list[bool] = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if waker.poll() is not None and not started:
            started.append(True)
            cluster.start_controller()

    launcher._tracker.sleep = sleep
    job = stage.job()
    try:
        handle = launcher.submit(job)
    finally:
        if not started:
            cluster.start_controller()
    assert ended(launcher, handle).outcome is Outcome.MEASURED
    assert cluster.said("squeue", "--states=all", "-h", "-o", "%j").split().count(f"tuner-{job.tag}") == 1


def test_a_job_without_a_note_is_found_by_its_name(stage: OnSlurm) -> None:
    launcher = stage.open()
    job = stage.job()
    handle = launcher.submit(job)
    note = job.folder / "slurm.json"
    note.write_text(json.dumps({"tag": job.tag, "job": None, "iterations": [2]}))
    other = stage.open()
    assert other.adopt(job, None) == handle
    assert ended(other, handle).outcome is Outcome.MEASURED


def test_ctrl_c_leaves_jobs_running_and_lists_them(cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster.said("scontrol", "update", "PartitionName=debug", "State=DOWN")
    process = subprocess.Popen(
        tuner(tmp_path),
        env=environment(cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not cluster.queue():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(3.0)
        os.killpg(process.pid, signal.SIGINT)
        answered, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "waiting: PartitionDown" in said
        assert json.loads(answered)["running"] == [0]
        assert len(cluster.queue()) == 1
    finally:
        process.kill()
        cluster.said("scontrol", "update", "PartitionName=debug", "State=UP")
        cluster.clear()
