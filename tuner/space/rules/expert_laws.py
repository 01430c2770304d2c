"""Laws of experts: how they are spread over the ranks of a stage, and how tokens reach them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import DISPATCHERS, HOST, PARTITION, Gpu, Workload
from tuner.core.recompute import FULL
from tuner.core.text import counted, either, listed
from tuner.space.rules.rule import MEGATRON, Rule

_MOE: Final = MEGATRON + "core/transformer/moe/"
_ALL_GATHER, _ALL_TO_ALL, _DEEPEP, _HYBRIDEP = map(DISPATCHERS.index, ("allgather", "alltoall", "deepep", "hybridep"))
_NO_FLEX: Final = ("V100", "T4", "MI", HOST)
"""Beginnings of the names of GPUs on which neither DeepEP nor HybridEP runs."""
_PCIE: Final = 64e9
"""Bytes a second of PCIe 5.0 x16: what is faster is NVLink."""
_DEEPEP_RANKS: Final = (2, 4, 8, 16, 32, 64, 128, 144, 160)
"""Ranks among which both DeepEP v1.2.1 and NVIDIA's containers dispatch; 24, 48 and 96 came later (e02e4d2, c939644).

deep_ep/buffer.py of v1.2.1 has a configuration for 24 ranks, but csrc/kernels/launch.cuh: SWITCH_RDMA_RANKS refuses
them, as it does at 34152ae (NVIDIA-NeMo/Megatron-Bridge at 067f987d, docker/Dockerfile.ci: DEEPEP_COMMIT).
"""
_DEEPEP_PEERS: Final = 8
"""Consecutive ranks that DeepEP takes for a node."""
_DEEPEP_SOURCE: Final = "deepseek-ai/DeepEP v1.2.1, "


def _experts(workload: Workload) -> bool:
    return workload.model.experts is not None


def _dense(workload: Workload) -> bool:
    return workload.model.experts is None


def _count(columns: Columns) -> int:
    experts = columns.workload.model.experts
    return experts.count if experts else 1


def _expert_ffn(columns: Columns) -> int:
    experts = columns.workload.model.experts
    return experts.ffn if experts else 0


def _shared_ffn(columns: Columns) -> int:
    experts = columns.workload.model.experts
    return experts.shared_ffn if experts else 0


def _first_layers(columns: Columns) -> Any:
    """Return the layers of the first pipeline stage, which are the fewest of any stage."""
    embedding = columns.partition == PARTITION.index("embedding")
    return (columns.layers + 2 * embedding) // columns.pp - embedding


def _layers_to_experts(columns: Columns) -> int:
    """Return how many layers the first stage needs to have experts; any other stage then has some too."""
    experts = columns.workload.model.experts
    return experts.dense_layers + experts.period if experts else 0


def _ranks(columns: Columns) -> str:
    cp = f" x cp({columns.cp})" if columns.cp > 1 else ""
    groups = f" / hsdp({columns.hsdp})" if columns.hsdp > 1 else ""
    return f"tp({columns.tp}){cp} x dp({columns.dp}){groups} = {columns.tp * columns.shards}"


def _group(columns: Columns) -> Any:
    """Return the ranks among which tokens are exchanged."""
    return columns.etp * columns.ep


def _group_words(columns: Columns) -> str:
    return f"etp({columns.etp}) x ep({columns.ep}) = {_group(columns)}"


def _has_nvlink(gpu: Gpu) -> bool:
    return gpu.intra_node_bandwidth > _PCIE


def _is_ampere(gpu: Gpu) -> bool:
    """Return whether one of NVIDIA's GPUs is an Ampere: with bf16, and not yet with fp8."""
    return "fp8" not in gpu.peak_flops


def _lacks_flex(columns: Columns) -> object:
    """Return whether the dispatcher of each row does not run on the cluster's GPUs."""
    cluster = columns.cluster
    flex = (columns.dispatcher == _DEEPEP) | (columns.dispatcher == _HYBRIDEP)
    if cluster.gpu.name.startswith(_NO_FLEX):
        return flex
    lacks_deepep = cluster.domain > cluster.gpus_per_node or not _has_nvlink(cluster.gpu)
    return (columns.dispatcher == _DEEPEP) & lacks_deepep


