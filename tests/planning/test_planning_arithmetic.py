"""The bubble, the difference of two costs, and how plans and explanations are shown, at exact values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.planning.cost import TopologyCost, bubble, difference
from tuner.planning.explain import Explanation, RuleVerdict
from tuner.planning.frameworks import HEADERS, cells


@pytest.mark.parametrize(
    ("pp", "vpp", "microbatches", "idle"),
    [(1, 1, 8, 0.0), (4, 1, 8, 3 / 11), (4, 2, 8, 3 / 19), (4, 1, 16, 3 / 19), (8, 1, 1, 7 / 8)],
)
def test_the_bubble_is_that_of_narayanan(pp: int, vpp: int, microbatches: int, idle: float) -> None:
    """(pp - 1) / (vpp x microbatches + pp - 1), arXiv 2104.04473, section 2.2, as a share of the iteration."""
    rows: Any = SimpleNamespace(pp=np.array([pp]), vpp=np.array([vpp]), microbatches=np.array([microbatches]))
    assert bubble(rows).tolist() == pytest.approx([idle])


def cost(**terms: float) -> Any:
    """The cost of these time terms."""
    return SimpleNamespace(estimate=SimpleNamespace(time=SimpleNamespace(terms=terms)))


def test_two_costs_differ_by_their_terms_the_largest_first() -> None:
    """Terms that only one has count in full; equal ones are left out."""
    first, other = cost(a=1.0, b=5.0, c=2.0, d=0.5), cost(a=3.0, b=5.0, c=1.0, e=4.0)
    assert difference(first, other) == [("e", 4.0), ("a", 2.0), ("c", -1.0), ("d", -0.5)]


@pytest.mark.parametrize(("risk", "fits"), [(0.49, True), (0.5, False)])
def test_a_topology_fits_where_that_is_likelier(risk: float, fits: bool) -> None:
    assert TopologyCost.fits.fget(SimpleNamespace(out_of_memory=risk)) is fits  # type: ignore[attr-defined]


@pytest.mark.parametrize(("fits", "key"), [(True, "k"), (False, "k (unlikely to fit)")])
def test_a_framework_is_a_row_of_its_best_topology(fits: bool, key: str) -> None:
    """2 days, 30 GiB."""
    best = SimpleNamespace(topology=SimpleNamespace(key="k"), seconds=2.5, days=2.0, memory=30 * 2.0**30, fits=fits)
    workload = SimpleNamespace(precision="bf16", attention="flash2")
    row: Any = SimpleNamespace(framework="a", legal=5678, fitting=1234, best=best, workload=workload)
    assert cells(row) == ("a", "5,678", "1,234", key, "2.500", "2.0", "30.0", "bf16", "flash2")
    row.best = None
    assert cells(row) == ("a", "0", "0", "none", *[""] * 5)
    assert len(HEADERS) == 9


def verdict(word: Any, level: Any = "law", message: str = "") -> RuleVerdict:
    """What a rule says."""
    return RuleVerdict(rule=word, level=level, word=word, sentence=f"sentence of {word}", message=message)


@pytest.mark.parametrize(
    ("verdicts", "near", "legal", "notes"),
    [
        ((verdict("holds"), verdict("broken", message="m")), ("x", "y"), False, ("Nearest legal: x and y.",)),
        ((verdict("holds"), verdict("broken", "advice")), (), True, ()),
        ((verdict("moot"), verdict("holds")), (), True, ()),
    ],
)
def test_an_explanation_shows_what_is_broken_first(
    verdicts: tuple[RuleVerdict, ...], near: tuple[str, ...], legal: bool, notes: tuple[str, ...]
) -> None:
    nearest: Any = tuple(SimpleNamespace(key=key) for key in near)
    topology: Any = SimpleNamespace(key="k")
    made = Explanation(topology=topology, verdicts=verdicts, nearest=nearest, outside={})
    shown = made._shown()
    assert (made.legal, shown.notes) == (legal, notes)
    assert shown.title == f"k is {'legal' if legal else 'not legal'}"
    words = [row[2] for row in shown.rows]
    assert words == [word for word in ("broken", "holds") if word in {verdict.word for verdict in verdicts}]
    assert ("m" in {row[3] for row in shown.rows}) == (not legal)
