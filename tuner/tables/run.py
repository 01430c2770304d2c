"""Build the run that the cells of a row describe: workload, cluster and topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from tuner.core.catalog import gpu as catalog_gpu
from tuner.core.catalog import make_cluster
from tuner.core.domain import OFFLOAD, Cluster, Gpu, PrecisionRecipe, Stack, Topology, Workload, partition_for
from tuner.core.errors import InputError
from tuner.core.frameworks import check_precision
from tuner.core.model import Model
from tuner.core.text import shown
from tuner.tables.row import MeasuredRun
from tuner.tables.stacks import assumed, framework_of

USUAL: Final[Mapping[str, str]] = {
    "gpu": "A100-80GB-SXM",
    "gpus_per_node": "8",
    "gated_mlp": "0",
    "seq": "2048",
    "vocab": "51200",
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "mbs"), "1"),
    "sequence_parallel": "0",
    "zero": "1",
    "recompute": "full",
    "fused_norm": "1",
    "status": "OK",
    "mem_kind": "smi",
}
"""Defaults that do not depend on other cells."""

SETTINGS: Final = (
    *("recompute", "sequence_parallel", "zero", "fused_norm", "parallel_loss"),
    *("grad_precision", "overlap_grad", "overlap_param", "overlap_tp", "split_sends"),
)
"""Columns of settings that cost time or memory and that tables often leave out."""

_RECIPES: Final[Mapping[str, PrecisionRecipe]] = {
    **{recipe: recipe for recipe in get_args(PrecisionRecipe)},
    **dict.fromkeys(("fp8-ds", "fp8_ds"), "delayed"),
    **dict.fromkeys(("fp8-cs", "fp8_cs", "fp8-tensorwise"), "tensorwise"),
    **dict.fromkeys(("fp8-mx", "fp8_mx"), "mxfp8"),
    **dict.fromkeys(("fp8-sc", "fp8_sc"), "blockwise"),
}
"""NVIDIA's names of the recipes (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/README.md)."""

_HEAD_SIZE: Final = 128
_MAY_BE_ZERO: Final = ("zero", "kv_heads", "ffn")
_LLAMA: Final[Mapping[str, Any]] = {
    "gated_mlp": True,
    "tied_embeddings": False,
    "positions": "rotary",
    "norm": "rmsnorm",
    "qkv_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
}


