"""Names of columns, placeholders, and settings that no run can have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tables.test_tables import only
from tuner.audit import audit
from tuner.core.errors import InputError, TunerWarning
from tuner.core.offload import OFFLOAD
from tuner.core.quantity import GIB
from tuner.core.text import either
from tuner.tables import read_table, table_of, unused_columns
from tuner.tables.column_aliases import size_of
from tuner.tables.headers import headers_of
from tuner.tables.stacks import PRECISION_RECIPES


@pytest.mark.parametrize("cell", ["-", "n/a", "NaN", "xxxx"])
@pytest.mark.parametrize(
    "column", ["seq", "vocab", "precision", "recompute", "cudnn", "fused_loss", "bf16_layers", "cuda_graph", "status"]
)
def test_a_placeholder_is_an_empty_cell_in_every_column(column: str, cell: str) -> None:
    stated, empty = (only(f"layers,hidden,sec_per_iter,{column}\n4,1024,2.5,{each}\n") for each in (cell, ""))
    assert (stated.skipped, stated.run) == (None, empty.run)


def test_a_csv_file_may_have_the_names_of_a_report() -> None:
    printed = (
        "| Layers | Hidden size | Micro batch | DP | Sec/it |\n|---|---|---|---|---|\n| 4 | 1024 | 7 | 2 | 0.3 |\n"
    )
    (report,) = table_of(printed, "one.md").rows
    row = only("Layers,Hidden size,Micro batch,DP,Sec/it\n4,1024,7,2,0.3\n")
    assert row.run is not None
    assert (row.seconds, row.run.topology.micro_batch, row.run.topology.dp) == (0.3, 7, 2)
    assert report.run is not None
    assert row.run.topology == report.run.topology


def test_an_exact_name_counts_before_another_for_the_same_column() -> None:
    assert only("layers,hidden,sec_per_iter,speed\n4,1024,2.5,99\n").seconds == 2.5
    (report,) = table_of(
        "| layers | tp | sec_per_iter | speed |\n|---|---|---|---|\n| 4 | 1 | 2.5 | 99 |\n", "t.md"
    ).rows
    assert report.seconds == 2.5
    assert only("layers,hidden,speed,Sec/it\n4,1024,2.5,99\n").seconds == 2.5
    with pytest.raises(InputError, match="names its column 'sec_per_iter' twice"):
        table_of("layers,hidden,Sec_per_iter,sec_per_iter\n4,1024,2.5,3\n", "one.csv")


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("bf16_layers=3 3,precision=fp8,gpu=H100-80GB-SXM", "bf16_layers names 6 layers, but the model has 4."),
        (
            "precision_recipe=foo,precision=fp8,gpu=H100-80GB-SXM",
            f"precision_recipe must be {either(PRECISION_RECIPES)}, not 'foo'.",
        ),
        ("offload=banana", f"offload must be {either(OFFLOAD)}, or a multiple of 0.25 up to 1, not 'banana'."),
        ("offload=0.3", f"offload must be {either(OFFLOAD)}, or a multiple of 0.25 up to 1, not '0.3'."),
    ],
)
def test_settings_that_no_run_can_have_are_refused(cells: str, why: str) -> None:
    columns, values = zip(*(each.split("=") for each in cells.split(",")), strict=True)
    row = only(f"layers,hidden,sec_per_iter,{','.join(columns)}\n4,1024,2.5,{','.join(values)}\n")
    assert row.skipped is not None
    assert row.skipped == why


@pytest.mark.parametrize(
    ("header", "cell", "seconds"),
    [
        ("Iter time (ms)", "2500", 2.5),
        ("Iter time [ms]", "2500", 2.5),
        ("iter_time_ms", "2500", 2.5),
        ("Sec/it (ms)", "2.5e3", 2.5),
        ("Sec/it (ms)", "2.5 s", 2.5),
        ("Sec/it (avg)", "2.5", 2.5),
        ("Speed (s/it)", "2.5", 2.5),
        ("sec_per_iter (s)", "2.5", 2.5),
        ("Step time (ms, avg)", "2500", 2.5),
        ("Step time (avg, ms)", "2500", 2.5),
        ("Step time (mean ms)", "2500", 2.5),
        ("Step time (in ms)", "2500", 2.5),
        ("Step time (min ms)", "2500", 2.5),
        ("Step time (unit: ms)", "2500", 2.5),
        ("Step time (ms \u00b1 std)", "2500", 2.5),
        ("Step time (ms +/- std)", "2500", 2.5),
        ("Step time (ms per step; lower is better)", "2500", 2.5),
        ("Step time (ms, b = 4)", "2500", 2.5),
        ("Step time (ms) [avg]", "2500", 2.5),
        ("step_time_ms (avg)", "2500", 2.5),
        ("Step time (s, 95% CI)", "2.5", 2.5),
        ("Step time (s, min of 10)", "2.5", 2.5),
        ("Step time (mean of 10)", "2.5", 2.5),
    ],
)
def test_the_unit_in_a_header_applies_to_bare_numbers(header: str, cell: str, seconds: float) -> None:
    assert only(f'layers,hidden,tp,"{header}"\n4,1024,1,{cell}\n').seconds == pytest.approx(seconds)
    (row,) = table_of(f"| layers | tp | {header} |\n|---|---|---|\n| 4 | 1 | {cell} |\n", "t.md").rows
    assert row.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "header",
    [
        *("Memory (MiB)", "mem (MB)", "mem_mib", "Peak memory [MiB per GPU]"),
        *("Memory (max MiB)", "Memory (MB peak)", "mem_mib (max)", "Memory (MB/GPU; peak)"),
    ],
)
def test_memory_in_mebibytes_is_read_as_such(header: str) -> None:
    assert only(f"layers,hidden,sec_per_iter,{header}\n4,1024,2.5,51200\n").memory == 50 * GIB


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (
            "Iter time (h)",
            "column 'Iter time (h)' is not used: 'h' is not a unit of sec_per_iter, such as s or ms.",
        ),
        (
            "Iter time (min)",
            "column 'Iter time (min)' is not used: 'min' is not a unit of sec_per_iter, such as s or ms.",
        ),
        ("Memory (%)", "column 'Memory (%)' is not used: '%' is not a unit of mem_gib, such as GiB or MiB."),
        (
            "Speed (tokens/s)",
            "column 'Speed (tokens/s)' is not used: 'tokens/s' is not a unit of sec_per_iter, such as s or ms.",
        ),
        ("gbs (tokens)", "column 'gbs (tokens)' is not used: 'tokens' is not a unit of gbs."),
        ("Seq (k)", "column 'Seq (k)' is not used: 'k' is not a unit of seq."),
        *(
            (f"{name} ({stated})", f"column '{name} ({stated})' is not used: '{stated}' is not a unit of {column}")
            for name, stated, column in (
                ("memory", "% of 80GB", "mem_gib"),
                ("Step time", "avg h", "sec_per_iter"),
                ("Step time", "ms; s", "sec_per_iter"),
                ("Step time", "min of 10", "sec_per_iter"),
                ("Speed", "samples/s avg", "sec_per_iter"),
                ("Speed", "samples per second; avg", "sec_per_iter"),
                ("gbs", "k samples", "gbs"),
                ("Size", "GB total", "size"),
            )
        ),
        ("tflops_s", "column 'tflops_s' is not used: 's' is not a unit of tflops, such as TFLOP/s."),
        ("speed_tflops", "column 'speed_tflops' is not used: 'tflops' is not a unit of sec_per_iter, such as s or ms."),
        ("step_time_gb", "column 'step_time_gb' is not used: 'gb' is not a unit of sec_per_iter, such as s or ms."),
    ],
)
def test_a_column_in_another_unit_is_refused_by_name(header: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"layers,hidden,tp,{header}\n4,1024,1,4\n", encoding="utf-8")
    with pytest.warns(TunerWarning, match=re.escape(f"t.csv: {why}")):
        (row,) = read_table(file).rows
    assert (row.seconds, row.memory, row.understood["seq"]) == (None, None, "2048")


@pytest.mark.parametrize(
    ("header", "cell"),
    [
        *(
            ("Params (billions)", "1.3"),
            ("Size (billion)", "1.3"),
            ("Size (in B)", "1.3"),
            ("Params (B; total)", "1.3"),
        ),
        *(("Params (millions)", "1300"), ("size", "1.3B"), ("Size (million)", "1.3B")),
    ],
)
def test_a_size_is_the_parameters_in_billions(header: str, cell: str) -> None:
    (header_read,) = headers_of([header])
    assert header_read.column == "size"
    assert size_of(header_read.cell(cell)) == 1.3e9


@pytest.mark.parametrize(
    "header", ["Hidden size (h)", "hidden [model width]", "hidden (s)", "hidden (k)", "hidden (of 80 GB cards)"]
)
def test_a_remark_in_brackets_is_no_unit(header: str) -> None:
    row = only(f"layers,{header},sec_per_iter\n4,1024,2.5\n")
    assert row.run is not None
    assert row.run.workload.model.hidden == 1024


@pytest.mark.parametrize(
    ("header", "column", "cell"),
    [
        ("context_length", "seq", "8192"),
        ("dtype", "precision", "bf16"),
        ("swiglu", "gated_mlp", "1"),
        ("num_key_value_heads", "kv_heads", "2"),
        ("num_query_groups", "kv_heads", "2"),
        ("intermediate_size", "ffn", "4000"),
        ("context_parallel", "cp", "2"),
        ("GPU type", "gpu", "H100-80GB-SXM"),
        ("device", "gpu", "H100-80GB-SXM"),
        ("num_hidden_layers", "layers", "8"),
        ("tensor_model_parallel_size", "tp", "2"),
        ("virtual_pipeline_model_parallel_size", "vpp", "2"),
        ("activation_checkpointing", "recompute", "none"),
        ("stack", "framework", "megatron-core"),
        ("step_time", "sec_per_iter", "3"),
        ("seconds", "sec_per_iter", "3"),
    ],
)
def test_names_of_other_programs_are_read(header: str, column: str, cell: str) -> None:
    others = {"layers": "4", "hidden": "1024", "heads": "8", "mbs": "1"}
    others.pop(column, None)
    before, values = ",".join(others), ",".join(others.values())
    other, named = (only(f"{before},{name}\n{values},{cell}\n") for name in (column, header))
    assert named.understood == other.understood
    assert named.run == other.run
    assert column in named.cells


@pytest.mark.parametrize(
    ("column", "cell", "word"),
    [("dtype", "torch.bfloat16", "bf16"), ("precision", "float16", "fp16"), ("gradient_checkpointing", "true", "full")],
)
def test_other_words_for_a_value_are_read(column: str, cell: str, word: str) -> None:
    assert word in only(f"layers,hidden,sec_per_iter,{column}\n4,1024,2.5,{cell}\n").understood.values()


def test_columns_that_are_not_used_are_named_once(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("layers,hidden,tp,colour,note,url,speed_of_light\n4,1024,1,a,b,c,d\n4,1024,2,a,b,c,d\n")
    with pytest.warns(TunerWarning, match=r"^t.csv: columns not used: 'colour' and 'speed_of_light'\.$") as warned:
        table = read_table(file)
    assert len(warned) == 1
    assert unused_columns(table) == ("colour", "speed_of_light")
    with pytest.warns(TunerWarning, match="columns not used: 'speed_of_light'"):
        read_table(file, period_column="colour")


def test_defaults_that_decide_the_estimate_are_listed() -> None:
    taken = {"gpu": "A100-80GB-SXM", "seq": "2048", "precision": "bf16", "kv_heads": "8", "ffn": "4096"}
    assert only("layers,hidden,heads,sec_per_iter\n4,1024,8,2.5\n").assumed.items() >= taken.items()
    stated = only(f"layers,hidden,heads,sec_per_iter,{','.join(taken)}\n4,1024,8,2.5,{','.join(taken.values())}\n")
    assert not stated.assumed.keys() & taken.keys()


@pytest.mark.parametrize("cell", ["13,5 s", "13,5", "1,35e1 s", "1234,567 s", "1,2345 s"])
def test_a_decimal_comma_is_refused(cell: str) -> None:
    row = only(f'layers,hidden,tp,sec_per_iter\n4,1024,1,"{cell}"\n')
    assert row.run is None
    assert row.skipped == f"sec_per_iter must be a positive number from 1e-12 to 1e15, not {cell!r}."


def test_commas_between_thousands_are_read() -> None:
    assert only('layers,hidden,tp,sec_per_iter\n4,1024,1,"13,500 ms"\n').seconds == 13.5
    assert only('layers,hidden,tp,mem_gib\n4,1024,1,"51,200 MiB"\n').memory == 50 * GIB


@pytest.mark.parametrize(
    ("column", "cell", "word"),
    [
        ("note", "LoRA rank 16", "LoRA"),
        ("group", "llama2_70b_lora-H100", "lora"),
        ("source", "runs/peft/7.log", "peft"),
        ("model", "llama2-70b-qlora", "qlora"),
        ("note", "lora_rank=16", "lora"),
        ("note", "LoRA: 4 instead of 6 FLOPs", "LoRA"),
        ("note", "LoRA vs. full", "LoRA"),
        ("note", "LoRA 0.1 dropout", "LoRA"),
        ("note", "LoRA no-flash", "LoRA"),
        ("model", "lora_0", "lora"),
        ("lora", "1", "lora"),
        ("lora_rank", "16", "lora"),
        ("LoRA rank", "16", "lora"),
        ("peft", "lora", "peft"),
        *(("lora", cell, None) for cell in ("", "0", "no", "None", "off", "false", "-", "no LoRA")),
        *(
            ("peft", "none", None),
            ("lora_rank", "0", None),
            ("q_lora_rank", "1536", None),
            ("kv_lora_rank", "512", None),
        ),
        *(
            ("note", note, None)
            for note in (
                *("non-LoRA run", "LoRA: no", "lora=0", "lora off", "peft=none", "lora_rank=0", "LoRA disabled"),
                *("no-lora", "no  LoRA", "no PEFT or LoRA", "vs. LoRA", "versus LoRA", "without LoRA", "w/o LoRA"),
                *("4 InfiniBand adapters", "ConnectX-7 adapter", "NIC/RDMA/EFA adapter", "one network adapter a GPU"),
                *("q_lora_rank 1536", "kv_lora_rank=512", "explorative", "'lora': false", "not a LoRA run"),
            )
        ),
        ("model", "Llama-Adapter", None),
        ("source", "https://github.com/huggingface/peft", None),
    ],
)
def test_training_of_adapters_is_skipped(column: str, cell: str, word: str | None) -> None:
    row = only(f"layers,hidden,sec_per_iter,{column}\n4,1024,2.5,{cell}\n")
    assert row.skipped == (f"it trains adapters ({word}), which the cost model does not describe." if word else None)
    assert row.timed == (word is None)


def test_the_columns_of_adapter_training_are_read_without_a_warning() -> None:
    table = table_of(
        "layers,hidden,tp,lora,LoRA rank,peft,model\n4,1024,1,0,0,none,a\n4,1024,1,0,0,none,a-lora\n", "t.csv"
    )
    assert unused_columns(table) == ()
    assert [row.skipped is None for row in table.rows] == [True, False]  # a cell negates no other cell


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("sec_per_iter", "13.5 s/iter", "13.5"),
        ("sec_per_iter", "13500 msec", "13.5"),
        ("tflops", "550 TFLOP/s/GPU", "550"),
        ("mem_gib", "50 GiB/GPU", "50"),
        ("status", "COMPLETED", "OK"),
        ("status", "CUDA OOM", "OOM"),
        ("status", "OUT_OF_MEMORY", "OOM"),
        ("status", "Failed", "FAIL"),
    ],
)
def test_common_spellings_of_cells_are_read(column: str, cell: str, value: str) -> None:
    assert only(f"layers,hidden,tp,{column}\n4,1024,1,{cell}\n").understood[column] == value


@pytest.mark.parametrize(("cell", "status"), [("OOM", "OOM"), ("CUDA out of memory", "OOM"), ("failed", "FAIL")])
@pytest.mark.parametrize("column", ["sec_per_iter", "tflops", "mem_gib", "Iter time (ms)"])
def test_an_outcome_in_place_of_a_figure_is_the_status(column: str, cell: str, status: str) -> None:
    row = only(f"layers,hidden,tp,{column}\n4,1024,1,{cell}\n")
    assert (row.status, row.seconds, row.tflops, row.memory, row.skipped) == (status, None, None, None, None)


def test_an_outcome_that_contradicts_the_status_is_refused() -> None:
    assert only("layers,hidden,tp,sec_per_iter,status\n4,1024,1,OOM,oom\n").status == "OOM"
    refused = only("layers,hidden,tp,sec_per_iter,status\n4,1024,1,OOM,OK\n").skipped
    assert refused == "sec_per_iter must be a positive number from 1e-12 to 1e15, not 'OOM'."


@pytest.mark.parametrize(
    ("header", "cell", "seconds"),
    [
        ("sec_per_iter", "13,5", 13.5),
        ("sec_per_iter", "1.234,5", 1234.5),
        ("sec_per_iter", "13,5 s", 13.5),
        ("sec_per_iter", "13.5", 13.5),
        ("Iter time (ms)", "13500,5", 13.5005),
    ],
)
def test_beside_semicolons_a_comma_is_a_decimal_comma(header: str, cell: str, seconds: float) -> None:
    row = only(f"layers;hidden;tp;bf16_layers;precision;gpu;note;{header}\n4;1024;1;1,2;fp8;H100-80GB-SXM;1,5;{cell}\n")
    assert row.seconds == pytest.approx(seconds)
    assert row.cells["note"] == "1,5"
    assert row.run is not None
    assert row.run.workload.stack is not None
    assert row.run.workload.stack.bf16_layers == (1, 2)
    assert only(f'layers,hidden,tp,{header}\n4,1024,1,"13,5"\n').skipped


def test_sequence_parallelism_may_be_on_or_off() -> None:
    on, off = (only(f"layers,hidden,tp,sequence_parallel\n4,1024,2,{word}\n").run for word in ("on", "Off"))
    assert on is not None
    assert off is not None
    assert (on.topology.sequence_parallel, off.topology.sequence_parallel) == (True, False)


@pytest.mark.parametrize(
    ("precision", "stated", "expected"),
    [
        ("mxfp8", "", ("fp8", "mxfp8")),
        ("fp8-cs", "", ("fp8", "tensorwise")),
        ("NVFP4", "", ("fp4", "nvfp4")),
        ("mxfp8", "blockwise", ("fp8", "blockwise")),
    ],
)
def test_a_recipe_may_stand_for_the_precision(precision: str, stated: str, expected: tuple[str, str]) -> None:
    row = only(f"layers,hidden,tp,gpu,precision,precision_recipe\n4,1024,1,GB200-192GB,{precision},{stated}\n")
    assert row.run is not None, row.skipped
    assert (row.run.workload.precision, row.run.workload.precision_recipe) == expected


def test_memory_far_beyond_the_card_is_skipped_and_audited() -> None:
    table = table_of("layers,hidden,tp,gpu,mem_gib\n4,1024,1,A100-80GB-SXM,51200\n4,1024,1,A100-80GB-SXM,81\n", "t.csv")
    assert [row.skipped for row in table.rows] == [
        "mem_gib is 51200, but A100-80GB-SXM has 80 GiB; check its unit.",
        None,
    ]
    assert [found.message for found in audit(table) if found.row == 0 and found.check == "memory"] == [
        "51200 GiB on a GPU with 80: the unit is MiB"
    ]


@pytest.mark.parametrize("name", ["flash3", "FA3", "cuDNN", "sdpa", "flash"])
def test_a_fused_attention_kernel_of_any_name_is_the_frameworks(name: str) -> None:
    cells = "layers,hidden,heads,ffn,vocab,gpu,nodes,tp,pp,mbs,gbs,framework,attention,sec_per_iter\n"
    row = f"32,4096,32,14336,128256,H100-80GB-SXM,1,1,1,1,64,megatron-core,{name},9.5\n"
    (read,) = table_of(cells + row, "t.csv").rows
    assert read.skipped is None
    assert read.run is not None
    assert read.run.workload.attention == "flash2"
