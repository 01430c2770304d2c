"""The factors of a formula in a report against what the report states, at exact boundaries."""

from __future__ import annotations

import pytest

from tuner.audit import prose
from tuner.audit.evidence import Evidence
from tuner.audit.repair import Finding
from tuner.tables import table_of

REPORT = """NHIDDEN=16384 / NLAYERS=32 / NHEADS=32 / VOCAB=50257

SEQ_LEN={seq}

GBS=1024, SIZE={size}

| Nodes | GPUs | TP | PP | DP | MBS | Speed | TFLOPs |
| ----: | ---: | -: | -: | -: | --: | ----: | -----: |
|    32 |  128 |  4 | 32 |  1 |   1 |   256 | {tflops} |
{gap}
perl -le '{formula}'
"""
EXACT = "print 104*4*2*2048*1024/(256*128*1e3)"


def found(formula: str, tflops: str = "1", seq: int = 2048, size: str = "104B", gap: int = 1) -> list[Finding]:
    """What is found about a formula under a table of 104B parameters, 256 seconds and 128 GPUs."""
    text = REPORT.format(formula=formula, tflops=tflops, seq=seq, size=size, gap="\n" * (gap - 1))
    return list(prose.formulas(Evidence.of(table_of(text, "report.md"))))


def words(formula: str, seq: int = 2048, size: str = "104B") -> str:
    """The factors that contradict the report, of a formula that belongs to no row."""
    messages = [finding.message for finding in found(formula, seq=seq, size=size)]
    return "".join(message.split(" uses ")[1].split(" where")[0] for message in messages)


@pytest.mark.parametrize(
    ("formula", "wrong"),
    [
        (EXACT, ""),
        ("$bs=1048; print 104*8*2048*$bs/(256*1e3)", "batch 1048"),
        ("$seq=1000; print 104*8*$seq*1024/(256*1e3)", "sequence 1000"),
        ("print 104*8*512*1024/(256*1e3)", "sequence 512"),
        ("print 104*8*1024*1024/(256*1e3)", "sequence 1024"),
        ("print 104*8*4096*1024/(256*1e3)", "sequence 4096"),
        ("print 104*8*8192*1024/(256*1e3)", "sequence 8192"),
        ("print 104*8*256*1024/(256*1e3)", ""),
        ("print 104*8*16384*1024/(256*1e3)", ""),
        ("$ms=94; print $ms*8*2048*1024/(256*1e3)", ""),
        ("$ms=93; print $ms*8*2048*1024/(256*1e3)", "size 93"),
        ("$ms=115; print $ms*8*2048*1024/(256*1e3)", "size 115"),
        ("$params=104e9; print $params*8*2048*1024/(256*1e15)", ""),
        ("$params=52e9; print $params*8*2048*1024/(256*1e15)", "size 5.2e+10"),
        ("$ng=64; print 104*8*2048*1024/(256*$ng*1e3)", ""),
    ],
)
def test_a_factor_is_compared_with_what_the_report_states(formula: str, wrong: str) -> None:
    """Named ones with any value; a literal one is a sequence where it is 1/4, 1/2, 2 or 4 times the stated one."""
    assert words(formula) == wrong


@pytest.mark.parametrize(("literal", "wrong"), [(64, "sequence 64"), (32, "")])
def test_a_small_factor_is_no_sequence(literal: int, wrong: str) -> None:
    assert words(f"print 104*3*{literal}*1024/(256*1e3)", seq=128) == wrong


def test_a_batch_that_equals_the_sequence_is_found_by_its_name_only() -> None:
    """Where both are 1024, one literal 1024 is the sequence."""
    assert words("print 104*8*1024*512/(256*1e3)", seq=1024) == ""
    assert words("$gbs=1024; print 104*8*$gbs*512/(256*1e3)", seq=1024) == "sequence 512"


def test_every_wrong_factor_is_corrected_in_the_result() -> None:
    """Half the sequence and 64 of 128 GPUs: the two cancel, and 1048 instead of 1024 samples remain."""
    formula = "$ng=64; $sp=256; $gbs=1048; print 104*8*1024*$gbs/($sp*$ng*1e3)"
    printed = 104 * 8 * 1024 * 1048 / (256 * 64 * 1e3)
    (finding,) = found(formula, tflops=f"{printed:.2f}")
    assert (finding.row, finding.line, finding.severity) == (0, 9, "error")
    assert "1/GPUs 0.015625 where 0.0078125 is stated" in finding.message
    right = 104 * 8 * 2048 * 1024 / (256 * 128 * 1e3)
    assert [dict(repair.cells) for repair in finding.repairs] == [{"tflops": f"{right:.4g}"}]
    assert f"{printed:.4g} instead of {right:.4g}" in finding.message


@pytest.mark.parametrize(
    ("seconds", "tflops", "gap", "row"),
    [
        (256, "26.62", 1, 0),
        (256, "26.6", 39, 0),
        (256, "26.62", 40, None),
        (256, "26.7", 1, 0),
        (255, "26.62", 1, None),
        (256, "26.68", 1, None),
        (256, "26.56", 1, None),
    ],
)
def test_a_formula_is_of_the_row_with_its_seconds_and_its_result(
    seconds: int, tflops: str, gap: int, row: int | None
) -> None:
    """At most 40 lines away, and within 0.001 and rounding: 26.624 of 256 seconds at half the sequence."""
    formula = f"$gbs=1024; print 104*8*1024*$gbs/({seconds}*{256 * 128 / seconds}*1e3)"
    (finding,) = found(formula, tflops=tflops, gap=gap)
    assert finding.row == row


