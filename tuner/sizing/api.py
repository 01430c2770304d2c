"""`tuner.max_batch` and `tuner.compare`: the largest batch of one topology, and topologies side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError, NothingUsable, UnknownName
from tuner.core.quantity import GIB, duration, iterations_of
from tuner.core.text import either, shown
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.site_file import cost_model, warn_of_mismatch
from tuner.launch.machine_defaults import space_on
from tuner.sizing.compare import Comparison, Option, by_estimate, by_model, by_table, fastest, with_recompute
from tuner.sizing.fit import BatchResult, Source
from tuner.sizing.jobs import jobs_of
from tuner.sizing.max_batch import MaxBatchResult, answer
from tuner.sizing.options import (
    Stack,
    asked_rows,
    differing,
    fixed_axes,
    only_option,
    options,
    pinned_axes,
    recomputed,
    require_values,
    settings_of,
    stacked,
    widest_tensor_parallelism,
)
from tuner.sizing.probes import (
    MAX_MICRO_BATCH,
    EstimateProbe,
    doubled,
    filling_steps,
    grid_for,
    held_back,
    only_series,
    usable_bytes,
)
from tuner.sizing.strategies import STRATEGIES, look_for
from tuner.space.axes import parse_setting
from tuner.space.build import SpaceArguments, of_a_job, space_for, space_or
from tuner.space.space import Space
from tuner.tables import Defaults, Table, read_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

LAUNCHERS: Final = ("estimate", "replay", "local", "slurm")

MAX_MARGIN: Final = 0.9
"""The largest share of memory that a safe batch may leave free."""


def max_batch(
    space: Space | None = None,
    *,
    key: str | None = None,
    launcher: str | None = None,
    command: str | None = None,
    step_pattern: str | None = None,
    table: str | Path | Table | None = None,
    group: str | None = None,
    defaults: Iterable[str] = (),
    strategy: str = "model",
    step: int | str | None = None,
    start: int | None = None,
    most: int | None = None,
    increment: int = 16,
    margin: float = 0.10,
    stack: Stack | None = None,
    limit: float | None = None,
    iterations: int | str | Iterable[int] = 2,
    site_profile: str | Path | None = None,
    timeout: float | str = "10m",
    runs: str | Path = "runs",
    calibration: str | Path | Calibration | None = None,
    on_attempt: Callable[[BatchResult], None] | None = None,
    **description: Unpack[SpaceArguments],
) -> MaxBatchResult:
    """Find the largest micro batch that fits in memory, and the throughput of each batch tried.

    Describe the topology with a `space` that leaves one, or with a `key` and the arguments of `space_for`. Every other
    argument is the option of `tuner max-batch` with the same name. Without a `launcher`, trials are rows of the
    `table`, jobs on this machine that run the `command`, or else estimates. `limit` is in GiB; `on_attempt` is called
    with each job's result. If a trial fails twice for another reason than memory, `found.stopped` has the reason.

    >>> import tuner
    >>> result = tuner.max_batch(model="enoki-40", cluster="enoki-h100")
    >>> result.source, result.safe <= result.found.largest
    ('estimate', True)
    """
    if launcher is None:
        launcher = "replay" if table is not None else "local" if command is not None else "estimate"
    if strategy not in STRATEGIES:
        raise UnknownName("strategy", strategy, STRATEGIES)
    _check_launcher(launcher, table=table, command=command, step_pattern=step_pattern, site_profile=site_profile)
    if table is None and (group is not None or tuple(defaults)):
        raise InputError("--group and --default select and complete the rows of a table: add --table.")
    _check_numbers(margin=margin, start=start, most=most, increment=increment, limit=limit)
    if start is not None and most is not None and start > most:
        raise InputError(f"--start {start} is larger than --most {most}.")
    seconds = duration(timeout, "--timeout") if isinstance(timeout, str) else timeout
    measured = iterations_of(iterations)
    asked = description if key is None else _with_key(description, key)
    described = _unless_named(
        space_or(space, asked, lambda given: space_on(launcher, of_a_job(given), command=command))
    )
    with ExitStack() as jobs:
        if table is not None:
            tried = _rows_of(_table(table, defaults), described, group=group, step=step, most=most)
        elif launcher == "estimate":
            tried = _estimates_of(described, stack, _cost_model(calibration, described), batch_steps(step, most))
        else:
            topology, framework = only_option(described, zero=0), described.workload.framework
            layers = stacked(described.workload, stack if framework else stack or "megatron", zero=topology.zero)
            probe = jobs.enter_context(
                jobs_of(
                    launcher,
                    workload=layers,
                    cluster=described.cluster,
                    topology=topology,
                    global_batch=described.arguments.get("global_batch"),
                    command=command,
                    step_pattern=step_pattern,
                    folder=Path(runs) / "max-batch",
                    iterations=measured,
                    timeout=seconds,
                    site_profile=None if site_profile is None else Path(site_profile),
                    on_attempt=on_attempt or (lambda _result: None),
                )
            )
            steps = _of_pipeline(batch_steps(step, most), topology, described)
            tried = _Candidates(probe, steps, "jobs", topology, described.workload, described.cluster)
        usable = limit * GIB if limit else usable_bytes(tried.cluster)
        grid = grid_for(
            tried.batches, start=start, strategy=strategy, increment=increment, room=usable, **tried.held_back
        )
        return answer(
            look_for(strategy, grid, tried.probe),
            source=tried.source,
            strategy=strategy,
            batches=tried.batches,
            card=tried.cluster.gpu.memory,
            usable=usable,
            margin=margin,
            topology=tried.topology,
            workload=tried.workload,
            global_batch=described.arguments.get("global_batch"),
            fixed={} if table is not None else fixed_axes(described, [tried.topology]),
        )


class _Candidates(NamedTuple):
    """The micro batches of one topology that a search may try, and the probe that returns their results."""

    probe: Callable[[int], BatchResult]
    batches: Sequence[int]
    source: Source
    topology: Topology
    workload: Workload
    cluster: Cluster
    held_back: Mapping[str, float] = {}
    """The memory that the results omit, as arguments of a grid."""


def _rows_of(table: Table, space: Space, *, group: str | None, step: int | str | None, most: int | None) -> _Candidates:
    """Return the batches of the one series of a table's rows that matches the space's arguments."""
    arguments = space.arguments
    named = space.workload.model if "model" in arguments else None
    rows = asked_rows(table.rows, group=group, model=named, settings=arguments.get("settings", ()))
    series = only_series(table, rows, group)
    batches: Sequence[int] = series.batches
    if step or most:
        kept = set(batch_steps(step, most or max(batches)))
        batches = [batch for batch in batches if batch in kept]
        if not batches:
            raise InputError(f"{table.name} has no batch that --step {step} allows; it has {series.batches}.")
    run = series.first
    workload = replace(run.workload, tokens=arguments.get("tokens", 0.0))
    if global_batch := arguments.get("global_batch"):
        workload = replace(workload, global_batch=global_batch)
    return _Candidates(series, batches, "table", run.topology, workload, run.cluster, held_back(series.kind))


def _estimates_of(space: Space, stack: Stack | None, model: CostModel, batches: Sequence[int]) -> _Candidates:
    """Return the batches of the space's one topology, with their estimates."""
    topology = only_option(space)
    probe = EstimateProbe(
        workload=stacked(space.workload, stack, zero=topology.zero),
        cluster=space.cluster,
        topology=topology,
        model=model,
        global_batch=space.arguments.get("global_batch"),
    )
    batches = _of_pipeline(batches, topology, space)
    return _Candidates(probe, batches, "estimate", topology, space.workload, space.cluster)


