"""Kubernetes manifests are valid by the schemas that Kubeflow's training operator and JobSet publish."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, reject, settings

from tests.conftest import ROOT
from tests.export.test_export import EXPECTED, bloom, exported
from tests.strategies import runs
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.export.api import profile_notes
from tuner.export.bundle import FORMATS, bundle
from tuner.export.kubernetes import label
from tuner.export.production import ProductionRun
from tuner.export.rendering import as_yaml
from tuner.launch.slurm.site_profile import SiteProfile

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    kind: json.loads((ROOT / f"tests/data/kubernetes/{file}.json").read_text())
    for kind, file in {"PyTorchJob": "pytorchjob", "JobSet": "jobset"}.items()
}
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader in C, if available: ten times as fast."""
FULL = SiteProfile(
    image="registry.example/training:2026.11",
    volumes=("training-data:/data", "/scratch:/scratch"),
    resources=(("rdma/hca_shared_devices_a", 8),),
    environment=(("NCCL_SOCKET_IFNAME", "ib0"), ("QUOTED", 'it\'s "x" $(HOME)')),
)
QUANTITY = r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?"
"""An integer, or a number with a unit as Kubernetes writes memory sizes."""
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int and abs(value) < 2**31,
    "boolean": lambda value: isinstance(value, bool),
    "quantity": lambda value: type(value) is int or (isinstance(value, str) and bool(re.fullmatch(QUANTITY, value))),
}


def complaints(
    value: Any, schema: Mapping[str, Any] | None = None, at: str = "", whole: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Return all violations of the schema of a document's kind."""
    whole = whole or SCHEMAS[value["kind"]]
    schema = whole if schema is None else schema
    schema = whole[schema["ref"]] if "ref" in schema else schema
    if not TYPES[schema["type"]](value):
        yield f"{at} is {value!r} and no {schema['type']}"
        return
    if value not in schema.get("enum", [value]):
        yield f"{at} is {value!r}, which is none of {schema['enum']}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{at} is {value!r}, which is not as {schema['pattern']}"
    if schema["type"] == "array":
        for place, each in enumerate(value):
            yield from complaints(each, schema["items"], f"{at}[{place}]", whole)
    if schema["type"] != "object":
        return
    if "values" in schema:
        for name, each in value.items():
            yield from complaints(each, schema["values"], f"{at}.{name}", whole)
        return
    yield from (f"{at}.{name} is missing" for name in schema["required"] if name not in value)
    for name, each in value.items():
        if name in schema["properties"]:
            yield from complaints(each, schema["properties"][name], f"{at}.{name}", whole)
        else:
            yield f"{at}.{name} is no field"


def parsed(text: str) -> Any:
    return yaml.load(text, LOADER)  # noqa: S506 - one of the safe ones


def rendered(run: ProductionRun, format_name: str = "kubernetes", **options: Any) -> dict[str, Any]:
    files = exported(run, format_name, **options)
    kustomization = parsed(files["kustomization.yaml"])
    assert kustomization["resources"] == ["launch.yaml"]
    for generated in kustomization.get("configMapGenerator", []):
        assert set(generated["files"]) <= set(files)
    found: dict[str, Any] = parsed(files["launch.yaml"])
    return found


NAMES = ("bloom", "A study_of.mine", "-dashes-", "x" * 100, "9", "é 模型", 'it\'s "a": {b}')


KINDS = ("kubernetes", "jobset")
COMMANDS = (None, "python train.py --tp {tp} --pp {pp} --config {ds_config}", "torchrun train.py --tp {tp} --pp {pp}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_is_valid_for_any_study_name(name: str, kind: str) -> None:
    assert list(complaints(rendered(bloom(name=name), kind))) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_of_a_service(name: str) -> None:
    """A service's name starts with a letter (RFC 1035), and the operators create one by the name of the job."""
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", label(name))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_manifest_with_all_site_options_is_valid(kind: str, command: str | None) -> None:
    found = rendered(bloom(), kind, site=FULL, command=command)
    assert list(complaints(found)) == []
    (container,) = _pod(found)["containers"]
    assert {"name": "QUOTED", "value": 'it\'s "x" $$(HOME)'} in container["env"]  # Kubernetes replaces $$( by $(
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 8}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/data", "/scratch"}
    end = {
        None: "--max-restarts=0 -m tuner.worker --job /config/assignment.json",
        COMMANDS[1]: "--no-python python train.py --tp 4 --pp 12 --config /config/ds_config.json",
        COMMANDS[2]: "torchrun train.py --tp 4 --pp 12",
    }[command]
    assert " ".join(container["command"]).endswith(end)
    config = {"name": "config", "configMap": {"name": "bloom-config"}}
    assert (config in _pod(found)["volumes"]) == (command is None or "ds_config" in command)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("command", "files"),
    [(None, ["assignment.json", "ds_config.json"]), (COMMANDS[1], ["ds_config.json"]), (COMMANDS[2], None)],
)
def test_the_config_map_has_the_files_of_the_program(kind: str, command: str | None, files: list[str] | None) -> None:
    """A program without files has no config map."""
    written = exported(bloom(), kind, site=FULL, command=command)
    found = parsed(written["kustomization.yaml"])
    generated = [{"name": "bloom-config", "files": files}] if files else None
    assert found.get("configMapGenerator") == generated
    assert found.get("generatorOptions") == ({"disableNameSuffixHash": True} if files else None)
    assert files is None or set(files) <= written.keys()


