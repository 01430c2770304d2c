"""Where the files that ship with the package are found.

`ds_configs/` and `templates/` lie at the top of the repository, where people look for them, and inside the package
once a wheel is built. Both places are asked, so that a wheel and an editable install behave alike.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """The shipped folder `name`: the package's own copy in a wheel, the repository's in an editable install."""
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"this installation lacks its folder {name!r}; install tuner again")


def ds_config(zero: int) -> Path:
    """The base DeepSpeed config of a ZeRO stage."""
    return folder("ds_configs") / f"zero{zero}.json"


def catalog_files() -> list[Path]:
    """The catalog's own TOML files, in the order in which they are read."""
    return sorted(folder("data").glob("*.toml"))
