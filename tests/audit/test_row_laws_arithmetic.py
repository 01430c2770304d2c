"""The laws of a single row and of memory between rows, at their exact boundaries, with what each finding proposes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.tables_of import evidence_of, findings
from tuner.audit import audit, memory_laws, row_laws
from tuner.audit.flop_conventions import hardware
from tuner.tables import table_of

NO_DEGREES = {"tp": "", "pp": "", "dp": "", "layers": "x"}


def messages(check: Any, *rows: dict[str, str]) -> list[str]:
    """The messages of a check's findings."""
    return [finding.message for finding in check(evidence_of(*rows))]


def excluding(reason: str, column: str = "") -> list[Any]:
    """A repair of the first row that marks it, or one of its figures."""
    return [(0, {}, reason, column)]


def changing(**cells: str) -> list[Any]:
    """A repair of the first row that changes cells."""
    return [(0, cells, "", "")]


def test_a_row_with_an_unreadable_cell_is_excluded_by_its_reason() -> None:
    reason = "mbs must be a whole number of at least 1, not 'x'."
    assert findings(row_laws.cells, {"mbs": "x"}) == [
        ("cells", "error", 2, (0,), "correct the cell or leave it empty", excluding(reason))
    ]
    assert messages(row_laws.cells, {"mbs": "x"}) == [f"cannot read the row: {reason}"]
    assert findings(row_laws.cells, {"mbs": "x", "tp": "4"}) == []
    assert findings(row_laws.cells, NO_DEGREES) == []
    missing = "hidden is missing; add a column, or pass --default hidden=VALUE."
    assert findings(row_laws.cells, {"hidden": ""}) == [
        ("cells", "error", 2, (0,), "fill in the cell", excluding(missing))
    ]


def test_rows_without_a_topology_are_reported_once() -> None:
    rows = [{"layers": "x"}, NO_DEGREES, {}, NO_DEGREES]
    assert findings(row_laws.unnamed, *rows) == [
        ("no-topology", "advice", 3, (1, 3), "add columns such as TP, PP and DP", [])
    ]
    assert messages(row_laws.unnamed, *rows) == ["2 rows from line 3 on without any parallel degree are skipped"]
    assert messages(row_laws.unnamed, NO_DEGREES) == ["1 row from line 2 on without any parallel degree is skipped"]
    assert findings(row_laws.unnamed, NO_DEGREES | {"dp": "1"}) == []


MATCHES = "which matches the number of GPUs"


@pytest.mark.parametrize(
    ("cells", "severity", "suggestion", "repairs"),
    [
        ({"dp": "4"}, "error", f"dp=2, {MATCHES}", changing(dp="2")),
        ({"dp": "3"}, "error", f"dp=2, {MATCHES}", changing(dp="2")),
        ({"tp": "4", "pp": "4", "dp": "1"}, "error", f"tp=2, {MATCHES}", changing(tp="2")),
        ({"tp": "1", "pp": "16", "dp": "1", "layers": "16"}, "error", f"pp=8, {MATCHES}", changing(pp="8")),
        ({"cp": "2", "dp": "3"}, "error", f"dp=1, {MATCHES}", changing(dp="1")),
        ({"dp": "1"}, "advice", "state how many nodes were used", []),
        ({"dp": "1", "tflops": "100"}, "error", f"dp=2, {MATCHES}", changing(dp="2")),
        ({"nodes": "2", "gpus_per_node": "3"}, "error", "correct a degree or the number of nodes", None),
    ],
)
def test_a_degree_is_corrected_to_the_number_of_gpus(
    cells: dict[str, str], severity: str, suggestion: str, repairs: Any
) -> None:
    repairs = excluding("8 GPUs of 6") if repairs is None else repairs
    assert findings(row_laws.degrees, cells) == [("degrees", severity, 2, (0,), suggestion, repairs)]


