"""Job steps in an allocation, with fake pids for scripts and stand-in commands."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from tests.launch.test_slurm_arithmetic import Answering
from tests.slurm_stage import BY_NODE, Acting
from tests.stages import TOPOLOGIES, job_in
from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import Job, JobState
from tuner.launch.slurm import steps
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.parsing import SEPARATOR
from tuner.launch.slurm.process import ScriptProcess
from tuner.launch.slurm.script import job_name
from tuner.launch.slurm.steps import SlurmStepLauncher
from tuner.launch.slurm.transitions import EXIT_FILE_DELAY

# -- job steps


class Steps:
    """A launcher in allocation 7 of n1 to n4 whose scripts are fake pids, alive until a test removes them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.clock = folder, 1000.0
        self.spawned: list[dict[str, str]] = []
        self.alive: set[int] = set()
        self.killed: list[tuple[int, int]] = []
        self.stubborn = False
        self.cannot = ""
        self.commands = Answering(squeue="", scancel="", sinfo="")
        self.launcher = self.launcher_again()
        monkeypatch.setattr("tuner.launch.slurm.steps.os.posix_spawn", self._spawn)
        monkeypatch.setattr("tuner.launch.slurm.steps.os.kill", self._kill)
        monkeypatch.setattr("tuner.launch.slurm.steps.os.waitpid", self._waitpid)
        monkeypatch.setattr(ScriptProcess, "alive", lambda script, file: script.pid in self.alive and file.is_file())

    def launcher_again(self) -> SlurmStepLauncher:
        """Return a new launcher without any jobs."""
        return SlurmStepLauncher(
            Acting(),
            allocation=Allocation(number="7", nodes=("n1", "n2", "n3", "n4"), cores=8),
            site=BY_NODE,
            commands=self.commands,
            clock=lambda: self.clock,
            sleep=self._sleep,
        )

    def job(self, nodes: int = 1) -> Job:
        """Return a job of so many nodes."""
        number = len(list(self.folder.glob("*")))
        topology = replace(TOPOLOGIES["good"], nodes=nodes, dp=4 * nodes)
        return job_in(self.folder / str(number), number=number, tag=f"t{number}", topology=topology)

    def _spawn(self, program: str, command: list[str], environment: dict[str, str], **rest: Any) -> int:
        if self.cannot:
            raise OSError(12, self.cannot)
        assert program == command[0]
        assert rest["setsid"] is True
        self.spawned.append(environment)
        pid = 100 + len(self.spawned)
        self.alive.add(pid)
        return pid

    def _kill(self, pid: int, number: int) -> None:
        self.killed.append((pid, number))
        if number == signal.SIGKILL or not self.stubborn:
            self.alive.discard(pid)

    def _waitpid(self, _pid: int, _options: int) -> tuple[int, int]:
        raise ChildProcessError

    def _sleep(self, seconds: float) -> None:
        self.clock += seconds


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Steps]:
    """A function that opens a launcher inside an allocation."""
    return lambda: Steps(tmp_path / "jobs", monkeypatch)


def test_steps_use_disjoint_nodes_and_start_in_order(inside: Callable[[], Steps]) -> None:
    """Steps use disjoint nodes and start in order of submission: a small job does not overtake a waiting larger one."""
    made = inside()
    handles = [made.launcher.submit(made.job(nodes)) for nodes in (2, 1, 2, 1)]
    assert [spawned["SLURM_JOB_NODELIST"] for spawned in made.spawned] == ["n1,n2", "n3"]
    assert [spawned["SLURM_RESTART_COUNT"] for spawned in made.spawned] == ["0", "0"]
    assert {spawned["SLURM_JOB_ID"] for spawned in made.spawned} == {"7"}
    found = made.launcher.poll(handles)
    assert [found[handle].state for handle in handles] == [JobState.WAITING] * 4
    assert [found[handle].reason for handle in handles[:3]] == ["starting", "starting", "3 nodes in use"]
    noted = read_object(made.folder / "0" / "slurm.json")
    assert noted["script"] == {"pid": 101, "host": gethostname(), "nodes": ["n1", "n2"]}
    assert noted["step"] is True
    made.launcher.cancel(handles[0])
    made.launcher.poll(handles[1:])
    assert [spawned["SLURM_JOB_NODELIST"] for spawned in made.spawned[2:]] == ["n1,n2", "n4"]


