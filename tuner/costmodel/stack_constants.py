"""The cost model's constants of GPU generations and software stacks, each with its unit and its source.

None is fitted to training runs: they are published kernel figures, counts, or without a source. `RECORDS` has the
record of each by name.
"""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

UNSTATED_CHANCE: Final = _constant("UNSTATED_CHANCE", 0.25, "probability", "no source")
"""Chance that a run recomputes otherwise than assumed where its table does not say."""
