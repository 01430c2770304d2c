"""`tuner flops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.options import Positive, as_json, describes_a_space

if TYPE_CHECKING:
    from tuner.core.domain import Topology
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
    attention, the vocabulary and recompute.
    """
    from tuner.core.keys import parse_key

    topology = parse_key(key, **space.key_context)
    document = _document(space, topology, seconds, price)
    if as_json:
        from tuner.cli.output import print_json

        print_json("flops", document)
    else:
        _print_text(space, document)


def _document(space: Space, topology: Topology, seconds: float | None, price: float | None) -> dict[str, Any]:
    from tuner.cli.output import space_document, topology_document
    from tuner.core.columns import Columns
    from tuner.costmodel.flops import hardware_flops, model_flops, older_estimate, per_gpu, training_seconds

    workload = space.workload.as_in(topology)
    columns = Columns.of([topology], workload, space.cluster)
    peak = space.cluster.gpu.peak_flops[workload.precision]
    counts = {"model": model_flops(columns), "hardware": hardware_flops(columns), "older": older_estimate(columns)}
    rates = {name: float(per_gpu(count, seconds, columns)[0]) if seconds else None for name, count in counts.items()}
    days = float(training_seconds(seconds, columns)[0]) / 86400 if seconds else None
    gpu_hours = days * 24 * topology.gpus if days else None
    return {
        **space_document(space),
        "key": topology.key,
        "topology": topology_document(topology, space),
        "model_flops": float(counts["model"][0]),
        "hardware_flops": float(counts["hardware"][0]),
        "sec_per_iter": seconds,
        "tflops": rates["hardware"] / 1e12 if rates["hardware"] else None,
        "tflops_by_older_formula": rates["older"] / 1e12 if rates["older"] else None,
        "peak_tflops": peak / 1e12,
        "mfu": rates["model"] / peak if rates["model"] else None,
        "hfu": rates["hardware"] / peak if rates["hardware"] else None,
        "tokens": workload.training_tokens,
        "days": days,
        "gpu_hours": gpu_hours,
        "cost": price * gpu_hours if price and gpu_hours else None,
    }


def _print_text(space: Space, found: dict[str, Any]) -> None:
    from tuner.cli.output import space_lines
    from tuner.core.quantity import format_count
    from tuner.core.text import span

    print("\n".join(space_lines(space)))
    model, hardware = found["model_flops"] / 1e15, found["hardware_flops"] / 1e15
    print(f"\n{found['key']}, one iteration on all GPUs:")
    print(f"  {model:,.6g} PFLOP for the model, {hardware:,.6g} PFLOP with recompute")
    if found["sec_per_iter"] is None:
        print("  pass --seconds for TFLOPs, MFU, HFU and days of training")
        return
    peak = f"{found['peak_tflops']:g}"
    print(f"  {found['tflops']:.2f} TFLOPs per GPU with recompute: HFU {100 * found['hfu']:.1f}% of {peak} TFLOPs")
    print(f"  MFU {100 * found['mfu']:.1f}% (without recompute)")
    print(f"  {found['tflops_by_older_formula']:.2f} TFLOPs by the formula of Megatron-DeepSpeed before February 2022")
    cost = f", cost {found['cost']:,.0f}" if found["cost"] else ""
    tokens = format_count(found["tokens"])
    print(f"  {tokens} tokens take {span(found['days'])}, {found['gpu_hours']:,.0f} GPU-hours{cost}")
