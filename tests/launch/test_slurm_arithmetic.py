"""Commands sent to Slurm and parsing of its answers and of jobs' files, with stand-in commands."""

from __future__ import annotations

import os
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from tuner.core.atomic_write import write_object
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.slurm import states
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.slurm.commands import CommandOutput, ControllerUnreachable, SlurmCommands
from tuner.launch.slurm.job import MEASURED, NEVER_STARTS, SlurmJob, TrackedJob, _cause, _why_rerun
from tuner.launch.slurm.parsing import QUEUE_FORMAT, SEPARATOR
from tuner.launch.slurm.process import ScriptProcess
from tuner.launch.slurm.queue import SlurmQueue
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.slurm.states import EndReport, ScriptExit, ScriptRun, SlurmState


class Answering(SlurmCommands):
    """Stand-in Slurm commands with a fixed answer for each program; they record what is sent."""

    def __init__(self, **answers: str | CommandOutput) -> None:
        self.answers, self.sent = answers, list[str]()

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:  # noqa: ARG002 - nothing is kept open
        """Record the command and return its answer, or raise ControllerUnreachable if it has none."""
        self.sent.append(" ".join(command))
        answer = self.answers.get(command[0])
        if answer is None:
            raise ControllerUnreachable("nobody answers")
        return CommandOutput(0, answer, "") if isinstance(answer, str) else answer


def row(*fields: str) -> str:
    """Return a row of the queue."""
    return SEPARATOR.join(fields)


QUEUE = "\n".join(
    [
        row("7", "RUNNING", "n1", "None", "tuner-a"),
        row("12", "PENDING", "", "Priority", "tuner-a"),
        row("3", "PENDING", "", "Priority", "tuner-b"),
    ]
)


def test_the_queue_is_read_with_one_query() -> None:
    commands = Answering(squeue=QUEUE)
    queue = SlurmQueue(commands)
    assert list(queue.all()) == ["7", "12", "3"]
    assert queue.reads == 1
    assert commands.sent == [f"squeue --me --states=all --noheader --format {QUEUE_FORMAT}"]
    assert queue.one("tuner-a", "12") == queue.all()["12"]
    assert queue.one("tuner-a", "13") is None
    assert commands.sent[1].endswith(" --name=tuner-a")


def test_the_newest_job_of_a_name_has_the_highest_number() -> None:
    """The newest job of a name has the highest number, compared as a number: 12 is newer than 7.

    Accounting is queried only if the queue has no such job.
    """
    assert SlurmQueue(Answering(squeue=QUEUE)).newest("tuner-a").id == "12"  # type: ignore[union-attr]
    rows = "9|tuner-a|COMPLETED|n1\n10|tuner-a|FAILED|n1\n11|tuner-b|FAILED|n1\n"
    commands = Answering(squeue=row("3", "PENDING", "", "", "tuner-b"), sacct=rows)
    assert SlurmQueue(commands).newest("tuner-a").id == "10"  # type: ignore[union-attr]
    wanted = "sacct -n -P -X -o JobID,JobName,State,NodeList --name=tuner-a -S now-30days"
    assert commands.sent[1] == wanted
    assert SlurmQueue(Answering(squeue="", sacct="")).newest("tuner-a") is None


def test_a_job_is_accounted_by_name_and_number() -> None:
    commands = Answering(sacct="9|tuner-a|COMPLETED|n1\n")
    queue = SlurmQueue(commands)
    assert queue.accounted("tuner-a", "9") is not None
    assert commands.sent[0].endswith(" -j 9")
    assert queue.accounted("tuner-b", "9") is None
    assert queue.accounted("tuner-a", "8") is None
    assert SlurmQueue(Answering()).accounted("tuner-a", "9") is None


