"""The worker trains the same model on every topology, reports its measurements, and refuses unsupported jobs."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers import ENVIRONMENT, ONE, TINY, WORKLOAD, Job, Ranks, assign, needs_deepspeed, topology
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.core.shape import Shape
from tuner.costmodel.flops import hardware_flops
from tuner.logs import read_log

pytestmark = pytest.mark.slow

PRECISE = 1e-5
"""Relative tolerance in fp32; the largest measured difference is 2.1e-7."""
COARSE = 1e-3
"""Relative tolerance in bf16; measured: 8.6e-5."""

LLAMA = replace(TINY, name="tiny-llama", kv_heads=2, gated_mlp=True, norm="rmsnorm", positions="rotary")
LLAMA = replace(LLAMA, tied_embeddings=False, qkv_bias=False, qk_norm=True, embedding_norm=True)
SGD = replace(WORKLOAD, optimizer="sgd")
CLIP = 0.5
"""Some of the gradients of ten iterations are longer and some shorter, so that both scale and norm matter."""


def run_program(text: str) -> str:
    """Run a Python program with torch, and return its output."""
    needs_deepspeed()
    said = subprocess.run([sys.executable, "-c", text], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    return said.stdout


def worst(job: Job, reference: Job) -> float:
    """Return the largest relative difference between the losses of two jobs."""
    assert len(job.losses) == len(reference.losses) == 10
    assert reference.losses[0] - min(reference.losses) > 0.2, "nothing was learnt that could differ"
    return max(abs(a - b) / b for a, b in zip(job.losses, reference.losses, strict=True))


PARITY: dict[str, dict[str, Any]] = {
    "two tensor parallel ranks": {"tp": 2},
    "two stages, embeddings tied across them": {"pp": 2},
    "two stages of two ranks": {"tp": 2, "pp": 2},
    "two replicas": {"dp": 2, "micro_batch": 2},
    "ZeRO 1": {"dp": 2, "zero": 1, "micro_batch": 2},
    "ZeRO 2": {"dp": 2, "zero": 2, "micro_batch": 2},
    "ZeRO 3": {"dp": 2, "zero": 3, "micro_batch": 2},
    "ZeRO 2 of two tensor parallel ranks": {"tp": 2, "dp": 2, "zero": 2},
    "ZeRO 3 of two tensor parallel ranks": {"tp": 2, "dp": 2, "zero": 3, "recompute": "full"},
    "attention computed again": {"recompute": "selective"},
    "layers computed again": {"recompute": "full"},
    "layers computed again in two stages": {"pp": 2, "recompute": "full"},
    "another micro batch": {"micro_batch": 1},
    "sequence parallelism": {"tp": 2, "sequence_parallel": True},
    "sequence parallelism in two stages": {"tp": 2, "pp": 2, "sequence_parallel": True, "recompute": "selective"},
    "embedding and head as layers of three stages": {"pp": 3, "partition": "embedding"},
    "eight ranks": {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "micro_batch": 2},
}


@pytest.mark.parametrize("case", PARITY)
def test_a_topology_trains_as_on_one_rank(case: str, ranks: Ranks) -> None:
    """With the same seed and global batch, the losses do not depend on the topology."""
    reference = ranks.succeeded(SGD, clip=CLIP)
    assert worst(ranks.succeeded(SGD, topology(**PARITY[case]), clip=CLIP), reference) < PRECISE


GROWING: dict[str, dict[str, Any]] = {
    "one rank": {},
    "two stages": {"pp": 2},
    "two replicas": {"dp": 2, "micro_batch": 1},
    "ZeRO 1": {"dp": 2, "zero": 1},
    "ZeRO 2": {"dp": 2, "zero": 2},
    "ZeRO 3": {"dp": 2, "zero": 3, "micro_batch": 1},
}


@pytest.mark.parametrize("case", GROWING)
def test_a_job_trains_several_batches_in_turn(case: str, ranks: Ranks) -> None:
    """The first iterations of 8 samples equal those of a job without further batches.

    The last five take 80 samples after the first 40, whatever the microbatches.
    """
    workload = replace(SGD, global_batch=16)
    job = ranks.succeeded(
        workload, topology(**{"micro_batch": 2, **GROWING[case]}), clip=CLIP, iterations=5, batches=(8, 16)
    )
    alone = ranks.succeeded(SGD, clip=CLIP)
    assert [each["global_batch"] for each in job.result["iterations"]] == [8] * 5 + [16] * 5
    assert [each["number"] for each in job.result["iterations"]] == list(range(1, 11))
    assert all(abs(a - b) / b < PRECISE for a, b in zip(job.losses[:5], alone.losses, strict=False))
    reference = ranks.succeeded(workload, topology(micro_batch=8), clip=CLIP, iterations=5, batches=(8, 16))
    assert worst(job, reference) < PRECISE
    (read,) = read_log(job.out.splitlines()).runs
    assert [each.global_batch for each in read.iterations] == [8] * 5 + [16] * 5


LLAMA_PARITY: dict[str, dict[str, Any]] = {
    "two key/value heads on two ranks, two stages": {"tp": 2, "pp": 2, "sequence_parallel": True},
    "two key/value heads on four ranks": {"tp": 4, "micro_batch": 8},
}


@pytest.mark.parametrize("case", LLAMA_PARITY)
def test_grouped_heads_and_a_gated_mlp_train_as_on_one_rank(case: str, ranks: Ranks) -> None:
    """The model also has rotary positions, RMSNorm, QK norms and an untied output layer."""
    workload = replace(SGD, model=LLAMA)
    reference = ranks.succeeded(workload, clip=CLIP)
    assert worst(ranks.succeeded(workload, topology(**LLAMA_PARITY[case]), clip=CLIP), reference) < PRECISE


WORKLOADS: dict[str, Workload] = {
    "a vocabulary that is padded": replace(SGD, model=replace(TINY, vocab=100)),
    "logits gathered for the loss": replace(SGD, parallel_loss=False),
    "linear biases for positions": replace(SGD, model=replace(TINY, positions="alibi")),
    "Adam": WORKLOAD,
}


@pytest.mark.parametrize("case", WORKLOADS)
def test_a_workload_trains_on_two_ranks_as_on_one(case: str, ranks: Ranks) -> None:
    """The vocabulary has more padding with tp=2, which must not affect the loss."""
    reference = ranks.succeeded(WORKLOADS[case], clip=CLIP)
    assert worst(ranks.succeeded(WORKLOADS[case], topology(tp=2), clip=CLIP), reference) < PRECISE


def test_fused_norms_equal_unfused_ones(ranks: Ranks) -> None:
    for model in (TINY, LLAMA):
        workload = replace(SGD, model=model)
        apart = ranks.succeeded(replace(workload, fused_norms=False), clip=CLIP)
        assert worst(apart, ranks.succeeded(workload, clip=CLIP)) < PRECISE


def test_topologies_agree_to_the_precision_of_bf16(ranks: Ranks) -> None:
    """The jobs use the same code path of DeepSpeed; ZeRO 0 in bf16 has another."""
    workload = replace(WORKLOAD, precision="bf16", attention="flash2")
    reference = ranks.succeeded(workload, topology(zero=1))
    assert worst(ranks.succeeded(workload, topology(tp=2, zero=1)), reference) < COARSE


def test_flash_attention_equals_eager_attention() -> None:
    """Values and gradients agree with and without grouped heads, for a length that is not a multiple of a block."""
    run_program("""
