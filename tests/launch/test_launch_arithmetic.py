"""OOM kills, memory use, the simulated truth and virtual jobs, compared with exact values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.workers import ONE, WORKLOAD
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.outcomes import Outcome
from tuner.launch import memory_probe, preflight, supervisor
from tuner.launch.contract import JobState
from tuner.launch.outcome import MIN_FREE_DISK, _cause, _from_log, noted_batches
from tuner.launch.preflight import accelerator, disk, frameworks
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainers.command import starts_ranks
from tuner.launch.virtual import ground_truth, hash_rng
from tuner.launch.virtual.ground_truth import CLIFF, CLIFFS, UNEVEN, GroundTruth
from tuner.launch.virtual.job import VirtualJob, marks
from tuner.launch.virtual.run_noise import Faults
from tuner.launch.virtual.simulated import SpeedChange, _stop
from tuner.logs import StepSize


def test_the_supervisor_counts_oom_kills_during_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor reports the OOM kills during the job: 8 at its end less 5 at its start."""
    counts = iter([5, 8])
    monkeypatch.setattr(supervisor, "_oom_kills", lambda: next(counts))
    monkeypatch.setattr(supervisor, "_prctl", lambda *_: None)
    monkeypatch.setattr("tuner.launch.supervisor.signal.signal", lambda *_: None)
    monkeypatch.setattr("tuner.launch.supervisor.subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=1))
    monkeypatch.setattr(supervisor, "_watch", lambda *_: ("exited", 3))
    monkeypatch.setattr(supervisor, "_end", lambda _tag: [7])
    monkeypatch.setattr(supervisor, "_disk_left", lambda _folder: 9)
    start: dict[str, Any] = {"result": None, "arguments": ["x"], "cwd": ".", "environment": {}, "tag": "t"}
    (tmp_path / "start.json").write_text(json.dumps(start))
    supervisor.supervise(tmp_path)
    ended = json.loads((tmp_path / "ended.json").read_text())
    assert (ended["why"], ended["exit"], ended["oom_kills"], ended["left"]) == ("exited", 3, 3, [7])
    assert ended["disk_left"] == 9
    assert 0 <= ended["ended"] - ended["began"] < 60
    assert (tmp_path / "ended.json").stat().st_size >= supervisor.RESERVED_BYTES


def test_the_first_existing_counter_of_kills_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first existing file is read, and only its counter `oom_kill`, not `oom` or `oom_kill_disable`."""
    (tmp_path / "group").write_text("oom 3\noom_kill_disable 9\noom_kill 7\n")
    (tmp_path / "root").write_text("oom_kill 11\n")
    paths = [tmp_path / "none", tmp_path / "group", tmp_path / "root"]
    monkeypatch.setattr(supervisor, "_oom_counters", lambda: paths)
    assert supervisor._oom_kills() == 7
    monkeypatch.setattr(supervisor, "_oom_counters", lambda: paths[:1])
    assert supervisor._oom_kills() == 0


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/user/job\n", ["cgroup/user/job/memory.events", "cgroup/memory.events"]),
        (
            "9:cpu,memory:/job:7\n8:cpuset:/x\nnonsense\n",
            ["cgroup/memory/job:7/memory.oom_control", "cgroup/memory/memory.oom_control"],
        ),
        ("", []),
    ],
)
def test_kills_are_counted_in_the_cgroup_of_the_process(
    groups: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OOM kills are read from the process's cgroup, v2 or v1, and finally from the counter of the whole machine."""
    monkeypatch.setattr(Path, "read_text", lambda path: groups if str(path) == "/proc/self/cgroup" else "")
    assert supervisor._oom_counters() == [Path("/sys/fs") / file for file in files] + [Path("/proc/vmstat")]


def test_two_free_ports_are_chosen() -> None:
    found = preflight.ports()
    words = found.evidence.split()
    first, second = int(words[1]), int(words[3])
    assert (found.verdict, first != second) == ("ok", True)
    assert min(first, second) >= 1024, "a port that any user may have"


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("torchrun train.py", True),
        ("/opt/bin/deepspeed train.py", True),
        ("python torchrun", False),
        ("python train.py", False),
        ("python -m torch.distributed.run train.py", True),
        ("python -u -m torch.distributed.run train.py", True),
        ("python -u -O -I torch.distributed.run", False),
        ("", False),
    ],
)
def test_a_launch_program_is_the_first_word_or_module_among_four(command: str, starts: bool) -> None:
    assert starts_ranks(command.split()) is starts


