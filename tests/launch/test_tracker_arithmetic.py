"""Shared code of both Slurm launchers: attempts, cancels, failed nodes and stacks, with stand-in commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.launch.test_slurm_arithmetic import Answering, job_of, row
from tests.slurm_stage import BY_NODE, Acting
from tests.stages import TOPOLOGIES, WORKLOAD, job_in
from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import InputError, LaunchError, MissingDependency
from tuner.launch.contract import Job, JobState
from tuner.launch.excluded_nodes import excluded_nodes
from tuner.launch.log_tail import LogProgress
from tuner.launch.slurm.base import MIN_FILE_INTERVAL
from tuner.launch.slurm.commands import CommandOutput, ControllerUnreachable, PollInterval, SlurmCommands
from tuner.launch.slurm.job import MEASURED, NOTE, TrackedJob
from tuner.launch.slurm.launcher import MAX_FILE_INTERVAL, SlurmLauncher
from tuner.launch.slurm.queue import SlurmQueue
from tuner.launch.slurm.script import job_name
from tuner.launch.slurm.tracker import MAX_OUTAGE, MAX_STACKS_BYTES, JobTracker, first_note, submitted_id


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.seconds, self.pauses = 1000.0, list[float]()
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> float:
        """Return the current seconds."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Record the pause and advance the clock."""
        self.pauses.append(seconds)
        self.seconds += seconds
        self.on_sleep()


def tracker(clock: Clock, commands: SlurmCommands, notes: Path | None = None, **program: Any) -> JobTracker:
    return JobTracker(Acting(**program), notes=notes, commands=commands, clock=clock.now, sleep=clock.sleep)


def launcher(clock: Clock, commands: SlurmCommands, *, nodes: int = 2, partition: str = "") -> SlurmLauncher:
    site = replace(BY_NODE, partition=partition)
    return SlurmLauncher(Acting(), nodes=nodes, site=site, commands=commands, clock=clock.now, sleep=clock.sleep)


def job(folder: Path, nodes: int = 1) -> Job:
    topology = replace(TOPOLOGIES["good"], nodes=nodes, dp=4 * nodes)
    return job_in(folder, number=3, topology=topology, iterations=(3, 4))


# -- commands


def test_a_command_returns_code_and_text_and_inherits_the_lock(tmp_path: Path) -> None:
    """A command returns its code and output with invalid UTF-8 replaced, and inherits the lock's descriptor."""
    commands = object.__new__(SlurmCommands)
    text = "import os, sys; sys.stdout.buffer.write(b'o\\xff'); sys.stderr.buffer.write(b'e\\xff'); sys.exit(3)"
    assert commands.run(sys.executable, "-I", "-c", text) == CommandOutput(3, "o\ufffd", "e\ufffd")
    with (tmp_path / "lock").open("w") as lock:
        found = commands.run("/bin/sh", "-c", f"readlink /proc/self/fd/{lock.fileno()}", lock=lock.fileno())
        assert found.out.strip() == str(tmp_path / "lock")
        assert commands.run("/bin/sh", "-c", f"readlink /proc/self/fd/{lock.fileno()}").out == ""


@pytest.mark.parametrize(("code", "silent"), [(1, True), (0, False)])
def test_an_unreachable_controller_is_reported_with_the_last_line(code: int, silent: bool) -> None:
    commands = object.__new__(SlurmCommands)
    line = f"echo first >&2; echo 'sbatch: error: Socket timed out' >&2; exit {code}"
    if silent:
        with pytest.raises(ControllerUnreachable, match=r"^sbatch: error: Socket timed out$"):
            commands.run("/bin/sh", "-c", line)
    else:
        assert commands.run("/bin/sh", "-c", line).code == 0
    assert commands.run("/bin/sh", "-c", "echo refused >&2; exit 1").err == "refused\n"


def test_a_missing_command_and_a_slow_one_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = object.__new__(SlurmCommands)
    with pytest.raises(MissingDependency, match=r"/no/such cannot run: No such file"):
        commands.run("/no/such")
    monkeypatch.setattr("tuner.launch.slurm.commands.COMMAND_TIMEOUT", 0.05)
    with pytest.raises(ControllerUnreachable, match="/bin/sleep has not answered"):
        commands.run("/bin/sleep", "5")


def test_queries_become_rarer_up_to_a_bound_and_frequent_after_a_change() -> None:
    interval = PollInterval(first=2.0, growth=3.0, most=10.0)
    due = []
    for _ in range(4):
        interval.polled(100.0, changed=False)
        due.append(interval.due)
    assert due == [106.0, 110.0, 110.0, 110.0]
    interval.polled(100.0, changed=True)
    assert interval.due == 102.0
    interval.reset(99.0)
    assert interval.due == 101.0
    interval.reset(150.0)
    assert interval.due == 101.0