def _cost_model(calibration: str | Path | Calibration | None, space: Space) -> CostModel:
    """Return the cost model, with a warning if the calibration is of another GPU or framework."""
    model = cost_model(calibration)
    warn_of_mismatch(model.calibration, [(space.workload, space.cluster)])
    return model


def _of_pipeline(batches: Sequence[int], topology: Topology, space: Space) -> Sequence[int]:
    """Return the micro batches that fill a pipeline; without one, all."""
    return batches if topology.pp == 1 else _within(batches, topology, space.arguments.get("global_batch"))


def compare(
    space: Space | None = None,
    *,
    keys: Iterable[str] = (),
    table: str | Path | Table | None = None,
    defaults: Iterable[str] = (),
    step: int | str = "x2",
    most: int = 256,
    margin: float = 0.10,
    stack: Stack | None = None,
    calibration: str | Path | Calibration | None = None,
    **description: Unpack[SpaceArguments],
) -> Comparison:
    """Compare topologies, by default FSDP with tensor parallelism: the largest batch of each and its throughput.

    The options are the topologies of the `keys`, or the values of each axis that `settings` gives more than one.
    Without any, and without a tp, they are tp=1 and the largest tp within a node. Unless `settings` or keys name
    recompute, each estimate has the one with which it is fastest. Describe the options with a `space` or with the
    arguments of `space_for`; every argument is the option of `tuner compare` with the same name. Options are estimated,
    or looked up in the measured `table`.

    >>> import tuner
    >>> found = tuner.compare(model="enoki-40", gpu="H100-80GB-SXM", nodes=1, gpus_per_node=4, settings=["tp=1,4"])
    >>> [option.label for option in found.models[0]]
    ['tp=1', 'tp=4']
    """
    if table is None and tuple(defaults):
        raise InputError("--default completes the rows of a table: add --table.")
    _check_numbers(margin=margin, most=most)
    keys = tuple(keys)
    if len({settings_of(key) for key in keys}) < len(keys):
        raise InputError(
            "two keys differ in nothing but the micro-batch size, which is sought; to compare them, use 'tuner explain "
            "KEY --against KEY'."
        )
    each = [_with_key(description, key) for key in keys] or [description]
    spaces = [_unless_named(space_or(space, one, lambda given: space_for(**of_a_job(given)))) for one in each]
    space, model = spaces[0], _cost_model(calibration, spaces[0])
    global_batch = space.arguments.get("global_batch")
    settings = [parse_setting(text) for text in space.arguments.get("settings", ())]
    axes = [axis for axis, values in settings if len(values) > 1]
    if table is not None:
        table = _table(table, defaults)
        named = space.workload.model if "model" in space.arguments else None
        asked = [one.arguments.get("settings", ()) for one in spaces]
        for texts in asked:
            require_values(table, model=named, settings=texts)
        rows = [row for texts in asked for row in asked_rows(table.rows, group=None, model=named, settings=texts)]
        made = by_table(rows, axes=axes, global_batch=global_batch, margin=margin)
        if not made and (reason := table.why_none_of(rows)):
            raise NothingUsable(f"no row of {table.name} can be used: {reason}")
        if not made:
            raise NothingUsable(f"{table.name} has no row that matches the model and settings.")
        compared = Comparison(source="table", models=by_model(made), cost_model=model, global_batch=global_batch)
    else:
        pinned = pinned_axes(space)
        if not keys and {*axes} <= {"sequence_parallel"} and all(axis != "tp" for axis, _ in settings):
            pinned["tp"] = tuple(dict.fromkeys((1, widest_tensor_parallelism(space))))
            axes = ["tp", *axes]
        topologies = [topology for one in spaces for topology in options(one, pinned=None if keys else pinned)]
        shown_axes = (differing(topologies) if keys else axes) or ["tp"]

        def estimate(topology: Topology) -> Option:
            return by_estimate(
                topology,
                stacked(space.workload, stack, zero=topology.zero),
                space.cluster,
                model,
                axes=shown_axes,
                batches=_within(batch_steps(step, most), topology, global_batch),
                global_batch=global_batch,
                margin=margin,
            )

        chooses = "recompute" not in pinned
        made = [
            fastest(map(estimate, recomputed(space, topology) if chooses else [topology])) for topology in topologies
        ]
        if keys and len(topologies) == len(keys):
            made = [replace(option, label=key) for option, key in zip(made, keys, strict=True)]
        compared = Comparison(
            source="estimate",
            models=by_model(with_recompute(made, shown_axes) if chooses else made),
            cost_model=model,
            global_batch=global_batch,
            fixed=fixed_axes(space, topologies, compared=[*shown_axes, "recompute"]),
            chose_recompute=chooses,
        )
    if not any(option.best for option in made):
        tried = " even with recompute" if compared.chose_recompute else ""
        remedies = ways_to_fit(option.topology for option in made)
        raise NothingUsable(f"no option fits its smallest batch{tried}; {remedies}.")
    return compared


