"""Defaults for real jobs, from the machine, the hostfile or the allocation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.frameworks import ANY
from tuner.core.text import counted
from tuner.core.worker_refusals import BUILT, refusals
from tuner.launch.local.hostfile import Host, read_hostfile
from tuner.launch.machine import Machine, catalog_name, computes_on_host, host_gpu, this_machine
from tuner.launch.slurm.allocation import nodes_allocated
from tuner.space.build import SpaceArguments, given_arguments, space_for
from tuner.space.space import Space

BLOOM_POLICIES: Final = ("dp-multiple-of-4", "batch-multiple-of-32")
"""Policies of the BLOOM site, which no other site needs."""

UNSUPPORTED_AXES: Final = {"cp": "cp=1", "vpp": "vpp=1"}
"""Axes that tuner's own worker does not implement, and the settings that pin them."""

WORKER_LAUNCHERS: Final = ("local", "hostfile", "slurm")
"""Launchers whose jobs run tuner's own worker unless a command is given."""

BATCH_PER_RANK: Final = 4
"""Sequences for each rank in the default global batch."""


def space_on(
    launcher: str | None,
    description: SpaceArguments,
    *,
    command: str | None = None,
    hostfile: str | Path | None = None,
    within_allocation: bool = False,
) -> Space:
    """Return the space that `space_for`'s arguments describe, completed with the launcher's defaults.

    Without a `command` jobs run tuner's own worker, which supports fewer axes.
    """
    own_worker = not command
    given: dict[str, Any] = {**dict.fromkeys(SpaceArguments.__annotations__), "exact_nodes": False, **description}
    for name in ("settings", "allow"):
        given[name] = tuple(given[name] or ())
    arguments = given_arguments(given)
    if own_worker and launcher in WORKER_LAUNCHERS:
        given["framework"] = _workers_framework(given["framework"])
    if launcher == "local":
        given = local_defaults(given, this_machine(), own_worker=own_worker)
    elif launcher == "hostfile":
        if hostfile is None:
            raise InputError("--launcher hostfile needs --hostfile FILE, with one line `HOST slots=N` for each host.")
        given = hostfile_defaults(given, this_machine(), read_hostfile(Path(hostfile)))
    elif launcher == "slurm":
        if within_allocation:
            allocated = nodes_allocated(os.environ)
            given["nodes"] = allocated if given["nodes"] is None else given["nodes"]
        given = slurm_defaults(given, on_host=computes_on_host(), own_worker=own_worker)
    space = replace(space_for(**given), arguments=arguments)
    if own_worker and launcher in WORKER_LAUNCHERS:
        _refuse_unbuilt(space.workload)
    return space


def _refuse_unbuilt(workload: Workload) -> None:
    """Raise for an optimizer, or parts of a model, that tuner's worker supports on no topology."""
    for field, sentence in refusals(workload, Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1)):
        if field == "optimizer" or (hasattr(workload.model, field) and field not in BUILT):
            raise InputError(f"{sentence.removesuffix('.')}; give your own trainer with --command.")


def _workers_framework(named: str | None) -> str:
    """Return the framework of tuner's worker, or `any` if that is specified; raise for another framework."""
    if named not in (None, ANY, "deepspeed"):
        raise InputError(
            f"--framework {named} needs --command with a program of that framework: without one, jobs run the "
            "bundled worker, which uses DeepSpeed (--framework deepspeed)."
        )
    return named or "deepspeed"


def _worker_attention(given: Mapping[str, Any], *, on_host: bool) -> str | None:
    """Return the worker's attention kernel; None if it follows from the model and the GPU."""
    if on_host:
        return "eager"
    return "flash2" if given["framework"] == ANY else None


