"""Laws of experts: how they are spread over the ranks of a stage, and how tokens reach them."""

from __future__ import annotations

from typing import Any, Final

from tuner.core.columns import Columns
from tuner.core.domain import DISPATCHERS, HOST, PARTITION, Workload
from tuner.core.text import counted
from tuner.space.rules.rule import MEGATRON, Rule

_MOE: Final = MEGATRON + "core/transformer/moe/"
_ALL_TO_ALL, _DEEPEP, _HYBRIDEP = (DISPATCHERS.index(name) for name in ("alltoall", "deepep", "hybridep"))
_NO_FLEX: Final = ("V100", "T4", "MI", HOST)
"""Beginnings of the names of GPUs on which neither DeepEP nor HybridEP runs."""


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
    return f"tp({columns.tp}){cp} x dp({columns.dp}) = {columns.tp * columns.copies}"


def _lacks_flex(columns: Columns) -> object:
    """Return whether the dispatcher of each row does not run on the cluster's GPUs."""
    cluster = columns.cluster
    flex = (columns.dispatcher == _DEEPEP) | (columns.dispatcher == _HYBRIDEP)
    if cluster.gpu.name.startswith(_NO_FLEX):
        return flex
    return (columns.dispatcher == _DEEPEP) & (cluster.domain > cluster.gpus_per_node)


EXPERT_LAWS: Final[tuple[Rule, ...]] = (
    Rule(
        name="experts-for-ep",
        level="law",
        sentence="only a mixture of experts has expert parallelism and a dispatcher",
        source=MEGATRON + "training/arguments.py: --num-experts",
        reads=("ep", "etp", "dispatcher"),
        vary=("ep", "etp", "dispatcher"),
        broken=lambda c: (c.ep > 1) | (c.etp > 1) | (c.dispatcher != _ALL_TO_ALL),
        numbers=lambda c: (
            f"{c.workload.model.name} has no experts, which ep={c.ep}, etp={c.etp} and "
            f"{DISPATCHERS[int(c.dispatcher)]} need"
        ),
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
        sentence="tp x cp x dp, the ranks of a stage, is divisible by etp x ep",
        source=MEGATRON + "core/parallel_state.py: expert_tensor_model_pipeline_parallel_size",
        reads=("ep", "etp", "tp", "cp", "dp"),
        vary=("ep", "etp", "dp"),
        broken=lambda c: c.tp * c.copies % (c.etp * c.ep) != 0,
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
        sentence="DeepEP runs on Ampere, Hopper, B200 and B300, HybridEP also on GB200 and GB300",
        source="NVIDIA-NeMo/Megatron-Bridge at 183c5c02, src/megatron/bridge/training/flex_dispatcher_backend.py",
        reads=("dispatcher",),
        vary=("dispatcher",),
        broken=_lacks_flex,
        numbers=lambda c: f"{DISPATCHERS[int(c.dispatcher)]} does not run on {c.cluster.gpu.name}",
        binding=_experts,
    ),
)
