"""Unmodified trainers of real frameworks on CPUs, measured by `optimize --launcher local`.

They run with the Python named by `TUNER_TRAINERS_PYTHON`, or else with this one, if it has their packages. Trainers
that take minutes run only if the variable is set: DeepSpeed's, and broken variants of trainers that need more than
torch. All of them together take ten minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run, Said
from tuner.launch.extensions import FOLDER

pytestmark = pytest.mark.slow

PYTHON = os.environ.get("TUNER_TRAINERS_PYTHON", sys.executable)
SCRIPTS = ROOT / "tests/trainers"
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone --nproc-per-node {{gpus}}"
HF = (
    f"{SCRIPTS}/hf_trainer.py --output_dir {{folder}}/out --max_steps 10 --per_device_train_batch_size {{micro_batch}} "
    "--gradient_accumulation_steps {microbatches} --report_to none --use_cpu"
)

TRAINERS = {
    "nanoGPT": (
        ("torch",),
        f"{PYTHON} {SCRIPTS}/nanogpt_loop.py --batch_size={{micro_batch}} "
        "--gradient_accumulation_steps={microbatches}",
        (),
    ),
    "Lightning": (
        ("lightning",),
        f"{PYTHON} {SCRIPTS}/lightning_loop.py --batch {{micro_batch}} --devices {{dp}}",
        (),
    ),
    "DDP with its own print": (
        ("torch",),
        f"{TORCHRUN} {SCRIPTS}/ddp_loop.py --micro-batch {{micro_batch}} --microbatches {{microbatches}}",
        ("--step-pattern", r"batch (?P<iteration>[0-9]+) .*took (?P<seconds>[0-9.]+) sec"),
    ),
    "accelerate": (
        ("accelerate", "tqdm"),
        f"{PYTHON} -m accelerate.commands.launch --cpu --num_processes {{gpus}} {SCRIPTS}/accelerate_loop.py "
        "--per-device-batch {micro_batch} --accumulation {microbatches}",
        (),
    ),
    "HF Trainer": (("transformers", "accelerate"), f"{TORCHRUN} {HF}", ()),
    "HF Trainer with DeepSpeed": (
        ("transformers", "accelerate", "deepspeed"),
        f"{TORCHRUN} {HF} --deepspeed {{ds_config}}",
        ("--framework", "deepspeed"),
    ),
    "HF Trainer with DeepSpeed, by --trainer": (
        ("transformers", "accelerate", "deepspeed"),
        f"{PYTHON} {SCRIPTS}/hf_trainer.py --output_dir out --report_to none --use_cpu",
        ("--trainer", "hf"),
    ),
}


SILENT = """
import os, runpy, sys
for stream in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
os._exit(0)  # threads of torch may abort while an interpreter ends, which is another failure
"""
"""Runs a trainer without its output."""


def with_missing_module(command: str, folder: Path) -> str:
    """Return the command with a script that imports a module that is not installed."""
    script = Path(SCRIPT.search(command)[0])  # type: ignore[index]
    broken = folder / script.name
    broken.write_text(f"import flash_attn_of_tomorrow\n{script.read_text()}")
    return command.replace(str(script), str(broken))


def with_bad_flag(command: str, _folder: Path) -> str:
    """Return the command with a flag that the trainer does not know."""
    return f"{command} --no_such_flag=2"


def without_output(command: str, folder: Path) -> str:
    """Return the command with all output of the trainer discarded."""
    silent = folder / "silent.py"
    silent.write_text(SILENT.replace("{", "{{"))
    return SCRIPT.sub(rf"{silent} \g<0>", command)


SCRIPT = re.compile(r"\S+/tests/trainers/\w+\.py")

BROKEN = {
    "missing module": (with_missing_module, "a dependency is missing", "install it for the Python that --command runs"),
    "bad flag": (with_bad_flag, "the trainer refused its arguments", "correct --command"),
    # Launchers print lines of their own, so either of two sentences explains the failure.
    "no output": (without_output, "succeeded, but none could be measured", "call step() of tuner.step in the trainer"),
}


@lru_cache
def installed(package: str) -> bool:
    return subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share DeepSpeed's compiled extensions between all studies, because compiling takes minutes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FOLDER, str(tmp_path_factory.mktemp("extensions")))
        yield


def study(run: Run, tmp_path: Path, name: str, command: str, *, takes_minutes: bool) -> Said:
    """Run a search of at most four jobs with a trainer."""
    packages, _, options = TRAINERS[name]
    if takes_minutes and "TUNER_TRAINERS_PYTHON" not in os.environ:
        pytest.skip("takes minutes; runs with the Python that TUNER_TRAINERS_PYTHON names")
    if missing := [package for package in packages if not installed(package)]:
        pytest.skip(f"{PYTHON} has no {', '.join(missing)}")
    words = ("--model", "tiny", "--nodes", "1", "--gpus-per-node", "2", "--global-batch", "8", "--budget", "4")
    degrees = ("--set", "tp=1", "--set", "pp=1", "--set", "cp=1")
    framework = () if "--framework" in options or "--trainer" in options else ("--framework", "any")
    return run(
        *("optimize", "--launcher", "local", "--command", command, *words, *degrees, *framework, *options),
        *("--study", "s", "--runs", str(tmp_path / "runs"), "--json"),
    )


@pytest.mark.parametrize("name", TRAINERS)
def test_an_unmodified_trainer_is_measured(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packages, command, _ = TRAINERS[name]
    said = study(run, tmp_path, name, command, takes_minutes="deepspeed" in packages)
    assert said.code == 0, said.err
    trials = json.loads(said.out)["trials"]
    assert len(trials) == 4
    assert trials[0]["outcome"] == "MEASURED"
    assert {trial["outcome"] for trial in trials} <= {"MEASURED", "PRUNED"}
    assert all(trial["sec_per_iter"] > 0 for trial in trials if trial["outcome"] == "MEASURED")


@pytest.mark.parametrize("variant", BROKEN)
@pytest.mark.parametrize("name", TRAINERS)
def test_a_broken_trainer_costs_three_jobs_and_is_explained_in_one_sentence(
    name: str, variant: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, reason, remedy = BROKEN[variant]
    monkeypatch.chdir(tmp_path)
    packages, command, _ = TRAINERS[name]
    said = study(run, tmp_path, name, broken(command, tmp_path), takes_minutes=packages != ("torch",))
    assert said.code == 1
    trials = json.loads(said.out)["trials"]
    assert len(trials) <= 3, [(trial["outcome"], trial["reason"], trial["evidence"]) for trial in trials]
    sentence = said.err.strip().splitlines()[-1]
    assert sentence.startswith("tuner: no job was measured; the last 3 jobs ")
    assert reason in sentence
    assert remedy in sentence
