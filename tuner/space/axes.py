"""The dimensions of the search and their values."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import Any, Final

from tuner.core.columns import AXES
from tuner.core.domain import DISPATCHERS, EVEN_PARTITION, OPT_IN, PARTITION, Cluster, Workload
from tuner.core.errors import InputError
from tuner.core.frameworks import record_of
from tuner.core.keys import NUMBERED
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD
from tuner.core.precision import recipe_of
from tuner.core.recompute import GRANULARITIES, MODULES, selecting
from tuner.core.shape import Shape
from tuner.core.text import either, listed
from tuner.core.validation import largest

Axes = Mapping[str, tuple[Any, ...]]

BLOOM_HEADS: Final = (16, 32, 64, 112, 128, 256)
"""Numbers of heads tried in the 48-node study of the BLOOM report."""

SETTABLE: Final = (*AXES, "dp")
"""Names that `--set` accepts: the axes, and `dp`, which is derived from them and can be restricted to values."""

SIMILAR: Final = "similar"
"""Value of `--set shape=similar`: all shapes with about as many parameters as the model."""

_MAX_VALUES: Final = 100_000
_ALIKE: Final = (0.97, 1.03)
"""Range of parameters, relative to the model, within which a shape counts as similar. The BLOOM report compares 177B
with 182B."""


def default_axes(workload: Workload, cluster: Cluster, *, heads: Iterable[int] = ()) -> dict[str, tuple[Any, ...]]:
    """Return every axis with its default values; `heads` is the model's own unless values are given.

    Pipeline degrees are all divisors of the layers, or of the layers with embedding and head. The other limits are
    common practice: tp up to 32 or a node, cp and vpp up to 8, micro batch up to 32. `--set` can exceed them. Axes of
    `OPT_IN` are searched only where `--set` gives them values, but a mixture of experts has every ep that divides the
    experts, and every dispatcher: HybridEP where the NVLink domain is more than a node, DeepEP elsewhere. Layers that
    2, 4 or 8 stages do not divide, with or without embedding and head, also have pipelines of 2, 4, 8 and so on where
    the framework lays out single stages.
    """
    model = workload.model
    record = record_of(workload)
    laid_out = bool(_uneven(model.layers) and record and "layout" in record.partition.value)
    values = {
        "shape": (model.shape,),
        "global_batch": (workload.global_batch,),
        "nodes": tuple(range(1, cluster.nodes + 1)),
        "tp": tuple(_tensor_degrees(cluster)),
        "pp": tuple(_stages(model.layers, cluster.gpus, laid_out=laid_out)),
        "cp": tuple(degree for degree in (1, 2, 4, 8) if degree <= cluster.gpus),
        "micro_batch": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
        "heads": tuple(heads) or (model.heads,),
        "partition": PARTITION if laid_out else EVEN_PARTITION,
        "vpp": tuple(_stages(model.layers, 8, laid_out=laid_out)),
        "sequence_parallel": (False, True),
        "zero": (0, 1, 2, 3),
        "recompute": _recomputations(workload),
        **{axis: (default,) for axis, default in OPT_IN.items()},
    }
    if experts := model.experts:
        values["ep"] = tuple(_divisors(experts.count, at_most=cluster.gpus))
        values["dispatcher"] = ("allgather", "alltoall", "hybridep" if cluster.nvlink_domain else "deepep")
    return {axis: values[axis] for axis in AXES}


def with_shapes(axes: Axes, shapes: Iterable[Shape], cluster: Cluster) -> dict[str, tuple[Any, ...]]:
    """Return the axes with other shapes, and with the pipeline degrees of all of these shapes."""
    shapes, laid_out = tuple(shapes), "layout" in axes["partition"]

    def stages(at_most: int) -> tuple[int, ...]:
        return tuple(sorted({n for shape in shapes for n in _stages(shape.layers, at_most, laid_out=laid_out)}))

    return {**axes, "shape": shapes, "pp": stages(cluster.gpus), "vpp": stages(8)}


def fewest_layers(model: Model) -> int:
    """Return the least depth of a model of this kind; with experts, one layer has them."""
    return model.experts.dense_layers + model.experts.period if model.experts else 1


def similar_shapes(model: Model) -> tuple[Shape, ...]:
    """Return the shapes with about as many parameters as the model, including its own."""
    step = 512 if model.hidden >= 8192 else 128
    widths = range(-(-int(model.hidden * 0.75) // step) * step, int(model.hidden * 1.25) + 1, step)
    depths = range(fewest_layers(model), largest("layers") + 1)
    fewest, most = (share * model.parameters for share in _ALIKE)
    alike = [model.shape]
    for hidden in (width for width in widths if width <= largest("hidden")):
        size = partial(_parameters, model, hidden)
        alike += [
            Shape(hidden=hidden, layers=layers)
            for layers in depths[bisect_left(depths, fewest, key=size) : bisect_right(depths, most, key=size)]
        ]
    return tuple(dict.fromkeys(alike))


def _parameters(model: Model, hidden: int, layers: int) -> int:
    return model.with_shape(Shape(hidden=hidden, layers=layers)).parameters


def parse_setting(text: str) -> tuple[str, tuple[Any, ...]]:
    """Parse `micro_batch=1,2,4`, `nodes=40-48`, `recompute=full` or `shape=14336x72,13824x78`: axis and values.

    A key's word, such as `mbs`, names its axis too.
    """
    axis, equals, values = text.partition("=")
    name = axis.strip()
    axis = name.replace("-", "_")
    axis = NUMBERED.get(axis, axis)
    if axis not in SETTABLE:
        raise InputError(f"--set {text!r}: there is no axis {name!r}; axes are {listed(SETTABLE, limit=20)}.")
    words = [word.strip() for word in values.split(",")]
    if not equals or not all(words):
        raise InputError(f"--set {text!r} lacks a value; write {_EXAMPLE.get(axis, f'{axis}=1,2,4')}.")
    read = _READERS.get(axis, _whole_numbers)
    try:
        parsed = [value for word in words for value in read(word)]
    except ValueError as error:
        raise InputError(f"--set {text!r}: {error}; write {_EXAMPLE.get(axis, f'{axis}=1,2,4')}.") from None
    if len(parsed) > _MAX_VALUES:
        raise InputError(f"--set {axis} has {len(parsed):,} values, more than {_MAX_VALUES:,}.")
    return axis, tuple(dict.fromkeys(parsed))


def _recomputations(workload: Workload) -> tuple[str, ...]:
    """Return the granularities; the experts of Megatron-Core recompute what is cheap in place of flash attention's
    scores, of which it keeps none."""
    record = record_of(workload)
    if record is None or "moe_act" not in record.recompute.value or not workload.model.experts:
        return GRANULARITIES
    if workload.attention in ("eager", "fused") or recipe_of(workload) == "delayed":
        return GRANULARITIES
    modules = ("layernorm", "moe_act", *(("mla_up_proj",) if workload.model.latent else ()))
    return ("none", selecting(modules), "full")


def _uneven(layers: int) -> bool:
    """Return whether 2, 4 or 8 stages divide neither the layers nor those with embedding and head."""
    return any(layers % stages and (layers + 2) % stages for stages in (2, 4, 8) if stages <= layers)


def _stages(layers: int, at_most: int, *, laid_out: bool) -> list[int]:
    """Return the divisors of the layers, or of those with embedding and head; with layouts also the powers of two."""
    powers = [1 << bit for bit in range(layers.bit_length())] if laid_out else []
    found = {*_divisors(layers, layers + 2, at_most=at_most), *powers}
    return sorted(degree for degree in found if degree <= at_most)


def _tensor_degrees(cluster: Cluster) -> list[int]:
    powers, node = [1 << bit for bit in range(6)], cluster.gpus_per_node
    nodes = [d for d in range(2 * node, cluster.domain + 1, node) if cluster.domain % d == 0 or d & (d - 1) == 0]
    return sorted({d for d in (*_divisors(node), *powers, *nodes) if d <= cluster.gpus})


def _divisors(*numbers: int, at_most: int | None = None) -> list[int]:
    """Return all divisors of any of the numbers, ascending."""
    divisors = {
        divisor
        for number in numbers
        for small in range(1, int(number**0.5) + 1)
        if number % small == 0
        for divisor in (small, number // small)
    }
    return sorted(divisor for divisor in divisors if at_most is None or divisor <= at_most)


def _whole_numbers(word: str) -> list[int]:
    if not (match := re.fullmatch(r"([0-9]{1,12})(?:-([0-9]{1,12}))?", word)):
        raise ValueError(f"{word!r} is neither a whole number nor a range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range {word} runs backwards")
    if last - first >= _MAX_VALUES:
        raise ValueError(f"the range {word} has more than {_MAX_VALUES:,} values")
    return list(range(first, last + 1))


def _switches(word: str) -> list[bool]:
    known = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if word.casefold() not in known:
        raise ValueError(f"{word!r} is neither on nor off")
    return [known[word.casefold()]]


def _shapes(word: str) -> list[Shape | str]:
    if word == SIMILAR:
        return [SIMILAR]
    if not (match := re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", word)):
        raise ValueError(f"{word!r} is neither hidden x layers nor {SIMILAR}")
    return [Shape(hidden=int(match[1]), layers=int(match[2]))]


def _one_of(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def read(word: str) -> list[str]:
        if word not in choices:
            raise ValueError(f"{word!r} is not {either(choices)}")
        return [word]

    return read


def _recompute(word: str) -> list[str]:
    if word in GRANULARITIES:
        return [word]
    if unknown := [module for module in word.split("+") if module not in MODULES]:
        raise ValueError(
            f"{unknown[0]!r} is neither a granularity ({listed(GRANULARITIES)}) nor a module ({either(MODULES)})"
        )
    return [selecting(word.split("+"))]


_READERS: Final[Mapping[str, Callable[[str], list[Any]]]] = {
    "sequence_parallel": _switches,
    "moe_overlap": _switches,
    "shape": _shapes,
    "recompute": _recompute,
    "partition": _one_of(PARTITION),
    "offload": _one_of(OFFLOAD),
    "dispatcher": _one_of(DISPATCHERS),
}
_EXAMPLE: Final = {
    "sequence_parallel": "sequence_parallel=on,off",
    "moe_overlap": "moe_overlap=on,off",
    "shape": "shape=14336x72,13824x78",
    "recompute": "recompute=none,layernorm+moe_act,full",
    "partition": "partition=layers,embedding",
    "offload": "offload=none,optimizer",
    "dispatcher": "dispatcher=alltoall,deepep",
}


def axes_document(axes: Axes) -> dict[str, list[Any]]:
    """Return the values of each axis as a JSON document, without the axes of `OPT_IN` that have their defaults."""
    return {
        axis: [str(value) if isinstance(value, Shape) else value for value in values]
        for axis, values in axes.items()
        if not _is_default(axes, axis)
    }


def searched(axes: Axes) -> frozenset[str]:
    """Return the axes of `OPT_IN` that have another value than their default."""
    return frozenset(axis for axis in OPT_IN if not _is_default(axes, axis))


def about_unused(reads: Iterable[str], unused: Set[str]) -> bool:
    """Return whether all axes of `OPT_IN` that a rule reads, one at least, are unused: it then cannot be broken."""
    requested = OPT_IN.keys() & set(reads)
    return bool(requested) and requested <= unused


def _is_default(axes: Axes, axis: str) -> bool:
    return axis in OPT_IN and tuple(axes[axis]) == (OPT_IN[axis],)
