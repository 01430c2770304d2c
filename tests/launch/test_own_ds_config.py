"""The DeepSpeed config that a command names is the base of those of jobs and exports; without one, the trainer's own
optimizer and schedule are used."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import Run
from tests.launch.test_trainers import TOPOLOGY, workload
from tests.workers import needs_deepspeed
from tuner.core import catalog
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.launch.contract import Job
from tuner.launch.ds_config import ds_config
from tuner.launch.program import program_of
from tuner.launch.trainers.command import TrainerCommand

SHARDED = replace(TOPOLOGY, tp=1, pp=1, vpp=1, dp=8, zero=3, sequence_parallel=False)
OWN: dict[str, Any] = {
    "optimizer": {"type": "Lion", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    "gradient_clipping": 0.3,
    "communication_data_type": "fp32",
    "activation_checkpointing": {"partition_activations": True},
    "comms_logger": {"enabled": False},
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale_window": 500},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 9,
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": "auto",
        "overlap_comm": False,
        "offload_optimizer": {"device": "cpu", "pin_memory": False, "ratio": 0.5},
        "cpu_offload": True,
    },
}
HF = "python run_clm.py --bf16 --optim adafactor"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "my_ds.json"
    path.write_text(json.dumps(OWN))
    return str(path)


def config_of(command: str, tmp_path: Path, topology: Topology = SHARDED, trainer: str | None = "hf") -> dict[str, Any]:
    """Return the config that a job of the command gets."""
    folder = tmp_path / "job"
    folder.mkdir(exist_ok=True)
    cluster = catalog.cluster("bloom-48")
    job = Job(number=0, tag="t", folder=folder, workload=workload(), cluster=cluster, topology=topology)
    start = program_of(command, accelerator="cuda", trainer=trainer).prepare(job)
    assert str(folder / "ds_config.json") in start.arguments
    return dict(json.loads((folder / "ds_config.json").read_text()))


@pytest.mark.parametrize(
    ("command", "trainer"),
    [
        (HF, "hf"),
        (f"{HF} --deepspeed {{ds_config}}", "hf"),
        (f"{HF} --deepspeed {{ds_config}}", None),
        ("accelerate launch --use_deepspeed --deepspeed_config_file {ds_config} t.py", "accelerate"),
        ("accelerate launch --use_deepspeed --deepspeed_config_file {ds_config} t.py", None),
    ],
)
def test_the_optimizer_is_the_trainers_own(command: str, trainer: str | None, tmp_path: Path) -> None:
    """HF Trainer ignores `--optim` if the config has an optimizer, and accelerate refuses that of the script."""
    config = config_of(command, tmp_path, trainer=trainer)
    assert not {"optimizer", "scheduler", "zero_allow_untested_optimizer"} & set(config)
    assert (config["gradient_clipping"], config["zero_optimization"]["stage"]) == ("auto", 3)


@pytest.mark.parametrize(
    ("command", "trainer"),
    [
        (f"{HF} --deepspeed OWN", "hf"),
        (f"accelerate launch --use_deepspeed --deepspeed_config_file OWN {HF[7:]}", "hf"),
        ("accelerate launch --use_deepspeed --mixed_precision bf16 --deepspeed-config-file=OWN t.py", "accelerate"),
        ("python pretrain_gpt.py --bf16 --deepspeed --deepspeed_config OWN", "megatron-deepspeed"),
    ],
)
def test_the_users_own_config_is_kept_but_for_the_topology(
    command: str, trainer: str, own: str, tmp_path: Path
) -> None:
    """Jobs train with the user's config, in the batch, precision, ZeRO stage and offload of the topology."""
    given = command.replace("OWN", own)
    config = config_of(given, tmp_path, trainer=trainer)
    kept = ("optimizer", "scheduler", "gradient_clipping", "communication_data_type", "activation_checkpointing")
    assert {name: config[name] for name in (*kept, "comms_logger")} == {
        name: OWN[name] for name in (*kept, "comms_logger")
    }
    assert config["zero_optimization"] == {"stage": 3, "reduce_bucket_size": "auto", "overlap_comm": False}
    assert (config["train_batch_size"], config["train_micro_batch_size_per_gpu"]) == (256, 2)
    assert config["gradient_accumulation_steps"] == 256 // (2 * 8)
    assert (config["bf16"], config["fp16"]) == ({"enabled": True}, {"enabled": False, "loss_scale_window": 500})
    assert not {"wall_clock_breakdown", "steps_per_print"} & set(config)
    offloaded = config_of(given, tmp_path, replace(SHARDED, offload="optimizer"), trainer)["zero_optimization"]
    assert offloaded["offload_optimizer"] == {"device": "cpu", "pin_memory": False, "ratio": 0.5}