def _lacks_flex_words(columns: Columns) -> str:
    cluster, gpu = columns.cluster, columns.cluster.gpu
    words = f"{DISPATCHERS[int(columns.dispatcher)]} does not run"
    if gpu.name.startswith(_NO_FLEX):
        return f"{words} on {gpu.name}"
    if not _has_nvlink(gpu):
        return f"{words} on {gpu.name}, which has no NVLink"
    return f"{words} where an NVLink domain of {cluster.domain} GPUs spans nodes of {cluster.gpus_per_node}"


def _leaves_deepep_node(columns: Columns) -> Any:
    """Return whether DeepEP's groups span nodes that it cannot tell apart or has no kernels between."""
    per_node, group = columns.cluster.gpus_per_node, _group(columns)
    within = (group <= _DEEPEP_PEERS) & (per_node % group == 0)
    spans = per_node % _DEEPEP_PEERS == 0 and not _is_ampere(columns.cluster.gpu)
    return (columns.dispatcher == _DEEPEP) & ~within & (not spans)


def _leaves_deepep_node_words(columns: Columns) -> str:
    cluster = columns.cluster
    because = (
        f"DeepEP takes {_DEEPEP_PEERS} consecutive ranks for a node"
        if cluster.gpus_per_node % _DEEPEP_PEERS
        else f"DeepEP exchanges nothing between nodes of {cluster.gpu.name}"
    )
    return (
        f"{because}, and its {_group_words(columns)} ranks do not fit evenly into nodes of {cluster.gpus_per_node} GPUs"
    )


def _splits_hybridep(columns: Columns) -> Any:
    """Return whether no number of whole nodes of an NVLink domain has whole groups, nor a group whole domains."""
    cluster, group = columns.cluster, _group(columns)
    fits = np.lcm(group, cluster.gpus_per_node) <= cluster.domain
    return (columns.dispatcher == _HYBRIDEP) & ~fits & (group % cluster.domain != 0)


def _megatron_experts(workload: Workload) -> bool:
    return _experts(workload) and workload.framework == "megatron-core"


def _biased(workload: Workload) -> bool:
    experts = workload.model.experts
    return experts is not None and experts.expert_bias and workload.framework == "megatron-core"


def _for_experts_words(columns: Columns) -> str:
    """Return the values that a model without experts cannot have."""
    needing = [f"{name}={getattr(columns, name)}" for name in ("ep", "etp") if getattr(columns, name) > 1]
    needing += [DISPATCHERS[int(columns.dispatcher)]] * bool(columns.dispatcher != _ALL_TO_ALL)
    needing += ["moe_overlap=on"] * bool(columns.moe_overlap)
    verb = "needs" if len(needing) == 1 else "need"
    return f"{columns.workload.model.name} has no experts, which {listed(needing)} {verb}"


def _excludes_overlap(columns: Columns) -> dict[str, Any]:
    """Return, by the reason, whether the exchange of tokens cannot overlap."""
    model = columns.workload.model
    return {
        "ep=1": columns.ep == 1,
        "the dispatcher allgather": columns.dispatcher == _ALL_GATHER,
        "pp > 1 with vpp=1": (columns.pp > 1) & (columns.vpp == 1),
        "full recompute": columns.recompute == FULL,
        "recompute of moe": columns.recomputes("moe"),
        "fp32": np.equal(columns.workload.precision, "fp32"),
        "mtp_layers > 1": np.greater(model.mtp_layers, 1),
    }


def _cannot_overlap(columns: Columns) -> Any:
    overlaps = np.asarray(columns.moe_overlap == 1)
    if not overlaps.any():
        return overlaps
    return overlaps & np.logical_or.reduce(np.broadcast_arrays(*_excludes_overlap(columns).values()))


