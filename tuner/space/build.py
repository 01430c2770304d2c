"""Build a space from the user's arguments and defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypedDict, get_args

from tuner.core import catalog
from tuner.core.domain import (
    QUANTIZED,
    Attention,
    Cluster,
    Framework,
    Gpu,
    Optimizer,
    Precision,
    PrecisionRecipe,
    Ramp,
    Routing,
    Workload,
)
from tuner.core.errors import InputError, UnknownName
from tuner.core.frameworks import ANY, RECORDS, FrameworkChoice, check_supported
from tuner.core.model import Model
from tuner.core.precision import check_bf16_layers, check_fp8_weights, check_precision, parse_bf16_layers
from tuner.core.quantity import parse_count, texts_of
from tuner.core.shape import Shape
from tuner.core.stack import Stack
from tuner.core.text import either, listed
from tuner.core.validation import plain
from tuner.space.axes import BLOOM_HEADS, default_axes, parse_setting, similar_shapes, with_shapes
from tuner.space.rules import RuleSet
from tuner.space.rules.quantities import LONGEST_FUSED
from tuner.space.space import Space

DEFAULT_MODEL: Final = "bloom-14336x72"
DEFAULT_CLUSTER: Final = "bloom-48"
DEFAULT_GLOBAL_BATCH: Final = 2048
DEFAULT_FRAMEWORK: Final[Framework] = "megatron-core"


class SpaceArguments(TypedDict, total=False):
    """The keyword arguments of `space_for`, for functions that describe a space the same way."""

    model: str | os.PathLike[str] | Model | None
    cluster: str | os.PathLike[str] | Cluster | None
    nodes: int | None
    gpus_per_node: int | None
    gpu: str | Gpu | None
    nvlink_domain: int | None
    global_batch: int | None
    seq: int | None
    precision: Precision | None
    attention: Attention | None
    tokens: float | str | None
    framework: FrameworkChoice | None
    precision_recipe: PrecisionRecipe | None
    fp8_weights: bool
    bf16_layers: str | None
    optimizer: Optimizer | None
    routing: Routing | None
    settings: Iterable[str]
    allow: Iterable[str]
    ramp: str | None
    exact_nodes: bool


def space_for(
    *,
    model: str | os.PathLike[str] | Model | None = None,
    cluster: str | os.PathLike[str] | Cluster | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    gpu: str | Gpu | None = None,
    nvlink_domain: int | None = None,
    global_batch: int | None = None,
    seq: int | None = None,
    precision: Precision | None = None,
    attention: Attention | None = None,
    tokens: float | str | None = None,
    framework: FrameworkChoice | None = None,
    precision_recipe: PrecisionRecipe | None = None,
    fp8_weights: bool = False,
    bf16_layers: str | None = None,
    optimizer: Optimizer | None = None,
    routing: Routing | None = None,
    settings: Iterable[str] = (),
    allow: Iterable[str] = (),
    ramp: str | None = None,
    exact_nodes: bool = False,
) -> Space:
    """Return the space that the arguments, which mirror those of the command line, describe.

    Without arguments it is the 48-node study of the BLOOM report, which also searches the number of heads. A specified
    model keeps its heads unless `settings` lists other values. The `framework` is the one that a preset was trained
    with, or else megatron-core; with "any", the laws of no framework apply.
    """
    settings, allow = texts_of("settings", settings), texts_of("allow", allow)
    nodes, gpus_per_node, nvlink_domain = plain(nodes), plain(gpus_per_node), plain(nvlink_domain)
    global_batch, seq = plain(global_batch), plain(seq)
    tokens = parse_count(tokens) if isinstance(tokens, str) else plain(tokens)
    model = os.fspath(model) if isinstance(model, os.PathLike) else model
    cluster = os.fspath(cluster) if isinstance(cluster, os.PathLike) else cluster
    arguments = given_arguments(locals())
    machines = _cluster(cluster, nodes=nodes, gpus_per_node=gpus_per_node, gpu=gpu, nvlink_domain=nvlink_domain)
    described = model_of(model, seq)
    trained_with = _trained_with(model)
    runs_on = _framework(framework, trained_with, precision, attention)
    defaults = _usual(trained_with, described, machines.gpu, precision, runs_on)
    check_precision(precision or defaults["precision"], machines.gpu, precision_recipe)
    kept = parse_bf16_layers(bf16_layers) if bf16_layers is not None else (0, 0)
    stack = Stack(quantized_weights=fp8_weights or None, bf16_layers=kept if any(kept) else None)
    with _naming_options(global_batch=global_batch, tokens=tokens):
        workload = Workload(
            model=described,
            global_batch=DEFAULT_GLOBAL_BATCH if global_batch is None else global_batch,
            precision=precision or defaults["precision"],
            attention=attention or defaults["attention"],
            tokens=tokens or 0.0,
            framework=runs_on,
            parallel_loss=runs_on != "fsdp2",
            precision_recipe=precision_recipe,
            optimizer=optimizer or "adam",
            routing=routing or "balanced",
            ramp=None if ramp is None else parse_ramp(ramp),
            stack=None if stack == Stack() else stack,
        )
    if fp8_weights:
        check_fp8_weights(workload)
    if any(kept):
        check_bf16_layers(workload)
    _check_support(machines.gpu, workload)
    axes = default_axes(workload, machines, heads=() if model is not None else BLOOM_HEADS)
    pinned = dict(_settings(settings))
    if "shape" in pinned:
        pinned["shape"] = _shapes(pinned["shape"], workload.model)
        axes = with_shapes(axes, pinned["shape"], machines)
    if exact_nodes and "nodes" in pinned:
        raise InputError("--exact-nodes uses all nodes, but --set nodes selects others; use one of the two.")
    if exact_nodes:
        axes["nodes"] = (machines.nodes,)
    if "heads" not in pinned and axes["heads"] == (described.heads,) and described.heads % described.kv_heads:
        raise InputError(
            f"{described.name}: heads must be a multiple of kv_heads, but {described.heads} is not a multiple of "
            f"{described.kv_heads}."
        )
    return Space(
        workload=workload,
        cluster=machines,
        rules=RuleSet(allowed=frozenset(allow)),
        axes={**axes, **{axis: values for axis, values in pinned.items() if axis != "dp"}},
        dp=pinned.get("dp", ()),
        unpinned=axes,
        arguments=arguments,
    )


def given_arguments(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a description that are not left at their defaults."""
    return {
        name: value
        for name, value in description.items()
        if value is not None and value is not False and not (isinstance(value, tuple) and not value)
    }


