"""Settings that the note of a row states in clauses of their own, between commas and semicolons.

Published tables have no column for some settings of mixtures, and name them in a remark: `EP overlap; full CG`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuner.core.recompute import MODULES

_GRAPHS: Final = r"(cg|cuda[- ]?graphs?)"
_OVERLAP: Final = r"(1f1b )?(ep|a2a|expert(-| )?parallel|expert communication) overlap( \+ delayed wgrad)?"

_CLAUSES: Final = tuple(
    (re.compile(pattern), column, value)
    for pattern, column, value in (
        (_OVERLAP, "moe_overlap", "1"),
        (rf"no {_OVERLAP}", "moe_overlap", "0"),
        (rf"full([- ]iteration)? {_GRAPHS}", "cuda_graph", "full"),
        (
            rf"(partial|router/preprocess) {_GRAPHS}|{_GRAPHS}( (attn|mlp|moe|moe_router|moe_preprocess))+",
            "cuda_graph",
            "1",
        ),
        (r"(natural|real) routing", "routing", "natural"),
        (r"forced?[- ]balanced?", "routing", "balanced"),
        (r"w/ mtp|published figure counts the mtp layer", "mtp", "1"),
        (r"w/o mtp", "mtp", "0"),
        (r"layout \S*\|\S*", "partition", "layout"),
        (r"(\S+ )*fp8-param-gather( \S+)*", "quantized_weights", "1"),
    )
)
"""Whole clauses in lower case, and the cell that each states."""

_RECOMPUTE: Final = re.compile(r"recompute(?: modules?)? (?P<behind>.+)|(?P<before>.+) recompute")
_SEPARATORS: Final = re.compile(r"[\s,+'\"\[\]]+")
_SHORT: Final[Mapping[str, str]] = {"norm": "layernorm", "act": "moe_act"}


def settings_in_note(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells that a row's note states; what a column states counts more.

    A column says whether there are CUDA graphs, 1, and the note that they hold the whole iteration.
    """
    found = dict[str, str]()
    for clause in cells.get("note", "").lower().split(";"):
        for part in clause.split(","):
            found |= {column: value for pattern, column, value in _CLAUSES if pattern.fullmatch(part.strip())}
        if modules := _recomputed(clause.strip()):
            found |= {"recompute": "selective", "recompute_modules": " ".join(modules)}
    if cells.get("recompute", "selective").lower() != "selective":
        found.pop("recompute_modules", None)
    counted = {column: value for column, value in found.items() if column not in cells}
    if found.get("cuda_graph") == "full" and cells.get("cuda_graph") == "1":
        counted["cuda_graph"] = "full"
    return counted


def _recomputed(clause: str) -> list[str]:
    """Return the modules that a clause says are recomputed, if it names nothing else."""
    named = _RECOMPUTE.fullmatch(clause)
    words = [word for word in _SEPARATORS.split(named["behind"] or named["before"]) if word] if named else []
    modules = [_SHORT.get(word, word) for word in words]
    return modules if set(modules) <= set(MODULES) else []