def test_the_tflops_choose_the_degree_that_is_wrong() -> None:
    """Rows by one convention at 8 GPUs: the same TFLOPs at a product of 16 mean that a degree is twice too large."""
    seconds = 1.25
    (usual,) = evidence_of({}).cases.values()
    rate = f"{hardware(usual.terms) / 8 / seconds / 1e12:.5f}"
    rows = [{"tflops": rate, "note": word} for word in ("aa", "bb", "cc")]
    found = findings(row_laws.degrees, *rows, {"tflops": rate, "dp": "4"})
    assert found == [
        (
            "degrees",
            "error",
            5,
            (3,),
            f"dp=2, {MATCHES} and the printed TFLOPs",
            [(3, {"dp": "2"}, "", "")],
        )
    ]
    (message,) = messages(row_laws.degrees, *rows, {"tflops": rate, "dp": "4"})
    assert message.endswith("= 16 GPUs, but 1 node of 8 has 8; its TFLOPs and seconds are for 8")
    idle = f"{hardware(usual.terms) / 4 / seconds / 1e12:.5f}"
    assert findings(row_laws.degrees, *rows, {"tflops": idle, "dp": "1"}) == []
    wrong = findings(row_laws.degrees, *rows, {"tflops": f"{float(rate) * 3:.5f}", "dp": "4"})
    assert [found[-2] for found in wrong] == ["correct a degree or the number of nodes"]
    on_more = {"tflops": f"{float(rate) / 2:.5f}", "dp": "4"}
    assert [found[-2] for found in findings(row_laws.degrees, *rows, on_more)] == [
        f"nodes=2, {MATCHES} and the printed TFLOPs"
    ]
    on_twelve = {"tflops": f"{float(rate) * 2 / 3:.5f}", "dp": "3"}
    assert [found[-2] for found in findings(row_laws.degrees, *rows, on_twelve)] == [
        "correct a degree or the number of nodes"
    ]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"dp": "4"}, "tp(2) x pp(2) x dp(4) = 16 GPUs, but 1 node of 8 has 8"),
        ({"dp": "1"}, "tp(2) x pp(2) x dp(1) = 4 GPUs, but 1 node of 8 has 8: the others are idle"),
        ({"cp": "2"}, "tp(2) x pp(2) x cp(2) x dp(2) = 16 GPUs, but 1 node of 8 has 8"),
    ],
)
def test_the_product_of_the_degrees_is_written_out(cells: dict[str, str], words: str) -> None:
    assert messages(row_laws.degrees, cells) == [words]


@pytest.mark.parametrize(
    ("cells", "near"),
    [
        ({"gbs": "17"}, "16 or 18"),
        ({"gbs": "15", "mbs": "4"}, "8 or 16"),
        ({"gbs": "16"}, None),
    ],
)
def test_a_batch_is_a_multiple_of_dp_times_micro_batch(cells: dict[str, str], near: str | None) -> None:
    expected: list[Any] = [("batch", "warning", 2, (0,), f"gbs={near}, or a different dp or mbs", [])] if near else []
    assert findings(row_laws.batch, cells) == expected
    if near == "16 or 18":
        assert messages(row_laws.batch, cells) == ["gbs(17) is not a multiple of dp(2) x mbs(1) = 2"]


def test_tensor_parallelism_beyond_a_node_is_advice() -> None:
    wide = {"tp": "16", "pp": "1", "dp": "1", "nodes": "2", "heads": "16"}
    assert findings(row_laws.node, wide) == [("node", "advice", 2, (0,), "check tp and gpus_per_node", [])]
    assert messages(row_laws.node, wide) == ["tp(16) spans more than one node of 8 GPUs"]
    assert findings(row_laws.node, {"tp": "8", "pp": "1", "dp": "1"}) == []


@pytest.mark.parametrize(("heads", "found"), [("3", True), ("1", True), ("8", False), ("6", True), ("2", False)])
def test_heads_divide_hidden_and_divide_by_tp(heads: str, found: bool) -> None:
    """Hidden 1024 and tp 2."""
    expected: list[Any] = [("heads", "warning", 2, (0,), "check heads, hidden and tp", [])] if found else []
    assert findings(row_laws.heads, {"heads": heads}) == expected


def test_a_run_that_did_not_end_well_has_no_seconds() -> None:
    reason = "status OOM, but an iteration took 1.25 s"
    assert findings(row_laws.endings, {"status": "OOM"}, {"status": "FAIL", "sec_per_iter": ""}, {}) == [
        ("status", "warning", 2, (0,), "correct the status or remove the figures", excluding(reason))
    ]


FAST = "faster than the GPU's peak"


@pytest.mark.parametrize(
    ("cells", "suggestion", "repairs"),
    [
        ({"tflops": "313"}, "tflops=39.12", changing(tflops="39.12")),
        ({"tflops": "312"}, None, None),
        ({"tflops": "2496"}, "the seconds are too small or the batch is too large", excluding(FAST)),
        ({"tflops": "2495"}, "tflops=311.9", changing(tflops="311.9")),
        ({"sec_per_iter": "0.002"}, "check the unit of the seconds, the batch and the number of GPUs", excluding(FAST)),
        ({"sec_per_iter": "0.0024"}, None, None),
        ({"tflops": "1500", "tp": "1", "pp": "1", "dp": "1"}, "the seconds are too small or the batch is too large", 0),
    ],
)
def test_a_gpu_is_not_faster_than_its_peak(cells: dict[str, str], suggestion: str | None, repairs: Any) -> None:
    """5.8755e12 FLOPs on 8 GPUs of 312 TFLOPs: 0.002354 s at the peak."""
    (usual,) = evidence_of({}).cases.values()
    assert hardware(usual.terms) / 8 / 312e12 == pytest.approx(0.0023540, rel=1e-4)
    repairs = excluding(FAST) if repairs == 0 else repairs
    expected: list[Any] = [("peak", "error", 2, (0,), suggestion, repairs)] if suggestion else []
    assert findings(row_laws.speed, cells) == expected


