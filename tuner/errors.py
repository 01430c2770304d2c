"""The errors of the Python API."""

from __future__ import annotations

from tuner.core.errors import (
    BadKey,
    DiskFull,
    EmptySpace,
    InputError,
    LaunchError,
    MissingDependency,
    NothingUsable,
    StudyError,
    TunerError,
    TunerWarning,
    UnknownName,
)

__all__ = [
    "BadKey",
    "DiskFull",
    "EmptySpace",
    "InputError",
    "LaunchError",
    "MissingDependency",
    "NothingUsable",
    "StudyError",
    "TunerError",
    "TunerWarning",
    "UnknownName",
]
