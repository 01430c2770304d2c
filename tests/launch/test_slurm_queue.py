"""Reading the queue: how often, and the consequences of its answers, with a recorded queue."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.launch.test_slurm import job
from tests.slurm_stage import Acting
from tests.stages import TOPOLOGIES
from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import LaunchError
from tuner.launch.contract import Job, JobState
from tuner.launch.slurm.commands import (
    CommandOutput,
    ControllerUnreachable,
    PollInterval,
    SlurmCommands,
    tuner_environment,
)
from tuner.launch.slurm.job import NOTE
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.parsing import SEPARATOR, printed_job_id, why_never_starts
from tuner.launch.slurm.script import job_name
from tuner.sizing.probes import JobProbe


class Recorded(SlurmCommands):
    """A stand-in queue in which all jobs wait by default; it records the times of its reads."""

    def __init__(self) -> None:
        self.clock = 1000.0
        self.reads: list[float] = []
        self.sent: dict[str, str] = {}
        self.silent = False
        self.states: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.cancels: list[str] = []
        self.nodes: str | None = None
        """Output of `sinfo`; None if it fails."""
        self._numbers = itertools.count(1)

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:  # noqa: ARG002 - nothing is kept open
        if command[0] == "sbatch":
            number = str(next(self._numbers))
            text = Path(command[-1]).read_text()
            self.sent[number] = text.split("--job-name=")[1].split()[0]
            return CommandOutput(0, f"{number}\n", "")
        if command[0] == "squeue":
            self.reads.append(self.clock)
            if self.silent:
                raise ControllerUnreachable("nobody answers")
            lines = [
                SEPARATOR.join((n, self.states.get(n, "PENDING"), "", self.reasons.get(n, "Priority"), sent))
                for n, sent in self.sent.items()
            ]
            return CommandOutput(0, "\n".join(lines), "")
        if command[0] == "sinfo" and self.nodes is not None:
            return CommandOutput(0, self.nodes, "")
        if command[0] == "scancel":
            self.cancels.append(name := command[-1].removeprefix("--name="))
            self.sent = {number: sent for number, sent in self.sent.items() if sent != name}
            return CommandOutput(0, "", "")
        return CommandOutput(1, "", "")

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[SlurmLauncher, Recorded, list[str]]:
    commands = Recorded()
    slurm = SlurmLauncher(Acting(), nodes=4, commands=commands, clock=lambda: commands.clock, sleep=commands.sleep)
    return slurm, commands, [slurm.submit(each) for each in jobs(tmp_path, 4)]


def jobs(folder: Path, count: int) -> list[Job]:
    return [replace(job(str(folder / str(number)), f"t{number}"), number=number) for number in range(count)]


def test_200_queued_jobs_cost_one_query_per_bounded_interval(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    slurm, commands, handles = recorded
    handles += [slurm.submit(each) for each in jobs(tmp_path, 200)[4:]]
    while commands.clock < 1000.0 + 900.0:
        assert {status.state for status in slurm.poll(handles).values()} == {JobState.WAITING}
        slurm.wait(20.0)
    gaps = [after - before for before, after in itertools.pairwise(commands.reads)]
    assert len(commands.reads) == slurm._queue.reads <= 30
    assert min(gaps) >= PollInterval().first - 1e-6
    assert gaps[3:] == sorted(gaps[3:]) or max(gaps) - min(gaps[12:]) < 3.0
    assert 55 <= max(gaps) <= PollInterval().most + 3.0


def test_the_query_interval_grows_and_is_reset_by_a_change() -> None:
    pace, now, gaps = PollInterval(), 0.0, []
    for _ in range(20):
        pace.polled(now, changed=False)
        gaps.append(pace.due - now)
        now = pace.due
    assert gaps == sorted(gaps)
    assert gaps[-1] == pace.most
    pace.reset(now)
    assert pace.due <= now + pace.first
    pace.polled(now, changed=True)
    assert pace.due == now + pace.first


def test_during_an_outage_every_job_is_unknown_and_none_fails(
    recorded: tuple[SlurmLauncher, Recorded, list[str]],
) -> None:
    slurm, commands, handles = recorded
    slurm.poll(handles)
    commands.silent = True
    commands.clock += 100.0
    assert {status.state for status in slurm.poll(handles).values()} == {JobState.UNKNOWN}
    commands.silent = False
    commands.clock += 100.0
    assert {status.state for status in slurm.poll(handles).values()} == {JobState.WAITING}


def test_a_job_missing_from_two_queries_is_lost(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    """A job missing from two consecutive queries is LOST, unless its script reported its end.

    A job id that belongs to another job counts as missing.
    """
    slurm, commands, handles = recorded
    slurm.poll(handles)
    del commands.sent["1"], commands.sent["2"]
    commands.sent["3"] = "tuner-another"
    moments = {"began": 1.0, "ended": 2.0}
    write_object(
        tmp_path / "1/ended.json", {"tag": "t1", "job": "2", "restart": 0, "exit": 5, "signalled": False, **moments}
    )
    states = []
    for _ in range(3):
        commands.clock += 100.0
        found = slurm.poll(handles)
        states.append([found[handle].state.value for handle in handles[:4]])
    assert states[0] == ["WAITING", "ENDED", "WAITING", "WAITING"]
    assert states[-1] == ["LOST", "ENDED", "LOST", "WAITING"]
    assert slurm.collect(handles[1]).failure is not None


def test_a_job_that_can_never_start_is_cancelled(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    """A pending job that can never start is cancelled, and equally large jobs are refused.

    The reason of a running job is outdated and is ignored.
    """
    slurm, commands, handles = recorded
    write_object(tmp_path / "2/began.json", {"tag": "t2", "job": "3", "restart": 0, "began": 1.0, "nodes": "n1"})
    commands.reasons = {"1": "Resources", "2": "PartitionNodeLimit", "3": "PartitionNodeLimit"}
    commands.states["3"] = "RUNNING"
    found = [slurm.poll(handles)[handle].state for handle in handles]
    assert found == [JobState.WAITING, JobState.ENDED, JobState.RUNNING, JobState.WAITING]
    assert commands.cancels == [job_name("t1")]
    result = slurm.collect(handles[1])
    why = why_never_starts("PartitionNodeLimit")
    assert result.failure
    assert (result.failure.kind, result.failure.evidence) == ("Slurm would never start it", why)
    large = replace(job(str(tmp_path / "large"), "large"), number=200)
    with pytest.raises(LaunchError, match=re.escape(f"would never start, like an earlier job: {why}.")):
        slurm.submit(large)
    small = replace(large, topology=replace(large.topology, nodes=large.topology.nodes - 1))
    assert slurm.submit(small)


def test_a_requeued_job_has_not_ended(recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path) -> None:
    """A requeued job is not ended by the files of its first run, and its elapsed time includes both runs."""
    slurm, commands, handles = recorded
    began = {"tag": "t0", "job": "1", "restart": 0, "began": commands.clock, "nodes": "n1"}
    write_object(tmp_path / "0/began.json", began)
    commands.states["1"] = "RUNNING"
    assert slurm.poll(handles)[handles[0]].state is JobState.RUNNING
    commands.states["1"] = "PENDING"
    ended = {**began, "exit": 143, "signalled": True, "ended": commands.clock + 5}
    write_object(tmp_path / "0/ended.json", ended)
    commands.clock += 10.0
    for _ in range(5):
        commands.clock += 10.0
        status = slurm.poll(handles)[handles[0]]
    assert (status.state, status.began) == (JobState.WAITING, None)
    second = {**began, "restart": 1, "began": commands.clock}
    write_object(tmp_path / "0/began.json", second)
    assert slurm.poll(handles)[handles[0]].state is JobState.RUNNING
    last = {**second, "exit": 0, "signalled": False, "ended": commands.clock + 2}
    write_object(tmp_path / "0/ended.json", last)
    assert slurm.poll(handles)[handles[0]].state is JobState.ENDED
    assert slurm.collect(handles[0]).retried == "Slurm requeued it"
    assert slurm.collect(handles[0]).elapsed == 5.0 + 2.0, "its first run had its nodes too"
    later = SlurmLauncher(Acting(), nodes=4, commands=commands)
    assert later.collect(handles[0]) == slurm.collect(handles[0])


@pytest.mark.parametrize("state", ["PENDING", "NODE_FAIL"])
def test_a_suspect_node_is_queried_until_its_state_is_known(
    state: str, recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    """A suspect node is queried until Slurm reports its state, even after the job has ended with its final result."""
    slurm, commands, handles = recorded
    write_object(
        tmp_path / "0/began.json", {"tag": "t0", "job": "1", "restart": 0, "began": commands.clock, "nodes": "n1"}
    )
    for commands.states["1"] in ("RUNNING", state, state):
        commands.clock += 100.0
        slurm.poll(handles)
    assert slurm.excluded == {}
    before = slurm.collect(handles[0]) if state == "NODE_FAIL" else None
    commands.nodes = "n1|down*|Not responding\n"
    commands.clock += 100.0
    slurm.poll(handles)
    assert slurm.excluded == {"n1": "down, not responding: Not responding"}
    assert before is None or slurm.collect(handles[0]) == before


def test_a_job_that_cannot_restart_is_not_judged_by_its_first_run(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    """A requeued job that Slurm fails to restart is reported as such, and the files of its first run do not count."""
    slurm, commands, handles = recorded
    began = {"tag": "t0", "job": "1", "restart": 0, "began": commands.clock, "nodes": "n1"}
    write_object(tmp_path / "0/began.json", began)
    (tmp_path / "0/stdout.log").write_text(" iteration 1/ 2 | elapsed time per iteration (ms): 200.0 |\n")
    for state in ("RUNNING", "PENDING", "FAILED", "FAILED", "FAILED"):
        commands.states["1"] = state
        commands.clock += 10.0
        status = slurm.poll(handles)[handles[0]]
    assert status.state is JobState.ENDED
    failure = slurm.collect(handles[0]).failure
    assert failure is not None
    assert SlurmLauncher(Acting(), nodes=4, commands=commands).collect(handles[0]).failure == failure
    assert "never ran" in failure.kind
    assert "before its script started again" in failure.evidence


class Slow(Recorded):
    """A controller that is unreachable from 1002 to 1012, while the job waits; the job runs from 1015 on."""

    runs: Path
    """Folder of a batch's jobs."""
    cancelled: float | None = None

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:
        if command[0] == "scancel":
            self.states["1"], self.cancelled = "CANCELLED", self.cancelled or self.clock
        return super().run(*command, lock=lock)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.silent = 1002.0 <= self.clock < 1012.0
        if self.clock >= 1015.0 and not self.states:
            self.states["1"] = "RUNNING"
            folder = next(self.runs.iterdir())
            tag = read_object(folder / "slurm.json")["tag"]
            began = {"tag": tag, "job": "1", "restart": 0, "began": self.clock, "nodes": "n1"}
            write_object(folder / "began.json", began)