def test_disabled_accounting_is_not_queried_again() -> None:
    commands = Answering(sacct=CommandOutput(1, "", "Slurm accounting storage is disabled"))
    queue = SlurmQueue(commands)
    assert queue.accounted("tuner-a", "9") is None
    assert queue.accounted("tuner-a", "9") is None
    assert len(commands.sent) == 1
    failing = Answering(sacct=CommandOutput(1, "", "some other error"))
    queue = SlurmQueue(failing)
    assert queue.accounted("tuner-a", "9") is None
    assert queue.accounted("tuner-a", "9") is None
    assert len(failing.sent) == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("JobId=7 JobName=tuner-a ExitCode=3:0 x", 3),
        ("JobId=7 JobName=tuner-a ExitCode=0:9 x", -9),
        ("JobId=7 JobName=tuner-a ExitCode=0:0 x", 0),
        ("JobId=7 JobName=tuner-b ExitCode=3:0 x", None),
        ("JobId=7 JobName=tuner-a x", None),
    ],
)
def test_an_exit_code_is_that_of_the_job_or_its_signal(text: str, code: int | None) -> None:
    commands = Answering(scontrol=text)
    assert SlurmQueue(commands).exit_code("tuner-a", "7") == code
    assert commands.sent == ["scontrol -o show job 7"]
    assert SlurmQueue(Answering()).exit_code("tuner-a", "7") is None


def test_steps_are_found_by_name_and_cancelled_by_number() -> None:
    lines = "\n".join([f"7.0{SEPARATOR}tuner-a", f"7.1{SEPARATOR}tuner-b", f"7.2{SEPARATOR}tuner-a"])
    commands = Answering(squeue=lines, scancel="")
    queue = SlurmQueue(commands)
    assert queue.steps("7", "tuner-a") == ["7.0", "7.2"]
    assert commands.sent == [f"squeue --steps --jobs=7 --noheader --format %i{SEPARATOR}%j"]
    assert queue.cancel_steps("7", "tuner-a") == {"7.0": "", "7.2": ""}
    assert commands.sent[2:] == ["scancel --quiet 7.0", "scancel --quiet 7.2"]
    assert queue.cancel_steps("7", "tuner-c") == {}
    assert queue.cancel("tuner-a") == ""
    assert commands.sent[-1] == "scancel --quiet --me --name=tuner-a"


def test_an_error_of_scancel_is_returned() -> None:
    """A failed scancel is returned as the last line of its stderr, or as its exit code."""
    lines = f"7.0{SEPARATOR}tuner-a"
    refused = CommandOutput(1, "", "site policy\nscancel: error: Access/permission denied\n")
    queue = SlurmQueue(Answering(squeue=lines, scancel=refused))
    assert queue.cancel("tuner-a") == "scancel: error: Access/permission denied"
    assert queue.cancel_steps("7", "tuner-a") == {"7.0": "scancel: error: Access/permission denied"}
    assert SlurmQueue(Answering(scancel=CommandOutput(3, "", ""))).cancel("tuner-a") == "exit code 3"


def test_a_job_unknown_to_slurm_has_no_steps_and_no_nodes() -> None:
    gone = Answering(squeue=CommandOutput(1, "", "slurm_load_jobs error: Invalid job id specified"))
    assert SlurmQueue(gone).steps("7", "a") == []
    assert SlurmQueue(gone).nodes_of("7") == []
    refused = SlurmQueue(Answering(squeue=CommandOutput(1, "", "first\nrefused")))
    with pytest.raises(ControllerUnreachable, match=r"^refused$"):
        refused.steps("7", "a")
    assert refused.nodes_of("7") is None
    assert SlurmQueue(Answering()).nodes_of("7") is None


def test_the_nodes_of_a_job_are_expanded() -> None:
    commands = Answering(squeue="n[1-2]\n", scontrol="n1\nn2\n")
    assert SlurmQueue(commands).nodes_of("7") == ["n1", "n2"]
    assert commands.sent == [
        "squeue --jobs=7 --states=RUNNING,SUSPENDED --noheader --format %N",
        "scontrol show hostnames n[1-2]",
    ]
    assert SlurmQueue(Answering(squeue="\n")).nodes_of("7") == []