def _with_key(description: SpaceArguments, key: str) -> SpaceArguments:
    """Return the description of the topologies that a key leaves."""
    stated, asked = settings_of(key), tuple(description.get("settings", ()))
    has = {parse_setting(setting)[0]: setting for setting in stated}
    for setting in asked:
        if same := has.get(parse_setting(setting)[0]):
            raise InputError(f"{key} already means {same}; leave out --set {setting}, or change the key.")
    return {**description, "settings": (*stated, *asked)}


def ways_to_fit(topologies: Iterable[Topology]) -> str:
    """Return what to try if none of these topologies fits any batch."""
    recompute = any(topology.recompute != "full" for topology in topologies)
    return either(
        [
            *["recompute activations with --set recompute=full"] * recompute,
            "shard more with --set tp=N",
            "offload the optimizer with --set offload=optimizer",
        ]
    )


def _unless_named(space: Space) -> Space:
    """Return a space without the framework that it has by default."""
    if space.arguments.get("framework") is not None:
        return space
    return replace(space, workload=replace(space.workload, framework=None))


def batch_steps(step: int | str | None, most: int | None) -> Sequence[int]:
    """Return the micro batches that `--step` and `--most` describe: multiples of N, or powers of two."""
    limit, text = most or MAX_MICRO_BATCH, str(1 if step is None else step)
    if text == "x2":
        return doubled(limit)
    if not text.isdecimal() or not 1 <= int(text) <= limit:
        raise InputError(f"--step {shown(text)} is neither x2 nor a number from 1 to {limit}.")
    return range(int(text), limit + 1, int(text))


