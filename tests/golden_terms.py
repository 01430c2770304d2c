"""The golden table of the cost model: every time and memory term of topologies that exercise all axes.

`python -m tests.golden_terms` rewrites `tests/data/golden/terms.csv`; review the change as a diff.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.mixtures import DEEPSEEK, QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.experts import Experts
from tuner.core.keys import parse_key
from tuner.core.stack import Stack
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.flops import hardware_flops, model_flops, older_estimate
from tuner.costmodel.site_factors import SiteFactors
from tuner.space.build import space_for

GOLDEN: Final = Path(__file__).parent / "data" / "golden" / "terms.csv"
HEADER: Final = ("case", "key", "quantity", "term", "value")

SLOW_SITE: Final = SiteFactors(
    products=0.93,
    attention=1.12,
    traffic=0.88,
    inner_link=1.17,
    network=0.71,
    pipeline_link=0.83,
    host=1.9,
    upkeep=1.4,
    context=1.25,
    activations=1.07,
)
"""A site with a different value other than 1 for every factor."""

V100: Final = {"model": "tr8-104b", "cluster": "tr8-v100"}
A100: Final[Mapping[str, Any]] = {}
A100_FLASH: Final = {"model": "llama-65b", "gpu": "A100-80GB-SXM", "nodes": 64, "global_batch": 1024}
H100: Final = {"model": "llama-3-70b", "gpu": "H100-80GB-SXM", "nodes": 16, "global_batch": 1024}
H200: Final = {"model": "llama-3-405b", "gpu": "H200-141GB-SXM", "nodes": 64, "global_batch": 512}
B200: Final = {"model": "llama-3-70b", "gpu": "B200-180GB-SXM", "nodes": 8, "global_batch": 512}
SMALL: Final = {"model": "llama-3-8b", "gpu": "A100-40GB-SXM", "nodes": 4, "global_batch": 256}
PCIE: Final = {"model": "gpt-1.3b", "gpu": "A100-40GB-PCIe", "nodes": 8, "global_batch": 512}
MI300: Final = {"model": "llama-33b", "gpu": "MI300X-192GB", "nodes": 8, "global_batch": 512}
EXPERTS: Final = {"model": QWEN3_30B, "gpu": "H100-80GB-SXM", "nodes": 4, "global_batch": 512}
PLAIN: Final = {"model": "enoki-32", "cluster": "enoki-h100", "global_batch": 128}


def _grouped(groups: int) -> Experts | None:
    """Return DEEPSEEK's experts with node-limited routing."""
    experts = DEEPSEEK.experts
    return replace(experts, router_groups=8, router_top_groups=groups) if experts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One topology of one workload on one cluster at one site."""

    name: str
    key: str
    space: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload that `space_for` does not set."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model that differ from the preset's."""
    site: SiteFactors = field(default_factory=SiteFactors)

    def columns(self) -> Columns:
        """Return the topology as columns of one row."""
        space = space_for(**{"framework": "any", **self.space})
        model = replace(space.workload.model, **self.model)
        workload = replace(space.workload, model=model, **self.workload)
        topology = parse_key(self.key, workload=workload, cluster=space.cluster)
        return Columns.of([topology], workload, space.cluster)


