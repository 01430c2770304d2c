"""Manifests for Kubernetes: Kubeflow's PyTorchJob, and a JobSet of kubernetes-sigs.

`kubectl apply -k FOLDER` creates the manifest together with a config map of the files that the program reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tuner.export.production import ProductionRun
from tuner.export.program import TrainingProgram
from tuner.export.rendering import as_yaml, trainer_environment
from tuner.launch.slurm.site_profile import SiteProfile

CONFIG: Final = "/config"
"""The folder in which containers find the files of the program."""
PORT: Final = 29400

Document = dict[str, Any]


def pytorchjob(run: ProductionRun, program: TrainingProgram, site: SiteProfile, data: Sequence[str]) -> str:
    """Return a PyTorchJob of kubeflow.org/v1: one master and a worker for each further node."""
    nodes = run.topology.nodes
    # The operator sets MASTER_ADDR and MASTER_PORT, and torchrun's own variables for commands that start the ranks.
    rendezvous = [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=$(MASTER_ADDR):$(MASTER_PORT)",
        f"--rdzv-id={label(run.name)}",
    ]
    pod = _pod(run, program, site, data, rendezvous)
    replicas = {"Master": 1, "Worker": nodes - 1}
    return _header(run) + as_yaml(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": _metadata(run),
            "spec": {
                "nprocPerNode": str(run.ranks_per_node),
                "pytorchReplicaSpecs": {
                    name: {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}
                    for name, count in replicas.items()
                    if count
                },
            },
        }
    )


def jobset(run: ProductionRun, program: TrainingProgram, site: SiteProfile, data: Sequence[str]) -> str:
    """Return a JobSet of jobset.x-k8s.io/v1alpha2: one indexed job with a pod per node."""
    nodes, name = run.topology.nodes, label(run.name)
    address, index = f"{name}-node-0-0.{name}", "JOB_COMPLETION_INDEX"  # set in the pods of an indexed job
    rendezvous = [f"--master-addr={address}", f"--master-port={PORT}", f"--node-rank=$({index})"]
    pod = _pod(run, program, site, data, rendezvous)
    if program.starts_ranks:
        settings = {"NNODES": nodes, "NPROC_PER_NODE": run.ranks_per_node, "MASTER_ADDR": address, "MASTER_PORT": PORT}
        exports = " ".join(f"PET_{key}={value}" for key, value in settings.items())
        container = pod["containers"][0]
        wrapper = f'export {exports} PET_NODE_RANK=${index}; exec "$@"'  # read by torchrun
        container["command"] = ["bash", "-c", wrapper, "node", *container["command"]]
    return _header(run) + as_yaml(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": _metadata(run),
            "spec": {
                "network": {"enableDNSHostnames": True, "subdomain": name},
                "failurePolicy": {"maxRestarts": 0},
                "replicatedJobs": [
                    {
                        "name": "node",
                        "replicas": 1,
                        "template": {
                            "spec": {
                                "completionMode": "Indexed",
                                "parallelism": nodes,
                                "completions": nodes,
                                "backoffLimit": 0,
                                "template": {"spec": {"restartPolicy": "Never", **pod}},
                            }
                        },
                    }
                ],
            },
        }
    )


def kustomization(run: ProductionRun, data: Sequence[str]) -> str:
    """Return the kustomization that creates the manifest, and the config map of the program's files, if any."""
    document: Document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["launch.yaml"],
    }
    if data:
        document["configMapGenerator"] = [{"name": _config_map(run), "files": list(data)}]
        document["generatorOptions"] = {"disableNameSuffixHash": True}
    return as_yaml(document)


def _pod(
    run: ProductionRun,
    program: TrainingProgram,
    site: SiteProfile,
    data: Sequence[str],
    rendezvous: Sequence[str],
) -> Document:
    environment = {**trainer_environment(run, program), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment |= {**dict(program.environment), **dict(site.environment)}
    volumes = _volumes(run, site, data)
    container: Document = {
        "name": "pytorch",
        "image": site.image,
        "command": _command(run, program, site, rendezvous),
        "env": [{"name": name, "value": _literal(value)} for name, value in environment.items()],
        "resources": {"limits": {**_gpus(run, site), **dict(site.resources)}},
        "volumeMounts": [{"name": volume["name"], "mountPath": path} for path, volume in volumes],
    }
    if any(re.search("rdma|hca|ib|efa", name) for name, _ in site.resources):
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}  # RDMA locks memory
    return {"containers": [container], "volumes": [volume for _, volume in volumes]}


def _command(run: ProductionRun, program: TrainingProgram, site: SiteProfile, rendezvous: Sequence[str]) -> list[str]:
    """Return the command of a container: torchrun, or a command that starts the ranks itself."""
    words = [_literal(word) for word in program.plain(CONFIG)]
    if program.starts_ranks:
        return words
    torchrun = [
        *(site.python or "python3", "-m", "torch.distributed.run"),
        *(f"--nnodes={run.topology.nodes}", f"--nproc-per-node={run.ranks_per_node}", *rendezvous, "--max-restarts=0"),
    ]
    worker = ["-m", "tuner.worker", "--job", f"{CONFIG}/assignment.json"]
    return [*torchrun, *(worker if program.worker else ["--no-python", *words])]


def _volumes(run: ProductionRun, site: SiteProfile, data: Sequence[str]) -> list[tuple[str, Document]]:
    """Return the volumes of a pod, each with the path that it is mounted at."""
    found: list[tuple[str, Document]] = [("/dev/shm", {"name": "shm", "emptyDir": {"medium": "Memory"}})]  # noqa: S108 - NCCL's and the data loaders' shared memory
    if data:
        found.append((CONFIG, {"name": "config", "configMap": {"name": _config_map(run)}}))
    for number, volume in enumerate(site.volumes):
        source, _, mount = volume.partition(":")
        is_folder = source.startswith("/")
        kind = {"hostPath": {"path": source}} if is_folder else {"persistentVolumeClaim": {"claimName": source}}
        found.append((mount, {"name": f"volume{number}", **kind}))
    return found


def _literal(text: str) -> str:
    """Return a text in which Kubernetes expands no $(NAME)."""
    return text.replace("$(", "$$(")


def label(text: str) -> str:
    """Return a valid name of a Kubernetes service, which starts with a letter (RFC 1035)."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:50].strip("-") or "run"
    return name if name[0].isalpha() else f"run-{name}"


def _gpus(run: ProductionRun, site: SiteProfile) -> dict[str, int]:
    """Return the GPUs of a node under the name of their device plugin, unless the site names the resource itself."""
    if run.cluster.gpu.is_host or any("gpu" in name for name, _ in site.resources):
        return {}
    vendor = "amd" if run.cluster.gpu.is_amd else "nvidia"
    return {f"{vendor}.com/gpu": run.ranks_per_node}


def _metadata(run: ProductionRun) -> Document:
    return {"name": label(run.name), "annotations": {"tuner/topology": run.topology.key}}


def _config_map(run: ProductionRun) -> str:
    return f"{label(run.name)}-config"


def _header(run: ProductionRun) -> str:
    return f"# {run.topology.key} on {run.topology.nodes} x {run.ranks_per_node} GPUs, by tuner export\n"
