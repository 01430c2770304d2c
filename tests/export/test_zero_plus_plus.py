"""ZeRO++ is switched on in DeepSpeed's config on request, and refused where it has no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.export.test_export import LLAMA, bloom
from tuner.core.errors import InputError
from tuner.export.bundle import FORMATS, bundle
from tuner.export.formats import ExportOptions, ZeroPlusPlus

KEY = "tp1-pp1-dp32-mbs1-z3-rnone"
SWITCHES: dict[ZeroPlusPlus, dict[str, Any]] = {
    "hpz": {"zero_hpz_partition_size": 8},
    "qwz": {"zero_quantized_weights": True},
    "qgz": {"zero_quantized_gradients": True},
}


def zero_of(parts: tuple[ZeroPlusPlus, ...], key: str = KEY, name: str = "slurm", **given: Any) -> dict[str, Any]:
    """Return the ZeRO section of the exported config."""
    files = bundle(bloom(key, **{**LLAMA, **given}), name, ExportOptions(zero_plus_plus=parts))
    found: dict[str, Any] = json.loads(files["ds_config.json"])["zero_optimization"]
    return found


@pytest.mark.parametrize("parts", [("hpz",), ("qwz",), ("qgz",), ("hpz", "qwz", "qgz")])
def test_each_part_adds_only_its_switch(parts: tuple[ZeroPlusPlus, ...]) -> None:
    expected = dict(zero_of(()))
    assert not {switch for part in SWITCHES.values() for switch in part} & set(expected)
    for part in parts:
        expected |= SWITCHES[part]
    assert zero_of(parts) == expected


def test_deepspeed_itself_reads_the_switches() -> None:
    config = pytest.importorskip("deepspeed.runtime.zero.config")
    read = config.DeepSpeedZeroConfig(**zero_of(("hpz", "qwz", "qgz")))
    assert (read.zero_hpz_partition_size, read.zero_quantized_weights, read.zero_quantized_gradients) == (8, True, True)


@pytest.mark.parametrize(
    ("key", "nodes"), [("tp1-pp1-dp32-mbs1-z2-rnone", 4), ("tp1-pp1-dp32-mbs1-z1", 4), ("tp1-pp1-dp8-mbs1-z3-rnone", 1)]
)
def test_zero_plus_plus_needs_zero_3_on_several_nodes(key: str, nodes: int) -> None:
    with pytest.raises(InputError, match=r"^--zero-plus-plus needs ZeRO 3 on several nodes; .*: leave it out"):
        zero_of(("hpz",), key, nodes=nodes)


@pytest.mark.parametrize("part", ["hpz", "qgz"])
def test_parts_that_group_consecutive_ranks_are_refused_with_tensor_parallelism(part: ZeroPlusPlus) -> None:
    """With tp 2, dp 2 and hpz, the losses of the worker's ten iterations on the CPU differ from the first one on."""
    key = "tp2-pp1-dp16-mbs1-z3-rnone"
    with pytest.raises(InputError, match=f"--zero-plus-plus {part} would mix the shards"):
        zero_of((part,), key)
    assert zero_of(("qwz",), key)["zero_quantized_weights"] is True


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.framework != "deepspeed"])
def test_other_formats_refuse_zero_plus_plus(name: str) -> None:
    with pytest.raises(InputError, match="--zero-plus-plus needs DeepSpeed, which"):
        zero_of(("qgz",), name=name)


def test_a_command_without_a_config_cannot_use_zero_plus_plus() -> None:
    options = ExportOptions(zero_plus_plus=("hpz",), command="python train.py")
    with pytest.raises(InputError, match="which --command does not read"):
        bundle(bloom(KEY, **LLAMA), "torchrun", options)
