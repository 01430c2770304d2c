"""Job steps inside one allocation of a live cluster of four nodes: `tuner optimize --within-allocation`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import slurm_cluster
from tests.conftest import ROOT, Run
from tests.launch.test_slurm_cluster import ended, environment, evidence, is_in, until
from tests.slurm_cluster import SlurmCluster
from tests.slurm_stage import ACTOR, BY_NODE, Acting, InAllocation
from tuner.core.atomic_write import read_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch import supervisor
from tuner.launch.contract import JobState
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.commands import SlurmCommands
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.steps import SlurmStepLauncher


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    live = slurm_cluster.running()
    live.clear()
    yield live
    live.clear()
    live.mend()


@pytest.fixture
def stage(cluster: SlurmCluster, tmp_path: Path) -> InAllocation:
    assert cluster
    return InAllocation(tmp_path)


def inside(cluster: SlurmCluster, number: str, nodes: int = 4) -> dict[str, str]:
    """Return the environment of a shell started by `salloc`."""
    given = {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": f"n[1-{nodes}]", "SLURM_JOB_NUM_NODES": str(nodes)}
    return {**environment(cluster), **given, "SLURM_JOB_CPUS_PER_NODE": f"8(x{nodes})", "SLURM_NTASKS_PER_NODE": "3"}


def tuner(folder: Path, *more: str, site: str = 'gres = ""\nsrun = ["--cpu-bind=none"]\n') -> list[str]:
    (folder / "site.toml").write_text(site)
    words = ["optimize", "--launcher", "slurm", "--within-allocation", "--gpus-per-node", "1", "--json"]
    words += ["--slurm-site", str(folder / "site.toml"), "--runs", str(folder / "runs")]
    return [sys.executable, "-m", "tuner", *words, *more]


def answered(words: list[str], environment: dict[str, str]) -> tuple[dict[str, Any], str]:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.cluster
def test_a_study_of_real_deepspeed_jobs_inside_salloc(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A study inside salloc uses all nodes of the allocation by default, and its jobs run as steps."""
    salloc = ["salloc", "--nodes=2", "--exclusive", "--no-kill"]
    axes = ("--exact-nodes", "--set", "zero=0,1", "--set", "micro_batch=4", "--budget", "2")
    document, _ = answered([*salloc, *tuner(tmp_path, *axes)], environment(cluster))
    assert (document["launcher"], document["simulated"], document["jobs_launched"]) == ("slurm", False, 2)
    assert document["trials"][0]["outcome"] == "MEASURED", document["trials"]
    folder = next((tmp_path / "runs").glob("*/jobs/0000-*"))
    assert read_object(folder / "began.json")["nodes"] == "n1,n2"
    assert read_object(folder / "result.json")["ranks"] == 2
    assert "#SBATCH" not in (folder / "job.sh").read_text()


CHEAP = "--nodes 4 --exact-nodes --fidelity auto --jobs 4 --budget 8 --global-batch 128 --tokens 1000000"
SPLITS = "--set tp=1 --set pp=1 --set zero=0,1 --set micro_batch=1,2 --set recompute=none,full"


@pytest.mark.cluster
@pytest.mark.parametrize("within", [True, False])
def test_reduced_trials_run_in_parallel(within: bool, cluster: SlurmCluster, tmp_path: Path) -> None:
    """Reduced trials run in parallel, as steps or as small allocations; the winner is measured on all four nodes."""
    words = tuner(tmp_path, *CHEAP.split(), *SPLITS.split())
    if within:
        words = ["salloc", "--nodes=4", "--exclusive", "--no-kill", *words]
    else:
        words.remove("--within-allocation")
    document, _ = answered(words, environment(cluster))
    small = [trial for trial in document["trials"] if "fidelity" in trial and trial["outcome"] == "MEASURED"]
    runs = []
    for trial in small:
        (folder,) = (tmp_path / "runs").glob(f"*/jobs/{trial['number']:04d}-*")
        began, ended_at = read_object(folder / "began.json"), read_object(folder / "ended.json")["ended"]
        assert len(trial["batch_seconds"]) == 2
        if trial["fidelity"]["nodes"] == 1:
            assert began["nodes"] in slurm_cluster.NODES
            runs.append((began["began"], ended_at, began["nodes"]))
    together = [(one, other) for one in runs for other in runs if one[2] != other[2] and one[0] < other[0] < one[1]]
    assert together, runs
    best = next(trial for trial in document["trials"] if trial["key"] == document["best"]["key"])
    assert any(
        trial["key"] == best["key"] and "fidelity" not in trial and trial["outcome"] == "MEASURED"
        for trial in document["trials"]
    )


