"""The DeepSpeed config of a topology is valid for DeepSpeed; mistakes that DeepSpeed would ignore are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.workers import WORKLOAD, topology, triads_by_deepspeed
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.recompute import GRANULARITIES
from tuner.core.resources import ds_config as base_file
from tuner.launch.ds_config import check, ds_config

BLOOM = replace(WORKLOAD, model=replace(WORKLOAD.model, vocab=250880), global_batch=2048, precision="fp16")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Workload, Topology]:
    """A workload and a topology that divides its batch."""
    dp, micro_batch = draw(st.integers(1, 64)), draw(st.integers(1, 16))
    batch = dp * micro_batch * draw(st.integers(1, 100))
    workload = replace(
        WORKLOAD,
        global_batch=batch,
        precision=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        optimizer=draw(st.sampled_from(["adam", "sgd", "adafactor"])),
    )
    pp = draw(st.sampled_from([1, 2, 4]))
    return workload, topology(
        tp=draw(st.sampled_from([1, 2, 4])),
        pp=pp,
        dp=dp,
        micro_batch=micro_batch,
        zero=draw(st.integers(0, 1 if pp > 1 else 3)),
        recompute=draw(st.sampled_from(GRANULARITIES)),
    )


@given(jobs())
def test_a_config_follows_the_topology(job: tuple[Workload, Topology]) -> None:
    """A config has the batch triad, precision, ZeRO stage and recompute of its job, and passes tuner's schema.

    Making it does not change the base file.
    """
    workload, chosen = job
    config = ds_config(workload, chosen)
    check(config, data_parallel=chosen.dp)
    triad = (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"], chosen.dp)
    assert config["train_batch_size"] == workload.global_batch == triad[0] * triad[1] * triad[2]
    assert config["zero_optimization"]["stage"] == chosen.zero
    assert [name for name in ("bf16", "fp16") if name in config] == [workload.precision] * (
        workload.precision != "fp32"
    )
    assert ("pipeline" in config) == (chosen.pp > 1)
    if chosen.pp > 1:
        assert config["pipeline"]["activation_checkpoint_interval"] == (chosen.recompute == "full")
    assert json.loads(json.dumps(config)) == config == ds_config(workload, chosen)


@pytest.mark.slow
def test_deepspeeds_own_class_accepts_configs_and_batches() -> None:
    """DeepSpeed's config class accepts the configs and derives the same batch triads."""
    cases = [
        (workload, topology(zero=zero, dp=dp, pp=pp, tp=2, recompute=recompute))
        for workload in (WORKLOAD, replace(WORKLOAD, precision="bf16", optimizer="sgd"), BLOOM)
        for zero, dp, pp, recompute in ((0, 1, 2, "full"), (1, 2, 2, "selective"), (2, 2, 1, "none"), (3, 2, 1, "full"))
    ]
    triads = triads_by_deepspeed([(ds_config(workload, chosen), chosen.dp) for workload, chosen in cases])
    assert triads == [
        [workload.global_batch, 4, workload.global_batch // (4 * chosen.dp)] for workload, chosen in cases
    ]


def test_sequence_parallel_stages_send_whole_activations() -> None:
    """Partitioned activations are off with sequence parallelism, because DeepSpeed assumes equal ones on all ranks."""
    shared = ds_config(WORKLOAD, topology(tp=2, pp=2))["pipeline"]
    apart = ds_config(WORKLOAD, topology(tp=2, pp=2, sequence_parallel=True))["pipeline"]
    assert (shared["pipe_partitioned"], shared["grad_partitioned"]) == (True, True)
    assert (apart["pipe_partitioned"], apart["grad_partitioned"]) == (False, False)


def test_a_bucket_is_not_larger_than_what_a_rank_sends() -> None:
    zero = ds_config(WORKLOAD, topology(dp=2, zero=2))["zero_optimization"]
    assert zero["reduce_bucket_size"] == zero["allgather_bucket_size"] == 1_000_000
    large = replace(WORKLOAD, model=replace(WORKLOAD.model, hidden=4096, ffn=16384, layers=32, embedding_size=4096))
    assert ds_config(large, topology(dp=2, zero=2))["zero_optimization"]["reduce_bucket_size"] == 500_000_000


@pytest.mark.parametrize(
    ("workload", "axes", "said"),
    [
        (replace(WORKLOAD, precision="fp8"), {}, "does not support precision fp8"),
        (replace(WORKLOAD, optimizer="adam8bit"), {}, "no optimizer adam8bit"),
        (WORKLOAD, {"dp": 3}, "global batch 8 is not divisible by micro_batch x dp = 4 x 3 = 12"),
    ],
)
def test_unsupported_jobs_have_no_config(workload: Workload, axes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ds_config(workload, topology(**axes))


PLANTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"zero_optimisation": {}}, "has no key 'zero_optimisation'"),
    "an unknown key below": ({"pipeline": {"interval": 1}}, "at pipeline has no key 'interval'"),
    "a fraction of a sample": (
        {"train_micro_batch_size_per_gpu": 2.5},
        "train_micro_batch_size_per_gpu must be a whole number of at least 1, not 2.5",
    ),
    "a flag for a number": (
        {"train_batch_size": True},
        "train_batch_size must be a whole number of at least 1, not True",
    ),
    "a text for a number": (
        {"gradient_clipping": "1.0"},
        "gradient_clipping must be a number of at least 0, not '1.0'",
    ),
    "no number": ({"gradient_clipping": float("nan")}, "gradient_clipping must be a number of at least 0, not nan"),
    "a stage": ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage must be 0, 1, 2 or 3, not 4"),
    "an optimizer": ({"optimizer": {"type": "Adamw"}}, "optimizer.type must be AdamW, Adam, SGD or Adafactor"),
    "betas": ({"optimizer": {"params": {"betas": [0.9, 1.5]}}}, "betas must be two numbers from 0 and below 1"),
    "a list": ({"optimizer": []}, "field optimizer must be an object, not a list of 0"),
    "both halves": ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "cannot enable fp16 and bf16 together"),
    "a triad": ({"train_batch_size": 16}, "train_batch_size 16 is not"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_an_invalid_config_is_refused_in_one_sentence(plant: str) -> None:
    """An invalid config is refused in one sentence, although DeepSpeed would silently accept most of them."""
    changed, said = PLANTS[plant]
    with pytest.raises(InputError) as caught:
        check({**ds_config(WORKLOAD, topology()), **changed}, data_parallel=1)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_config_without_a_batch_is_refused() -> None:
    with pytest.raises(InputError, match="lacks train_batch_size, train_micro_batch_size_per_gpu and"):
        check({}, data_parallel=1)
    with pytest.raises(InputError, match="config itself must be an object"):
        check([], data_parallel=1)


def test_every_line_of_every_base_file_is_documented() -> None:
    """docs/ds_configs.md lists exactly the keys and values of the base files, each with an explanation."""
    lines = [line.split(" | ") for line in (ROOT / "docs/ds_configs.md").read_text().splitlines() if "| `" in line[:4]]
    documented = {line[0].strip("| `"): [cell.strip("`") for cell in line[1:5]] for line in lines}
    written: dict[str, list[str]] = {}
    for zero in range(4):
        for name, value in _flat(json.loads(base_file(zero).read_text())):
            written.setdefault(name, ["-"] * 4)[zero] = json.dumps(value)
    assert documented == written
    assert all(len(line[5]) > 40 for line in lines)


def _flat(config: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in config.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return found