def test_failed_nodes_and_partitions_are_queried_with_sinfo() -> None:
    commands = Answering(sinfo="n1|down*|disk\nn2|idle|none\n")
    assert list(SlurmQueue(commands).failed_among("n1,n2") or {}) == ["n1"]
    assert commands.sent == ["sinfo -h -N -n n1,n2 -o %N|%T|%E"]
    assert SlurmQueue(Answering()).failed_among("n1") is None
    commands = Answering(sinfo="gpu|up|4\nold|down|9\n")
    assert SlurmQueue(commands).partitions() == {"gpu": 4}
    assert commands.sent == ["sinfo -h -o %R|%a|%D"]


@pytest.mark.parametrize(
    ("text", "cores"), [("64", 64), ("64(x2),32", 32), ("8(x16)", 8), ("", None), ("16,64(x3)", 16)]
)
def test_an_allocation_has_the_cores_of_its_smallest_node(text: str, cores: int | None) -> None:
    commands = Answering(scontrol="n1\nn2\n")
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    found = Allocation.current(given | ({"SLURM_JOB_CPUS_PER_NODE": text} if text else {}), commands)
    assert (found.number, found.nodes, found.cores) == ("7", ("n1", "n2"), cores)
    assert commands.sent == ["scontrol show hostnames n[1-2]"]
    with pytest.raises(LaunchError, match=r"has 3 nodes, but .* names 2"):
        Allocation.current(given | {"SLURM_JOB_NUM_NODES": "3"}, commands)


@pytest.mark.parametrize(
    ("exclude", "nodelist", "nodes"),
    [
        ((), "", ("n1", "n2", "n3")),
        (("n2",), "", ("n1", "n3")),
        (("n2", "n9"), "", ("n1", "n3")),
        (("n3",), "n1,n2", ("n1", "n2")),
        ((), "n1,n2,n3,n4", ("n1", "n2", "n3")),
        ((), "n1,n2", None),
    ],
)
def test_a_site_excludes_nodes_of_an_allocation_or_must_name_them(
    exclude: tuple[str, ...], nodelist: str, nodes: tuple[str, ...] | None
) -> None:
    class Naming(Answering):
        def run(self, *command: str, lock: int | None = None) -> CommandOutput:  # noqa: ARG002
            return CommandOutput(0, command[-1].replace(",", "\n"), "")

    allocation = Allocation(number="7", nodes=("n1", "n2", "n3"), cores=None)
    site = SiteProfile(exclude=exclude, nodelist=nodelist)
    if nodes is None:
        with pytest.raises(InputError, match="allocation 7 has n3, which nodelist = 'n1,n2'"):
            allocation.nodes_by_site(site, Naming())
    else:
        assert allocation.nodes_by_site(site, Naming()) == nodes


# -- processes


def test_a_script_is_found_by_its_command_line() -> None:
    own = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    here = ScriptProcess(pid=os.getpid(), host=gethostname(), nodes=("n1",), child=False)
    assert here.alive(Path(own))
    elsewhere = ScriptProcess(pid=os.getpid(), host="elsewhere", nodes=(), child=False)
    assert not elsewhere.alive(Path(own))
    assert ScriptProcess.of(here.document()) == here
    assert ScriptProcess.of({"pid": "x", "host": "h", "nodes": []}) is None
    assert ScriptProcess.of(None) is None


