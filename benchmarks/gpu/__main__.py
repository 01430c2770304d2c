"""Benchmarks of one real GPU, in a few minutes of GPU time.

    python -m benchmarks.gpu STAGE -o DIR [--seconds 540]

| stage | measures |
|---|---|
| `rates` | `tuner doctor`; dense products by shape and precision, attention kernels, memory bandwidth, launch cost |
| `rows` | time and memory of the shipped worker by model, batch, sequence, recompute, ZeRO and offload, OOM included |
| `moe` | the same for mixtures of experts |
| `megatron` | steps of Megatron-Core with layers of published models, in bf16 and FP8 |
| `searches` | a whole space of a 1B model, then `tuner optimize` and `tuner max-batch` on it |
| `faults` | how a study classifies an OOM, a hang and a crash |
| `trainers` | an exported folder, HF Trainer with DeepSpeed, `tuner measure` on a log of `megatron` |
| `all` | the stages above, one after the other |
| `table` | writes `DIR/table.csv` from the rows |
| `blind` | evaluates that table, blind and calibrated on five rows; plots |
| `plan` | prints the remaining items of each stage, and how long they should take |

Each result is appended to `DIR/results.jsonl` as soon as it is measured. The same command continues where the last one
stopped, and exits before `--seconds` have elapsed (exit code 3: run it again). A failed job is a result, and is not
repeated unless `--retry` is given. Without a GPU, or with `--tiny`, every stage runs with tiny shapes on the CPU.

For a machine without a network and with a limit of ten minutes per command, collect the packages that it lacks:

    python -m benchmarks.wheels build/wheels --also megatron-core==0.19.2 --present torch numpy pandas matplotlib ...

copy them with the checkout, unpack them there (a wheel is a zip file) and run this until nothing is left:

    for wheel in build/wheels/*.whl; do python3 -m zipfile -e $wheel build/site; done
    export PYTHONPATH=$PWD/build/site
    timeout 585 python3 -m benchmarks.gpu all -o build/gpu --seconds 555

The stage `megatron` needs Transformer Engine, whose extension of PyTorch is built from source, on any machine with the
same Python, the same PyTorch, `nvidia-cuda-nvcc`, `nvidia-cuda-crt` and `nvidia-nvvm`
(`NVTE_CUDA_ARCHS=90 pip wheel --no-build-isolation transformer-engine-torch`). DeepSpeed's Adam can be built likewise
(`DS_ACCELERATOR=cuda DS_BUILD_FUSED_ADAM=1 TORCH_CUDA_ARCH_LIST=9.0`), which saves a minute there.

`table` and `blind` need only `build/gpu/results.jsonl`, on any machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.gpu.jobs import Runner
from benchmarks.gpu.plan import GPU, Planner
from benchmarks.gpu.plots import KINDS
from benchmarks.gpu.rates import rate_items
from benchmarks.gpu.results import Clock, Results
from benchmarks.gpu.rows import adam_item, megatron_items, moe_items, row_items, run_rows
from benchmarks.gpu.searches import fault_items, search_items
from benchmarks.gpu.stage import Context, Item, missing, run_items
from benchmarks.gpu.table import TABLE, blind, write_table
from benchmarks.gpu.trainers import trainer_items
from tuner.core.errors import TunerError
from tuner.launch.extensions import own_folder
from tuner.launch.machine import catalog_name, this_machine

UNFINISHED: Final = 3
"""Exit code if items are left to run."""

Stage = Callable[[Context], list[Item]]
MEASURED: Final[dict[str, Stage]] = {
    "rates": rate_items,
    "rows": row_items,
    "moe": moe_items,
    "megatron": megatron_items,
    "searches": search_items,
    "faults": fault_items,
    "trainers": trainer_items,
}
OF_THE_WORKER: Final = ("rows", "moe")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stage; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure one GPU.")
    parser.add_argument("stage", choices=(*MEASURED, "all", "table", "blind", "plan"))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=540.0, help="stop before so many seconds are over")
    parser.add_argument("--memory", choices=KINDS, default=KINDS[0], help="what mem_gib of the table counts")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on the CPU, as without a GPU")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU's name in the catalog [default: this machine's]")
    parser.add_argument("--retry", action="store_true", help="run what failed once more")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clock, results = Clock.of(given.seconds), Results.open(given.output)
    if given.tiny:
        os.environ["DS_ACCELERATOR"] = "cpu"
    if given.stage == "table":
        rows = write_table(results, given.output / TABLE, given.memory)
        print(f"wrote {given.output / TABLE}: {rows} rows")
        return 0
    if given.stage == "blind":
        blind(results, given.output)
        return 0
    machine = this_machine()
    on_host = machine.accelerator == "cpu"
    runner = Runner(given.output, machine.accelerator)
    if on_host:
        os.environ["OMP_NUM_THREADS"] = "1"
    planner = Planner(given.gpu or (GPU if on_host else catalog_name(machine)))
    if given.stage == "plan":
        # The plan is for the machine with a GPU, even if this one has none.
        return _print_plan(Context(results, runner, clock, planner, tiny=given.tiny))
    context = Context(results, runner, clock, planner, tiny=on_host)
    if given.retry:
        for stage in MEASURED if given.stage == "all" else (given.stage,):
            results.forget_failures(stage)
    os.environ.update(own_folder(given.output / "torch_extensions"))
    stages = list(MEASURED) if given.stage == "all" else [given.stage]
    print(f"on {machine.name}, for {given.seconds:.0f} s")
    try:
        return UNFINISHED if sum([_run(stage, context, apart=len(stages) > 1) for stage in stages]) else 0
    finally:
        runner.close()


def _run(stage: str, context: Context, *, apart: bool) -> int:
    """Run the remaining items of a stage that fit in the time; return how many are left afterwards.

    `apart` from a single stage, the rates are measured in a subprocess, which frees the GPU when it exits.
    """
    items, results = MEASURED[stage](context), context.results
    print(f"{stage}: {_amount(missing(stage, items, results))} of {len(items)} items to do", flush=True)
    if apart and stage == "rates":
        words = [sys.executable, "-m", "benchmarks.gpu", stage, "-o", str(results.folder)]
        subprocess.run([*words, "--seconds", str(max(0.0, context.clock.left))], check=False)
        results.entries = Results.open(results.folder).entries
        return len(missing(stage, items, results))
    left = (run_rows if stage in OF_THE_WORKER else run_items)(stage, items, context)
    if left:
        print(f"{stage}: {left} items left; run the same command again")
    return left


def _print_plan(context: Context) -> int:
    whole = 0.0
    for stage, items_of in MEASURED.items():
        todo = missing(stage, items_of(context), context.results)
        if stage == "rows":
            todo += missing("prepare", [adam_item(context)], context.results)
        whole += sum(item.seconds for item in todo)
        print(f"{stage:10} {_amount(todo)}")
    print(f"{'all':10} {whole / 60:.1f} minutes")
    return 0


def _amount(items: Sequence[Item]) -> str:
    return f"{len(items)} items, about {sum(item.seconds for item in items):.0f} s,"


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except TunerError as error:
        raise SystemExit(str(error)) from None