@pytest.mark.cluster
def test_small_jobs_run_in_parallel_on_separate_nodes(stage: InAllocation) -> None:
    launcher = stage.open()
    jobs = [stage.job("hang") for _ in range(4)]
    handles = [launcher.submit(job) for job in jobs]
    for handle in handles:
        until(launcher, handle, is_in(JobState.RUNNING))
    assert {status.state for status in launcher.poll(handles).values()} == {JobState.RUNNING}
    assert {read_object(job.folder / "began.json")["nodes"] for job in jobs} == set(slurm_cluster.NODES)
    late = launcher.submit(stage.job())
    assert launcher.poll([late])[late].reason == "4 nodes in use"
    launcher.cancel(handles[2])
    assert ended(launcher, late).outcome is Outcome.MEASURED
    for handle in handles:
        launcher.cancel(handle)


@pytest.mark.cluster
def test_cancel_leaves_no_process_and_no_step(stage: InAllocation, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    job = stage.job("hang")
    handle = launcher.submit(job)
    until(launcher, handle, is_in(JobState.RUNNING))
    assert supervisor.members(job.tag)
    launcher.cancel(handle)
    assert supervisor.members(job.tag) == set()
    assert cluster.said("squeue", "--steps", "-h", "-o", "%j").split() == []
    assert launcher.collect(handle).outcome is Outcome.CANCELLED


@pytest.mark.cluster
def test_a_step_whose_script_was_killed_is_crashed(stage: InAllocation, cluster: SlurmCluster) -> None:
    """A step whose script was killed is CRASHED, also for a later process, and its step is cancelled."""
    launcher = stage.open()
    job = stage.job("hang")
    handle = launcher.submit(job)
    until(launcher, handle, is_in(JobState.RUNNING))
    deadline = time.monotonic() + 30
    while not cluster.said("squeue", "--steps", "-h", "-o", "%j").split():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(read_object(job.folder / "slurm.json")["script"]["pid"], signal.SIGKILL)
    other = stage.open()
    adopted = other.adopt(job, handle)
    assert adopted is not None
    result = ended(other, adopted)
    assert result.outcome is Outcome.CRASHED
    assert "killed from outside" in evidence(result)
    assert ended(launcher, handle).outcome is Outcome.CRASHED
    assert cluster.said("squeue", "--steps", "-h", "-o", "%j").split() == []


@pytest.mark.cluster
def test_an_unrecorded_script_is_found_with_its_nodes(stage: InAllocation) -> None:
    """A script that the tuner started but did not record is adopted, and its nodes are not used for other jobs."""
    launcher = stage.open()
    job = stage.job("hang")
    handle = launcher.submit(job)
    until(launcher, handle, is_in(JobState.RUNNING))
    note = job.folder / "slurm.json"
    note.write_text(json.dumps({name: each for name, each in read_object(note).items() if name != "script"}))
    other = stage.open()
    adopted = other.adopt(job, None)
    assert adopted == handle
    assert other.poll([handle])[handle].state is JobState.RUNNING
    beside = [stage.job("hang") for _ in range(3)]
    handles = [other.submit(each) for each in beside]
    for each in handles:
        until(other, each, is_in(JobState.RUNNING))
    nodes = {read_object(each.folder / "began.json")["nodes"] for each in (job, *beside)}
    assert nodes == set(slurm_cluster.NODES)
    for each in (handle, *handles):
        other.cancel(each)
    assert launcher.poll([handle])[handle].state is JobState.ENDED


@pytest.mark.cluster
def test_an_outage_of_the_controller_ends_no_step(stage: InAllocation, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    handle = launcher.submit(stage.job(iterations=(20,)))
    until(launcher, handle, lambda status: status.iterations > 0)
    cluster.stop_controller()
    try:
        assert ended(launcher, handle).outcome is Outcome.MEASURED
    finally:
        cluster.start_controller()


@pytest.mark.cluster
def test_a_hang_on_a_failed_node_names_the_node(stage: InAllocation, cluster: SlurmCluster) -> None:
    """A hang on a failed node names the node, which is then excluded; Slurm may take minutes to end the step."""
    launcher = stage.open(notes=stage.folder)
    handle = launcher.submit(stage.job("hang"))
    until(launcher, handle, is_in(JobState.RUNNING))
    cluster.said("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=disk")
    try:
        assert launcher.explain(handle) == "n1 is draining: disk"
    finally:
        cluster.said("scontrol", "update", "NodeName=n1", "State=RESUME")
    launcher.cancel(handle)
    assert (list(launcher.excluded), launcher.nodes) == (["n1"], 3)


@pytest.mark.cluster
def test_switching_between_jobs_and_steps_leaves_no_job_behind(stage: InAllocation, cluster: SlurmCluster) -> None:
    """When a study switches between jobs and steps of one allocation, jobs of the former kind are cancelled."""
    own = SlurmLauncher(Acting(), nodes=4, site=replace(BY_NODE, lines=("--hold",)))
    job = stage.job("hang")
    own.submit(job)
    assert stage.open().adopt(job, None) is None
    deadline = time.monotonic() + 30
    while f"tuner-{job.tag}" in cluster.queue():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    launcher, job = stage.open(), stage.job("hang")
    handle = launcher.submit(job)
    until(launcher, handle, is_in(JobState.RUNNING))
    while not cluster.said("squeue", "--steps", "-h", "-o", "%j").split():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    adopted = own.adopt(job, None)
    assert adopted is not None
    assert own.poll([adopted])[adopted].state is JobState.ENDED
    assert own.collect(adopted).outcome is Outcome.CANCELLED
    while supervisor.members(job.tag):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.cluster
def test_two_tuners_do_not_share_an_allocation(stage: InAllocation) -> None:
    """A second tuner in the same allocation is refused until the first one is closed."""
    first, second = stage.open(notes=stage.folder / "one"), stage.open(notes=stage.folder / "two")
    first.check()
    with pytest.raises(LaunchError, match="another tuner uses the nodes of allocation"):
        second.check()
    first.close()
    second.check()
    second.close()


@pytest.mark.cluster
def test_a_job_whose_allocation_ends_is_cancelled(stage: InAllocation, cluster: SlurmCluster) -> None:
    launcher = stage.open()
    job = stage.job("hang")
    handle = launcher.submit(job)
    until(launcher, handle, is_in(JobState.RUNNING))
    cluster.said("scancel", stage.number)
    result = ended(launcher, handle)
    assert result.outcome is Outcome.CANCELLED
    assert "its allocation ended" in evidence(result)
    later = InAllocation(stage.folder).open()
    assert later.adopt(job, handle) is not None
    assert later.collect(handle) == result


@pytest.mark.cluster
def test_a_step_of_a_killed_tuner_is_adopted(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The step of a killed tuner is adopted, and no job is lost or repeated."""
    within = inside(cluster, cluster.allocate())
    script = f"{sys.executable} -I {ACTOR} good {{iterations}} {{folder}}/actor.json"
    words = tuner(
        tmp_path, "--budget", "2", "--iterations", "20", "--command", script, "--set", "nodes=1",
        site='gres = ""\ntasks = "nodes"\n',
    )  # fmt: skip
    first = subprocess.Popen(words, env=within, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "runs").glob("*/jobs/*/began.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        first.kill()
        first.wait()
    document, said = answered(words, within)
    assert "adopted: from a tuner that exited" in said
    assert document["jobs_launched"] == 2
    assert [trial["outcome"] for trial in document["trials"]] == ["MEASURED", "MEASURED"]
    notes = [read_object(path) for path in sorted((tmp_path / "runs").glob("*/jobs/*/slurm.json"))]
    assert len({note["tag"] for note in notes}) == 2


FAILS_ONCE = """\
if mkdir "$1/first"; then
    {first}
fi
exec "$2" -I "$3" good "$4" "$1/actor.json"
"""
HANGS = "while sleep 1; do echo still here; done"
"""The first run prints lines, so that it does not count as hung."""
LOSES_ITS_DAEMON = (
    "echo 'srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 0' >&2; exit 1"
)
"""As a step ends whose slurmstepd has died before Slurm knows that the node has failed."""


@pytest.mark.cluster
@pytest.mark.parametrize("first", [HANGS, LOSES_ITS_DAEMON], ids=["hangs", "loses its daemon"])
def test_a_failed_node_is_excluded_and_the_trial_runs_elsewhere(
    cluster: SlurmCluster, tmp_path: Path, first: str
) -> None:
    """A trial on a failed node runs again on another one; output and report name the node and the trial."""
    script = tmp_path / "fails-once.sh"
    script.write_text(FAILS_ONCE.format(first=first))
    command = f"/bin/bash {script} {tmp_path} {sys.executable} {ACTOR} {{iterations}}"
    given = ("--budget", "2", "--study", "s", "--command", command, "--set", "nodes=1")
    words = tuner(tmp_path, *given, site='gres = ""\ntasks = "nodes"\n')
    log = tmp_path / "stderr"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            words, env=inside(cluster, cluster.allocate()), stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "first").exists() or (first != HANGS and "Slurm has not reported" not in log.read_text()):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        cluster.kill_node("n1")
        out, _ = process.communicate(timeout=180)
    finally:
        process.kill()
    said = log.read_text()
    assert process.returncode == 0, said
    document = json.loads(out)
    assert "restarting after n1 failed" in said
    assert [trial["outcome"] for trial in document["trials"]] == ["MEASURED", "MEASURED"], document["trials"]
    assert [trial["again"] for trial in document["trials"]] == ["n1 failed", ""]
    assert list(document["excluded"]) == ["n1"]
    folder = next((tmp_path / "runs").glob("*/jobs/0000-*"))
    assert read_object(folder / "began.json")["nodes"] == "n2"
    assert (folder / "stdout.log.before-1").is_file()
    report = subprocess.run(
        [sys.executable, "-m", "tuner", "report", "s", "--runs", str(tmp_path / "runs")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "n1" in report
    assert "jobs were retried: trial 0 (n1 failed)" in report.lower()


# -- what is refused


@pytest.mark.cluster
def test_an_allocation_that_is_too_small_is_refused_with_the_numbers(stage: InAllocation) -> None:
    found = Allocation.current(inside(stage.cluster, stage.number), SlurmCommands())
    assert found == Allocation(number=stage.number, nodes=slurm_cluster.NODES, cores=8)
    with pytest.raises(InputError, match=r"--nodes 5 exceeds the 4 nodes of allocation \d+"):
        SlurmStepLauncher(Acting(), allocation=found, nodes=5, site=BY_NODE).check()
    with pytest.raises(InputError, match="8 cores on a node for 9 ranks"):
        SlurmStepLauncher(Acting(), allocation=found, site=BY_NODE).check(9)
    with pytest.raises(InputError, match="calls srun itself"):
        SlurmStepLauncher(Acting(), allocation=found, site=replace(BY_NODE, tasks="once")).check()
    SlurmStepLauncher(Acting(), allocation=found, nodes=4, site=BY_NODE).check(8)


def test_steps_outside_an_allocation_are_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    said = run("optimize", "--launcher", "slurm", "--within-allocation", "--runs", str(tmp_path))
    assert said.code == 2
    assert "salloc" in said.err
    assert "SLURM_JOB_ID" in said.err


def test_within_allocation_requires_slurm(run: Run, tmp_path: Path) -> None:
    said = run("optimize", "--within-allocation", "--runs", str(tmp_path))
    assert said.code == 2
    assert "--launcher slurm" in said.err