def test_fp16_keeps_the_loss_scaling_of_the_config(own: str) -> None:
    adapted = TrainerCommand.parse("hf", f"python x.py --fp16 --deepspeed {own}").ds_config
    assert adapted is not None
    config = adapted(ds_config(replace(workload(), precision="fp16"), SHARDED))
    assert config["fp16"] == {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500}
    assert config["bf16"] == {"enabled": False}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            '{"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/x"}}}',
            "offloads to nvme in zero_optimization.offload_param, which tuner does not model; set its device to cpu",
        ),
        ('{"tensor_parallel": {"autotp_size": 2}}', "has tensor_parallel.autotp_size 2, but for this trainer"),
        ('{"fp16": {"enabled": true}}', "config in --command enables fp16, but its flags mean bf16; correct one"),
        ('{"bfloat16": {"enabled": true}}', ""),
        ('{"bf16": {"enabled": "auto"}, "fp16": {"enabled": false}}', ""),
        ('{"zero_optimization": true}', "field zero_optimization must be an object, not True"),
        ("[]", "ds.json' in --command must be an object, not a list of 0"),
        ("null", "ds.json' in --command must be an object, not None"),
        ("{", "is not JSON: Expecting property name"),
    ],
)
def test_a_config_from_which_no_topology_follows_is_refused(document: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(document)
    command = TrainerCommand.parse("hf", f"{HF} --deepspeed {path}")
    if not sentence:
        assert command.completed({"model": "tiny", "global_batch": 8})["precision"] == "bf16"
        return
    with pytest.raises(InputError, match=sentence) as caught:
        command.completed({"model": "tiny", "global_batch": 8})
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("named", "sentence"),
    [("none.json", "'none.json' in --command cannot be read: No such file"), ("ds{zero}.json", "is not the name of")],
)
def test_a_missing_config_is_refused(named: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("hf", f"{HF} --deepspeed {named}").completed({"model": "tiny"})


def test_accelerate_without_deepspeed_ignores_the_config() -> None:
    command = TrainerCommand.parse("accelerate", "accelerate launch --deepspeed_config_file none.json t.py")
    assert command.own_config is None


@pytest.mark.slow
def test_transformers_creates_the_optimizer_of_the_command(tmp_path: Path) -> None:
    """With a job's config, HF Trainer creates its own optimizer instead of accelerate's stand-in for DeepSpeed's."""
    needs_deepspeed()
    integration = pytest.importorskip("transformers.integrations.deepspeed")
    read = integration.HfTrainerDeepSpeedConfig(config_of(HF, tmp_path))
    trainer = SimpleNamespace(create_optimizer=lambda: "adafactor")
    assert integration.deepspeed_optim_sched(trainer, read, None, 10, [])[0] == "adafactor"


@pytest.mark.slow
def test_an_export_has_the_config_that_was_measured(
    run: Run, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exported config is based on the one that the study's command names."""
    needs_deepspeed()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    script = tmp_path / "t.py"
    script.write_text("from tqdm import tqdm\nimport time\nfor _ in tqdm(range(99)): time.sleep(0.02)\n")
    runs = ("--runs", str(tmp_path / "runs"))
    said = run(
        *("optimize", "--launcher", "local", "--trainer", "hf", "--model", "tiny", "--nodes", "1", "--budget", "1"),
        *("--gpus-per-node", "1", "--global-batch", "8", "--study", "s", *runs),
        *("--command", f"env python {script} --bf16 --deepspeed {own}"),
    )
    assert said.code == 0, said.err
    folder = tmp_path / "out"
    said = run(
        *("export", "s", *runs, "--format", "torchrun", "-o", str(folder)),
        *("--command", "python t.py --bf16 --deepspeed {ds_config}"),
    )
    assert said.code == 0, said.err
    exported = json.loads((folder / "ds_config.json").read_text())
    measured = json.loads(next((tmp_path / "runs/s/jobs").glob("*/ds_config.json")).read_text())
    assert exported == measured
    assert exported["optimizer"] == OWN["optimizer"]
    notes = (folder / "ds_config.md").read_text()
    assert "| `gradient_clipping` | `0.3` | the DeepSpeed config that the study's --command names |" in notes
