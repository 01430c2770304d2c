"""A training job's assignment: the launcher writes it and the worker reads it.

A JSON file of the schema `tuner/assignment/1`. Paths in it are taken from its own folder, so that a job's folder can be
moved as a whole. A field that is unknown or of the wrong type is refused, by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from tuner.core.domain import Model, Ramp, Shape, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.text import listed, shown

SCHEMA: Final = "tuner/assignment/1"

_LONGEST: Final = 1_000_000
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One job: what to train, on which topology, for how long, and where its result goes."""

    workload: Workload
    topology: Topology
    gpus_per_node: int
    ds_config: str
    """Path of DeepSpeed's config."""
    result: str
    """Path of the result file; that it is there and whole is the proof of success."""
    iterations: int = 2
    seed: int = 0
    timeout: float = 600.0
    """Seconds that a collective operation may take before the job gives up."""

    def __post_init__(self) -> None:
        for name, least in (("gpus_per_node", 1), ("iterations", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value < 2**31:
                raise InputError(f"assignment field {name} must be a whole number from {least}, not {shown(value)}.")
        if type(self.timeout) not in (int, float) or not 0 < self.timeout < 1e7:
            raise InputError(f"assignment field timeout must be finite and positive, not {shown(self.timeout)}.")
        for name in ("ds_config", "result"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise InputError(f"assignment field {name} must be a path, not {shown(getattr(self, name))}.")

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Assignment:
        """Read what `write` wrote; the paths come out absolute."""
        try:
            if path.stat().st_size > _LONGEST:
                raise InputError(f"{path} is larger than {_LONGEST:,} bytes, which no assignment is.")
            document = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"the assignment {path} cannot be read: {error}.") from error
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise InputError(f"{path} is not an assignment: its schema must be {SCHEMA!r}.")
        document["workload"] = _workload(document.get("workload"))
        document["topology"] = _made(Topology, document.get("topology"), {"shape": Shape})
        for name in ("ds_config", "result"):
            if isinstance(document.get(name), str):
                document[name] = str(path.resolve().parent / document[name])
        return _made(cls, document, {})


def _workload(document: Any) -> Workload:
    if isinstance(document, dict) and isinstance(document.get("model"), dict):
        document = {**document, "model": _made(Model, document["model"], {})}
    return _made(Workload, document, {"ramp": Ramp})


def _made(kind: type[_Part], document: Any, nested: Mapping[str, type[Any]]) -> _Part:
    """The dataclass that a JSON object describes."""
    what = kind.__name__.lower()
    if not isinstance(document, dict):
        raise InputError(f"an assignment's {what} must be an object, not {shown(document)}.")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type] # all of them are dataclasses
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InputError(f"{what} has no field {listed(unknown)}; it has {listed(known, limit=40)}.")
    lacking = [
        name
        for name, field in known.items()
        if name not in document and field.default is MISSING and field.default_factory is MISSING
    ]
    if lacking:
        raise InputError(f"{what} lacks {listed(lacking)}.")
    given = {
        name: _made(nested[name], value, {}) if name in nested and value is not None else value
        for name, value in document.items()
    }
    return kind(**given)
