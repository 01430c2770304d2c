"""The scripts of exported folders start jobs of tiny models on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests import slurm_cluster
from tests.conftest import Run
from tests.export.test_export import EXPECTED
from tests.workers import WORKLOAD, Ranks, needs_deepspeed, tiny, topology
from tuner.core import catalog
from tuner.core.atomic_write import write_files
from tuner.core.domain import Topology
from tuner.core.ports import free_port
from tuner.core.rotary_scaling import RotaryScaling
from tuner.export.bundle import bundle
from tuner.export.formats import ExportOptions
from tuner.export.production import ProductionRun
from tuner.launch.slurm.site_profile import SiteProfile

LLAMA = tiny(
    kv_heads=2,
    norm="rmsnorm",
    gated_mlp=True,
    activation="gelu_tanh",
    positions="rotary",
    rotary_base=5e5,
    rotary_scaling=RotaryScaling(kind="llama3", factor=8.0, original_seq=16),
    norm_epsilon=1e-6,
    tied_embeddings=False,
    qkv_bias=False,
    mlp_bias=False,
    attention_bias=False,
)
"""A model in which every property differs from the worker's defaults."""

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2, "sequence_parallel": True},
    "pp": {"pp": 2, "zero": 1, "recompute": "full"},
    "dp": {"dp": 2, "micro_batch": 2},
    "zero1": {"dp": 2, "micro_batch": 2, "zero": 1},
    "zero2": {"dp": 2, "micro_batch": 2, "zero": 2},
    "zero3": {"dp": 2, "micro_batch": 2, "zero": 3},
    "offload1": {"pp": 2, "zero": 1, "offload": "optimizer"},
    "offload2": {"dp": 2, "micro_batch": 2, "zero": 2, "offload": "optimizer"},
    "offload3": {"dp": 2, "micro_batch": 2, "zero": 3, "offload": "optimizer"},
    "offload-parameters": {"dp": 2, "micro_batch": 2, "zero": 3, "offload": "optimizer+parameters"},
}
FIRST_LOSS = 4.84
"""Loss of an untrained model with a vocabulary of 128: log 128 = 4.85."""


def run_of(chosen: Topology) -> ProductionRun:
    cluster = catalog.make_cluster(
        name="any",
        gpu=catalog.gpu("A100-80GB-SXM"),
        nodes=chosen.nodes,
        gpus_per_node=chosen.gpus // chosen.nodes,
    )
    workload = replace(WORKLOAD, model=LLAMA, attention="fused").as_in(chosen)
    return ProductionRun(name='it\'s "a" $run', workload=workload, cluster=cluster, topology=chosen, expected=EXPECTED)


def export(folder: Path, chosen: Topology, format_name: str, **options: Any) -> None:
    write_files(folder, bundle(run_of(chosen), format_name, ExportOptions(**options)))


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return kept | {
        "DS_ACCELERATOR": "cpu",
        "MASTER_PORT": str(free_port("127.0.0.1")),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }


def check(folder: Path, chosen: Topology, run: Run) -> None:
    """Check that the job trained the model on the topology of the folder, by its log."""
    result = json.loads((folder / "result.json").read_text())
    assert (result["key"], result["ranks"]) == (chosen.key, chosen.gpus)
    losses = [each["loss"] for each in result["iterations"]]
    assert len(losses) == 10
    assert losses[0] == pytest.approx(FIRST_LOSS, abs=0.05)
    assert min(losses) < losses[0]
    trained = sum(rank["trained"] for rank in result["parameters"][:: chosen.dp if chosen.zero == 0 else 1])
    assert trained >= LLAMA.parameters
    measured = run("measure", str(folder / "out.log"), "--expect", str(folder / "topology.json"), "--json")
    assert measured.code == 0, measured.err
    document = json.loads(measured.out)
    assert document["key"] == chosen.key
    measured_at = document["measurement"]["iterations"]  # the second, or the first steady one after it
    taken = [each["seconds"] for each in result["iterations"] if each["number"] in measured_at]
    assert document["measurement"]["sec_per_iter"] == pytest.approx(median(taken), rel=1e-2)
    assert document["expected"]["mismatch"] is None
    assert document["expected"]["sec_ratio"] == pytest.approx(median(taken) / 105.0, rel=1e-2)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_all_launch_scripts_start_the_same_job(name: str, tmp_path: Path) -> None:
    """All scripts start the worker alike, so the slow tests below run only some topologies per script."""
    chosen, usual = topology(**TOPOLOGIES[name]), topology(**TOPOLOGIES["tp"])
    for format_name in STARTERS:
        export(tmp_path / format_name, chosen, format_name)
        export(tmp_path / f"usual {format_name}", usual, format_name)
        script = (tmp_path / format_name / "launch.sh").read_text()
        assert script.replace(chosen.key, usual.key) == (tmp_path / f"usual {format_name}" / "launch.sh").read_text()
    for read in ("assignment.json", "ds_config.json"):
        assert (tmp_path / "torchrun" / read).read_text() == (tmp_path / "hostfile" / read).read_text()


STARTERS = ("torchrun", "hostfile")
SCRIPTED = ("tp", "pp", "zero3")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TOPOLOGIES) - set(SCRIPTED)))
def test_the_job_of_a_folder_runs(name: str, tmp_path: Path, run: Run, ranks: Ranks) -> None:
    chosen, folder = topology(**TOPOLOGIES[name]), tmp_path / "export"
    export(folder, chosen, "torchrun")
    (folder / "job.json").write_text((folder / "assignment.json").read_text())
    codes = ranks.start(folder, chosen.gpus)
    assert set(codes) == {0}, (folder / "stderr.log").read_text()[-3000:]
    (folder / "out.log").write_text((folder / "stdout.log").read_text())
    check(folder, chosen, run)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTED)