def test_a_site_profile_has_string_variables_and_integer_resources(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('environment = { A = 1, B = "x", C = 0.5 }\nresources = { "rdma/ib" = 8 }\n')
    found = SiteProfile.read(file)
    assert found.environment == (("A", "1"), ("B", "x"), ("C", "0.5"))
    assert found.resources == (("rdma/ib", 8),)


@pytest.mark.parametrize(("batches", "measured"), [(3, 3), (2, 2), (1, 1), (0, 1), (-2, 1), ("3", 1), (None, 1)])
def test_a_note_names_two_batches_or_more(batches: object, measured: int) -> None:
    assert noted_batches({"batches": batches}) == measured
    assert noted_batches({}) == 1


@pytest.mark.parametrize(
    ("apps", "used"), [(["5, 100", "7, 300", "9, 900"], 300), (["9, 900"], 640), (["7, 20", "bad"], 20)]
)
def test_the_memory_of_a_job_is_that_of_its_largest_process(
    apps: list[str], used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's memory is the largest among its processes, 5 and 7; if the driver knows neither, the fullest GPU's."""
    monkeypatch.setattr(memory_probe, "members", lambda _tag: {5, 7})
    gpus = ["512", "640"]
    monkeypatch.setattr(memory_probe, "_nvidia_smi", lambda query: apps if query is memory_probe._PROCESSES else gpus)
    assert memory_probe.memory_of("t", on_host=False) == used * 2**20
    monkeypatch.setattr(memory_probe, "_high_water", lambda pid: {5: 11.0, 7: 13.0}[pid])
    assert memory_probe.memory_of("t", on_host=True) == 13.0
    monkeypatch.setattr(memory_probe, "members", lambda _tag: set())
    assert memory_probe.memory_of("t", on_host=False) == memory_probe.memory_of("t", on_host=True) == 0


@pytest.mark.parametrize(
    ("free", "verdict", "words"),
    [(4.99e9, "warning", "5.0 GB free"), (5e9, "ok", "5 GB free"), (1234.5e9, "ok", "1,234 GB free")],
)
def test_five_gigabytes_of_disk_are_enough(
    free: float, verdict: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.launch.preflight.shutil.disk_usage", lambda _path: SimpleNamespace(free=free))
    found = disk(tmp_path / "not" / "there")
    assert found.verdict == verdict
    assert found.evidence == f"{words} at {tmp_path}"


def test_gpu_memory_is_printed_in_gibibytes() -> None:
    machine: Any = SimpleNamespace(cards=4, memory=80 * 2**30, name="H100", cores=16)
    assert (accelerator(machine).verdict, accelerator(machine).evidence) == ("ok", "4 x H100, 80 GiB")
    machine = SimpleNamespace(cards=0, memory=64 * 2**30, name="", cores=16)
    assert (accelerator(machine).verdict, accelerator(machine).evidence) == ("warning", "none; 16 cores and 64 GiB")


@pytest.mark.parametrize(
    ("found", "verdicts"),
    [
        ({"error": "x"}, {"torch": "missing"}),
        ({}, {"torch": "missing"}),
        ({"torch": "2", "accelerator": "cpu"}, {"torch": "ok", "deepspeed": "missing"}),
        ({"torch": "2", "deepspeed": "1", "accelerator": "cuda"}, {"torch": "ok", "deepspeed": "ok", "nccl": "ok"}),
        (
            {"torch": "2", "deepspeed": "1", "accelerator": "cpu", "gloo": True},
            {"torch": "ok", "deepspeed": "ok", "nccl": "warning"},
        ),
    ],
)
def test_each_framework_has_a_verdict(found: dict[str, Any], verdicts: dict[str, str]) -> None:
    assert {check.name: check.verdict for check in frameworks(found)} == verdicts


@pytest.mark.parametrize(
    ("year", "step", "verdict"), [(2024, 1e-3, "ok"), (2023, 1e-9, "warning"), (2025, 2e-3, "warning")]
)
def test_a_clock_is_recent_and_has_milliseconds(
    year: int, step: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = SimpleNamespace(
        get_clock_info=lambda _name: SimpleNamespace(resolution=step),
        gmtime=lambda: SimpleNamespace(tm_year=year),
        strftime=lambda *_: "now",
    )
    monkeypatch.setattr(preflight, "time", stand_in)
    assert preflight.clock().verdict == verdict


@pytest.mark.parametrize(
    ("ended", "outcome", "meaning"),
    [
        ({"oom_kills": 1}, Outcome.CRASHED, None),
        ({"disk_left": MIN_FREE_DISK - 1}, Outcome.CRASHED, "the disk is full"),
        ({"disk_left": MIN_FREE_DISK, "exit": 3}, Outcome.CRASHED, "exit code 3"),
        ({"why": "killed"}, Outcome.CRASHED, "killed from outside"),
        ({"exit": -9}, Outcome.CRASHED, "killed from outside"),
        ({"exit": 124}, Outcome.TIMED_OUT, "its time limit expired"),
        ({"exit": 0}, Outcome.CRASHED, "ended without a result"),
    ],
)
def test_a_job_without_logs_ends_like_its_process(
    ended: dict[str, Any], outcome: Outcome, meaning: str | None, tmp_path: Path
) -> None:
    found = _cause(tmp_path, ended, on_host=False)
    assert found[0] is outcome
    assert meaning is None or found[1] == meaning
    if ended.get("oom_kills"):
        assert _cause(tmp_path, ended, on_host=True)[0] is Outcome.OOM


def test_a_log_is_measured_by_medians_of_the_requested_iterations(tmp_path: Path) -> None:
    """Seconds and TFLOPs of a log are medians over the iterations asked for, here 2 to 4."""
    lines = [
        f" iteration {n}/ 9 | elapsed time per iteration (s): {s}.0 | lm loss: 2.0 | TFLOPs: {s}0.0 | \n"
        for n, s in [(1, 99), (2, 2), (3, 9), (4, 4)]
    ]
    (tmp_path / "stdout.log").write_text("".join(lines))
    found: Any = _from_log(tmp_path, [2, 3, 4], StepSize(), None)[0]
    assert (found.seconds, found.tflops, found.iterations) == (4.0, 40.0, (2, 3, 4))
    assert _from_log(tmp_path, [4, 5], StepSize(), None) == (
        None,
        "stdout.log has iterations 1 to 4 in 4 lines, and line 5 is measured; log every iteration, or train for longer",
    )


def columns(**axes: Any) -> Columns:
    """Return the columns of one topology on the cluster bloom-48."""
    return Columns.of([one(**axes)], WORKLOAD, cluster("bloom-48"))


def one(**axes: Any) -> Topology:
    """Return `ONE` with these axes changed."""
    return replace(ONE, **axes)


@pytest.mark.parametrize("axes", [{}, {"micro_batch": 8}, {"cp": 2}, {"vpp": 4, "pp": 2}])
def test_kernels_with_few_tokens_are_slower(axes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are slower by 1 + starved x 2048 / (micro batch x sequence / cp); chunks cost a share per doubling."""
    truth = GroundTruth(3)
    none: Callable[[Columns], Any] = lambda rows: np.zeros(len(rows.tp))  # noqa: E731 - a stand-in
    monkeypatch.setattr(truth, "_wave", none)
    monkeypatch.setattr(truth, "_kind", none)
    monkeypatch.setattr(truth, "_cliffs", lambda rows: 2 + none(rows))
    terms = {"products": np.array([5.0]), "bubble": np.array([3.0]), "head": np.array([1.0])}
    monkeypatch.setattr(ground_truth, "time_terms", lambda *_: terms)
    chosen = columns(**axes)
    tokens = axes.get("micro_batch", 4) * 32 / axes.get("cp", 1)
    hungry = 1 + truth._starved * 2048 / tokens
    chunks = 1 + truth._interleaved * math.log2(axes.get("vpp", 1))
    expected = (5 * hungry + 3 * truth._overlap["bubble"] + 1) * chunks * 2
    assert truth.seconds(chosen) == pytest.approx(expected)
    assert 0 < truth._starved < 0.25
    assert truth.limit(chosen) == pytest.approx(chosen.cluster.gpu.memory * truth._usable)


def test_a_slow_shape_is_slower_by_the_square_of_its_draw() -> None:
    """Three shapes in ten are slower by 1.05 + 0.30 u^2, the others vary by exp(0.008 n)."""
    truth, slow = GroundTruth(1), 0
    for hidden in range(64, 64 * 41, 64):
        shape = (1, "cliff", hidden, 4, 1)
        if hash_rng.uniform(*shape) < CLIFFS:
            expected, slow = 1 + CLIFF[0] + (CLIFF[1] - CLIFF[0]) * hash_rng.uniform(*shape, "how much") ** 2, slow + 1
        else:
            expected = math.exp(UNEVEN * hash_rng.normal(*shape, "how little"))
        assert truth._cliff(hidden, 4, 1) == pytest.approx(expected)
    assert 4 <= slow <= 20


def test_draws_are_within_their_limits() -> None:
    drawn = [hash_rng.uniform("x", number) for number in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.5, abs=0.03)
    assert hash_rng.between(2.0, 6.0, "x", 1) == pytest.approx(2 + 4 * drawn[1])
    assert 0 < min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1


def course(**changes: Any) -> VirtualJob:
    """Return a virtual job with a start-up of 10 s and iterations of 4, 2 and 3 s."""
    usual: dict[str, Any] = {
        "cluster": "c",
        "tag": "t",
        "folder": "f",
        "run": "r",
        "nodes": 1,
        "submitted": 0.0,
        "order": 0,
        "start_up": 10.0,
        "steps": (4.0, 2.0, 3.0),
        "measured": (2, 3),
        "outcome": Outcome.MEASURED,
        "stops": 19.0,
        "simulated": True,
    }
    return VirtualJob(**usual | changes)


@pytest.mark.parametrize(
    ("now", "state", "iterations", "seconds_in", "share", "moved"),
    [
        (105.0, JobState.RUNNING, 0, 5.0, None, 100.0),
        (110.0, JobState.RUNNING, 0, 10.0, 0.0, 110.0),
        (111.0, JobState.RUNNING, 0, 11.0, 0.25, 111.0),
        (114.0, JobState.RUNNING, 1, 0.0, 0.0, 114.0),
        (115.5, JobState.RUNNING, 1, 1.5, 0.75, 115.5),
        (117.5, JobState.RUNNING, 2, 1.5, 0.5, 117.5),
        (119.0, JobState.ENDED, 3, 0.0, None, 119.0),
        (150.0, JobState.ENDED, 3, 0.0, None, 119.0),
    ],
)
def test_the_status_of_a_virtual_job_follows_from_its_start(
    now: float, state: JobState, iterations: int, seconds_in: float, share: float | None, moved: float
) -> None:
    """The status of a job that began at 100 follows from its iterations, which end at 114, 116 and 119."""
    assert marks(10.0, (4.0, 2.0, 3.0)) == (10.0, 14.0, 16.0, 19.0)
    found = course().status(100.0, now)
    assert (found.state, found.iterations, found.seconds_in) == (state, iterations, seconds_in)
    assert (found.share, found.moved) == (share, moved)


def test_a_hung_job_makes_no_progress_and_a_failed_one_lacks_its_last_iteration() -> None:
    hung = course(outcome=Outcome.HUNG, stops=15.0)
    found = hung.status(100.0, 500.0)
    assert (hung.ends, found.state, found.iterations) == (math.inf, JobState.RUNNING, 1)
    assert (found.share, found.moved, found.seconds_in) == (0.5, 115.0, 386.0)
    failed = course(outcome=Outcome.CRASHED, stops=16.0)
    assert failed.status(100.0, 120.0).iterations == 1
    assert (failed.ends, failed.moments, failed.result().elapsed) == (16.0, (10.0, 14.0, 16.0), 16.0)
    measurement = course(steps=(9.0, 2.0, 3.0)).result().measurement
    assert measurement is not None
    assert measurement.seconds == 2.5


@pytest.mark.parametrize(
    ("measured", "valid"), [([2, 3], True), ([1], True), ([0, 1], False), ([4], False), ([], False)]
)
def test_a_virtual_job_is_read_back_only_with_valid_iterations(measured: list[int], valid: bool) -> None:
    document = json.loads(course().text()) | {"measured": measured}
    assert (VirtualJob.of(document) is not None) == valid


@pytest.mark.parametrize(
    ("change", "jobs", "seconds", "begun"),
    [
        (SpeedChange(factor=1.1, after_jobs=3), 2, 99.0, False),
        (SpeedChange(factor=1.1, after_jobs=3), 3, 0.0, True),
        (SpeedChange(factor=1.1, at_seconds=50.0), 9, 49.0, False),
        (SpeedChange(factor=1.1, at_seconds=50.0), 0, 50.0, True),
    ],
)
def test_a_drift_starts_at_a_job_or_a_time(change: SpeedChange, jobs: int, seconds: float, begun: bool) -> None:
    assert change.begun(jobs, seconds) is begun
    with pytest.raises(InputError, match="exactly one"):
        SpeedChange(factor=1.1, after_jobs=1, at_seconds=1.0)


def test_faults_have_the_requested_frequency() -> None:
    """Draws below the share of hangs hang, and draws below the sum of both shares crash."""
    faults = Faults(hangs=0.3, crashes=0.2)
    for number in range(200):
        drawn = hash_rng.uniform(0, f"r{number}", 0, "fault")
        expected = Outcome.HUNG if drawn < 0.3 else Outcome.CRASHED if drawn < 0.5 else None
        assert faults.of_run(0, f"r{number}", 0) is expected
        assert expected is None or faults.of_run(0, f"r{number}", 1) is None


def test_a_job_ends_after_its_last_iteration_or_within_its_first() -> None:
    chance = (0, "r", 0)
    assert _stop(Outcome.MEASURED, 10.0, (4.0, 2.0), chance) == 16.0
    assert 10.0 < _stop(Outcome.OOM, 10.0, (4.0, 2.0), chance) <= 14.0
    drawn = hash_rng.between(0.05, 0.98, *chance, "stop")
    assert _stop(Outcome.CRASHED, 10.0, (4.0, 2.0), chance) == pytest.approx(16 * drawn)
