"""Commands of Megatron with which a job would not run its trial are refused."""

from __future__ import annotations

import pytest

from tuner.core.errors import InputError
from tuner.launch.trainers.command import TrainerCommand

LM = "python pretrain_gpt.py"


@pytest.mark.parametrize(
    ("trainer", "command", "sentence"),
    [
        ("megatron-lm", f"{LM} --yaml-cfg a.yaml", "--yaml-cfg, whose file replaces all flags; write its settings as"),
        ("megatron-lm", f"{LM} --yaml-cfg=a.yaml", "cannot set the topology of a command with --yaml-cfg"),
        ("megatron-lm", f"{LM} --use-checkpoint-args --load x", "--use-checkpoint-args, with which a checkpoint"),
        ("megatron-deepspeed", f"{LM} --use-checkpoint-args", "write the checkpoint's arguments as flags"),
        ("megatron-lm", f"{LM} --use-mp-args-from-checkpoint-args", "with which a checkpoint replaces the parallel"),
    ],
)
def test_what_would_override_or_shard_each_job_otherwise_is_refused(trainer: str, command: str, sentence: str) -> None:
    """Jobs would run another topology than their trial, or FSDP and offload under the name of ZeRO 0 or 1."""
    with pytest.raises(InputError, match=f"--trainer {trainer} .*") as refused:
        TrainerCommand.parse(trainer, command)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
