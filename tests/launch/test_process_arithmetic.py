"""A job's processes: their stacks, their end, what they write, and the defaults of a machine for them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.stages import CLUSTER, TOPOLOGIES, WORKLOAD
from tests.workers import ONE
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.errors import InputError, LaunchError
from tuner.core.model import Model
from tuner.launch import dashboard_server, machine, machine_defaults, memory_probe, outcome, stacks, supervisor
from tuner.launch.contract import Job, JobState, JobStatus
from tuner.launch.ds_config import ds_config, with_trainer_values
from tuner.launch.local.hostfile import Host
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.log_tail import LogProgress
from tuner.launch.machine import CORE_BANDWIDTH, CORE_FLOPS, PROCESS_BANDWIDTH, Machine, host_gpu
from tuner.launch.machine_defaults import hostfile_defaults, local_defaults, slurm_defaults
from tuner.launch.program import CommandTemplate, WorkerProgram
from tuner.launch.trainers.megatron_lm import stage_layout
from tuner.launch.trainers.torchtitan import TORCHTITAN
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.space.build import SpaceArguments


@pytest.fixture
def shell() -> Iterator[Callable[..., int]]:
    """Start shell scripts that print a line once they are ready, and end them."""
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


# -- stacks


def test_each_process_is_listed_with_its_rank_its_state_and_its_stack(
    shell: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that dumps on a signal, one that does not and one that is stopped; a process that is gone is left out."""
    monkeypatch.setattr("tuner.launch.stacks.shutil.which", lambda _: None)
    monkeypatch.setattr(stacks, "DUMP_TIMEOUT", 10.0)
    log = tmp_path / "stderr.log"
    log.write_text("before\n")
    dumps = shell(f"trap 'echo File x.py >> {log}' USR1; echo ready; while :; do sleep 0.01; done", OTHER="1", RANK="3")
    silent = shell("printf 'rank 5' > /proc/$$/comm; echo ready; read x")
    stopped = shell("echo ready; kill -STOP $$", "a", "b")
    while stacks._state(stopped) != "T":
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
    assert stacks._state(gone.pid) is None
    assert (stacks._command(gone.pid), stacks._rank(gone.pid)) == ("", "")
    assert stacks.write_stacks([gone.pid], log, tmp_path / "none.txt", bool) == 0
    assert not (tmp_path / "none.txt").exists()


