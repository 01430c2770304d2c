"""Starting DeepSpeed, clipping gradients and probing the machine, with stand-ins for DeepSpeed and CUDA."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_worker_arithmetic import torch
from tests.workers import WORKLOAD, topology
from tuner.worker import probe, ranks, train

# -- gradients


def parameter(*gradient: float, counts: bool = True, expert: bool = False) -> Any:
    """Return a parameter with this gradient."""
    made = torch.nn.Parameter(torch.zeros(len(gradient)))
    made.grad = torch.tensor(gradient)
    made.tensor_model_parallel = counts
    made.allreduce = not expert
    return made


@pytest.mark.parametrize(("stages", "pipe"), [(1, 0.0), (2, 7.0)])
def test_gradients_are_clipped_by_their_norm_over_all_ranks(
    stages: int, pipe: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares are summed over expert parallel ranks for experts, and over tp and pp ranks for dense parameters."""
    groups = {"experts": 3.0, "model": 5.0, "pipe": 7.0}
    monkeypatch.setattr("tuner.worker.train.dist.all_reduce", lambda squares, group: squares.add_(groups[group]))
    dense, copied, expert = parameter(3.0, 4.0), parameter(100.0, counts=False), parameter(6.0, expert=True)
    unused = torch.nn.Parameter(torch.zeros(1))
    mpu = SimpleNamespace(get_model_parallel_group=lambda: "model", get_pipe_parallel_group=lambda: "pipe")
    module = SimpleNamespace(parameters=lambda: [dense, copied, expert, unused])
    engine: Any = SimpleNamespace(module=module, mpu=mpu, gradient_clipping=lambda: 2.0)
    mesh: Any = SimpleNamespace(device="cpu", ep_group="experts", stages=stages)
    train.clip_gradients(engine, mesh)
    norm = (25.0 + 5.0 + 36.0 + 3.0 + pipe) ** 0.5
    assert dense.grad.tolist() == pytest.approx([3.0 * 2.0 / norm, 4.0 * 2.0 / norm])
    assert copied.grad.tolist() == pytest.approx([100.0 * 2.0 / norm])
    assert expert.grad.tolist() == pytest.approx([6.0 * 2.0 / norm])
    before = dense.grad.tolist()
    engine.gradient_clipping = lambda: 1e6
    train.clip_gradients(engine, mesh)
    assert dense.grad.tolist() == before, "gradients are never enlarged"


# -- the engine


class Started:
    """A stand-in for DeepSpeed that records its arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[Any] = []
        self.given: dict[str, Any] = {}
        self.frozen, self.trained = torch.nn.Parameter(torch.zeros(1), requires_grad=False), parameter(1.0)
        self.engine: Any = SimpleNamespace(module="module", train_batch=lambda data_iter: next(data_iter))
        self.stepped: list[Any] = []
        monkeypatch.setattr(train, "build", self._build)
        monkeypatch.setattr("tuner.worker.train.deepspeed.initialize", self._initialize)
        monkeypatch.setattr(train, "check_precision", lambda module, mesh: self.built.append((module, mesh.ep)))
        monkeypatch.setattr(train, "split_params_into_different_moe_groups_for_optimizer", self._split)
        groups = SimpleNamespace(get_data_parallel_group=lambda: "replicas")
        monkeypatch.setattr(train, "grid", lambda _: groups)
        monkeypatch.setattr(train, "_plain_step", self._step)

    def _step(self, *given: Any) -> float:
        self.stepped.append(given)
        return 0.25

    def _build(self, *given: Any, **more: Any) -> Any:
        self.built.append((given, more))
        return SimpleNamespace(parameters=lambda: [self.frozen, self.trained])

    def _initialize(self, **given: Any) -> Any:
        self.given = given
        return self.engine, None, None, None

    def _split(self, dense: Any, max_group_size: Any) -> Any:
        return "split", dense, max_group_size


@pytest.mark.parametrize(("pp", "ep"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_an_engine_gets_the_trainable_parameters(pp: int, ep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts form groups of their own and are clipped over all ranks; a pipeline builds its groups itself."""
    world = Started(monkeypatch)
    one = topology(pp=pp, dp=2)
    batches: Any = iter([0.5])
    mesh: Any = SimpleNamespace(ep=ep)
    engine, step = train.start(WORKLOAD, one, mesh, 7, {"config": 1}, batches)
    (built, how), checked = world.built
    assert built == (WORKLOAD, one, mesh)
    assert (how["seed"], how["ds_config"], how["groups"] is None) == (7, {"config": 1}, pp > 1)
    assert checked == ("module", ep)
    dense = {"params": [world.trained], "name": "dense"}
    assert world.given["model_parameters"] == (("split", dense, None) if ep > 1 else [world.trained])
    assert (world.given["mpu"] is None, world.given["dist_init_required"]) == (pp > 1, False)
    assert hasattr(engine, "clip_fp32_gradients") == (ep > 1)
    if ep > 1:
        assert engine.clip_fp32_gradients.args == (engine, mesh)
    assert step() == (0.5 if pp > 1 else 0.25)
    assert world.stepped == ([] if pp > 1 else [(engine, batches, "replicas", mesh)])