def test_an_outage_does_not_count_towards_the_time_of_a_batch(tmp_path: Path) -> None:
    """An outage of the controller does not count towards the time limit of a batch."""
    commands = Slow()
    commands.runs = tmp_path / "jobs"
    slurm = SlurmLauncher(Acting(), nodes=4, commands=commands, clock=lambda: commands.clock, sleep=commands.sleep)
    example = job(str(tmp_path))
    probe = JobProbe(
        launcher=slurm,
        workload=example.workload,
        cluster=example.cluster,
        topology=replace(TOPOLOGIES["good"], micro_batch=1),
        folder=commands.runs,
        iterations=(2,),
        timeout=5.0,
        on_host=True,
        on_attempt=lambda _: None,
    )
    assert probe(1).outcome == "TIMED_OUT"
    assert commands.cancelled is not None
    assert 1015.0 + 5.0 <= commands.cancelled < 1015.0 + 5.0 + 2.0


# -- the command


def test_a_missing_slurm_is_a_missing_launcher(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = run("optimize", "--launcher", "slurm", "--nodes", "2", "--runs", str(tmp_path))
    assert said.code == 3
    assert "login node" in said.err


def test_slurm_does_not_default_to_the_simulated_cluster(run: Run, tmp_path: Path) -> None:
    said = run("optimize", "--launcher", "slurm", "--runs", str(tmp_path))
    assert said.code == 2
    assert "--nodes" in said.err


def test_a_site_profile_requires_slurm(run: Run, tmp_path: Path) -> None:
    said = run("optimize", "--slurm-site", "docs/slurm-site.toml", "--runs", str(tmp_path))
    assert said.code == 2
    assert "--launcher slurm" in said.err


def test_variables_of_the_user_do_not_change_slurm_commands() -> None:
    """Variables that change the behaviour of Slurm's commands are removed; those of cluster and credentials stay."""
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "a", "SLURM_JWT": "secret", "PATH": "/bin"}
    options = ("SCANCEL_STATE", "SQUEUE_USERS", "SBATCH_TEST_ONLY", "SACCT_FORMAT", "SINFO_FORMAT", "SLURM_JOB_ID")
    assert tuner_environment({**kept, **dict.fromkeys(options, "x")}) == kept


