"""`tuner max-batch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.arguments import margin_option, stack_option, takes_defaults
from tuner.cli.options import (
    FilePath,
    FolderPath,
    Positive,
    as_json,
    calibration_option,
    takes_description_of_layers,
    takes_site_profile,
    takes_step_pattern,
)
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.sizing.fit import BatchResult


@click.command(
    "max-batch",
    short_help="Find the largest micro-batch size that fits in memory.",
    epilog="Example: tuner max-batch --launcher replay --table corpus/e1-400m-ada.csv --step 16",
)
@click.argument("key", required=False, shell_complete=completion.keys)
@takes_description_of_layers
@calibration_option
@click.option(
    "--launcher",
    metavar="NAME",
    help="estimate, replay, local or slurm. [default: replay with --table, local with --command, else estimate]",
)
@click.option(
    "--command", metavar="TEMPLATE", help="Training command, such as 'python train.py --batch-size {micro_batch}'."
)
@takes_step_pattern
@click.option("--table", type=FilePath(), metavar="FILE", help="Measured table for --launcher replay.")
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
@takes_site_profile
@click.option("--timeout", default="10m", metavar="TIME", help="Time limit per job: 90s, 10m. [default: 10m]")
@click.option("--runs", type=FolderPath(), default="runs", metavar="DIR", help="Folder for job files. [default: runs]")
@click.option(
    "--plot", type=FilePath(), metavar="FILE", help="Plot memory against batch size, with fit and limit (PNG or SVG)."
)
@as_json
def max_batch(as_json: bool, plot: str | None, claim: float | None, **given: Any) -> None:
    """Find the largest micro-batch size that fits in memory, in few runs, and the throughput of each batch tried.

    KEY looks like tp2-pp1-z1-rnone; its micro-batch size is ignored. Without it, --set names the axes. Runs are
    estimates, rows of a measured table, or real jobs. A batch that fails twice for a reason other than memory
    ends the search, because the limit is then unknown.
    """
    from tuner.cli.max_batch_output import print_answer, print_answer_json
    from tuner.core.errors import NothingUsable
    from tuner.sizing.api import max_batch, ways_to_fit

    made = max_batch(**given, on_attempt=_show)
    if plot:
        from tuner.report.batch_plots import plot_batches

        plot_batches(made, plot)
    if as_json:
        print_answer_json(made)
    else:
        print_answer(made, claim=claim)
    if stopped := made.found.stopped:
        raise NothingUsable(
            f"micro-batch size {stopped.micro_batch} failed twice for a reason other than memory ({stopped.outcome}: "
            f"{stopped.evidence}), so the limit is unknown; the largest batch that ran is {made.found.largest}."
        )
    if not made.found.largest:
        raise NothingUsable(
            f"no batch fits: micro-batch size {made.found.smallest_failed} runs out of memory; "
            f"{ways_to_fit([made.topology])}."
        )


def _show(seen: BatchResult) -> None:
    """Print one line on stderr when a job has ended."""
    memory = f", {seen.peak_memory / GIB:,.3f} GiB" if seen.peak_memory else ""
    print(f"micro-batch size {seen.micro_batch}: {seen.outcome}{memory}", file=sys.stderr)