@pytest.mark.parametrize(
    ("gbs", "seconds", "found"),
    [
        *(("16", "9.99", ""), ("16", "10.1", "0.0101"), ("16", "235", "0.235"), ("16", "236", "")),
        *(("1024", "150", ""), ("1024", "168", "0.168")),
    ],
)
@pytest.mark.parametrize("tflops", ["", "100"])
def test_a_training_a_thousand_times_slower_than_usual_is_in_milliseconds(
    gbs: str, seconds: str, found: str, tflops: str
) -> None:
    """1% of the peak are 235.4 ms for a batch of 16, and 90% 167.4 ms for 1024; below 10 ms, a toy may be as slow."""
    cells = {"gbs": gbs, "sec_per_iter": seconds, "tflops": tflops}
    repairs = changing(sec_per_iter=found)
    expected = [("milliseconds", "error", 2, (0,), f"sec_per_iter={found}", repairs)] if found else []
    assert findings(row_laws.milliseconds, cells) == expected


def test_a_total_of_all_gpus_follows_the_unit_of_its_rows() -> None:
    """Three rows of 39 TFLOPs and one of 8 x 39; where it is no total by the rows' convention, another check has it."""
    (usual,) = evidence_of({}).cases.values()
    seconds = hardware(usual.terms) / 8 / 100e12
    rows = [{"sec_per_iter": f"{seconds:.8f}", "tflops": "100.00", "note": word} for word in ("aa", "bb", "cc")]
    total = rows[0] | {"tflops": "800.00", "note": "dd"}
    assert [found[-2] for found in findings(row_laws.speed, *rows, total)] == ["tflops=100"]
    assert findings(row_laws.speed, *rows, total | {"tflops": "900.00"}) == []


TOO_MUCH = "more memory than the GPU has"
STATES = "less memory than the model's states"


@pytest.mark.parametrize(
    ("gib", "suggestion", "repairs"),
    [
        ("85.8", None, None),
        ("86.0", "check the figure, its unit and the GPU", excluding(TOO_MUCH, "mem_gib")),
        ("1638", "check the figure, its unit and the GPU", excluding(TOO_MUCH, "mem_gib")),
        ("1640", "mem_gib=1.602", changing(mem_gib="1.602")),
        ("81920", "mem_gib=80", changing(mem_gib="80")),
        ("81930", "check the figure, its unit and the GPU", excluding(TOO_MUCH, "mem_gib")),
        ("0.1100", None, None),
        ("0.1098", "check the figure, the degrees and the model's size", excluding(STATES, "mem_gib")),
    ],
)
def test_memory_is_between_the_states_and_the_gpus(gib: str, suggestion: str | None, repairs: Any) -> None:
    """80 GiB, which print as 85.9 GB in decimal units, or as 81920 MiB; the states take 0.1222 GiB, of which 90%."""
    expected: list[Any] = [("memory", "error", 2, (0,), suggestion, repairs)] if suggestion else []
    assert findings(row_laws.memory, {"mem_gib": gib}) == expected


def test_memory_findings_name_the_figures() -> None:
    assert messages(row_laws.memory, {"mem_gib": "40000"}) == ["40000 GiB on a GPU with 80: the unit is MiB"]
    assert messages(row_laws.memory, {"mem_gib": "1000"}) == ["1000 GiB on a GPU with 80"]
    (states,) = messages(row_laws.memory, {"mem_gib": "0.05"})
    assert states == "0.05 GiB cannot hold weights, gradients and optimizer states of 0.122 GiB per GPU"


def test_a_stated_size_is_doubted_in_its_own_row() -> None:
    (found,) = findings(row_laws.size, {"size": "60M"})
    assert found == ("size", "warning", 2, (0,), "correct the size or the shape", [])
    (message,) = messages(row_laws.size, {"size": "60M"})
    assert message == "size 60M, but 4 layers with hidden 1024 and ffn 4096 make 0.05248B"
    assert findings(row_laws.size, {"size": "60M"}, without=["hidden"]) == []