@pytest.mark.parametrize(
    ("device", "built", "toolkit", "compatible", "fused"),
    [
        ("cpu", True, True, True, False),
        ("cuda", True, False, False, True),
        ("cuda", False, True, True, True),
        ("cuda", False, False, True, False),
        ("cuda", False, True, False, False),
    ],
)
def test_deepspeeds_adam_is_used_if_it_is_built_or_can_be_built(
    device: str, built: bool, toolkit: bool, compatible: bool, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = lambda: SimpleNamespace(is_compatible=lambda verbose: compatible and not verbose)  # noqa: E731
    monkeypatch.setattr(train, "get_accelerator", lambda: SimpleNamespace(device_name=lambda: device))
    monkeypatch.setattr("deepspeed.git_version_info.installed_ops", {"fused_adam": built, "cpu_adam": built})
    monkeypatch.setattr("deepspeed.ops.op_builder.FusedAdamBuilder", builder)
    monkeypatch.setattr("deepspeed.ops.op_builder.CPUAdamBuilder", builder)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", "/cuda" if toolkit else None)
    monkeypatch.setattr("tuner.worker.train.shutil.which", lambda name: name if toolkit or name == "c++" else None)
    assert train._has_fused_adam() is fused
    assert train._has_cpu_adam() is (built or (device != "cpu" and toolkit and compatible))
    monkeypatch.setattr("deepspeed.git_version_info.installed_ops", {})
    assert train._has_fused_adam() is (device != "cpu" and toolkit and compatible)
    assert train._has_cpu_adam() is (device != "cpu" and toolkit and compatible)


# -- ranks


@pytest.mark.parametrize("forked", [True, False])
def test_a_rank_gets_its_number_and_the_number_of_peers(
    forked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked rank trains directly; a new program is executed if drivers do not survive a fork."""

    class LeftError(Exception):
        """Stands for the end of the process."""

    calls: list[Any] = []

    def ends(*given: Any) -> None:
        calls.append(given)
        raise LeftError

    exits: list[int] = []
    monkeypatch.setattr("tuner.worker.ranks.os.fork", lambda: 0)
    monkeypatch.setattr("tuner.worker.ranks.os._exit", exits.append)
    monkeypatch.setattr("tuner.worker.ranks.os.execv", ends)
    monkeypatch.setattr("tuner.worker.__main__.leave", ends)
    monkeypatch.setattr(ranks, "_die_with", lambda parent: calls.append(parent))
    monkeypatch.setattr(ranks, "_prctl", lambda *given: calls.append(given))
    monkeypatch.setattr("tuner.worker.ranks.os.environ", dict(os.environ))
    with pytest.raises(LeftError):
        ranks._start(tmp_path / "job", 3, 8, 4321, forked=forked)
    found = os.environ
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
    assert [found[name] for name in names] == ["3", "3", "8", "8", "4321", "127.0.0.1"]
    job = str(tmp_path / "job")
    command = [sys.executable, "-m", "tuner.worker", "--job", job]
    assert calls == [
        os.getpid(),
        (ranks.PR_SET_NAME, b"rank 3"),
        (["--job", job],) if forked else (sys.executable, command),
    ]
    assert exits == [1]
    monkeypatch.setattr("tuner.worker.ranks.os.fork", lambda: 77)
    assert ranks._start(tmp_path / "job", 3, 8, 4321, forked=forked) == 77


def test_a_rank_dies_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """PR_GET_NAME is 16 in linux/prctl.h; if the parent is already gone, the rank ends at once."""
    calls: list[Any] = []
    name, before = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    ctypes.CDLL(None).prctl(16, before, 0, 0, 0)
    try:
        ranks._prctl(ranks.PR_SET_NAME, b"rank 3")
        ctypes.CDLL(None).prctl(16, name, 0, 0, 0)
    finally:
        ranks._prctl(ranks.PR_SET_NAME, before.value)
    assert name.value == b"rank 3"
    monkeypatch.setattr(ranks, "_prctl", lambda *given: calls.append(given))
    monkeypatch.setattr("tuner.worker.ranks.os._exit", calls.append)
    ranks._die_with(os.getppid())
    assert calls == [(ranks.PR_SET_PDEATHSIG, signal.SIGKILL)]
    ranks._die_with(-1)
    assert calls[2:] == [1]
    assert ranks.PR_SET_PDEATHSIG == 1


# -- the probe


@pytest.mark.parametrize(
    ("available", "selected", "cuda"), [(True, None, True), (True, "cpu", False), (False, None, False)]
)
def test_a_probe_reports_the_visible_gpus(
    available: bool, selected: str | None, cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    if selected:
        monkeypatch.setenv("DS_ACCELERATOR", selected)
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 21, 5))
    monkeypatch.setattr("deepspeed.git_version_info.installed_ops", {"b": True, "a": True, "c": False})
    found = probe._look()
    assert (found["accelerator"], found["cards"]) == (("cuda", 4) if cuda else ("cpu", 0))
    assert (found.get("card"), found.get("nccl")) == (("GPU 0", "2.21.5") if cuda else (None, None))
    assert (found["ops"], found["torch"]) == (["a", "b"], torch.__version__)


@pytest.mark.parametrize(("accelerator", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_the_first_rank_returns_the_seconds_of_a_collective(
    accelerator: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    zeros = torch.zeros
    monkeypatch.setattr("torch.cuda.set_device", lambda rank: calls.append(("device", rank)))
    monkeypatch.setattr("torch.zeros", lambda size, device: calls.append((size, device.type)) or zeros(1))  # type: ignore[func-returns-value]
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *given, **more: calls.append((given, more)))
    monkeypatch.setattr("torch.distributed.all_reduce", lambda words: calls.append(words.tolist()))
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: calls.append("destroyed"))

    def best(work: Any, on: str) -> float:
        work()
        return 0.125 if on == accelerator else 0.0

    monkeypatch.setattr(probe, "_best", best)
    answers: list[float] = []
    for rank in (1, 0):
        calls.clear()
        probe._rank(rank, 2, "/store", accelerator, SimpleNamespace(put=answers.append))
        expected: list[Any] = [("device", rank)] * (accelerator == "cuda")
        expected += [((backend,), {"init_method": "file:///store", "rank": rank, "world_size": 2})]
        expected += [(probe.WORDS, accelerator), [0.0], "destroyed"]
        assert calls == expected
    assert answers == [0.125]
    assert (probe.RUNS, probe.RANKS, probe.WORDS) == (5, 2, 4_000_000)
