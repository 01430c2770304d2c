"""Column names and cell spellings that reports use, mapped to the columns and values of the format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuner.tables.row import COLUMNS, OPTIONAL_COLUMNS

_NAMES: Final[Mapping[str, str]] = {
    "gpu": "gpu_type gpu_name gpu_model device device_name accelerator hardware",
    "gpus": "ngpus num_gpus n_gpus world_size",
    "gpus_per_node": "gpus/node num_gpus_per_node n_gpus_per_node devices_per_node nproc_per_node",
    "nodes": "nnodes num_nodes n_nodes node_count",
    "layers": "nlayers num_layers n_layers n_layer num_hidden_layers",
    "hidden": "nhidden hidden_size hidden_dim d_model n_embd",
    "heads": "nheads num_heads n_heads n_head num_attention_heads attention_heads",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads num_query_groups",
    "ffn": "ffn_hidden_size intermediate_size ffn_dim d_ff",
    "gated_mlp": "swiglu gated_linear_unit",
    "seq": "seq_len seqlen seq_length sequence sequence_length context_length context_len ctx_len",
    "vocab": "vocab_size vocab_length padded_vocab_size",
    "head_dim": "head_size kv_channels",
    "experts": "num_experts n_experts num_local_experts num_moe_experts n_routed_experts",
    "top_k": "topk moe_router_topk num_experts_per_tok num_experts_per_token",
    "moe_ffn": "moe_ffn_hidden_size moe_intermediate_size",
    "shared_ffn": "moe_shared_expert_intermediate_size shared_expert_intermediate_size",
    "dense_layers": "first_k_dense_replace",
    "capacity_factor": "moe_expert_capacity_factor expert_capacity_factor",
    "mtp": "mtp_num_layers num_nextn_predict_layers",
    "dispatcher": "moe_token_dispatcher_type moe_token_dispatcher token_dispatcher moe_dispatcher",
    "moe_overlap": "overlap_moe_expert_parallel_comm moe_a2a_overlap a2a_overlap ep_overlap",
    "tp": "tp_size tp_degree tensor_parallel tensor_parallel_size tensor_model_parallel_size",
    "pp": "pp_size pp_degree pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size",
    "vpp": "vp vpp_size vp_size virtual_pipeline virtual_pipeline_size virtual_pipeline_model_parallel_size",
    "cp": "cp_size cp_degree context_parallel context_parallel_size",
    "dp": "dp_size dp_degree data_parallel data_parallel_size",
    "ep": "ep_size ep_degree expert_parallel expert_parallel_size expert_model_parallel_size",
    "etp": "etp_size expert_tensor_parallel expert_tensor_parallel_size",
    "zero": "zs zero_stage",
    "mbs": "micro_batch micro_batch_size micro_bs per_device_train_batch_size train_micro_batch_size_per_gpu",
    "gbs": "bs batch_size global_batch global_batch_size",
    "microbatches": "num_microbatches gas grad_accum grad_acc gradient_accumulation accumulation_steps "
    "gradient_accumulation_steps grad_accum_steps",
    "recompute": "recompute_granularity activation_checkpointing activation_checkpoint activation_recompute "
    "gradient_checkpointing",
    "precision": "dtype torch_dtype",
    "precision_recipe": "fp8_recipe",
    "quantized_weights": "fp8_param_gather",
    "framework": "stack",
    "overlap_grad": "overlap_grad_reduce",
    "overlap_param": "overlap_param_gather",
    "compiled": "compile torch_compile torch.compile compile_model",
    "size": "params model_size",
    "mem_gib": "mem memory peak_mem peak_memory mem_peak memory_peak mem_used memory_used "
    "mem/gpu memory/gpu mem_per_gpu memory_per_gpu",
    "sec_per_iter": "sec/it sec/iter s/it s/iter iter_dt iter_time iteration_time step_time time_per_iter "
    "time_per_iteration time_per_step time/iter time/step elapsed_time_per_iteration sec/step s/step sec_per_step "
    "seconds_per_iter seconds_per_iteration seconds speed",
    "tflops": "tflops/gpu tflop/s tflops/s tflop/s/gpu tflops/s/gpu tflops_per_gpu",
    "note": "notes comment comments remark remarks",
}
"""Names of the columns in reports, in Megatron's arguments and in Hugging Face's configurations."""

ALIASES: Final = {alias: column for column, aliases in _NAMES.items() for alias in aliases.split()}
"""Keys are lower case, with blanks as underscores, without brackets and units."""

KNOWN: Final = frozenset((*COLUMNS, *OPTIONAL_COLUMNS, "gpus", "size", "microbatches"))

MEASURED: Final = ("sec_per_iter", "tflops", "mem_gib")
_FRACTIONS: Final = (*MEASURED, "size", "node_gbit_s", "overlap_grad", "overlap_param", "overlap_tp")
"""Columns of figures that may have decimals."""
_DECISIONS: Final = ("tp", "pp", "dp", "mbs", "nodes", "gpus", "vpp", "cp", "gbs", "zero", "heads", "layers", "hidden")
_SPELLINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "dispatcher": {
        **dict.fromkeys(("a2a", "all2all", "all to all", "alltoallv", "nccl", "nccl a2a"), "alltoall"),
        **dict.fromkeys(("ag", "all gather", "all-gather"), "allgather"),
    },
    "precision": {
        f"{library}{name}": word
        for library in ("", "torch.")
        for name, word in (("bfloat16", "bf16"), ("float16", "fp16"), ("half", "fp16"), ("float32", "fp32"))
    },
    "recompute": {
        **dict.fromkeys(("0", "false", "no", "off"), "none"),
        **dict.fromkeys(("1", "true", "yes", "on"), "full"),
    },
    "status": {
        **dict.fromkeys(("complete", "completed", "success", "succeeded", "passed", "done", "finished"), "OK"),
        **dict.fromkeys(("cuda oom", "out of memory", "cuda out of memory"), "OOM"),
        **dict.fromkeys(("failed", "failure", "crashed", "error"), "FAIL"),
        **dict.fromkeys(("hung", "hangs"), "HANG"),
    },
}
"""Other words for the values of a column."""
_WORDS: Final = ("optimizer", "grad_precision", "state_precision", "loss_precision")
_NOTHING: Final = r"[-–—.?\s]*|x{2,}|n/?a|nan|null|tbd"
_PLACEHOLDER: Final = re.compile(rf"{_NOTHING}|none|[gm]i?b|m?s|tflops", re.IGNORECASE)
_EMPTY: Final = re.compile(_NOTHING, re.IGNORECASE)
"""Placeholders in the other columns, where `none` may be a value."""
_TEXTS: Final = ("group", "note", "source", "audit")
_QUANTITY: Final = re.compile(
    r"((?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([a-z/]+)", re.IGNORECASE
)
_GROUPED: Final = re.compile(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+\.[0-9]+|(?:,[0-9]{3}){2,})")
"""A figure whose commas can only separate thousands; that of 1,985 may be a decimal comma."""
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
    """Return a cell in the format's words, without its unit (`67GB` is 67) or separators of thousands (`1,985.50`), or
    empty for a placeholder (`xxxx`, `GB`).

    Anything else stays as printed, so that parsing it reports the error.
    """
    if column in _TEXTS:
        return cell
    if column not in (*MEASURED, *_DECISIONS, *_WORDS):
        folded = re.sub(r"[\s_]+", " ", cell.lower())
        return "" if _EMPTY.fullmatch(cell) else _SPELLINGS.get(column, {}).get(folded, cell)
    if _PLACEHOLDER.fullmatch(cell):
        return ""
    found = _QUANTITY.fullmatch(cell)
    if found and (factor := UNITS.get(column, {}).get(unit_named(found[2]))):
        digits = found[1].replace(",", "")
        return digits if factor == 1 else f"{float(digits) * factor:.12g}"
    return cell.replace(",", "") if _GROUPED.fullmatch(cell) else cell


def outcome_as_status(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells with an outcome that stands in place of a figure (`OOM`) as the status."""
    words = {column: plain("status", cells[column]).upper() for column in MEASURED if column in cells}
    outcomes = {column: word for column, word in words.items() if word in ("OOM", "FAIL", "HANG")}
    status = next(iter(outcomes.values()), "")
    if not outcomes or cells.get("status", status).upper() != status:
        return dict(cells)
    return {**{column: cell for column, cell in cells.items() if column not in outcomes}, "status": status}


def with_point(column: str, cell: str) -> str:
    """Return a cell of a figure with a decimal comma, as beside semicolons, with a point: `1.234,5` is 1234.5."""
    if column not in _FRACTIONS:
        return cell
    return re.sub(
        r"^([0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),([0-9]+)", lambda found: f"{found[1].replace('.', '')}.{found[2]}", cell
    )


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