EXPERT_LAWS: Final[tuple[Rule, ...]] = (
    Rule(
        name="experts-for-ep",
        level="law",
        sentence="only a mixture of experts has expert parallelism, a dispatcher and its overlap",
        source=MEGATRON + "training/arguments.py: --num-experts",
        reads=("ep", "etp", "dispatcher", "moe_overlap"),
        vary=("ep", "etp", "dispatcher", "moe_overlap"),
        broken=lambda c: (c.ep > 1) | (c.etp > 1) | (c.dispatcher != _ALL_TO_ALL) | (c.moe_overlap > 0),
        numbers=_for_experts_words,
        binding=_dense,
    ),
    Rule(
        name="experts-by-ep",
        level="law",
        sentence="the number of experts is divisible by ep",
        source=_MOE + "moe_layer.py: config.num_moe_experts % ep_size",
        reads=("ep",),
        vary=("ep",),
        broken=lambda c: _count(c) % c.ep != 0,
        numbers=lambda c: f"{_count(c)} experts are not divisible by ep={c.ep}",
        binding=_experts,
    ),
    Rule(
        name="ep-in-stage",
        level="law",
        sentence="tp x cp x dp, the ranks of a stage, or with hybrid sharding of a replica group, is divisible by "
        "etp x ep",
        source=MEGATRON + "core/parallel_state.py: expert_tensor_model_pipeline_parallel_size; pytorch/torchtitan, "
        "torchtitan/distributed/parallel_dims.py: dp_shard x cp x tp",
        reads=("ep", "etp", "tp", "cp", "dp", "hsdp"),
        vary=("ep", "etp", "dp"),
        broken=lambda c: c.tp * c.shards % (c.etp * c.ep) != 0,
        numbers=lambda c: f"{_ranks(c)} ranks are not divisible by etp x ep = {c.etp} x {c.ep} = {c.etp * c.ep}",
        binding=_experts,
    ),
    Rule(
        name="shared-ffn-by-tp",
        level="law",
        sentence="the width of the shared experts is divisible by tp",
        source=MEGATRON + "core/transformer/moe/shared_experts.py: SharedExpertMLP is an MLP over the tp ranks",
        reads=("tp",),
        vary=("tp",),
        broken=lambda c: _shared_ffn(c) % c.tp != 0,
        numbers=lambda c: f"the shared experts' width of {_shared_ffn(c)} is not divisible by tp={c.tp}",
        binding=_experts,
    ),
    Rule(
        name="expert-ffn-by-etp",
        level="law",
        sentence="an expert's width is divisible by etp",
        source=MEGATRON + "core/tensor_parallel/layers.py: divide(output_size, world_size)",
        reads=("etp",),
        vary=("etp",),
        broken=lambda c: _expert_ffn(c) % c.etp != 0,
        numbers=lambda c: f"an expert's width of {_expert_ffn(c)} is not divisible by etp={c.etp}",
        binding=_experts,
    ),
    Rule(
        name="expert-biases",
        level="law",
        sentence="under Megatron, experts with biases exclude etp > 1, whose ranks would each add the bias",
        source=_MOE + "experts.py: TEGroupedMLP._apply_bias; token_dispatcher.py sums the outputs of the etp ranks",
        reads=("etp",),
        vary=("etp",),
        broken=lambda c: c.etp > 1,
        numbers=lambda c: f"the biases of experts would be added etp={c.etp} times",
        binding=_biased,
    ),
    Rule(
        name="experts-need-sp",
        level="law",
        sentence="experts and tensor parallelism (tp > 1) need sequence parallelism",
        source=_MOE + "moe_layer.py: MoELayer.forward",
        reads=("sequence_parallel", "tp"),
        vary=("sequence_parallel", "tp"),
        broken=lambda c: (c.tp > 1) & (c.sequence_parallel == 0),
        numbers=lambda c: f"experts need sequence parallelism over tp={c.tp} ranks",
        binding=_experts,
    ),
    Rule(
        name="one-dispatcher",
        level="law",
        sentence="without an exchange of tokens (ep = etp = 1), the dispatcher is alltoall",
        source="tuner: all dispatchers are then equivalent, and one of them is searched",
        reads=("dispatcher", "ep", "etp"),
        vary=("dispatcher", "ep"),
        broken=lambda c: (c.dispatcher != _ALL_TO_ALL) & (c.ep * c.etp == 1),
        numbers=lambda c: f"{DISPATCHERS[int(c.dispatcher)]} has nothing to exchange with ep=1 and etp=1",
        binding=_experts,
    ),
    Rule(
        name="overlap-of-experts",
        level="law",
        sentence="moe_overlap needs ep > 1, a dispatcher other than allgather, vpp > 1 with pp > 1, neither full "
        "recompute nor that of moe, 16 bits or less, and at most one layer of multi-token prediction",
        source=MEGATRON + "core/transformer/transformer_config.py: overlap_moe_expert_parallel_comm",
        reads=("moe_overlap", "ep", "dispatcher", "pp", "vpp", "recompute"),
        vary=("moe_overlap", "vpp", "recompute", "dispatcher", "ep"),
        broken=_cannot_overlap,
        numbers=lambda c: (
            f"moe_overlap=on excludes {listed(word for word, excludes in _excludes_overlap(c).items() if excludes)}"
        ),
        binding=_experts,
    ),
    Rule(
        name="experts-on-stages",
        level="law",
        sentence="under DeepSpeed with ZeRO 1 and ep > 1, every pipeline stage has experts",
        source="DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: scaled_global_norm waits for all stages once for "
        "each group of parameters, and experts are a group",
        reads=("ep", "pp", "zero", "partition", "layers"),
        vary=("pp", "zero", "ep"),
        broken=lambda c: (c.ep > 1) & (c.pp > 1) & (c.zero > 0) & (_first_layers(c) < _layers_to_experts(c)),
        numbers=lambda c: (
            f"the first of pp={c.pp} stages has {counted(int(_first_layers(c)), 'layer')}, and only layer "
            f"{_layers_to_experts(c)} has experts; ep={c.ep} with ZeRO {c.zero} needs experts on every stage"
        ),
        binding=lambda workload: _experts(workload) and workload.framework == "deepspeed",
    ),
    Rule(
        name="dispatcher-for-gpu",
        level="law",
        sentence="DeepEP runs on Ampere, Hopper, B200 and B300 with NVLink, HybridEP also on GB200 and GB300",
        source="NVIDIA-NeMo/Megatron-Bridge at 183c5c02, src/megatron/bridge/training/flex_dispatcher_backend.py; "
        + _DEEPEP_SOURCE
        + "README.md: Requirements",
        reads=("dispatcher",),
        vary=("dispatcher",),
        broken=_lacks_flex,
        numbers=_lacks_flex_words,
        binding=_experts,
    ),
    Rule(
        name="deepep-ranks",
        level="law",
        sentence=f"under Megatron, DeepEP dispatches among {either(_DEEPEP_RANKS)} ranks (etp x ep)",
        source=_DEEPEP_SOURCE + "deep_ep/buffer.py: get_dispatch_config; csrc/kernels/launch.cuh: SWITCH_RDMA_RANKS",
        reads=("dispatcher", "ep", "etp"),
        vary=("dispatcher", "ep", "etp"),
        broken=lambda c: (c.dispatcher == _DEEPEP) & ~np.isin(_group(c), _DEEPEP_RANKS),
        numbers=lambda c: f"DeepEP dispatches among {either(_DEEPEP_RANKS)} ranks, not {_group_words(c)}",
        binding=_megatron_experts,
    ),
    Rule(
        name="deepep-in-node",
        level="law",
        sentence="under Megatron, DeepEP's groups of etp x ep ranks fit evenly into a node, unless nodes have a "
        "multiple of 8 GPUs newer than Ampere",
        source=_DEEPEP_SOURCE + "csrc/kernels/configs.cuh: NUM_MAX_NVL_PEERS; setup.py: DISABLE_SM90_FEATURES",
        reads=("dispatcher", "ep", "etp"),
        vary=("dispatcher", "ep", "etp"),
        broken=_leaves_deepep_node,
        numbers=_leaves_deepep_node_words,
        binding=_megatron_experts,
    ),
    Rule(
        name="hybridep-by-domain",
        level="law",
        sentence="HybridEP's groups of etp x ep ranks fit evenly into whole nodes of an NVLink domain, or have whole "
        "domains",
        source="deepseek-ai/DeepEP at 34152ae, deep_ep/hybrid_ep_buffer.py: num_of_hybrid_ep_ranks_per_nvlink_domain",
        reads=("dispatcher", "ep", "etp"),
        vary=("dispatcher", "ep", "etp"),
        broken=_splits_hybridep,
        numbers=lambda c: (
            f"HybridEP's {_group_words(c)} ranks neither fit evenly into an NVLink domain of {c.cluster.domain} GPUs "
            "nor are a multiple of it"
        ),
        binding=_experts,
    ),
)
