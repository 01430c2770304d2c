"""One topology beside another, and the ways out of memory that are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from tests.conftest import ROOT, Run
from tests.strategies import runs, spaces
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel
from tuner.planning.cost import cost, difference, fitting_neighbours
from tuner.space.build import space_for
from tuner.space.nearest import distance
from tuner.space.space import Space

ENOKI = str(ROOT / "tests" / "data" / "tables" / "enoki-h100.csv")


def asked(key: str, space: Space) -> Topology:
    return parse_key(key, **space.key_context)


@given(runs())
@settings(max_examples=40)
def test_a_cost_says_of_one_topology_what_a_plan_says_of_it_among_all(
    drawn: tuple[Workload, Cluster, Topology],
) -> None:
    """Its terms add up to its seconds and bytes, and it fits where running is likelier than running out."""
    workload, cluster, topology = drawn
    space = replace(space_for(), workload=workload, cluster=cluster)
    found = cost(space, topology, CostModel())
    scores = CostModel().score(Columns.of([topology] * 3, workload, cluster))
    assert found.seconds == pytest.approx(float(scores.seconds[1]), rel=1e-12)
    assert found.memory == pytest.approx(float(scores.memory[1]), rel=1e-12)
    assert found.estimate.time.total == pytest.approx(found.seconds, rel=1e-12)
    assert found.estimate.memory.total == pytest.approx(found.memory, rel=1e-12)
    assert found.low < found.seconds < found.high
    assert found.fits == bool(scores.fits[1])
    assert 0 <= found.stage < topology.pp


@given(runs(), runs())
@settings(max_examples=40)
def test_what_two_topologies_differ_by_adds_up(
    one: tuple[Workload, Cluster, Topology], other: tuple[Workload, Cluster, Topology]
) -> None:
    """Each term that changes, the largest change first; from one to the other and back is nothing."""
    costs = [
        cost(replace(space_for(), workload=workload, cluster=cluster), topology, CostModel())
        for workload, cluster, topology in (one, other)
    ]
    changes = difference(*costs)
    assert sum(change for _, change in changes) == pytest.approx(costs[1].seconds - costs[0].seconds, abs=1e-9)
    sizes = [abs(change) for _, change in changes]
    assert sizes == sorted(sizes, reverse=True)
    assert dict(difference(costs[1], costs[0])) == {name: -change for name, change in changes}
    assert difference(costs[0], costs[0]) == []


@given(spaces())
@settings(max_examples=25)
def test_what_is_said_to_fit_is_legal_and_fits_and_no_other_that_fits_is_nearer(space: Space) -> None:
    """On a card with room for half of the space."""
    blocks = list(space.blocks())
    if not blocks:
        return
    points = np.concatenate(blocks)
    columns = space.columns(points)
    memory = CostModel().score(columns).memory
    card = replace(space.cluster.gpu, memory=float(np.median(memory)) / 0.985 * (1 + 1e-9))
    space = replace(space, cluster=replace(space.cluster, gpu=card))
    topology = space.topologies(points[[int(np.argmax(memory))]])[0]
    found = fitting_neighbours(space, topology, CostModel())
    scores = CostModel().score(space.columns(points))
    assert len(found) == min(3, int(scores.fits.sum()))
    one = Columns.of([topology], space.workload, space.cluster)
    far = np.sort(distance(space.columns(points), one)[scores.fits])[: len(found)]
    near = Columns.of([each.topology for each in found], space.workload, space.cluster)
    assert np.allclose(distance(near, one), far) if found else True
    for each in found:
        assert space.rules.violations(Columns.of([each.topology], space.workload, space.cluster)) == []
        assert each.fits
        assert cost(space, each.topology, CostModel()).memory <= each.limit * (1 + 1e-9)


def test_explain_names_what_would_fit_and_it_does(run: Run) -> None:
    """Each suggestion, explained by itself, is legal and fits, with the same figures."""
    said = run("explain", "tp1-pp1-dp384-mbs4-z1", "--json")
    document = json.loads(said.out)
    assert document["estimate"]["fits"] is False
    assert len(document["would_fit"]) == 3
    for near in document["would_fit"]:
        again = json.loads(run("explain", near["key"], "--json").out)
        assert again["legal"]
        assert again["estimate"] == near
        assert near["fits"]
        assert near["memory_gib"] <= near["usable_gib"]


def test_explain_suggests_nothing_where_the_topology_fits(run: Run) -> None:
    document = json.loads(run("explain", "tp8-pp12-dp4-mbs2-z1", "--json").out)
    assert document["estimate"]["fits"] is True
    assert document["would_fit"] == []


def test_explain_compares_two_topologies_term_by_term(run: Run) -> None:
    """The faster is named, whichever was asked for first, and the terms of both are in the document."""
    keys = ("tp8-pp12-dp4-mbs2-z1", "tp4-pp12-dp8-mbs2-z1")
    said = [run("explain", first, "--against", second) for first, second in (keys, keys[::-1])]
    whys = [next(line for line in each.out.splitlines() if "less time than" in line) for each in said]
    assert whys[0] == whys[1]
    document = json.loads(run("explain", keys[0], "--against", keys[1], "--json").out)
    chosen, other = document["estimate"], document["against"]
    assert (chosen["key"], other["key"]) == keys
    assert chosen["terms"].keys() == other["terms"].keys()
    for each in (chosen, other):
        assert sum(each["terms"].values()) == pytest.approx(each["sec_per_iter"])
        assert sum(each["memory_terms_gib"].values()) == pytest.approx(each["memory_gib"])
    faster = keys[0] if chosen["sec_per_iter"] <= other["sec_per_iter"] else keys[1]
    assert whys[0].startswith(faster)


def test_a_topology_against_itself_is_all_the_same(run: Run) -> None:
    said = run("explain", "tp8-pp12-dp4-mbs2-z1", "--against", "tp8-pp12-dp4-mbs2-z1")
    assert "\ntp8-pp12-dp4-mbs2-z1 and tp8-pp12-dp4-mbs2-z1 take the same time\n" in said.out


def test_a_plan_is_made_with_what_a_site_has_taught(run: Run, tmp_path: Path) -> None:
    """Calibrate, then plan and explain with the file: other figures than without it, and the same in both."""
    site = str(tmp_path / "a site.toml")
    assert run("calibrate", ENOKI, "-o", site).code == 0
    plain, known = (
        json.loads(run("plan", "--set", "tp=8", "--set", "pp=12", *more, "--json").out)["top"]
        for more in ((), ("--calibration", site))
    )
    seconds = {row["key"]: row["sec_per_iter"] for row in plain}
    shared = [row for row in known if row["key"] in seconds]
    assert shared
    assert all(row["sec_per_iter"] != pytest.approx(seconds[row["key"]], rel=1e-3) for row in shared)
    explained = json.loads(run("explain", known[0]["key"], "--calibration", site, "--json").out)
    assert explained["estimate"]["sec_per_iter"] == pytest.approx(known[0]["sec_per_iter"])


def test_a_calibration_that_is_none_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('schema = "tuner/site/1"\n')
    for command in (("plan",), ("explain", "tp8-pp12-dp4-mbs2-z1"), ("evaluate", ENOKI)):
        said = run(*command, "--calibration", str(file))
        assert said.code == 2
        assert "is damaged" in said.err
        assert len(said.err.strip().splitlines()) == 1
