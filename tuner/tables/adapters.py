"""Rows of adapter training (LoRA, QLoRA, PEFT), which the cost model does not describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuner.tables.column_aliases import folded_name

ADAPTER_COLUMNS: Final = frozenset({"lora", "qlora", "peft", "lora_rank", "lora_r"})
"""Columns whose value is a method or a rank; a bare 0 or `none` means that the whole model is trained."""

_WORD: Final = r"(?<![a-z])(?:q?lora|peft)(?![a-z])"
_GAP: Final = r"[\s_-]{1,9}"
_FOUND: Final = re.compile(_WORD, re.IGNORECASE)
_OTHER: Final = re.compile(
    r"\b[a-z][a-z0-9+]{1,9}://[^\s,;)]*"
    rf"|(?<![a-z])(?:q|kv){_GAP}lora{_GAP}(?:rank|dim)"
    rf"|(?<![a-z])(?:no|non|not|without|w/o|vs\.?|versus){_GAP}(?:(?:an?|any|using){_GAP})?{_WORD}"
    rf"(?:\s*(?:,|/|\+|&|\bor\b|\band\b|\bnor\b)\s*{_WORD})*"
    rf"|{_WORD}(?:[\s_-]?r(?:ank)?(?![a-z]))?[\"'`]?[:=\s]*[\"'`_-]?"
    rf"(?:(?:no|none|off|false|disabled)(?![\w-])(?:\s{_WORD})?|(?<![_-])0(?:\.0*)?(?![\w.-]))",
    re.IGNORECASE,
)
"""Links, the ranks of latent attention, and negations."""


def adapters_named(cells: Mapping[str, str]) -> str | None:
    """Return the word by which a row is one of adapter training, None if it is not."""
    texts = (
        f"{column}={value}" if (column := folded_name(name)) in ADAPTER_COLUMNS else value
        for name, value in cells.items()
        if value
    )
    found = _FOUND.search(_OTHER.sub(" ; ", " ; ".join(texts)))
    return found[0] if found else None
