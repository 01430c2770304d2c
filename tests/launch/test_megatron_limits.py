"""Commands of Megatron with which a job would not run its trial are refused."""

from __future__ import annotations

import pytest

from tuner.core.errors import InputError
from tuner.launch.trainers.command import TrainerCommand

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
        ("megatron-lm", f"{LM} --use-torch-fsdp2", "does not search FSDP, which --use-torch-fsdp2 of --command would"),
        (
            "megatron-lm",
            f"{LM} --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            "does not search FSDP, which --use-megatron-fsdp of --command",
        ),
        ("megatron-lm", f"{LM} --use-custom-fsdp", "FSDP"),
        ("megatron-lm", f"{LM} --optimizer-cpu-offload", "does not search offload, which --optimizer-cpu-offload of"),
        ("megatron-lm", f"{LM} --cpu-offloading-num-layers 4", "does not search offload"),
        ("megatron-lm", f"{LM} --fine-grained-activation-offloading", "does not search offload"),
        ("nemo", f"{RECIPE} ddp.use_megatron_fsdp=true", "does not search FSDP, which ddp.use_megatron_fsdp of"),
        ("nemo", f"{RECIPE} ++dist.use_torch_fsdp2=True", "does not search FSDP"),
        ("nemo", f"{RECIPE} --use_megatron_fsdp true", "does not search FSDP"),
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


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("megatron-lm", f"{LM} --use-precision-aware-optimizer --cpu-offloading-num-layers 0"),
        ("megatron-lm", f"{LM} --data-parallel-sharding-strategy optim --load x"),
        ("nemo", f"{RECIPE} ddp.use_megatron_fsdp=false model.cpu_offloading=False"),
        ("nemo", f"{FACTORY} trainer.strategy.fsdp=None"),
    ],
)
def test_flags_that_switch_them_off_or_need_them_are_kept(trainer: str, command: str) -> None:
    assert TrainerCommand.parse(trainer, command).words


TRACKED = "--wandb-project p --wandb-exp-name e --wandb-save-dir d --wandb-entity me --tensorboard-dir t"
SAVED = (
    "--log-progress --persistent-save-interval 5 --non-persistent-save-interval 5 --save-retain-interval 5 "
    "--save-params-interval 1 --save-activations-interval 1 --save-tokens-per-expert-interval 1 "
    "--save-wgrads-interval 1 --save-dgrads-interval 1 --pretrained-checkpoint x"
)


@pytest.mark.parametrize(
    ("trainer", "command", "kept"),
    [
        ("megatron-lm", f"{LM} {TRACKED} {SAVED} --save s --lr 1e-4", f"{LM} --lr 1e-4"),
        ("megatron-lm", f"{LM} --wandb-project=p --log-timers-to-tensorboard", f"{LM} --log-timers-to-tensorboard"),
        ("megatron-deepspeed", f"{LM} {TRACKED.replace('--wandb-entity me ', '')} --lr 1e-4", f"{LM} --lr 1e-4"),
        (
            "nemo",
            f"{RECIPE} logger.wandb_project=p ++logger.wandb_exp_name=e logger.wandb_save_dir=d logger.wandb_entity=me "
            "logger.tensorboard_dir=t logger.log_progress=true optimizer.lr=1e-4",
            f"{RECIPE} optimizer.lr=1e-4",
        ),
    ],
)
def test_jobs_write_to_no_tracker(trainer: str, command: str, kept: str) -> None:
    """Without --save, Megatron-LM joins its missing path for wandb and asserts it for its progress log."""
    assert TrainerCommand.parse(trainer, command).words == tuple(kept.split())
