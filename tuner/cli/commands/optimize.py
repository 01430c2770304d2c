"""`tuner optimize`."""

from __future__ import annotations

import sys
from typing import Any

import click

from tuner.cli import completion
from tuner.cli.arguments import stored_at, takes_defaults
from tuner.cli.options import (
    FilePath,
    Positive,
    as_json,
    calibration_option,
    takes_description,
    takes_log,
    takes_site_profile,
    takes_step_pattern,
    takes_trainer,
)


@click.command(
    short_help="Search for the topology that finishes training soonest.",
    epilog="Example: tuner optimize --nodes 48 --budget 40",
)
@takes_description
@click.option("--budget", type=int, default=40, metavar="N", help="Maximum number of jobs. [default: 40]")
@click.option("--node-hours", type=Positive(), metavar="H", help="Maximum node-hours of all jobs. [default: no limit]")
@click.option("--deadline", metavar="TIME", help="Stop after 90m, 4h or 2d of cluster time. [default: none]")
@click.option("--patience", type=int, metavar="N", help="Stop after N jobs without an improvement. [default: none]")
@click.option(
    "--fidelity",
    metavar="MODE",
    help="full: every trial at full size; auto: reduced sizes first, the leaders at full size. [default: auto if a "
    "full-size trial costs a node-hour or more, else full]",
)
@click.option(
    "--trial-nodes",
    type=int,
    metavar="N",
    help="Maximum number of nodes per trial; the result is then extrapolated. [default: all nodes]",
)
@click.option(
    "--sampler", default="guided", metavar="NAME", help="guided, tpe, gp, random, grid or plan. [default: guided]"
)
@click.option(
    "--memory-filter",
    is_flag=True,
    help="With a sampler other than guided, skip topologies that are likely to run out of memory.",
)
@click.option("--launcher", metavar="NAME", help="simulated, replay, local, hostfile or slurm. [default: simulated]")
@click.option(
    "--hostfile", type=FilePath(), metavar="FILE", help="Machines of --launcher hostfile: one line HOST slots=N each."
)
@click.option("--over", default="pdsh", metavar="NAME", help="How to reach the hosts: pdsh or openmpi. [default: pdsh]")
@click.option("--command", metavar="TEMPLATE", help="Your own trainer: 'torchrun train.py --tp {tp} --pp {pp}'.")
@takes_step_pattern
@takes_log
@takes_trainer
@takes_site_profile
@click.option("--within-allocation", is_flag=True, help="Run jobs as steps of the surrounding Slurm allocation.")
@click.option("--table", type=FilePath(), metavar="FILE", help="Table of measurements for --launcher replay.")
@click.option("--group", metavar="NAME", help="Group of the table's rows to search. [default: the only group]")
@takes_defaults
@click.option(
    "--from",
    "start_from",
    metavar="TABLE|STUDY",
    shell_complete=completion.studies_or_files,
    help="Calibrate on earlier measurements: a table or a study.",
)
@calibration_option
@click.option(
    "--study",
    metavar="NAME",
    shell_complete=completion.studies,
    help="Name of the study. [default: from launcher, model and cluster]",
)
@stored_at
@click.option("--jobs", type=int, default=1, metavar="N", help="Maximum number of concurrent jobs. [default: 1]")
@click.option(
    "--iterations", default="2", metavar="N[-M]", help="Iterations to measure; their median counts. [default: 2]"
)
@click.option("--retry-hang-sync", is_flag=True, help="Retry a job that hangs with CUDA_LAUNCH_BLOCKING=1.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Do not stop when three jobs fail in the same way, independently of the topology.",
)
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of the sampler and of the simulated cluster.")
@click.option("--track", metavar="NAME", help="Log finished trials to mlflow or wandb. [default: none]")
@click.option("--drift", metavar="FACTOR@JOBS", help="Change the simulated cluster's speed: 1.05@20.")
@click.option(
    "--noise",
    type=float,
    default=0.0,
    metavar="SIGMA",
    help="Standard deviation of replayed seconds: 0.01 is 1%, drawn by --seed. [default: 0]",
)
@as_json
def optimize(as_json: bool, **given: Any) -> None:
    """Search for the topology that finishes training soonest.

    By default, each job is the one with the largest expected saving, given all measurements so far. Without
    --launcher, the cluster is SIMULATED. Rerun the same command to continue an interrupted study.
    """
    from tuner.cli.live import EventLines, LiveView
    from tuner.cli.optimize_output import answer_document, print_answer
    from tuner.cli.output import print_json
    from tuner.core.errors import NothingUsable, StudyError
    from tuner.core.interrupts import ignore_interrupts
    from tuner.study.api import study_settings
    from tuner.study.setup import open_loop

    view = LiveView() if sys.stderr.isatty() and not as_json else EventLines()
    interrupted = False
    with open_loop(study_settings(**given, on_event=view.event)) as loop:
        try:
            with view.live(loop):
                loop.run()
        except KeyboardInterrupt:
            ignore_interrupts()  # while jobs are cancelled and the result is printed
            interrupted = True
            loop.interrupt()
        try:
            study = loop.result()
        except StudyError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise
        if as_json:
            print_json("optimize", answer_document(study))
        else:
            print_answer(study, loop)
    if interrupted:
        raise KeyboardInterrupt
    if study.best is None:
        raise NothingUsable(f"no job was measured; {study.ended}.")
