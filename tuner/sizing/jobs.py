"""Jobs on this machine or on a Slurm cluster, for as long as a search lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.core.domain import Cluster, Topology, Workload
from tuner.launch.contract import Launcher
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.machine import check_jobs_can_run, computes_on_host, this_machine
from tuner.launch.program import Configure, program_of
from tuner.launch.slurm.launcher import SlurmLauncher
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.sizing.fit import BatchResult
from tuner.sizing.probes import JobProbe


@contextmanager
def jobs_of(
    launcher: str,
    *,
    workload: Workload,
    cluster: Cluster,
    topology: Topology,
    configure: Configure,
    command: str | None,
    folder: Path,
    iterations: tuple[int, ...],
    timeout: float,
    slurm_site: Path | None,
    seen: Callable[[BatchResult], None],
) -> Iterator[JobProbe]:
    """A probe that runs the shipped worker, or a command of the user's; nothing runs any more when it is left.

    `launcher` is local or slurm.
    """
    here = launcher == "local"
    accelerator = this_machine().accelerator if here else "cpu" if computes_on_host() else "cuda"
    if here and command is None:
        check_jobs_can_run()
    program = program_of(command, configure=configure, accelerator=accelerator)
    jobs: Launcher
    if here:
        jobs = LocalLauncher(program, ranks=cluster.gpus_per_node)
    else:
        site = SiteProfile() if slurm_site is None else SiteProfile.read(slurm_site)
        jobs = slurm = SlurmLauncher(program, nodes=cluster.nodes, site=site, notes=folder)
        slurm.check()
    try:
        yield JobProbe(
            launcher=jobs,
            workload=workload,
            cluster=cluster,
            topology=topology,
            folder=folder,
            iterations=iterations,
            timeout=timeout,
            on_host=accelerator == "cpu",
            seen=seen,
        )
    finally:
        jobs.close()
