"""`tuner max-batch`."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.cli.arguments import batch_steps, margin_option, stack_option, takes_defaults
from tuner.cli.options import Positive, as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.cli.options import Command
    from tuner.costmodel.estimate import CostModel
    from tuner.sizing.fit import BatchResult
    from tuner.sizing.max_batch import MaxBatchResult
    from tuner.space.space import Space


LAUNCHERS: Final = ("estimate", "replay", "local", "slurm")


def _implies_its_launcher(command: Command) -> Command:
    """Default `--launcher` to replay with --table, to local with --command, else to estimate."""

    @functools.wraps(command)
    def implied(**given: Any) -> Any:
        given["launcher"] = given["launcher"] or (
            "replay" if given["table"] else "local" if given["command"] else "estimate"
        )
        return command(**given)

    return implied


@click.command(
    "max-batch",
    short_help="Find the largest micro batch that fits in memory.",
    epilog="Example: tuner max-batch --launcher replay --table corpus/e1-400m-ada.csv --step 16",
)
@_implies_its_launcher
@describes_a_space
@takes_calibration
@click.option(
    "--launcher",
    metavar="NAME",
    help="estimate, replay, local or slurm. [default: replay with --table, local with --command, else estimate]",
)
@click.option(
    "--command", metavar="TEMPLATE", help="Training command, such as 'python train.py --batch-size {micro_batch}'."
)
@click.option("--table", metavar="FILE", help="Measured table for --launcher replay.")
@click.option("--group", metavar="NAME", help="Group of the table's rows. [default: any]")
@takes_defaults
@click.option(
    "--strategy", default="model", metavar="NAME", help="Search strategy: model, bisect or ramp. [default: model]"
)
@click.option(
    "--step",
    metavar="N|x2",
    help="Batches to try: multiples of N, or powers of two. [default: 1, or the table's batches]",
)
@click.option(
    "--start", type=click.IntRange(1), metavar="N", help="First batch to try. [default: the smallest; 64 with ramp]"
)
@click.option("--most", type=click.IntRange(1), metavar="N", help="Largest batch to try. [default: 4096]")
@click.option(
    "--increment", type=click.IntRange(1), default=16, metavar="N", help="Step of the ramp strategy. [default: 16]"
)
@margin_option
@stack_option
@click.option("--limit", type=Positive(), metavar="GIB", help="Memory that a run may use. [default: the GPU's]")
@click.option("--claim", type=Positive(), metavar="GIB", help="Check a published slope of memory per sample.")
@click.option("--iterations", default="2", metavar="N[-M]", help="Iteration or range that a job measures. [default: 2]")
@click.option(
    "--slurm-site", metavar="FILE", help="Site profile for --launcher slurm: account, partition, time. [default: none]"
)
@click.option("--timeout", default="10m", metavar="TIME", help="Time limit per job: 90s, 10m. [default: 10m]")
@click.option("--runs", default="runs", metavar="DIR", help="Folder for job files. [default: runs]")
@click.option("--plot", metavar="FILE", help="Plot memory against batch size, with fit and limit (PNG or SVG).")
@as_json
def max_batch(space: Space, model: CostModel, as_json: bool, **given: Any) -> None:
    """Find the largest micro batch that fits in memory in few trials, and the throughput of each batch tried.

    Trials are estimates, rows of a measured table, or real jobs. A failure other than out of memory ends the search,
    because it gives no information about the limit.
    """
    from tuner.cli.max_batch_output import print_answer, print_answer_json
    from tuner.core.errors import NothingUsable

    made = _search(space, model, given)
    if given["plot"]:
        _plot(made, given["plot"])
    if as_json:
        print_answer_json(made)
    else:
        print_answer(made, claim=given["claim"])
    if stopped := made.found.stopped:
        raise NothingUsable(
            f"micro batch {stopped.micro_batch} failed twice for a reason other than memory ({stopped.outcome}: "
            f"{stopped.evidence}), so the limit is unknown; the largest batch that ran is {made.found.largest}."
        )
    if not made.found.largest:
        raise NothingUsable(
            f"no batch fits: micro batch {made.found.smallest_failed} runs out of memory; shard more or use recompute."
        )


def _search(space: Space, model: CostModel, given: dict[str, Any]) -> MaxBatchResult:
    from tuner.core.errors import InputError, UnknownName
    from tuner.sizing import STRATEGIES

    if given["strategy"] not in STRATEGIES:
        raise UnknownName("strategy", given["strategy"], STRATEGIES)
    launcher = given["launcher"]
    if launcher not in LAUNCHERS:
        raise UnknownName("launcher", launcher, LAUNCHERS)
    if bool(given["table"]) != (launcher == "replay"):
        raise InputError("--launcher replay and --table FILE require each other.")
    if given["command"] and launcher not in ("local", "slurm"):
        raise InputError("--command runs real jobs and requires --launcher local or slurm.")
    if given["slurm_site"] and launcher != "slurm":
        raise InputError(f"--slurm-site requires --launcher slurm, not {launcher}.")
    if launcher == "estimate":
        return _by_estimate(space, model, given)
    return _by_table(space, given) if launcher == "replay" else _by_jobs(space, given)


def _by_estimate(space: Space, model: CostModel, given: dict[str, Any]) -> MaxBatchResult:
    from tuner.sizing.options import only_option, stacked
    from tuner.sizing.probes import EstimateProbe, usable_bytes

    topology = only_option(space)
    workload = stacked(space.workload, given["stack"], zero=topology.zero)
    probe = EstimateProbe(workload=workload, cluster=space.cluster, topology=topology, model=model)
    usable = given["limit"] * 2**30 if given["limit"] else usable_bytes(space.cluster)
    return _answer(
        space,
        given,
        probe,
        batch_steps(given["step"], given["most"]),
        usable,
        source="estimate",
        dp=topology.dp,
        held={},
    )


def _by_table(space: Space, given: dict[str, Any]) -> MaxBatchResult:
    from dataclasses import replace

    from tuner.cli.arguments import read
    from tuner.core.errors import InputError
    from tuner.sizing.options import asked_rows
    from tuner.sizing.probes import held_back, only_series, usable_bytes

    table = read(given["table"], given["defaults"])
    arguments = click.get_current_context().params
    named = space.workload.model if arguments["model"] else None
    rows = asked_rows(table.rows, group=given["group"], model=named, settings=arguments["settings"])
    series = only_series(table, rows)
    batches: Any = series.batches
    if given["step"] or given["most"]:
        kept = set(batch_steps(given["step"], given["most"] or max(batches)))
        batches = [batch for batch in batches if batch in kept]
        if not batches:
            raise InputError(f"{table.name} has no batch that --step {given['step']} allows; it has {series.batches}.")
    run = series.first
    workload = replace(
        run.workload,
        global_batch=arguments["global_batch"] or run.workload.global_batch,
        tokens=arguments["tokens"] or 0.0,
    )
    described = replace(space, workload=workload, cluster=run.cluster)
    usable = given["limit"] * 2**30 if given["limit"] else usable_bytes(run.cluster)
    held = held_back(series.kind)
    return _answer(described, given, series, batches, usable, source="table", dp=run.topology.dp, held=held)


def _by_jobs(space: Space, given: dict[str, Any]) -> MaxBatchResult:
    from pathlib import Path

    from tuner.launch.ds_config import ds_config
    from tuner.sizing.jobs import jobs_of
    from tuner.sizing.options import only_option, stacked
    from tuner.sizing.probes import usable_bytes
    from tuner.study.settings import duration, iterations_of

    topology = only_option(space, zero=0)
    workload = stacked(space.workload, given["stack"] or "megatron", zero=topology.zero)
    usable = given["limit"] * 2**30 if given["limit"] else usable_bytes(space.cluster)
    with jobs_of(
        given["launcher"],
        workload=workload,
        cluster=space.cluster,
        topology=topology,
        configure=lambda job: ds_config(job.workload, job.topology),
        command=given["command"],
        folder=Path(given["runs"]) / "max-batch",
        iterations=iterations_of(given["iterations"]),
        timeout=duration(given["timeout"], "--timeout"),
        slurm_site=Path(given["slurm_site"]) if given["slurm_site"] else None,
        seen=_show,
    ) as probe:
        return _answer(
            space,
            given,
            probe,
            batch_steps(given["step"], given["most"]),
            usable,
            source="jobs",
            dp=topology.dp,
            held={},
        )


def _answer(
    space: Space,
    given: dict[str, Any],
    probe: Callable[[int], BatchResult],
    batches: Any,
    usable: float,
    *,
    source: Any,
    dp: int,
    held: dict[str, float],
) -> MaxBatchResult:
    from tuner.sizing import look_for
    from tuner.sizing.max_batch import answer
    from tuner.sizing.probes import grid_for

    grid = grid_for(
        batches,
        start=given["start"],
        strategy=given["strategy"],
        increment=given["increment"],
        room=usable,
        **held,
    )
    found = look_for(given["strategy"], grid, probe)
    workload = space.workload
    global_batch = click.get_current_context().params["global_batch"]
    return answer(
        found,
        source=source,
        strategy=given["strategy"],
        batches=batches,
        card=space.cluster.gpu.memory,
        usable=usable,
        margin=given["margin"],
        dp=dp,
        seq=workload.model.seq,
        global_batch=global_batch,
        tokens=workload.training_tokens,
    )


def _show(seen: BatchResult) -> None:
    """Print one line on stderr when a job has ended."""
    memory = f", {seen.peak_memory / 2**30:.3f} GiB" if seen.peak_memory else ""
    print(f"micro batch {seen.micro_batch}: {seen.outcome}{memory}", file=sys.stderr)


def _plot(made: MaxBatchResult, path: str) -> None:
    from pathlib import Path

    from tuner.report.batch_plots import Panel, draw

    draw([Panel.of("", made)], Path(path))
