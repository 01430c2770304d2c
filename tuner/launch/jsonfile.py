"""Small JSON documents as files: written whole or not at all, and read without trust."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.wholefile import write_whole


def write_object(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    write_whole(path, json.dumps(document, indent=1) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """The document of a file; empty where there is none, or another thing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
