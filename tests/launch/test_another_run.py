"""A job whose own log states another topology, batch or model than its trial is not measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launch.test_local import ended, launched
from tests.launch.test_local import job as local_job
from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.outcomes import Outcome
from tuner.core.shape import Shape
from tuner.launch.contract import Job
from tuner.launch.outcome import noted_run, outcome_of, size_note
from tuner.launch.program import CommandTemplate
from tuner.launch.slurm.job import SlurmJob, TrackedJob, result_of
from tuner.logs import quantities

MODEL = Model(layers=4, hidden=64, heads=4, vocab=256, seq=64)
WORKLOAD = Workload(model=MODEL, global_batch=8)
TOPOLOGY = Topology(nodes=1, tp=2, pp=1, dp=1, micro_batch=2, vpp=1, zero=1, sequence_parallel=True)
OWN = {
    "tensor_model_parallel_size": "2",
    "pipeline_model_parallel_size": "1",
    "context_parallel_size": "1",
    "data_parallel_size": "1",
    "virtual_pipeline_model_parallel_size": "None",
    "expert_model_parallel_size": "1",
    "expert_tensor_parallel_size": "2",
    "micro_batch_size": "2",
    "global_batch_size": "8",
    "num_layers": "4",
    "hidden_size": "64",
    "num_attention_heads": "4",
    "seq_length": "64",
    "sequence_parallel": "False",
    "use_distributed_optimizer": "False",
    "recompute_granularity": "None",
}
LINE = " iteration {0}/ 9 | elapsed time per iteration (ms): 200.0 | global batch size: {1} | lm loss: 1.0E+01 |"


def log(folder: Path, arguments: dict[str, str], batch: int = 8, end: str = "") -> None:
    """Write a log of Megatron with these arguments, three iterations of a batch, and another end."""
    rule = "-" * 20
    block = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    block = [f"{rule} arguments {rule}", *block, f"{rule} end of arguments {rule}"] if block else []
    lines = [end] if end else [LINE.format(number, batch) for number in (1, 2, 3)]
    (folder / "stdout.log").write_text("\n".join([*block, *lines]) + "\n")


def said(folder: Path, topology: Topology = TOPOLOGY, workload: Workload = WORKLOAD) -> str:
    """Return why the job of a topology is unreadable; empty if it is measured."""
    result = outcome_of(folder, {"exit": 0}, (2,), on_host=False, by_log=True, wanted=quantities(workload, topology))
    assert result.outcome is (Outcome.UNREADABLE if result.evidence else Outcome.MEASURED)
    return result.evidence


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        ({}, ""),
        ({"tensor_model_parallel_size": "1", "data_parallel_size": "2"}, "tp 1, not 2 and dp 2, not 1"),
        ({"pipeline_model_parallel_size": "2"}, "pp 2, not 1"),
        ({"context_parallel_size": "2"}, "cp 2, not 1"),
        ({"virtual_pipeline_model_parallel_size": "2"}, "vpp 2, not 1"),
        ({"micro_batch_size": "4"}, "micro batch 4, not 2"),
        ({"global_batch_size": "16"}, "global batch 16, not 8"),
        ({"num_layers": "2"}, "layers 2, not 4"),
        ({"hidden_size": "32"}, "hidden 32, not 64"),
        ({"num_attention_heads": "8"}, "heads 8, not 4"),
        ({"seq_length": "128"}, "seq 128, not 64"),
        ({"expert_model_parallel_size": "8"}, ""),
        ({"use_distributed_optimizer": "True", "recompute_granularity": "full"}, ""),
    ],
)
def test_a_log_that_states_another_run_is_not_measured(
    arguments: dict[str, str], difference: str, tmp_path: Path
) -> None:
    """Megatron itself changes ZeRO, sequence parallelism and recompute, and a dense model has no expert parallelism."""
    log(tmp_path, {**OWN, **arguments})
    assert said(tmp_path).startswith(
        f"its log states {difference}: the job did not run its trial" if difference else ""
    )
    assert bool(said(tmp_path)) == bool(difference)


@pytest.mark.parametrize("missing", [*OWN, "all of them"])
def test_what_a_log_does_not_state_is_not_compared(missing: str, tmp_path: Path) -> None:
    log(tmp_path, {} if missing == "all of them" else {name: value for name, value in OWN.items() if name != missing})
    assert said(tmp_path) == ""


@pytest.mark.parametrize("part", [{"not_understood": ("mamba layers",)}, {"read_as": "llama"}])
def test_sizes_of_a_model_that_is_understood_in_part_are_not_compared(part: dict[str, Any], tmp_path: Path) -> None:
    """Megatron-LM counts the sublayers of a hybrid model."""
    log(tmp_path, {**OWN, "num_layers": "8"})
    assert said(tmp_path, workload=replace(WORKLOAD, model=replace(MODEL, **part))) == ""
    assert said(tmp_path).startswith("its log states layers 8, not 4:")


def test_the_batch_of_the_measured_lines_counts(tmp_path: Path) -> None:
    """A ramp that the command keeps would measure its first batch, although the arguments state the last one."""
    log(tmp_path, OWN, batch=4)
    assert said(tmp_path).startswith("its log states global batch 4, not 8:")
    assert said(tmp_path, replace(TOPOLOGY, global_batch=4)).startswith("its log states global batch 8, not 4:")


def test_virtual_stages_and_experts_are_those_of_the_trial(tmp_path: Path) -> None:
    experts = replace(WORKLOAD, model=replace(MODEL, experts=Experts(count=8, top_k=2, ffn=32)))
    log(tmp_path, {**OWN, "pipeline_model_parallel_size": "2"})
    staged = replace(TOPOLOGY, pp=2, vpp=2)
    assert said(tmp_path, staged).startswith("its log states vpp 1, not 2:")
    log(tmp_path, OWN)
    assert said(tmp_path, replace(TOPOLOGY, ep=2), experts).startswith(
        "its log states ep 1, not 2 and etp 2, not 1: the job did not run its trial"
    )


@pytest.mark.parametrize(("micro_batch", "difference"), [(2, ""), (4, "micro batch 4, not 2")])
def test_deepspeed_states_the_batch_of_the_steps_that_it_times(
    micro_batch: int, difference: str, tmp_path: Path
) -> None:
    """The bar of a loop may count steps of another batch than DeepSpeed's engine."""
    at = "[2024-05-01 12:00:00,000] [INFO]"
    lines = [f"{at} [config.py:1000:print]   train_micro_batch_size_per_gpu ...... {micro_batch}"]
    lines += [f"{at} [config.py:1000:print]   train_batch_size ............. 8"]
    timed = [f"steps: {step} loss: 4.5000 iter time (s): 0.500 samples/sec: 16.000" for step in (1, 2, 3)]
    (tmp_path / "stdout.log").write_text("\n".join([*lines, *timed]) + "\n")
    assert said(tmp_path).startswith(f"its log states {difference}:" if difference else "")
    assert bool(said(tmp_path)) == bool(difference)
    bar = [f"step {step} loss 4.5 step time 0.5" for step in (1, 2, 3)]
    (tmp_path / "stdout.log").write_text("\n".join([*lines, *bar]) + "\n")
    assert said(tmp_path) == ""


