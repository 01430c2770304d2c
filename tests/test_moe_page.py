"""The table of docs/moe.md that splits the time of Qwen3-235B by term is what the cost model estimates."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel
from tuner.space.build import space_for

ROW = re.compile(r"^\| (\d+) \| ([\d.]+) \| " + r" \| ".join([r"(\d+)%"] * 6) + r" \|$", re.MULTILINE)
NAMED = ("experts", "attention", "products", "dispatch", "data_parallel")


@pytest.mark.parametrize("row", ROW.findall((ROOT / "docs/moe.md").read_text(encoding="utf-8")), ids=lambda row: row[0])
def test_the_time_of_each_expert_parallel_degree_is_estimated_as_printed(row: tuple[str, ...]) -> None:
    ep, printed, *shares = row
    space = space_for(model="qwen3-235b", gpu="H100-80GB-SXM", nodes=32)
    key = f"tp2-pp8-dp16-mbs1-z1-vpp4-sp-rsel-emb-ep{ep}-deepep"
    topology = parse_key(key, workload=space.workload, cluster=space.cluster)
    scores = CostModel().score(Columns.of([topology], space.workload, space.cluster))
    total = float(scores.seconds[0])
    terms = {name: 100 * float(values[0]) / total for name, values in scores.time_terms.items()}
    named = [terms.get(name, 0.0) for name in NAMED]
    assert float(printed) == pytest.approx(total, abs=0.051)
    assert [int(share) for share in shares] == pytest.approx([*named, 100 - sum(named)], abs=0.51)
