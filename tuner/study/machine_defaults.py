"""A study of real jobs, here or on nodes: what is not said follows from the machine and the shipped worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.core import catalog
from tuner.core.errors import InputError
from tuner.core.text import counted
from tuner.launch.local.hostfile import Host
from tuner.launch.machine import Machine, catalog_name, host_gpu, this_machine

POLICIES: Final = ("dp-multiple-of-4", "batch-multiple-of-32")
"""The BLOOM site's own: they are nobody else's."""

UNBUILT: Final = {"cp": "cp=1", "vpp": "vpp=1"}
"""Axes that the shipped worker does not spread over, and how they are held."""

BATCHES: Final = 4
"""Sequences for each rank in the global batch where none is given."""


def described_on(given: Mapping[str, Any], machine: Machine, hosts: Sequence[Host]) -> dict[str, Any]:
    """The same for the machines of a hostfile, which are all like this one: at most so many as it names."""
    nodes, slots = given["nodes"] or len(hosts), min(host.slots for host in hosts)
    if nodes > len(hosts):
        raise InputError(f"the hostfile names {counted(len(hosts), 'host')}, and --nodes asks for {nodes}.")
    if (given["gpus_per_node"] or slots) > slots:
        raise InputError(f"a host has {counted(slots, 'slot')}, and --gpus-per-node asks for {given['gpus_per_node']}.")
    one = {**given, "nodes": 1, "gpus_per_node": given["gpus_per_node"] or slots}
    described = described_here(one, machine, own_program=True)
    if given["global_batch"] is None:
        described["global_batch"] *= nodes
    return {**described, "nodes": nodes}


def described_here(given: Mapping[str, Any], machine: Machine, *, own_program: bool) -> dict[str, Any]:
    """The arguments that describe a space, completed by what this machine is.

    `own_program` says that the shipped worker runs, not the user's command.
    """
    described = dict(given)
    if (described["nodes"] or 1) != 1:
        raise InputError(f"--launcher local has one node, this machine, and not {described['nodes']}.")
    described["nodes"] = 1
    ranks = described["gpus_per_node"] or machine.cards or machine.cores
    described["gpus_per_node"] = ranks
    on_host = machine.accelerator == "cpu"
    if described["gpu"] is None and described["cluster"] is None:
        described["gpu"] = host_gpu(machine, ranks) if on_host else catalog_name(machine, tuple(catalog.catalog().gpu))
    elif not on_host and ranks > machine.cards:
        raise InputError(f"this machine has {machine.cards} accelerators, and --gpus-per-node asks for {ranks}.")
    return _completed(described, on_host=on_host, own_program=own_program, ranks=ranks)


def described_on_slurm(given: Mapping[str, Any], *, on_host: bool, own_program: bool) -> dict[str, Any]:
    """The arguments that describe a space on nodes that are not this machine.

    `on_host` says that ranks compute on the nodes' processors: a node is then taken to be like this machine.
    """
    described = dict(given)
    if described["nodes"] is None and described["cluster"] is None:
        raise InputError("--launcher slurm runs real jobs: say on how many nodes at most, such as --nodes 4.")
    if not on_host:
        return _completed(described, on_host=False, own_program=own_program, ranks=None)
    machine = this_machine()
    ranks = described["gpus_per_node"] or machine.cores
    if described["cluster"] is None:
        described["gpus_per_node"] = ranks
        described["gpu"] = described["gpu"] or host_gpu(machine, ranks)
    return _completed(described, on_host=True, own_program=own_program, ranks=ranks * (described["nodes"] or 1))


def _completed(described: dict[str, Any], *, on_host: bool, own_program: bool, ranks: int | None) -> dict[str, Any]:
    """What the shipped worker and a CPU want where nothing is said; `ranks` are all that there are."""
    if described["model"] is None and on_host:
        described["model"] = "tiny"
    if on_host:
        described["precision"] = described["precision"] or "fp32"
    if own_program:
        described["attention"] = described["attention"] or ("eager" if on_host else "flash2")
        held = {text.partition("=")[0].strip().replace("-", "_") for text in described["settings"]}
        more = tuple(text for axis, text in UNBUILT.items() if axis not in held)
        described["settings"] = (*described["settings"], *more)
    if ranks is None:
        return described
    described["global_batch"] = described["global_batch"] or BATCHES * ranks
    described["allow"] = (*described["allow"], *(name for name in POLICIES if name not in described["allow"]))
    return described