def run_of(cells: Mapping[str, str]) -> MeasuredRun:
    """Return the run that the cells describe; raise `InputError` if they describe none."""
    cells = {**USUAL, **assumed(cells), **cells}
    card = catalog_gpu(cells["gpu"])
    tp, pp, cp = (_whole(cells, name) for name in ("tp", "pp", "cp"))
    per_node, replica = _whole(cells, "gpus_per_node"), tp * pp * cp
    nodes = _whole(cells, "nodes") if "nodes" in cells else 0
    if not nodes and "gpus" in cells:
        nodes = -(-_whole(cells, "gpus") // per_node)
    dp = _whole(cells, "dp") if "dp" in cells else max(1, nodes * per_node // replica)
    nodes = nodes or -(-replica * dp // per_node)
    if replica * dp > nodes * per_node:
        raise InputError(
            f"tp({tp}) x pp({pp}) x {f'cp({cp}) x ' if cp > 1 else ''}dp({dp}) = {replica * dp} GPUs, but {nodes} "
            f"nodes of {per_node} have {nodes * per_node}."
        )
    workload = _workload(cells, card, tp=tp, ranks=dp)
    if workload.global_batch % (dp * _whole(cells, "mbs")) and workload.global_batch < dp * _whole(cells, "mbs"):
        raise InputError(
            f"gbs({workload.global_batch}) is less than dp({dp}) x mbs({cells['mbs']}): too few micro batches."
        )
    topology = Topology(
        nodes=nodes,
        tp=tp,
        pp=pp,
        vpp=_whole(cells, "vpp"),
        cp=cp,
        dp=dp,
        micro_batch=_whole(cells, "mbs"),
        zero=_whole(cells, "zero"),
        sequence_parallel=_flag(cells, "sequence_parallel"),
        recompute=cells["recompute"].lower(),  # type: ignore[arg-type] # Topology refuses any other word
        offload=next((known for known in OFFLOAD if known == cells.get("offload", "").lower()), "none"),
        hsdp=_whole(cells, "hsdp_replicas") if "hsdp_replicas" in cells else 1,
        partition=cells.get("partition", "").lower() or partition_for(workload.model.layers, pp * _whole(cells, "vpp")),  # type: ignore[arg-type] # as above
    )
    return MeasuredRun(workload=workload, cluster=_cluster(cells, card, nodes, per_node), topology=topology)


def _workload(cells: Mapping[str, str], card: Gpu, *, tp: int, ranks: int) -> Workload:
    hidden = _whole(cells, "hidden")
    heads = _whole(cells, "heads") if "heads" in cells else usual_heads(hidden, tp)
    framework = framework_of(cells)
    gated = _flag(cells, "gated_mlp")
    plain = _whole(cells, "zero") == 3 and framework != "megatron-core"
    model = Model(
        layers=_whole(cells, "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(cells, "kv_heads") if "kv_heads" in cells else heads,
        ffn=_whole(cells, "ffn") if "ffn" in cells else 4 * hidden,
        seq=_whole(cells, "seq"),
        vocab=_whole(cells, "vocab"),
        **(_LLAMA if gated else {"tied_embeddings": not plain}),
    )
    workload = Workload(
        model=model,
        global_batch=_whole(cells, "gbs") if "gbs" in cells else _whole(cells, "mbs") * ranks,
        precision=cells.get("precision", "bf16" if "bf16" in card.peak_flops else "fp16").lower(),  # type: ignore[arg-type]
        attention=cells.get("attention", card.attention).lower(),  # type: ignore[arg-type]
        fused_norms=_flag(cells, "fused_norm"),
        plain_layers=plain,
        parallel_loss=_flag(cells, "parallel_loss") if "parallel_loss" in cells else not (gated or plain),
        framework=framework,
        precision_recipe=_RECIPES.get(cells.get("precision_recipe", "").lower()),
        stack=_stack(cells),
    )
    check_precision(workload.precision, card)
    return workload


def _stack(cells: Mapping[str, str]) -> Stack | None:
    """Return what the cells state of the software beside its framework, None where they state nothing."""
    shares = {name: _share(cells, name) for name in ("overlap_grad", "overlap_param", "overlap_tp") if name in cells}
    stack = Stack(
        **shares,
        grad_precision=cells["grad_precision"].lower() if "grad_precision" in cells else None,  # type: ignore[arg-type]
        split_sends=_flag(cells, "split_sends") if "split_sends" in cells else None,
    )
    return None if stack == Stack() else stack


def _share(cells: Mapping[str, str], column: str) -> float:
    try:
        share = float(cells[column])
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{column} must be a share from 0 to 1, not {shown(cells[column])}.")
    return share


def usual_heads(hidden: int, tp: int) -> int:
    """Return the default head count: head size near 128, dividing hidden and divisible by tp."""
    fitting = [heads for heads in range(tp, hidden // 16 + 1, tp) if hidden % heads == 0]
    return min(fitting, key=lambda heads: abs(hidden / heads - _HEAD_SIZE), default=tp)


def _cluster(cells: Mapping[str, str], card: Gpu, nodes: int, per_node: int) -> Cluster:
    network = number_in(cells, "node_gbit_s") * 1e9 / 8 if "node_gbit_s" in cells else 0.0
    if "nvlink_domain" in cells:
        domain: int | None = _whole(cells, "nvlink_domain")
    else:
        domain = None if (card.nvlink_domain or 0) % per_node else card.nvlink_domain
    return make_cluster(
        name=card.name, nodes=nodes, gpus_per_node=per_node, gpu=card, inter=network, nvlink_domain=domain
    )


def number_in(cells: Mapping[str, str], column: str) -> float:
    """Return a positive number; raise `InputError` with the column for anything else."""
    try:
        number = float(cells[column])
    except ValueError:
        number = -1.0
    if not 0 < number < 1e15:
        raise InputError(f"{column} must be a positive number, not {shown(cells[column])}.")
    return number


def _whole(cells: Mapping[str, str], column: str) -> int:
    if column not in cells:
        raise InputError(f"{column} is missing.")
    try:
        number = float(cells[column])
    except ValueError:
        number = -1.0
    least = 0 if column in _MAY_BE_ZERO else 1
    if not least <= number < 1e15 or number != int(number):
        raise InputError(f"{column} must be a whole number of at least {least}, not {shown(cells[column])}.")
    return int(number)


def _flag(cells: Mapping[str, str], column: str) -> bool:
    word = cells[column].lower()
    if word not in ("0", "1", "true", "false", "yes", "no", "0.0", "1.0"):
        raise InputError(f"{column} must be 0 or 1, not {shown(cells[column])}.")
    return word in ("1", "true", "yes", "1.0")