def test_a_job_larger_than_the_allocation_is_refused(inside: Callable[[], Steps]) -> None:
    made = inside()
    with pytest.raises(LaunchError, match="needs 5 nodes, but only 4 nodes can be used"):
        made.launcher.submit(made.job(5))
    made.launcher.excluded["n2"] = "down"
    assert made.launcher.nodes == 3
    made.launcher.submit(made.job(3))
    assert made.spawned[0]["SLURM_JOB_NODELIST"] == "n1,n3,n4"


def test_a_waiting_job_that_can_never_start_is_cancelled(inside: Callable[[], Steps]) -> None:
    made = inside()
    made.launcher.submit(made.job(4))
    waiting = made.launcher.submit(made.job(4))
    made.launcher.excluded["n4"] = "down"
    made.launcher.poll([waiting])
    result = made.launcher.collect(waiting)
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "Slurm would never start it")
    assert result.evidence == "it needs 4 nodes, but the allocation has 3 nodes left"


def test_a_script_that_cannot_start_fails_only_its_submission(inside: Callable[[], Steps]) -> None:
    made = inside()
    made.cannot = "Cannot allocate memory"
    with pytest.raises(LaunchError, match=r"cannot start .*: Cannot allocate memory"):
        made.launcher.submit(made.job())
    made.cannot = ""
    first = made.launcher.submit(made.job(4))
    second = made.launcher.submit(made.job(4))
    made.launcher.cancel(first)
    made.cannot = "Cannot allocate memory"
    assert made.launcher.poll([second])[second].reason == "cannot start now: Cannot allocate memory"


@pytest.mark.parametrize(("stubborn", "signals"), [(False, [signal.SIGTERM]), (True, [signal.SIGTERM, signal.SIGKILL])])
def test_cancel_ends_the_script_and_its_step(stubborn: bool, signals: list[int], inside: Callable[[], Steps]) -> None:
    """Cancelling sends SIGTERM, and SIGKILL after a delay if the script is still alive."""
    made = inside()
    made.stubborn = stubborn
    handle = made.launcher.submit(made.job())
    began = made.clock
    made.launcher.cancel(handle)
    assert made.killed == [(101, number) for number in signals]
    took = made.clock - began
    assert (took >= steps.KILL_DELAY) is stubborn
    assert took < steps.KILL_DELAY + 1
    result = made.launcher.collect(handle)
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "cancelled")
    assert any(command.startswith("squeue --steps --jobs=7") for command in made.commands.sent)


def test_a_job_that_never_started_is_cancelled_without_a_signal(inside: Callable[[], Steps]) -> None:
    made = inside()
    made.launcher.submit(made.job(4))
    waiting = made.launcher.submit(made.job(1))
    made.launcher.cancel(waiting)
    assert made.killed == []
    assert made.launcher.collect(waiting).outcome is Outcome.CANCELLED
    made.launcher.cancel("no such handle")


def started(made: Steps) -> tuple[Job, str]:
    """Submit a job, let its script begin, and return the job and its handle."""
    job = made.job()
    handle = made.launcher.submit(job)
    write_object(
        job.folder / "began.json", {"tag": job.tag, "job": "7", "restart": 0, "began": made.clock, "nodes": "n1"}
    )
    made.launcher.poll([handle])
    return job, handle


@pytest.mark.parametrize("here", [True, False])
def test_the_step_of_a_missing_script_is_cancelled_on_its_machine(here: bool, inside: Callable[[], Steps]) -> None:
    """The step of a missing script is cancelled on the machine that ran the script, and only queried elsewhere."""
    made = inside()
    job, handle = started(made)
    if not here:
        note = read_object(job.folder / "slurm.json")
        write_object(job.folder / "slurm.json", note | {"script": note["script"] | {"host": "elsewhere"}})
        made.launcher = made.launcher_again()
        handle = made.launcher.adopt(job, handle) or ""
    made.alive.clear()
    made.commands.answers["squeue"] = f"7.4{SEPARATOR}{job_name(job.tag)}"
    for _ in range(40):
        made.clock += 2.0
        assert made.launcher.poll([handle])[handle].state is not JobState.ENDED
    assert ("scancel --quiet 7.4" in made.commands.sent) is here
    assert any(command.startswith("squeue --steps --jobs=7") for command in made.commands.sent)


