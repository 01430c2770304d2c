"""The model that the cells of a row describe, and the cells that describe a mixture of experts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast, get_args

from tuner.core.catalog import known_model
from tuner.core.domain import Dispatcher
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.text import either, shown
from tuner.tables.cells import flag, number_in, whole
from tuner.tables.writing import model_cells

_HEAD_SIZE: Final = 128
_SIZES: Final = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "head_dim"),
    *("experts", "top_k", "moe_ffn", "shared_ffn"),
)
"""Columns by which a row is of another model than the one that it names."""
LLAMA_LIKE: Final[Mapping[str, Any]] = {
    "gated_mlp": True,
    "tied_embeddings": False,
    "positions": "rotary",
    "norm": "rmsnorm",
    "qkv_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
}

_PROXIES: Final = {"deepseekv3_proxy": "deepseek-v3"}
"""Stems of the names of Megatron-LM's test models, and the catalog's model of which each has the widths, the latent
attention and the router (NVIDIA/Megatron-LM at 02c81e4, tests/functional_tests/test_cases/mixtral/
deepseekv3_proxy_*/model_config.yaml: q-lora-rank 1536, kv-lora-rank 512, 8 router groups)."""


def model_of(cells: Mapping[str, str], *, tp: int) -> Model:
    """Return the model of a row.

    The catalog's model that `model` names provides what no column describes (tied embeddings, latent attention, the
    router), if its sizes are those of the row.
    """
    if others := cells.get("other_layers"):
        raise InputError(f"its model has {others}, which no column describes, and is not in the catalog.")
    hidden = whole(cells, "hidden")
    heads = whole(cells, "heads") if "heads" in cells else usual_heads(hidden, tp)
    experts = _experts(cells) if whole(cells, "experts", 0) else None
    ffn = whole(cells, "ffn", experts.ffn if experts else 4 * hidden)
    kv_heads = whole(cells, "kv_heads", heads)
    known = _named(cells)
    if not experts:
        _refuse_incomplete(cells, known if known and known.hidden == hidden else None)
    if known and experts and known.experts and _same_experts(known, known.experts, (hidden, heads), experts):
        return _as_in_row(known, known.experts, cells)
    if known and not (experts or known.experts) and _widths(known) == (hidden, heads, kv_heads, ffn):
        return _as_in_row(known, None, cells)
    proxied = _proxied(cells.get("model", ""))
    if experts and proxied and proxied.experts and (proxied.hidden, proxied.heads) == (hidden, heads):
        return _as_in_row(proxied, replace(proxied.experts, count=experts.count), cells)
    if known and known.delta_net:
        raise InputError(
            f"{known.name} has Gated DeltaNet, which no column describes, and other widths in the catalog than here."
        )
    head_size = whole(cells, "head_dim", 0)
    return Model(
        layers=whole(cells, "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=0 if head_size * heads == hidden else head_size,
        ffn=ffn,
        seq=whole(cells, "seq"),
        vocab=whole(cells, "vocab"),
        experts=experts,
        mtp_layers=whole(cells, "mtp", 0),
        **(LLAMA_LIKE if flag(cells, "gated_mlp") else {"tied_embeddings": whole(cells, "zero") != 3}),
    )


def named_sizes(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of the catalog's model that `model` names, if no stated size contradicts them.

    The sequence is the training's; vocabularies are padded, and parts of a model may repeat or be left out.
    """
    known = _named(cells)
    sizes = model_cells(known) if known else {}
    if any(column in cells and not _equal(cells[column], sizes.get(column, "0")) for column in _SIZES):
        return {}
    return {column: value for column, value in sizes.items() if column not in ("model", "seq")}


def _named(cells: Mapping[str, str]) -> Model | None:
    """Return the catalog's model that a row names, with or without its organization; None if it has none."""
    return known_model(cells.get("model", "").rpartition("/")[2])


def _equal(cell: str, value: str) -> bool:
    with suppress(ValueError):
        return float(cell) == float(value)
    return False


