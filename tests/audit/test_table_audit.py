"""The audit: what cannot be true is found, by laws that know no table, and what is true is left in peace."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, Run
from tests.strategies import tables
from tuner.audit import STAGES, Finding, audit, fixed, period_labels
from tuner.audit.evidence import units_of
from tuner.audit.expectation import expected_seconds
from tuner.audit.flop_conventions import CONVENTIONS, NEWEST, OLDER
from tuner.audit.formulas import formulas_in
from tuner.audit.printed_row import PrintedRow, printed_rows
from tuner.tables import Table, read_table, table_of, write_csv

TABLES = ROOT / "corpus"
BLOOM = read_table(TABLES / "bloom-a100.csv")
FOUND = audit(BLOOM)
WIDE = read_table(ROOT / "tests/data/reports/tr8-104b.md")
CLEAN = ["enoki-h100", "e1-400m-ada", "megatron-2021-a100"]


def lines(check: str, found: tuple[Finding, ...] = FOUND) -> set[str]:
    """The lines of the report that findings of one check are about, as the rows' notes name them."""
    rows = [finding.row for finding in found if finding.check == check]
    return {BLOOM.rows[row].cells["note"].removeprefix("line ") for row in rows if row is not None}


def of_line(line: str, check: str) -> Finding:
    """The finding of one check about one line of the report."""
    (finding,) = [
        finding
        for finding in FOUND
        if finding.check == check
        and finding.row is not None
        and BLOOM.rows[finding.row].cells["note"] == f"line {line}"
    ]
    return finding


def cells(finding: Finding) -> dict[str, str]:
    """The new cells of a finding's one repair."""
    (repair,) = finding.repairs
    return dict(repair.cells)


# --------------------------------------------------------------------------------------------- the BLOOM report


def test_a_degree_beyond_the_gpus_is_found_and_corrected_by_the_tflops() -> None:
    assert lines("degrees") == {"319"}
    assert cells(of_line("319", "degrees")) == {"dp": "4"}
    assert (
        "= 640 GPUs, but 40 nodes of 8 have 320; its TFLOPs and seconds are for 320"
        in of_line("319", "degrees").message
    )


def test_exchanged_seconds_and_tflops_are_found_by_comparing_twins() -> None:
    """Their product is the same, so no count of operations can see it; of the two, the others speak for one."""
    assert lines("swapped") == {"340"}
    assert cells(of_line("340", "swapped")) == {"sec_per_iter": "134.02", "tflops": "120.29"}


def test_one_row_by_the_older_formula_is_named_and_recomputed() -> None:
    assert cells(of_line("341", "tflops")) == {"tflops": "117.38"}
    assert "the older Megatron-DeepSpeed formula" in of_line("341", "tflops").message


def test_whole_groups_by_the_older_formula_are_told_once() -> None:
    (finding,) = [finding for finding in FOUND if finding.check == "older-unit"]
    assert (finding.row, finding.severity, len(finding.rows), len(finding.repairs)) == (None, "warning", 39, 39)
    assert re.search(r"39 rows \([^,;]+(; [^,;]+){3}; 4 more\) follow", finding.message)


@pytest.mark.parametrize("line", ["329", "330", "331"])
def test_a_batch_that_the_figures_deny_is_replaced_by_the_one_that_they_imply(line: str) -> None:
    assert cells(of_line(line, "tflops")) == {"gbs": "512"}


def test_time_per_sample_that_disagrees_between_batches_is_found() -> None:
    assert lines("batch-time") == {"447"}
    assert of_line("447", "batch-time").repairs[0].exclude


def test_identical_topologies_with_different_memory_are_found() -> None:
    assert lines("memory-twins") == {"475"}
    assert "but line 94, the same run, has 44" in of_line("475", "memory-twins").message


def test_memory_that_falls_with_the_micro_batch_is_found_by_row() -> None:
    assert lines("memory-falls") == {"305"}
    assert of_line("305", "memory-falls").repairs[0].exclude_column == "mem_gib"


