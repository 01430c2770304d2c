"""The arithmetic of the audit in closed form: states of ZeRO, bubbles, rounding, FLOP counts, thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.audit.tables_of import USUAL
from tuner.audit import audit, period_labels
from tuner.audit.evidence import SLACK, _unit
from tuner.audit.flop_conventions import CONVENTIONS, ForwardFlops, hardware, terms_of
from tuner.audit.printed_row import PrintedRow, printed_rows
from tuner.audit.row_laws import least_memory
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.costmodel.flops import hardware_flops
from tuner.space.build import space_for
from tuner.tables import table_of
from tuner.tables.row import MeasuredRun

HEADER = (
    "gpu,gpus_per_node,nodes,layers,hidden,heads,vocab,seq,tp,pp,vpp,dp,zero,mbs,gbs,recompute,"
    "sec_per_iter,tflops,mem_gib,note"
)


def row_of(**cells: str) -> PrintedRow:
    """One row of 4 layers of hidden 1024 on 8 GPUs, with some cells of its own."""
    given = USUAL | cells
    text = f"{HEADER}\n{','.join(given.get(column, '') for column in HEADER.split(','))}\n"
    (row,) = printed_rows(table_of(text, "t.csv").rows).values()
    return row


@pytest.mark.parametrize(
    ("zero", "bytes_per_parameter"),
    [("0", 2 + 2 + 12), ("1", 2 + 2 + 12 / 2), ("2", 2 + (2 + 12) / 2), ("3", (2 + 2 + 12) / 2)],
)
def test_each_zero_stage_spreads_its_states_over_the_ranks(zero: str, bytes_per_parameter: float) -> None:
    """Rajbhandari et al. 2020, section 3.1, with dp = 2 and the parameters over tp x pp = 4 GPUs."""
    row = row_of(zero=zero)
    parameters = row.run.workload.model.parameters
    assert least_memory(row) == pytest.approx(bytes_per_parameter * parameters / 4)


@pytest.mark.parametrize(("note", "share"), [("bnb 8bit", 2 + 2 + 2 / 2), ("offload", 0), ("frozen", 0)])
def test_a_note_on_the_optimizer_lowers_the_states(note: str, share: float) -> None:
    row = row_of(note=note)
    assert least_memory(row) == pytest.approx(share * row.run.workload.model.parameters / 4)


@pytest.mark.parametrize(
    ("cells", "microbatches", "bubble"),
    [
        ({}, 8, 1 + 1 / 8),
        ({"mbs": "2"}, 4, 1 + 1 / 4),
        ({"vpp": "2"}, 8, 1 + 1 / 16),
        ({"pp": "4", "dp": "1", "layers": "4"}, 16, 1 + 3 / 16),
        ({"pp": "1", "dp": "4"}, 4, 1),
    ],
)
def test_the_bubble_is_stages_less_one_over_vpp_times_microbatches(
    cells: dict[str, str], microbatches: int, bubble: float
) -> None:
    row = row_of(**cells)
    assert row.microbatches == microbatches
    assert row.bubble == pytest.approx(bubble)


def test_the_printed_rate_is_flops_times_seconds_times_gpus() -> None:
    row = row_of(tflops="100", sec_per_iter="1.25")
    assert row.printed_rate == pytest.approx(math.log(100e12 * 1.25 * 8))
    assert row.rate_rounding == pytest.approx(0.5 / 100 + 0.005 / 1.25)


FORWARD = {"layers": 1000.0, "scores": 100.0, "logits": 10.0, "weights": 1200.0, "older": 7.0}
FORWARD |= {"megatron_core": 3100.0, "megatron_core_gated": 3150.0}


@pytest.mark.parametrize(
    ("full", "again", "counts"),
    [
        # hardware, model, older, full always, 6N, 8N, 6N or 8N, ...
        (False, 0, [3330, 3330, 7, 4430, 3600, 4800, 3600, 3900, 3900, 3750, 3180, 3180, 3300, 3300, 3000, 3000]),
        (True, 1100, [4430, 3330, 7, 4430, 3600, 4800, 4800, 3900, 5200, 3750, 3180, 4230, 3300, 4400, 3000, 4000]),
        (False, 100, [3430, 3330, 7, 4430, 3600, 4800, 3600, 3900, 3900, 3750, 3180, 3230, 3300, 3400, 3000, 3000]),
    ],
)
def test_every_convention_counts_in_closed_form(full: bool, again: float, counts: list[float]) -> None:
    terms = ForwardFlops(**FORWARD, again=again, full=full, repeats_scores=again > 0)
    found = [convention.count(terms) for convention in CONVENTIONS]
    assert found == pytest.approx([*counts, 3100, 3150]), "the last two are Megatron-Core's"
    assert hardware(terms) == counts[0]


@pytest.mark.parametrize("recompute", ["none", "selective", "core_attn+layernorm", "moe", "core_attn+moe", "full"])
def test_hardware_flops_are_those_of_the_cost_model(recompute: str) -> None:
    """Also of recomputed modules; the scores are repeated with `core_attn` and in full."""
    space = space_for(model="qwen3-30b-a3b", gpu="H100-80GB-SXM", nodes=1, global_batch=8)
    one = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, ep=8, recompute=recompute)
    found = terms_of(MeasuredRun(workload=space.workload, cluster=space.cluster, topology=one))
    expected = hardware_flops(Columns.of([one], space.workload, space.cluster))[0]
    assert hardware(found) == pytest.approx(expected, rel=1e-12)
    assert found.repeats_scores == (recompute in ("selective", "full") or "core_attn" in recompute)


def test_the_scatter_of_a_group_is_the_scaled_median_of_what_rounding_leaves() -> None:
    """Five rows follow 6 FLOPs per parameter and token, off by 0, 0, 1, 2 and 2 percent: 1.4826 x the median excess."""
    errors = np.array([[0.0], [0.0], [0.01], [0.02], [0.02]]) * np.ones((1, 3))
    unit = _unit(errors, np.full(5, SLACK + 0.001), 1, 0.0)
    assert unit.spread == pytest.approx(1.4826 * (0.01 - 0.001))


@pytest.mark.parametrize(("factor", "periods"), [(1.02, 1), (1.03, 2), (0.98, 1), (0.97, 2)])
def test_days_are_one_speed_period_up_to_two_and_a_half_percent(factor: float, periods: int) -> None:
    lines = [HEADER]
    for day, scale in (("01-10", 1.0), ("01-11", factor)):
        for micro in (1, 2, 4):
            seconds = f"{10 * scale / micro:.4f}"
            lines.append(f"A100-80GB-SXM,8,1,4,1024,8,1024,1024,2,2,1,2,1,{micro},16,none,{seconds},,,{day}")
    table = table_of("\n".join(lines) + "\n", "t.csv")
    labels = period_labels(table.rows)
    assert len(set(labels)) == periods
    assert labels[0] == "01-10"
    assert [finding.check for finding in audit(table)].count("speed-period") == periods - 1


@pytest.mark.parametrize(("size", "found"), [("0.052B", False), ("55M", False), ("60M", True), ("0.045B", True)])
def test_a_size_within_four_percent_and_rounding_is_accepted(size: str, found: bool) -> None:
    """12 x 4 x 1024^2 = 50.3M in the layers, 51.4M with an embedding of 1024 and biases."""
    row = f"size,{HEADER}\n{size},A100-80GB-SXM,8,1,4,1024,8,1024,1024,2,2,1,2,1,1,16,none,1.25,,,\n"
    assert bool([finding for finding in audit(table_of(row, "t.csv")) if finding.check == "size"]) == found