def test_py_spy_writes_a_stack_where_it_is_installed(
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


def test_a_rank_of_the_worker_dumps_on_a_signal_once_it_catches_it(shell: Callable[..., int]) -> None:
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


# -- the supervisor


class Ending:
    """Processes of a job that end at their times by a clock of 0.01 s a look, or never."""

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


def test_what_is_left_of_a_job_is_asked_to_end_once_and_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ending(monkeypatch, p5=100.1, p6=100.42)
    assert supervisor._end("t") == []
    asked = [(at, pid) for at, pid, sign in world.sent if sign == signal.SIGTERM]
    killed = [(at, pid) for at, pid, sign in world.sent if sign == signal.SIGKILL]
    assert asked == [(100.0, 5), (100.0, 6)]
    assert killed == [(100.4, 6), (100.41, 6)]


def test_a_process_that_cannot_be_killed_is_left_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ending(monkeypatch, p6=1e9, p5=1e9)
    assert supervisor._end("t") == [5, 6]
    assert world.clock == pytest.approx(110.0)
    assert Ending(monkeypatch).sent == []
    assert supervisor._end("t") == []


def test_every_child_that_has_exited_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for ends in (iter([(5, 0), (6, 256), (0, 0)]), iter([(5, 0), (6, 256)])):

        def waitpid(pid: int, options: int, ends: Iterator[tuple[int, int]] = ends) -> tuple[int, int]:
            assert (pid, options) == (-1, os.WNOHANG)
            if (found := next(ends, None)) is None:
                raise ChildProcessError
            return found

        monkeypatch.setattr("tuner.launch.supervisor.os.waitpid", waitpid)
        assert supervisor._reaped() == [(5, 0), (6, 256)]


def test_a_jobs_child_dies_with_its_supervisor_and_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 and 36 are PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of linux/prctl.h, 2 and 37 what reads them."""
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


def test_a_signal_reaches_its_process_and_no_other_matters(shell: Callable[..., int]) -> None:
    pid = shell("echo ready; read x")
    supervisor._signal(pid, signal.SIGSTOP)
    while stacks._state(pid) != "T":
        time.sleep(0.005)
    supervisor._signal(2**22 + 1, signal.SIGTERM)


# -- the GPU's driver


def test_the_driver_is_asked_once_and_rows_with_words_are_left_out(
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


# -- defaults of a machine

HOST = Machine(accelerator="cpu", cards=0, name="CPU", memory=64e9, cores=4)
GPUS = Machine(accelerator="cuda", cards=8, name="NVIDIA H100 80GB HBM3", memory=80 * 2**30, cores=96)
NOTHING: dict[str, Any] = {
    **dict.fromkeys(SpaceArguments.__annotations__),
    "settings": (),
    "allow": (),
    "framework": "deepspeed",
}


@pytest.mark.parametrize(("ranks", "share"), [(2, 1.0), (4, 1.0), (8, 0.5)])
def test_a_rank_on_the_host_has_its_share_of_the_cores_and_the_memory(ranks: int, share: float) -> None:
    gpu = host_gpu(HOST, ranks)
    assert gpu.memory == 64e9 / ranks
    assert (gpu.memory_bandwidth, gpu.sms) == (CORE_BANDWIDTH * share, 1)
    assert gpu.peak_flops == {"fp32": CORE_FLOPS * share, "bf16": CORE_FLOPS * share}
    assert gpu.intra_node_bandwidth == gpu.inter_node_bandwidth == PROCESS_BANDWIDTH * share


@pytest.mark.parametrize(
    ("given", "ranks", "batch"),
    [
        ({"nodes": 3}, 4, 48),
        ({"nodes": 3, "gpus_per_node": 2}, 2, 24),
        ({"nodes": 3, "global_batch": 5}, 4, 5),
        ({"cluster": "bloom-48"}, None, 16),
    ],
)
def test_slurm_nodes_that_compute_on_the_host_are_like_this_machine(
    given: dict[str, Any], ranks: int | None, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 sequences for each rank of all nodes; a cluster that is named keeps its own GPUs."""
    monkeypatch.setattr(machine_defaults, "this_machine", lambda: HOST)
    found = slurm_defaults({**NOTHING, **given}, on_host=True, own_worker=True)
    assert (found["gpus_per_node"], found["global_batch"]) == (ranks, batch)
    assert found["gpu"] == (None if ranks is None else host_gpu(HOST, ranks))
    assert (found["model"], found["precision"], found["attention"]) == ("tiny", "fp32", "eager")
    named = slurm_defaults({**NOTHING, "nodes": 1, "gpu": "H200"}, on_host=True, own_worker=False)
    assert (named["gpu"], named["settings"], named["attention"]) == ("H200", (), None)


def test_slurm_nodes_with_gpus_leave_batch_and_policies_to_the_user() -> None:
    found = slurm_defaults({**NOTHING, "nodes": 2}, on_host=False, own_worker=True)
    assert (found["global_batch"], found["allow"], found["settings"]) == (None, (), ("cp=1", "vpp=1"))
    with pytest.raises(InputError, match="give the maximum number of nodes"):
        slurm_defaults(NOTHING, on_host=False, own_worker=True)


@pytest.mark.parametrize(("nodes", "searched"), [(None, 3), (2, 2)])
def test_a_space_inside_an_allocation_has_its_nodes(
    nodes: int | None, searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"}
    for name, value in {**allocated, "DS_ACCELERATOR": "cuda"}.items():
        monkeypatch.setenv(name, value)
    given: SpaceArguments = {"nodes": nodes, "gpu": "H100-80GB-SXM", "model": "gpt-1.3b", "global_batch": 24}
    space = machine_defaults.space_on("slurm", given, within_allocation=True)
    assert space.cluster.nodes == searched


@pytest.mark.parametrize(("ranks", "fits"), [(None, True), (8, True), (9, False)])
def test_a_machine_with_gpus_has_at_most_as_many_ranks(ranks: int | None, fits: bool) -> None:
    asked = {**NOTHING, "gpus_per_node": ranks}
    if not fits:
        with pytest.raises(InputError, match="--gpus-per-node is 9, but this machine has 8 accelerators"):
            local_defaults({**asked, "gpu": "H100-80GB-SXM"}, GPUS, own_worker=True)
        return
    found = local_defaults(asked, GPUS, own_worker=True)
    assert (found["gpus_per_node"], found["gpu"], found["global_batch"]) == (8, "H100-80GB-SXM", 32)
    assert local_defaults({**asked, "gpu": "mine"}, GPUS, own_worker=True)["gpu"] == "mine"
    with pytest.raises(InputError, match="has one node"):
        local_defaults({**asked, "nodes": 2}, GPUS, own_worker=True)


def test_the_hosts_of_a_hostfile_share_a_batch_for_each_rank() -> None:
    hosts = [Host(name="a", slots=3), Host(name="b", slots=2), Host(name="c", slots=4)]
    found = hostfile_defaults(NOTHING, HOST, hosts)
    assert (found["nodes"], found["gpus_per_node"], found["global_batch"]) == (3, 2, 4 * 2 * 3)
    fewer = hostfile_defaults({**NOTHING, "nodes": 2, "gpus_per_node": 1, "global_batch": 6}, HOST, hosts)
    assert (fewer["nodes"], fewer["gpus_per_node"], fewer["global_batch"]) == (2, 1, 6)
    with pytest.raises(InputError, match="--nodes is 4, but the hostfile names 3 hosts"):
        hostfile_defaults({**NOTHING, "nodes": 4}, HOST, hosts)
    with pytest.raises(InputError, match="--gpus-per-node is 3, but a host has 2 slots"):
        hostfile_defaults({**NOTHING, "gpus_per_node": 3}, HOST, hosts)


# -- what a job is given


def test_hf_trainer_fills_in_what_its_arguments_set() -> None:
    config = ds_config(WORKLOAD, TOPOLOGIES["good"])
    optimizer = config["optimizer"]
    found = with_trainer_values(config)
    assert found["gradient_clipping"] == "auto"
    auto = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
    assert found["optimizer"] == {**optimizer, "params": {**optimizer["params"], **auto}}
    momentum = with_trainer_values({"optimizer": {"type": "SGD", "params": {"lr": 1e-3, "momentum": 0.9}}})
    assert momentum["optimizer"]["params"] == {"lr": "auto", "momentum": 0.9}
    assert {name: value for name, value in found.items() if name not in ("optimizer", "gradient_clipping")} == {
        name: value for name, value in config.items() if name not in ("optimizer", "gradient_clipping")
    }


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "mtp", "layout"),
    [
        (61, 8, 2, 1, "Et*4|(tttt|)*14tmL"),
        (61, 16, 1, 0, "Et*4|(tttt|)*14tL"),
        (5, 2, 1, 2, "Et*3|ttmmL"),
        (8, 3, 1, 0, "Et*3|(ttt|)*1ttL"),
    ],
)
def test_a_layout_names_the_layers_of_each_chunk(layers: int, pp: int, vpp: int, mtp: int, layout: str) -> None:
    model: Model = replace(WORKLOAD.model, layers=layers, mtp_layers=mtp)
    assert stage_layout(model, replace(ONE, pp=pp, vpp=vpp)) == layout