def test_reprints_are_found_also_under_another_day() -> None:
    reprinted = {"168", "169", "170", "171", "179", "188", "197", "206", "253", "410", "422", "431"}
    assert lines("reprint") == reprinted


def test_nothing_else_is_found_but_two_runs_that_differ_and_the_faster_day() -> None:
    rest = [f for f in FOUND if f.severity == "advice"]
    assert [finding.check for finding in rest] == ["repeat", "speed-period"]
    assert len(FOUND) == 24


def test_a_day_on_which_the_whole_machine_was_faster_is_an_era() -> None:
    labels = period_labels(BLOOM.rows)
    assert set(labels) == {"02-17", "02-25"}
    assert {row.index for row, era in zip(BLOOM.rows, labels, strict=True) if era == "02-25"} == {
        row.index for row in BLOOM.rows if "02-25" in row.group
    }
    (finding,) = [finding for finding in FOUND if finding.check == "speed-period"]
    assert "took 3.9 to 6.1% less time on 02-25: a factor of 0.946" in finding.message


def test_days_that_no_run_tells_apart_are_one_era() -> None:
    rows = [row for row in BLOOM.rows if "02-25" not in row.group]
    assert len(set(period_labels(rows))) == 1
    assert period_labels([]) == ()


# ------------------------------------------------------------------------------------------------ the 104B report


def test_a_formula_with_another_sequence_and_batch_is_found_and_corrected() -> None:
    found = [finding for finding in audit(WIDE) if finding.check == "formula"]
    assert [finding.line for finding in found] == [19, 20, 35, 36]
    assert "batch 1048 where 1024 is stated and sequence 1024 where 2048 is stated" in found[0].message
    assert [cells(finding)["tflops"] for finding in found] == ["53.25", "43.97", "46.52", "45.29"]


def test_a_section_that_says_that_it_ran_another_model_is_left_out() -> None:
    (finding,) = [finding for finding in audit(WIDE) if finding.check == "other-model"]
    assert finding.rows == (0, 1, 2, 3)
    assert all(repair.exclude for repair in finding.repairs)
    assert "ffn of about 21,723 makes 58B" in finding.suggestion
    assert "586 s (line 35), but the same run takes 688 s in line" in finding.message


def test_a_correction_at_the_end_of_a_section_is_about_that_section(tmp_path: Path) -> None:
    """Although the next section's rows are of a model of the size that it names."""
    columns = "| Nodes | TP | PP | DP | MBS | GBS | Mem | Sec/it |"
    table = f"{columns}\n|--|--|--|--|--|--|--|--|\n| 1 | 8 | 1 | 1 | 1 | 8 | 20GB | 3 |"
    text = (
        f"## First\n\nNHIDDEN=4096 / NLAYERS=32\n\n{table}\n\nThis was actually a 13B model.\n"
        f"## Second\n\nNHIDDEN=5120 / NLAYERS=40\n\n{table}\n"
    )
    (tmp_path / "report.md").write_text(text)
    found = [finding for finding in audit(read_table(tmp_path / "report.md")) if finding.check == "other-model"]
    assert [(finding.line, finding.rows) for finding in found] == [(9, (0,))]


def test_a_table_without_its_report_still_shows_the_halved_sequence() -> None:
    """By the count alone: the group's unit makes these four rows half of what they print."""
    found = [finding for finding in audit(read_table(TABLES / "tr8-104b-v100.csv")) if finding.check == "tflops"]
    assert [finding.row for finding in found] == [0, 1, 2, 3]
    assert all("computed with sequence 1024 instead of 2048" in finding.message for finding in found)


def test_a_value_stated_above_a_table_that_no_row_has_is_found() -> None:
    found = audit(table_of((ROOT / "tests/data/reports/bloom-prequel.md").read_text(), "bloom-prequel.md"))
    (finding,) = [finding for finding in found if finding.check == "stated-value"]
    assert "states gbs 512, but all rows of the table below have 2048" in finding.message


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("perl -le '$n=32*4; print 104*4*2*1024*1048 / ( 256 * $n * 1e3)'", 27.2480),
        ('python -c "print(6*2*3/(4*1))"', 9.0),
        ("echo $((2 * 3 / 4))", 1.5),
    ],
)
def test_arithmetic_that_a_report_shows_is_understood(line: str, result: float) -> None:
    (formula,) = formulas_in((line,))
    assert formula.result == pytest.approx(result, rel=1e-4)
    assert math.prod(f.value for f in formula.above) / math.prod(f.value for f in formula.below) == pytest.approx(
        result, rel=1e-4
    )


