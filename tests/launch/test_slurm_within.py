"""Job steps without a cluster: the scripts are real and run on this machine, Slurm's commands are stand-ins."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.slurm_stage import BY_NODE, Acting
from tests.stages import TOPOLOGIES, Behaviour, job_in
from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import Job, JobState, JobStatus
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.commands import CommandOutput, PollInterval, SlurmCommands
from tuner.launch.slurm.parsing import SEPARATOR
from tuner.launch.slurm.script import job_name
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.launch.slurm.transitions import EXIT_FILE_DELAY

SRUN = '#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done\nexec "$@"\n'
SCONTROL = "#!/bin/bash\necho localhost\n"
REFUSED = "slurm_load_jobs error: Protocol authentication error"


class Written(SlurmCommands):
    """Stand-in Slurm commands for allocation 7 of n1 to n4; a command fails if it contains a word of `fails`."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
        self.why = REFUSED
        self.states: dict[str, str] = {}
        self.steps: list[str] = []

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:  # noqa: ARG002 - nothing is kept open
        if self.fails & set(command):
            return CommandOutput(1, "", self.why)
        if "--steps" in command:
            return CommandOutput(
                0, "\n".join(f"7.{number}{SEPARATOR}{name}" for number, name in enumerate(self.steps)), ""
            )
        if command[0] == "squeue":
            return CommandOutput(0, "n[1-4]\n", "")
        if "hostnames" in command:
            return CommandOutput(0, "\n".join(HOSTS[command[-1]]) + "\n", "")
        return CommandOutput(0, "\n".join(f"{name}|{state}|disk" for name, state in self.states.items()), "")


FOUR = ("n1", "n2", "n3", "n4")
HOSTS = {"n[1-4]": FOUR, "n[1,3]": ("n1", "n3"), "n2": ("n2",), "n[1-4],m7": (*FOUR, "m7")}


class Within:
    """The jobs and launchers of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, Written()
        self.jobs: list[Job] = []

    def open(self, nodes: int = 4, site: SiteProfile = BY_NODE, **more: Any) -> SlurmStepLauncher:
        """Return a new launcher, as of another process, with a real clock."""
        allocation = Allocation(number="7", nodes=FOUR[:nodes], cores=8)
        pace = PollInterval(first=0.01, most=0.01)
        return SlurmStepLauncher(
            Acting(), allocation=allocation, site=site, commands=self.said, poll_interval=pace, **more
        )

    def job(self, behaviour: Behaviour) -> Job:
        """Return a job of one node."""
        number = len(self.jobs)
        folder, tag = self.folder / str(number), f"{os.getpid()}-{time.time_ns()}"
        self.jobs.append(job := job_in(folder, number=number, tag=tag, topology=TOPOLOGIES[behaviour]))
        return job


def until(steps: SlurmStepLauncher, handle: str, right: Callable[[JobStatus], bool]) -> JobStatus:
    deadline = time.monotonic() + 60
    while not right(status := steps.poll([handle])[handle]):
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def is_in(*states: JobState) -> Callable[[JobStatus], bool]:
    return lambda status: status.state in states


@pytest.fixture
def within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Within]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    stage = Within(tmp_path / "jobs")
    yield stage
    stage.said.fails.clear()
    stage.said.steps.clear()
    last = stage.open()
    for job in stage.jobs:
        if (handle := last.adopt(job, None)) is not None:
            last.cancel(handle)
    for process in Path("/proc").glob("[0-9]*"):  # a killed script leaves its step, which Slurm would end
        with suppress(OSError):
            if os.fsencode(tmp_path) in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def test_a_failed_step_is_unknown_until_slurm_reports_its_nodes(within: Within) -> None:
    """A failed step is UNKNOWN until sinfo reports its nodes; a failed node is excluded and the step runs elsewhere."""
    steps, job = within.open(), within.job("crash")
    within.said.fails = {"sinfo"}
    within.said.states = {"n1": "down*", "n2": "idle"}
    handle = steps.submit(job)
    until(steps, handle, lambda _: (job.folder / "ended.json").exists())
    assert until(steps, handle, is_in(JobState.ENDED, JobState.UNKNOWN)).state is JobState.UNKNOWN
    assert "settled" not in read_object(job.folder / "slurm.json")
    within.said.fails = set()
    until(steps, handle, is_in(JobState.ENDED))
    assert steps.excluded == {"n1": "down, not responding: disk"}
    assert steps.collect(handle).retried == "n1 failed"
    assert read_object(job.folder / "began.json")["nodes"] == "n2"


@pytest.mark.parametrize("fails", ["squeue", "hostnames"])
def test_an_allocation_with_unknown_nodes_has_not_ended(within: Within, fails: str) -> None:
    steps, job = within.open(), within.job("crash")
    within.said.fails = {fails}
    handle = steps.submit(job)
    until(steps, handle, lambda _: (job.folder / "ended.json").exists())
    assert until(steps, handle, is_in(JobState.ENDED, JobState.UNKNOWN)).state is JobState.UNKNOWN
    within.said.fails = set()
    until(steps, handle, is_in(JobState.ENDED))
    assert steps.collect(handle).outcome is Outcome.CRASHED


def test_a_remote_step_is_unknown_until_slurm_reports_its_state(within: Within) -> None:
    """A step on another machine is UNKNOWN while squeue fails, and ENDED only if Slurm reports it as gone."""
    job, clock = within.job("good"), [1000.0]
    began = {"tag": job.tag, "job": "7", "restart": 0, "began": 990.0, "nodes": "n1"}
    job.folder.mkdir(parents=True)
    write_object(job.folder / "began.json", began)
    script = {"pid": 1, "host": "elsewhere", "nodes": ["n1"]}
    write_object(job.folder / "slurm.json", {"tag": job.tag, "job": "7", "step": True, "nodes": 1, "script": script})
    within.said.steps = [job_name(job.tag)]
    steps = within.open(clock=lambda: clock[0])
    handle = steps.adopt(job, None)
    assert handle is not None
    states = []
    for fails in ({"--steps"}, {"--steps"}, {"--steps"}, set()):
        within.said.fails = fails
        states.append(steps.poll([handle])[handle].state)
        clock[0] += 2 * EXIT_FILE_DELAY
    assert states == [JobState.RUNNING, JobState.UNKNOWN, JobState.UNKNOWN, JobState.RUNNING]
    within.said.fails, within.said.why = {"--steps"}, "slurm_load_jobs error: Invalid job id specified"
    assert steps.poll([handle])[handle].state is JobState.ENDED


@pytest.mark.slow
def test_a_job_that_cannot_start_now_waits_and_starts_later(within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting job that cannot be started for lack of resources stays waiting and is started later.

    A job submitted meanwhile waits as well; with an empty queue the submission is refused.
    """
    steps = within.open(nodes=1)
    first, second = steps.submit(within.job("hang")), steps.submit(within.job("good"))
    monkeypatch.setenv("TOO_LARGE", "x" * 200_000)  # for exec, which fails with E2BIG
    steps.cancel(first)
    status = steps.poll([second])[second]
    assert (status.state, status.reason) == (JobState.WAITING, "cannot start now: Argument list too long")
    third = steps.submit(within.job("good"))
    monkeypatch.delenv("TOO_LARGE")
    for handle in (second, third):
        until(steps, handle, is_in(JobState.ENDED))
        assert steps.collect(handle).outcome is Outcome.MEASURED
    monkeypatch.setenv("TOO_LARGE", "x" * 200_000)
    with pytest.raises(LaunchError, match=r"cannot start .*: Argument list too long"):
        steps.submit(within.job("good"))
    assert not within.jobs[-1].folder.exists()