def test_a_status_that_says_nothing_has_no_progress(tmp_path: Path) -> None:
    assert JobStatus(state=JobState.RUNNING) == JobStatus(
        state=JobState.RUNNING, began=None, iterations=0, number=0, interval=1, seconds_in=0.0, share=None, reason=""
    )
    assert LogProgress() == LogProgress(iterations=0, number=0, interval=None, skipped=0, lines=0, overflows=0)
    job = Job(number=0, tag="", folder=tmp_path, workload=WORKLOAD, cluster=CLUSTER, topology=ONE)
    assert (job.iterations, job.batches) == ((2,), ())


@pytest.mark.parametrize(("share", "fits"), [(1.0, True), (0.999, False)])
def test_a_topology_fits_where_its_memory_is_at_most_the_limit(
    share: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = GroundTruth(3)
    columns = Columns.of([ONE], WORKLOAD, catalog.cluster("bloom-48"))
    memory = truth.memory(columns)
    monkeypatch.setattr(truth, "limit", lambda _: memory * share)
    assert truth.fits(columns).tolist() == [fits]


# -- the dashboard


@pytest.mark.parametrize(
    ("display", "opened"), [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "wayland-0"}, True)]
)
def test_a_browser_opens_only_where_there_is_a_display(
    display: dict[str, str], opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in display.items():
        monkeypatch.setenv(name, value)
    asked: list[str] = []
    monkeypatch.setattr("tuner.launch.dashboard_server.webbrowser.open", lambda url: not asked.append(url))  # type: ignore[func-returns-value]
    monkeypatch.setattr("tuner.launch.dashboard_server.sys.platform", "linux")
    assert dashboard_server.show("http://x") is opened
    assert asked == ["http://x"] * opened


def test_a_dashboard_has_the_address_of_each_study() -> None:
    made = dashboard_server.Dashboard(SimpleNamespace(wait=lambda: 3), 8080)  # type: ignore[arg-type]
    assert made.study_page(7) == "http://127.0.0.1:8080/dashboard/studies/7"
    assert made.wait() == 3


def test_a_dashboard_that_exits_is_not_waited_for() -> None:
    process: Any = SimpleNamespace(poll=lambda: 3, returncode=3)
    with pytest.raises(LaunchError, match=r"exited with code 3 before it answered; is port 81 free\?"):
        dashboard_server._wait_for(process, 81)
    with socket.create_server((dashboard_server.HOST, 0)) as server:
        process.poll = lambda: None
        dashboard_server._wait_for(process, server.getsockname()[1])


@pytest.mark.parametrize(("length", "shown"), [(400, 400), (401, 400)])
def test_the_last_line_of_a_log_is_cut(length: int, shown: int, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"first\n {'x' * length} \n\n")
    assert outcome._last_line(tmp_path / "log") == "x" * shown
    (tmp_path / "log").write_text("\n")
    assert outcome._last_line(tmp_path / "log") == outcome._last_line(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("1B", 1_235_814_400),
        ("3B", 3_212_749_824),
        ("8B", 8_030_261_248),
        ("70B", 70_553_706_496),
        ("405B", 405_853_388_800),
    ],
)
def test_torchtitans_sizes_have_the_parameters_of_llama_3(size: str, parameters: int) -> None:
    """By the checkpoints of Llama 3.1 and 3.2 on Hugging Face; those of 8B and above are in the catalog too."""
    found = TORCHTITAN.model({"--module": "llama3", "--config": f"llama3_{size.lower()}", "--training.seq_len": "4096"})
    assert found is not None
    assert (found.parameters, found.seq) == (parameters, 4096)
    assert found.vocab == 128256
    if size not in ("1B", "3B"):
        assert catalog.model(f"llama-3-{size.lower()}").parameters == parameters


def test_a_host_has_the_memory_of_all_its_pages() -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    assert machine._host_memory() == pytest.approx(int(total.split()[1]) * 1024, rel=0.01)
