"""`tuner flops`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli import completion
from tuner.cli.options import Positive, as_json, describes_a_space

if TYPE_CHECKING:
    from tuner.planning.flop_count import FlopCount
    from tuner.space.space import Space


@click.command(
    short_help="Count FLOPs; convert a measured time to TFLOPs and MFU.",
    epilog="Example: tuner flops tp8-pp12-dp4-mbs1-z1 --seconds 143.31",
)
@click.argument("key", shell_complete=completion.keys)
@describes_a_space
@click.option("--seconds", type=Positive(), metavar="S", help="Measured seconds per iteration.")
@click.option("--price", type=Positive(), metavar="P", help="Price of one GPU-hour.")
@as_json
def flops(key: str, space: Space, seconds: float | None, price: float | None, as_json: bool) -> None:
    """Count the FLOPs of one iteration, and convert a measured time to TFLOPs, MFU and days of training.

    KEY looks like tp8-pp12-dp4-mbs2-z1. The formula is Megatron-LM's corrected one; it covers gated MLPs, grouped-query
    attention, the vocabulary and recompute. For a mixture of experts, it counts what each token passes through,
    including the router, latent attention and multi-token prediction.
    """
    from tuner.planning.flop_count import flops as counted

    found = counted(key, space, seconds=seconds, price=price)
    if as_json:
        _print_json(space, found)
    else:
        _print_text(space, found)


def _print_json(space: Space, found: FlopCount) -> None:
    from tuner.cli.output import print_json, space_document
    from tuner.core.documents import topology_document

    print_json(
        "flops",
        {
            **space_document(space),
            "key": found.topology.key,
            "topology": topology_document(found.topology, space.workload),
            "model_flops": found.model,
            "hardware_flops": found.hardware,
            "sec_per_iter": found.seconds,
            "tflops": found.hardware_rate / 1e12 if found.hardware_rate else None,
            "tflops_by_older_formula": found.older_rate / 1e12 if found.older_rate else None,
            "megatron_core_flops": found.megatron_core,
            "tflops_by_megatron_core": found.megatron_core_rate / 1e12 if found.megatron_core_rate else None,
            "peak_tflops": found.peak / 1e12,
            "mfu": found.mfu,
            "hfu": found.hfu,
            "tokens": found.tokens,
            "days": found.days,
            "gpu_hours": found.gpu_hours,
            "cost": found.cost,
        },
    )


def _print_text(space: Space, found: FlopCount) -> None:
    from tuner.cli.output import space_lines
    from tuner.core.quantity import format_count
    from tuner.core.text import span

    print("\n".join(space_lines(space)))
    print(f"\n{found.topology.key}, one iteration on all GPUs:")
    print(f"  {found.model / 1e15:,.6g} PFLOP for the model, {found.hardware / 1e15:,.6g} PFLOP with recompute")
    if not (found.hardware_rate and found.hfu and found.mfu and found.days and found.gpu_hours):
        print("  pass --seconds for TFLOPs, MFU, HFU and days of training")
        return
    peak, tflops = f"{found.peak / 1e12:,g}", found.hardware_rate / 1e12
    print(f"  {tflops:,.2f} TFLOPs per GPU with recompute: HFU {100 * found.hfu:.1f}% of {peak} TFLOPs")
    above = f"; above 100%: check --seconds {found.seconds:g}, the model and the key" * (found.hfu > 1)
    print(f"  MFU {100 * found.mfu:.1f}% (without recompute){above}")
    if found.megatron_core_rate and space.workload.framework == "megatron-core":
        print(f"  {found.megatron_core_rate / 1e12:,.2f} TFLOPs as Megatron-Core prints them")
    if found.older_rate:
        print(f"  {found.older_rate / 1e12:,.2f} TFLOPs by the formula of Megatron-DeepSpeed before February 2022")
    cost = f", cost {found.cost:,.0f}" if found.cost else ""
    tokens = format_count(found.tokens)
    print(f"  {tokens} tokens take {span(found.days)}, {found.gpu_hours:,.0f} GPU-hours{cost}")