def _within(batches: Sequence[int], topology: Topology, global_batch: int | None) -> Sequence[int]:
    """Return the micro batches of which the global batch has enough for all ranks and to fill the pipeline.

    The least is among them in any case: fewer in flight would need less memory.
    """
    most = (global_batch or math.inf) / (topology.dp * filling_steps(topology))
    return [batch for batch in batches if batch <= max(most, batches[0])]


def _table(table: str | Path | Table, defaults: Iterable[str]) -> Table:
    return table if isinstance(table, Table) else read_table(table, Defaults.parse(defaults))


def _check_launcher(
    launcher: str, *, table: object, command: str | None, step_pattern: object, site_profile: object
) -> None:
    """Raise an `InputError` for arguments that the launcher does not use, or lacks."""
    if launcher not in LAUNCHERS:
        raise UnknownName("launcher", launcher, LAUNCHERS)
    if (table is not None) != (launcher == "replay"):
        raise InputError("--launcher replay and --table FILE require each other.")
    if command is not None and launcher not in ("local", "slurm"):
        raise InputError("--command runs real jobs and requires --launcher local or slurm.")
    if step_pattern is not None and command is None:
        raise InputError("--step-pattern reads the output of your own trainer: add --command.")
    if site_profile is not None and launcher != "slurm":
        raise InputError(f"--site-profile requires --launcher slurm, not {launcher}.")


def _check_numbers(*, margin: float, limit: float | None = None, **counts: int | None) -> None:
    """Check numbers that the command line has checked already."""
    if not 0 <= margin <= MAX_MARGIN:
        raise InputError(f"--margin must be between 0 and {MAX_MARGIN} (got {margin}).")
    if limit is not None and limit <= 0:
        raise InputError(f"--limit must be positive (got {limit}).")
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"--{name} must be at least 1 (got {count}).")
