"""Hidden terms and random draws of the simulated cluster, compared with exact values; and probes of a machine."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.launch.test_launch_arithmetic import columns, one
from tests.workers import WORKLOAD
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.outcomes import Outcome
from tuner.costmodel.flops import hardware_flops, per_gpu
from tuner.costmodel.memory import limit, worst_need
from tuner.costmodel.site_factors import PRIOR
from tuner.launch import preflight
from tuner.launch.contract import Job, JobState
from tuner.launch.virtual import ground_truth, hash_rng
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.run_noise import RunNoise
from tuner.launch.virtual.simulated import _CRASHES, SimulatedLauncher, SpeedChange


def test_hidden_terms_follow_from_the_seed() -> None:
    """The hidden terms of a truth are functions of its seed, such as 48 cosines along the doublings of four axes."""
    truth = GroundTruth(3)
    chosen = columns(tp=2, dp=8, micro_batch=8, recompute="full", sequence_parallel=True)
    doublings = [math.log2(value) for value in (2, 1, 8, 8)]
    total = sum(
        math.cos(
            sum(
                hash_rng.normal(3, "wave", wave, axis) / 1.5 * at
                for axis, at in zip(("tp", "pp", "micro_batch", "dp"), doublings, strict=True)
            )
            + math.tau * hash_rng.uniform(3, "phase", wave)
        )
        for wave in range(48)
    )
    assert truth._wave(chosen) == pytest.approx(0.03 * math.sqrt(2 / 48) * total)
    assert truth._kind(chosen) == pytest.approx(0.04 * hash_rng.normal(3, "kind", "full", 1))
    assert truth._kind(columns()) == pytest.approx(0.04 * hash_rng.normal(3, "kind", "none", 0))
    assert truth._overlap["pipeline"] == pytest.approx(0.5 + 1.5 * hash_rng.uniform(3, "overlap", "pipeline"))
    assert truth._imbalance == pytest.approx(0.3 * hash_rng.uniform(3, "imbalance"))
    assert truth._usable == pytest.approx(0.90 + 0.07 * hash_rng.uniform(3, "usable"))
    kind = hash_rng.normal(3, "memory", "full", WORKLOAD.attention)
    need = worst_need(chosen, truth._site).total
    assert truth.memory(chosen) == pytest.approx(need * math.exp(0.05 * kind))
    for field in fields(truth._site):
        drawn = 1.3 * getattr(PRIOR, field.name) * hash_rng.normal(3, "site", field.name)
        assert getattr(truth._site, field.name) == pytest.approx(math.exp(drawn))


def test_some_dispatchers_are_slow_between_domains() -> None:
    """Three dispatchers in ten are slower between domains, by a factor of 1.3 to 2.5."""
    slow = 0
    for seed in range(20):
        for name in ("alltoall", "flex"):
            expected = 1.0
            if hash_rng.uniform(seed, "dispatcher", name) < 0.3:
                expected, slow = 1.3 + 1.2 * hash_rng.uniform(seed, "dispatcher", name, "how much"), slow + 1
            assert GroundTruth._dispatcher(SimpleNamespace(seed=seed), name) == pytest.approx(expected)  # type: ignore[arg-type]
    assert 5 <= slow <= 20


@pytest.mark.parametrize(("ep", "etp", "domain", "far"), [(8, 1, 8, False), (8, 2, 8, True), (16, 1, 8, True)])
def test_the_busiest_expert_determines_the_time(
    ep: int, etp: int, domain: int, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imbalance slows experts and dispatch by 1 + imbalance x sqrt(ep / experts x 2 ln ep)."""
    truth = GroundTruth(3)
    truth._imbalance, truth._dispatchers = 0.2, np.array([1.0, 2.0])
    monkeypatch.setattr(ground_truth, "experts_of", lambda _: SimpleNamespace(count=64))
    rows: Any = SimpleNamespace(
        ep=np.array([ep]), etp=np.array([etp]), cluster=SimpleNamespace(domain=domain), dispatcher=np.array([1])
    )
    busiest = 1 + 0.2 * math.sqrt(ep / 64 * 2 * math.log(ep))
    found = truth._unequal(rows, {"experts": np.array([3.0]), "dispatch": np.array([5.0]), "head": np.array([7.0])})
    assert list(found) == ["experts", "dispatch"]
    assert found["experts"] == pytest.approx(3 * busiest)
    assert found["dispatch"] == pytest.approx(5 * busiest * (2 if far else 1))