def test_no_job_uses_a_node_that_the_site_excludes(within: Within) -> None:
    steps = within.open(nodes=2, site=replace(BY_NODE, exclude=("n[1,3]",), nodelist="n2"))
    steps.check()
    assert steps.nodes == 1
    first, second = steps.submit(within.job("good")), steps.submit(within.job("good"))
    for handle in (first, second):
        until(steps, handle, is_in(JobState.ENDED))
    assert [read_object(job.folder / "began.json")["nodes"] for job in within.jobs] == ["n2", "n2"]


@pytest.mark.parametrize(
    ("site", "error", "sentence"),
    [
        (
            SiteProfile(nodelist="n2"),
            InputError,
            "has n1, n3 and n4, which nodelist = 'n2' of the site profile does not",
        ),
        (SiteProfile(exclude=("n[1-4]", "m7")), InputError, "leaves no node of allocation 7"),
        (SiteProfile(exclude=("n[",)), LaunchError, "Slurm cannot expand the nodes of `exclude` in the site profile"),
    ],
)
def test_an_allocation_that_contradicts_the_site_is_refused(
    site: SiteProfile, error: type[Exception], sentence: str, within: Within
) -> None:
    within.said.fails = {"n["}
    with pytest.raises(error, match=re.escape(sentence)):
        within.open(site=site).check()


def test_an_allocation_belongs_to_one_tuner_of_a_folder(tmp_path: Path) -> None:
    seven, eight = (Allocation(number=number, nodes=FOUR, cores=8) for number in ("7", "8"))
    lock, other = seven.lock(tmp_path), eight.lock(tmp_path)
    assert lock is not None
    assert other is not None
    with pytest.raises(LaunchError, match="another tuner uses the nodes of allocation 7"):
        seven.lock(tmp_path)
    lock.close()
    again = seven.lock(tmp_path)
    assert again is not None
    again.close()
    other.close()
