"""Several machines through DeepSpeed's launcher: the hostfile, the command, and a job on two local "hosts"."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.launch.test_local import ended, processes
from tests.stages import job_in
from tests.workers import WORKLOAD, needs_deepspeed
from tuner.core import catalog
from tuner.core.domain import Topology
from tuner.core.errors import InputError, LaunchError, UnknownName
from tuner.core.outcomes import Outcome
from tuner.launch import Job
from tuner.launch.ds_config import ds_config
from tuner.launch.local.hostfile import Host, HostfileProgram, arguments, read_hostfile
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import ProcessSpec, WorkerProgram

TWO = (Host(name="node-1", slots=2), Host(name="node-2", slots=2))
WORKER = WorkerProgram(configure=lambda job: ds_config(job.workload, job.topology), accelerator="cpu")


def job(folder: Path, topology: Topology) -> Job:
    cluster = catalog.cluster("bloom-48")
    return job_in(folder / "0000", tag=f"hosts-{folder.name}", topology=topology, workload=WORKLOAD, cluster=cluster)


def test_a_hostfile_is_read_like_deepspeed_does(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\n\nnode-1 slots=8\n10.0.0.2   slots=4  # the old one\n")
    assert read_hostfile(file) == (Host(name="node-1", slots=8), Host(name="10.0.0.2", slots=4))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no host"),
        ("node-1", "line 1: 'node-1' is not of the form HOST slots=N"),
        ("node-1 slots=0", "is not of the form HOST slots=N"),
        ("node-1 slots=8 slots=9", "is not of the form HOST slots=N"),
        ("node-1;reboot slots=8", "is not of the form HOST slots=N"),
        ("-rf slots=8", "is not of the form HOST slots=N"),
        ("a slots=1\na slots=1", "line 2: duplicate host a"),
    ],
)
def test_an_invalid_hostfile_is_refused_with_its_line(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_hostfile(tmp_path / "hosts")
    with pytest.raises(InputError, match="there is no file"):
        read_hostfile(tmp_path / "none")


@pytest.mark.parametrize("over", ["pdsh", "openmpi"])
def test_the_command_of_deepspeeds_launcher(over: str) -> None:
    assert arguments(Path("/runs/s/jobs/0000"), TWO, 4242, over, "/env/bin/python") == (
        *("/env/bin/python", "-m", "deepspeed.launcher.runner"),
        *("--hostfile", "/runs/s/jobs/0000/hostfile", "--launcher", over, "--force_multi", "--no_ssh_check"),
        *("--master_addr", "node-1", "--master_port", "4242"),
        *("--module", "--no_local_rank", "tuner.worker", "--job", "/runs/s/jobs/0000/assignment.json"),
    )


def test_a_job_uses_the_first_hosts_and_a_slot_per_rank(tmp_path: Path) -> None:
    one = job(tmp_path, Topology(nodes=1, tp=2, pp=1, dp=1, micro_batch=2))
    one.folder.mkdir()
    HostfileProgram(worker=WORKER, hosts=TWO).prepare(one)
    assert (one.folder / "hostfile").read_text() == "node-1 slots=2\n"
    exported = (one.folder / ".deepspeed_env").read_text().splitlines()
    assert {"DS_ACCELERATOR=cpu", f"TUNER_JOB={one.tag}"} <= set(exported)
    assert not any(line.startswith("MASTER_") for line in exported)


def test_the_master_address_is_exported_for_open_mpi(tmp_path: Path) -> None:
    """With Open MPI the master address is exported, because it does not start DeepSpeed's launcher on each machine."""
    one = job(tmp_path, Topology(nodes=2, tp=2, pp=1, dp=2, micro_batch=1))
    one.folder.mkdir()
    start = HostfileProgram(worker=WORKER, hosts=TWO, over="openmpi").prepare(one)
    port = start.arguments[start.arguments.index("--master_port") + 1]
    exported = (one.folder / ".deepspeed_env").read_text().splitlines()
    assert {"MASTER_ADDR=node-1", f"MASTER_PORT={port}"} <= set(exported)


