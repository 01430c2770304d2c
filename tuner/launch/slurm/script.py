"""The text of a job's batch script: a pure function of the job, its process and the site profile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tuner.core.domain import Cluster, Topology, nodes_in_domain
from tuner.launch.contract import Job
from tuner.launch.program import ProcessSpec
from tuner.launch.shell_templates import shell_templates
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainers.command import starts_ranks

if TYPE_CHECKING:
    from jinja2 import Template

UNWRITABLE: Final = 73
"""The exit code of a script that cannot write to its folder (EX_CANTCREAT of sysexits.h)."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")


def job_name(tag: str) -> str:
    """Return the unique name of a job in the queue."""
    return f"tuner-{tag if _PLAIN.fullmatch(tag) else sha256(tag.encode()).hexdigest()[:24]}"


def batch_script(
    job: Job, start: ProcessSpec, site: SiteProfile, *, accelerators: bool, exclude: Iterable[str] = ()
) -> str:
    """Return the script for `sbatch`; with `accelerators` it requests GPUs."""
    options = _options(job, site, accelerators=accelerators, exclude=exclude)
    once = start.each_rank is None and site.tasks == "once"
    return _script(job, start, site, options=options, within=False, srun=() if once else _srun(job, start, site))


def step_script(job: Job, start: ProcessSpec, site: SiteProfile, *, accelerators: bool) -> str:
    """Return the script of a job step, which gets its nodes from the variable that Slurm sets for an allocation.

    With --overlap no step waits for another, such as the shell in which the tuner runs; the launcher ensures that jobs
    do not share nodes.
    """
    resources = gres(site, job.topology.ranks_per_node, accelerators=accelerators)
    named = ("--overlap", f"--job-name={job_name(job.tag)}", *((f"--gres={resources}",) if resources else ()))
    return _script(job, start, site, options=[], within=True, srun=(*named, *_srun(job, start, site)))


def _script(
    job: Job, start: ProcessSpec, site: SiteProfile, *, options: list[str], within: bool, srun: tuple[str, ...]
) -> str:
    words = list(start.arguments if start.each_rank is None else start.each_rank)
    if site.python and start.each_rank is not None and "tuner.worker" in words:
        words[0] = site.python
    words = [*site.container, *words]
    return _template().render(
        number=job.number,
        key=job.topology.key,
        options=options,
        within=within,
        folder=str(job.folder.resolve()),
        tag=job.tag,
        tag_json=json.dumps(job.tag),
        unwritable=UNWRITABLE,
        nodes=job.topology.nodes,
        ranks=job.topology.gpus,
        per_node=job.topology.ranks_per_node,
        environment=sorted({**start.environment, **dict(site.environment), **job.environment}.items()),
        site=site,
        cwd=str(start.cwd),
        srun=srun,
        program=shlex.join(words),
    )


def _srun(job: Job, start: ProcessSpec, site: SiteProfile) -> tuple[str, ...]:
    """Return the arguments of srun."""
    by_node = start.each_rank is None and (site.tasks == "nodes" or starts_ranks(start.arguments))
    tasks, ranks = (1, job.topology.ranks_per_node) if by_node else (job.topology.ranks_per_node, 1)
    return (
        f"--nodes={job.topology.nodes}",
        f"--ntasks={job.topology.nodes if by_node else job.topology.gpus}",
        f"--ntasks-per-node={tasks}",
        *srun_options(site, ranks),
    )


def srun_options(site: SiteProfile, ranks: int) -> tuple[str, ...]:
    """Return the arguments of srun that jobs and exports share, for tasks of a number of ranks."""
    cores = (f"--cpus-per-task={site.cpus_per_task * ranks}",) if site.cpus_per_task else ()
    return ("--kill-on-bad-exit=1", *cores, *site.srun)


def gres(site: SiteProfile, ranks: int, *, accelerators: bool) -> str:
    """Return the generic resources of a node with a number of ranks."""
    return site.gres if site.gres is not None else f"gpu:{ranks}" if accelerators else ""


def segment(site: SiteProfile, topology: Topology, cluster: Cluster) -> int:
    """Return the nodes of each part of a job that Slurm must place in one NVLink domain; 0 leaves it to Slurm.

    It refuses parts that do not divide the job's nodes.
    """
    nodes = nodes_in_domain(topology, cluster) if site.segment else 0
    return nodes if nodes and topology.nodes % nodes == 0 else 0


def _options(job: Job, site: SiteProfile, *, accelerators: bool, exclude: Iterable[str]) -> list[str]:
    """Return the options of sbatch for a job; none needs quoting."""
    ranks = job.topology.ranks_per_node
    named = {
        "job-name": job_name(job.tag),
        "nodes": job.topology.nodes,
        "ntasks-per-node": ranks,
        "cpus-per-task": site.cpus_per_task,
        "gres": gres(site, ranks, accelerators=accelerators),
        "segment": segment(site, job.topology, job.cluster),
        "chdir": "/",
        "output": "/dev/null",  # the script redirects its output itself, so no path needs quoting here
        "error": "/dev/null",
    }
    return sbatch_options(site, named, exclude=exclude)


def sbatch_options(site: SiteProfile, named: Mapping[str, object], *, exclude: Iterable[str] = ()) -> list[str]:
    """Return options of sbatch by name, without empty ones, and those of the site profile."""
    without = ",".join(dict.fromkeys([*site.exclude, *exclude]))
    names = ("account", "partition", "constraint", "qos", "reservation", "time", "nodelist")
    common = {**{name: getattr(site, name) for name in names}, "exclude": without, "open-mode": "append"}
    return [
        *(f"--{name}={value}" for name, value in {**named, **common}.items() if value),
        *(("--exclusive",) if site.exclusive else ()),
        "--requeue" if site.requeue else "--no-requeue",
        *site.lines,
    ]


@cache
def _template() -> Template:
    return shell_templates().get_template("slurm.sh.j2")
