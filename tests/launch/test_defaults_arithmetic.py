"""A machine's defaults for jobs, and the inputs of a job, compared with exact values."""

from __future__ import annotations

import socket
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
from tuner.launch import dashboard_server, machine, machine_defaults, outcome
from tuner.launch.contract import Job, JobState, JobStatus
from tuner.launch.ds_config import ds_config, with_trainer_values
from tuner.launch.local.hostfile import Host
from tuner.launch.log_tail import LogProgress
from tuner.launch.machine import CORE_BANDWIDTH, CORE_FLOPS, PROCESS_BANDWIDTH, Machine, host_gpu
from tuner.launch.machine_defaults import hostfile_defaults, local_defaults, slurm_defaults
from tuner.launch.slurm.allocation import nodes_allocated
from tuner.launch.trainers.megatron_lm import stage_layout
from tuner.launch.trainers.torchtitan import TORCHTITAN
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.space.build import SpaceArguments

HOST = Machine(accelerator="cpu", cards=0, name="CPU", memory=64e9, cores=4)


GPUS = Machine(accelerator="cuda", cards=8, name="NVIDIA H100 80GB HBM3", memory=80 * 2**30, cores=96)


NOTHING: dict[str, Any] = {
    **dict.fromkeys(SpaceArguments.__annotations__),
    "settings": (),
    "allow": (),
    "framework": "deepspeed",
}


@pytest.mark.parametrize(("ranks", "share"), [(2, 1.0), (4, 1.0), (8, 0.5)])
def test_a_cpu_rank_has_its_share_of_cores_and_memory(ranks: int, share: float) -> None:
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
def test_slurm_nodes_without_gpus_are_like_this_machine(
    given: dict[str, Any], ranks: int | None, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm nodes without GPUs get this machine's ranks, 4 sequences each; a named cluster keeps its own GPUs."""
    monkeypatch.setattr(machine_defaults, "this_machine", lambda: HOST)
    found = slurm_defaults({**NOTHING, **given}, on_host=True, own_worker=True)
    assert (found["gpus_per_node"], found["global_batch"]) == (ranks, batch)
    assert found["gpu"] == (None if ranks is None else host_gpu(HOST, ranks))
    assert (found["model"], found["precision"], found["attention"]) == ("tiny", "fp32", "eager")
    named = slurm_defaults({**NOTHING, "nodes": 1, "gpu": "H200"}, on_host=True, own_worker=False)
    assert (named["gpu"], named["settings"], named["attention"]) == ("H200", (), None)


def test_slurm_nodes_with_gpus_have_no_default_batch_or_policies() -> None:
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
def test_a_machine_with_gpus_has_at_most_one_rank_per_gpu(ranks: int | None, fits: bool) -> None:
    asked = {**NOTHING, "gpus_per_node": ranks}
    if not fits:
        with pytest.raises(InputError, match="--gpus-per-node is 9, but this machine has 8 accelerators"):
            local_defaults({**asked, "gpu": "H100-80GB-SXM"}, GPUS, own_worker=True)
        return
    found = local_defaults(asked, GPUS, own_worker=True)
    assert (found["gpus_per_node"], found["gpu"], found["global_batch"]) == (8, "H100-80GB-SXM", 32)
    assert local_defaults({**asked, "gpu": "mine"}, GPUS, own_worker=True)["gpu"] == "mine"
    assert local_defaults({**asked, "cluster": "bloom-48"}, GPUS, own_worker=True)["gpu"] is None
    with pytest.raises(InputError, match="have one node"):
        local_defaults({**asked, "nodes": 2}, GPUS, own_worker=True)


@pytest.mark.parametrize(
    ("ranks", "given", "domain"), [(4, None, 8), (2, None, 8), (8, None, None), (3, None, None), (4, 4, 4)]
)
def test_jobs_on_some_gpus_of_a_machine_have_the_links_of_all(ranks: int, given: int | None, domain: int) -> None:
    """Four GPUs of a machine with eight are no board without a switch, unless --nvlink-domain says so."""
    asked = {**NOTHING, "gpus_per_node": ranks, "nvlink_domain": given}
    assert local_defaults(asked, GPUS, own_worker=True)["nvlink_domain"] == domain
    assert hostfile_defaults(asked, GPUS, [Host(name="a", slots=8)] * 2)["nvlink_domain"] == given


def test_the_hosts_of_a_hostfile_share_a_batch_per_rank() -> None:
    hosts = [Host(name="a", slots=3), Host(name="b", slots=2), Host(name="c", slots=4)]
    found = hostfile_defaults(NOTHING, HOST, hosts)
    assert (found["nodes"], found["gpus_per_node"], found["global_batch"]) == (3, 2, 4 * 2 * 3)
    fewer = hostfile_defaults({**NOTHING, "nodes": 2, "gpus_per_node": 1, "global_batch": 6}, HOST, hosts)
    assert (fewer["nodes"], fewer["gpus_per_node"], fewer["global_batch"]) == (2, 1, 6)
    with pytest.raises(InputError, match="--nodes is 4, but the hostfile names 3 hosts"):
        hostfile_defaults({**NOTHING, "nodes": 4}, HOST, hosts)
    with pytest.raises(InputError, match="--gpus-per-node is 3, but a host has 2 slots"):
        hostfile_defaults({**NOTHING, "gpus_per_node": 3}, HOST, hosts)


def test_hf_trainer_clips_and_optimizes_as_its_arguments_say() -> None:
    config = ds_config(WORKLOAD, TOPOLOGIES["good"])
    found = with_trainer_values({**config, "scheduler": {"type": "WarmupLR"}})
    assert found == {**{name: config[name] for name in config if name != "optimizer"}, "gradient_clipping": "auto"}


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "mtp", "layout"),
    [
        (61, 8, 2, 1, "Et*4|(tttt|)*14tmL"),
        (61, 16, 1, 0, "Et*4|(tttt|)*14tL"),
        (5, 2, 1, 2, "Et*3|ttmmL"),
        (8, 3, 1, 0, "Et*3|(ttt|)*1ttL"),
    ],
)
def test_a_layout_lists_the_layers_of_each_chunk(layers: int, pp: int, vpp: int, mtp: int, layout: str) -> None:
    model: Model = replace(WORKLOAD.model, layers=layers, mtp_layers=mtp)
    assert stage_layout(model, replace(ONE, pp=pp, vpp=vpp)) == layout


