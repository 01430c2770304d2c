"""Find the largest micro batch that fits in few trials, and the throughput of each."""

from tuner.sizing.fit import BatchResult, Fit, Pressure, Source, fitted, pressures, ratio_at
from tuner.sizing.strategies import STRATEGIES, BatchGrid, BatchSearch, look_for

__all__ = [
    "STRATEGIES",
    "BatchGrid",
    "BatchResult",
    "BatchSearch",
    "Fit",
    "Pressure",
    "Source",
    "fitted",
    "look_for",
    "pressures",
    "ratio_at",
]
