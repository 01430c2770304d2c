"""How far a study may rely on the model and on a single run: whoever searches and whoever reads it believe the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuner.search.surrogate import Trust

HOST: Final = Trust(repeat=0.10, unsure=4.0)
"""On a machine's processors, shared with everything else: eight runs of one topology have differed by a third, and the
model was not made for them."""


def trust_for(about: Mapping[str, Any]) -> Trust:
    """How far the model and a single run can be relied on in a study, by what it is about."""
    return HOST if about.get("accelerator") == "cpu" else Trust()