import torch
from torch.nn.functional import scaled_dot_product_attention
from tuner.worker.block import eager_attention
for kv_heads in (1, 2, 6):
    grads = []
    for flash in (True, False):
        torch.manual_seed(0)
        query, key, value = (torch.randn(2, n, 37, 16, requires_grad=True) for n in (6, kv_heads, kv_heads))
        if flash:
            out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            out = eager_attention(query, key, value, None)
        out.square().sum().backward()
        grads.append((out.detach(), query.grad, key.grad, value.grad))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
""")


def test_heads_and_shape_of_the_topology_are_trained(ranks: Ranks) -> None:
    """These axes replace the model's own heads and shape."""
    chosen = topology(heads=8)
    named = ranks.succeeded(replace(SGD, model=TINY.with_heads(8)), clip=CLIP)
    assert ranks.succeeded(SGD, chosen, clip=CLIP).losses == named.losses
    assert ranks.succeeded(SGD, clip=CLIP).losses != named.losses
    shape = Shape(hidden=32, layers=2)
    named = ranks.succeeded(replace(SGD, model=TINY.with_shape(shape)), clip=CLIP)
    assert ranks.succeeded(SGD, topology(shape=shape), clip=CLIP).losses == named.losses


def test_frozen_parameters_are_sharded_and_do_not_affect_training(ranks: Ranks) -> None:
    """They are divided among tensor parallel ranks and stages."""
    many = 2**24 + 10
    workload = replace(SGD, model=replace(TINY, frozen_params=many))
    reference = ranks.succeeded(SGD, clip=CLIP)
    for axes, parts in (({}, 1), ({"tp": 2, "pp": 2}, 4), ({"dp": 2, "zero": 3, "micro_batch": 2}, 1)):
        job = ranks.succeeded(workload, topology(**axes), clip=CLIP)
        assert worst(job, reference) < PRECISE
        frozen = [each["frozen"] for each in job.result["parameters"]]
        assert max(frozen) - many / parts <= 2, axes
        assert min(frozen) >= many / parts, axes


