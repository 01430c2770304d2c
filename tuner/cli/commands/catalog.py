"""`tuner catalog`."""

from __future__ import annotations

import click

from tuner.cli.options import as_json


@click.command(short_help="List the known GPUs, clusters or models.", epilog="Example: tuner catalog gpus")
@click.argument("kind", type=click.Choice(["gpus", "clusters", "models"]))
@as_json
def catalog(kind: str, as_json: bool) -> None:
    """List the GPUs, clusters or models that --gpu, --cluster and --model know by name."""
    from tuner.cli.output import print_json, print_table

    rows = {"gpus": _gpus, "clusters": _clusters, "models": _models}[kind]()
    if as_json:
        print_json("catalog", {kind: rows})
        return
    headers = list(rows[0])
    print_table(
        headers,
        [[row[header] for header in headers] for row in rows],
        left=("name", "gpu", "attention"),
        spare=headers[:1:-1],
    )


def _gpus() -> list[dict[str, object]]:
    from tuner.core.catalog import catalog, gpu

    cards = [gpu(name) for name in catalog().gpu]
    return [
        {
            "name": card.name,
            "memory_gib": card.memory / 2**30,
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
            "layers": known.layers,
            "hidden": known.hidden,
            "heads": known.heads,
            "kv_heads": known.kv_heads,
            "ffn": known.ffn,
            "vocab": known.vocab,
            "seq": known.seq,
        }
        for known in models
    ]
