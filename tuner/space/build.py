"""Build a space from the user's arguments and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, get_args

from tuner.core import catalog
from tuner.core.domain import Attention, Cluster, Gpu, Model, Precision, Ramp, Shape, Workload
from tuner.core.errors import InputError
from tuner.core.text import either, listed
from tuner.space.axes import BLOOM_HEADS, default_axes, parse_setting, similar_shapes, with_shapes
from tuner.space.rules import RuleSet
from tuner.space.rules.quantities import LONGEST_FUSED
from tuner.space.space import Space

DEFAULT_MODEL: Final = "bloom-14336x72"
DEFAULT_CLUSTER: Final = "bloom-48"
DEFAULT_GLOBAL_BATCH: Final = 2048


def space_for(
    *,
    model: str | Model | None = None,
    cluster: str | Cluster | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    gpu: str | Gpu | None = None,
    global_batch: int | None = None,
    seq: int | None = None,
    precision: Precision | None = None,
    attention: Attention | None = None,
    tokens: float | None = None,
    settings: Iterable[str] = (),
    allow: Iterable[str] = (),
    ramp: str | None = None,
    exact_nodes: bool = False,
) -> Space:
    """Return the space that the arguments, which mirror those of the command line, describe.

    Without arguments it is the 48-node study of the BLOOM report, which also searches the number of heads. A specified
    model keeps its heads unless `settings` lists other values.
    """
    machines = _cluster(cluster, nodes=nodes, gpus_per_node=gpus_per_node, gpu=gpu)
    described = _model(model, seq)
    defaults = _usual(model, described, machines.gpu, precision)
    workload = Workload(
        model=described,
        global_batch=DEFAULT_GLOBAL_BATCH if global_batch is None else global_batch,
        precision=precision or defaults["precision"],
        attention=attention or defaults["attention"],
        tokens=tokens or 0.0,
        ramp=None if ramp is None else parse_ramp(ramp),
    )
    _check_support(machines.gpu, workload)
    axes = default_axes(workload, machines, heads=() if model is not None else BLOOM_HEADS)
    pinned = dict(_settings(settings))
    if "shape" in pinned:
        pinned["shape"] = _shapes(pinned["shape"], workload.model)
        axes = with_shapes(axes, pinned["shape"], machines)
    if exact_nodes and "nodes" in pinned:
        raise InputError("--exact-nodes uses all nodes and --set nodes names others; give one of the two.")
    if exact_nodes:
        axes["nodes"] = (machines.nodes,)
    return Space(
        workload=workload,
        cluster=machines,
        rules=RuleSet(allowed=frozenset(allow)),
        axes={**axes, **{axis: values for axis, values in pinned.items() if axis != "dp"}},
        dp=pinned.get("dp", ()),
        unpinned=axes,
    )


def parse_ramp(text: str) -> Ramp:
    """Parse `START,INCREMENT`, such as `32,32`, as a ramp-up."""
    if not (match := re.fullmatch(r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*", text)):
        raise InputError(f"--ramp {text!r} is not START,INCREMENT; write for example --ramp 192,16.")
    return Ramp(start=int(match[1]), increment=int(match[2]))


def _settings(settings: Iterable[str]) -> list[tuple[str, tuple[Any, ...]]]:
    parsed = [parse_setting(text) for text in settings]
    axes = [axis for axis, _ in parsed]
    twice = sorted({axis for axis in axes if axes.count(axis) > 1})
    if twice:
        raise InputError(f"--set names {listed(twice)} more than once; give all values at once: {twice[0]}=A,B.")
    return parsed


def _shapes(values: Iterable[Shape | str], model: Model) -> tuple[Shape, ...]:
    """Return the requested shapes, with `similar` expanded."""
    expanded = [similar_shapes(model) if isinstance(value, str) else (value,) for value in values]
    return tuple(dict.fromkeys(shape for shapes in expanded for shape in shapes))


def _cluster(
    source: str | Cluster | None, *, nodes: int | None, gpus_per_node: int | None, gpu: str | Gpu | None
) -> Cluster:
    """Return the cluster with any overrides of nodes and GPUs; a network specific to the cluster is kept."""
    known = source if isinstance(source, Cluster) else catalog.cluster(DEFAULT_CLUSTER if source is None else source)
    card = known.gpu if gpu is None else gpu if isinstance(gpu, Gpu) else catalog.gpu(gpu)
    own_network = known.inter_node.bandwidth != known.gpu.inter_node_bandwidth * known.gpus_per_node
    own_fabric = known.intra_node.bandwidth != known.gpu.intra_node_bandwidth
    stays = gpu is None or source is not None
    return catalog.make_cluster(
        name=known.name if stays else card.name,
        nodes=known.nodes if nodes is None else nodes,
        gpus_per_node=known.gpus_per_node if gpus_per_node is None else gpus_per_node,
        gpu=card,
        intra=known.intra_node.bandwidth if own_fabric and stays else 0.0,
        inter=known.inter_node.bandwidth if own_network and stays else 0.0,
    )


def _model(source: str | Model | None, seq: int | None) -> Model:
    model = source if isinstance(source, Model) else catalog.model(DEFAULT_MODEL if source is None else source)
    if seq is None:
        return model
    return replace(model, seq=seq, max_positions=0 if model.max_positions == model.seq else model.max_positions)


def _usual(named: str | Model | None, model: Model, gpu: Gpu, precision: Precision | None) -> dict[str, Any]:
    """Return the default precision and attention kernel: the preset's, or else the best that the GPU supports."""
    defaults: dict[str, Any] = {"precision": "bf16" if "bf16" in gpu.peak_flops else "fp16", "attention": gpu.attention}
    if not isinstance(named, Model):
        defaults.update(catalog.trained_with(DEFAULT_MODEL if named is None else named))
    if defaults["precision"] == "bf16" and "bf16" not in gpu.peak_flops:
        defaults["precision"] = "fp16"
    if precision == "fp32":
        defaults["attention"] = "eager"
    elif defaults["attention"] == "fused" and (precision == "fp8" or model.seq > LONGEST_FUSED or model.seq % 4):
        defaults["attention"] = "eager" if gpu.attention == "fused" else gpu.attention
    return defaults


def _check_support(gpu: Gpu, workload: Workload) -> None:
    if workload.precision not in gpu.peak_flops:
        supported = [precision for precision in gpu.peak_flops if precision in get_args(Precision)]
        raise InputError(f"{gpu.name} has no {workload.precision}; it has {listed(supported)}.")
    if workload.attention not in gpu.kernels:
        raise InputError(f"{gpu.name} does not run {workload.attention} attention; it runs {either(gpu.kernels)}.")