@pytest.mark.parametrize(("answer", "alive"), [((0, 0), True), ((5, 0), False), (None, False)])
def test_a_child_is_alive_until_it_can_be_reaped(
    answer: tuple[int, int] | None, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waitpid(_pid: int, _options: int) -> tuple[int, int]:
        if answer is None:
            raise ChildProcessError
        return answer

    monkeypatch.setattr("tuner.launch.slurm.process.os.waitpid", waitpid)
    assert ScriptProcess(pid=5, host="", nodes=(), child=True).alive(Path("x")) is alive


def test_a_script_without_a_note_is_found_by_its_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without a note is found by its tag and file, with the nodes of its environment."""
    monkeypatch.setattr("tuner.launch.supervisor.members", lambda tag: {os.getpid(), 2**22} if tag == "t" else set())
    monkeypatch.setattr("tuner.launch.slurm.process.runs", lambda pid, file: file == tmp_path and pid < 2**22)
    environment = Path("/proc/self/environ").read_bytes()
    monkeypatch.setattr(Path, "read_bytes", lambda _: environment + b"\0SLURM_JOB_NODELIST=n1,n2\0")
    found = ScriptProcess.found("t", tmp_path)
    assert found == ScriptProcess(pid=os.getpid(), host=gethostname(), nodes=("n1", "n2"), child=False)
    assert ScriptProcess.found("u", tmp_path) is None
    assert ScriptProcess.found("t", tmp_path / "other") is None


# -- a job's files


def job_of(folder: Path, **fields: Any) -> SlurmJob:
    """Return job 7 with the tag t."""
    usual: dict[str, Any] = {"id": "7", "tag": "t", "folder": folder}
    return SlurmJob(**usual | fields)


OWN: dict[str, Any] = {"tag": "t", "job": "7", "restart": 1, "began": 100}


def test_the_files_of_a_script_have_its_times_and_exit_code(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert job.files(500.0) == states.ScriptFiles(now=500.0, run=None, exit=None)
    write_object(tmp_path / "began.json", {**OWN, "nodes": "n1,n2"})
    write_object(tmp_path / "ended.json", {**OWN, "ended": 130.5, "exit": 3, "signalled": True})
    assert job.files(500.0) == states.ScriptFiles(
        now=500.0,
        run=ScriptRun(restart=1, began=100.0, nodes="n1,n2"),
        exit=ScriptExit(restart=1, began=100.0, ended=130.5, code=3, signalled=True),
    )
    write_object(tmp_path / "ended.json", OWN)
    assert job.files(500.0).exit == ScriptExit(restart=1, began=100.0, ended=500.0, code=None, signalled=False)


@pytest.mark.parametrize(
    "change", [{"tag": "u"}, {"job": "8"}, {"restart": "1"}, {"restart": None}, {"began": "x"}, {"began": None}]
)
def test_a_file_of_another_job_or_a_truncated_one_is_ignored(change: dict[str, Any], tmp_path: Path) -> None:
    write_object(tmp_path / "began.json", OWN | change)
    assert job_of(tmp_path).files(500.0).run is None


def test_a_note_is_stored_by_tag_and_number(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.record({"a": 1})
    job.record({"b": 2})
    assert job.note() == {"tag": "t", "job": "7", "a": 1, "b": 2}
    assert job_of(tmp_path, tag="u").note() == {}
    assert job_of(tmp_path, id="8").note() == {}
    write_object(tmp_path / "slurm.json", {"tag": "t", "job": None, "c": 3})
    assert job_of(tmp_path, id="8").note()["c"] == 3


def test_a_tracked_job_follows_from_its_note(tmp_path: Path) -> None:
    note = {
        "iterations": [3, 4],
        "nodes": 2,
        "global_batch": 64,
        "stale": 1,
        "spent": 40.0,
        "failed": "n3",
        "step": True,
    }
    job_of(tmp_path).record(note)
    tracked = TrackedJob(tmp_path, "t", "7", last_seen_waiting=5.0)
    job, state = tracked.job, tracked.state
    assert (job.iterations, job.node_count, job.size.global_batch, job.step) == ((3, 4), 2, 64, True)
    assert (state.last_requeued, state.earlier_seconds, state.failed_nodes) == (1, 40.0, "n3")
    assert state.requeueable is False
    assert isinstance(state.phase, states.Waiting)
    assert state.phase.last_seen == 5.0
    plain = TrackedJob(tmp_path / "none", "t", "7")
    assert (plain.job.iterations, plain.job.node_count, plain.job.size.global_batch) == ((2,), 1, None)
    assert (plain.state.last_requeued, plain.state.earlier_seconds, plain.state.requeueable) == (-1, 0.0, True)


def test_files_mark_each_step_of_a_job(tmp_path: Path) -> None:
    tracked = TrackedJob(tmp_path, "t", "7", last_seen_waiting=5.0)
    assert tracked.file_marks() == (0, 0)
    write_object(tmp_path / "began.json", {**OWN, "restart": 0})
    assert tracked.file_marks() == (0, 1)
    assert tracked.read_files(200.0) is True
    assert tracked.read_files(201.0) is False
    assert tracked.file_marks() == (0, 0)
    (tmp_path / "stdout.log").write_text("abc")
    (tmp_path / "stderr.log").write_text("de")
    assert tracked.file_marks() == (5, 0)
    (tmp_path / "result.json").write_text("{}")
    assert tracked.file_marks() == (5, 1)
    write_object(tmp_path / "ended.json", {**OWN, "restart": 0, "exit": 0})
    assert tracked.file_marks() == (5, 2)
    assert tracked.read_files(202.0) is True


WAITING = states.Waiting(last_seen=None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"last_requeued": 0}, "Slurm requeued it"),
        ({"last_requeued": 0, "failed_nodes": "n1"}, "n1 failed"),
        ({"failed_nodes": "n1"}, ""),
    ],
)
def test_a_rerun_names_the_failed_nodes(fields: dict[str, Any], words: str) -> None:
    assert _why_rerun(SlurmState(phase=WAITING, **fields)) == words


def ended(state: str, **fields: Any) -> SlurmState:
    """Return the state of a job whose end Slurm reported."""
    report = EndReport(state=state, reason="", at=9.0, began=None, exit_code=None)
    return SlurmState(phase=states.Ended(report=report), **fields)


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (ended("TIMEOUT"), (Outcome.TIMED_OUT, "the job reached its time limit")),
        (ended("DEADLINE"), (Outcome.TIMED_OUT, "the job reached its deadline")),
        (ended("PREEMPTED"), (Outcome.PREEMPTED, "the job was preempted")),
        (ended("NODE_FAIL"), (Outcome.CRASHED, "a node failed")),
        (ended("BOOT_FAIL"), (Outcome.CRASHED, "a node failed")),
        (ended("CANCELLED"), (Outcome.CANCELLED, "cancelled from outside")),
        (ended(states.ALLOCATION_ENDED), (Outcome.CANCELLED, "its allocation ended")),
        (ended(states.SCRIPT_KILLED), (Outcome.CRASHED, "killed from outside")),
        (ended("COMPLETED", cancel_reason=MEASURED), None),
        (ended("COMPLETED", cancel_reason="cancelled"), (Outcome.CANCELLED, "cancelled")),
        (
            ended("COMPLETED", cancel_reason=f"{NEVER_STARTS}no nodes"),
            (Outcome.CANCELLED, "Slurm would never start it"),
        ),
    ],
)
def test_some_ends_are_known_to_slurm_but_not_from_the_logs(
    state: SlurmState, cause: tuple[Outcome, str] | None, tmp_path: Path
) -> None:
    found = _cause(job_of(tmp_path), state, None, on_host=False)
    assert (found and found[:2]) == cause


@pytest.mark.parametrize(("on_host", "outcome"), [(True, Outcome.OOM), (False, Outcome.CRASHED)])
def test_host_memory_counts_against_the_job_only_with_cpu_ranks(
    on_host: bool, outcome: Outcome, tmp_path: Path
) -> None:
    found = _cause(job_of(tmp_path), ended("OUT_OF_MEMORY"), None, on_host=on_host)
    assert found is not None
    assert found[0] is outcome