# -- the tracker


def test_attempts_become_rarer_until_ten_minutes_of_silence() -> None:
    clock = Clock()
    attempts = tracker(clock, Answering()).attempts("cannot try")
    with pytest.raises(LaunchError, match=r"^cannot try: Slurm has not answered for 10 minutes\.$"):
        assert list(zip(attempts, range(1000), strict=False)) == []
    assert clock.pauses[:3] == [2.0, 3.0, 4.5]
    assert set(clock.pauses[7:]) == {30.0}
    assert MAX_OUTAGE < clock.seconds - 1000.0 <= MAX_OUTAGE + 30.0


def test_attempts_are_numbered_from_zero() -> None:
    attempts = tracker(Clock(), Answering()).attempts("")
    assert [next(attempts) for _ in range(3)] == [0, 1, 2]


def test_the_clock_is_monotonic() -> None:
    clock = Clock()
    tracked = tracker(clock, Answering())
    assert tracked.now() == 1000.0
    clock.seconds = 900.0
    assert tracked.now() == 1000.0
    clock.seconds = 1100.0
    assert tracked.now() == 1100.0


def test_a_job_is_found_by_its_handle_in_any_process(tmp_path: Path) -> None:
    first = tracker(Clock(), Answering())
    handle = first.track(tmp_path, "t", "7", submitted=True)
    assert json.loads(handle) == {"job": "7", "tag": "t", "folder": str(tmp_path)}
    assert first.track(tmp_path, "t", "7", submitted=False) == handle
    found = first.find(handle)
    assert found is first.jobs[handle]
    assert found.state.phase.last_seen == 1000.0  # type: ignore[union-attr]
    assert first.open_jobs() == [found]
    other = tracker(Clock(), Answering())
    again = other.find(handle)
    assert again is not None
    assert (again.job.id, again.job.tag, again.job.folder) == ("7", "t", tmp_path)
    assert again.state.phase.last_seen is None  # type: ignore[union-attr]
    assert other.find("no handle") is None


@pytest.mark.parametrize(("by_log", "iterations", "cancelled"), [(True, 4, True), (True, 3, False), (False, 4, False)])
def test_a_job_measured_by_its_log_is_cancelled_after_its_last_iteration(
    by_log: bool, iterations: int, cancelled: bool, tmp_path: Path
) -> None:
    clock = Clock()
    made = tracker(clock, Answering(), measured_by_log=by_log)
    write_object(tmp_path / NOTE, first_note(job(tmp_path), "7"))
    tracked = made.find(made.track(tmp_path, "t", "7", submitted=True))
    assert tracked is not None
    shown = LogProgress(iterations=iterations, number=iterations, interval=1)
    tracked.log = SimpleNamespace(progress=shown)  # type: ignore[assignment]
    asked: list[tuple[TrackedJob, str]] = []
    made.status(tracked, lambda *given: asked.append(given))
    assert asked == ([(tracked, MEASURED)] if cancelled else [])

    def fails(_tracked: TrackedJob, _reason: str) -> None:
        raise LaunchError("not now.")

    status = made.status(tracked, fails)
    assert status.reason == ("not now." if cancelled else "queued")
    assert made.status(None, fails).state is JobState.LOST


def test_nodes_are_excluded_once_and_recorded_beside_the_study(tmp_path: Path) -> None:
    made = tracker(Clock(), Answering(), tmp_path)
    made.exclude({"n1": "down"})
    assert excluded_nodes(tmp_path) == made.excluded == {"n1": "down"}
    (tmp_path / "slurm-excluded.json").unlink()
    made.exclude({"n1": "down again"})
    assert excluded_nodes(tmp_path) == {}
    made.exclude({"n2": "drain"})
    assert excluded_nodes(tmp_path) == {"n1": "down", "n2": "drain"}
    assert tracker(Clock(), Answering(), tmp_path).excluded == {"n1": "down", "n2": "drain"}


def test_the_first_note_has_what_a_later_process_needs(tmp_path: Path) -> None:
    note = first_note(job(tmp_path, nodes=2), "7")
    good = TOPOLOGIES["good"]
    sizes = {"global_batch": WORKLOAD.global_batch, "seq": WORKLOAD.model.seq, "gpus": 2 * good.gpus}
    sizes["microbatches"] = WORKLOAD.global_batch // (2 * good.dp * good.micro_batch)
    assert note == {"tag": "t", "job": "7", "iterations": [3, 4], "nodes": 2, **sizes, "run": note["run"]}


