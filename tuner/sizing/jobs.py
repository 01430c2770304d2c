"""Probe batches with jobs on this machine or on a Slurm cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.launch.contract import Launcher
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.machine import check_jobs_can_run, computes_on_host, this_machine
from tuner.launch.program import axes_not_passed, passes_batch, program_of
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
    global_batch: int | None,
    command: str | None,
    step_pattern: str | None,
    folder: Path,
    iterations: tuple[int, ...],
    timeout: float,
    site_profile: Path | None,
    on_attempt: Callable[[BatchResult], None],
) -> Iterator[JobProbe]:
    """Yield a probe that runs the bundled worker or the user's command; on exit all its jobs are over.

    `launcher` is local or slurm.
    """
    local = launcher == "local"
    accelerator = this_machine().accelerator if local else "cpu" if computes_on_host() else "cuda"
    if local and command is None:
        check_jobs_can_run()
    program = program_of(command, accelerator=accelerator, step_pattern=step_pattern)
    if command is not None and axes_not_passed(command, ["micro_batch"]):
        raise InputError(
            "--command does not pass the micro-batch size, so every job would run the same one: add {micro_batch}."
        )
    if command is not None and topology.pp > 1 and not passes_batch(command):
        raise InputError(
            "--command does not pass the global batch, so how far a job fills its pipeline is unknown: add "
            "{global_batch} or {microbatches}."
        )
    jobs: Launcher
    if local:
        jobs = LocalLauncher(program, ranks=cluster.gpus_per_node)
    else:
        site = SiteProfile() if site_profile is None else SiteProfile.read(site_profile)
        jobs = slurm = SlurmLauncher(program, nodes=cluster.nodes, site=site, notes=folder)
        slurm.check()
    try:
        yield JobProbe(
            launcher=jobs,
            workload=workload,
            cluster=cluster,
            topology=topology,
            global_batch=global_batch,
            folder=folder,
            iterations=iterations,
            timeout=timeout,
            on_host=accelerator == "cpu",
            on_attempt=on_attempt,
        )
    finally:
        jobs.close()
