"""The manifest for Kubernetes against the schema that Kubeflow's training operator publishes for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given, reject, settings

from tests.conftest import ROOT
from tests.export.test_export import EXPECTED, bloom
from tests.strategies import runs
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.export.bundle import bundle
from tuner.export.production import ProductionRun

SCHEMA: Mapping[str, Any] = json.loads((ROOT / "tests/data/kubernetes/pytorchjob.json").read_text())
QUANTITY = r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?"
"""A number with a unit, as Kubernetes writes amounts of memory, or a whole one."""
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int and abs(value) < 2**31,
    "quantity": lambda value: type(value) is int or (isinstance(value, str) and bool(re.fullmatch(QUANTITY, value))),
}


def complaints(value: Any, schema: Mapping[str, Any] = SCHEMA, at: str = "") -> Iterator[str]:
    """All that the schema forbids of a document."""
    schema = SCHEMA[schema["ref"]] if "ref" in schema else schema
    if not TYPES[schema["type"]](value):
        yield f"{at} is {value!r} and no {schema['type']}"
        return
    if value not in schema.get("enum", [value]):
        yield f"{at} is {value!r}, which is none of {schema['enum']}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{at} is {value!r}, which is not as {schema['pattern']}"
    if schema["type"] == "array":
        for place, each in enumerate(value):
            yield from complaints(each, schema["items"], f"{at}[{place}]")
    if schema["type"] != "object":
        return
    if "values" in schema:
        for name, each in value.items():
            yield from complaints(each, schema["values"], f"{at}.{name}")
        return
    yield from (f"{at}.{name} is missing" for name in schema["required"] if name not in value)
    for name, each in value.items():
        if name in schema["properties"]:
            yield from complaints(each, schema["properties"][name], f"{at}.{name}")
        else:
            yield f"{at}.{name} is no field"


def rendered(run: ProductionRun) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(bundle(run, "kubernetes")["launch.yaml"])
    return found


NAMES = ("bloom", "A study_of.mine", "-dashes-", "x" * 100, "9", "é 模型", 'it\'s "a": {b}')


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_is_as_the_operator_publishes_it_whatever_the_study_is_called(name: str) -> None:
    assert list(complaints(rendered(bloom(name=name)))) == []


@settings(deadline=None, max_examples=60)
@given(runs())
def test_a_manifest_of_any_run_is_as_the_operator_publishes_it(run: tuple[Workload, Cluster, Topology]) -> None:
    """And it starts as many pods as there are nodes, one of them the master, each with all GPUs of its node."""
    workload, cluster, topology = run
    workload = workload.as_in(topology)
    try:
        found = rendered(
            ProductionRun(name="s", workload=workload, cluster=cluster, topology=topology, expected=EXPECTED)
        )
    except InputError:  # DeepSpeed itself has no such precision or optimizer
        reject()
    assert list(complaints(found)) == []
    replicas = found["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] == 1
    assert sum(each["replicas"] for each in replicas.values()) == topology.nodes
    assert ("Worker" in replicas) == (topology.nodes > 1)
    for each in replicas.values():
        (container,) = each["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": cluster.gpus_per_node}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in each["template"]["spec"]["volumes"]}


def _container(found: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return container


FAULTS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "a number for nprocPerNode": lambda found: found["spec"].update(nprocPerNode=8),
    "an unknown field": lambda found: found["spec"].update(nProcPerNode="8"),
    "no replicas": lambda found: found["spec"].pop("pytorchReplicaSpecs"),
    "a number in the environment": lambda found: _container(found)["env"][0].update(value=1),
    "another restart policy": lambda found: found["spec"]["pytorchReplicaSpecs"]["Master"].update(restartPolicy="No"),
    "a name that is no label": lambda found: found["metadata"].update(name="A_b"),
    "a mount without a path": lambda found: _container(found)["volumeMounts"][0].pop("mountPath"),
    "a word for GPUs": lambda found: _container(found)["resources"]["limits"].update({"nvidia.com/gpu": "eight"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    found = deepcopy(rendered(bloom()))
    FAULTS[fault](found)
    assert len(list(complaints(found))) == 1