def test_unsupported_host_jobs_are_refused(tmp_path: Path) -> None:
    program = HostfileProgram(worker=WORKER, hosts=TWO)
    for wants, complaint in (
        (Topology(nodes=3, tp=2, pp=3, dp=1, micro_batch=1), "needs 3 nodes; the hostfile has 2"),
        (Topology(nodes=1, tp=4, pp=1, dp=1, micro_batch=1), "node-1 has 2 slots; the job needs 4"),
    ):
        with pytest.raises(LaunchError, match=complaint):
            program.prepare(job(tmp_path, wants))
    with pytest.raises(LaunchError, match="letters, digits"):
        program.prepare(job(tmp_path / "with spaces", Topology(nodes=1, tp=2, pp=1, dp=1, micro_batch=1)))
    with pytest.raises(UnknownName, match="carrier-pigeon"):
        HostfileProgram(worker=WORKER, hosts=TWO, over="carrier-pigeon")


def test_a_study_without_hostfile_or_pdsh_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_deepspeed()
    monkeypatch.setenv("PATH", str(tmp_path))
    said = run("optimize", "--launcher", "hostfile", "--runs", str(tmp_path))
    assert (said.code, "--hostfile FILE" in said.err) == (2, True)
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    words = ("--launcher", "hostfile", "--hostfile", str(tmp_path / "hosts"), "--runs", str(tmp_path))
    said = run("optimize", *words)
    assert (said.code, "needs pdsh to reach" in said.err) == (3, True)


RUNNER = """
import os, pathlib, signal, subprocess, sys, time

def end(*_):
    remote_kill = "import pathlib, time; time.sleep(1); pathlib.Path('remote-killed').touch()"
    subprocess.run([sys.executable, "-c", remote_kill])
    sys.exit(1)

signal.signal(signal.SIGTERM, end)
pathlib.Path("begun").touch()
time.sleep(60)
"""


class SlowToEnd(HostfileProgram):
    """A program that takes a second to end its ranks on other machines, in a process of its own."""

    def prepare(self, job: Job) -> ProcessSpec:
        """Start the stand-in instead of DeepSpeed's launcher."""
        return replace(super().prepare(job), arguments=(sys.executable, "-c", RUNNER))


def test_a_cancelled_job_may_end_its_ranks_on_other_machines(tmp_path: Path) -> None:
    """DeepSpeed's launcher ends remote ranks with a process of its own, which is not killed with the job's others."""
    one = job(tmp_path, Topology(nodes=2, tp=1, pp=1, dp=2, micro_batch=2, zero=1, recompute="none"))
    hosts = (Host(name="localhost", slots=1), Host(name="127.0.0.1", slots=1))
    launcher = LocalLauncher(SlowToEnd(worker=WORKER, hosts=hosts), ranks=1, nodes=2, name="hostfile")
    handle = launcher.submit(one)
    until = time.monotonic() + 30
    while not (one.folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    launcher.cancel(handle)
    assert (one.folder / "remote-killed").exists()
    assert processes(one) == set()
    launcher.close()


PDSH = """#!/bin/sh
# A stand-in for pdsh: runs on this machine what it is told to run on each of several.
while [ "$1" != -w ]; do shift; done
hosts=$2; shift 2; node=0
for host in $(echo "$hosts" | tr , ' '); do
    sh -c "$(echo "$*" | sed "s/%n/$node/")" &
    node=$((node + 1))
done
wait
"""


@pytest.mark.slow
def test_a_job_on_two_hosts_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts that are both this machine train together; only pdsh is replaced by a stand-in."""
    needs_deepspeed()
    (tmp_path / "pdsh").write_text(PDSH)
    (tmp_path / "pdsh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    hosts = (Host(name="localhost", slots=1), Host(name="127.0.0.1", slots=1))
    one = job(tmp_path, Topology(nodes=2, tp=1, pp=1, dp=2, micro_batch=2, zero=1, recompute="none"))
    program = HostfileProgram(worker=WORKER, hosts=hosts, python=sys.executable)
    launcher = LocalLauncher(program, ranks=1, nodes=2, name="hostfile")
    result = ended(launcher, launcher.submit(one), 150)
    launcher.close()
    assert result.outcome is Outcome.MEASURED, (result, (one.folder / "stderr.log").read_text()[-3000:])
    assert json.loads((one.folder / "result.json").read_text())["ranks"] == 2
    assert processes(one) == set()
