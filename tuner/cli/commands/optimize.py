"""`tuner optimize`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import takes_defaults
from tuner.cli.options import Positive, as_json, describes_a_space

if TYPE_CHECKING:
    from tuner.costmodel.calibration import Calibration
    from tuner.space.space import Space
    from tuner.study.result import Answer
    from tuner.study.setup import Begun, Request


@click.command(
    short_help="Search for the topology that finishes training soonest.",
    epilog="Example: tuner optimize --nodes 48 --budget 40",
)
@describes_a_space
@click.option("--budget", type=int, default=40, metavar="N", help="Jobs to launch at most. [default: 40]")
@click.option("--node-hours", type=Positive(), metavar="H", help="Node-hours that jobs may take. [default: no limit]")
@click.option("--deadline", metavar="TIME", help="End after 90m, 4h or 2d of the cluster's time. [default: none]")
@click.option("--patience", type=int, metavar="N", help="End after so many jobs without a better one. [default: none]")
@click.option(
    "--sampler", default="guided", metavar="NAME", help="guided, tpe, gp, random, grid or plan. [default: guided]"
)
@click.option("--launcher", metavar="NAME", help="simulated, replay, local, hostfile or slurm. [default: simulated]")
@click.option("--hostfile", metavar="FILE", help="The machines of --launcher hostfile: a line HOST slots=N for each.")
@click.option("--over", metavar="NAME", help="How they are reached: pdsh or openmpi. [default: pdsh]")
@click.option("--command", metavar="TEMPLATE", help="Your own trainer: 'torchrun train.py --tp {tp} --pp {pp}'.")
@click.option(
    "--slurm-site", metavar="FILE", help="What the site's Slurm wants: account, partition, time. [default: none]"
)
@click.option(
    "--within-allocation", is_flag=True, help="Run jobs as steps of the Slurm allocation that the tuner runs in."
)
@click.option("--table", metavar="FILE", help="The measured table that answers for --launcher replay.")
@click.option("--group", metavar="NAME", help="The group of the table's rows to search. [default: its only one]")
@takes_defaults
@click.option("--from", "start", metavar="TABLE|STUDY", help="Begin with what was measured before.")
@click.option("--calibration", metavar="FILE", help="A file that tuner calibrate made. [default: none]")
@click.option("--study", metavar="NAME", help="The study's name. [default: made from the model and the cluster]")
@click.option("--runs", default="runs", metavar="DIR", help="Where studies are kept. [default: runs]")
@click.option("--storage", metavar="URL", help="Any database of Optuna's. [default: a SQLite file of the study]")
@click.option("--jobs", type=int, default=1, metavar="N", help="Jobs at once, where nodes allow it. [default: 1]")
@click.option("--iterations", default="2", metavar="N[-M]", help="Iterations measured, the median counts. [default: 2]")
@click.option("--retry-hang-sync", is_flag=True, help="Run a job that hung once more with CUDA_LAUNCH_BLOCKING=1.")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the sampler and of the simulated cluster.")
@click.option("--track", metavar="NAME", help="Tell mlflow or wandb of each job that ends. [default: nobody]")
@click.option("--drift", metavar="FACTOR@JOBS", help="Let the simulated cluster change its speed: 1.05@20.")
@as_json
def optimize(space: Space, as_json: bool, **given: Any) -> None:
    """Search for the topology that finishes training soonest.

    Each job is the one worth most by all that was measured before. With no cluster named the cluster is SIMULATED. Run
    the same command again to go on with a study that was interrupted.
    """
    from tuner.core.errors import NothingUsable
    from tuner.study.loop import StudyLoop
    from tuner.study.setup import begin

    request = _request(space, given)
    show = _show(as_json=as_json)
    with ExitStack() as ending, begin(request, show.event) as begun:
        show.begin(begun, request)
        tuning = StudyLoop(begun.setup)
        interrupted = False
        try:
            with show.live(tuning):
                tuning.run()
        except KeyboardInterrupt:
            ending.enter_context(_deaf())
            interrupted = True
            tuning.interrupt()
        found = _print(tuning, begun, as_json=as_json)
    if interrupted:
        raise KeyboardInterrupt
    if found.best is None:
        raise NothingUsable(f"nothing was measured; {found.ended}.")


@contextmanager
def _deaf() -> Iterator[None]:
    """Hear no second Ctrl-C: jobs are ended as the first one asked, and what was found is still to be told."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _request(space: Space, given: dict[str, Any]) -> Request:
    from pathlib import Path

    from tuner.cli.arguments import read
    from tuner.study.limits import Limits
    from tuner.study.setup import Request, drift_of, duration, iterations_of

    table = read(given["table"], given["defaults"]) if given["table"] else None
    return Request(
        space=space,
        limits=Limits(
            budget=given["budget"],
            node_hours=given["node_hours"],
            deadline=duration(given["deadline"], "--deadline") if given["deadline"] else None,
            patience=given["patience"],
            worth=bool(space.workload.tokens),
        ),
        launcher=given["launcher"] or ("replay" if table is not None else "simulated"),
        table=table,
        group=given["group"],
        study=given["study"],
        runs=Path(given["runs"]),
        storage=given["storage"],
        sampler=given["sampler"],
        seed=given["seed"],
        jobs=given["jobs"],
        iterations=iterations_of(given["iterations"]),
        retry_hang_sync=given["retry_hang_sync"],
        drift=drift_of(given["drift"]),
        command=given["command"],
        hostfile=Path(given["hostfile"]) if given["hostfile"] else None,
        over=given["over"] or "pdsh",
        slurm_site=Path(given["slurm_site"]) if given["slurm_site"] else None,
        within_allocation=given["within_allocation"],
        calibration=_calibration(given),
        track=given["track"],
    )


def _calibration(given: dict[str, Any]) -> Calibration | None:
    """What is known before the first job: a site's file, or what was measured before."""
    from pathlib import Path

    from tuner.cli.arguments import read
    from tuner.core.errors import InputError
    from tuner.costmodel.site_file import read_site
    from tuner.study.warm_start import learnt_from_study, learnt_from_table

    if given["calibration"] and given["start"]:
        raise InputError("--calibration and --from both say what was measured before; give one of the two.")
    if given["calibration"]:
        return read_site(Path(given["calibration"]))
    if given["start"] is None:
        return None
    if Path(given["start"]).is_file():
        return learnt_from_table(read(given["start"], given["defaults"]))
    return learnt_from_study(given["start"], runs=Path(given["runs"]), storage=given["storage"])


def _show(*, as_json: bool) -> Any:
    from tuner.cli.live import EventLines, LiveView

    return LiveView() if sys.stderr.isatty() and not as_json else EventLines()


def _print(tuning: Any, begun: Begun, *, as_json: bool) -> Answer:
    from tuner.cli.optimize_output import answer_document, print_answer
    from tuner.cli.output import print_json
    from tuner.study.result import answer

    found = answer(tuning)
    if as_json:
        print_json("optimize", answer_document(found))
    else:
        print_answer(found, begun)
    return found
