"""Read a measurement table from a file; rows that describe no run are skipped with a reason.

Columns may be missing and in any order; unknown ones are kept. Defaults of missing values:

    gpu named in the text of a report, else A100-80GB-SXM; gpus_per_node by most rows' degrees and nodes,
    else 4 of GB200 and GB300, 8 of others; nodes as many as the degrees or `gpus` need; node_gbit_s as the GPU's
    usual node has;
    nvlink_domain as the catalog has it for the GPU, else gpus_per_node, of a job on one node the largest that the table
    has with the GPU; fabric not specified, as InfiniBand
    layers, hidden, heads and every other size but seq as the catalog's model has them that `model` names, if no stated
    size contradicts; else heads of about 128; kv_heads as heads; ffn four times hidden; gated_mlp 1 with
    experts or fewer kv_heads than heads, else 0; seq 2048; vocab 51200
    tp or pp what dp and the other leave of the GPUs, else 1; vpp, cp 1; dp what fills the nodes; sequence_parallel 0
    zero 1; mbs 1; gbs mbs x dp x `microbatches` (1 if absent)
    head_dim hidden / heads; experts 0 (a dense model); top_k has none; moe_ffn as ffn; shared_ffn, dense_layers 0;
    capacity_factor 0 (dropless), of NeMo with an all-to-all 1 with padded_experts
    ep 1; etp 1, of Megatron-Core as tp; dispatcher alltoall, of Megatron-Bridge with ep hybridep; routing balanced,
    of NeMo AutoModel round-robin
    mtp as the catalog has it for the model, else 0. A row with deepep or hybridep and no ep is skipped; moe_overlap 0
    recompute_modules of a selective recompute core_attn
    offload none (a number is the share of the optimizer that is offloaded; 1 is one only if the note names the
    optimizer, else a switch of activation offload, which is not modeled); hsdp_replicas 1
    recompute full; attention the fastest kernel of the GPU; fused_norm 1; precision bf16 where the GPU has it
    precision_recipe as the framework has it; partition even or, of Megatron-Core with a remainder, layout
    parallel_loss 0 for gated models and plain layers, of Megatron-Core and torchtitan 1, else 1
    status OK; mem_kind smi; mem_stage first, of Megatron-Core's own allocated bytes last; group one for the whole table
    framework none that is known; of one that is, what `stacks` says of it: recompute none for Megatron-Core and FSDP,
    full for NeMo AutoModel
    optimizer adam, of Megatron-Bridge's DeepSeek-V3, Moonlight and OLMoE adam-bf16
    grad_precision, state_precision, loss_precision, loss_chunks, fused_loss (1: one kernel), unsharded_gradients (of
    PyTorch's FSDP, 0: reduced after each microbatch), precision_aware_optimizer (of an offloaded one, 0: its fp32
    weights stay on the GPU), fused_permutation (of Megatron-Core, 0: PyTorch sorts tokens by expert), padded_experts
    (1: tokens are padded to capacity_factor), overlap_grad, overlap_param, overlap_tp, split_sends, cuda_graph,
    cp_comm, quantized_weights (1: weights stored in fp8), bf16_layers (first and last layers in 16 bits beside fp8 or
    fp4, such as `1 4`) as the framework has them
    early_stop (0: PyTorch's checkpoint computes all of a layer again) 1 with DeepSpeed, FSDP and torchtitan, else 0
    compiled 0; 1 (torch.compile) if the note of an FSDP or torchtitan row says so, of torchtitan with fused_loss
    cudnn (its version, such as 9.13) a recent one; release (of the stack, such as 25.11) the last: NVIDIA's of 2025
    have cuDNN 9.13

A placeholder (`-`, `xxxx`, `n/a`) is an empty cell. The column `audit` excludes a row or one of its measured figures:
`exclude: why`, `exclude mem_gib: why`.

A model with a gated MLP is assumed to be a LLaMA (untied output matrix, RMSNorm, rotary positions, no biases), any
other a GPT. Where `model` names a model of the catalog with the same sizes, what has no column (tied embeddings,
latent attention, Gated DeltaNet, the router) is the catalog's. `other_layers` names such layers of a model that is not
in the catalog, whose rows are skipped.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

from tuner.core.catalog import catalog, read_text
from tuner.core.domain import MemoryKind, MemoryStage
from tuner.core.errors import InputError, TunerError, TunerWarning
from tuner.core.quantity import GIB
from tuner.core.text import counted, either, shown, text_of_cell
from tuner.tables.adapters import adapters_named
from tuner.tables.cells import number_in, whole
from tuner.tables.column_aliases import MEASURED, outcome_as_status, plain, with_point
from tuner.tables.described_model import named_sizes
from tuner.tables.headers import headers_of
from tuner.tables.markdown import card_named, looks_like_markdown, markdown_rows
from tuner.tables.note_settings import settings_in_note
from tuner.tables.notices import notices
from tuner.tables.row import COLUMNS, Defaults, MeasuredRun, Row, Status, Table
from tuner.tables.run import SETTINGS, completed, left_to_one, run_of
from tuner.tables.stacks import recipe_as_precision

_MAX_TABLE_BYTES: Final = 64 << 20
_MAX_GPUS_PER_NODE: Final = 128
_GROUPED: Final = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_EXCLUDED: Final = re.compile(r"exclude(?:\s+([a-z_]+))?\s*:\s*(.*)", re.IGNORECASE)


def read_table(path: str | Path, defaults: Defaults | None = None, *, period_column: str | None = None) -> Table:
    """Read the table of a CSV or Markdown file; the tables of a Markdown file become one.

    Warns of columns and defaults that are not used, except `period_column`, which labels speed periods; raises
    `InputError` if there is no table.
    """
    text = read_text(Path(path), most=_MAX_TABLE_BYTES)
    table = table_of(text, str(path), defaults)
    for notice in notices(table, period_column, defaults):
        warnings.warn(TunerWarning(f"{table.name}: {notice}"), stacklevel=2)
    return table


def table_of(text: str, path: str, defaults: Defaults | None = None) -> Table:
    """Return the table in a text; raise `InputError`, which names the path, if there is none."""
    report = looks_like_markdown(text)
    lines = list(markdown_rows(text)) if report else list(_csv_rows(text, path))
    if not lines:
        raise InputError(f"{path} contains no table with rows; a table has columns such as tp, pp, mbs, sec_per_iter.")
    given = {column: None for _, cells in lines for column in cells}
    if not {"tp", "pp", "dp", "mbs", "sec_per_iter", "mem_gib", "nodes"} & given.keys():
        raise InputError(f"{path} has none of the columns of a measurement table, such as tp, pp, mbs, sec_per_iter.")
    known = dict(defaults.cells) if defaults else {}
    printed_rows = [cells for _, cells in lines]
    around = {**_node_size(printed_rows), **(_card(text) if report else {}), **known}
    nodes = _largest_nodes(printed_rows)
    rows = tuple(
        _row(index, line, cells, {**_part_of_node(cells, nodes), **around}, Path(path).stem, report=report)
        for index, (line, cells) in enumerate(lines)
    )
    columns = format_columns(given) if report else tuple(printed_rows[0])
    return Table(name=Path(path).name, columns=columns, rows=rows, lines=tuple(text.splitlines()) if report else ())


def _node_size(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return gpus_per_node by most rows' degrees and nodes, if no row states it."""
    votes: dict[int, int] = {}
    for cells in rows:
        if "gpus_per_node" in cells:
            return {}
        try:
            degrees = [int(cells[name]) for name in ("tp", "pp", "dp", "nodes")]
        except (KeyError, ValueError):
            continue
        gpus = degrees[0] * degrees[1] * degrees[2]
        if degrees[3] > 0 and gpus > 0 and gpus % degrees[3] == 0:
            votes[gpus // degrees[3]] = votes.get(gpus // degrees[3], 0) + 1
    best = max(votes, key=lambda size: votes[size], default=0)
    return {"gpus_per_node": str(best)} if 0 < best <= _MAX_GPUS_PER_NODE else {}


def _largest_nodes(rows: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return the largest gpus_per_node of each GPU."""
    largest: dict[str, int] = {}
    for cells in rows:
        card = cells.get("gpu", "")
        largest[card] = max(_gpus_stated(cells), largest.get(card, 0))
    return largest


def _part_of_node(cells: Mapping[str, str], largest: Mapping[str, int]) -> dict[str, str]:
    """Return the NVLink domain of a job on some of a node's GPUs, which a table prints as gpus_per_node: the largest
    node in it with this GPU."""
    own, node = _gpus_stated(cells), largest[cells.get("gpu", "")]
    part = cells.get("nodes") == "1" and 0 < own < node and node % own == 0
    return {"nvlink_domain": str(node)} if part else {}


def _gpus_stated(cells: Mapping[str, str]) -> int:
    """Return gpus_per_node, or 0 if the row states none that a node may have."""
    size = cells.get("gpus_per_node", "")
    known = size.isdecimal() and len(size) <= len(str(_MAX_GPUS_PER_NODE))
    return int(size) if known and int(size) <= _MAX_GPUS_PER_NODE else 0


def _card(text: str) -> dict[str, str]:
    """Return the GPU that the text of a report names, if exactly one."""
    named = card_named(text)
    if named:
        for name in (f"{named}-SXM", named):
            if name in catalog().gpu:
                return {"gpu": name}
    return {}


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of each row; every row has all columns."""
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    missing = 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=False)
    try:
        header = headers_of([text_of_cell(name).strip() for name in next(reader, [])])
        columns = [each.column for each in header]
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise InputError(f"{name} names its column {twice!r} twice.")
        for values in reader:
            if not any(value.strip() for value in values):
                continue
            if len(values) > len(header):
                cells, under = counted(len(values), "cell"), counted(len(header), "column")
                raise InputError(f"{name}, line {reader.line_num}: {cells} under {under}.")
            missing = len(header) - len(values)
            values += [""] * missing
            texts = [text_of_cell(cell).strip() for cell in values]
            if separator == ";":
                texts = [with_point(one.column, text) for one, text in zip(header, texts, strict=True)]
            yield reader.line_num, {one.column: one.cell(text) for one, text in zip(header, texts, strict=True)}
        if missing and not text.endswith(("\n", "\r")):
            cells, under = counted(len(header) - missing, "cell"), counted(len(header), "column")
            raise InputError(
                f"{name}, line {reader.line_num}: the file seems to be cut off: {cells} under {under}, and no line end."
            )
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num}: not valid CSV: {error}.") from None


