"""A job's processes: their stacks, how they are ended, and queries of the GPU driver."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.launch import memory_probe, stacks, supervisor
from tuner.launch.command_line import state_of
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import CommandTemplate, WorkerProgram


@pytest.fixture
def shell() -> Iterator[Callable[..., int]]:
    """A function that starts a shell script, waits until it is ready and returns its pid; all are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *words: str, **environment: str) -> int:
        child = subprocess.Popen(
            ["/bin/sh", "-c", script, *words],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        return child.pid

    yield start
    for child in started:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def test_each_process_is_listed_with_its_rank_state_and_stack(
    shell: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack file lists each live process with its rank, its state and, if available, its stack."""
    monkeypatch.setattr("tuner.launch.stacks.shutil.which", lambda _: None)
    monkeypatch.setattr(stacks, "DUMP_TIMEOUT", 10.0)
    log = tmp_path / "stderr.log"
    log.write_text("before\n")
    dumps = shell(f"trap 'echo File x.py >> {log}' USR1; echo ready; while :; do sleep 0.01; done", OTHER="1", RANK="3")
    silent = shell("printf 'rank 5' > /proc/$$/comm; echo ready; read x")
    stopped = shell("echo ready; kill -STOP $$", "a", "b")
    while state_of(stopped) != "T":
        time.sleep(0.005)
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    file = tmp_path / "stacks.txt"
    count = stacks.write_stacks([dumps, silent, stopped, gone.pid], log, file, lambda pid: pid in (dumps, stopped))
    assert count == 1
    listed = {int(part.split(",")[0].removeprefix("process ")): part for part in file.read_text().split("\n\n")}
    assert set(listed) == {dumps, silent, stopped}
    assert listed[dumps].startswith(f"process {dumps}, rank 3, ")
    assert listed[dumps].rstrip().endswith("\nFile x.py")
    assert listed[silent].startswith(f"process {silent}, rank 5, sleeping: /bin/sh -c printf")
    assert listed[silent].rstrip().endswith("no stack available")
    assert listed[stopped].startswith(
        f"process {stopped}, stopped by a signal: /bin/sh -c echo ready; kill -STOP $$ a b\n"
    )
    assert state_of(gone.pid) is None
    assert (stacks._command(gone.pid), stacks._rank(gone.pid)) == ("", "")
    assert stacks.write_stacks([gone.pid], log, tmp_path / "none.txt", bool) == 0
    assert not (tmp_path / "none.txt").exists()


def test_py_spy_writes_a_stack_if_installed(
    shell: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    pids = [shell("echo ready; read x"), shell("echo ready; read x")]
    assert stacks.write_stacks(pids, tmp_path / "log", tmp_path / "stacks.txt", lambda _: True) == 2
    assert (tmp_path / "stacks.txt").read_text().count(f"\ndump --pid {pids[0]}\n") == 1
    monkeypatch.setattr(stacks, "TOTAL_TIMEOUT", -1.0)
    assert stacks.write_stacks(pids, tmp_path / "log", tmp_path / "stacks.txt", lambda _: True) == 0
    assert (tmp_path / "stacks.txt").read_text().count("no stack available") == 2


def test_a_worker_rank_dumps_on_a_signal_once_it_handles_it(shell: Callable[..., int]) -> None:
    program = WorkerProgram(configure=lambda _: {}, accelerator="cpu")
    assert program.dumps_on_signal(shell("trap : USR1; echo ready; read x", "tuner.worker"))
    assert not program.dumps_on_signal(shell("trap : USR2; trap : HUP; echo ready; read x", "tuner.worker"))
    assert not program.dumps_on_signal(shell("trap : USR1; echo ready; read x", "other"))
    assert not program.dumps_on_signal(2**22 + 1)


def test_a_local_job_is_explained_by_the_stacks_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = CommandTemplate.parse("train", configure=lambda _: {}, cwd=tmp_path)
    launcher = LocalLauncher(program, ranks=1)
    handle = json.dumps({"folder": str(tmp_path), "tag": "t"})
    assert launcher.explain(handle) == ""
    note = {"tag": "t", "keeper": 5, "last": 4, "nodes": 1, "host": socket.gethostname()}
    (tmp_path / "keeper.json").write_text(json.dumps(note))
    asked: list[Any] = []

    def write(pids: set[int], log: Path, to: Path, dumps: Callable[[int], bool]) -> int:
        asked.append((pids, log, to, dumps(1)))
        return 2

    monkeypatch.setattr("tuner.launch.local.launcher.supervisor.members", lambda tag: {7} if tag == "t" else set())
    monkeypatch.setattr("tuner.launch.local.launcher.write_stacks", write)
    assert launcher.explain(handle) == ""
    (tmp_path / "stacks.txt").touch()
    assert launcher.explain(handle) == f"stacks of 2 of its processes: {tmp_path.name}/stacks.txt"
    assert asked == [({7}, tmp_path / "stderr.log", tmp_path / "stacks.txt", False)] * 2


class Ending:
    """Stand-in processes that end at given times, or never, with a clock that advances by the pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **ends: float) -> None:
        self.clock, self.sent = 100.0, list[tuple[float, int, int]]()
        self.ends = {int(pid[1:]): at for pid, at in ends.items()}
        fake = SimpleNamespace(monotonic=lambda: self.clock, sleep=self._sleep)
        monkeypatch.setattr(supervisor, "time", fake)
        monkeypatch.setattr(supervisor, "members", self._members)
        monkeypatch.setattr(supervisor, "_reaped", list)
        monkeypatch.setattr(supervisor, "_signal", lambda pid, sign: self.sent.append((self.clock, pid, sign)))

    def _sleep(self, seconds: float) -> None:
        self.clock = round(self.clock + seconds, 6)

    def _members(self, tag: str, root: int) -> set[int]:
        assert (tag, root) == ("t", os.getpid())
        return {pid for pid, at in self.ends.items() if self.clock < at}


def test_remaining_processes_are_terminated_once_and_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ending(monkeypatch, p5=100.1, p6=100.42)
    assert supervisor._end("t") == []
    asked = [(at, pid) for at, pid, sign in world.sent if sign == signal.SIGTERM]
    killed = [(at, pid) for at, pid, sign in world.sent if sign == signal.SIGKILL]
    assert asked == [(100.0, 5), (100.0, 6)]
    assert killed == [(100.4, 6), (100.41, 6)]


def test_an_unkillable_process_is_given_up_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ending(monkeypatch, p6=1e9, p5=1e9)
    assert supervisor._end("t") == [5, 6]
    assert world.clock == pytest.approx(110.0)
    assert Ending(monkeypatch).sent == []
    assert supervisor._end("t") == []


def test_every_exited_child_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for ends in (iter([(5, 0), (6, 256), (0, 0)]), iter([(5, 0), (6, 256)])):

        def waitpid(pid: int, options: int, ends: Iterator[tuple[int, int]] = ends) -> tuple[int, int]:
            assert (pid, options) == (-1, os.WNOHANG)
            if (found := next(ends, None)) is None:
                raise ChildProcessError
            return found

        monkeypatch.setattr("tuner.launch.supervisor.os.waitpid", waitpid)
        assert supervisor._reaped() == [(5, 0), (6, 256)]


def test_the_child_dies_with_its_supervisor_and_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child gets PR_SET_PDEATHSIG and default signal handlers; options 2 and 37 of prctl read back 1 and 36."""
    found = ctypes.c_int(-1)
    libc = ctypes.CDLL(None)
    try:
        supervisor._prctl(supervisor.PR_SET_PDEATHSIG, signal.SIGURG)
        libc.prctl(2, ctypes.byref(found), 0, 0, 0)
        assert found.value == signal.SIGURG
        supervisor._prctl(supervisor.PR_SET_CHILD_SUBREAPER)
        libc.prctl(37, ctypes.byref(found), 0, 0, 0)
        assert found.value == 1
    finally:
        supervisor._prctl(supervisor.PR_SET_PDEATHSIG, 0)
        supervisor._prctl(supervisor.PR_SET_CHILD_SUBREAPER, 0)
    calls: list[Any] = []
    monkeypatch.setattr(supervisor, "_prctl", lambda *given: calls.append(given))
    monkeypatch.setattr("tuner.launch.supervisor.signal.signal", lambda *given: calls.append(given))
    supervisor._die_with_parent()
    defaults = [(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)]
    assert calls == [(supervisor.PR_SET_PDEATHSIG, signal.SIGKILL), *defaults]


def test_signalling_an_ended_process_is_no_error(shell: Callable[..., int]) -> None:
    pid = shell("echo ready; read x")
    supervisor._signal(pid, signal.SIGSTOP)
    while state_of(pid) != "T":
        time.sleep(0.005)
    supervisor._signal(2**22 + 1, signal.SIGTERM)


def test_the_driver_is_queried_once_and_rows_with_words_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "$#, 7"\necho\necho "5, [N/A]"\necho " 12 "\n')
    program.chmod(0o755)
    monkeypatch.setattr("tuner.launch.memory_probe.shutil.which", lambda name: str(tmp_path / name))
    assert memory_probe._nvidia_smi(("a", "b")) == ["2, 7", "12"]
    program.write_text("#!/bin/sh\necho 5\nexit 1\n")
    assert memory_probe._nvidia_smi(("a",)) == []
    monkeypatch.setattr("tuner.launch.memory_probe.shutil.which", lambda _: None)
    assert memory_probe._nvidia_smi(("a",)) == []