@given(st.text("print $nx=*/()0123456789.e;'\"+-_", max_size=60))
def test_no_text_that_looks_like_arithmetic_is_run_or_raises(text: str) -> None:
    for formula in formulas_in((f"perl -e '{text}'", f"print {text}")):
        assert isinstance(formula.result, float)


# ------------------------------------------------------------------------------------------ laws, on sound tables


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert audit(read_table(TABLES / f"{name}.csv")) == ()


def changed(name: str, place: int, **new: str) -> tuple[Finding, ...]:
    """What is found about one row of a table, once some of its cells are changed."""
    table = read_table(TABLES / f"{name}.csv")
    rows = [dict(row.cells) for row in table.rows]
    rows[place] |= new
    found = audit(table_of(write_csv(table.columns, rows), name))
    before = {(finding.row, finding.check) for finding in audit(table)}
    return tuple(f for f in found if place in (f.row, *f.rows) and (f.row, f.check) not in before)


MISTAKES = [
    ("megatron-2021-a100", 4, {"dp": "64"}, "degrees", {"dp": "32"}),
    ("megatron-2021-a100", 4, {"gbs": "3072"}, "tflops", {"gbs": "1536"}),
    ("megatron-2021-a100", 4, {"sec_per_iter": "14453"}, "milliseconds", {"sec_per_iter": "14.453"}),
    ("megatron-2021-a100", 4, {"tflops": "70656"}, "tflops", {"tflops": "138"}),
    ("megatron-2021-a100", 6, {"sec_per_iter": "148", "tflops": "24.817"}, "swapped", {"sec_per_iter": "24.817"}),
    ("bloom-a100", 46, {"tflops": "112.45"}, "tflops", {"tflops": "121.45"}),
    ("bloom-a100", 39, {"tflops": "112.49", "mem_gib": "29696"}, "memory", {"mem_gib": "29"}),
    ("bloom-a100", 39, {"mem_gib": "290"}, "memory", {}),
    ("bloom-a100", 39, {"mem_gib": "6"}, "memory", {}),
    ("bloom-a100", 39, {"sec_per_iter": "fast"}, "cells", {}),
    ("bloom-a100", 39, {"gbs": "2047"}, "batch", {}),
    ("bloom-a100", 39, {"heads": "60"}, "heads", {}),
    ("bloom-a100", 41, {"status": "OOM", "sec_per_iter": "", "tflops": "", "mem_gib": ""}, "oom-fits", {}),
    ("bloom-a100", 39, {"status": "OOM"}, "status", {}),
    ("bloom-a100", 41, {"zero": "0", "mem_gib": "24"}, "memory", {}),
    ("enoki-h100", 3, {"sec_per_iter": "607"}, "milliseconds", {"sec_per_iter": "0.607"}),
    ("enoki-h100", 3, {"sec_per_iter": "0.0607"}, "peak", {}),
    ("e1-400m-ada", 4, {"mem_gib": "33.9"}, "memory-line", {}),
    ("e1-400m-ada", 4, {"mem_gib": "12.9"}, "memory-falls", {}),
]


@pytest.mark.parametrize(("name", "place", "new", "check", "repair"), MISTAKES)
def test_a_mistake_put_into_a_sound_row_is_found_by_its_law(
    name: str, place: int, new: dict[str, str], check: str, repair: dict[str, str]
) -> None:
    found = [finding for finding in changed(name, place, **new) if finding.check == check]
    assert found, changed(name, place, **new)
    if repair:
        assert repair.items() <= cells(found[0]).items()