def _row(
    index: int, line: int, printed: Mapping[str, str], defaults: Mapping[str, str], name: str, *, report: bool
) -> Row:
    """Return one row, parsed as far as possible."""
    cells = {column: value for column, value in printed.items() if value}
    excluded = _EXCLUDED.match(cells.get("audit", ""))
    excluded_column = excluded[1].lower() if excluded and excluded[1] else None
    filled = _filled(cells, excluded_column)
    stated = {column: value for column, value in filled.items() if value}
    given = {**defaults, **stated, **settings_in_note(stated)}
    understood = completed(given)
    figures: dict[str, Any] = {"status": "OK", "run": None}
    reason = None
    try:
        understood |= left_to_one(given)
        if report and not {"tp", "pp", "dp"} & given.keys():
            raise InputError("neither the row nor the text around it names a parallel degree.")
        figures.update(_figures(understood))  # as far as they can be read
        _check_batch(figures["run"], given)
        if excluded_column != "sec_per_iter" and "sec_per_iter" not in given:
            figures["seconds"] = _seconds_at_rate(given, figures["run"])
    except TunerError as error:
        reason = str(error)
    run: MeasuredRun | None = figures["run"]
    if run and (word := adapters_named(filled)):
        reason = f"it trains adapters ({word}), which the cost model does not describe."
    if excluded and not excluded_column:
        reason = f"audit: {excluded[2] or 'excluded'}"
    row = Row(
        index=index,
        line=line,
        cells=cells,
        understood=understood,
        group=understood.get("group", name),
        skipped=reason,
        assumed=_assumed(run, understood, given),
        **figures,
    )
    return row if row.skipped else replace(row, skipped=row.overfull)


