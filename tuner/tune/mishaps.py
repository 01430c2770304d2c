"""Nodes that have failed under a study's jobs, and jobs that were begun anew for it, as people are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tuner.core.text import listed
from tuner.search.record import Trial

SAID: Final = 8
"""Nodes, and trials, that are named."""


def mishaps(excluded: Mapping[str, str], trials: Sequence[Trial]) -> str:
    """One sentence; empty where nothing has happened. `excluded` are nodes that are left out, and why each is."""
    nodes = [f"{name} ({why})" for name, why in excluded.items()]
    reasons = [(trial.number, trial.ending.again) for trial in trials if trial.ending is not None]
    again = [f"trial {number} was run again ({reason})" for number, reason in reasons if reason]
    parts = [f"left out, for they have failed: {listed(nodes, limit=SAID)}"] * bool(nodes)
    parts += [listed(again, limit=SAID)] * bool(again)
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}." if said else ""
