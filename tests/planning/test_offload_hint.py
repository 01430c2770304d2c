"""The hint of a plan that the optimizer in main memory would be faster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tuner.planning.plan import plan
from tuner.space.build import space_for

ON_H100: dict[str, Any] = {"gpu": "H100-80GB-SXM"}
SCARCE: dict[str, Any] = {**ON_H100, "model": "qwen3-30b-a3b", "nodes": 1}
HINT = re.compile(
    r"--set (offload=\S+) also tries to keep the optimizer in main memory: (\S+) would take (\d+)% less time than the "
    r"first row, and [\d,]+ GiB of a node's main memory\."
)


def test_a_plan_names_the_topology_that_offload_would_make_faster() -> None:
    """The space with offload has it, with the time that the hint says; and it may have a faster one still."""
    own = plan(space_for(**SCARCE), top=1)
    found = HINT.search(own.hint)
    assert found is not None
    setting, key, percent = found.groups()
    both = plan(space_for(**SCARCE, settings=[setting]), top=0).top
    named = next(row for row in both if row.topology.key == key)
    assert 1 - named.seconds / own.top[0].seconds == pytest.approx(int(percent) / 100, abs=0.005)
    assert named.out_of_memory < 0.5
    assert both[0].seconds <= named.seconds


@pytest.mark.parametrize(
    "described",
    [
        {**ON_H100, "model": "llama-3-8b", "nodes": 1},  # nothing faster than the first row runs out of memory
        {**SCARCE, "settings": ["offload=none,optimizer"]},  # it is searched
        {**SCARCE, "optimizer": "adam-bf16"},  # excludes offload
        {**SCARCE, "framework": "any"},  # no framework, so nothing is known to offload
        {**ON_H100, "model": "llama-3-70b", "nodes": 1},  # nothing fits, and a remedy says so
    ],
    ids=lambda described: " ".join(map(str, described.values())),
)
def test_a_plan_without_a_gain_by_offload_has_no_hint(described: dict[str, Any]) -> None:
    assert "offload" not in plan(space_for(**described), top=1).hint


def test_a_node_with_little_main_memory_has_no_hint() -> None:
    space = space_for(**SCARCE)
    assert "offload" not in plan(replace(space, cluster=replace(space.cluster, host_memory=64 * 2.0**30)), top=1).hint
