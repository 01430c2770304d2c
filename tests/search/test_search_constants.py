"""Every constant of the search has a record."""

from __future__ import annotations

from tests.costmodel.test_constants import check
from tuner.search import constants


def test_every_constant_of_the_search_has_a_unit_and_a_source() -> None:
    check(constants)
