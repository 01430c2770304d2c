"""The assignment of a training job, written by the launcher and read by the worker.

It is a JSON file with the schema `tuner/assignment/1`. Its paths are relative to its folder, so that a job's folder can
be moved. Unknown fields and fields of the wrong type are errors that name the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from tuner.core.documents import workload_document
from tuner.core.domain import Ramp, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import PARTS, Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.shape import Shape
from tuner.core.stack import Stack
from tuner.core.text import listed, shown

SCHEMA: Final = "tuner/assignment/1"

_LONGEST: Final = 1_000_000
_MODEL_PARTS: Final = {"rotary_scaling": RotaryScaling, **PARTS}
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One job: workload, topology, number of iterations, and the path of the result."""

    workload: Workload
    topology: Topology
    gpus_per_node: int
    ds_config: str
    """Path of DeepSpeed's config."""
    result: str
    """Path of the result file. The job succeeded if and only if this file exists and is complete."""
    iterations: int = 2
    """Of each batch."""
    batches: tuple[int, ...] = ()
    """Global batches to train with one after the other, the last of them that of the workload; empty: only that one."""
    seed: int = 0
    timeout: float = 600.0
    """Timeout of a collective operation, in seconds."""

    def __post_init__(self) -> None:
        for name, minimum in (("gpus_per_node", 1), ("iterations", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or not minimum <= value < 2**31:
                raise InputError(
                    f"assignment field {name} must be a whole number of at least {minimum}, not {shown(value)}."
                )
        if type(self.timeout) not in (int, float) or not 0 < self.timeout < 1e7:
            raise InputError(f"assignment field timeout must be finite and positive, not {shown(self.timeout)}.")
        self._check_batches()
        for name in ("ds_config", "result"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise InputError(f"assignment field {name} must be a path, not {shown(getattr(self, name))}.")

    def _check_batches(self) -> None:
        if not self.batches:
            return
        step = self.topology.step_batch
        last = self.workload.as_in(self.topology).global_batch
        for batch in self.batches:
            if type(batch) is not int or batch < step or batch % step:
                raise InputError(
                    f"assignment field batches must have multiples of micro_batch x dp = {step}, not {shown(batch)}."
                )
        if self.batches[-1] != last:
            raise InputError(
                f"the last of an assignment's batches must be the workload's, {last}, not {self.batches[-1]}."
            )

    @property
    def document(self) -> dict[str, Any]:
        """The assignment as a JSON document; without `batches` if there are none."""
        document = {"schema": SCHEMA, **asdict(self), "workload": workload_document(self.workload)}
        return {name: value for name, value in document.items() if name != "batches" or value}

    def write(self, path: Path) -> None:
        """Write the assignment as JSON."""
        path.write_text(json.dumps(self.document, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Assignment:
        """Read an assignment that `write` wrote and make its paths absolute."""
        try:
            if path.stat().st_size > _LONGEST:
                raise InputError(f"{path} is larger than {_LONGEST:,} bytes, which no assignment is.")
            document = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"the assignment {path} cannot be read: {error}.") from error
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise InputError(f"{path} is not an assignment: its schema must be {SCHEMA!r}.")
        document["workload"] = _workload(document.get("workload"))
        document["topology"] = _parse(Topology, document.get("topology"), {"shape": Shape})
        for name in ("ds_config", "result"):
            if isinstance(document.get(name), str):
                document[name] = str(path.resolve().parent / document[name])
        return _parse(cls, document, {})


def _workload(document: Any) -> Workload:
    if isinstance(document, dict) and isinstance(document.get("model"), dict):
        document = {**document, "model": _parse(Model, document["model"], _MODEL_PARTS)}
    return _parse(Workload, document, {"ramp": Ramp, "stack": Stack})


def _parse(part_type: type[_Part], document: Any, nested: Mapping[str, type[Any]]) -> _Part:
    """Return the dataclass that a JSON object describes."""
    part = part_type.__name__.lower()
    if not isinstance(document, dict):
        raise InputError(f"an assignment's {part} must be an object, not {shown(document)}.")
    known = {field.name: field for field in fields(part_type)}  # type: ignore[arg-type] # always a dataclass
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InputError(f"{part} has no field {listed(unknown)}; it has {listed(known, limit=40)}.")
    missing = [
        name
        for name, field in known.items()
        if name not in document and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise InputError(f"{part} lacks {listed(missing)}.")
    values = {
        name: _parse(nested[name], value, {}) if name in nested and value is not None else value
        for name, value in document.items()
    }
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return part_type(**values)