@pytest.mark.parametrize("count", [1, 3, 12, 20])
def test_any_number_of_times_in_milliseconds_is_repaired(count: int) -> None:
    """The other rows of a table neither hide them nor have their TFLOPs changed."""
    rows = [dict(row.cells) for row in BLOOM.rows if "-02-25-" in row.group and row.seconds]

    def repaired(rows: list[dict[str, str]]) -> list[tuple[float, str]]:
        table = table_of(write_csv(BLOOM.columns, rows), "t.csv")
        cells = [row.cells for row in table_of(fixed(table, audit(table)), "t.csv").rows]
        return [(float(row["sec_per_iter"]), row["tflops"]) for row in cells]

    slow = [row | {"sec_per_iter": f"{float(row['sec_per_iter']) * 1000:g}"} for row in rows[:count]]
    assert repaired(slow + rows[count:]) == repaired(rows)


def test_tensor_parallelism_across_nodes_is_advice_and_no_error() -> None:
    text = "layers,hidden,gpus_per_node,nodes,tp,sec_per_iter\n8,4096,4,2,8,2.5\n"
    (finding,) = audit(table_of(text, "t.csv"))
    assert (finding.check, finding.severity, finding.repairs) == ("node", "advice", ())


def test_idle_gpus_are_believed_where_the_tflops_confirm_them() -> None:
    """Ten GPUs of sixteen, and figures that belong to ten."""
    row = dict(BLOOM.rows[0].cells) | {"nodes": "2", "dp": "1"}
    rows = [dict(other.cells) for other in BLOOM.rows[:6]]
    found = audit(table_of(write_csv(BLOOM.columns, [row, *rows[1:]]), "t.csv"))
    assert not [finding for finding in found if finding.check == "degrees"]


@given(st.sampled_from(range(len(CONVENTIONS))), st.floats(0.97, 1.03), st.integers(0, 2))
def test_any_known_way_to_count_is_accepted_for_a_whole_table(number: int, factor: float, digits: int) -> None:
    """Also with a constant factor near one, and with figures rounded to whole TFLOPs."""
    cases = printed_rows(BLOOM.rows[39:48])
    rows = []
    for case in cases.values():
        assert case.row.seconds
        rate = CONVENTIONS[number].count(case.terms) / case.gpus / case.row.seconds * factor
        rows.append({**case.row.cells, "tflops": f"{rate / 1e12:.{digits}f}"})
    found = audit(table_of(write_csv(BLOOM.columns, rows), "t.csv"))
    assert not [finding for finding in found if finding.check == "tflops"]


def test_a_groups_unit_is_what_most_of_its_rows_follow() -> None:
    units = units_of(printed_rows(BLOOM.rows))
    assert {unit.convention for unit in units.values()} == {NEWEST, OLDER}
    assert {unit.factor for unit in units.values()} == {0.0}


def test_rounded_figures_are_allowed_what_rounding_took() -> None:
    row = replace(BLOOM.rows[39], cells={**BLOOM.rows[39].cells, "tflops": "112", "sec_per_iter": "143"})
    assert row.run is not None
    case = PrintedRow(row=row, run=row.run)
    assert case.rate_rounding == pytest.approx(0.5 / 112 + 0.5 / 143)


