"""`tuner measure`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.cli import completion
from tuner.cli.options import FilePath, as_json, takes_description_of_log, takes_step_pattern
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.audit.measure import LogMeasurement
    from tuner.audit.subject import Subject

_MAX_ROWS: Final = 12
"""Iterations in the table; JSON lists all."""


@click.command(
    short_help="Read a training log: time, TFLOPs, memory, cause of failure.",
    epilog="Example: tuner measure docs/example.log tp8-pp12-dp4-mbs1-z1",
)
@click.argument("log", type=FilePath())
@click.argument("key", required=False, shell_complete=completion.keys)
@click.option(
    "--iterations",
    metavar="LIST",
    help="Report the median of these iterations: 2-5 or 2,3,7. [default: 2, or the next steady one]",
)
@click.option("--run", type=int, metavar="N", help="Which run of the log to measure, from 1. [default: the last]")
@click.option(
    "--expect",
    type=FilePath(),
    metavar="FILE",
    help="Check the run against the topology.json that 'tuner export' wrote, which also describes its job.",
)
@takes_step_pattern
@takes_description_of_log
@click.option(
    "--explain",
    is_flag=True,
    help="Print which lines each reader recognizes, or else the likeliest lines and, if possible, a --step-pattern.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print the run as a CSV row of the measurement table.")
@as_json
def measure(log: str, explain: bool, as_csv: bool, as_json: bool, **given: Any) -> None:
    """Read a training log: time, TFLOPs and memory of its second iteration, and why the job failed.

    LOG is a plain or compressed file, or - for standard input. docs/measure.md lists the supported frameworks; for any
    other trainer, use --step-pattern. If the topology is known, from KEY or from arguments printed in the log, TFLOPs
    are recomputed from the time and compared with the logged ones.
    """
    from tuner.audit.measure import measure
    from tuner.core.errors import InputError, NothingUsable

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    if explain and as_csv:
        raise click.UsageError("--explain and --csv exclude each other.")
    if explain:
        _print_explanation(log, given["step_pattern"], as_json)
        return
    made = measure(log, **given)
    if as_json:
        _print_json(log, made)
    elif as_csv and made.subject is None:
        raise InputError(f"--csv needs a topology: {made.lacks}; pass its KEY, such as tp8-pp12-dp4-mbs2-z1.")
    elif as_csv and made.subject:
        own = given["key"] is not None and given["model"] is None  # of the study that is the default
        machines = own or any(given[name] for name in ("cluster", "gpu", "gpus_per_node", "expect"))
        _print_csv(log, made, made.subject, machines)
    elif made.rows or made.failure:
        _print_text(log, made)
    if made.nothing:
        raise NothingUsable(made.nothing)
    if made.delivery and made.delivery.mismatch:
        raise NothingUsable(f"{log} is from a job other than {made.delivery.expected.key}: {made.delivery.mismatch}.")


def _print_explanation(log: str, step_pattern: str | None, as_json: bool) -> None:
    """Print which lines of the log each reader recognises; of an unread log the likeliest lines and a pattern."""
    from dataclasses import asdict

    from tuner.cli.output import print_json
    from tuner.core.text import counted
    from tuner.logs import StepPattern
    from tuner.logs.explanation import explained
    from tuner.logs.files import log_lines

    found = explained(log_lines(log), None if step_pattern is None else StepPattern.parse(step_pattern))
    if as_json:
        print_json("measure-explain", {"log": log, **asdict(found)})
        return
    for reader in found.readers:
        print(f"{reader.source}: {counted(reader.lines, 'line')}")
        for number, text in reader.examples:
            print(f"  line {number}: {text}")
    if not found.readers:
        or_call = "or call step() of tuner.step in the trainer"
        print(f"no reader recognizes any line of {log}")
        for number, text in found.likely:
            print(f"  likely line {number}: {text}")
        if found.pattern:
            print(f"try: --step-pattern '{found.pattern}'")
        elif found.likely:
            print(f"no --step-pattern is suggested: {found.no_pattern}")
            print(f"print the seconds of each iteration, {or_call}")
        else:
            print(f"no line looks like an iteration; print its number and seconds, {or_call}")


def _print_json(log: str, made: LogMeasurement) -> None:
    from tuner.cli.output import print_json

    failure, measurement, difference, delivery = made.failure, made.measurement, made.difference, made.delivery
    print_json(
        "measure",
        {
            "log": log,
            "runs": made.runs,
            "run": made.run,
            "key": made.subject.topology.key if made.subject else None,
            "topology_lacks": made.lacks or None,
            "iterations": [
                {
                    "number": row.iteration.number,
                    "sec_per_iter": row.seconds,
                    "tflops_logged": row.iteration.tflops,
                    "tflops": _tflops(row.flops),
                    "global_batch": row.global_batch,
                    "samples_per_sec": row.global_batch / row.seconds if row.global_batch else None,
                    "loss": _finite(row.iteration.loss),
                    "line": row.iteration.line,
                }
                for row in made.rows
            ],
            "measurement": {
                "iteration": measurement.iterations[0],
                "iterations": list(measurement.iterations),
                "sec_per_iter": measurement.seconds,
                "tflops": _tflops(made.flops) if made.flops else measurement.tflops,
                "tflops_logged": measurement.tflops,
                "peak_memory_gib": measurement.peak_memory / GIB if measurement.peak_memory else None,
                "memory_kind": made.memory_kind or None,
            }
            if measurement
            else None,
            "difference": {
                "iteration": difference.iteration,
                "tflops_logged": difference.printed,
                "tflops": difference.counted,
                "reason": difference.reason or None,
            }
            if difference
            else None,
            "failure": {
                "kind": failure.failure.kind,
                "evidence": failure.failure.evidence,
                "line": failure.line,
                "meaning": failure.meaning,
                "remedy": failure.remedy or None,
            }
            if failure
            else None,
            "notes": list(made.notes),
            "expected": {
                "key": delivery.expected.key,
                "source": delivery.expected.source.lower(),
                "extrapolated": delivery.expected.extrapolated,
                "sec_per_iter": delivery.expected.sec_per_iter,
                "delivered": delivery.delivered,
                "mismatch": delivery.mismatch or None,
                "sec_ratio": delivery.sec_ratio,
                "memory_ratio": delivery.memory_ratio,
                "days": delivery.days,
            }
            if delivery
            else None,
        },
    )


def _tflops(flops: float | None) -> float | None:
    return flops / 1e12 if flops else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _print_csv(log: str, made: LogMeasurement, subject: Subject, machines: bool) -> None:
    """Print the job as a row of the measurement table; values that neither the log nor the user gave stay empty."""
    from tuner.cli.output import print_csv
    from tuner.tables import columns_of, run_cells

    measurement = made.measurement
    taken = [row for row in made.rows if measurement and row.iteration.number in measurement.iterations]
    status = {"OOM": "OOM", "HUNG": "HANG"}.get(made.failure.failure.kind, "FAIL") if made.failure else ""
    rate = _tflops(made.flops) or (measurement.tflops if measurement else None)
    row = {
        "group": "",
        **run_cells(subject.workload, subject.cluster, subject.topology),
        **(dict.fromkeys(("gpu", "node_gbit_s"), "") if not machines else {}),
        **({"gbs": str(taken[0].global_batch)} if taken else {}),
        "fused_norm": "",
        "sec_per_iter": f"{measurement.seconds:.6g}" if measurement else "",
        "tflops": f"{rate:.2f}" if rate else "",
        "mem_gib": f"{measurement.peak_memory / GIB:.2f}" if measurement and measurement.peak_memory else "",
        "mem_kind": made.memory_kind,
        **({"mem_stage": "first"} if made.memory_kind == "allocated" else {}),  # not megatron-core's "last"
        "status": "OK" if measurement else status,
        "note": made.failure.failure.evidence if made.failure else "",
        "source": log,
    }
    columns = columns_of([row])
    print_csv(columns, [[row.get(column, "") for column in columns]])


def _print_text(log: str, made: LogMeasurement) -> None:
    from tuner.audit import UNEXPLAINED_TFLOPS
    from tuner.core.text import counted, listed

    subject = made.subject
    job = (subject.workload.model.name, subject.topology.key) if subject else ()
    by = " (from the log)" if subject and subject.by_log else ""
    print(f"{log}: {', '.join((counted(len(made.rows), 'iteration'), *job))}{by}")
    if made.lacks and made.rows:
        print(f"TFLOPs are not recomputed: {made.lacks}; pass the topology's KEY, such as tp8-pp12-dp4-mbs2-z1.")
    measurement, difference = made.measurement, made.difference
    chosen = measurement.iterations if measurement else ()
    if made.rows:
        _print_iterations(made, set(chosen))
    if measurement:
        which = f"the median of iterations {listed(chosen)}" if len(chosen) > 1 else f"iteration {chosen[0]}"
        rate = made.flops / 1e12 if made.flops else measurement.tflops
        by = "" if made.flops or not rate else " (as logged)"
        parts = [f"{measurement.seconds:.6g} s", f"{rate:,.2f} TFLOPs per GPU{by}" if rate else ""]
        parts += [f"{measurement.peak_memory / GIB:,.2f} GiB {made.memory_kind}" if measurement.peak_memory else ""]
        print(f"\nmeasured, {which}: {', '.join(filter(None, parts))}")
    if difference:
        reason = difference.reason or UNEXPLAINED_TFLOPS
        print(
            f"iteration {difference.iteration}: the log prints {difference.printed:,g} TFLOPs, but its time gives "
            f"{difference.counted:,.2f}: {reason}"
        )
    if made.failure:
        failure = made.failure
        after = f" after iteration {made.rows[-1].iteration.number}" if made.rows else ""
        print(f"{failure.failure.kind}{after}: {failure.meaning}; line {failure.line}: {failure.failure.evidence}")
        if failure.remedy:
            print(f"remedy: {failure.remedy}")
    for note in made.notes:
        print(f"note: {note}")
    for sentence in made.delivery.sentences if made.delivery and not made.delivery.mismatch else ():
        print(sentence)


def _print_iterations(made: LogMeasurement, chosen: set[int]) -> None:
    """Print the chosen iterations, marked, and the first of the others."""
    from tuner.cli.output import print_table

    shown = [row for row in made.rows if row.iteration.number in chosen]
    shown += [row for row in made.rows if row.iteration.number not in chosen]
    rows = sorted(shown[:_MAX_ROWS], key=lambda row: row.iteration.number)
    print()
    print_table(
        ("Iteration", "Seconds", "TFLOPs logged", "TFLOPs", "Batch", "Loss", "Measured"),
        [
            (
                row.iteration.number,
                f"{row.seconds:.6g}",
                "" if row.iteration.tflops is None else f"{row.iteration.tflops:,.2f}",
                f"{row.flops / 1e12:,.2f}" if row.flops else "",
                row.global_batch or "",
                "" if row.iteration.loss is None else f"{row.iteration.loss:.4f}",
                "*" if row.iteration.number in chosen else "",
            )
            for row in rows
        ],
        left=("Measured",),
        spare=("Loss", "Batch"),
    )
    if len(rows) < len(made.rows):
        print(f"... {len(made.rows) - len(rows):,} more; list them with --json")
