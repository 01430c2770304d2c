"""What came of one micro batch, whoever says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["estimate", "table", "jobs"]
"""Who says so: the model, a measured table, or jobs that ran. Never mixed in one search."""

Word = Literal["MEASURED", "ESTIMATED", "OOM", "HUNG", "CRASHED", "TIMED_OUT", "CANCELLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One micro batch and what came of it."""

    micro_batch: int
    outcome: Word
    peak_memory: float | None = None
    """Bytes; of one that ran out of memory there is none."""
    seconds: float | None = None
    """Of one iteration without accumulation."""
    evidence: str = ""

    @property
    def fits(self) -> bool:
        """Whether it ran."""
        return self.outcome in ("MEASURED", "ESTIMATED")

    @property
    def too_large(self) -> bool:
        """Whether memory was the reason, and nothing else."""
        return self.outcome == "OOM"