def test_a_status_without_figures_has_no_progress(tmp_path: Path) -> None:
    assert JobStatus(state=JobState.RUNNING) == JobStatus(
        state=JobState.RUNNING, began=None, iterations=0, number=0, interval=1, seconds_in=0.0, share=None, reason=""
    )
    assert LogProgress() == LogProgress(iterations=0, number=0, interval=None, skipped=0, lines=0, overflows=0)
    job = Job(number=0, tag="", folder=tmp_path, workload=WORKLOAD, cluster=CLUSTER, topology=ONE)
    assert (job.iterations, job.batches) == ((2,), ())


@pytest.mark.parametrize(("share", "fits"), [(1.0, True), (0.999, False)])
def test_a_topology_fits_if_its_memory_is_at_most_the_limit(
    share: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = GroundTruth(3)
    columns = Columns.of([ONE], WORKLOAD, catalog.cluster("bloom-48"))
    memory = truth.memory(columns)
    monkeypatch.setattr(truth, "limit", lambda _: memory * share)
    assert truth.fits(columns).tolist() == [fits]


@pytest.mark.parametrize(
    ("display", "opened"), [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "wayland-0"}, True)]
)
def test_a_browser_opens_only_with_a_display(
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


def test_a_dashboard_has_an_address_per_study() -> None:
    made = dashboard_server.Dashboard(SimpleNamespace(wait=lambda: 3), 8080)  # type: ignore[arg-type]
    assert made.study_page(7) == "http://127.0.0.1:8080/dashboard/studies/7"
    assert made.wait() == 3


def test_an_exited_dashboard_is_not_waited_for() -> None:
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
def test_torchtitan_sizes_have_the_parameters_of_llama_3(size: str, parameters: int) -> None:
    """The sizes agree with the Llama 3.1 and 3.2 checkpoints on Hugging Face, and from 8B on with the catalog."""
    found = TORCHTITAN.model({"--module": "llama3", "--config": f"llama3_{size.lower()}", "--training.seq_len": "4096"})
    assert found is not None
    assert (found.parameters, found.seq) == (parameters, 4096)
    assert found.vocab == 128256
    if size not in ("1B", "3B"):
        assert catalog.model(f"llama-3-{size.lower()}").parameters == parameters


def test_a_host_has_the_memory_of_all_its_pages() -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    assert machine._host_memory() == pytest.approx(int(total.split()[1]) * 1024, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 3),
        ({"SLURM_JOB_NUM_NODES": "", "SLURM_NNODES": "4"}, 4),
        ({"SLURM_JOB_NUM_NODES": ""}, None),
        ({"SLURM_JOB_ID": ""}, None),
        ({"SLURM_JOB_NODELIST": ""}, None),
    ],
)
def test_an_allocation_has_a_number_nodes_and_their_count(changes: dict[str, str], count: int | None) -> None:
    found = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"} | changes
    if count is None:
        with pytest.raises(InputError, match="--within-allocation needs a Slurm allocation"):
            nodes_allocated(found)
    else:
        assert nodes_allocated(found) == count
