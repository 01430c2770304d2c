"""The measurement table: read as it is printed, written as it was read, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, Run
from tests.strategies import tables
from tuner.core.errors import InputError, TunerWarning
from tuner.tables import COLUMNS, OPTIONAL_COLUMNS, Defaults, Row, format_columns, read_table, table_of, write_csv
from tuner.tables import reading as reading_module
from tuner.tables.column_aliases import plain, rounding_of, size_of
from tuner.tables.markdown import card_named
from tuner.tables.run import USUAL

TABLES = ROOT / "corpus"
REPORTS = ROOT / "tests/data/reports"
BLOOM = read_table(TABLES / "bloom-a100.csv")
with pytest.warns(TunerWarning, match="columns not used: 'async'"):
    PREQUEL = read_table(REPORTS / "bloom-prequel.md")
WIDE = read_table(REPORTS / "tr8-104b.md")


def only(text: str, **defaults: str) -> Row:
    """The one row of a text."""
    (row,) = table_of(text, "table.csv", Defaults(cells=defaults)).rows
    return row


def sentence_of(text: str, path: str) -> str:
    """What is said of a text that holds no table; nothing where it holds one."""
    try:
        table_of(text, path)
    except InputError as error:
        return str(error)
    return ""


@given(tables())
def test_a_table_that_is_written_reads_the_same(rows: list[dict[str, str]]) -> None:
    text = write_csv(list(rows[0]), rows)
    again = table_of(text, "drawn.csv")
    assert [dict(row.cells) for row in again.rows] == [{k: v for k, v in row.items() if v} for row in rows]
    assert write_csv(again.columns, [row.cells for row in again.rows]) == text


@given(tables(), st.randoms())
def test_columns_may_stand_in_any_order(rows: list[dict[str, str]], chance: object) -> None:
    columns = list(rows[0])
    chance.shuffle(columns)  # type: ignore[attr-defined]
    here, there = (table_of(write_csv(order, rows), "drawn.csv").rows for order in (list(rows[0]), columns))
    assert [(row.run, row.seconds, row.skipped) for row in here] == [
        (row.run, row.seconds, row.skipped) for row in there
    ]


@given(st.text(max_size=300))
def test_any_text_is_a_table_or_one_sentence(text: str) -> None:
    assert sentence_of(text, "any.txt") == "" or sentence_of(text, "any.txt").startswith("any.txt")


@given(st.lists(st.lists(st.text("|-:= #OM\n0123456789.GBxTPDLAYERS", max_size=12), max_size=8), max_size=8))
def test_any_markdown_is_a_table_or_one_sentence(cells: list[list[str]]) -> None:
    body = "\n".join("|" + "|".join(row) + "|" for row in cells)
    text = (
        f"NHIDDEN=1024 / NLAYERS=8\n\n| Nodes | TP | PP | DP | MBS | Mem | Sec/it |\n|--|--|--|--|--|--|--|\n{body}\n"
    )
    assert sentence_of(text, "any.md") == "" or sentence_of(text, "any.md").startswith("any.md")


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "framework", "partition"),
    [
        (72, 4, 1, "", "layers"),
        (70, 4, 1, "", "embedding"),
        (70, 1, 1, "", "layers"),
        (46, 4, 4, "", "embedding"),
        (64, 4, 4, "", "layers"),
        (61, 4, 1, "", "layers"),
        (61, 4, 1, "deepspeed", "layers"),
        (61, 4, 1, "megatron-core", "layout"),
        (61, 8, 2, "megatron-bridge", "layout"),
        (61, 8, 4, "megatron-bridge", "layers"),
        (62, 8, 2, "megatron-bridge", "embedding"),
        (64, 8, 2, "megatron-bridge", "layers"),
    ],
)
def test_a_row_without_a_partition_has_the_one_that_spreads_its_layers(
    layers: int, pp: int, vpp: int, framework: str, partition: str
) -> None:
    """pp x vpp equal chunks of the layers, or of the layers with embedding and head; a framework that refuses a
    remainder has laid out its stages, if the last chunk gets a layer that way."""
    row: dict[str, float | str] = {
        "framework": framework,
        "layers": layers,
        "hidden": 1024,
        "pp": pp,
        "vpp": vpp,
        "tp": 1,
        "dp": 1,
    }
    row |= {"gpus_per_node": pp, "nodes": 1, "mbs": 1, "gbs": 16, "sec_per_iter": 1.5}
    names = ",".join(row)
    (found,) = table_of(f"{names}\n{','.join(map(str, row.values()))}\n", "t.csv").rows
    assert found.run is not None
    assert found.run.topology.partition == partition


def test_unknown_columns_are_kept_and_stand_behind_those_of_the_format() -> None:
    table = table_of("weather,tp,sec_per_iter,layers,hidden\nfine,8,1.5,4,1024\n", "t.csv")
    assert table.rows[0].cells["weather"] == "fine"
    assert table.columns == ("weather", "tp", "sec_per_iter", "layers", "hidden")
    assert format_columns(table.columns) == ("layers", "hidden", "tp", "sec_per_iter", "weather")


def test_a_row_lies_in_the_nvlink_domain_of_its_gpu_or_of_its_own_column() -> None:
    def domain(cells: str, values: str, **defaults: str) -> int:
        row = only(f"layers,hidden,tp,{cells}\n4,1024,1,{values}\n", **defaults)
        assert row.run is not None
        return row.run.cluster.domain

    assert domain("gpu,gpus_per_node", "GB200-192GB,4") == 72
    assert domain("gpu,gpus_per_node", "GB200-192GB,16") == 16, "72 GPUs are no number of such nodes"
    assert domain("gpu,gpus_per_node,nvlink_domain", "GB200-192GB,4,4") == 4
    assert domain("gpu", "H100-80GB-SXM") == 8
    assert domain("gpu", "H100-80GB-SXM", nvlink_domain="32") == 32


def test_every_default_is_documented_and_taken() -> None:
    documented = reading_module.__doc__ or ""
    assert all(name in documented for name in (*COLUMNS, *OPTIONAL_COLUMNS) if name not in MAY_BE_MISSING), (
        "name the default of every column"
    )
    row = only("layers,hidden,sec_per_iter\n4,1024,1.5\n")
    assert row.run is not None
    topology, workload = row.run.topology, row.run.workload
    model = workload.model
    assert (topology.tp, topology.pp, topology.vpp, topology.cp, topology.micro_batch, topology.zero) == (
        1,
        1,
        1,
        1,
        1,
        1,
    )
    assert (topology.nodes, topology.dp, topology.sequence_parallel, topology.recompute) == (1, 1, False, "full")
    assert (row.run.cluster.gpu.name, row.run.cluster.gpus_per_node) == ("A100-80GB-SXM", 8)
    assert (model.seq, model.vocab, model.heads, model.kv_heads, model.ffn, model.gated_mlp) == (
        2048,
        51200,
        8,
        8,
        4096,
        0,
    )
    assert (workload.global_batch, workload.precision, workload.attention, workload.fused_norms) == (
        1,
        "bf16",
        "flash2",
        True,
    )
    assert (row.status, row.memory_kind, row.group) == ("OK", "smi", "table")
    assert set(USUAL) <= set(COLUMNS)


MAY_BE_MISSING = ("layers", "hidden", "sec_per_iter", "tflops", "mem_gib", "note", "source")


def test_what_the_reader_knows_stands_between_the_rows_and_the_usual() -> None:
    text = "layers,hidden,gpu,tp\n4,1024,,2\n"
    row = only(text, gpu="V100-32GB-SXM", tp="4")
    assert row.run is not None
    assert (row.run.cluster.gpu.name, row.run.topology.tp) == ("V100-32GB-SXM", 2)


def test_gpus_in_a_node_are_what_most_rows_make_of_their_nodes() -> None:
    """One misprinted degree does not hide itself by making nodes larger."""
    lines = [f"4,1024,{nodes},4,{pp},{dp}" for nodes, pp, dp in ((2, 1, 2), (4, 2, 2), (8, 4, 4))]
    table = table_of("\n".join(["layers,hidden,nodes,tp,pp,dp", *lines]) + "\n", "t.csv")
    assert [row.run.cluster.gpus_per_node for row in table.rows if row.run] == [4, 4]
    assert table.rows[2].skipped == "tp(4) x pp(4) x dp(4) = 64 GPUs, but 8 nodes of 4 have 32."


BAD_CELLS = [
    ("mbs", "two", "mbs must be a whole number of at least 1, not 'two'."),
    ("tp", "1.5", "tp must be a whole number of at least 1, not '1.5'."),
    ("sec_per_iter", "-3", "sec_per_iter must be a positive number from 1e-12 to 1e15, not '-3'."),
    ("sec_per_iter", "soon", "sec_per_iter must be a positive number from 1e-12 to 1e15, not 'soon'."),
    ("sec_per_iter", "1e-308", "sec_per_iter must be a positive number from 1e-12 to 1e15, not '1e-308'."),
    ("mem_gib", "1e99", "mem_gib must be a positive number from 1e-12 to 1e15, not '1e99'."),
    ("gpu", "A100", "there is no GPU called 'A100'"),
    ("status", "LOST", "status must be OK, OOM, FAIL or HANG, not 'LOST'."),
    ("mem_kind", "felt", "mem_kind must be smi, reserved or allocated, not 'felt'."),
    ("recompute", "some", "recompute must be none, selective or full, not 'some'."),
    ("gated_mlp", "maybe", "gated_mlp must be 0 or 1, not 'maybe'."),
    ("zero", "4", "zero must be between 0 and 3, not 4."),
    ("precision", "fp8", "A100-80GB-SXM supports fp32, fp16 and bf16, not fp8."),
]


@pytest.mark.parametrize(("column", "cell", "reason"), BAD_CELLS)
def test_a_bad_cell_skips_its_row_with_the_reason_and_no_other(column: str, cell: str, reason: str) -> None:
    cells = {"layers": "4", "hidden": "1024", "tp": "8", "mbs": "1", "sec_per_iter": "2", "mem_gib": "9"}
    good, bad = cells | {column: cells.get(column, "")}, cells | {column: cell}
    table = table_of(write_csv(list(good), [good, bad]), "t.csv")
    assert table.rows[0].skipped is None
    assert reason in (table.rows[1].skipped or "")
    assert table.rows[1].line == 3


@pytest.mark.parametrize("placeholder", ["", "-", "--", "—", "xxxx", "n/a", "GB", "?", "TBD"])
def test_what_only_holds_a_figures_place_is_no_figure(placeholder: str) -> None:
    row = only(f"layers,hidden,sec_per_iter,tflops,mem_gib\n4,1024,2.5,{placeholder},{placeholder}\n")
    assert (row.skipped, row.seconds, row.tflops, row.memory) == (None, 2.5, None, None)


@pytest.mark.parametrize("column", ["optimizer", "grad_precision", "state_precision", "loss_precision"])
def test_a_word_that_is_no_choice_is_refused_and_a_placeholder_is_not_stated(column: str) -> None:
    header = f"layers,hidden,sec_per_iter,framework,{column}\n"
    assert only(header + "4,1024,2.5,kempnerforge fsdp2,-\n").skipped is None
    reason = only(header + "4,1024,2.5,kempnerforge fsdp2,fp7\n").skipped
    assert reason is not None
    assert f"{column} must be " in reason
    assert "not 'fp7'." in reason


def test_a_figure_may_carry_its_unit() -> None:
    assert plain("mem_gib", "67GB") == plain("mem_gib", "67 GiB") == "67"
    assert plain("mem_gib", "2048 MiB") == "2"
    assert [plain(column, "n/a") for column in ("tflops", "tp", "note", "group")] == ["", "", "n/a", "n/a"]
    assert plain("sec_per_iter", "607ms") == "0.607"
    assert plain("size", "104B") == "104B"
    row = only("layers,hidden,sec_per_iter,tflops,mem_gib\n4,1024,2.5,41.5,67GB\n")
    assert (row.seconds, row.tflops, row.memory) == (2.5, 41.5e12, 67 * 2**30)
    assert (size_of("104B"), size_of("350M"), size_of("big")) == (104e9, 350e6, None)


def test_rounding_is_half_of_the_last_printed_digit() -> None:
    assert [rounding_of(text) for text in ("134.02", "29", "5e3", "0.5", "x")] == [0.005, 0.5, 500.0, 0.05, 0.0]


def test_a_marked_row_is_skipped_and_a_marked_figure_is_left_out() -> None:
    header = "layers,hidden,sec_per_iter,mem_gib,audit\n"
    row = only(header + "4,1024,2.5,30,exclude: a reprint\n")
    assert (row.skipped, row.timed, row.weighed) == ("audit: a reprint", False, False)
    row = only(header + "4,1024,2.5,30,exclude mem_gib: it falls\n")
    assert (row.skipped, row.timed, row.weighed) == (None, True, False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "contains no table with rows"),
        ("tp,pp\n", "contains no table with rows"),
        ("a,b\n1,2\n", "has none of the columns of a measurement table"),
        ("tp,tp\n1,2\n", "names its column 'tp' twice"),
        ("tp,pp\n1,2,3\n", "line 2: 3 cells under 2 columns"),
    ],
)
def test_a_file_that_is_no_table_says_so(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_table(path)


# ------------------------------------------------------------------------------------------------------ Markdown


def test_a_report_holds_the_rows_that_were_transcribed_from_it_by_hand() -> None:
    """Degrees, shape and figures, as printed; each row of the excerpt stands in the transcription."""
    columns = ("tp", "pp", "dp", "layers", "hidden", "mbs", "gbs", "sec_per_iter", "tflops", "mem_gib")

    def key(row: Row) -> tuple[float | None, ...]:
        return tuple(float(row.cells[column]) if column in row.cells else None for column in columns)

    transcribed = {key(row): row.status for row in BLOOM.rows}
    found = [row for row in PREQUEL.rows if row.run and (row.seconds or row.status != "OK")]
    assert len(found) > 55
    for row in found:
        assert transcribed[key(row)] == row.status, f"line {row.line}"


def test_what_is_stated_above_a_table_holds_for_its_rows() -> None:
    shapes = {(row.cells["hidden"], row.cells["layers"]) for row in PREQUEL.rows if "13824" in row.group}
    assert shapes == {("13824", "84"), ("13824", "80")} | {("13824", "78")} & shapes
    assert {row.cells["seq"] for row in PREQUEL.rows} == {"2048"}
    assert {row.cells["vocab"] for row in PREQUEL.rows} == {"250000"}


def test_a_rows_own_size_decides_its_layers_where_the_text_leaves_them_open() -> None:
    layers = {row.cells["size"]: row.cells["layers"] for row in PREQUEL.rows if row.group.startswith("Choosing")}
    assert layers == {"200B": "80", "194B": "78", "191B": "77", "205B": "81", "195B": "77", "183B": "72"}


def test_rows_of_other_headings_and_shapes_are_not_comparable() -> None:
    groups = {row.group for row in PREQUEL.rows}
    assert {"48 node contenders, 14336x72", "48 node contenders, 13824x84", "GBS Variations, 14336x72"} <= groups


def test_a_heading_gives_the_precision_of_what_stands_under_it() -> None:
    by_heading = {row.group.split(",")[0]: row.cells.get("precision") for row in PREQUEL.rows}
    assert (by_heading["fp16"], by_heading["bf16"], by_heading["GBS Variations"]) == ("fp16", "bf16", None)


def test_seconds_that_only_a_log_line_shows_are_found_by_its_tflops() -> None:
    row = next(row for row in PREQUEL.rows if row.cells.get("tflops") == "108.47")
    assert row.seconds == 769.99


def test_what_is_said_of_the_rows_above_too_holds_for_them() -> None:
    table = table_of(
        "NHIDDEN=1024 / NLAYERS=8\n\n| TP | Sec/it |\n|--|--|\n| 8 | 1.5 |\n\nall NHEADS=32 (above too)\n\n"
        "NHIDDEN=2048 / NLAYERS=8\n\n| TP | Sec/it |\n|--|--|\n| 8 | 2.5 |\n",
        "r.md",
    )
    assert [row.cells["heads"] for row in table.rows] == ["32", "32"]


def test_a_sentence_that_mentions_a_value_fixes_nothing() -> None:
    table = table_of(
        "NHIDDEN=1024 / NLAYERS=8\n\nNHIDDEN=999 breaks the constraints of the fused softmax kernel\n"
        "* DP=8, PP=06, MBS=4: 130.31 secs/it\n\n| TP | Sec/it |\n|--|--|\n| 8 | 1.5 |\n",
        "r.md",
    )
    assert table.rows[0].cells["hidden"] == "1024"
    assert not {"dp", "pp", "mbs"} & table.rows[0].cells.keys()


@pytest.mark.parametrize(
    ("line", "status", "memory"),
    [
        ("| 4 | OOM | | |", "OOM", None),
        ("| 4 | 31GB | | 32GB OOMs |", "OOM", None),
        ("| 4 | fail | | |", "FAIL", None),
        ("| 4 | GB | | always hangs |", "HANG", None),
        ("| 4 | 76GB | 229.69 | too close to OOM |", "OK", 76.0),
        ("| 4 | GB | 229.69 | may hang |", "OK", None),
        ("| 4 | | 256 | 31.5GB |", "OK", 31.5),
    ],
)
def test_a_rows_words_say_how_it_ended(line: str, status: str, memory: float | None) -> None:
    text = f"NHIDDEN=1024 / NLAYERS=8\n\n| TP | Mem | Speed | Notes |\n|--|--|--|--|\n{line}\n"
    (row,) = table_of(text, "r.md").rows
    assert (row.status, row.memory and row.memory / 2**30) == (status, memory)
    assert row.skipped is None


def test_a_report_names_its_card_and_its_nodes() -> None:
    assert {row.run.cluster.gpu.name for row in WIDE.rows if row.run} == {"V100-32GB-SXM"}
    assert {row.run.cluster.gpus_per_node for row in WIDE.rows if row.run} == {4}
    assert (card_named("on v100-32g nodes"), card_named("A100 80GB or H100 80GB")) == ("V100-32GB", None)


def test_a_table_that_names_no_degree_is_read_and_left_out() -> None:
    rows = [row for row in PREQUEL.rows if row.group.startswith("dealing with")]
    assert len(rows) == 8
    assert {row.skipped for row in rows} == {"neither the row nor the text around it names a parallel degree."}


TABLE = "tp,pp,mbs,sec_per_iter,note\n1,1,1,2.0,caf\N{LATIN SMALL LETTER E WITH ACUTE}\n"
WAYS = [("evaluate",), ("audit",), ("optimize", "--table"), ("optimize", "--from"), ("plan", "--calibration")]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize(
    ("stored", "where"),
    [
        (TABLE.encode("latin-1"), "byte 42 is 0xe9"),
        (TABLE.encode("utf-16"), "byte 1 is 0xff"),
        (b"\x7fELF\xd0", "byte 5 is 0xd0"),
    ],
)
def test_a_file_in_another_encoding_is_told_in_the_same_words_everywhere(
    stored: bytes, where: str, way: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(stored)
    said = run(*way, str(tmp_path / "t.csv"))
    assert said.code == 2
    assert said.err == f"tuner: '{tmp_path / 't.csv'}' is not UTF-8 text ({where}); save it as UTF-8.\n"


@pytest.mark.parametrize("kind", ["p2p", "all_gather", "a2a"])
def test_a_row_states_how_context_parallel_ranks_exchange(kind: str) -> None:
    row = only(f"layers,hidden,tp,cp,cp_comm\n4,1024,1,2,{kind.upper()}\n")
    assert row.run is not None
    assert row.run.workload.stack is not None
    assert row.run.workload.stack.cp_comm == kind


def test_an_exchange_that_is_not_modelled_is_refused_by_name() -> None:
    row = only("layers,hidden,tp,cp,cp_comm\n4,1024,1,2,a2a+p2p\n")
    assert row.run is None
    assert "cp_comm" in (row.skipped or "")
    assert "all_gather" in (row.skipped or "")
    assert "a2a+p2p" in (row.skipped or "")