@pytest.mark.parametrize("format_name", STARTERS)
def test_an_exported_folder_runs_unchanged(format_name: str, name: str, tmp_path: Path, run: Run) -> None:
    needs_deepspeed()
    chosen, folder = topology(**TOPOLOGIES[name]), tmp_path / "export"
    export(folder, chosen, format_name)
    with (folder / "out.log").open("w") as log:
        job = subprocess.run(
            [str(folder / "launch.sh")],
            cwd="/",
            env=environment(tmp_path),
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
    assert job.returncode == 0, (folder / "out.log").read_text()[-3000:]
    check(folder, chosen, run)


@pytest.mark.slow
def test_a_log_of_another_job_is_rejected(tmp_path: Path, run: Run) -> None:
    """The log differs in the worker's topology, or in the batch of its iterations."""
    lines = [f"  {name} {'.' * 20} {value}" for name, value in PRINTED.items()]
    lines += [
        f" iteration {number}/ 3 | elapsed time per iteration (ms): 100.0 | global batch size: 8 |"
        for number in (1, 2, 3)
    ]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    for name, sentence in (("same", ""), ("tp", "tp 1 instead of 2"), ("batch", "global_batch 8 instead of 16")):
        chosen = topology(
            **{"same": {"dp": 2, "micro_batch": 2}, "tp": {"tp": 2}, "batch": {"dp": 2, "global_batch": 16}}[name]
        )
        export(tmp_path / name, chosen, "torchrun")
        said = run("measure", str(log), "--expect", str(tmp_path / name / "topology.json"))
        assert said.code == (1 if sentence else 0)
        assert sentence in said.err


PRINTED = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "padded_vocab_size": 128,
    "seq_length": 32,
    "micro_batch_size": 2,
    "data_parallel_size": 2,
    "world_size": 2,
}

SHOW = """
import json, os, pathlib, sys
names = ("RANK", "WORLD_SIZE", "TUNER_TP", "TUNER_PP", "TUNER_KEY", "TUNER_MICRO_BATCH")
document = {"words": sys.argv[1:], "cwd": os.getcwd(), **{name: os.environ[name] for name in names}}
pathlib.Path(os.environ["TUNER_FOLDER"], f"rank{os.environ['RANK']}.json").write_text(json.dumps(document))
"""


@pytest.mark.slow
@pytest.mark.parametrize("starter", ["", "torchrun "])
def test_a_users_program_receives_the_topology(starter: str, tmp_path: Path) -> None:
    """Every rank receives it as arguments and variables, in the program's folder, whatever the folders' names."""
    needs_deepspeed()
    home, folder = tmp_path / "it's home", tmp_path / 'a "b" $c'
    home.mkdir()
    (home / "show it.py").write_text(SHOW)
    python = starter or f"{sys.executable} "
    command = f"{python}'show it.py' --tp {{tp}} --config {{ds_config}} 'a b' '$HOME'"
    chosen = topology(tp=2)
    export(folder, chosen, "torchrun", command=command, workdir=str(home))
    assert "assignment.json" not in {path.name for path in folder.iterdir()}
    job = subprocess.run([str(folder / "launch.sh"), "more"], env=environment(tmp_path), timeout=120)
    assert job.returncode == 0
    for rank in range(2):
        found = json.loads((folder / f"rank{rank}.json").read_text())
        assert found["words"] == ["--tp", "2", "--config", str(folder / "ds_config.json"), "a b", "$HOME", "more"]
        assert (found["RANK"], found["WORLD_SIZE"], found["cwd"]) == (str(rank), "2", str(home))
        assert (found["TUNER_TP"], found["TUNER_PP"], found["TUNER_MICRO_BATCH"]) == ("2", "1", "4")
        assert found["TUNER_KEY"] == chosen.key


SLURM: dict[str, Topology] = {
    "tp on one node": topology(tp=2),
    "pp over two nodes": topology(pp=2, nodes=2, zero=1),
    "ZeRO 3 over two nodes": topology(dp=2, nodes=2, micro_batch=2, zero=3),
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", SLURM)
def test_a_folder_runs_on_a_live_slurm_cluster(name: str, tmp_path: Path, run: Run) -> None:
    """The job is submitted from another folder by the absolute path of its script.

    Its ranks meet on the script's own port.
    """
    needs_deepspeed()
    cluster, chosen, folder = slurm_cluster.running(), SLURM[name], tmp_path / "export"
    variables = {**cluster.environment, **environment(tmp_path)}
    del variables["MASTER_PORT"]
    export(folder, chosen, "slurm", site=SiteProfile(partition="debug", gres="", environment=(("SITE", "it's"),)))
    said = subprocess.run(
        ["sbatch", "--parsable", f"--output={folder / 'out.log'}", str(folder / "launch.sbatch")],  # noqa: S607
        cwd="/",
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    deadline = time.monotonic() + 240
    while cluster.said("squeue", "-h", "-o", "%i", "-j", said.stdout.strip()).strip() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (folder / "result.json").exists(), (folder / "out.log").read_text()[-3000:]
    check(folder, chosen, run)