def test_noise_is_normal_or_heavy_tailed_with_the_same_deviation() -> None:
    drawn = hash_rng.normal("x", 1)
    assert RunNoise(deviation=0.1).factor("x", 1) == pytest.approx(math.exp(0.1 * drawn))
    assert RunNoise().factor("x", 1) == 1.0
    squares = sum(hash_rng.normal("x", 1, "tail", number) ** 2 for number in range(3))
    heavy = drawn / math.sqrt(squares / 3) / math.sqrt(3)
    assert RunNoise(deviation=0.1, heavy_tailed=True).factor("x", 1) == pytest.approx(math.exp(0.1 * heavy))
    for deviation in (-0.01, 1.0):
        with pytest.raises(InputError, match="must be at least 0 and below 1"):
            RunNoise(deviation=deviation)


@pytest.mark.parametrize(("nodes", "start_up"), [(1, 60.0), (22, 100.0), (64, 180.0), (128, 180.0)])
def test_a_simulated_job_starts_by_its_nodes_and_runs_each_batch(nodes: int, start_up: float, tmp_path: Path) -> None:
    """Start-up takes 60 s on one node up to 180 s on 64 or more, and the first iteration 1.3 to 3 times as long."""
    launcher = SimulatedLauncher(128, seed=3, drift=SpeedChange(factor=2.0, after_jobs=5))
    topology = one(nodes=nodes, dp=8 * nodes)
    job = Job(
        number=0,
        tag="t",
        folder=tmp_path,
        workload=WORKLOAD,
        cluster=cluster("bloom-48"),
        topology=replace(topology, global_batch=128 * nodes),
        iterations=(2, 3),
        batches=(64 * nodes, 128 * nodes),
    )
    life = launcher._decide(job, "run", 4, 5)
    chance = (3, "run", 4)
    truth = [
        float(launcher.truth.seconds(Columns.of([replace(topology, global_batch=batch)], WORKLOAD, job.cluster))[0])
        for batch in job.batches
    ]
    noise = math.exp(0.01 * hash_rng.normal(*chance, "noise"))
    steps = [
        2.0 * truth[number // 3] * noise * math.exp(0.003 * hash_rng.normal(*chance, "jitter", number + 1))
        for number in range(6)
    ]
    steps[0] *= 1.3 + 1.7 * hash_rng.uniform(*chance, "warm-up")
    assert life.start_up == pytest.approx(start_up)
    assert life.steps == pytest.approx(steps)
    assert (life.order, life.nodes, life.measured, life.batches, life.submitted) == (5, nodes, (2, 3), 2, 0.0)
    last = Columns.of([job.topology], WORKLOAD, job.cluster)
    assert life.memory == pytest.approx(float(launcher.truth.memory(last)[0]))
    seconds = (steps[4] + steps[5]) / 2
    assert life.tflops == pytest.approx(float(per_gpu(hardware_flops(last), seconds, last)[0]) / 1e12)
    before = launcher._decide(job, "run", 4, 4)
    assert before.steps == pytest.approx([step / 2 for step in steps])


def test_a_simulated_failure_prints_its_draw() -> None:
    launcher, chance = SimulatedLauncher(4, seed=3), (3, "run", 0)
    job: Any = SimpleNamespace(topology=one(nodes=4), cluster=cluster("bloom-48"))
    assert launcher._evidence(Outcome.MEASURED, job, columns(), chance) == ""
    piece = 0.2 + 3.8 * hash_rng.uniform(*chance, "piece")
    capacity = limit(columns()) / 2**30
    assert launcher._evidence(Outcome.OOM, job, columns(), chance) == (
        f"SIMULATED torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {piece:.2f} GiB. GPU 0 has a total "
        f"capacity of {capacity:.2f} GiB of which {piece * 512:.2f} MiB is free."
    )
    node = int(hash_rng.uniform(*chance, "node") * 4)
    line = _CRASHES[int(hash_rng.uniform(*chance, "line") * 4)]
    crash = line.format(node=node, rank=node * job.cluster.gpus_per_node)
    assert launcher._evidence(Outcome.CRASHED, job, columns(), chance) == f"SIMULATED {crash}"


@pytest.mark.parametrize("rows", [8191, 8192, 8193, 16384])
def test_many_rows_are_computed_in_chunks_of_8192(rows: int) -> None:
    asked: list[int] = []

    def figures(part: Any) -> Any:
        asked.append(len(part.tp))
        return part.tp

    class Rows:
        def __init__(self, tp: Any) -> None:
            self.tp = tp

        def rows(self, index: Any) -> Rows:
            return Rows(self.tp[index])

    found = ground_truth._by_chunks(figures, Rows(np.arange(rows)))  # type: ignore[arg-type]
    assert found.tolist() == list(range(rows))
    assert max(asked) <= 8192
    assert len(asked) == -(-rows // 8192)


def test_sinfo_is_summed_over_nodes_and_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launch.preflight.shutil.which", lambda name: str(tmp_path / name))
    program = tmp_path / "sinfo"
    for script, verdict, evidence in (
        ("echo 'n1 gpu*'; echo 'n2 gpu*'; echo; echo 'n2 old'", "ok", "2 nodes in 2 partitions"),
        ("echo 'n1 gpu*'", "ok", "1 node in 1 partition"),
        ("echo first >&2; echo last >&2; exit 1", "warning", "last"),
        ("exit 1", "warning", "no answer"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        found = preflight.slurm()
        assert (found.verdict, found.evidence) == (verdict, evidence)
    monkeypatch.setattr("tuner.launch.preflight.shutil.which", lambda name: None if name == "sbatch" else name)
    assert preflight.slurm().verdict == "missing"


@pytest.mark.parametrize(
    ("out", "err", "found"),
    [
        ('noise\n{"a": 1}\n{"a": 2}\nnoise', "", {"a": 2}),
        ("noise", "first\nlast\n", {"error": "the probe exited with code 3: last"}),
        ("", "", {"error": "the probe exited with code 3: no output"}),
    ],
)
def test_a_probe_is_read_from_its_last_document(
    out: str, err: str, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        return SimpleNamespace(stdout=out, stderr=err, returncode=3)

    monkeypatch.setattr("tuner.launch.preflight.subprocess.run", run)
    assert preflight.probe() == preflight.probe(measure=True) == found
    assert [command[1:] for command in asked] == [["-m", "tuner.worker.probe", *more] for more in ([], ["--measure"])]


def test_a_cancelled_job_keeps_its_progress(tmp_path: Path) -> None:
    """A cancelled job keeps its iterations and times; the clock starts at 50 s so that start and end differ."""
    launcher = SimulatedLauncher(48, seed=1, clock=50.0)
    topology = Topology(nodes=48, tp=4, pp=12, dp=8, micro_batch=1, zero=1, recompute="selective")
    job = Job(number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=cluster("bloom-48"), topology=topology)
    handle = launcher.submit(job)
    launcher.wait(600.0)
    running = launcher.poll([handle])[handle]
    launcher.cancel(handle)
    ended = launcher.poll([handle])[handle]
    assert (running.state, ended.state) == (JobState.RUNNING, JobState.ENDED)
    assert (ended.began, ended.iterations, ended.seconds_in, ended.moved) == (
        *(50.0, running.iterations, running.seconds_in, running.moved),
    )
    assert (running.moved or 0) > 50.0
