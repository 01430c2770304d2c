"""Compare a measurement of the production run with the expected performance in an export's `topology.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

from tuner.audit.subject import Subject
from tuner.core.catalog import catalog, read_text
from tuner.core.documents import model_of
from tuner.core.domain import EXPERT_AXES, OPT_IN, Attention, Precision
from tuner.core.errors import InputError
from tuner.core.text import interval, listed, shown, span
from tuner.core.text import seconds as printed
from tuner.logs import LogRun, quantities, stated
from tuner.space.build import SpaceArguments, given_arguments

SCHEMA: Final = "tuner/topology/1"
_LOGGED: Final = ("zero", "sequence_parallel")
"""Settings of a topology that a log's arguments state."""
_KEYED: Final = (*_LOGGED, "recompute", "partition", *OPT_IN)
"""Settings of a topology that its key states."""
_SIZES: Final = ("layers", "hidden", "heads", "seq")
_MACHINES: Final = ("nodes", "gpus_per_node", "nvlink_domain")
_REQUIRED: Final = ("sec_per_iter", "sec_per_iter_low", "sec_per_iter_high", "days")

MEMORY_TOLERANCE: Final = 1.05
"""Measured over expected memory up to which a run uses memory as expected: allocators reserve more over time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """The performance that an export expects."""

    key: str
    source: str
    sec_per_iter: float
    low: float
    high: float
    memory_gib: float | None
    days: float
    extrapolated: bool = False
    """Whether nothing ran at full size."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values of the topology and the sizes of the model, by name."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The model, batch and cluster of the run, as arguments of `space_for`."""

    def described(self, given: SpaceArguments) -> SpaceArguments:
        """Return a description completed with that of the export; a given cluster replaces the export's machines."""
        stated = given_arguments(given)
        replaced = (*_MACHINES, "gpu") if "cluster" in stated else ()
        usual = {name: value for name, value in self.description.items() if name not in replaced}
        return cast("SpaceArguments", {**usual, **stated})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A measurement compared with the expected performance."""

    expected: ExpectedResult
    delivered: bool
    sec_ratio: float
    """Measured over expected seconds per iteration."""
    days: float
    """Time of the whole training at the measured speed."""
    memory_ratio: float | None
    sentences: tuple[str, ...]
    mismatch: str = ""
    """How the log's job differs from the expected one; empty if the log shows no difference."""


def read_expected(path: Path) -> ExpectedResult:
    """Read the expected performance from a `topology.json`."""
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a topology.json written by tuner export: its schema must be {SCHEMA!r}.")
    expected = document.get("expected")
    if not isinstance(expected, dict) or not all(_positive(expected.get(name)) for name in _REQUIRED):
        raise InputError(f"{path} lacks the expected performance; export the study again.")
    source, memory = expected.get("source"), expected.get("memory_gib")
    if source not in ("measured", "simulated", "estimated"):
        raise InputError(f"{path} has the source {shown(source)}; it must be measured, simulated or estimated.")
    try:
        values, description = _values(document), _description(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} has a model or cluster that cannot be read; export the study again.") from None
    return ExpectedResult(
        key=str(document.get("key")),
        source="SIMULATED" if source == "simulated" else source,
        extrapolated=expected.get("extrapolated") is True,
        sec_per_iter=float(expected["sec_per_iter"]),
        low=float(expected["sec_per_iter_low"]),
        high=float(expected["sec_per_iter_high"]),
        memory_gib=float(memory) if memory is not None and _positive(memory) else None,
        days=float(expected["days"]),
        values=values,
        description=description,
    )


def _values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology's values and the sizes of its model, which a partly understood one may count otherwise."""
    topology = document["topology"] if isinstance(document.get("topology"), dict) else {}
    model = document.get("model") or {}
    mixture = (model.get("identity") or {}).get("experts")
    usual = {name: value for name, value in OPT_IN.items() if mixture or name not in EXPERT_AXES}
    sizes = {name: model[name] for name in _SIZES if name in model and not document.get("notes")}
    return {**(usual if topology else {}), **topology, **sizes}


def _description(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model, batch and cluster of an export; precision and attention go with a GPU of the catalog."""
    found: dict[str, Any] = {}
    model, cluster = document.get("model") or {}, document.get("cluster") or {}
    if "identity" in model:
        found["model"] = model_of({**model["identity"], "name": model["name"]})
    if batch := (document.get("topology") or {}).get("global_batch"):
        found["global_batch"] = batch
    found |= {name: cluster[name] for name in _MACHINES if name in cluster}
    if cluster.get("gpu") in catalog().gpu:
        known = {"precision": get_args(Precision), "attention": get_args(Attention)}
        workload = document.get("workload") or {}
        found["gpu"] = cluster["gpu"]
        found |= {name: workload[name] for name, values in known.items() if workload.get(name) in values}
    return found


def mismatch(expected: ExpectedResult, run: LogRun, subject: Subject | None, global_batch: int | None) -> str:
    """Return how a log's arguments, batch or key differ from the expected job; empty if they do not."""
    found = [*stated(run).items()]
    if subject:
        names = _LOGGED if subject.by_log else _KEYED
        sizes = quantities(subject.workload, subject.topology)
        if global_batch:
            sizes.pop("global_batch", None)  # of the iterations, which may be more than the arguments state
        found += sizes.items()
        found += [(name, getattr(subject.topology, name)) for name in names]
    found += [("global_batch", global_batch)] if global_batch else []
    return listed(
        f"{name} {value} instead of {expected.values[name]}"
        for name, value in dict.fromkeys(found)
        if expected.values.get(name, value) != value
    )


def delivered(expected: ExpectedResult, seconds: float, memory_gib: float | None, *, difference: str = "") -> Delivery:
    """Compare a measurement with the expected performance; a `difference` is that of the jobs.

    A run delivers if its time is not above the 80% interval and its memory is within the tolerance.
    """
    sec_ratio = seconds / expected.sec_per_iter
    days = expected.days * sec_ratio
    takes, expects = span(days), span(expected.days)
    source = f"{expected.source}{', extrapolated' * expected.extrapolated}"
    speed = "Slower than" if seconds > expected.high else "Faster than" if seconds < expected.low else "As fast as"
    sentences = [
        f"{speed} expected: {printed(seconds)} s per iteration, {abs(sec_ratio - 1):.1%} "
        f"{'more' if sec_ratio >= 1 else 'less'} than {printed(expected.sec_per_iter)} s ({source}, 80% "
        f"interval {interval(expected.low, expected.high)}). At this speed, training takes {takes}"
        f"{f' instead of {expects}' if takes != expects else ', as expected'}."
    ]
    memory_ratio = memory_gib / expected.memory_gib if memory_gib and expected.memory_gib else None
    fits = memory_ratio is None or memory_ratio <= MEMORY_TOLERANCE
    if memory_ratio is not None:
        verdict = "within expectation" if fits else "above expectation"
        sentences.append(f"Memory {verdict}: {memory_gib:.1f} GiB measured, {expected.memory_gib:.1f} GiB expected.")
    return Delivery(
        expected=expected,
        delivered=seconds <= expected.high and fits and not difference,
        sec_ratio=sec_ratio,
        days=days,
        memory_ratio=memory_ratio,
        sentences=tuple(sentences),
        mismatch=difference,
    )


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