CASES: Final = (
    Case(name="BLOOM's study", key="tp8-pp12-dp4-mbs2-z1", space=A100),
    Case(name="BLOOM at another site", key="tp8-pp12-dp4-mbs2-z1", space=A100, site=SLOW_SITE),
    Case(name="two stages in a node", key="tp4-pp12-dp8-mbs1-z1", space=A100),
    Case(name="stages within a node", key="tp1-pp8-dp1-mbs1-z1", space=A100),
    Case(name="interleaved", key="tp8-pp12-dp4-mbs2-z1-vpp3", space=A100),
    Case(name="few microbatches", key="tp8-pp12-dp4-mbs2-z1-vpp2-gbs96", space=A100),
    Case(name="fewer microbatches than stages", key="tp8-pp12-dp4-mbs2-z1-gbs64", space=A100),
    Case(name="embedding and head as layers", key="tp4-pp12-dp8-mbs1-z1-emb-14336x70", space=A100),
    Case(name="uneven stages", key="tp4-pp12-dp8-mbs1-z1-14336x71", space=A100),
    Case(name="fewer layers on the last stage", key="tp4-pp6-dp16-mbs1-z1-vpp2-lay-14336x71", space=A100),
    Case(name="other heads, sequence parallel", key="tp4-pp6-dp16-mbs1-z1-sp-rsel-h16", space=A100),
    Case(name="heads of width 108", key="tp4-pp6-dp16-mbs1-z0-h128-13824x78", space=A100),
    Case(name="eager attention", key="tp8-pp12-dp4-mbs1-z1-rnone", space={**A100, "attention": "eager"}),
    Case(name="unfused norms", key="tp8-pp12-dp4-mbs1-z1-rsel", space=A100, workload={"fused_norms": False}),
    Case(name="V100", key="tp4-pp32-dp1-mbs1-z1", space=V100),
    Case(name="V100 fp32", key="tp4-pp16-dp2-mbs1-z0-rnone", space={**V100, "precision": "fp32"}),
    Case(name="grouped queries on H100", key="tp8-pp4-dp4-mbs1-z1-sp-rnone", space=H100),
    Case(name="FP8 on H100", key="tp8-pp4-dp4-mbs2-z1-sp-rsel", space={**H100, "precision": "fp8"}),
    Case(
        name="NVFP4 on GB300",
        key="tp2-pp4-dp4-mbs1-z1-vpp5-sp-rnone",
        space={**H100, "gpu": "GB300-288GB", "precision": "fp4"},
    ),
    Case(name="context parallel", key="tp8-pp2-cp2-dp4-mbs1-z1-sp-rsel", space=H100),
    Case(name="long context across nodes", key="tp4-pp1-cp8-dp4-mbs1-z3-rsel", space={**H100, "seq": 131072}),
    Case(name="tensor parallel across nodes", key="tp16-pp4-dp2-mbs2-z1-sp-rfull", space=H100),
    Case(name="fully sharded", key="tp1-pp1-dp128-mbs1-z3", space=H100),
    Case(name="fully sharded at another site", key="tp2-pp1-dp64-mbs1-z3-rsel", space=H100, site=SLOW_SITE),
    Case(name="ZeRO 2", key="tp8-pp1-dp16-mbs2-z2-sp-rsel", space=H100),
    Case(name="ZeRO 0 with context parallel", key="tp8-pp2-cp4-dp2-mbs1-z0-sp", space=H100, site=SLOW_SITE),
    Case(name="405B", key="tp8-pp9-vpp2-cp1-dp7-mbs1-z1-sp-rsel-gbs504", space=H200),
    Case(name="LLaMA-65B", key="tp8-pp8-dp8-mbs1-z1-sp-rnone", space=A100_FLASH),
    Case(name="FlashAttention 1", key="tp8-pp8-dp8-mbs2-z1-rnone", space={**A100_FLASH, "attention": "flash1"}),
    Case(name="8B on 40 GB", key="tp2-pp2-dp8-mbs1-z1-rsel", space=SMALL, model={"frozen_params": 10**9}),
    Case(
        name="Adam with moments in bf16", key="tp1-pp1-dp32-mbs1-z2", space=SMALL, workload={"optimizer": "adam-bf16"}
    ),
    Case(name="8-bit Adam", key="tp1-pp1-dp32-mbs1-z2", space=SMALL, workload={"optimizer": "adam8bit"}),
    Case(name="gathered loss", key="tp4-pp2-dp4-mbs1-z1", space=SMALL, workload={"parallel_loss": False}),
    Case(name="PCIe", key="tp2-pp2-dp16-mbs4-z1-rnone", space=PCIE, workload={"optimizer": "sgd"}),
    Case(name="one microbatch", key="tp1-pp1-dp64-mbs8-z1-rnone", space=PCIE, workload={"optimizer": "adafactor"}),
    Case(name="PCIe across nodes, tied", key="tp4-pp4-dp4-mbs2-z0-vpp3", space=PCIE, site=SLOW_SITE),
    Case(name="optimizer in main memory, ZeRO 1", key="tp1-pp4-dp8-mbs2-z1-offopt", space=SMALL),
    Case(name="optimizer in main memory, ZeRO 2", key="tp2-pp1-dp16-mbs1-z2-offopt", space=SMALL),
    Case(name="optimizer in main memory, ZeRO 3", key="tp1-pp1-dp32-mbs2-z3-offopt", space=SMALL),
    Case(name="parameters in main memory", key="tp1-pp1-dp32-mbs2-z3-rnone-offall", space=SMALL),
    Case(name="parameters of one rank in main memory", key="tp1-pp1-dp1-mbs1-z3-offall", space=SMALL),
    Case(name="hybrid sharding over nodes", key="tp1-pp1-dp32-mbs2-z3-rnone-hsdp4", space=SMALL),
    Case(name="hybrid sharding, ZeRO 2 with tp", key="tp2-pp1-dp16-mbs1-z2-hsdp2", space=SMALL, site=SLOW_SITE),
    Case(name="hybrid sharding in a node", key="tp1-pp1-dp8-mbs2-z3-hsdp2", space=SMALL),
    Case(
        name="optimizer in main memory under Megatron",
        key="tp2-pp4-dp4-mbs1-z1-offopt",
        space={**SMALL, "framework": "megatron-core"},
        site=SLOW_SITE,
    ),
    *(
        Case(
            name=f"{offload} of the optimizer under Megatron",
            key=f"tp2-pp4-dp4-mbs1-z1-{part}",
            space={**SMALL, "framework": "megatron-core"},
            workload={"stack": stack},
        )
        for offload, part, stack in (
            ("a quarter", "offopt25", None),
            ("half", "offopt50", Stack(precision_aware_optimizer=False, grad_precision="bf16")),
            ("three quarters", "offopt75", None),
        )
    ),
    Case(
        name="Megatron-Core on H100, interleaved",
        key="tp8-pp4-dp4-mbs1-z1-vpp4-sp-rnone",
        space=H100,
        workload={"framework": "megatron-core"},
    ),
    Case(
        name="Megatron-Core with overlapped tensor parallel traffic, FP8",
        key="tp8-pp4-dp4-mbs1-z1-sp-rnone",
        space={**H100, "precision": "fp8"},
        workload={
            "framework": "megatron-core",
            "precision_recipe": "tensorwise",
            "stack": Stack(overlap_tp=0.94, overlap_grad=0.5, grad_precision="bf16"),
        },
        site=SLOW_SITE,
    ),
    Case(
        name="split sends on B200",
        key="tp8-pp4-dp2-mbs1-z0-rsel",
        space=B200,
        workload={"stack": Stack(split_sends=True, overlap_param=1.0)},
    ),
    Case(name="torchtitan", key="tp2-pp1-dp64-mbs1-z3-rsel", space=H100, workload={"framework": "torchtitan"}),
    Case(name="MI300X", key="tp4-pp4-dp4-mbs1-z1-rsel", space=MI300, model={"head_size": 160}),
    Case(name="plain layers", key="tp2-pp1-dp2-mbs4-z1-rnone", space=PLAIN, workload={"plain_layers": True}),
    Case(
        name="plain layers fully sharded",
        key="tp1-pp1-dp4-mbs2-z3-rnone",
        space=PLAIN,
        workload={"plain_layers": True, "parallel_loss": False},
        site=SLOW_SITE,
    ),
    Case(name="experts in a node by DeepEP", key="tp1-pp2-dp16-mbs1-z1-vpp3-rnone-ep8-deepep", space=EXPERTS),
    Case(name="experts across nodes", key="tp2-pp1-dp16-mbs2-z1-sp-rsel-ep32", space=EXPERTS, site=SLOW_SITE),
    Case(
        name="experts sorted by PyTorch, delayed scaling",
        key="tp2-pp2-dp8-mbs1-z1-vpp2-sp-rnone-ep8",
        space={**EXPERTS, "precision": "fp8"},
        workload={
            "framework": "megatron-core",
            "precision_recipe": "delayed",
            "stack": Stack(fused_permutation=False),
        },
    ),
    Case(name="experts by all-gather, sharded", key="tp2-pp1-dp16-mbs1-z3-sp-ep2-etp2-allgather", space=EXPERTS),
    Case(
        name="experts in racks, natural routing",
        key="tp1-pp4-dp36-mbs1-z1-rnone-ep16-hybridep-gbs576",
        space={"model": DEEPSEEK, "cluster": "gb200-nvl72", "nodes": 36, "routing": "natural"},
    ),
    Case(
        name="Megatron-Core with many replicas",
        key="tp1-pp1-dp128-mbs1-z1-rnone",
        space=H100,
        workload={"framework": "megatron-core"},
        site=SLOW_SITE,
    ),
    Case(
        name="Ulysses",
        key="tp2-pp2-cp4-dp8-mbs1-z1-sp-rnone",
        space=H100,
        workload={"framework": "megatron-core", "stack": Stack(cp_comm="a2a")},
        site=SLOW_SITE,
    ),
    Case(
        name="keys and values gathered before attention",
        key="tp4-pp1-cp8-dp4-mbs1-z1-sp-rsel",
        space={**H100, "seq": 65536},
        workload={"framework": "megatron-core", "stack": Stack(cp_comm="all_gather")},
    ),
    Case(
        name="keys and values gathered beside attention",
        key="tp2-pp1-cp8-dp8-mbs1-z3-rsel",
        space={**H100, "seq": 65536},
        workload={"framework": "torchtitan", "stack": Stack(cp_comm="all_gather")},
    ),
    Case(
        name="a ring that attention does not hide",
        key="tp2-pp1-cp8-dp8-mbs1-z3-rnone",
        space=H100,
        workload={"framework": "torchtitan", "stack": Stack(cp_comm="p2p")},
    ),
    Case(
        name="norms and MLPs recomputed, partial CUDA graphs",
        key="tp4-pp2-dp2-mbs1-z1-sp-rlayernorm+mlp",
        space=SMALL,
        workload={"framework": "megatron-core", "stack": Stack(cuda_graph="partial")},
        site=SLOW_SITE,
    ),
    Case(
        name="FP8 experts beside another microbatch",
        key="tp2-pp2-dp8-mbs2-z1-sp-rcore_attn+mla_up_proj+mlp+moe_act+shared_experts-ep8-etp2-deepep-overlap",
        space={**EXPERTS, "model": DEEPSEEK, "precision": "fp8", "routing": "natural"},
        model={"experts": _grouped(3)},
        workload={"framework": "megatron-core"},
        site=SLOW_SITE,
    ),
    Case(
        name="experts of few groups recomputed, CUDA graphs",
        key="tp1-pp1-cp2-dp16-mbs1-z1-rlayernorm+moe-ep32-deepep",
        space={**EXPERTS, "model": DEEPSEEK},
        model={"experts": _grouped(1)},
        workload={"framework": "megatron-core", "stack": Stack(cuda_graph="full", cp_comm="a2a")},
    ),
)