class AtASite(Recorded):
    """A site whose `sbatch` prints additional lines, or fails after submitting the job."""

    def __init__(self, before: str, after: str, code: int) -> None:
        super().__init__()
        self.before, self.after, self.code = before, after, code

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:
        output = super().run(*command, lock=lock)
        if command[0] == "sbatch":
            return CommandOutput(self.code, f"{self.before}{output.out}{self.after}", "")
        return output


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("Charging account x\n", ""), ("", "See https://site/1\n"), ("42\n", "43\n"), ("Submitted: ", " ok\n")],
)
def test_a_submitted_job_is_found_whatever_sbatch_prints(before: str, after: str, code: int, tmp_path: Path) -> None:
    """A submitted job is found even if sbatch prints more lines or fails, so that no orphan stays in the queue."""
    commands = AtASite(before, after, code)
    slurm = SlurmLauncher(Acting(), nodes=4, commands=commands, clock=lambda: commands.clock, sleep=commands.sleep)
    handle = slurm.submit(job(str(tmp_path / "0"), "t0"))
    assert list(commands.sent) == ["1"]
    assert json.loads(handle)["job"] in (1, "1")


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("17\n", "17"),
        ("17;cluster\n", "17"),
        ("hello\n17\nbye\n", "17"),
        ("Submitted batch job 17\n", "17"),
        ("Submitted batch job 17 on cluster a\n", "17"),
        ("17\n18\n", None),
        ("job 17 is on its way\n", None),
        ("", None),
    ],
)
def test_a_job_id_is_a_line_of_its_own(printed: str, found: str | None) -> None:
    assert printed_job_id(printed) == found


