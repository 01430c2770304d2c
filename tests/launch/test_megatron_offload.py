"""Offload of the optimizer in Megatron-LM jobs: searched if the command or --set asks for it, and read in logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.core.domain import Topology
from tuner.export.flag_table import flag_table
from tuner.launch.trainers.command import TrainerCommand
from tuner.logs.workload import described
from tuner.study.api import study_settings

LM = (
    "python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --vocab-size 50257 --bf16 --global-batch-size 256"
)
OFFLOADING = f"{LM} --optimizer-cpu-offload --optimizer-offload-fraction 0.3 --use-precision-aware-optimizer"
SHARES: dict[Any, float] = {"optimizer-25": 0.25, "optimizer-50": 0.5, "optimizer-75": 0.75, "optimizer": 1.0}

MEGATRON_ARGUMENTS = {
    "num_layers": "32",
    "hidden_size": "4096",
    "num_attention_heads": "32",
    "seq_length": "4096",
    "micro_batch_size": "1",
    "global_batch_size": "256",
    "world_size": "8",
    "padded_vocab_size": "50304",
    "bf16": "True",
    "tensor_model_parallel_size": "2",
    "pipeline_model_parallel_size": "1",
}
"""What Megatron-LM prints of a run on 8 GPUs."""


def test_a_command_that_offloads_has_its_offload_searched() -> None:
    settings: dict[str, Any] = {"trainer": "megatron-lm", "launcher": "slurm", "nodes": 1, "budget": 1}
    searched = study_settings(command=OFFLOADING, **settings).space.axes["offload"]
    assert searched == ("none", "optimizer-50", "optimizer")
    assert study_settings(command=LM, **settings).space.axes["offload"] == ("none",)
    own = study_settings(command=LM, settings=("offload=optimizer-75",), **settings)
    assert own.space.axes["offload"] == ("optimizer-75",)


@pytest.mark.parametrize(("offload", "share"), [("none", None), *SHARES.items()])
def test_jobs_offload_what_their_topology_does(offload: Any, share: float | None) -> None:
    """Whatever share the command offloads."""
    trainer = TrainerCommand.parse("megatron-lm", OFFLOADING)
    workload = study_settings(trainer="megatron-lm", command=LM, launcher="slurm", nodes=1, budget=1).space.workload
    topology = Topology(nodes=1, tp=2, pp=1, dp=4, micro_batch=1, zero=1, offload=offload, recompute="none")
    flags = trainer.job_flags(workload, topology, Path("x"))
    read = flag_table("megatron-core").parser.parse_args([*trainer.words[2:], *flags])
    assert read.optimizer_cpu_offload is (share is not None)
    assert read.overlap_cpu_optimizer_d2h_h2d is (share is not None)
    assert read.optimizer_offload_fraction == (share or 1.0)
    assert read.use_precision_aware_optimizer


@pytest.mark.parametrize(
    ("printed", "offload"),
    [
        ({}, "none"),
        ({"optimizer_cpu_offload": "False", "optimizer_offload_fraction": "1.0"}, "none"),
        *(
            ({"optimizer_cpu_offload": "True", "optimizer_offload_fraction": str(share)}, offload)
            for offload, share in SHARES.items()
        ),
        ({"optimizer_cpu_offload": "True"}, "optimizer"),
        ({"optimizer_cpu_offload": "True", "optimizer_offload_fraction": "0.55"}, "optimizer-50"),
        ({"optimizer_cpu_offload": "True", "optimizer_offload_fraction": "0.05"}, "optimizer-25"),
        ({"cpu_optimizer": "True"}, "optimizer"),
        ({"cpu_optimizer": "True", "remote_device": "cpu"}, "optimizer+parameters"),
    ],
)
def test_a_log_names_the_share(printed: dict[str, str], offload: str) -> None:
    """The nearest share that is modeled, but never none."""
    found = described(MEGATRON_ARGUMENTS | printed, 8)
    assert found.topology is not None, found.lacks
    assert found.topology.offload == offload
