"""Jobs on this machine, for as long as a search lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.batches.probes import Launching
from tuner.batches.seen import Seen
from tuner.domain import Cluster, Topology, Workload
from tuner.launch.local import Local
from tuner.launch.machine import check_jobs_can_run, this_machine
from tuner.launch.program import Configure, Program, Template, Worker


@contextmanager
def this_machines_jobs(
    *,
    workload: Workload,
    cluster: Cluster,
    topology: Topology,
    configure: Configure,
    command: str | None,
    folder: Path,
    iterations: tuple[int, ...],
    timeout: float,
    seen: Callable[[Seen], None],
) -> Iterator[Launching]:
    """A probe that runs the shipped worker, or a command of the user's; nothing runs any more when it is left."""
    machine = this_machine()
    on_host = machine.accelerator == "cpu"
    program: Program
    if command is None:
        check_jobs_can_run()
        program = Worker(configure=configure, accelerator=machine.accelerator)
    else:
        program = Template.parse(command, configure=configure, cwd=Path.cwd(), on_host=on_host)
    launcher = Local(program, ranks=cluster.gpus_per_node)
    try:
        yield Launching(
            launcher=launcher,
            workload=workload,
            cluster=cluster,
            topology=topology,
            folder=folder,
            iterations=iterations,
            timeout=timeout,
            on_host=on_host,
            seen=seen,
        )
    finally:
        launcher.close()