def test_a_row_is_expected_to_take_what_its_neighbours_take_for_each_operation() -> None:
    cases = printed_rows(BLOOM.rows)
    expected = expected_seconds(cases)
    errors = [abs(math.log((cases[i].row.seconds or 1) / e.seconds)) for i, e in expected.items() if e.neighbours >= 4]
    assert sorted(errors)[len(errors) // 2] < 0.05
    assert expected_seconds({}) == {}


@given(tables())
def test_any_table_is_audited_and_its_fix_can_be_read_again(rows: list[dict[str, str]]) -> None:
    table = table_of(write_csv(list(rows[0]), rows), "drawn.csv")
    found = audit(table)
    assert all(finding.row is None or 0 <= finding.row < len(table.rows) for finding in found)
    again = table_of(fixed(table, found), "fixed.csv")
    assert len(again.rows) == len(table.rows)


def test_every_check_states_its_law() -> None:
    assert all(check.__doc__ for stage in STAGES for check in stage)


# --------------------------------------------------------------------------------------------------------- --fix


def repaired(table: Table) -> Table:
    """The table as `--fix` writes it, read again."""
    return table_of(fixed(table, audit(table)), table.name)


def test_the_repaired_table_has_a_note_in_each_touched_row_and_in_no_other() -> None:
    touched = {repair.row for finding in FOUND for repair in finding.repairs}
    for before, after in zip(BLOOM.rows, repaired(BLOOM).rows, strict=True):
        assert ("audit: " in after.cells["note"]) == (before.index in touched)
        assert before.index in touched or before.cells == after.cells


def test_repairs_are_made_and_what_has_none_is_marked_and_skipped() -> None:
    by_line = {row.cells["note"].split(";")[0]: row for row in repaired(BLOOM).rows}
    assert by_line["line 319"].cells["dp"] == "4"
    assert by_line["line 319"].cells["note"] == "line 319; audit: dp 8 -> 4 (degrees)"
    assert by_line["line 340"].seconds == 134.02
    assert by_line["line 329"].cells["gbs"] == "512"
    assert by_line["line 447"].skipped == "audit: its time per sample contradicts other batches of the same topology"
    assert by_line["line 431"].skipped == "audit: a reprint of line 65"
    assert (by_line["line 305"].timed, by_line["line 305"].weighed) == (True, False)


@pytest.mark.parametrize("name", ["bloom-a100", "tr8-104b-v100", *CLEAN])
def test_a_repaired_table_holds_no_errors_any_more(name: str) -> None:
    table = read_table(TABLES / f"{name}.csv")
    assert not [finding for finding in audit(repaired(table)) if finding.severity == "error"]


# --------------------------------------------------------------------------------------------------- the command


def test_audit_keeps_its_json_contract(run: Run) -> None:
    document = json.loads(run("audit", str(TABLES / "bloom-a100.csv"), "--json").out)
    assert document["schema"] == "tuner/audit/1"
    assert {"row", "line", "check", "severity", "message", "suggestion", "rows"} <= set(document["findings"][0])
    assert {finding["severity"] for finding in document["findings"]} == {"error", "warning", "advice"}
    assert {type(finding["row"]) for finding in document["findings"]} == {int, type(None)}


def test_audit_ends_well_unless_it_is_strict_and_finds_errors(run: Run) -> None:
    for strict in ((), ("--strict",)):
        said = run("audit", str(TABLES / "e1-400m-ada.csv"), *strict)
        assert (said.code, said.out, said.err) == (0, "e1-400m-ada.csv: 10 rows, no findings\n", "")
    refused = run("audit", str(ROOT / "tests/data/reports/tr8-104b.md"), "--strict", "--json")
    assert (refused.code, refused.err.splitlines()[-1]) == (1, "tuner: tr8-104b.md has 5 errors.")
    assert len(json.loads(refused.out)["findings"]) == 6
    said = run("audit", str(ROOT / "tests/data/reports/tr8-104b.md"))
    assert said.code == 0
    assert "line 5: error, other-model: the text says that a 58B model was run" in said.out
    assert said.out.endswith("tr8-104b.md: 10 rows, 5 errors and 1 warning\n")


def test_fix_writes_the_repaired_table_of_a_report_too(tmp_path: Path, run: Run) -> None:
    target = tmp_path / "clean.csv"
    said = run("audit", str(ROOT / "tests/data/reports/tr8-104b.md"), "--fix", "-o", str(target))
    assert said.code == 0
    assert "wrote" in said.err
    rows = list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))
    assert [row["audit"] for row in rows[:4]] == ["exclude: a 58B model by line 5"] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["clean.csv"]


def test_what_the_table_leaves_out_can_be_said(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t.csv"
    path.write_text("layers,hidden,tp,pp,dp,nodes,sec_per_iter,mem_gib\n8,4096,4,2,1,2,2.5,30\n")
    said = run("audit", str(path), "--default", "gpu=V100-16GB-SXM", "--json")
    assert [finding["check"] for finding in json.loads(said.out)["findings"]] == ["memory"]
