"""The worker's programs with their calls replaced: one rank, all ranks, and the probe."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_ranks_arithmetic import Clock, half, ignored
from tests.worker.test_worker_arithmetic import torch
from tests.workers import ENVIRONMENT, ONE, WORKLOAD, assign, topology
from tuner.worker import __main__ as program
from tuner.worker import probe, ranks, train


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An isolated environment, without the signal handlers and stack dumps that a rank registers."""
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("OMPI")}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr("tuner.worker.__main__.signal.signal", ignored)
    monkeypatch.setattr("tuner.worker.__main__.faulthandler.enable", ignored)
    monkeypatch.setattr("tuner.worker.__main__.faulthandler.register", ignored)
    return environment


def test_a_rank_trains_its_assignment(
    mine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 0 after training, 2 with a wrong number of ranks; torchrun's variables precede MPI's."""
    trained: list[Any] = []
    monkeypatch.setattr(train, "train", trained.append)
    assign(tmp_path, WORKLOAD, ONE)
    arguments = ["--job", str(tmp_path / "job.json")]
    assert program.main(arguments) == 0
    assert [assignment.topology for assignment in trained] == [ONE]
    mine |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    assert program.main(arguments) == 2
    assert "= 1 is not the number of ranks that were started, which is 2." in capsys.readouterr().err
    assert {name: mine[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK")} == {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "0",
    }
    mine["WORLD_SIZE"] = "1"
    assert program.main(arguments) == 0
    assert len(trained) == 2


def test_a_failed_rank_exits_with_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    left: list[int] = []
    leave: Any = program.leave
    monkeypatch.setattr("tuner.worker.__main__.os._exit", left.append)
    monkeypatch.setattr(program, "main", lambda _: 3)
    leave([])
    monkeypatch.setattr(program, "main", lambda _: 1 / 0)
    leave([])
    assert left == [3, 1]
    assert "ZeroDivisionError" in capsys.readouterr().err


class Ranks:
    """Ranks 10, 11 and 12 that end with the given statuses; a signal ends those that do not ignore it."""

    def __init__(self, statuses: dict[int, int], stubborn: bool = False) -> None:
        self.statuses, self.stubborn = statuses, stubborn
        self.signals: list[tuple[int, int]] = []

    def waitpid(self, pid: int, _options: int) -> tuple[int, int]:
        """Return whether the rank has ended, and its status."""
        return (pid, self.statuses.pop(pid)) if pid in self.statuses else (0, 0)

    def kill(self, pid: int, number: int) -> None:
        """Record the signal."""
        self.signals.append((pid, number))
        if number == signal.SIGKILL or not self.stubborn:
            self.statuses[pid] = number


@pytest.mark.parametrize(
    ("statuses", "code", "message"),
    [
        ({10: 0, 11: 0, 12: 0}, 0, ""),
        ({12: 3 << 8}, 3, "worker: rank 2 failed with exit code 3\n"),
        ({11: 9}, 137, "worker: rank 1 was killed by signal 9\n"),
        ({10: 1 << 8, 11: 9}, 137, "worker: rank 1 was killed by signal 9\n"),
    ],
)
def test_the_first_failure_is_the_exit_code_and_ends_the_others(
    statuses: dict[int, int],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in a shell, signal N gives exit code 128 + N; the other ranks get SIGTERM."""
    found = Ranks(dict(statuses))
    monkeypatch.setattr("tuner.worker.ranks.os.waitpid", found.waitpid)
    monkeypatch.setattr("tuner.worker.ranks.os.kill", found.kill)
    others = [] if not code else sorted({10, 11, 12} - set(statuses))
    assert ranks._wait([10, 11, 12]) == code
    assert sorted(found.signals) == [(pid, signal.SIGTERM) for pid in others]
    assert capsys.readouterr().err == message


def test_ranks_that_ignore_sigterm_are_killed_after_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are killed one second after the first failure."""
    found, naps = Ranks({10: 1 << 8}, stubborn=True), []
    clock = {"now": 50.0}

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        clock["now"] += 0.25
        assert len(naps) < 50

    monkeypatch.setattr("tuner.worker.ranks.os.waitpid", found.waitpid)
    monkeypatch.setattr("tuner.worker.ranks.os.kill", found.kill)
    monkeypatch.setattr("tuner.worker.ranks.time.monotonic", lambda: clock["now"])
    monkeypatch.setattr("tuner.worker.ranks.time.sleep", sleep)
    assert ranks._wait([10, 11]) == 1
    assert found.signals == [(11, signal.SIGTERM), (11, signal.SIGKILL)]
    assert clock["now"] == 51.5


@pytest.mark.parametrize(("device", "forked"), [("cpu", True), ("cuda", False)])
def test_every_rank_is_started_with_its_number_and_a_common_port(
    device: str, forked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []

    def start(job: Path, rank: int, size: int, port: int, *, forked: bool) -> int:
        started.append((job, rank, size, port, forked))
        return 100 + rank

    assign(tmp_path, WORKLOAD, topology(tp=2))
    path = tmp_path / "job.json"
    monkeypatch.setenv("DS_ACCELERATOR", device)
    monkeypatch.setattr("tuner.worker.ranks.faulthandler.register", ignored)
    monkeypatch.setattr(ranks, "_start", start)
    monkeypatch.setattr(ranks, "_wait", sum)
    assert ranks.main(["--job", str(path)]) == 201
    port = started[0][3]
    assert started == [(path, 0, 2, port, forked), (path, 1, 2, port, forked)]
    assert 1024 < port < 65536
    path.write_text("{")
    assert ranks.main(["--job", str(path)]) == 2


def test_the_fastest_run_is_the_speed_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a warm-up there are five runs: the sixth run, of 0.25 s, is the fastest, and there is no seventh."""
    runs: list[int] = []
    monkeypatch.setattr(
        "tuner.worker.probe.time.perf_counter", Clock(0, 9.0, 0, 2.0, 0, 3.0, 0, 1.5, 0, 1.0, 0, 0.25, 0, 0.125)
    )
    assert probe._best(lambda: runs.append(1), "cpu") == 0.25
    assert len(runs) == probe.RUNS + 1 == 6


def test_speeds_are_flops_and_bytes_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 x 1024^3 operations, and 32 MiB read and written, take half a second each."""
    monkeypatch.setattr(probe, "_best", half)
    monkeypatch.setattr(probe, "_collective", lambda _, ranks: 10.0 * ranks)
    assert probe._measure("cpu") == {
        "precision": "fp32",
        "product_flops": 2 * 1024**3 / 0.5,
        "copy_bytes": 2 * 32 * 2**20 / 0.5,
        "launch_seconds": None,
        "ranks": 2,
        "link_bytes": 20.0,
    }


def test_a_launch_is_one_of_many_linear_layers_in_the_fastest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_best", half)
    assert probe._launch_seconds("cpu") == 0.5 / probe.LAUNCHES


class Queue:
    """A queue with this answer."""

    def __init__(self, answer: float | None) -> None:
        self.answer = answer

    def get(self, timeout: float) -> float:
        """Return the answer, or raise what an empty queue raises."""
        assert timeout == 60
        if self.answer is None:
            raise TimeoutError
        return self.answer


@pytest.mark.parametrize(("answer", "expected"), [(0.5, 4 * 4e6 * 2 * 3 / 4 / 0.5), (None, None)])
def test_the_speed_of_an_all_reduce_is_that_of_a_ring(
    answer: float | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring sends 4 bytes x 4 million elements x 2 (ranks - 1) / ranks; without an answer there is no speed."""
    started: list[tuple[Any, ...]] = []

    def process(target: Any, args: tuple[Any, ...], daemon: bool) -> Any:
        assert (target, daemon) == (probe._rank, True)
        started.append(args)
        return SimpleNamespace(start=ignored, join=lambda **_: None, kill=ignored)

    context = SimpleNamespace(Queue=lambda: Queue(answer), Process=process)
    monkeypatch.setattr(
        "tuner.worker.probe.multiprocessing.get_context", lambda method: context if method == "spawn" else None
    )
    assert probe._collective("cpu", 4) == expected
    assert [(args[0], args[1], args[3]) for args in started] == [(rank, 4, "cpu") for rank in range(4)]
    assert len({args[2] for args in started}) == 1


@pytest.mark.parametrize("measure", [True, False])
def test_a_probe_measures_only_on_request(
    measure: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "_measure", lambda kind: {"on": kind})
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert probe.main(["--measure"] if measure else []) == 0
    found = json.loads(capsys.readouterr().out)
    assert ("on" in found) == measure
    assert (found["accelerator"], found["cards"], found["gloo"]) == ("cpu", 0, True)
    assert found["torch"] == torch.__version__
    assert found["deepspeed"] == sys.modules["deepspeed"].__version__
    assert "card" not in found


def test_a_probe_without_torch_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert probe.main(["--measure"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["torch_lacks"]