def local_defaults(given: Mapping[str, Any], machine: Machine, *, own_worker: bool) -> dict[str, Any]:
    """Return the arguments completed for jobs on this machine."""
    completed = dict(given)
    if (completed["nodes"] or 1) != 1:
        raise InputError(f"jobs on this machine have one node: use --nodes 1, not {completed['nodes']}.")
    completed["nodes"] = 1
    ranks = completed["gpus_per_node"] or machine.cards or machine.cores
    completed["gpus_per_node"] = ranks
    on_host = machine.accelerator == "cpu"
    if completed["gpu"] is None and completed["cluster"] is None:
        completed["gpu"] = host_gpu(machine, ranks) if on_host else catalog_name(machine)
    elif not on_host and ranks > machine.cards:
        raise InputError(f"--gpus-per-node is {ranks}, but this machine has {counted(machine.cards, 'accelerator')}.")
    if completed["nvlink_domain"] is None and not on_host and ranks < machine.cards and machine.cards % ranks == 0:
        completed["nvlink_domain"] = machine.cards  # jobs on some GPUs have the links of the whole node
    return _with_worker_defaults(completed, on_host=on_host, own_worker=own_worker, ranks=ranks)


def hostfile_defaults(given: Mapping[str, Any], machine: Machine, hosts: Sequence[Host]) -> dict[str, Any]:
    """Return the arguments completed for the hosts of a hostfile, which are assumed to be like this machine."""
    nodes, slots = given["nodes"] or len(hosts), min(host.slots for host in hosts)
    if nodes > len(hosts):
        raise InputError(f"--nodes is {nodes}, but the hostfile names {counted(len(hosts), 'host')}.")
    if (given["gpus_per_node"] or slots) > slots:
        raise InputError(f"--gpus-per-node is {given['gpus_per_node']}, but a host has {counted(slots, 'slot')}.")
    one_node = {**given, "nodes": 1, "gpus_per_node": given["gpus_per_node"] or slots}
    completed = local_defaults(one_node, machine, own_worker=True)
    if given["global_batch"] is None:
        completed["global_batch"] *= nodes
    return {**completed, "nodes": nodes, "nvlink_domain": given["nvlink_domain"]}


def slurm_defaults(given: Mapping[str, Any], *, on_host: bool, own_worker: bool) -> dict[str, Any]:
    """Return the arguments completed for nodes of a Slurm cluster.

    With `on_host`, ranks run on the nodes' CPUs, and a node is assumed to be like this machine.
    """
    completed = dict(given)
    if completed["nodes"] is None and completed["cluster"] is None:
        raise InputError("--launcher slurm runs real jobs: give the maximum number of nodes, such as --nodes 4.")
    if not on_host:
        return _with_worker_defaults(completed, on_host=False, own_worker=own_worker, ranks=None)
    machine = this_machine()
    ranks = completed["gpus_per_node"] or machine.cores
    if completed["cluster"] is None:
        completed["gpus_per_node"] = ranks
        completed["gpu"] = completed["gpu"] or host_gpu(machine, ranks)
    return _with_worker_defaults(
        completed, on_host=True, own_worker=own_worker, ranks=ranks * (completed["nodes"] or 1)
    )


def _with_worker_defaults(
    completed: dict[str, Any], *, on_host: bool, own_worker: bool, ranks: int | None
) -> dict[str, Any]:
    """Return the arguments completed with what tuner's worker and a CPU need; `ranks` counts all of them."""
    if completed["model"] is None and on_host:
        completed["model"] = "tiny"
    if on_host:
        completed["precision"] = completed["precision"] or "fp32"
    if own_worker:
        completed["attention"] = completed["attention"] or _worker_attention(completed, on_host=on_host)
        pinned = {text.partition("=")[0].strip().replace("-", "_") for text in completed["settings"]}
        more = tuple(setting for axis, setting in UNSUPPORTED_AXES.items() if axis not in pinned)
        completed["settings"] = (*completed["settings"], *more)
    if ranks is None:
        return completed
    completed["global_batch"] = completed["global_batch"] or BATCH_PER_RANK * ranks
    policies = (name for name in BLOOM_POLICIES if name not in completed["allow"])
    completed["allow"] = (*completed["allow"], *policies)
    return completed
