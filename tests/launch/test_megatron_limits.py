"""Commands of Megatron with which a job would not run its trial are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.flag_table import flag_table
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.megatron_limits import CONDITIONAL

LM = "python pretrain_gpt.py"
RECIPE = "python run_recipe.py --recipe llama3_8b_pretrain_config"
FACTORY = "nemo llm pretrain --factory llama3_8b"


@pytest.mark.parametrize(
    ("trainer", "command", "sentence"),
    [
        ("megatron-lm", f"{LM} --yaml-cfg a.yaml", "--yaml-cfg, whose file replaces all flags; write its settings as"),
        ("megatron-lm", f"{LM} --yaml-cfg=a.yaml", "cannot set the topology of a command with --yaml-cfg"),
        ("megatron-lm", f"{LM} --use-checkpoint-args --load x", "--use-checkpoint-args, with which a checkpoint"),
        ("megatron-deepspeed", f"{LM} --use-checkpoint-args", "write the checkpoint's arguments as flags"),
        ("megatron-lm", f"{LM} --use-mp-args-from-checkpoint-args", "with which a checkpoint replaces the parallel"),
        ("megatron-lm", f"{LM} --use-torch-fsdp2", "does not search FSDP, which --use-torch-fsdp2 in --command would"),
        (
            "megatron-lm",
            f"{LM} --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            "does not search FSDP, which --use-megatron-fsdp in --command",
        ),
        ("megatron-lm", f"{LM} --use-custom-fsdp", "FSDP"),
        ("megatron-lm", f"{LM} --cpu-offloading-num-layers 4", "does not search offload"),
        ("megatron-lm", f"{LM} --fine-grained-activation-offloading", "does not search offload"),
        ("nemo", f"{RECIPE} ddp.use_megatron_fsdp=true", "does not search FSDP, which ddp.use_megatron_fsdp in"),
        ("nemo", f"{RECIPE} ++dist.use_torch_fsdp2=True", "does not search FSDP"),
        ("nemo", f"{RECIPE} --use_megatron_fsdp true", "does not search FSDP"),
        ("megatron-deepspeed", f"deepspeed {LM[7:]} --optimizer-cpu-offload", "does not search offload"),
        ("nemo", f"{RECIPE} optimizer.optimizer_cpu_offload=true", "does not search offload"),
        ("nemo", f"{RECIPE} model.cpu_offloading=true", "does not search offload"),
        ("nemo", f"{FACTORY} trainer.strategy.fsdp=megatron", "does not search FSDP"),
    ],
)
def test_what_would_override_or_shard_each_job_otherwise_is_refused(trainer: str, command: str, sentence: str) -> None:
    """Jobs would run another topology than their trial, or FSDP and offload under the name of ZeRO 0 or 1."""
    with pytest.raises(InputError, match=f"--trainer {trainer} .*") as refused:
        TrainerCommand.parse(trainer, command)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


TRACKED = "--wandb-project p --wandb-exp-name e --wandb-save-dir d --wandb-entity me --tensorboard-dir t"
SAVED = (
    "--log-progress --persistent-save-interval 5 --non-persistent-save-interval 5 --save-retain-interval 5 "
    "--save-params-interval 1 --save-activations-interval 1 --save-tokens-per-expert-interval 1 "
    "--save-wgrads-interval 1 --save-dgrads-interval 1 --pretrained-checkpoint x"
)


@pytest.mark.parametrize(
    ("trainer", "program", "removed", "kept"),
    [
        ("megatron-lm", LM, f"{TRACKED} {SAVED} --save s", "--lr 1e-4"),
        ("megatron-lm", LM, "--wandb-project=p", "--log-timers-to-tensorboard"),
        ("megatron-lm", LM, "--load x", "--data-parallel-sharding-strategy optim --cpu-offloading-num-layers 0"),
        ("megatron-lm", LM, "--optimizer-cpu-offload", "--use-precision-aware-optimizer"),
        ("megatron-deepspeed", LM, TRACKED.replace("--wandb-entity me ", ""), "--lr 1e-4"),
        (
            "nemo",
            RECIPE,
            "logger.wandb_project=p ++logger.wandb_exp_name=e logger.wandb_save_dir=d logger.wandb_entity=me "
            "logger.tensorboard_dir=t logger.log_progress=true",
            "optimizer.lr=1e-4",
        ),
        ("nemo", RECIPE, "", "ddp.use_megatron_fsdp=false model.cpu_offloading=False"),
        ("nemo", FACTORY, "", "trainer.strategy.fsdp=None"),
    ],
)
def test_jobs_keep_all_but_trackers_checkpoints_and_the_topology(
    trainer: str, program: str, removed: str, kept: str
) -> None:
    """Without --save, Megatron-LM joins its missing path for wandb and asserts it for its progress log."""
    assert TrainerCommand.parse(trainer, f"{program} {removed} {kept}").words == tuple(f"{program} {kept}".split())


USUAL = Topology(nodes=1, tp=2, pp=2, dp=2, vpp=2, micro_batch=1, zero=1, sequence_parallel=True, recompute="none")


@pytest.mark.parametrize(
    ("flag", "changes", "kept"),
    [
        ("--tp-comm-overlap", {}, True),
        ("--tp-comm-overlap", {"tp": 1, "sequence_parallel": False}, False),
        ("--tp-comm-overlap", {"sequence_parallel": False}, False),
        ("--distribute-saved-activations", {"recompute": "full", "sequence_parallel": False}, True),
        ("--distribute-saved-activations", {"recompute": "full"}, False),
        ("--distribute-saved-activations", {"recompute": "full", "sequence_parallel": False, "tp": 1}, False),
        ("--distribute-saved-activations", {"sequence_parallel": False}, False),
        ("--defer-embedding-wgrad-compute", {}, True),
        ("--defer-embedding-wgrad-compute", {"pp": 1, "vpp": 1}, False),
        ("--overlap-param-gather-with-optimizer-step", {}, True),
        ("--overlap-param-gather-with-optimizer-step", {"zero": 0}, False),
        ("--overlap-param-gather-with-optimizer-step", {"vpp": 1}, False),
        ("--overlap-p2p-communication-warmup-flush", {}, True),
        ("--overlap-p2p-communication-warmup-flush", {"vpp": 1}, False),
        ("--moe-shared-expert-overlap", {}, True),
        ("--moe-shared-expert-overlap", {"dispatcher": "allgather"}, False),
        ("--moe-shared-expert-overlap", {"moe_overlap": True}, False),
    ],
)
def test_a_switch_is_in_the_jobs_whose_topology_allows_it(flag: str, changes: dict[str, Any], kept: bool) -> None:
    """Megatron-LM asserts in the others, and three such jobs would end the study."""
    workload = Workload(model=Model(layers=8, hidden=64, heads=4, vocab=100, seq=32), global_batch=8)
    trainer = TrainerCommand.parse("megatron-lm", f"{LM} {flag} --lr 1e-4")
    job = trainer.job(workload, replace(USUAL, **changes), Path("x"))
    assert job.count(flag) == kept
    other = TrainerCommand.parse("megatron-lm", f"{LM} --lr 1e-4").job(workload, replace(USUAL, **changes), Path("x"))
    assert [word for word in job if word != flag] == list(other)


def test_each_of_these_switches_is_megatrons() -> None:
    flags = flag_table("megatron-core").flags
    assert {flags[name].action for name in CONDITIONAL} == {"StoreTrueAction"}
