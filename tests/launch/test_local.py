"""The local launcher with real processes: failures are reported quickly, and no process is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.disks import small_disk
from tests.stages import TRAINER, job_in, template
from tuner.core.errors import LaunchError, MissingDependency
from tuner.core.outcomes import Outcome
from tuner.launch import Job, JobResult, JobState
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.machine import check_jobs_can_run
from tuner.launch.program import CommandTemplate
from tuner.launch.supervisor import TAG, members


def job(folder: Path, number: int = 0) -> Job:
    return job_in(folder / f"{number:04d}", number=number, tag=f"tag-{os.getpid()}-{time.monotonic_ns()}")


@contextmanager
def launched(program: CommandTemplate, one: Job) -> Iterator[tuple[LocalLauncher, str]]:
    launcher = LocalLauncher(program, ranks=8)
    try:
        yield launcher, launcher.submit(one)
    finally:
        launcher.close()
        assert processes(one) == set()


def processes(one: Job) -> set[int]:
    """Return the processes with the job's tag, and those in the session or group of its keeper."""
    found = members(one.tag)
    noted = json.loads((one.folder / "keeper.json").read_text()) if (one.folder / "keeper.json").exists() else {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] != "Z" and noted.get("keeper") in (int(words[2]), int(words[3])):
            found.add(int(entry.parent.name))
    return found


