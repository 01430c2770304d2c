"""Degrees that a table leaves out."""

from __future__ import annotations

import pytest

from tests.audit.tables_of import evidence_of

BARE = {"gpus_per_node": "8", "nodes": "4", "tp": "", "pp": "", "dp": "", "gbs": "64", "heads": "32", "hidden": "4096"}


@pytest.mark.parametrize(
    ("cells", "degrees"),
    [
        ({"pp": "1", "dp": "8"}, (4, 1, 8)),
        ({"pp": "2", "dp": "4"}, (4, 2, 4)),
        ({"tp": "4", "dp": "4"}, (4, 2, 4)),
        ({"dp": "32"}, (1, 1, 32)),
        ({"tp": "4", "pp": "1", "dp": "4"}, (4, 1, 4)),  # idle nodes
        ({"tp": "4", "pp": "2"}, (4, 2, 4)),
        ({}, (1, 1, 32)),
        ({"pp": "1", "dp": "8", "cp": "2"}, (2, 1, 8)),
        ({"pp": "1", "dp": "8", "nodes": "", "gpus": "16"}, (2, 1, 8)),
        ({"tp": "2", "pp": "1", "nodes": "", "gpus": "12"}, (2, 1, 6)),
    ],
)
def test_a_missing_degree_is_what_the_others_leave_of_the_gpus(
    cells: dict[str, str], degrees: tuple[int, int, int]
) -> None:
    (row,) = evidence_of({**BARE, **cells}).table.rows
    assert row.run is not None, row.skipped
    assert (row.run.topology.tp, row.run.topology.pp, row.run.topology.dp) == degrees


@pytest.mark.parametrize(
    ("cells", "nodes", "per_node"),
    [
        ({"nodes": "", "gpus": "4", "gpus_per_node": ""}, 1, 4),
        ({"nodes": "", "gpus": "12", "gpus_per_node": ""}, 2, 8),
        ({"nodes": "3", "gpus": "12", "gpus_per_node": ""}, 3, 4),
    ],
)
def test_nodes_and_their_gpus_follow_from_all_gpus(cells: dict[str, str], nodes: int, per_node: int) -> None:
    (row,) = evidence_of({**BARE, "tp": "2", "pp": "1", **cells}).table.rows
    assert row.run is not None, row.skipped
    assert (row.run.cluster.nodes, row.run.cluster.gpus_per_node) == (nodes, per_node)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"tp": "2", "pp": "1", "nodes": "", "gpus": "13"}, "tp(2) x pp(1) x dp(6) = 12 GPUs, but gpus is 13."),
        ({"tp": "2", "pp": "1", "dp": "4", "gpus": "64"}, "tp(2) x pp(1) x dp(4) = 8 GPUs, but gpus is 64."),
        ({"tp": "2", "pp": "1", "gpus": "64"}, "tp(2) x pp(1) x dp(32) = 64 GPUs, but 4 nodes of 8 have 32."),
        ({"dp": "8"}, "dp(8) leaves 4 of 32 GPUs to each replica, and the row has no tp or pp."),
        ({"dp": "5", "pp": "1"}, "dp(5) leaves 6 of 32 GPUs to each replica, and the row has no tp."),
    ],
)
def test_a_degree_that_may_be_either_or_no_whole_number_is_not_made_up(cells: dict[str, str], reason: str) -> None:
    (row,) = evidence_of({**BARE, **cells}).table.rows
    assert (row.run, row.skipped) == (None, reason)