def _proxied(name: str) -> Model | None:
    """Return the model that a test model of Megatron-LM stands for, with fewer layers and experts."""
    return next((known_model(real) for stem, real in _PROXIES.items() if name.lower().startswith(stem)), None)


def _experts(cells: Mapping[str, str]) -> Experts:
    width = whole(cells, "moe_ffn", 0) or whole(cells, "ffn", 0)
    if not width:
        raise InputError("moe_ffn is missing, the width of one expert.")
    return Experts(
        count=whole(cells, "experts"),
        top_k=whole(cells, "top_k"),
        ffn=width,
        shared_ffn=whole(cells, "shared_ffn", 0),
        dense_layers=whole(cells, "dense_layers", 0),
        capacity_factor=_capacity(cells),
    )


def _capacity(cells: Mapping[str, str]) -> float:
    """Return the capacity of an expert, which 0 leaves out."""
    return 0.0 if _equal(cells.get("capacity_factor", "0"), "0") else number_in(cells, "capacity_factor")


def _refuse_incomplete(cells: Mapping[str, str], known: Model | None) -> None:
    """Raise `InputError` if a row without experts is of a mixture of experts."""
    if whole(cells, "ep", 1) > 1:
        sign = f"ep is {cells['ep']}"
    elif column := next((name for name in ("dispatcher", "top_k", "moe_ffn") if cells.get(name, "0") != "0"), None):
        sign = f"{column} is {cells[column]}"
    elif known and known.experts:
        sign = f"{cells['model']} is a mixture of experts"
    else:
        return
    raise InputError(f"experts is missing: {sign}; add experts, top_k and moe_ffn.")


def _same_experts(known: Model, own: Experts, sizes: tuple[int, int], experts: Experts) -> bool:
    row = (experts.count, experts.top_k, experts.ffn, experts.shared_ffn)
    return (known.hidden, known.heads) == sizes and (own.count, own.top_k, own.ffn, own.shared_ffn) == row


def _widths(model: Model) -> tuple[int, int, int, int]:
    return model.hidden, model.heads, model.kv_heads, model.ffn


def _as_in_row(known: Model, own: Experts | None, cells: Mapping[str, str]) -> Model:
    """Return the known model with the row's depth, sequence, vocabulary and layers that predict further tokens."""
    layers, dense = whole(cells, "layers"), whole(cells, "dense_layers", known.dense_mlp_layers)
    if own and dense != known.dense_mlp_layers:  # a number of dense layers that interleaving does not explain
        own = replace(own, dense_layers=dense, period=1)
    if own and "capacity_factor" in cells:
        own = replace(own, capacity_factor=_capacity(cells))
    seq = whole(cells, "seq")
    return replace(
        known,
        layers=layers,
        seq=seq,
        max_positions=max(seq, known.max_positions),
        vocab=whole(cells, "vocab"),
        experts=own,
        mtp_layers=whole(cells, "mtp", known.mtp_layers),
    )


def dispatcher_of(cells: Mapping[str, str]) -> Dispatcher:
    """Return how tokens reach their experts; raise `InputError` for DeepEP and HybridEP without `ep`."""
    word = re.sub(r"[-_]", "", cells.get("dispatcher", "alltoall").lower())
    if word == "flex":  # Megatron-Core's default of --moe-flex-dispatcher-backend
        word = "deepep"
    found = [name for name in get_args(Dispatcher) if name in word]
    if len(found) != 1:
        raise InputError(f"dispatcher must be {either(get_args(Dispatcher))}, not {shown(cells['dispatcher'])}.")
    if "ep" not in cells and whole(cells, "experts", 0) and found[0] in ("deepep", "hybridep"):
        raise InputError(f"ep is missing: {found[0]} sends tokens among ep > 1 ranks; add ep.")
    return cast("Dispatcher", found[0])


def usual_heads(hidden: int, tp: int) -> int:
    """Return the default head count: head size near 128, dividing hidden and divisible by tp."""
    fitting = [heads for heads in range(tp, hidden // 16 + 1, tp) if hidden % heads == 0]
    return min(fitting, key=lambda heads: abs(hidden / heads - _HEAD_SIZE), default=tp)