def until(met: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition is met."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_a_job_without_an_iteration_is_timed_from_its_start(tmp_path: Path) -> None:
    with launched(template("hang"), job(tmp_path)) as (launcher, handle):
        until(lambda: launcher.poll([handle])[handle].seconds_in > 0)
        status, now = launcher.poll([handle])[handle], launcher.now()
        assert status.iterations == 0
        assert status.began is not None
        assert 0 < status.seconds_in <= now - status.began


def ended(launcher: LocalLauncher, handle: str, seconds: float = 60.0) -> JobResult:
    def over() -> bool:
        launcher.wait(0.2)
        return launcher.poll([handle])[handle].state is JobState.ENDED

    until(over, seconds)
    return launcher.collect(handle)


def printed(one: Job, number: int = 1) -> bool:
    path = one.folder / "stdout.log"
    return path.exists() and f"iteration {number:8d}/" in path.read_text()


FAILURES: dict[str, tuple[Outcome, str, str]] = {
    "oom": (Outcome.OOM, "a GPU ran out of memory", "torch.OutOfMemoryError: CUDA out of memory."),
    "crash": (Outcome.CRASHED, "an exception ended a rank", "ValueError: the shards do not add up"),
    "killed": (Outcome.CRASHED, "killed from outside", "ended by SIGKILL"),
    "memory": (Outcome.CRASHED, "the host ran out of memory", "MemoryError"),
    "disk": (Outcome.CRASHED, "the disk is full", "OSError: [Errno 28] No space left on device"),
    "missing": (Outcome.CRASHED, "a dependency is missing", "ModuleNotFoundError: No module named 'apex_of_tomorrow'"),
    "refused": (Outcome.CRASHED, "DeepSpeed refused the configuration", "AssertionError: ZeRO-2 and ZeRO-3 are"),
    "communication": (Outcome.CRASHED, "NCCL or gloo failed", "torch.distributed.DistBackendError: NCCL error in"),
    "nan": (Outcome.CRASHED, "the loss is not a number", "iteration 2/ 1000 | consumed samples: 128 |"),
    "late": (Outcome.TIMED_OUT, "its time limit expired", "exit code 124"),
    "empty": (Outcome.UNREADABLE, "no iteration could be measured", "it printed nothing"),
}
"""For each behaviour: the outcome, its meaning, and the start of the evidence."""


@pytest.mark.parametrize("behaviour", FAILURES)
def test_a_failure_is_reported_at_once_with_its_kind_and_line(behaviour: str, tmp_path: Path) -> None:
    one = job(tmp_path)
    with launched(template(behaviour), one) as (launcher, handle):
        keeper = json.loads((one.folder / "keeper.json").read_text())["keeper"]
        until(lambda: launcher.poll([handle]) and not alive(keeper))
        assert launcher.poll([handle])[handle].state is JobState.ENDED
        result = launcher.collect(handle)
        outcome, meaning, evidence = FAILURES[behaviour]
        assert result.outcome is outcome
        assert result.measurement is None
        assert result.failure is not None
        assert (result.failure.kind, result.failure.meaning) == (outcome.value, meaning)
        assert result.failure.evidence.startswith(evidence)
        assert processes(one) == set()


def test_out_of_host_memory_counts_against_a_topology_with_cpu_ranks(tmp_path: Path) -> None:
    with launched(template("memory", on_host=True), job(tmp_path)) as (launcher, handle):
        assert ended(launcher, handle).outcome is Outcome.OOM


def test_a_harmless_line_about_errors_is_no_failure(tmp_path: Path) -> None:
    with launched(template("harmless"), job(tmp_path)) as (launcher, handle):
        result = ended(launcher, handle)
        assert result.outcome is Outcome.MEASURED
        assert result.measurement is not None
        assert result.measurement.seconds == 0.05


def test_a_full_disk_is_reported_without_space_for_the_log(tmp_path: Path) -> None:
    """A full disk is reported even if the job's folder is on it, because the keeper reserves space for its report."""
    with small_disk(tmp_path / "disk", "256k") as disk, launched(template("fill"), job(disk)) as (launcher, handle):
        result = ended(launcher, handle)
        assert result.outcome is Outcome.CRASHED
        assert result.failure is not None
        assert result.failure.meaning == "the disk is full"
        assert result.failure.evidence


def test_a_missing_program_is_a_crash_with_an_explanation(tmp_path: Path) -> None:
    program = CommandTemplate.parse("no-such-trainer --tp {tp}", configure=lambda _: {}, cwd=tmp_path)
    with launched(program, job(tmp_path)) as (launcher, handle):
        failure = ended(launcher, handle).failure
        assert failure is not None
        assert failure.meaning == "it could not start"
        assert "no-such-trainer" in failure.evidence


def test_a_trainer_is_ended_once_its_iterations_are_measured(tmp_path: Path) -> None:
    """A trainer that never ends by itself is ended with all its processes."""
    one = job(tmp_path)
    with launched(template("endless"), one) as (launcher, handle):
        result = ended(launcher, handle)
        assert processes(one) == set()
        assert result.outcome is Outcome.MEASURED
        assert result.measurement is not None
        assert result.measurement.iterations == (2,)


@pytest.mark.slow
def test_a_job_with_a_very_fast_log_is_measured_without_slow_polls(tmp_path: Path) -> None:
    """A job with a very fast log is measured, and polls stay fast because each reads a bounded part of the log."""
    one, states = job(tmp_path), list[JobState]()
    with launched(template("flood"), one) as (launcher, handle):

        def over() -> bool:
            states.append(launcher.poll([handle])[handle].state)
            return states[-1] is JobState.ENDED

        until(over, 120.0)
        result = launcher.collect(handle)
    assert result.outcome is Outcome.MEASURED
    assert (one.folder / "stdout.log").stat().st_size > 100_000_000
    assert states.count(JobState.RUNNING) > 2


@pytest.mark.parametrize("behaviour", ["deaf", "daemon", "bare"])
def test_cancelling_ends_all_processes_of_a_job(behaviour: str, tmp_path: Path) -> None:
    """Cancelling ends all processes of a job: those that ignore SIGTERM, daemons, and those without the job's tag."""
    one = job(tmp_path)
    with launched(template(behaviour), one) as (launcher, handle):
        keeper = json.loads((one.folder / "keeper.json").read_text())["keeper"]
        until(lambda: printed(one))
        mine = members(one.tag, keeper)
        assert len(mine) >= (1 if behaviour == "deaf" else 2)
        launcher.cancel(handle)
        assert not [pid for pid in mine if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("behaviour", ["hang", "daemon"])
def test_a_killed_keeper_takes_its_job_with_it(behaviour: str, tmp_path: Path) -> None:
    one = job(tmp_path)
    with launched(template(behaviour), one) as (launcher, handle):
        until(lambda: printed(one))
        os.kill(json.loads((one.folder / "keeper.json").read_text())["keeper"], signal.SIGKILL)
        result = ended(launcher, handle)
        assert processes(one) == set()
        if behaviour == "hang":
            assert result.outcome is Outcome.CRASHED
            assert result.failure is not None
            assert result.failure.meaning == "killed from outside"


WATCHES = """
import sys, time
from pathlib import Path
from statistics import median
from tests.stages import template
from tests.launch.test_local import job
from tuner.launch.local.launcher import LocalLauncher
launcher = LocalLauncher(template(sys.argv[2]), ranks=8)
one = job(Path(sys.argv[1]))
handle = launcher.submit(one)
print(one.tag, flush=True)
print(handle, flush=True)
time.sleep(600)
"""
"""A minimal tuner: it launches one job and waits."""


@pytest.mark.parametrize("behaviour", ["hang", "deaf", "daemon", "bare"])
def test_a_killed_tuner_takes_its_jobs_with_it(behaviour: str, tmp_path: Path) -> None:
    """When the tuner is killed, its jobs end, and the next tuner adopts those already measured."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    measured = behaviour in ("daemon", "bare")
    with subprocess.Popen(
        [sys.executable, "-c", WATCHES, str(tmp_path), behaviour], stdout=subprocess.PIPE, env=environment, text=True
    ) as tuner:
        assert tuner.stdout
        tag, handle = tuner.stdout.readline().strip(), tuner.stdout.readline().strip()
        one = replace(job(tmp_path), tag=tag)
        until(lambda: printed(one, 2 if measured else 1))
        keeper = json.loads((one.folder / "keeper.json").read_text())["keeper"]
        mine = {*members(tag, keeper), keeper}
        tuner.send_signal(signal.SIGKILL)
        until(lambda: not [pid for pid in mine if alive(pid)])
        assert processes(one) == set()
    other = LocalLauncher(template(behaviour), ranks=8)
    try:
        adopted = other.adopt(one, handle)
        assert (adopted is not None) == measured
    finally:
        other.close()


def test_a_reused_pid_is_not_mistaken_for_a_keeper(tmp_path: Path) -> None:
    """If a keeper's pid now belongs to another process, the job is not adopted and that process is not killed."""
    one = job(tmp_path)
    one.folder.mkdir()
    with subprocess.Popen([sys.executable, "-I", "-S", str(TRAINER), "hang"], stdout=subprocess.DEVNULL) as stranger:
        noted = {"tag": one.tag, "keeper": stranger.pid, "last": 2, "nodes": 1, "host": os.uname().nodename}
        (one.folder / "keeper.json").write_text(json.dumps(noted))
        launcher = LocalLauncher(template("good"), ranks=8)
        assert launcher.adopt(one, None) is None
        launcher.close()
        assert stranger.poll() is None
        stranger.kill()


def test_two_tuners_on_one_machine_do_not_interfere(tmp_path: Path) -> None:
    first, second = job(tmp_path / "a"), job(tmp_path / "b")
    with launched(template("hang"), first) as (one, hanging), launched(template("good"), second) as (other, handle):
        until(lambda: printed(first))
        assert ended(other, handle).outcome is Outcome.MEASURED
        assert one.poll([hanging])[hanging].state is JobState.RUNNING
        other.close()
        assert one.poll([hanging])[hanging].state is JobState.RUNNING


def test_jobs_of_one_study_never_share_a_machine(tmp_path: Path) -> None:
    """The job of a second tuner waits until the first tuner's job has ended."""
    first, second = job(tmp_path, 0), job(tmp_path, 1)
    with launched(template("hang"), first) as (one, hanging):
        other = LocalLauncher(template("good"), ranks=8)
        handle = other.submit(second)
        until(lambda: printed(first))
        status = other.poll([handle])[handle]
        assert (status.state, status.reason) == (JobState.WAITING, "1 node in use")
        one.cancel(hanging)
        assert ended(other, handle).outcome is Outcome.MEASURED
        other.close()


def test_an_unfinished_job_of_another_tuner_blocks_nothing(tmp_path: Path) -> None:
    """An unfinished job of a dead keeper, whose pid may have been reused, does not block other jobs."""
    left, second = job(tmp_path, 0), job(tmp_path, 1)
    left.folder.mkdir(parents=True)
    for keeper, host in ((os.getpid(), os.uname().nodename), (1, "elsewhere")):
        noted = {"tag": left.tag, "keeper": keeper, "last": 2, "nodes": 1, "host": host}
        (left.folder / "keeper.json").write_text(json.dumps(noted))
        with launched(template("good"), second) as (launcher, handle):
            assert launcher.poll([handle])[handle].state is not JobState.WAITING
            assert ended(launcher, handle).outcome is Outcome.MEASURED


def test_other_children_of_the_tuner_are_not_reaped(tmp_path: Path) -> None:
    """The launcher reaps only its keepers, so that other children of the process keep their exit codes."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(7)"]) as child:
        time.sleep(0.3)
        with launched(template("good"), job(tmp_path)) as (launcher, handle):
            ended(launcher, handle)
        assert child.wait() == 7


@pytest.mark.parametrize(("nodes", "ranks", "usable"), [(1, 1, "1 rank"), (1, 4, "4 ranks"), (2, 3, "6 ranks")])
def test_a_job_with_too_many_ranks_is_refused(nodes: int, ranks: int, usable: str, tmp_path: Path) -> None:
    launcher = LocalLauncher(template("good"), ranks=ranks, nodes=nodes)
    with pytest.raises(LaunchError, match=rf"needs 8 ranks, but only {usable} can be used\."):
        launcher.submit(job(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_environment_that_affects_a_job_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's folder records variables such as NCCL_DEBUG, but no variable that may be a secret."""
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    for name in ("HUB_TOKEN", "SLURM_JWT", "DS_API_TOKEN", "TORCH_HUB_TOKEN", "NCCL_PASSWORD", "CUDA_KEY"):
        monkeypatch.setenv(name, "secret")
    one = job(tmp_path)
    with launched(template("good"), one):
        text = (one.folder / "start.json").read_text()
        assert json.loads(text)["found"]["NCCL_DEBUG"] == "WARN"
        assert "secret" not in text
        assert stat.S_IMODE((one.folder / "start.json").stat().st_mode) == 0o600
        assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700


def test_every_process_of_a_job_has_its_tag(tmp_path: Path) -> None:
    one = job(tmp_path)
    with launched(template("daemon"), one):
        until(lambda: printed(one, 2))
        for pid in members(one.tag):
            assert f"{TAG}={one.tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes()


# -- the user's own command


def test_jobs_without_torch_or_deepspeed_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launch.machine.find_spec", lambda name: None if name == "deepspeed" else object())
    with pytest.raises(MissingDependency, match="jobs need deepspeed: pip install") as refused:
        check_jobs_can_run()
    assert refused.value.exit_code == 3
    assert re.fullmatch(r"[^\n]+\.", str(refused.value))


def test_a_study_with_two_paths_does_not_share_a_machine(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    with launched(template("hang"), job(real, 0)) as (one, hanging):
        other = LocalLauncher(template("good"), ranks=8)
        handle = other.submit(job(link, 1))
        assert other.poll([handle])[handle].state is JobState.WAITING
        one.cancel(hanging)
        assert ended(other, handle).outcome is Outcome.MEASURED
        other.close()


def test_a_waiting_job_without_its_folder_is_lost(tmp_path: Path) -> None:
    first, second = job(tmp_path / "a", 0), job(tmp_path / "b", 1)
    with launched(template("hang"), first) as (launcher, _):
        handle = launcher.submit(second)
        assert launcher.poll([handle])[handle].state is JobState.WAITING
        shutil.rmtree(tmp_path / "b")
        assert launcher.poll([handle])[handle].state is JobState.LOST