def test_yaml_writes_empty_and_nested_parts() -> None:
    document: dict[str, Any] = {
        "a": {},
        "b": [],
        "c": {"d": [1, {"e": True, "f": ["x"]}, [], {}]},
        "odd key": "y",
        "last": None,
    }
    assert parsed(as_yaml(document)) == document


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("python", "expected"), [("", "python3"), ("/opt/bin/python", "/opt/bin/python")])
def test_containers_run_the_python_of_the_site(kind: str, python: str, expected: str) -> None:
    found = rendered(bloom(), kind, site=replace(FULL, python=python))
    (container,) = _pod(found)["containers"]
    assert container["command"][:3] == [expected, "-m", "torch.distributed.run"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("gpu", "resources", "expected"),
    [
        ("A100-80GB-SXM", {}, {"nvidia.com/gpu": 8}),
        ("MI300X-192GB", {}, {"amd.com/gpu": 8}),
        ("A100-80GB-SXM", {"nvidia.com/gpu.shared": 4}, {"nvidia.com/gpu.shared": 4}),
    ],
)
def test_pods_ask_for_gpus_by_the_name_of_their_device_plugin(
    kind: str, gpu: str, resources: dict[str, int], expected: dict[str, int]
) -> None:
    run = bloom(gpu=gpu, attention="fused")
    found = rendered(run, kind, site=replace(FULL, resources=tuple(resources.items())))
    assert _pod(found)["containers"][0]["resources"]["limits"] == expected


def test_an_export_names_what_pods_do_not_use_of_a_site_profile() -> None:
    """Variables that `before` sets for NCCL under Slurm are not lost without a word."""
    site = SiteProfile(image="train:1", modules=("cuda/13",), before="export NCCL_SOCKET_IFNAME=ib0", partition="gpu")
    for kind in KINDS:
        (note,) = profile_notes(FORMATS[kind], site)
        assert note.startswith("Pods do not use modules and before of the site profile: ")
        assert profile_notes(FORMATS[kind], SiteProfile(image="train:1", partition="gpu")) == []
    assert profile_notes(FORMATS["slurm"], site) == []


def test_a_kubernetes_export_needs_an_image() -> None:
    for kind in KINDS:
        with pytest.raises(InputError, match="needs an image"):
            bundle(bloom(), kind)


@settings(deadline=None, max_examples=60)
@given(runs())
def test_a_manifest_of_any_run_is_valid(run: tuple[Workload, Cluster, Topology]) -> None:
    """It has one pod per node, one of them the master, each with all GPUs of its node."""
    workload, cluster, topology = run
    workload = workload.as_in(topology)
    one = ProductionRun(name="s", workload=workload, cluster=cluster, topology=topology, expected=EXPECTED)
    try:
        found, pods = rendered(one), rendered(one, "jobset")
    except InputError:  # not trained by the worker
        reject()
    assert list(complaints(found)) == list(complaints(pods)) == []
    replicas = found["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] == 1
    assert sum(each["replicas"] for each in replicas.values()) == topology.nodes
    assert ("Worker" in replicas) == (topology.nodes > 1)
    assert _job(pods)["parallelism"] == _job(pods)["completions"] == topology.nodes
    for spec in (*(each["template"]["spec"] for each in replicas.values()), _pod(pods)):
        (container,) = spec["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": topology.gpus // topology.nodes}
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def _pod(found: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of a pod."""
    if found["kind"] == "JobSet":
        pod: dict[str, Any] = _job(found)["template"]["spec"]
        return pod
    replica: dict[str, Any] = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return replica


def _job(found: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


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
def test_an_invalid_manifest_is_detected(fault: str) -> None:
    found = deepcopy(rendered(bloom()))
    FAULTS[fault](found)
    assert len(list(complaints(found))) == 1


JOBSET_FAULTS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "a word for a count": lambda found: _job(found).update(parallelism="48"),
    "an unknown field": lambda found: found["spec"].update(replicas=1),
    "a job without a name": lambda found: found["spec"]["replicatedJobs"][0].pop("name"),
    "no containers": lambda found: _pod(found).pop("containers"),
    "text for a switch": lambda found: found["spec"]["network"].update(enableDNSHostnames="true"),
}


@pytest.mark.parametrize("fault", JOBSET_FAULTS)
def test_an_invalid_jobset_is_detected(fault: str) -> None:
    found = deepcopy(rendered(bloom(), "jobset"))
    JOBSET_FAULTS[fault](found)
    assert len(list(complaints(found))) == 1
