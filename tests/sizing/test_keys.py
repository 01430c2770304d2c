"""Keys in place of `--set`: what `max-batch` and `compare` take from them, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

import tuner
from tests.conftest import ROOT, Run
from tests.strategies import topologies
from tuner.core.domain import Topology
from tuner.core.errors import BadKey, InputError
from tuner.core.keys import parts_of
from tuner.sizing.options import settings_of
from tuner.space.axes import parse_setting

QWEN: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "H100-80GB-SXM", "nodes": 4}
ENOKI = ROOT / "corpus/enoki-h100.csv"


@settings(max_examples=200)
@given(topologies())
def test_the_settings_of_a_key_are_its_parts(topology: Topology) -> None:
    """All but those that no setting of parallelism is, and with what a key leaves out if it is the default."""
    part = Topology(**{**parts_of(topology.key), "nodes": 1, "heads": None, "shape": None, "global_batch": None})
    stated = dict(map(parse_setting, settings_of(part.key)))
    assert all(len(values) == 1 for values in stated.values())
    assert stated["recompute"] == (topology.recompute,)
    assert stated.get("sequence_parallel", (False,)) == (topology.sequence_parallel,)
    assert {"micro_batch", "partition", "nodes"}.isdisjoint(stated)
    for axis in ("tp", "pp", "dp", "zero", "vpp", "cp", "ep", "etp", "dispatcher", "moe_overlap", "offload", "hsdp"):
        default = Topology.__dataclass_fields__[axis].default
        assert stated.get(axis, (default,)) == (getattr(topology, axis),)


@pytest.mark.parametrize(
    "key", ["tp1-pp1-dp32-mbs4-z1-rnone-ep8-deepep", "tp2-pp2-dp8-z1-sp-rlayernorm+moe_act-ep4", "tp1-pp1-z1"]
)
def test_max_batch_tries_the_topology_of_the_key(key: str) -> None:
    tried = tuner.max_batch(key=key, most=1, **QWEN).topology
    stated = {axis: value for axis, value in parts_of(key).items() if axis != "micro_batch"}
    assert {axis: getattr(tried, axis) for axis in stated} == stated
    assert tried.micro_batch == 1
    assert (tried.recompute, tried.sequence_parallel) == (
        stated.get("recompute", "full"),
        stated.get("sequence_parallel", False),
    )


def test_a_key_and_its_settings_are_the_same_search(run: Run) -> None:
    where = ("--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1", "--json")
    by_key = json.loads(run("max-batch", "tp2-pp1-z1-sp-rnone", *where).out)["max_batch"]
    settings = ("tp=2", "pp=1", "zero=1", "sequence_parallel=on", "recompute=none")
    by_settings = run("max-batch", *where, *(word for axis in settings for word in ("--set", axis))).out
    assert by_key == json.loads(by_settings)["max_batch"] > 0


def test_a_table_has_the_rows_of_a_key() -> None:
    found = tuner.max_batch(key="tp4-z3-rnone", table=ENOKI, model="enoki-40", global_batch=512)
    assert (found.source, found.topology.tp, found.found.largest) == ("table", 4, 16)


def test_compared_keys_are_the_options_and_their_labels() -> None:
    keys = ("tp1-pp1-z1-rnone-ep8", "tp2-pp1-z1-sp-rnone-ep8-deepep")
    one, two = tuner.compare(keys=keys, most=2, **QWEN).models[0]
    assert (one.label, two.label) == keys
    assert (one.topology.dispatcher, two.topology.dispatcher) == ("alltoall", "deepep")
    assert (one.topology.recompute, two.topology.recompute) == ("none", "none")


def test_keys_and_several_values_of_another_axis_are_labelled_by_axes() -> None:
    found = tuner.compare(keys=("tp1-pp1-z1-rnone", "tp2-pp1-z1-sp-rnone"), settings=["ep=8,16"], most=1, **QWEN)
    labels = [option.label for option in found.models[0]]
    assert len(labels) == 4
    assert all("ep=" in label and "tp=" in label for label in labels)


def test_compared_keys_select_rows_of_a_table(run: Run) -> None:
    said = run("compare", "tp1-rnone", "tp4-rnone", "--table", str(ENOKI), "--global-batch", "512").out
    assert said == run("compare", "--table", str(ENOKI), "--set", "tp=1,4", "--global-batch", "512").out


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("tp1-pp1-gbs64", "tp1-pp1-gbs64 states more than parallelism; give --global-batch instead"),
        ("tp1-h112-13824x78", "give --model instead"),
        ("tp1-pp1-ep7", "128 experts are not divisible by ep=7; correct the key or --set"),
        ("tp2-pp1-ep8", "experts need sequence parallelism over tp=2 ranks"),
    ],
)
def test_what_a_key_cannot_name_is_refused(key: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tuner.max_batch(key=key, most=1, **QWEN)


def test_unreadable_and_contradicting_keys_are_refused() -> None:
    with pytest.raises(BadKey, match="unknown part 'foo'"):
        tuner.max_batch(key="foo", **QWEN)
    with pytest.raises(InputError, match="tp1 already means tp=1; leave out --set tp=2, or change the key"):
        tuner.max_batch(key="tp1", settings=["tp=2"], **QWEN)
    with pytest.raises(InputError, match="tp2 already means recompute=full"):
        tuner.compare(keys=("tp2",), settings=["recompute=none"], **QWEN)
    with pytest.raises(InputError, match="differ in nothing but the micro-batch size"):
        tuner.compare(keys=("tp1-mbs1", "tp1-mbs2"), **QWEN)