def test_a_missing_script_ends_its_job_after_a_delay(inside: Callable[[], Steps]) -> None:
    """A missing script without an exit file ends its job after a delay, once Slurm has no step of it."""
    made = inside()
    _, handle = started(made)
    assert made.launcher.poll([handle])[handle].state is JobState.RUNNING
    made.alive.clear()
    seen = []
    for _ in range(40):
        made.clock += 2.0
        seen.append(made.launcher.poll([handle])[handle].state)
        if seen[-1] is JobState.ENDED:
            break
    assert seen[-1] is JobState.ENDED
    assert len(seen) >= EXIT_FILE_DELAY / 2.0
    result = made.launcher.collect(handle)
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, "its allocation ended")  # squeue shows no nodes


def test_a_failed_job_with_unknown_nodes_is_over_once_cancelled(inside: Callable[[], Steps]) -> None:
    """A failed job whose nodes Slurm does not report is UNKNOWN, as it may be retried, until it is cancelled."""
    made = inside()
    job, handle = started(made)
    made.alive.clear()
    write_object(
        job.folder / "ended.json",
        {"tag": job.tag, "job": "7", "restart": 0, "exit": 1, "ended": made.clock, "began": made.clock - 5.0},
    )
    del made.commands.answers["squeue"]
    for _ in range(3):
        made.clock += 10.0
        assert made.launcher.poll([handle])[handle].state is JobState.UNKNOWN
    made.launcher.cancel(handle)
    assert made.launcher.poll([handle])[handle].state is JobState.ENDED
    assert made.launcher.collect(handle).outcome is Outcome.CRASHED
    assert made.launcher_again().adopt(job, handle) is not None
    assert read_object(job.folder / "slurm.json")["settled"] is True


def lost_its_daemon(made: Steps) -> tuple[Job, str]:
    """Start a job whose step ends because its slurmstepd has died, while Slurm reports all nodes as healthy."""
    job, handle = started(made)
    made.alive.clear()
    (job.folder / "stderr.log").write_text("srun: error: aborting, io error with slurmstepd on node 0\n")
    write_object(
        job.folder / "ended.json",
        {"tag": job.tag, "job": "7", "restart": 0, "exit": 0, "ended": made.clock, "began": made.clock - 5.0},
    )
    made.commands.answers |= {"squeue": "n[1-4]", "scontrol": "n1\nn2\nn3\nn4", "sinfo": "n1|allocated|none"}
    return job, handle