def _filled(cells: Mapping[str, str], excluded: str | None) -> dict[str, str]:
    """Return the cells in the format's own words, without the measured figure that an audit excludes."""
    kept = {
        column: plain(column, value) for column, value in cells.items() if column != excluded or column not in MEASURED
    }
    return outcome_as_status(recipe_as_precision(kept))


def _figures(cells: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of `Row` that are read from cells; raise a `TunerError` at the first that cannot be."""
    yield "status", _one_of("status", cells["status"].upper(), get_args(Status))
    yield "memory_kind", _one_of("mem_kind", cells["mem_kind"].lower(), get_args(MemoryKind))
    yield "memory_stage", _one_of("mem_stage", cells.get("mem_stage", "first").lower(), get_args(MemoryStage))
    for field, column, unit in (("seconds", "sec_per_iter", 1), ("tflops", "tflops", 1e12), ("memory", "mem_gib", GIB)):
        yield field, number_in(cells, column) * unit if column in cells else None
    yield "run", run_of(cells)


def _seconds_at_rate(given: Mapping[str, str], run: MeasuredRun) -> float | None:
    """Return the seconds of an iteration at the stated tokens per second and GPU; None unless the row states its batch
    and sequence length, or where a remark takes the figure's place."""
    column = "tokens_per_sec_gpu"
    stated = given.get(column, "")
    if not {"gbs", "seq"} <= given.keys() or not stated[:1].isdigit() or not stated.strip("0."):
        return None
    rate = number_in({column: stated.replace(",", "")} if _GROUPED.fullmatch(stated) else given, column)
    workload = run.workload
    return workload.global_batch * workload.model.seq / (rate * run.topology.gpus)


def _check_batch(run: MeasuredRun, given: Mapping[str, str]) -> None:
    """Raise `InputError` if the global batch is not that of the stated microbatches."""
    topology, batch = run.topology, run.workload.global_batch
    if {"gbs", "microbatches"} <= given.keys():
        microbatches = whole(given, "microbatches")
        expected = topology.micro_batch * microbatches * topology.dp
        if batch != expected:
            raise InputError(
                f"gbs({batch}) is not mbs({topology.micro_batch}) x microbatches({microbatches}) x dp({topology.dp}) = "
                f"{expected}."
            )


def _assumed(run: MeasuredRun | None, understood: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of columns that decide time or memory and that are not stated."""
    values = {column: understood[column] for column in ("gpu", "seq", *SETTINGS) if column in understood}
    if run:
        model = run.workload.model
        values |= {
            "gated_mlp": understood["gated_mlp"],
            **named_sizes(given),
            "precision": run.workload.precision,
            "kv_heads": str(model.kv_heads),
            "ffn": str(model.ffn),
        }
        if "microbatches" not in given:  # from which it would follow
            values["gbs"] = str(run.workload.global_batch)
    return {column: value for column, value in values.items() if column not in given}


def _one_of(column: str, value: str, choices: Iterable[str]) -> str:
    if value not in choices:
        raise InputError(f"{column} must be {either(choices)}, not {shown(value)}.")
    return value


def format_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns with those of the format first, in its order."""
    given = tuple(columns)
    return (*(column for column in COLUMNS if column in given), *(column for column in given if column not in COLUMNS))
