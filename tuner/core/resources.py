"""Paths of the files that ship with the package.

`ds_configs/` and `templates/` are at the top of the repository and, in a wheel, inside the package. Both locations are
searched, so that a wheel and an editable install behave the same.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return the shipped folder `name`: the package's copy in a wheel, the repository's in an editable install."""
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"this installation lacks its folder {name!r}; install tuner again")


def ds_config(zero: int) -> Path:
    """Return the path of the base DeepSpeed config for a ZeRO stage."""
    return folder("ds_configs") / f"zero{zero}.json"


def catalog_files() -> list[Path]:
    """Return the shipped catalog files, in reading order."""
    return sorted(folder("data").glob("*.toml"))