def space_or(
    space: Space | None, description: SpaceArguments, describe: Callable[[SpaceArguments], Space] | None = None
) -> Space:
    """Return the given space, or the space of a description; raise if both are given.

    `describe` makes the space; without it, `space_for` does.
    """
    if space is None:
        return describe(description) if describe else space_for(**description)
    if given := given_arguments(description):
        raise InputError(f"give either a space or its description, not both a space and {next(iter(given))}.")
    return space


def of_a_job(description: SpaceArguments) -> SpaceArguments:
    """Return the description of a job that is sized or measured: a framework's laws apply only if it is named."""
    job: SpaceArguments = {**description}
    job["framework"] = description.get("framework") or ANY
    return job


def default_framework(description: SpaceArguments) -> Framework:
    """Return the framework of a description that names none: its preset's, or else megatron-core."""
    precision, attention = description.get("precision"), description.get("attention")
    return _framework(None, _trained_with(description.get("model")), precision, attention) or DEFAULT_FRAMEWORK


def _trained_with(model: str | os.PathLike[str] | Model | None) -> Mapping[str, Any]:
    if isinstance(model, Model):
        return {}
    return catalog.trained_with(DEFAULT_MODEL if model is None else os.fspath(model))


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
    source: str | Cluster | None,
    *,
    nodes: int | None,
    gpus_per_node: int | None,
    gpu: str | Gpu | None,
    nvlink_domain: int | None,
) -> Cluster:
    """Return the cluster with any overrides of nodes and GPUs; a network specific to the cluster is kept."""
    known = source if isinstance(source, Cluster) else catalog.cluster(DEFAULT_CLUSTER if source is None else source)
    card = known.gpu if gpu is None else gpu if isinstance(gpu, Gpu) else catalog.gpu(gpu)
    own_network = known.inter_node.bandwidth != known.gpu.inter_node_bandwidth * known.gpus_per_node
    own_fabric = known.intra_node.bandwidth != known.gpu.intra_node_bandwidth
    stays = gpu is None or source is not None
    usual_node = known.gpus_per_node if stays else card.gpus_per_node or known.gpus_per_node
    per_node = usual_node if gpus_per_node is None else gpus_per_node
    usual = known.nvlink_domain if stays else catalog.usual_domain(card, per_node)
    with _naming_options(nodes=nodes, gpus_per_node=gpus_per_node, nvlink_domain=nvlink_domain):
        return catalog.make_cluster(
            name=known.name if stays else card.name,
            nodes=known.nodes if nodes is None else nodes,
            gpus_per_node=per_node,
            gpu=card,
            intra=known.intra_node.bandwidth if own_fabric and stays else 0.0,
            inter=known.inter_node.bandwidth if own_network and stays else 0.0,
            host=known.host_memory if stays else 0.0,
            nvlink_domain=usual if nvlink_domain is None else nvlink_domain,
            fabric=known.fabric if stays else None,
        )


