"""The options that describe a model, a cluster and a space, the same on every command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tuner.space.space import Space

Command = Callable[..., Any]

_DESCRIBE: Final[tuple[Callable[[Command], Command], ...]] = (
    click.option(
        "--model",
        metavar="NAME|FILE",
        help="A preset, a TOML file or a Hugging Face config.json. [default: bloom-14336x72, heads searched]",
    ),
    click.option("--cluster", metavar="NAME|FILE", help="A preset or a TOML file. [default: bloom-48]"),
    click.option("--nodes", type=int, metavar="N", help="At most this many nodes. [default: the cluster's]"),
    click.option("--gpus-per-node", type=int, metavar="N", help="[default: the cluster's]"),
    click.option("--gpu", metavar="NAME|FILE", help="A GPU of the catalog or a TOML file. [default: the cluster's]"),
    click.option("--global-batch", type=int, metavar="N", help="Sequences in one optimizer step. [default: 2048]"),
    click.option("--seq", type=int, metavar="N", help="Tokens in a sequence. [default: the model's]"),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "fp16", "bf16", "fp8"]),
        help="[default: as the preset was trained, else bf16 where the GPU has it]",
    ),
    click.option(
        "--attention",
        type=click.Choice(["eager", "fused", "flash1", "flash2"]),
        help="[default: as the preset was trained, else the GPU's best]",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="AXIS=VALUES",
        help="Pin or widen an axis: tp=8, micro_batch=1,2,4, nodes=40-48, recompute=full, shape=14336x72,13824x78.",
    ),
    click.option("--allow", multiple=True, metavar="POLICY", help="Switch a policy off by its name; see tuner rules."),
    click.option("--ramp", metavar="START,INCREMENT", help="Batch-size ramp-up: its exact law replaces the shorthand."),
    click.option("--exact-nodes", is_flag=True, help="Use all nodes, not at most so many."),
)


LARGEST: Final = 1e30
"""No figure of a training comes near; products of a few such numbers are finite still."""


class Positive(click.ParamType[float]):
    """A positive number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not number > 0:  # nor is what is no number at all
            self.fail(f"{value!r} is not a positive number.", param, ctx)
        if number >= LARGEST:
            self.fail(f"{value!r} is too large; give less than {LARGEST:g}.", param, ctx)
        return number


_NAMES: Final = (
    *("model", "cluster", "nodes", "gpus_per_node", "gpu", "global_batch", "seq", "precision", "attention"),
    *("settings", "allow", "ramp", "exact_nodes"),
)
"""The arguments that these options fill."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def describes_a_space(command: Command) -> Command:
    """Give a command the options that describe a space; it is called with the `space` that they make."""

    @functools.wraps(command)
    def with_space(**given: Any) -> Any:
        from tuner.space.build import space_for

        described = {name: given.pop(name) for name in _NAMES}
        if given.get("launcher") == "local":
            described = _here(described, own_program=not given.get("command"))
        elif given.get("launcher") == "hostfile":
            described = _on_hosts(described, given.get("hostfile"))
        elif given.get("launcher") == "slurm":
            within = bool(given.get("within_allocation"))
            described = _on_slurm(described, own_program=not given.get("command"), within=within)
        space: Space = space_for(**described)
        return command(space=space, **given)

    wrapped: Command = with_space
    for option in reversed(_DESCRIBE):
        wrapped = option(wrapped)
    return wrapped


def _here(described: dict[str, Any], *, own_program: bool) -> dict[str, Any]:
    """What is not said follows from this machine."""
    from tuner.launch.machine import this_machine
    from tuner.study.machine_defaults import described_here

    return described_here(described, this_machine(), own_program=own_program)


def _on_hosts(described: dict[str, Any], file: str | None) -> dict[str, Any]:
    """What is not said follows from the hostfile, and from this machine, which the others are like."""
    from pathlib import Path

    from tuner.core.errors import InputError
    from tuner.launch.local.hostfile import read_hostfile
    from tuner.launch.machine import this_machine
    from tuner.study.machine_defaults import described_on

    if file is None:
        raise InputError("--launcher hostfile wants the machines: --hostfile FILE, a line HOST slots=N for each.")
    return described_on(described, this_machine(), read_hostfile(Path(file)))


def _on_slurm(described: dict[str, Any], *, own_program: bool, within: bool) -> dict[str, Any]:
    """What is not said follows from the allocation, the shipped worker, and on processors from this machine."""
    import os

    from tuner.launch.machine import computes_on_host
    from tuner.launch.slurm.allocation import nodes_allocated
    from tuner.study.machine_defaults import described_on_slurm

    if within:
        there = nodes_allocated(os.environ)
        described["nodes"] = there if described["nodes"] is None else described["nodes"]
    return described_on_slurm(described, on_host=computes_on_host(), own_program=own_program)


def takes_calibration(command: Command) -> Command:
    """Give a command `--calibration`; it is called with the `model` that knows the site, or none."""

    @functools.wraps(command)
    def with_model(**given: Any) -> Any:
        from pathlib import Path

        from tuner.costmodel.estimate import CostModel
        from tuner.costmodel.site_file import read_site

        file = given.pop("calibration")
        return command(model=CostModel(calibration=read_site(Path(file))) if file else CostModel(), **given)

    option = click.option("--calibration", metavar="FILE", help="A file that tuner calibrate made. [default: none]")
    wrapped: Command = option(with_model)
    return wrapped