# ---------------------------------------------------------------------------------------------- memory between rows


def memories(check: Any, *rows: tuple[str, str], column: str = "mbs", **rest: str) -> list[Any]:
    """What a check finds in rows of one column and their memory."""
    return findings(check, *({column: value, "mem_gib": gib, "gbs": "64"} | rest for value, gib in rows))


@pytest.mark.parametrize(("second", "found"), [("10.52", False), ("10.53", True), ("9.51", False), ("9.50", True)])
def test_the_same_run_takes_the_same_memory_within_5_percent_and_rounding(second: str, found: bool) -> None:
    """|log(second / 10.00)| against 0.05 + 0.005 / 10 + 0.005 / second, in either order."""
    suggestion = "one of the two is from a different run: state what differed"
    expected: list[Any] = [("memory-twins", "warning", 3, (0, 1), suggestion, [])] if found else []
    assert memories(memory_laws.twins, ("1", "10.00"), ("1", second)) == expected
    assert memories(memory_laws.twins, ("1", second), ("1", "10.00")) == expected


def test_a_twin_is_compared_with_every_earlier_one() -> None:
    assert memories(memory_laws.twins, ("1", "10.00"), ("1", "10.50"), ("1", "11.00")) == []
    found = memories(memory_laws.twins, ("1", "10.00"), ("2", "12.00"), ("1", "11.00"), ("1", "11.50"))
    assert [(one[2], one[3]) for one in found] == [(4, (0, 2))]


@pytest.mark.parametrize(("second", "found"), [("9.71", False), ("9.68", True), ("10.00", False)])
def test_memory_does_not_fall_with_the_micro_batch(second: str, found: bool) -> None:
    """log(10 / second) against 0.03 + 0.005 / 10 + 0.005 / second; of two alike, the smaller micro batch is odd."""
    reason = "memory falls as the micro-batch size grows, lines 2 and 3"
    repairs: list[Any] = [(0, {}, reason, "mem_gib")]
    expected: list[Any] = [("memory-falls", "error", 2, (0, 1), "check the memory in line 2", repairs)] if found else []
    assert memories(memory_laws.micro_batches, ("1", "10.00"), ("2", second)) == expected


@pytest.mark.parametrize(
    ("first", "second", "found"), [("10", "9.3", False), ("10", "9.1", True), ("9.8", "9", False), ("10.0", "9", True)]
)
def test_memory_may_fall_by_the_rounding_of_both_figures(first: str, second: str, found: bool) -> None:
    """0.03, and half the last digit of each: 0.5 of 10 is 0.05, 0.05 of 9.3 is 0.0054."""
    assert bool(memories(memory_laws.micro_batches, ("1", first), ("2", second))) is found


@pytest.mark.parametrize("odd", [2, 3])
def test_of_two_the_odd_one_is_farther_from_other_models_of_its_topology(odd: int) -> None:
    """Models of 5 layers, and so of nearly as many parameters, take 12 GiB at both micro batches.

    More rows would say otherwise, but are of another topology, of the same model, of a much larger one, or unweighed.
    """

    def both(gib: str, **cells: str) -> list[dict[str, str]]:
        return [{"mbs": mbs, "mem_gib": gib, "gbs": "64"} | cells for mbs in ("1", "2")]

    first, second = (20.0, 9.6) if odd == 2 else (10.0, 5.0)
    misleading = first if odd == 2 else second
    others = [row for gib in ("3.0", "3.1", "12.0", "12.1", "12.2") for row in both(gib, layers="5")]
    never_compared = [
        *both("", layers="5"),
        *both(f"{misleading}", layers="5", tp="1", dp="4"),
        *both(f"{misleading}", note="same model"),
        *both(f"{3.87 * misleading:.1f}", layers="16"),
    ]
    pair = [{"mbs": "1", "mem_gib": f"{first}", "gbs": "64"}, {"mbs": "2", "mem_gib": f"{second}", "gbs": "64"}]
    found = findings(memory_laws.micro_batches, *pair, *8 * never_compared, *others)
    assert [one[-2] for one in found if one[2] <= 3] == [f"check the memory in line {odd}"]


LINE = [("1", "11.00"), ("2", "12.00"), ("8", "18.00"), ("16", "26.00")]


