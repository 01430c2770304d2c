"""A real Slurm cluster of four nodes on this machine: `python -m tests.slurm_cluster COMMAND...` runs a command on it.

It consists of munged, slurmctld and four slurmd in a temporary folder, listening on this host only. They are started in
the foreground and die with this process. Only processes that were started here are ended, by their ids.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

PACKAGES = ("slurm-wlm", "slurmctld", "slurmd", "slurm-client", "munge", "shellcheck")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "shellcheck")
NODES = ("n1", "n2", "n3", "n4")
CPUS = 8

CONF = """\
ClusterName=tuner
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={base}/munge/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={base}/ctld
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/ctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=2
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=UP AllowAccounts=physics
"""


class SlurmCluster:
    """The daemons and their folder."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.base.chmod(0o711)
        self.conf = self.base / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which a process uses this cluster and no other."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start all daemons and wait until every node is idle."""
        for name, mode in (("munge", 0o711), ("ctld", 0o755), ("spool", 0o755), ("log", 0o755)):
            (self.base / name).mkdir()
            (self.base / name).chmod(mode)
        key = self.base / "munge" / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        controller, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=4000"
            for name, port in zip(NODES, ports, strict=True)
        )
        self.conf.write_text(CONF.format(host=host, controller=controller, base=self.base, nodes=nodes))
        munge = self.base / "munge"
        files = {
            "socket": "munge.sock",
            "key-file": "munge.key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        self._start("munged", "munged", "--foreground", "--force", *(f"--{o}={munge / f}" for o, f in files.items()))
        _until(lambda: (munge / "munge.sock").exists(), "munged made no socket")
        self.start_controller()
        for name in NODES:
            self.start_node(name)
        _until(lambda: self.said("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES) * 3, "no idle nodes")

    def start_controller(self) -> None:
        """Start slurmctld with the state saved by the previous one."""
        self._start("slurmctld", "slurmctld", "-D")
        _until(lambda: "UP" in self.said("scontrol", "ping"), "slurmctld does not answer")

    def stop_controller(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld."""
        self._end("slurmctld", number)

    def start_node(self, name: str) -> None:
        """Start a node's slurmd."""
        self._start(name, "slurmd", "-D", "-N", name)

    def kill_node(self, name: str, *, whole: bool = True) -> None:
        """Kill a node's slurmd, and if `whole` also all processes that it started."""
        self._end(name, signal.SIGKILL)
        jobs = self._processes(f"SLURMD_NODENAME={name}") if whole else []
        for pid in [*{parent for job in jobs if (parent := _keeper(job))}, *jobs]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self) -> list[str]:
        """Start the killed nodes again, and return their names."""
        killed = [name for name in NODES if name not in self._daemons]
        for name in killed:
            self.start_node(name)
        return killed

    def mend(self) -> list[str]:
        """Start the killed nodes again, wait until every node is idle, and return their names."""
        killed = self.revive()
        _until(lambda: set(self.said("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}, "no idle nodes", 60.0)
        return killed

    def said(self, *command: str) -> str:
        """Return the output of a Slurm command."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout

    def queue(self) -> list[str]:
        """Return the names of the waiting and running jobs."""
        return self.said("squeue", "-h", "-o", "%j").split()

    def until_empty(self, seconds: float) -> list[str]:
        """Wait until the queue is empty; return the names of the jobs that are left after so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := self.queue()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def allocate(self) -> str:
        """Return the id of a new allocation of all nodes that survives node failures; `clear` ends it."""
        command = ["salloc", f"--nodes={len(NODES)}", "--exclusive", "--no-kill", "--no-shell"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return done.stderr.split("job allocation ")[-1].split()[0]

    def clear(self) -> None:
        """Cancel every job."""
        self.said("scancel", "--user=root")
        _until(lambda: not self.queue(), "jobs that cannot be ended", seconds=30)

    def stop(self) -> None:
        """End all daemons and jobs, and remove the folder."""
        with suppress(TimeoutError):
            self.clear()
        for name in [*NODES, "slurmctld", "munged"]:
            self._end(name, signal.SIGTERM)
        for pid in self._processes(f"SLURM_CONF={self.conf}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.base, ignore_errors=True)

    def program(self, name: str) -> str:
        """Return the path of one of Slurm's programs."""
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        found = shutil.which(name, path=path)
        assert found, f"{name} is not installed: make test-cluster"
        return found

    def _start(self, name: str, *command: str) -> None:
        with (self.base / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [self.program(command[0]), *command[1:]],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def _end(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _processes(self, mark: str) -> list[int]:
        """Return the processes of this cluster with a word in their environment, except this process."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0")
                if mark.encode() in words and f"SLURM_CONF={self.conf}".encode() in words:
                    found.append(int(entry.name))
        return found


_running: list[SlurmCluster] = []


def running() -> SlurmCluster:
    """Return this process's cluster, started at the first call; later commands of this process use it."""
    if not installed() or os.geteuid() != 0:
        pytest.skip("wants Slurm's programs, and to be root: make test-cluster")
    if not _running:
        cluster = SlurmCluster()
        atexit.register(cluster.stop)
        cluster.start()
        os.environ["SLURM_CONF"] = str(cluster.conf)
        _running.append(cluster)
    return _running[0]


def installed() -> bool:
    """Whether all programs are installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return all(shutil.which(program, path=path) for program in PROGRAMS)


def install() -> None:
    """Install missing programs from the distribution's packages."""
    if installed():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"slurm_cluster: install {', '.join(PACKAGES)}, or run this as root on Debian.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qqy", "--no-install-recommends", *PACKAGES]):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def main(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Install and start the cluster, run a command on it, and stop the cluster."""
    install()
    if not command:
        return 0
    cluster = SlurmCluster()
    try:
        cluster.start()
        return subprocess.run(command, env={**cluster.environment, **(environment or {})}, check=False).returncode
    finally:
        cluster.stop()


def _keeper(pid: int) -> int | None:
    """Return the slurmstepd that is the parent of a job's process, or None."""
    with suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
            return parent
    return None


def _until(true: object, otherwise: str, seconds: float = 30.0) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Return free ports outside the range for outgoing connections and that of the jobs, which begins at 15000."""
    found: list[int] = []
    start = 10000 + os.getpid() % 4000
    for port in range(start, start + 1000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
