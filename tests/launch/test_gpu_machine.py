"""A machine with GPUs as described by `nvidia-smi`, which is replaced by a stand-in with fixed answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.core.errors import UnknownName
from tuner.launch.machine import NVIDIA_SMI_QUERY, Machine, catalog_name, this_machine
from tuner.launch.memory_probe import memory_of
from tuner.launch.supervisor import TAG

GIB = 2.0**30
MIB = 2.0**20
H100S = "NVIDIA H100 80GB HBM3, 81559\n" * 8


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """Put an `nvidia-smi` first on the path that prints these answers, named after its `--query-` options."""
    lines = [f"*--query-{name.replace('_', '-')}=*) cat {folder / name};;" for name in answers]
    for name, answer in answers.items():
        (folder / name).write_text(answer)
    program = folder / "nvidia-smi"
    program.write_text("\n".join(["#!/bin/sh", 'case "$*" in', *lines, "*) exit 9;;", "esac", ""]))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)


def test_a_machine_has_the_gpus_listed_by_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch, gpu=H100S)
    found = this_machine()
    assert (found.accelerator, found.cards, found.name) == ("cuda", 8, "NVIDIA H100 80GB HBM3")
    assert found.memory == 81559 * MIB
    assert catalog_name(found) == "H100-80GB-SXM"
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert (this_machine().accelerator, this_machine().cards) == ("cpu", 0)


@pytest.mark.parametrize(
    "answer", ["", "No devices were found\n", "NVIDIA H100, [N/A]\n", ", 81559\n", "NVIDIA H100, 99999999999999\n"]
)
def test_without_usable_gpus_the_cpu_is_used(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch, gpu=answer)
    assert (this_machine().accelerator, this_machine().name) == ("cpu", "CPU")


def test_with_a_failing_driver_the_cpu_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch)
    assert subprocess.run(NVIDIA_SMI_QUERY, check=False).returncode == 9
    assert this_machine().accelerator == "cpu"
    (tmp_path / "nvidia-smi").write_text("no program")
    assert this_machine().accelerator == "cpu"


@pytest.mark.parametrize(
    ("printed", "gib", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", 80, "A100-80GB-SXM"),
        ("NVIDIA A100 80GB PCIe", 80, "A100-80GB-PCIe"),
        ("NVIDIA H100 PCIe", 80, "H100-80GB-PCIe"),
        ("NVIDIA H200", 140, "H200-141GB-SXM"),
        ("Tesla V100-SXM2-32GB", 32, "V100-32GB-SXM"),
        ("NVIDIA B200", 179, "B200-180GB-SXM"),
        ("NVIDIA GB300", 277, "GB300-288GB"),
        ("NVIDIA GH200 480GB", 95.6, "GH200-96GB"),
        ("NVIDIA H20", 95.6, "H20"),
        ("NVIDIA GeForce RTX 4090", 24, "RTX4090-24GB"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "RTX6000ADA-48GB"),
    ],
)
def test_a_gpu_is_found_in_the_catalog_by_its_driver_name(printed: str, gib: float, name: str) -> None:
    machine = Machine(accelerator="cuda", cards=8, name=printed, memory=gib * GIB, cores=96)
    assert catalog_name(machine) == name


@pytest.mark.parametrize(("printed", "gib"), [("NVIDIA H100 NVL", 93.6), ("NVIDIA H200 NVL", 140), ("NVIDIA L4", 22)])
def test_an_unknown_gpu_is_not_mistaken_for_a_related_one(printed: str, gib: float) -> None:
    machine = Machine(accelerator="cuda", cards=8, name=printed, memory=gib * GIB, cores=96)
    with pytest.raises(UnknownName, match="Describe it in a TOML file: --gpu FILE"):
        catalog_name(machine)


def test_the_memory_of_a_job_is_that_of_its_largest_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command, env={**os.environ, TAG: "memory"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        assert rank.stdout
        rank.stdout.readline()
        driver(
            tmp_path, monkeypatch, compute_apps=f"1, 70000\n{rank.pid}, 1024\n{rank.pid}, 3072\n", gpu="9000\n8000\n"
        )
        assert memory_of("memory", on_host=False) == 3072 * MIB
        # In a container the driver reports other pids, or none; then the use of the fullest GPU counts.
        driver(tmp_path, monkeypatch, compute_apps="1, 70000\n", gpu="9000\n8000\n")
        assert memory_of("memory", on_host=False) == 9000 * MIB
        driver(tmp_path, monkeypatch, compute_apps="[Not Supported]\n", gpu="[N/A]\n")
        assert memory_of("memory", on_host=False) == 0.0
        assert memory_of("memory", on_host=True) > 1e6
        assert memory_of("another", on_host=True) == 0.0
        rank.kill()
