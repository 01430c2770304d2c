"""Tiny jobs for the worker, and their results."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tuner.core.assignment import Assignment
from tuner.core.domain import Topology, Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.launch.ds_config import ds_config

ROOT = Path(__file__).resolve().parent.parent


def tiny(**sizes: Any) -> Model:
    """Return the tiny model with these sizes; derived sizes follow."""
    return Model(**{"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "vocab": 128, "seq": 32, **sizes})


def mixture(**sizes: Any) -> Model:
    """Return the tiny model with one dense layer and three with experts of these sizes."""
    usual = {"count": 8, "top_k": 2, "ffn": 64, "shared_ffn": 32, "shared_gate": True, "dense_layers": 1}
    balance = {"aux_loss": 0.1, "aux_loss_per_sequence": True, "z_loss": 0.01}
    return tiny(
        name="tiny-moe",
        experts=Experts(**{**usual, **balance, **sizes}),
        gated_mlp=True,
        norm="rmsnorm",
        positions="rotary",
        tied_embeddings=False,
        **dict.fromkeys(("mlp_bias", "qkv_bias", "attention_bias"), False),
    )


TINY = tiny()
WORKLOAD = Workload(model=TINY, global_batch=8, precision="fp32", attention="eager")
ONE = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=4, zero=0, recompute="none")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


def topology(**axes: Any) -> Topology:
    """Return `ONE` with these axes changed."""
    return replace(ONE, **axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The folder and exit codes of a finished job."""

    folder: Path
    codes: list[int]

    @property
    def failed(self) -> bool:
        """Whether a rank failed, and every rank failed or was killed."""
        return 1 in self.codes and set(self.codes) <= {1, -signal.SIGKILL}

    @property
    def result(self) -> dict[str, Any]:
        """The result document, which only a successful job writes."""
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    @property
    def losses(self) -> list[float]:
        """The loss of each iteration."""
        return [each["loss"] for each in self.result["iterations"]]

    @property
    def out(self) -> str:
        """The output of all ranks."""
        return (self.folder / "stdout.log").read_text()

    @property
    def err(self) -> str:
        """The error output of all ranks."""
        return (self.folder / "stderr.log").read_text()


RATES = {"adam": 1e-3, "sgd": 0.5, "adafactor": 1e-2}
"""Learning rates at which ten iterations change the loss."""


def assign(folder: Path, workload: Workload, chosen: Topology, *, clip: float = 1.0, **rest: Any) -> None:
    """Write a job's files; a given `config` is used unchanged."""
    made = rest.pop("config", None)
    if made is None:
        made = ds_config(workload, chosen)
        made["optimizer"]["params"]["lr"] = rest.pop("rate", RATES[workload.optimizer])
        made["gradient_clipping"] = clip
    (folder / "ds_config.json").write_text(json.dumps(made))
    Assignment(
        workload=workload,
        topology=chosen,
        gpus_per_node=chosen.gpus,
        ds_config="ds_config.json",
        result="result.json",
        **{"iterations": 10, "timeout": 30.0, **rest},
    ).write(folder / "job.json")


class Ranks:
    """The process that forks ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._jobs = folder, 0
        self._known: dict[str, Job] = {}
        command = [sys.executable, "-m", "tests.worker_ranks"]
        with (folder / "ranks.log").open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=ENVIRONMENT,
            )
        while (line := self._answer()) != "ready\n":
            assert line, (folder / "ranks.log").read_text()

    def run(self, workload: Workload = WORKLOAD, chosen: Topology = ONE, *, alone: int = 0, **rest: Any) -> Job:
        """Run a job, or only its first rank as one of `alone` ranks; return the earlier result of an equal job."""
        known = repr((workload, chosen, alone, rest))
        if known in self._known:
            return self._known[known]
        self._jobs += 1
        folder = self._folder / f"{self._jobs:02d}-{chosen.key}"
        folder.mkdir()
        assign(folder, workload, chosen, **rest)
        job = Job(folder=folder, codes=self.start(folder, chosen.gpus, alone))
        self._known[known] = job
        return job

    def start(self, folder: Path, ranks: int, alone: int = 0) -> list[int]:
        """Run the job in a folder with so many ranks, and return their exit codes."""
        assert self._process.stdin
        self._process.stdin.write(
            json.dumps({"folder": str(folder), "ranks": alone or ranks, "start": 1 if alone else ranks}) + "\n"
        )
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._answer())
        return codes

    def succeeded(self, workload: Workload = WORKLOAD, chosen: Topology = ONE, **rest: Any) -> Job:
        """Run a job, and assert that it succeeds."""
        job = self.run(workload, chosen, **rest)
        assert set(job.codes) == {0}, f"{chosen.key}: {job.codes}\n{job.err[-3000:]}"
        return job

    def close(self) -> None:
        """End the process; all its ranks have ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def needs_deepspeed() -> None:
    """Skip the test if DeepSpeed is not installed, without importing it, which takes seconds."""
    if not importlib.util.find_spec("deepspeed"):
        pytest.skip("needs torch and deepspeed")


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """One process for all jobs of the session."""
    needs_deepspeed()
    made = Ranks(tmp_path_factory.mktemp("jobs"))
    yield made
    made.close()


def triads_by_deepspeed(cases: Sequence[tuple[Mapping[str, Any], int]]) -> list[list[int]]:
    """Return the three batch sizes that DeepSpeed's config class derives from each config and data parallel size."""
    needs_deepspeed()
    program = """
import json, sys
import deepspeed.runtime.config as module
module.dist.get_rank = lambda: 0
class Grid:
    def __init__(self, dp): self.dp = dp
    def get_data_parallel_world_size(self): return self.dp
for config, dp in json.load(sys.stdin):
    read = module.DeepSpeedConfig(config, mpu=Grid(dp))
    print(json.dumps([read.train_batch_size, read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps]))
"""
    said = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cases),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    answers = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("[") and line.endswith("]")]
    return [answer for answer in answers if len(answer) == 3]
