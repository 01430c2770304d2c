"""`tuner catalog`."""

from __future__ import annotations

import click

from tuner.cli.options import as_json
from tuner.core.quantity import GIB


@click.command(
    short_help="List the known GPUs, clusters, models or frameworks.", epilog="Example: tuner catalog frameworks"
)
@click.argument("kind", type=click.Choice(["gpus", "clusters", "models", "frameworks"]))
@as_json
def catalog(kind: str, as_json: bool) -> None:
    """List the GPUs, clusters, models and frameworks that --gpu, --cluster, --model and --framework accept by name.

    For frameworks, the table shows what each can run, followed by the source of each entry.
    """
    from tuner.cli.output import print_json, print_table

    if kind == "frameworks":
        _print_frameworks(as_json=as_json)
        return
    rows = {"gpus": _gpus, "clusters": _clusters, "models": _models}[kind]()
    if as_json:
        print_json("catalog", {kind: rows})
        return
    headers = list(rows[0])
    print_table(
        headers,
        [[_shown(row[header]) for header in headers] for row in rows],
        left=("name", "gpu", "attention"),
        spare=headers[:1:-1],
    )


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _print_frameworks(*, as_json: bool) -> None:
    """Print what each framework can run, then the sources."""
    from tuner.cli.output import print_json, print_table
    from tuner.core.frameworks import RECORDS, capability_rows

    if as_json:
        print_json("catalog", {"frameworks": [record.document() for record in RECORDS.values()]})
        return
    headers = ["", *RECORDS]
    print_table(headers, capability_rows(), left=headers)
    for record in RECORDS.values():
        print(f"\n{record.name}: {record.upstream}")
        for name, capability in record.capabilities():
            print(f"  {name}: {capability.source}" + (f" ({capability.note})" if capability.note else ""))


def _gpus() -> list[dict[str, object]]:
    from tuner.core.catalog import catalog, gpu

    cards = [gpu(name) for name in catalog().gpu]
    return [
        {
            "name": card.name,
            "memory_gib": card.memory / GIB,
            "memory_gb_s": card.memory_bandwidth / 1e9,
            "sms": card.sms,
            "peak_fp16_tflops": round(card.peak_flops.get("fp16", 0.0) / 1e12, 1),
            "intra_node_gb_s": card.intra_node_bandwidth / 1e9,
            "inter_node_gbit_s": card.inter_node_bandwidth * 8 / 1e9,
            "attention": card.attention,
        }
        for card in cards
    ]


def _clusters() -> list[dict[str, object]]:
    from tuner.core.catalog import catalog, cluster

    clusters = [cluster(name) for name in catalog().cluster]
    return [
        {
            "name": known.name,
            "nodes": known.nodes,
            "gpus_per_node": known.gpus_per_node,
            "nvlink_domain": known.domain,
            "gpu": known.gpu.name,
            "node_gbit_s": known.inter_node.bandwidth * 8 / 1e9,
        }
        for known in clusters
    ]


def _models() -> list[dict[str, object]]:
    from tuner.core.catalog import catalog, model

    models = [model(name) for name in catalog().model_names()]
    return [
        {
            "name": known.name,
            "parameters": known.parameters,
            "active": known.active_parameters,
            "layers": known.layers,
            "hidden": known.hidden,
            "heads": known.heads,
            "kv_heads": known.kv_heads,
            "ffn": known.ffn,
            "experts": known.experts.count if known.experts else 0,
            "top_k": known.experts.top_k if known.experts else 0,
            "vocab": known.vocab,
            "seq": known.seq,
        }
        for known in models
    ]
