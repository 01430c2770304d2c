"""How large a micro batch fits, found with few trials, and what each one is worth."""

from tuner.sizing.fit import Fit, Pressure, Seen, Source, fitted, pressures, ratio_at
from tuner.sizing.strategies import STRATEGIES, Found, Lattice, look_for

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