@pytest.mark.parametrize("killed", [False, True])
def test_a_node_that_slurm_reports_late_as_failed_has_failed(killed: bool, inside: Callable[[], Steps]) -> None:
    """A step that lost its node keeps its nodes until Slurm reports it, then runs elsewhere, also for a later tuner."""
    made = inside()
    job, handle = lost_its_daemon(made)
    status = made.launcher.poll([handle])[handle]
    assert (status.state, status.reason) == (
        JobState.WAITING,
        "a node seems to have failed; Slurm has not reported which",
    )
    made.clock += steps.NODE_REPORT_DELAY / 2
    if killed:
        made.launcher = made.launcher_again()
        assert made.launcher.adopt(job, handle) == handle
    made.launcher.submit(made.job())
    assert [spawned["SLURM_JOB_NODELIST"] for spawned in made.spawned] == ["n1", "n2"]
    assert made.launcher.poll([handle])[handle].state is JobState.WAITING
    assert "settled" not in read_object(job.folder / "slurm.json")
    made.commands.answers["sinfo"] = "n1|allocated*|none"
    made.clock += steps.NODE_REPORT_DELAY / 4
    assert made.launcher.poll([handle])[handle].reason == "restarting after n1 failed: starting"
    assert [spawned["SLURM_JOB_NODELIST"] for spawned in made.spawned] == ["n1", "n2", "n3"]
    assert list(made.launcher.excluded) == ["n1"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_node_that_slurm_never_reports_as_failed_is_used_again(cancelled: bool, inside: Callable[[], Steps]) -> None:
    """A step has crashed once Slurm should have reported a failed node, or at once if it is cancelled."""
    made = inside()
    job, handle = lost_its_daemon(made)
    assert made.launcher.poll([handle])[handle].state is JobState.WAITING
    began = made.clock
    if cancelled:
        made.launcher.cancel(handle)
        assert made.clock == began
    else:
        made.clock += steps.NODE_REPORT_DELAY
    assert made.launcher.poll([handle])[handle].state is JobState.ENDED
    result = made.launcher.collect(handle)
    assert (result.outcome, result.reason) == (Outcome.CRASHED, "a node failed")
    assert read_object(job.folder / "slurm.json")["settled"] is True
    made.launcher.submit(made.job())
    assert [spawned["SLURM_JOB_NODELIST"] for spawned in made.spawned] == ["n1", "n1"]
    assert made.launcher.excluded == {}


def test_waiting_ends_with_a_change_of_files_or_at_the_deadline(inside: Callable[[], Steps]) -> None:
    made = inside()
    job = made.job()
    made.launcher.submit(job)
    began = made.clock
    made.launcher.wait(3.0)
    assert made.clock == pytest.approx(began + 3.0)
    sleep = made._sleep

    def begins(seconds: float) -> None:
        sleep(seconds)
        (job.folder / "began.json").write_text(json.dumps({}))

    made.launcher._tracker.sleep = begins
    began = made.clock
    made.launcher.wait(30.0)
    assert made.clock - began < 2.0


@pytest.mark.parametrize(("ranks", "fits"), [(8, True), (9, False)])
def test_an_allocation_needs_a_core_per_rank(ranks: int, fits: bool, inside: Callable[[], Steps]) -> None:
    """An allocation must have a core per rank, unless its cores are unknown, enough nodes, and a node that works."""
    launcher = inside().launcher
    if fits:
        launcher.check(ranks)
    else:
        with pytest.raises(InputError, match="has 8 cores on a node for 9 ranks"):
            launcher.check(ranks)
    launcher._allocation = Allocation(number="7", nodes=("n1", "n2", "n3", "n4"), cores=None)
    launcher.check(ranks)
    launcher._max_nodes = 5
    with pytest.raises(InputError, match="--nodes 5 exceeds the 4 nodes of allocation 7"):
        launcher.check(ranks)
    launcher._max_nodes = 4
    launcher.excluded.update(dict.fromkeys(("n1", "n2", "n3", "n4"), "down"))
    with pytest.raises(LaunchError, match="all nodes of allocation 7 have failed"):
        launcher.check(ranks)


def test_a_hang_is_explained_by_failed_nodes_or_else_by_stacks(inside: Callable[[], Steps]) -> None:
    made = inside()
    job, handle = started(made)
    assert made.launcher.explain(handle) == ""
    assert made.commands.sent[-1] == "scancel --quiet --signal=USR1 7.0"
    made.commands.answers["squeue"] = f"7.3{SEPARATOR}{job_name(job.tag)}"
    assert made.launcher.explain(handle) == ""
    assert made.commands.sent[-1] == "scancel --quiet --signal=USR1 7.3"
    made.commands.answers["sinfo"] = "n1|down*|disk\n"
    tracked = made.launcher._tracker.jobs[handle]
    tracked.state = replace(tracked.state, nodes="n1")
    assert made.launcher.explain(handle) == "n1 is down, not responding: disk"
    assert made.launcher.excluded == {"n1": "down, not responding: disk"}
    made.commands.answers["squeue"] = ""
    made.launcher.cancel(handle)
    assert made.launcher.explain(handle) == made.launcher.explain("no handle") == ""


def test_an_allocation_is_free_once_the_launcher_is_closed(inside: Callable[[], Steps]) -> None:
    first, second = inside(), inside()
    for made in (first, second):
        made.launcher.close()
        made.launcher._tracker.notes = made.folder / "notes"
    first.launcher.check()
    with pytest.raises(LaunchError, match="another tuner uses the nodes of allocation 7"):
        second.launcher.check()
    first.launcher.close()
    second.launcher.check()
    second.launcher.close()


def test_jobs_never_exceed_the_nodes_of_the_study(inside: Callable[[], Steps]) -> None:
    """A study limited to 3 of 4 nodes keeps a second two-node job waiting, although two nodes are free."""
    made = inside()
    made.launcher._max_nodes = 3
    handles = [made.launcher.submit(made.job(2)) for _ in range(2)]
    assert len(made.spawned) == 1
    assert made.launcher.poll(handles)[handles[1]].reason == "2 nodes in use"
    made.launcher.cancel(handles[0])
    made.launcher.poll(handles)
    assert len(made.spawned) == 2