def test_a_submitted_job_is_known_by_its_note_or_its_handle(tmp_path: Path) -> None:
    asked = job(tmp_path)
    handle = json.dumps({"job": "9", "tag": "t"})
    assert submitted_id(asked, handle) == "9"
    assert submitted_id(asked, json.dumps({"job": "9", "tag": "u"})) is None
    assert submitted_id(asked, None) is None
    write_object(tmp_path / NOTE, {"tag": "t", "job": None})
    assert submitted_id(asked, handle) == "9"
    write_object(tmp_path / NOTE, {"tag": "u", "job": 8})
    assert submitted_id(asked, handle) == "9"
    write_object(tmp_path / NOTE, {"tag": "t", "job": 8})
    assert submitted_id(asked, handle) == "8"


# -- stacks


@pytest.mark.parametrize("said", ["", "Thread 1\n"])
def test_stacks_are_the_lines_added_to_stderr_after_the_signal(said: str, tmp_path: Path) -> None:
    clock = Clock()
    commands = Answering(scancel="")
    made = tracker(clock, commands)
    log = tmp_path / "stderr.log"
    log.write_text("before\n")
    tracked = TrackedJob(tmp_path, "t", "7")

    def dumped() -> None:
        if len(clock.pauses) == 2:
            log.write_text("before\n" + said)

    clock.on_sleep = dumped
    found = made.write_stacks(tracked, lambda tracked: f"{tracked.job.id}.5")
    assert commands.sent == ["scancel --quiet --signal=USR1 7.5"]
    if said:
        assert found == f"stacks of its ranks: {tmp_path.name}/stacks.txt"
        assert (tmp_path / "stacks.txt").read_text() == said
        assert clock.pauses == [0.1, 0.1, 0.5]
    else:
        assert found == ""
        assert not (tmp_path / "stacks.txt").exists()
        assert clock.seconds == pytest.approx(1003.5, abs=0.2)
    assert MAX_STACKS_BYTES == 16 * 1024 * 1024


def test_a_users_trainer_is_not_signalled(tmp_path: Path) -> None:
    commands = Answering(scancel="")
    assert tracker(Clock(), commands, measured_by_log=True).write_stacks(TrackedJob(tmp_path, "t", "7"), str) == ""
    assert commands.sent == []


# -- the launcher


@pytest.mark.parametrize(
    ("nodes", "partition", "complaint"),
    [
        (4, "", ""),
        (5, "", "no partition has 5 nodes: gpu has 4 and old has 2; request at most 4 with --nodes"),
        (3, "old", "no partition has 3 nodes: old has 2; request at most 2 with --nodes"),
        (2, "old", ""),
        (4, "old,gpu", ""),
        (1, "new,gpu", "Slurm has no partition new that is up; it has gpu and old"),
    ],
)
def test_the_partition_must_exist_and_be_large_enough(nodes: int, partition: str, complaint: str) -> None:
    made = launcher(Clock(), Answering(sinfo="gpu|up|4\nold|up|2\n"), nodes=nodes, partition=partition)
    if complaint:
        with pytest.raises(InputError, match=complaint):
            made.check()
    else:
        made.check()
    launcher(Clock(), Answering(sinfo=""), nodes=nodes, partition=partition).check()
    with pytest.raises(LaunchError, match="Slurm does not answer"):
        launcher(Clock(), Answering()).check()


def test_a_hang_is_explained_by_failed_nodes_or_else_by_stacks(tmp_path: Path) -> None:
    commands = Answering(sinfo="n1|down*|disk\nn2|idle|none\n", scancel="", sbatch="7\n", squeue="")
    made = launcher(Clock(), commands)
    handle = made.submit(job(tmp_path / "job"))
    tracked = made._tracker.find(handle)
    assert tracked is not None
    assert made.explain(handle) == ""
    assert commands.sent[-1] == "scancel --quiet --signal=USR1 7.0"
    tracked.state = replace(tracked.state, nodes="n[1-2]")
    assert made.explain(handle) == "n1 is down, not responding: disk"
    assert made.excluded == {"n1": "down, not responding: disk"}
    assert made.explain("no handle") == ""


