"""When a supervisor considers its job ended, with a clock and children controlled by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.launch import supervisor


class World:
    """A clock that advances by 0.1 s per poll, with children, input and a result that change at given times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: Path) -> None:
        self.clock, self.result = 100.0, result
        self.exits: list[tuple[float, int, int]] = []
        self.result_at = self.input_at = 1e9
        self.input = b""
        monkeypatch.setattr("tuner.launch.supervisor.time.monotonic", lambda: self.clock)
        monkeypatch.setattr("tuner.launch.supervisor.select.select", self._select)
        monkeypatch.setattr("tuner.launch.supervisor.os.read", lambda *_: self.input)
        monkeypatch.setattr(supervisor, "_reaped", self._reaped)

    def _select(self, read: list[int], write: list[int], failed: list[int], _seconds: float) -> Any:
        assert (read, write, failed) == ([0], [], [])
        self.clock = round(self.clock + 0.1, 6)
        assert self.clock < 110
        if self.clock >= self.result_at:
            self.result.touch()
        return ([0] if self.clock >= self.input_at else []), [], []

    def _reaped(self) -> list[tuple[int, int]]:
        return [(pid, status) for at, pid, status in self.exits if at <= self.clock]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path / "result.json")


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (9, -9)])
def test_a_job_is_over_when_its_child_exits(status: int, code: int, world: World) -> None:
    world.exits = [(100.2, 6, 0), (100.5, 7, status)]
    assert supervisor._watch(7, None, []) == ("exited", code)
    assert world.clock == 100.5


def test_a_job_with_a_result_has_a_quarter_of_a_second_to_exit(world: World) -> None:
    world.result_at = 100.4
    assert supervisor._watch(7, world.result, []) == ("done", None)
    assert world.clock == 100.7
    world.result.unlink()
    world.clock, world.exits = 100.0, [(100.6, 7, 0)]
    assert supervisor._watch(7, world.result, []) == ("exited", 0)


@pytest.mark.parametrize(("text", "why"), [(b"x", "cancelled"), (b"", "abandoned")])
def test_input_from_the_tuner_cancels_and_its_end_abandons(text: bytes, why: str, world: World) -> None:
    world.input_at, world.input = 100.3, text
    assert supervisor._watch(7, None, []) == (why, None)
    assert world.clock == 100.3
    assert supervisor._watch(7, None, [15]) == ("cancelled", None)


def test_a_supervisor_watches_its_child_for_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor passes its child and result file to the watch, and reports a job that cannot start."""
    watched: list[Any] = []
    monkeypatch.setattr(supervisor, "_prctl", lambda *_: None)
    monkeypatch.setattr("tuner.launch.supervisor.signal.signal", lambda *_: None)
    monkeypatch.setattr("tuner.launch.supervisor.subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=41))
    monkeypatch.setattr(supervisor, "_watch", lambda *given: watched.append(given) or ("done", None))  # type: ignore[func-returns-value]
    monkeypatch.setattr(supervisor, "_end", lambda tag: [tag])
    start = {"result": str(tmp_path / "r"), "arguments": ["x"], "cwd": ".", "environment": {}, "tag": "t"}
    (tmp_path / "start.json").write_text(json.dumps(start))
    supervisor.supervise(tmp_path)
    assert watched == [(41, tmp_path / "r", [])]
    ended = json.loads((tmp_path / "ended.json").read_text())
    assert (ended["why"], ended["exit"], ended["left"]) == ("done", None, ["t"])

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(2, "No such file")

    monkeypatch.setattr("tuner.launch.supervisor.subprocess.Popen", refuse)
    supervisor.supervise(tmp_path)
    ended = json.loads((tmp_path / "ended.json").read_text())
    assert (ended["why"], ended["exit"]) == ("not started", None)
    assert "No such file" in ended["said"]


@pytest.mark.parametrize(
    ("parent", "read", "found"), [(9, [b"", b"", b"A=1"], b"A=1"), (9, [b""] * 9, b""), (2, [b"", b"A=1"], b"")]
)
def test_the_environment_of_a_process_that_is_being_loaded_is_awaited(
    parent: int, read: list[bytes], found: bytes
) -> None:
    """Otherwise one scan of 200 misses a process of the job, which then would not be killed."""

    class Process:
        def __truediv__(self, _: str) -> Process:
            return self

        def read_bytes(self) -> bytes:
            return read.pop(0)

    process: Any = Process()
    assert supervisor._environment(process, parent) == found


def test_a_process_of_a_job_has_its_tag_or_descends_from_its_root() -> None:
    """A job's processes have its tag or descend from its root; the root itself counts only if it has the tag."""
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]

    def begun(tag: str) -> tuple[subprocess.Popen[str], int]:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, supervisor.TAG: tag}, start_new_session=True
        )
        assert child.stdout
        return child, int(child.stdout.readline())

    (first, of_first), (second, of_second) = begun("one"), begun("two")
    try:
        assert supervisor.members("one") == {first.pid, of_first}
        assert supervisor.members("none", first.pid) == {of_first}
        assert supervisor.members("two", first.pid) == {second.pid, of_second, of_first}
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert supervisor.members("one") == {of_first}
        assert supervisor.members("none", first.pid) == set()
    finally:
        for child in (first, second):
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
