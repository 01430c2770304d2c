"""Ten factors by which a cluster may differ from the model's constants.

A factor of 1 is the catalog and `constants.py`; a calibration moves it. The prior of each is how far from 1 it has been
observed to lie.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from tuner.costmodel.constants import SITE_DEVIATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFactors:
    """Factors by which a site departs from the model's constants."""

    products: float = 1.0
    """Speed of dense matrix products."""
    attention: float = 1.0
    """Speed of the attention kernels."""
    traffic: float = 1.0
    """Bytes a second that element-wise work moves through the GPU's memory."""
    inner_link: float = 1.0
    """Speed of collectives within a node."""
    network: float = 1.0
    """Speed of collectives between nodes."""
    pipeline_link: float = 1.0
    """Speed of sends from stage to stage."""
    host: float = 1.0
    """Time that the host takes to launch a layer's kernels."""
    upkeep: float = 1.0
    """Time that each layer costs in each microbatch whatever its size."""
    context: float = 1.0
    """Memory taken outside PyTorch's allocator."""
    activations: float = 1.0
    """Memory of activations."""


PRIOR: Final = SiteFactors(**SITE_DEVIATIONS)
"""Standard deviations of the factors' logarithms."""

TIME_FACTORS: Final = tuple(
    name for name in (field.name for field in fields(SiteFactors)) if name not in ("context", "activations")
)
MEMORY_FACTORS: Final = ("context", "activations")