def test_file_checks_become_rarer(tmp_path: Path) -> None:
    """Pauses between file checks grow by a fifth from 0.25 s to 2 s, and end when the queue may be read again."""
    clock = Clock()
    made = launcher(clock, Answering(sbatch="7\n"))
    made.wait(1.0)
    assert clock.pauses == [0.25, 0.3, 0.36, pytest.approx(0.09)]
    made.submit(job(tmp_path / "job"))
    made._interval.due = clock.seconds + 50.0
    clock.pauses.clear()
    made.wait(20.0)
    assert clock.pauses[:3] == pytest.approx([MIN_FILE_INTERVAL, 0.3, 0.36])
    assert max(clock.pauses) == MAX_FILE_INTERVAL
    assert sum(clock.pauses) == pytest.approx(20.0)
    made._interval.due = clock.seconds + 0.1
    clock.pauses.clear()
    made.wait(20.0)
    assert sum(clock.pauses) == pytest.approx(0.1)


def test_open_names_are_those_of_jobs_that_may_still_run() -> None:
    rows = [row("7", state, "", "None", f"tuner-{state}") for state in ("RUNNING", "PENDING", "PREEMPTED", "FAILED")]
    commands = Answering(squeue="\n".join(rows), scancel="")
    assert SlurmQueue(commands).open_names() == {"tuner-RUNNING", "tuner-PENDING", "tuner-PREEMPTED"}
    left = Answering(squeue="\n".join(row("7", "RUNNING", "", "", job_name(tag)) for tag in "ab"), scancel="")
    launcher(Clock(), left).cancel_left(["b", "c"])
    assert left.sent[1:] == [f"scancel --quiet --me --name={job_name('b')}"]


def test_a_note_has_the_nodes_and_sizes_of_a_job(tmp_path: Path) -> None:
    made = launcher(Clock(), Answering(sbatch="7\n"))
    made.submit(job(tmp_path / "job", nodes=2))
    assert read_object(tmp_path / "job" / NOTE)["nodes"] == 2
    plain = job_of(tmp_path)
    assert (plain.iterations, plain.node_count) == ((2,), 1)
    with pytest.raises(LaunchError, match=r"needs 3 nodes, but only 2 nodes can be used"):
        made.submit(job(tmp_path / "large", nodes=3))
    made._unstartable = (2, "why")
    with pytest.raises(LaunchError, match=r"would never start, like an earlier job: why"):
        made.submit(job(tmp_path / "second", nodes=2))
    made.submit(job(tmp_path / "third", nodes=1))


class Changing(Answering):
    """Stand-in commands whose squeue returns the next state of job 7 each time."""

    def __init__(self, *states: str, **answers: str | CommandOutput) -> None:
        super().__init__(**answers)
        self.states = list(states)

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:
        """Return the next state of job 7 for squeue, and otherwise the fixed answer."""
        if command[0] != "squeue":
            return super().run(*command, lock=lock)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        other = row("8", "RUNNING", "", "None", job_name("t"))
        own = row("7", state, "", "None", job_name("t"))
        return CommandOutput(0, f"{other}\n{own}" if state else other, "")


@pytest.mark.parametrize(
    ("states", "pauses"),
    [
        (("RUNNING", "COMPLETING", "CANCELLED"), [0.05, 0.065]),
        (("RUNNING", "PREEMPTED"), [0.05]),
        (("RUNNING", ""), [0.05]),
        (("COMPLETED",), []),
    ],
)
def test_cancel_returns_once_slurm_has_ended_the_job(
    states: tuple[str, ...], pauses: list[float], tmp_path: Path
) -> None:
    clock = Clock()
    commands = Changing(*states, sbatch="7\n", scancel="")
    made = launcher(clock, commands)
    handle = made.submit(job(tmp_path / "job"))
    made.cancel(handle)
    assert clock.pauses == pytest.approx(pauses)
    assert commands.sent.count(f"scancel --quiet --me --name={job_name('t')}") == 1
    assert made.poll([handle])[handle].state is JobState.ENDED
    made.cancel("no handle")


@pytest.mark.parametrize(("state", "ends"), [("COMPLETING", True), ("RUNNING", False)])
def test_a_job_that_is_not_cancelled_within_a_minute_is_an_error(state: str, ends: bool, tmp_path: Path) -> None:
    """A job that is RUNNING a minute after scancel is an error, a COMPLETING one is not; scancel is repeated."""
    clock = Clock()
    commands = Changing(state, sbatch="7\n", scancel=CommandOutput(1, "", "denied"))
    made = launcher(clock, commands)
    handle = made.submit(job(tmp_path / "job"))
    began = clock.seconds
    if ends:
        made.cancel(handle)
    else:
        with pytest.raises(
            LaunchError, match=r"job 7 cannot be cancelled: after 60 s it is still RUNNING \(scancel: denied\)"
        ):
            made.cancel(handle)
    assert 60.0 < clock.seconds - began <= 61.0
    assert max(clock.pauses) == 1.0
    assert len([line for line in commands.sent if line.startswith("scancel")]) == len(clock.pauses) + 1
