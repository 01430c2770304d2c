"""The calibration of this machine, and the check of the storage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core import catalog
from tuner.study import doctor

# --------------------------------------------------------------------------------------------------------- doctor


def test_a_machine_without_gpus_is_calibrated_by_three_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measured speed over the one that the cost model assumes of the host; without a link, its factor is 1."""
    card = SimpleNamespace(peak_flops={"fp32": 100.0}, achievable=0.5, memory_bandwidth=40.0, intra_node_bandwidth=20.0)
    ranks: list[int] = []
    monkeypatch.setattr(doctor, "host_gpu", lambda _, count: ranks.append(count) or card)  # type: ignore[func-returns-value]
    machine: Any = SimpleNamespace(cards=0)
    speeds = {"product_flops": 25.0, "copy_bytes": 30.0, "link_bytes": 5.0}
    site = doctor._calibration(machine, {"ranks": 2}, speeds).site
    assert (site.products, site.traffic, site.inner_link) == (0.5, 0.75, 0.25)
    del speeds["link_bytes"]
    assert doctor._calibration(machine, {}, speeds).site.inner_link == 1.0
    assert ranks == [2, 1]


def test_a_machine_with_gpus_is_calibrated_by_its_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "catalog_name", lambda *_: "A100-80GB-SXM")
    card = catalog.gpu("A100-80GB-SXM")
    speeds = {"product_flops": 0.5 * card.peak_flops["bf16"] * card.achievable, "copy_bytes": 1.0}
    machine: Any = SimpleNamespace(cards=8)
    site = doctor._calibration(machine, {"precision": "bf16"}, speeds).site
    assert site.products == pytest.approx(0.5)
    assert (site.traffic, site.inner_link) == (1.0, 1.0)


def test_doctors_storage_is_a_study_that_is_read_back() -> None:
    found = doctor._storage(None)
    assert (found.name, found.verdict, found.evidence) == ("storage", "ok", "SQLite keeps and gives back a study")
    assert doctor._storage("sqlite:////nowhere/at/all.db").verdict == "missing"
