"""The stage `searches`: the product's searches, compared with scans of everything that they could have tried."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.gpu.plan import ITERATIONS, JOB_SECONDS, PlannedRow, Planner
from benchmarks.gpu.process import ROOT
from benchmarks.gpu.results import Results
from benchmarks.gpu.rows import choose_adam
from benchmarks.gpu.stage import Context, Entry, Item
from tuner.core.atomic_write import write_object
from tuner.core.domain import Topology
from tuner.space.build import space_for
from tuner.space.space import Space

STAGE: Final = "searches"
FAULT_STAGE: Final = "faults"
BATCH: Final = 8
BUDGET: Final = 6
"""Jobs of `tuner optimize`; the space has four times as many topologies."""
CONFIG: Final[dict[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
"""A model of 1.16B parameters."""
TINY: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 32,
}
SPACE: Final = ("zero=1,2,3", "recompute=none,full", "cp=1", "vpp=1")
TINY_SPACE: Final = ("zero=0,1", "recompute=none", "micro_batch=8", "cp=1", "vpp=1")
POLICIES: Final = ("dp-multiple-of-4", "batch-multiple-of-32")
"""Policies that are off for jobs on one machine, as with `--launcher local`."""
STEP: Final = 4
SCANNED: Final = range(16, 49, STEP)
"""Micro batches of the scan for `tuner max-batch`."""
STRATEGIES: Final = {
    "model": ("--start", "8"),
    "bisect": ("--start", "16"),
    "ramp": ("--start", "24", "--increment", "4"),
}
ATTEMPTS: Final = 4
FAULTS: Final = {"oom": "OOM", "hang": "HUNG", "illegal": "CRASHED"}
FAULT_SECONDS: Final = {"oom": 12.0, "hang": 50.0, "illegal": 20.0}


def search_items(context: Context) -> list[Item]:
    """Return the items of the stage: first the scans, because every search is compared with one."""
    runner, model = context.runner, model_file(context)
    space = searched(model, context.planner.gpu, tiny=context.tiny)

    def scanned(row: PlannedRow) -> Entry:
        choose_adam(context)
        return runner.shared(row)

    space_rows = scan(space, context.planner)
    made = [Item(f"scan-{row.topology.key}", row.seconds, partial(scanned, row)) for row in space_rows]
    made += [
        Item(f"batch-{row.topology.micro_batch}", row.seconds, partial(scanned, row))
        for row in batches(space, context.planner, tiny=context.tiny)
    ]
    budget = len(space_rows) if context.tiny else BUDGET
    longest = max(row.estimate[0] for row in space_rows) * ITERATIONS
    made.append(Item("optimize", budget * (JOB_SECONDS + longest), partial(optimize, context, model, budget)))
    made += [
        Item(f"max-batch-{strategy}", ATTEMPTS * (JOB_SECONDS + 4.0), partial(max_batch, context, model, strategy))
        for strategy in STRATEGIES
    ]
    return made


def fault_items(context: Context) -> list[Item]:
    """Return the items of the stage `faults`."""
    model = model_file(context)
    return [Item(f"fault-{how}", FAULT_SECONDS[how], partial(fault, context, model, how)) for how in FAULTS]


def model_file(context: Context) -> Path:
    """Write the description of the model that is searched; return its path."""
    path = context.results.folder / "1b.json"
    write_object(path, CONFIG | (TINY if context.tiny else {}))
    return path


def searched(model: Path, gpu: str, *, tiny: bool) -> Space:
    """Return the space that `tuner optimize` searches with the same options on the machine with the GPU."""
    settings = TINY_SPACE if tiny else SPACE
    space = space_for(
        model=str(model),
        gpu=gpu,
        nodes=1,
        gpus_per_node=1,
        global_batch=BATCH,
        framework="deepspeed",
        settings=settings,
        allow=POLICIES,
    )
    if not tiny:
        return space
    return replace(space, workload=replace(space.workload, precision="fp32", attention="eager"))


def scan(space: Space, planner: Planner) -> list[PlannedRow]:
    """Return a row for each legal topology of the space."""
    points = np.concatenate(list(space.blocks()))
    group = f"{planner.name}-1b-space"
    found = space.topologies(points)
    return [PlannedRow(group, space.workload, _own(topology, space), planner.cluster) for topology in found]


def _own(topology: Topology, space: Space) -> Topology:
    """Return the topology without a `heads` override that equals the model's own number of heads."""
    return replace(topology, heads=None if topology.heads == space.workload.model.heads else topology.heads)


def batches(space: Space, planner: Planner, *, tiny: bool) -> list[PlannedRow]:
    """Return the rows of increasing micro batches, without accumulation, as `tuner max-batch` runs them."""
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=1, recompute="none")
    return [
        PlannedRow(
            f"{planner.name}-1b-batches",
            replace(space.workload, global_batch=batch),
            replace(topology, micro_batch=batch),
            planner.cluster,
        )
        for batch in (range(1, 2) if tiny else SCANNED)
    ]