def test_a_later_process_adopts_a_job_by_note_handle_or_name(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    _, commands, handles = recorded
    later = SlurmLauncher(Acting(), nodes=4, commands=commands, clock=lambda: commands.clock, sleep=commands.sleep)
    earlier = jobs(tmp_path, 4)
    notes = [each.folder / NOTE for each in earlier]
    notes[1].unlink()
    notes[2].unlink()
    assert later.adopt(earlier[0], None) == handles[0]
    assert later.adopt(earlier[1], handles[1]) == handles[1]
    assert later.adopt(earlier[2], None) == handles[2]
    assert [read_object(path)["job"] for path in notes[:3]] == ["1", "2", "3"]
    assert later.adopt(replace(earlier[3], tag="another"), handles[2]) is None
    assert len(commands.sent) == 4


def test_a_job_that_left_the_queue_is_adopted_by_its_files(
    recorded: tuple[SlurmLauncher, Recorded, list[str]], tmp_path: Path
) -> None:
    _, commands, handles = recorded
    later = SlurmLauncher(Acting(), nodes=4, commands=commands, clock=lambda: commands.clock, sleep=commands.sleep)
    commands.sent.clear()
    for number, tag in ((0, "t0"), (1, "another")):
        folder = tmp_path / str(number)
        (folder / NOTE).unlink()
        write_object(folder / "ended.json", {"tag": tag, "job": str(number + 1)})
    jobs = [replace(job(str(tmp_path / str(number)), f"t{number}"), number=number) for number in range(2)]
    assert later.adopt(jobs[0], None) == handles[0]
    assert later.adopt(jobs[1], None) is None