def test_another_run_that_is_out_of_memory_does_not_count_against_the_topology(tmp_path: Path) -> None:
    end = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    log(tmp_path, OWN, end=end)
    ended = {"exit": 1}
    wanted = quantities(WORKLOAD, TOPOLOGY)
    assert outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True, wanted=wanted).outcome is Outcome.OOM
    log(tmp_path, {**OWN, "micro_batch_size": "4"}, end=end)
    result = outcome_of(tmp_path, ended, (2,), on_host=False, by_log=True, wanted=wanted)
    assert (result.outcome, result.evidence.split(":")[0]) == (
        Outcome.UNREADABLE,
        "its log states micro batch 4, not 2",
    )


def test_a_note_without_a_run_is_of_an_earlier_version() -> None:
    assert noted_run({}) == noted_run({"run": None}) == {}
    assert noted_run({"run": {"tp": 2, "pp": "x"}}) == {"tp": 2}


def test_the_note_of_a_job_has_what_its_log_should_state(tmp_path: Path) -> None:
    """Of a topology with its own heads, shape and batch, and with another number of nodes than the study's."""
    topology = replace(TOPOLOGY, dp=2, heads=8, shape=Shape(hidden=128, layers=6), global_batch=16)
    job = Job(
        number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=catalog.cluster("bloom-48"), topology=topology
    )
    degrees = {"tp": 2, "pp": 1, "cp": 1, "dp": 2, "vpp": 1, "micro_batch": 2, "global_batch": 16}
    assert noted_run(size_note(job)) == {**degrees, "layers": 6, "hidden": 128, "heads": 8, "seq": 64}


def test_the_local_launcher_compares_a_log_with_its_job(tmp_path: Path) -> None:
    log(tmp_path, OWN)
    program = CommandTemplate(words=("cat", str(tmp_path / "stdout.log")), cwd=tmp_path)
    own = local_job(tmp_path / "job")
    with launched(program, own) as (launcher, handle):
        result = ended(launcher, handle)
    assert result.outcome is Outcome.UNREADABLE
    assert result.evidence.startswith("its log states ")
    same = replace(own, folder=tmp_path / "same", workload=WORKLOAD, topology=TOPOLOGY, tag="same")
    with launched(program, same) as (launcher, handle):
        assert ended(launcher, handle).outcome is Outcome.MEASURED


@pytest.mark.parametrize(("tp", "outcome"), [(2, Outcome.MEASURED), (4, Outcome.UNREADABLE)])
def test_a_slurm_job_compares_its_log_with_its_note(tp: int, outcome: Outcome, tmp_path: Path) -> None:
    log(tmp_path, OWN)
    SlurmJob(id="7", tag="t", folder=tmp_path).record({"run": {**quantities(WORKLOAD, TOPOLOGY), "tp": tp}})
    tracked = TrackedJob(tmp_path, "t", "7")
    assert result_of(tracked.job, tracked.state, on_host=False, by_log=True).outcome is outcome