@pytest.mark.parametrize(("fourth", "found"), [("15.80", False), ("16.05", True), ("12.60", False), ("12.40", True)])
def test_memory_is_linear_in_the_micro_batch_within_12_percent(fourth: str, found: bool) -> None:
    """10 GiB and 1 for each sample: 14 at a micro batch of 4."""
    reported = memories(memory_laws.straight, *LINE[:2], ("4", fourth), *LINE[2:])
    assert [one[:5] for one in reported] == (
        [("memory-line", "warning", 4, (0, 1, 2, 3, 4), "check its memory")] if found else []
    )
    if found:
        ((row, cells, reason, column),) = reported[0][-1]
        assert (row, cells, column) == (2, {}, "mem_gib")
        assert reason == f"{fourth} GiB at mbs 4 is 13% off the line through the " + (
            "other 4 micro-batch sizes of its topology"
        )


def test_fewer_than_four_points_or_a_bent_line_accuse_nobody() -> None:
    assert memories(memory_laws.straight, ("1", "11.00"), ("4", "30.00"), ("8", "18.00")) == []
    (found,) = memories(memory_laws.straight, ("1", "11.00"), ("2", "12.00"), ("4", "14.00"), ("8", "24.00"))
    assert found[2:4] == (5, (0, 1, 2, 3))
    assert memories(memory_laws.straight, ("1", "11.0"), ("2", "15.0"), ("4", "30.0"), ("8", "18.0")) == []


@pytest.mark.parametrize(("second", "found"), [("10.30", False), ("10.33", True)])
def test_memory_does_not_rise_with_the_zero_stage(second: str, found: bool) -> None:
    expected: list[Any] = (
        [("memory-rises", "warning", 3, (0, 1), "check the stages and figures of both", [])] if found else []
    )
    assert memories(memory_laws.stages, ("0", "10.00"), ("1", second), column="zero") == expected
    assert memories(memory_laws.stages, ("1", second), ("0", "10.00"), column="zero") == (
        [("memory-rises", "warning", 2, (0, 1), "check the stages and figures of both", [])] if found else []
    )


def test_what_fits_with_a_larger_micro_batch_fits_with_a_smaller_one() -> None:
    oom = {"status": "OOM", "sec_per_iter": ""}
    rows = [oom | {"gbs": "64"}, {"mbs": "2", "gbs": "32"}, {"mbs": "4", "gbs": "64"}, {"mbs": "8", "gbs": "64"} | oom]
    assert findings(memory_laws.out_of_memory, *rows) == [
        ("oom-fits", "warning", 2, (0, 1), "check the status and the micro-batch size of both", [])
    ]
    assert messages(memory_laws.out_of_memory, *rows) == ["out of memory at mbs 1, but mbs 2 fits in line 3"]
    same = [oom, {}]
    assert [one[3] for one in findings(memory_laws.out_of_memory, *same)] == [(0, 1)]


def test_rows_with_fewer_microbatches_than_stages_are_not_compared() -> None:
    """gbs 4 on 2 replicas makes one microbatch of 2, on two stages."""
    oom = {"status": "OOM", "sec_per_iter": ""}
    assert findings(memory_laws.out_of_memory, oom, {"mbs": "2", "gbs": "4"}) == []
    assert len(findings(memory_laws.out_of_memory, oom, {"mbs": "2", "gbs": "8"})) == 1


def test_findings_are_in_the_order_of_their_lines() -> None:
    """A finding about the table comes before one about a row of its line."""
    rows = [{}, {"gbs": "17"}, NO_DEGREES, {"gbs": "33", "layers": "5"}]
    assert [(one.line, one.check) for one in audit(evidence_of(*rows).table)] == [
        (3, "batch"),
        (4, "no-topology"),
        (5, "batch"),
    ]


@pytest.mark.parametrize(
    ("tp", "dp", "found"),
    [
        (1, 0, {}),
        (2, 0, {}),
        (2, 2, {"dp": (4, 2, 1), "tp": (2, 4, 1), "pp": (2, 2, 2)}),
        (2, 3, {"dp": (4, 2, 1)}),
    ],
)
def test_a_degree_is_chosen_so_that_the_product_is_the_gpus(
    tp: int, dp: int, found: dict[str, tuple[int, int, int]]
) -> None:
    """On 8 GPUs without stages: a degree that makes no whole number, that is zero or stands beside one, is none."""
    header = "layers,hidden,tp,pp,dp,nodes,gpus_per_node,sec_per_iter"
    (row,) = table_of(f"{header}\n24,1024,{tp},1,{dp},1,8,1.5\n", "t.csv").rows
    chosen = {column: row_laws._with_product(row, column, 8) for column in ("dp", "tp", "pp", "cp")}
    degrees = {
        column: (case.run.topology.dp, case.run.topology.tp, case.run.topology.pp)
        for column, case in chosen.items()
        if case and column != "cp"
    }
    assert degrees == found
