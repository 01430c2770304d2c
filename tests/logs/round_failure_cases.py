"""Failures from public threads of all frameworks, in rounds, and lines that are none."""

from __future__ import annotations

from typing import Final

from tests.logs.first_round_failures import FIRST_ROUND
from tests.logs.second_round_failures import SECOND_ROUND
from tests.logs.third_round_failures import THIRD_ROUND

ROUNDS: Final = {**FIRST_ROUND, **SECOND_ROUND, **THIRD_ROUND}

ROUND_HARMLESS: Final[tuple[str, ...]] = ()