@contextmanager
def _naming_options(**given: object) -> Iterator[None]:
    """Name the option, instead of the field, in the error of a value that one of the arguments states."""
    try:
        yield
    except InputError as error:
        found = re.match(r"(?:cluster|model|workload) field (\w+) (?=must )", str(error))
        if found is None or given.get(found[1]) is None:
            raise
        raise InputError(f"--{found[1].replace('_', '-')} {str(error)[found.end() :]}") from None


def model_of(source: str | Model | None, seq: int | None) -> Model:
    """Return a model with sequences of this length; raise `InputError` if its learned positions are fewer."""
    model = source if isinstance(source, Model) else catalog.model(DEFAULT_MODEL if source is None else source)
    if seq is None:
        return model
    stated = isinstance(source, str) and catalog.states_positions(source)
    follows = model.max_positions == model.seq and not stated
    if model.positions == "learned" and not follows and seq > model.max_positions:
        raise InputError(
            f"{model.name} has {model.max_positions:,} learned positions; --seq must be at most that, not {seq:,}."
        )
    with _naming_options(seq=seq):
        return replace(model, seq=seq, max_positions=0 if follows else model.max_positions)


def _framework(
    named: FrameworkChoice | None,
    trained_with: Mapping[str, Any],
    precision: Precision | None,
    attention: Attention | None,
) -> Framework | None:
    """Return the framework that is named, or the preset's if it has the given precision and kernel, or the default.

    None stands for any.
    """
    choice = named or trained_with.get("framework", DEFAULT_FRAMEWORK)
    if choice == ANY:
        return None
    if choice not in RECORDS:
        raise UnknownName("framework", choice, (*RECORDS, ANY), remedy="See `tuner catalog frameworks`.")
    record = RECORDS[choice]
    lacks = (precision and precision not in record.precision.value) or (
        attention and attention not in record.attention.value
    )
    return DEFAULT_FRAMEWORK if lacks and named is None else record.name


def _usual(
    trained_with: Mapping[str, Any], model: Model, gpu: Gpu, precision: Precision | None, framework: Framework | None
) -> dict[str, Any]:
    """Return the default precision and attention kernel: the preset's, or else the best that GPU and framework have."""
    defaults: dict[str, Any] = {"precision": "bf16" if "bf16" in gpu.peak_flops else "fp16", "attention": gpu.attention}
    defaults.update(trained_with)
    record = RECORDS[framework] if framework else None
    if defaults["precision"] == "bf16" and "bf16" not in gpu.peak_flops:
        defaults["precision"] = "fp16"
    if record and defaults["precision"] not in record.precision.value and "bf16" in gpu.peak_flops:
        defaults["precision"] = "bf16"
    if precision == "fp32":
        defaults["attention"] = "eager"
    elif defaults["attention"] == "fused" and (precision in QUANTIZED or model.seq > LONGEST_FUSED or model.seq % 4):
        defaults["attention"] = "eager" if gpu.attention == "fused" else gpu.attention
    known = defaults["attention"] in get_args(Attention)
    if record and known and defaults["attention"] not in (kernels := record.kernels(model)):
        fitting = [kernel for kernel in gpu.kernels if kernel in kernels and kernel != "fused"]
        defaults["attention"] = fitting[-1] if fitting else defaults["attention"]
    return defaults


def _check_support(gpu: Gpu, workload: Workload) -> None:
    if workload.attention not in gpu.kernels:
        raise InputError(f"{gpu.name} does not run {workload.attention} attention; it runs {either(gpu.kernels)}.")
    check_supported(workload, gpu.kernels)