def optimize(context: Context, model: Path, budget: int) -> Entry:
    """Run `tuner optimize` on this machine."""
    settings = TINY_SPACE if context.tiny else SPACE
    words = [word for setting in settings for word in ("--set", setting)]
    arguments = (*described(model, context), "--study", "1b", "--budget", str(budget), *words)
    return tuner(context, "optimize", *arguments, limit=budget * 60.0)


def max_batch(context: Context, model: Path, strategy: str) -> Entry:
    """Run `tuner max-batch` on this machine."""
    words = ["--set", "zero=1", "--set", "recompute=none", "--set", "cp=1", "--set", "vpp=1"]
    options = ("--most", "1") if context.tiny else ("--step", str(STEP), "--most", "64", *STRATEGIES[strategy])
    arguments = (*described(model, context), "--strategy", strategy, *words, *options)
    return tuner(context, "max-batch", *arguments, limit=300.0)


def fault(context: Context, model: Path, how: str) -> Entry:
    """Run a failing trainer as the only job of a study; the result states how the study classified it."""
    command = f"{sys.executable} -m benchmarks.gpu.faults {how}"
    words = ("--set", "zero=0", "--set", "recompute=none", "--set", "micro_batch=1", "--set", "cp=1", "--set", "vpp=1")
    study = ("--study", f"fault-{how}", "--budget", "1", "--sampler", "grid")
    arguments = (*described(model, context), *study, "--command", command, *words)
    entry = tuner(context, "optimize", *arguments, limit=180.0)
    trials = entry.get("document", {}).get("trials", [])
    found = trials[0]["outcome"] if trials else None
    entry |= {"expected": FAULTS[how], "found": found, "status": "OK" if found == FAULTS[how] else "FAIL"}
    if found is not None:
        entry["meaning"] = f"classed as {found}"
    return entry


def described(model: Path, context: Context) -> Sequence[str]:
    """Return the options of a tuner command for jobs on this machine."""
    words = ["--launcher", "local", "--model", str(model), "--nodes", "1", "--gpus-per-node", "1"]
    words += ["--global-batch", str(BATCH)]
    return words if context.tiny else [*words, "--gpu", context.planner.gpu]


def tuner(context: Context, *arguments: str, limit: float) -> Entry:
    """Close the shared process and run a tuner command with `--json`; return its document and exit code."""
    context.runner.close()
    words = [sys.executable, "-m", "tuner", *arguments, "--runs", str(context.results.folder / "runs"), "--json"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=max(limit, 60.0), check=False, cwd=ROOT, stdin=subprocess.DEVNULL
    )
    entry: Entry = {"status": "FAIL" if done.returncode else "OK", "exit": done.returncode, "command": words[2:]}
    try:
        entry["document"] = json.loads(done.stdout)
    except ValueError:
        entry["status"] = "FAIL"
    if entry["status"] == "FAIL":
        entry["meaning"] = done.stderr.strip()[-600:]
    return entry


def findings(results: Results) -> dict[str, Any]:
    """Return the searches compared with the scans: regret and cost of the optimizer, and the batch limits found."""
    entries = {each["name"]: each for each in results.of(STAGE)}
    failed = {each["name"]: each for each in results.of(FAULT_STAGE)}
    scanned = {
        name.removeprefix("scan-"): each["seconds"][1]
        for name, each in entries.items()
        if name.startswith("scan-") and each["status"] == "OK"
    }
    found: dict[str, Any] = {"scanned": len(scanned)}
    optimized = entries.get("optimize", {}).get("document", {})
    winner = (optimized.get("best") or {}).get("key")
    if scanned:
        best = min(scanned, key=lambda key: scanned[key])
        found |= {"best": best, "seconds": scanned[best], "winner": winner, "jobs": optimized.get("jobs_launched")}
        if winner in scanned:
            found["regret"] = scanned[winner] / scanned[best] - 1
    ran = [int(name.removeprefix("batch-")) for name, each in entries.items() if _fits(name, each)]
    found["largest batch"] = max(ran, default=None)
    found["max-batch"] = {
        strategy: {name: entries.get(f"max-batch-{strategy}", {}).get("document", {}).get(name) for name in _ANSWER}
        for strategy in STRATEGIES
    }
    found["faults"] = {how: failed.get(f"fault-{how}", {}).get("found") for how in FAULTS}
    return found


_ANSWER: Final = ("max_batch", "runs")


def _fits(name: str, entry: Entry) -> bool:
    return name.startswith("batch-") and entry["status"] == "OK"
