"""Column names and cell spellings that reports use, mapped to the columns and values of the format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuner.tables.row import COLUMNS, OPTIONAL_COLUMNS

ALIASES: Final = {
    "nnodes": "nodes",
    "gpus": "gpus",
    "ngpus": "gpus",
    "nlayers": "layers",
    "num_layers": "layers",
    "nhidden": "hidden",
    "hidden_size": "hidden",
    "nheads": "heads",
    "num_heads": "heads",
    "num_attention_heads": "heads",
    "seq_len": "seq",
    "seqlen": "seq",
    "seq_length": "seq",
    "sequence": "seq",
    "vocab_size": "vocab",
    "vocab_length": "vocab",
    "ffn_hidden_size": "ffn",
    "head_size": "head_dim",
    "num_experts": "experts",
    "topk": "top_k",
    "moe_router_topk": "top_k",
    "num_experts_per_tok": "top_k",
    "moe_ffn_hidden_size": "moe_ffn",
    "moe_intermediate_size": "moe_ffn",
    "ep_size": "ep",
    "expert_parallel": "ep",
    "etp_size": "etp",
    "fp8_param_gather": "quantized_weights",
    "zs": "zero",
    "zero_stage": "zero",
    "micro_batch": "mbs",
    "micro_batch_size": "mbs",
    "bs": "gbs",
    "batch_size": "gbs",
    "global_batch": "gbs",
    "global_batch_size": "gbs",
    "params": "size",
    "model_size": "size",
    "mem": "mem_gib",
    "memory": "mem_gib",
    "peak_mem": "mem_gib",
    "peak_memory": "mem_gib",
    "sec/it": "sec_per_iter",
    "sec/iter": "sec_per_iter",
    "s/it": "sec_per_iter",
    "s/iter": "sec_per_iter",
    "iter_dt": "sec_per_iter",
    "iter_time": "sec_per_iter",
    "speed": "sec_per_iter",
    "tflops/gpu": "tflops",
    "notes": "note",
}
"""Keys are lower case, with blanks as underscores, without brackets and units."""

KNOWN: Final = frozenset((*COLUMNS, *OPTIONAL_COLUMNS, "gpus", "size"))

MEASURED: Final = ("sec_per_iter", "tflops", "mem_gib")
_DECISIONS: Final = ("tp", "pp", "dp", "mbs", "nodes", "gpus", "vpp", "cp", "gbs", "zero", "heads", "layers", "hidden")
_WORDS: Final = ("optimizer", "grad_precision", "state_precision", "loss_precision")
_NOTHING: Final = r"[-–—.?\s]*|x{2,}|n/?a|nan|null|tbd"
_PLACEHOLDER: Final = re.compile(rf"{_NOTHING}|none|[gm]i?b|m?s|tflops", re.IGNORECASE)
_EMPTY: Final = re.compile(_NOTHING, re.IGNORECASE)
"""Placeholders in the other columns, where `none` may be a value."""
_TEXTS: Final = ("group", "note", "source", "audit")
_QUANTITY: Final = re.compile(r"((?:[0-9][0-9,]*\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([a-z/]+)", re.IGNORECASE)
_SECONDS: Final = ("s", "sec", "secs", "second", "seconds")
_MILLISECONDS: Final = ("ms", "msec", "msecs", "millisecond", "milliseconds")
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "mem_gib": {"g": 1.0, "gb": 1.0, "gib": 1.0, "m": 1 / 1024, "mb": 1 / 1024, "mib": 1 / 1024},
    "sec_per_iter": {**dict.fromkeys(_SECONDS, 1.0), **dict.fromkeys(_MILLISECONDS, 1e-3), "min": 60.0},
    "tflops": {**dict.fromkeys(("tflops", "tflop", "tflop/s", "tflops/s", "t"), 1.0), "pflops": 1e3, "pflop/s": 1e3},
}
_PER: Final = re.compile(r"\s*(?:/|\bper\s+)\s*(?:gpu|device|it|iter|iteration|step)s?$")


def column_named(name: str) -> str:
    """Return the column of the format for a report's name without brackets."""
    folded = folded_name(name)
    return ALIASES.get(folded, folded)


def folded_name(name: str) -> str:
    """Return a name in lower case, with blanks and hyphens as underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def unit_named(text: str) -> str:
    """Return a unit in lower case, without the GPU or iteration that it is stated for: `s/it` is s."""
    return _PER.sub("", text.strip().lower())


def plain(column: str, cell: str) -> str:
    """Return a cell without its unit (`67GB` is 67), or empty for a placeholder (`xxxx`, `GB`).

    Anything else stays as printed, so that parsing it reports the error.
    """
    if column in _TEXTS:
        return cell
    if column not in (*MEASURED, *_DECISIONS, *_WORDS):
        return "" if _EMPTY.fullmatch(cell) else cell
    if _PLACEHOLDER.fullmatch(cell):
        return ""
    found = _QUANTITY.fullmatch(cell)
    if found and (factor := UNITS.get(column, {}).get(unit_named(found[2]))):
        digits = found[1].replace(",", "")
        return digits if factor == 1 else f"{float(digits) * factor:.12g}"
    return cell


def size_of(text: str) -> float | None:
    """Return the parameters of a size as reports print it: `104B`, `1.3B`, `350M`."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([BbMm])\s*", text)
    return float(found[1]) * (1e9 if found[2] in "Bb" else 1e6) if found else None


def rounding_of(text: str) -> float:
    """Return half of the last digit of a printed figure, the rounding error: 0.005 for `134.02`."""
    found = re.fullmatch(r"\s*[+-]?(?=[.0-9])[0-9]*(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?[^0-9]*", text)
    if not found:
        return 0.0
    return float(0.5 * 10.0 ** (int(found[2] or 0) - len(found[1] or "")))
