"""The stage `trainers`: measures an exported folder, HF Trainer with DeepSpeed, and steps of megatron-core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.gpu.process import ROOT, python_path
from benchmarks.gpu.searches import BATCH, described, model_file, tuner
from benchmarks.gpu.stage import Context, Entry, Item
from tuner.core.atomic_write import write_object

HF_BUDGET: Final = 3
GPT2: Final = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 2048,
    "n_layer": 8,
    "n_head": 16,
    "n_positions": 2048,
    "n_ctx": 2048,
    "vocab_size": 51200,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
"""The model of `benchmarks.gpu.hf`."""
SMALL: Final = {"n_embd": 64, "n_layer": 2, "n_head": 1, "n_positions": 32, "n_ctx": 32, "vocab_size": 128}


def trainer_items(context: Context) -> list[Item]:
    """Return the items of the stage."""
    return [
        Item("export", 30.0, partial(export, context)),
        Item("hf-deepspeed", HF_BUDGET * 22.0, partial(hugging_face, context)),
        Item("megatron-log", 3.0, partial(megatron, context)),
    ]


def export(context: Context) -> Entry:
    """Export the winner of the stage `searches`, run the exported script, and measure its log."""
    folder, runs = context.results.folder / "export", context.results.folder / "runs"
    if not (runs / "1b").is_dir():  # the searches ran on another machine, or not yet
        one = ("--set", "zero=1", "--set", "recompute=none", "--set", "micro_batch=8", "--set", "cp=1")
        model = described(model_file(context), context)
        tuner(context, "optimize", *model, "--study", "1b", "--budget", "1", "--sampler", "grid", *one, limit=120.0)
    words = ["export", "1b", "--format", "torchrun", "--runs", str(runs), "-o", str(folder)]
    done = _run(context, [sys.executable, "-m", "tuner", *words], "export.log", 60.0)
    if done:
        return {
            "status": "FAIL",
            "meaning": f"tuner export ended with exit code {done}: {_tail(context, 'export.log')}",
        }
    code = _run(context, ["bash", str(folder / "launch.sh")], "exported.log", 240.0)
    topology = ("--expect", str(folder / "topology.json"))
    return _measured(context, "exported.log", code, *topology)


def hugging_face(context: Context) -> Entry:
    """Run a search with HF Trainer and DeepSpeed as `--command`."""
    model = context.results.folder / "gpt2.json"
    write_object(model, GPT2 | (SMALL if context.tiny else {}))
    sizes = "--hidden 64 --depth 2 --seq 32 --vocab 128 --use_cpu" if context.tiny else "--bf16"
    out = (context.results.folder / "hf").resolve()
    command = (
        f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node {{gpus}} "
        f"-m benchmarks.gpu.hf {sizes} --output_dir {out} --max_steps 5 --save_strategy no --report_to none "
        "--per_device_train_batch_size {micro_batch} --gradient_accumulation_steps {microbatches}"
    )
    if not context.tiny:  # on a CPU, DeepSpeed would compile for minutes
        command += " --deepspeed {ds_config}"
    budget = 1 if context.tiny else HF_BUDGET
    batches = str(BATCH) if context.tiny else "2,4,8"
    words = ("--set", "tp=1", "--set", "pp=1", "--set", "zero=1", "--set", "recompute=none")
    study = ["--study", "hf", "--budget", str(budget), "--sampler", "grid"]
    study += ["--framework", "any" if context.tiny else "deepspeed"]
    arguments = (*described(model, context), *study, "--command", command, "--set", f"micro_batch={batches}", *words)
    return tuner(context, "optimize", *arguments, limit=budget * (200.0 if context.tiny else 90.0))


def megatron(context: Context) -> Entry:
    """Measure a log of the stage `megatron`."""
    trained = [each for each in context.results.of("megatron") if each["status"] == "OK"]
    if not trained:
        return {"status": "REFUSED", "meaning": "no row of the stage megatron has run"}
    entry = _measured(context, f"jobs/{trained[0]['name']}/stdout.log", 0)
    return entry | {"timed": trained[0]["seconds"]}


def _measured(context: Context, log: str, code: int, *options: str) -> Entry:
    """Return the entry of a log, as measured by `tuner measure`."""
    words = [sys.executable, "-m", "tuner", "measure", str(context.results.folder / log), *options, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    entry: Entry = {"exit": code, "status": "FAIL", "meaning": _tail(context, log)}
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return entry | {"meaning": done.stderr.strip()[-400:]}
    entry["document"] = document
    measurement = document.get("measurement")
    if code or not measurement:
        return entry
    del entry["meaning"]
    return entry | {"status": "OK", "seconds": measurement["sec_per_iter"]}


def _run(context: Context, words: list[str], log: str, limit: float) -> int:
    """Run a program with its output redirected to a log; return its exit code."""
    context.runner.close()
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": python_path()}
    with (context.results.folder / log).open("wb") as file:
        done = subprocess.run(
            words, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, timeout=limit, check=False
        )
    return done.returncode


def _tail(context: Context, log: str) -> str:
    path: Path = context.results.folder / log
    return path.read_text(errors="replace").strip()[-400:]
