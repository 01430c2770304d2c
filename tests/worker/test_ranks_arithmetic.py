"""Process groups, stages, exit codes and speeds of the worker, with its calls replaced."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_worker_arithmetic import maker, place, torch
from tests.workers import WORKLOAD, assign, tiny, topology
from tuner.core.assignment import Assignment
from tuner.core.errors import InputError, NothingUsable
from tuner.worker import mesh, model, report, train, vocabulary
from tuner.worker.linear import Recipe


def ignored(*_: Any, **__: Any) -> None:
    """Do nothing."""


def half(work: Any, _: str) -> float:
    """Run the work and return half a second."""
    work()
    return 0.5


def group_of(ranks: list[int]) -> tuple[int, ...]:
    """Represent a process group by its ranks."""
    return tuple(ranks)


@pytest.mark.parametrize(
    ("rank", "axes", "kv_heads", "place", "tp_group", "kv_group"),
    [
        (0, {}, 4, (0, 0, 0), None, None),
        (5, {"tp": 2, "dp": 2, "pp": 2}, 4, (1, 0, 1), (4, 5), None),
        (6, {"tp": 2, "dp": 2, "pp": 2}, 2, (0, 1, 1), (6, 7), None),
        (3, {"dp": 4}, 4, (0, 3, 0), None, None),
        (7, {"tp": 4, "dp": 2}, 2, (3, 1, 0), (4, 5, 6, 7), (6, 7)),
        (4, {"tp": 4, "dp": 2}, 1, (0, 1, 0), (4, 5, 6, 7), (4, 5, 6, 7)),
    ],
)
def test_ranks_are_ordered_by_tensor_then_data_then_pipeline(
    rank: int,
    axes: dict[str, int],
    kv_heads: int,
    place: tuple[int, int, int],
    tp_group: Any,
    kv_group: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank is the tensor parallel rank + tp x (replica + dp x stage)."""
    chosen = topology(**axes)
    monkeypatch.setattr("tuner.worker.mesh.dist.get_world_size", lambda: chosen.gpus)
    monkeypatch.setattr("tuner.worker.mesh.dist.get_rank", lambda: rank)
    monkeypatch.setattr("tuner.worker.mesh.dist.new_group", group_of)
    made = mesh.build_mesh(chosen, kv_heads, "bf16")
    assert (made.tp_rank, made.dp_rank, made.stage) == place
    assert (made.tp, made.dp, made.stages) == (chosen.tp, chosen.dp, chosen.pp)
    assert (made.tp_group, made.kv_group) == (tp_group, kv_group)
    assert made.kv_copies == max(1, chosen.tp // kv_heads)
    assert (made.ep, made.ep_rank, made.ep_group, made.expert_group) == (1, 0, None, "")
    assert (made.dtype, made.device.type) == (torch.bfloat16, "cpu")


def test_a_wrong_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.worker.mesh.dist.get_world_size", lambda: 3)
    with pytest.raises(InputError, match="= 1 x 1 x 1 x 2 = 2 is not the number of ranks, which is 3"):
        mesh.build_mesh(topology(dp=2), 4, "fp32")


def test_experts_have_the_process_groups_of_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    groups = SimpleNamespace(
        _create_expert_and_data_parallel=lambda ep, pp_size: made.append((ep, pp_size)),
        _get_expert_parallel_rank=lambda name: (name, "rank"),
        _get_expert_parallel_group=lambda name: (name, "group"),
    )
    monkeypatch.setattr(mesh, "groups", groups)
    monkeypatch.setattr("tuner.worker.mesh.dist.get_world_size", lambda: 8)
    monkeypatch.setattr("tuner.worker.mesh.dist.get_rank", lambda: 6)
    found: Any = mesh.build_mesh(topology(pp=2, dp=4, ep=4), 4, "fp32")
    assert made == [(4, 2)]
    assert (found.ep, found.expert_group) == (4, "ep_size_4")
    assert (found.ep_rank, found.ep_group) == (("ep_size_4", "rank"), ("ep_size_4", "group"))


def test_the_local_rank_is_the_launchers_or_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert mesh.local_rank() == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert mesh.local_rank() == 0


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("final_norm", [True, False])
def test_the_layers_of_a_pipeline_are_in_order(tied: bool, final_norm: bool) -> None:
    from dataclasses import replace

    job = replace(WORKLOAD, model=tiny(layers=3, tied_embeddings=tied, final_norm=final_norm))
    specs = model._specs(Recipe(workload=job, recompute_attention=False, microbatches=1), maker("m"))
    kinds = [spec.typename.__name__ for spec in specs]
    names = [spec.module_args[1].name for spec in specs]
    last = "Words" if tied else "Head"
    assert kinds == ["Words", "Positions", *["Block"] * 3, *["FinalNorm"] * final_norm, last]
    head = "m.words" if tied else "m.head"
    layers = ["m.layer0", "m.layer1", "m.layer2"]
    assert names == ["m.words", "m.positions", *layers, *["m.final_norm"] * final_norm, head]
    assert [getattr(spec, "key", None) for spec in (specs[0], specs[-1])] == ["words" if tied else None] * 2
    if tied:
        assert specs[0].forward_fn is None
        assert specs[-1].forward_fn is vocabulary.words_as_head
        assert {specs[0].tied_weight_attr[0], specs[-1].tied_weight_attr[0]} <= {"weight", "w"}


class Module:
    """A stand-in for DeepSpeed's pipeline module with two parameters, the second of which another stage counts."""

    parts: list[int] = []  # noqa: RUF012

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.kept = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
        for number, parameter in enumerate(self.kept):
            parameter.ds_pipe_replicated = number == 1
            parameter.tensor_model_parallel = True

    def parameters(self) -> list[Any]:
        """Return both parameters."""
        return self.kept

    def add_module(self, name: str, module: Any) -> None:
        """Record the module."""
        self.given[name] = module


@pytest.mark.parametrize(("partition", "pattern"), [("layers", "Block"), ("embedding", "(Block|Words|Head)")])
def test_stages_are_partitioned_by_the_topology(partition: Any, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = topology(pp=2, partition=partition)
    monkeypatch.setattr(model, "PipelineModule", Module)
    monkeypatch.setattr(Module, "parts", model.stage_bounds(tiny(), chosen))
    made: Any = model.build(WORKLOAD, chosen, place(stages=2), seed=0, ds_config={}, groups=None)
    assert made.given["partition_method"] == f"type:^{pattern}$"
    assert made.given["checkpointable_layers"] == ["Block"]
    assert len(made.given["layers"]) == 8
    assert [parameter.tensor_model_parallel for parameter in made.parameters()] == [True, False]
    assert "beside" in made.given
    monkeypatch.setattr(Module, "parts", [0, 1, 8])
    with pytest.raises(InputError, match=r"split the layers at \[0, 1, 8\], but .* needs \[0, 4, 8\]|\[0, 3, 8\]"):
        model.build(WORKLOAD, chosen, place(stages=2), seed=0, ds_config={}, groups=None)


class Clock:
    """A clock that advances with every reading."""

    def __init__(self, *steps: float) -> None:
        self.now, self._steps = 0.0, list(steps)

    def __call__(self) -> float:
        self.now += self._steps.pop(0) if self._steps else 0.0
        return self.now


def test_an_iteration_is_timed_between_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr("tuner.worker.train.dist.barrier", lambda: order.append("barrier"))
    monkeypatch.setattr("tuner.worker.train.time.perf_counter", Clock(5.0, 1.5))

    def step() -> float:
        order.append("step")
        return 2.0

    assert train.timed(step) == (1.5, 2.0)
    assert order == ["barrier", "step", "barrier"]


class Engine:
    """A stand-in engine with 3 iterations."""

    skipped_steps = 2
    module = torch.nn.Linear(2, 3)

    def train_batch_size(self) -> int:
        """Return the batch of the assignment."""
        return WORKLOAD.global_batch

    def get_lr(self) -> list[float]:
        """Return the rates of two parameter groups."""
        return [0.25, 0.5]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train a job of two replicas with the given losses; return its printed iterations and its result."""

    def run(losses: list[float], rank: int = 0) -> Path:
        chosen = topology(dp=2, micro_batch=2)
        assign(tmp_path, WORKLOAD, chosen, iterations=len(losses))
        monkeypatch.chdir(tmp_path)
        left = list(losses)
        monkeypatch.setattr(train, "connect", ignored)
        monkeypatch.setattr(train, "build_mesh", lambda *_: place(dp=2))
        monkeypatch.setattr("tuner.worker.train.dist.get_rank", lambda: rank)
        monkeypatch.setattr(train, "start", lambda *_: (Engine(), lambda: left.pop(0)))
        monkeypatch.setattr(train, "timed", lambda step: (0.5, step()))
        monkeypatch.setattr("tuner.worker.report.dist.get_world_size", lambda: 2)
        monkeypatch.setattr(
            "tuner.worker.report.dist.all_gather",
            lambda got, sent: [part.copy_(sent + i) for i, part in enumerate(got)],
        )
        train.train(Assignment.read(tmp_path / "job.json"))
        return tmp_path / "result.json"

    return run


def test_a_job_reports_every_iteration_and_every_rank(job: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(job([3.0, 2.0, 1.0]).read_text())
    assert [(timed["number"], timed["loss"], timed["skipped"]) for timed in found["iterations"]] == [
        (1, 3.0, 2),
        (2, 2.0, 2),
        (3, 1.0, 2),
    ]
    assert found["parameters"] == [{"rank": 0, "trained": 9, "frozen": 0}, {"rank": 1, "trained": 10, "frozen": 1}]
    assert found["peak_memory"][0]["allocated"] == found["peak_memory"][0]["reserved"] > 2**20
    printed = capsys.readouterr().out
    assert printed.count("| learning rate: 2.500E-01 |") == 3
    samples = [line.split("consumed samples:")[1].split()[0] for line in printed.splitlines() if "consumed" in line]
    assert samples == ["8", "16", "24"]
    assert " iteration        3/       3 |" in printed


def test_only_the_first_rank_writes_and_prints(job: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not job([1.0], rank=1).exists()
    assert capsys.readouterr().out == ""


def test_a_loss_that_is_not_finite_ends_the_job(job: Any, tmp_path: Path) -> None:
    with pytest.raises(NothingUsable, match="the loss of iteration 2 is nan"):
        job([1.0, float("nan"), 1.0])
    assert not (tmp_path / "result.json").exists()


def test_frozen_parameters_are_counted_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter sharded by ZeRO 3 counts with its full size."""
    module = torch.nn.Linear(2, 3)
    module.bias.requires_grad = False
    module.weight.ds_numel = 60
    monkeypatch.setattr("tuner.worker.report.dist.get_world_size", lambda: 1)
    monkeypatch.setattr("tuner.worker.report.dist.all_gather", lambda got, sent: got[0].copy_(sent))
    (figures,) = report.rank_figures(module)
    assert (figures["rank"], figures["trained_parameters"], figures["frozen_parameters"]) == (0, 60, 3)


@pytest.mark.parametrize(("device", "backend", "chosen"), [("cpu", "gloo", []), ("cuda", "nccl", [3])])
def test_a_rank_uses_the_gpu_of_its_local_rank_and_its_backend(
    device: str, backend: str, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed_c10d = torch.distributed.distributed_c10d
    gpus: list[int] = []
    started: dict[str, Any] = {}

    class Accelerator:
        """A stand-in accelerator that records the chosen device."""

        set_device = staticmethod(gpus.append)

        @staticmethod
        def device_name() -> str:
            """Return the device type."""
            return device

        @staticmethod
        def communication_backend_name() -> str:
            """Return the backend of NVIDIA GPUs."""
            return "nccl"

    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(mesh, "get_accelerator", Accelerator)
    monkeypatch.setattr("tuner.worker.mesh.ds_comm.init_distributed", lambda **given: started.update(given))
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(distributed_c10d, name, getattr(distributed_c10d, name, None), raising=False)
    mesh.connect(90.0)
    assert (gpus, started["dist_backend"]) == (chosen, backend)
    assert started["timeout"].total_seconds() == distributed_c10d.default_pg_timeout.total_seconds() == 90.0
