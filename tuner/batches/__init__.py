"""How large a micro batch fits, found with few trials, and what each one is worth."""

from tuner.batches.fit import Fit, Pressure, fitted, pressures, ratio_at
from tuner.batches.seen import Seen, Source
from tuner.batches.strategies import STRATEGIES, Found, Lattice, look_for

__all__ = [
    "STRATEGIES",
    "Fit",
    "Found",
    "Lattice",
    "Pressure",
    "Seen",
    "Source",
    "fitted",
    "look_for",
    "pressures",
    "ratio_at",
]
