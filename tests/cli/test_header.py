"""The header of a command: the model, the cluster and the length of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.cli import output
from tuner.core.catalog import gpu, make_cluster
from tuner.launch.machine import Machine, host_gpu
from tuner.space.build import space_for


def test_the_header_has_model_cluster_and_tokens() -> None:
    space = space_for(model="mixtral-8x7b", nodes=2, gpu="H100-80GB-SXM", gpus_per_node=8, tokens=2e12)
    model, machines, tokens, *notes = output.space_lines(space)
    own = space.workload.model
    assert own.experts is not None
    counts = f"{own.parameters / 1e9:.4g}B parameters ({own.active_parameters / 1e9:.4g}B active, 2 of 8 experts)"
    assert model.startswith(f"mixtral-8x7b: {counts}, 32 layers, hidden 4096, 32 heads, sequence ")
    assert f"global batch {space.workload.global_batch}, " in model
    assert machines.startswith("2 nodes of 8 H100-80GB-SXM")
    assert tokens == "training on 2T tokens"
    assert all(note.startswith("note: ") for note in notes)
    searched = space_for(settings=["shape=14336x72,13824x78", "heads=56,112,128"])
    assert output.space_lines(searched)[0].endswith("; searched: 2 shapes, 3 head counts")
    assert output.space_lines(searched)[2].endswith(" tokens (20 per parameter; set with --tokens)")
    assert output.space_lines(space_for(tokens=15))[3].endswith(
        " one iteration of 4,194,304 tokens. --tokens takes a unit, as in 366B or 15T."
    )
    assert len(output.space_lines(space_for(tokens=4_194_304))) == 3
    shallow = space_for(model="gpt-1.3b", settings=["shape=2048x1"])
    assert " parameters, 1 layer, hidden 2048, 16 heads, " in output.space_lines(shallow)[0]
    one = space_for(settings=["heads=56"])
    assert ", 56 heads, " in output.space_lines(one)[0]
    assert output.changes_the_model(searched)
    assert output.changes_the_model(space_for(settings=["shape=13824x78", "heads=112"]))
    assert not output.changes_the_model(space_for(model="gpt-1.3b"))


MINE = """
gpu = "H100-80GB-SXM"
nodes = 2
gpus_per_node = 8
"""


@pytest.mark.parametrize(
    ("given", "more", "words"),
    [
        ({}, "", "300 GB/s per GPU, network 400 Gbit/s per node (defaults of bloom-48; set with --cluster), "),
        ({"gpu": "V100-32GB-SXM"}, "", "150 GB/s per GPU, network 400 Gbit/s per node (defaults of the GPU; set with "),
        ({"gpu": "V100-32GB-SXM", "nodes": 1}, "", "150 GB/s per GPU (defaults of the GPU; set with --cluster), "),
        ({"cluster": "hgx-h100"}, "", "450 GB/s per GPU, network 3,200 Gbit/s per node (defaults of the GPU), "),
        ({}, MINE, "450 GB/s per GPU, network 3,200 Gbit/s per node (defaults of the GPU), "),
        ({}, f"{MINE}node_gbit_s = 12.5", "450 GB/s per GPU (default of the GPU), network 12.5 Gbit/s per node, frame"),
        ({}, f"{MINE}node_gbit_s = 800\nintra_node_gb_s = 400", "400 GB/s per GPU, network 800 Gbit/s per node, frame"),
    ],
)
def test_the_header_has_the_bandwidths_and_which_of_them_are_defaults(
    given: dict[str, Any], more: str, words: str, tmp_path: Path
) -> None:
    if more:
        (tmp_path / "mine.toml").write_text(more)
        given = {"cluster": str(tmp_path / "mine.toml")}
    machines = output.space_lines(space_for(model="gpt-1.3b", **given))[1]
    assert f", intra-node {words}" in machines
    assert machines.endswith("framework megatron-core")


def test_a_cpu_has_no_bandwidths_in_the_header() -> None:
    """They are an order of magnitude."""
    machine = Machine(accelerator="cpu", name="CPU", memory=16.0 * 2**30, cards=0, cores=2)
    space = space_for(model="tiny", nodes=2, gpus_per_node=2, gpu=host_gpu(machine, 2), precision="fp32")
    assert output.space_lines(space)[1] == "2 nodes of 2 CPUs, framework megatron-core"


def test_the_document_has_the_bandwidths() -> None:
    cluster = output.space_document(space_for(model="gpt-1.3b", cluster="bloom-48"))["cluster"]
    assert (cluster["intra_node_gb_s"], cluster["node_gbit_s"]) == (300, 400)


@pytest.mark.parametrize(
    ("card", "size", "domain", "words"),
    [
        ("H100-80GB-SXM", 8, None, ""),
        ("GB200-192GB", 4, 72, " in NVLink domains of 72"),
        ("H100-80GB-SXM", 4, None, " without a switch"),
        ("H100-80GB-SXM", 4, 8, " in NVLink domains of 8"),
        ("MI300X-192GB", 8, None, " without a switch"),
        ("MI300X-192GB", 1, None, ""),
        ("H100-80GB-PCIe", 4, None, ""),
    ],
)
def test_a_cluster_names_its_nvlink_domain_or_that_it_has_no_switch(
    card: str, size: int, domain: int | None, words: str
) -> None:
    machines = make_cluster(name="m", nodes=2, gpus_per_node=size, gpu=gpu(card), nvlink_domain=domain)
    assert output._domain(machines) == words