def test_a_rank_has_exactly_its_shard(ranks: Ranks) -> None:
    """tp divides matrices and pp layers; norms and the biases of row-parallel products are replicated."""
    counts = ranks.succeeded(SGD, topology(tp=2, pp=2), clip=CLIP).result["parameters"]
    whole = 6 * TINY.hidden  # two norms and two biases after a product in each layer
    layers = 2 * ((TINY.layer_parameters - whole) // 2 + whole)
    words = 256 * TINY.hidden // 2  # padded to 128 x tp
    first, last = layers + words + TINY.seq * TINY.hidden, layers + words + 2 * TINY.hidden
    assert [each["trained"] for each in counts] == [first, first, last, last]


def test_a_rank_never_allocates_more_than_its_shard() -> None:
    """The first of 96 ranks builds its part of 24 layers of hidden 4096 with 256 MiB beyond the part itself.

    One whole layer would take 384 MiB. In a manual test, the first stage of the 14336 x 72 model took 3872 MiB for 3757
    MiB of parameters.
    """
    said = run_program(BUILD)
    before, grown = map(int, said.splitlines()[-1].split())
    assert before > 150 * 2**20
    assert grown < before + 2**28


BUILD = """
import os, resource
os.environ.update(RANK="0", WORLD_SIZE="96", LOCAL_RANK="0")
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import deepspeed.comm, deepspeed.ops
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=96)
deepspeed.comm.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)
from tuner.core.domain import Topology, Workload
from tuner.core.model import Model
from tuner.worker.mesh import build_mesh
from tuner.worker.model import build
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
model = Model(layers=24, hidden=4096, heads=32, vocab=50176, seq=2048)
workload = Workload(model=model, global_batch=96, precision="bf16", attention="flash2")
topology = Topology(nodes=12, tp=8, pp=12, dp=1, micro_batch=1)
mesh = build_mesh(topology, model.kv_heads, "bf16")
before = peak()
stage = build(workload, topology, mesh, seed=0, ds_config={}, groups=None)
print(sum(each.numel() * each.element_size() for each in stage.parameters()), peak() - before)
"""


# ------------------------------------------------------------------------------------------------- what a job says


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of two ranks started with torchrun."""
    needs_deepspeed()
    folder = tmp_path_factory.mktemp("torchrun with spaces")
    assign(folder, WORKLOAD, topology(tp=2), iterations=2)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tuner.worker", "--job", str(folder / "job.json")]
    said = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    (folder / "stdout.log").write_text(said.stdout)
    (folder / "stderr.log").write_text(said.stderr)
    return Job(folder=folder, codes=[said.returncode])


def test_a_job_under_torchrun_writes_its_result(launched: Job) -> None:
    """The result has all iterations, the memory of each rank, versions and topology; it is the last printed line."""
    assert launched.codes == [0], launched.err
    result = launched.result
    assert result["schema"] == "tuner/worker/1"
    assert result["key"] == topology(tp=2).key
    assert [each["number"] for each in result["iterations"]] == [1, 2]
    assert all(each["seconds"] > 0 and math.isfinite(each["loss"]) for each in result["iterations"])
    assert [each["rank"] for each in result["peak_memory"]] == [0, 1]
    assert all(2**25 < each["allocated"] <= each["reserved"] < 2**33 for each in result["peak_memory"])
    assert set(result["versions"]) == {"python", "torch", "deepspeed"}
    assert json.loads(launched.out.splitlines()[-1]) == result
    assert sorted(path.name for path in launched.folder.iterdir()) == [
        *("ds_config.json", "job.json", "result.json", "stderr.log", "stdout.log")
    ]


def test_the_log_reader_reads_the_lines_of_a_job(launched: Job) -> None:
    """The lines have the format of Megatron-DeepSpeed, and the FLOPs of the cost model."""
    (read,) = read_log(launched.out.splitlines()).runs
    assert [each.number for each in read.iterations] == [1, 2]
    cluster = catalog.make_cluster(name="two", gpu=catalog.gpu("A100-80GB-SXM"), nodes=1, gpus_per_node=2)
    flops = hardware_flops(Columns.of([topology(tp=2)], WORKLOAD, cluster)).item()
    for line, own in zip(read.iterations, launched.result["iterations"], strict=True):
        assert line.seconds == pytest.approx(own["seconds"], abs=1e-6)
        assert line.loss == pytest.approx(own["loss"], rel=1e-6)
        assert line.global_batch == 8
        assert line.tflops is not None
        assert line.tflops * 1e12 * own["seconds"] * 2 == pytest.approx(flops, rel=2e-3, abs=line.tflops_digit * 1e12)


def test_a_long_iteration_prints_progress_at_most_every_half_second(ranks: Ranks) -> None:
    for axes in ({"micro_batch": 1}, {"micro_batch": 1, "pp": 2}):
        job = ranks.succeeded(replace(WORKLOAD, global_batch=200), topology(**axes), iterations=1)
        lines = [line for line in job.out.splitlines() if " of iteration 1 | elapsed (s): " in line]
        assert 1 <= len(lines) <= 1 + job.result["iterations"][0]["seconds"] / 0.5
        assert lines[0].startswith(" microbatch ")


def test_a_nan_loss_ends_the_job(ranks: Ranks) -> None:
    """The job exits with code 1 and a message, and writes no result."""
    job = ranks.run(SGD, topology(tp=2), rate=1e30, clip=0.0)
    assert job.failed, job.codes
    assert "worker: the loss of iteration 2 is nan: the job ends." in job.err
    assert not (job.folder / "result.json").exists()


def test_sigusr1_prints_the_stacks_and_sigterm_ends_a_rank(tmp_path: Path) -> None:
    """After SIGUSR1, training continues."""
    needs_deepspeed()
    assign(tmp_path, WORKLOAD, ONE, iterations=1_000_000)
    environment = {**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-u", "-m", "tuner.worker", "--job", str(tmp_path / "job.json")]
    with (tmp_path / "stderr.log").open("w") as errors:
        rank = subprocess.Popen(
            command, env={**environment, "MASTER_PORT": "0"}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert rank.stdout
    seen = 0
    for line in rank.stdout:
        seen += line.startswith(" iteration ")
        if seen == 1:
            os.kill(rank.pid, signal.SIGUSR1)
        if seen == 5:
            break
    rank.terminate()
    assert rank.wait(10) == -signal.SIGTERM
    rank.stdout.close()
    stacks = (tmp_path / "stderr.log").read_text()
    assert "most recent call first" in stacks
    assert "tuner/worker/train.py" in stacks


def test_a_rank_without_peers_times_out(tmp_path: Path) -> None:
    """Every wait for other ranks is limited by the timeout of the assignment."""
    needs_deepspeed()
    assign(tmp_path, WORKLOAD, topology(dp=2), timeout=3.0)
    environment = {**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-m", "tuner.worker", "--job", str(tmp_path / "job.json")]
    said = subprocess.run(command, env={**environment, "MASTER_PORT": "0"}, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1
    assert "Timed out" in said.stderr


def test_initial_values_do_not_depend_on_sharding() -> None:
    """Any drawn rows and columns equal those of the whole matrix, which has the requested standard deviation."""
    program = """
import torch
from tuner.worker.weights import draw
def drawn(rows, columns, name="layer0.up.weight"):
    weight = torch.empty(sum(map(len, rows)), len(columns))
    draw(weight, name=name, seed=7, rows=rows, columns=columns)
    return weight
whole = drawn([range(3000)], range(700))
assert torch.equal(whole[500:1000], drawn([range(500, 1000)], range(700)))
assert torch.equal(whole[:, 350:], drawn([range(3000)], range(350, 700)))
assert torch.equal(whole[[*range(10), *range(1500, 1510)]], drawn([range(10), range(1500, 1510)], range(700)))
assert not torch.equal(whole, drawn([range(3000)], range(700), "layer1.up.weight"))
assert abs(whole.std() - 0.02) < 1e-4 and abs(whole.mean()) < 1e-4, (whole.std(), whole.mean())
near = torch.corrcoef(torch.stack((whole[:-1].flatten(), whole[1:].flatten(), whole[:-1].roll(1, 1).flatten())))
assert (near - torch.eye(3)).abs().max() < 5e-3, near
"""
    run_program(program)


def test_the_worker_imports_nothing_above_core() -> None:
    """The worker can be copied to a cluster that has torch and DeepSpeed, but not optuna, pandas or matplotlib."""
    program = """
import sys
import tuner.worker.train
print(*sorted(name for name in sys.modules if name.startswith("tuner.") and ".worker" not in name))
"""
    assert run_program(program).splitlines()[-1].split() == [
        "tuner.core",
        *(
            f"tuner.core.{name}"
            for name in (
                *("assignment", "delta_net", "documents", "domain", "errors", "experts", "model", "offload"),
                *("recompute", "rotary_scaling", "shape", "stack", "text", "validation"),
            )
        ),
    ]