def test_a_formula_belongs_to_the_nearest_of_rows_that_agree() -> None:
    """Rows without seconds or TFLOPs are none of them; the values are those stated above the formula."""
    table = "| Nodes | TP | PP | DP | MBS | Speed | TFLOPs |\n|--|--|--|--|--|--|--|\n{}\n"
    row = "| 32 | 4 | 32 | 1 | {} | {} | {} |"
    near, far = row.format(2, 256, "26.62"), row.format(1, 256, "26.62")
    unmeasured = "\n".join([row.format(4, 256, ""), row.format(8, "", "26.62")])
    formula = "perl -e '$gbs=1024; print 104*8*1024*$gbs/(256*128*1e3)'"
    text = (
        "NHIDDEN=16384 / NLAYERS=32 / NHEADS=32\n\nSEQ_LEN=2048, GBS=1024\n\n"
        f"{table.format(far)}\n{table.format(near)}\n{table.format(unmeasured)}\n{formula}\n\nSEQ_LEN=1024\n"
    )
    (finding,) = prose.formulas(Evidence.of(table_of(text, "report.md")))
    assert finding.row == 1


def test_nothing_is_wrong_where_nothing_is_stated() -> None:
    table = "NHIDDEN=512 / NLAYERS=2\n\n| TP | Speed |\n|--|--|\n| 1 | 3 |\n"
    evidence = Evidence.of(table_of(f"{table}\nprint 104*8*1024*512/(256*1e3)\n$bs=9; print $bs*8/(2*3)\n", "r.md"))
    assert list(prose.formulas(evidence)) == []


def stated_in(text: str) -> list[tuple[int | None, tuple[int, ...], str]]:
    """The line, the rows and the words of each stated value that no row of the table below has."""
    found = prose.stated_values(Evidence.of(table_of(text, "report.md")))
    return [(finding.line, finding.rows, finding.message.split(", but")[0]) for finding in found]


SHAPE = "NHIDDEN=1024 / NLAYERS=4 / NHEADS=8 / SEQ_LEN=1024\n"
TABLE = "| TP | {column} | Speed |\n|--|--|--|\n"


@pytest.mark.parametrize(("lines_between", "found"), [(0, True), (4, True), (5, False)])
def test_a_value_is_stated_for_a_table_up_to_six_lines_below(lines_between: int, found: bool) -> None:
    """Six from the statement to the rule under the table's header."""
    gap = "\n" * lines_between
    text = f"{SHAPE}{'Some words.' if not lines_between else ''}\n" * 4 + f"GBS=512\n{gap}" + TABLE.format(column="GBS")
    expected = [(9, (0, 1), "line 9 states gbs 512")] if found else []
    assert stated_in(text + "| 1 | 2048 | 3 |\n| 2 | 2048 | 3 |\n") == expected


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [("GBS", "512", "512"), ("GBS", "512", "2048"), ("GBS", "1024", "2048"), ("MBS", "1", "1")],
)
def test_a_stated_value_is_not_doubted_that_a_row_has_or_that_the_rows_vary(
    column: str, first: str, second: str
) -> None:
    """Nor where the table has no such column, so that its rows take theirs from the line."""
    table = TABLE.format(column=column) + f"| 1 | {first} | 3 |\n| 2 | {second} | 3 |\n"
    assert stated_in(f"{SHAPE}\nGBS=512\n\n{table}") == []


def test_each_table_of_a_report_is_compared_with_what_stands_above_it() -> None:
    """A line that is not of a table ends one; an empty row of the table does not."""
    tables = [TABLE.format(column="GBS") + f"| 1 | {batch} | 3 |\n" for batch in ("512", "2048", "1024")]
    more = "|  |  |  |\n| 2 | 2048 | 3 |\n"
    text = f"{SHAPE}\nGBS=512\n\n{tables[0]}\nGBS=1024\n\n{tables[1]}{more}\n{tables[2]}"
    assert stated_in(text) == [(9, (1, 2), "line 9 states gbs 1024")]


@pytest.mark.parametrize(
    ("first", "second", "elsewhere"),
    [
        ("3", "4", "3 s (line 7), but the same run takes 4 s in line 17"),
        ("", "4", ""),
        ("3", "", ""),
        ("3", "4 |\n| 1 | 4 | 2 | 1 | 1 | 8 | 20GB | 5", "3 s (line 7), but the same run takes 4 s in line 17"),
    ],
)
def test_a_corrected_model_is_shown_by_the_same_run_elsewhere(first: str, second: str, elsewhere: str) -> None:
    """Where both have a time; another layout is no such run, nor is one of the same section."""
    columns = "| Nodes | TP | PP | DP | MBS | GBS | Mem | Sec/it |\n|--|--|--|--|--|--|--|--|"
    text = (
        f"## First\n\nNHIDDEN=4096 / NLAYERS=32\n\n{columns}\n| 1 | 8 | 1 | 1 | 1 | 8 | 20GB | {first} |\n\n"
        f"This was actually a 13B model.\n\n"
        f"## Second\n\nNHIDDEN=4096 / NLAYERS=32\n\n{columns}\n| 1 | 8 | 1 | 1 | 1 | 8 | 20GB | {second} |\n"
    )
    (finding,) = prose.corrections(Evidence.of(table_of(text, "report.md")))
    words = "the text says that a 13B model was run, but 32 layers with hidden 4096 and ffn 16384 make "
    assert finding.message.startswith(words)
    assert finding.message.partition("; ")[2] == elsewhere