def rows() -> Iterator[tuple[str, str, str, str, float]]:
    """Yield every term of every case: seconds, bytes on the worst stage, published figures, operations."""
    for case in CASES:
        for quantity, terms in quantities(case).items():
            for term, value in terms.items():
                yield case.name, case.key, quantity, term, float(np.asarray(value).reshape(-1)[0])


def quantities(case: Case) -> dict[str, Mapping[str, Any]]:
    """Return the terms of a case by quantity."""
    columns = case.columns()
    scores = CostModel(calibration=Calibration(site=case.site)).score(columns)
    return {
        "seconds": scores.time_terms,
        "estimate": {
            "low": scores.interval[0],
            "high": scores.interval[1],
            "memory": scores.memory,
            "out of memory": scores.out_of_memory,
        },
        "bytes": {"stage": scores.stage, **scores.memory_terms},
        "published bytes": {kind: scores.shown(kind) for kind in ("smi", "reserved", "allocated")},
        "FLOPs": {
            "model": model_flops(columns),
            "hardware": hardware_flops(columns),
            "before 2022": older_estimate(columns),
        },
    }


def main() -> None:
    """Write the golden file."""
    with GOLDEN.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows((*words, repr(value)) for *words, value in rows())


if __name__ == "__main__":
    main()
