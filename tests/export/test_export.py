"""Production exports: DeepSpeed accepts the configs, shells the scripts, and Megatron the flags."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from tests.conftest import ROOT, Run
from tests.found_studies import opened, study_in
from tests.strategies import runs
from tuner.audit.delivery import delivered, read_expected
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.keys import parse_key
from tuner.export.api import production_run
from tuner.export.bundle import FORMATS, bundle
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.megatron_deepspeed import megatron_deepspeed_flags
from tuner.export.production import ExpectedPerformance, ProductionRun, config_notes, production_config
from tuner.launch.ds_config import check, ds_config
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.space.build import space_for

SHELLCHECK = shutil.which("shellcheck") or ""
GOLDEN = ROOT / "tests" / "data" / "golden" / "launch"
EXPECTED = ExpectedPerformance(
    sec_per_iter=105.0,
    low=103.0,
    high=107.0,
    memory=60 * 2.0**30,
    usable=78.8 * 2**30,
    days=90.0,
    tflops=150e12,
    source="measured",
)


def bloom(
    key: str = "tp4-pp12-dp8-mbs2-z1", *, model: str = "bloom-176b", name: str = "bloom", **given: Any
) -> ProductionRun:
    """Return the run that trained BLOOM, with changes."""
    space = space_for(model=model, **given)
    topology = parse_key(key, **space.key_context)
    workload = replace(space.workload.as_in(topology), tokens=366e9)
    return ProductionRun(name=name, workload=workload, cluster=space.cluster, topology=topology, expected=EXPECTED)


LLAMA: dict[str, Any] = {
    "model": "tests/data/huggingface/llama-3.1-8b.json",
    "nodes": 4,
    "global_batch": 512,
    "precision": "bf16",
}
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "megatron-core": ("tp8-pp12-vpp2-dp4-mbs2-z1-sp", {"model": "bloom-14336x72"}),
    "megatron-bridge": ("tp8-pp12-vpp2-dp4-mbs2-z1-sp", {"model": "bloom-14336x72"}),
    "accelerate": ("tp2-pp1-dp16-mbs1-z3-rnone", {**LLAMA, "attention": "flash2"}),
    "torchtitan": ("tp2-pp4-dp4-mbs1-z2-vpp2-sp", {**LLAMA, "attention": "flash2"}),
}


def example(format_name: str, **given: Any) -> ProductionRun:
    """Return a run that the format supports: BLOOM, or a model of the framework."""
    key, own = EXAMPLES.get(format_name, ("tp4-pp12-dp8-mbs2-z1", {}))
    return bloom(key, **{**own, **given})


SITE = SiteProfile(image="registry.example/training:2026.11")
"""The minimum that Kubernetes needs."""


def exported(run: ProductionRun, format_name: str, **options: Any) -> dict[str, str]:
    """Return the files of a format for a site that has an image."""
    return bundle(run, format_name, ExportOptions(**{"site": SITE, **options}))


def any_run(workload: Workload, cluster: Cluster, topology: Topology) -> ProductionRun:
    """Return a run on as many nodes as the topology has."""
    whole = workload.as_in(topology)
    return ProductionRun(name="any", workload=whole, cluster=cluster, topology=topology, expected=EXPECTED)


def known(name: str) -> set[str]:
    return set(flag_table(name).flags)


BLOOM_FLAGS = partial(megatron_deepspeed_flags, options=ExportOptions(fork="bloom"))


def flags_in(text: str) -> list[str]:
    """Return the flags of the array `arguments`."""
    (block,) = re.findall(r"^arguments=\(\n(.*?)^\)", text, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\s*(--[\w-]+)", block, re.MULTILINE)


def test_the_command_that_trained_bloom_is_exported() -> None:
    """BLOOM used tp 4 x pp 12 x dp 8 on 48 nodes of 8 A100-80GB, with embedding and output layer counted as layers."""
    text = bundle(bloom(), "megatron-deepspeed")["launch.sbatch"]
    for words in (
        "--tensor-model-parallel-size 4",
        "--pipeline-model-parallel-size 12",
        "--num-layers 70",
        "--hidden-size 14336",
        "--num-attention-heads 112",
        "--seq-length 2048",
        "--micro-batch-size 2",
        "--global-batch-size 2048",
        "--bf16",
        "--position-embedding-type alibi",
        "--embed-layernorm",
        "--pp-partition-method 'type:transformer|embedding'",
        "--checkpoint-activations",
        "--zero-stage 1",
        "#SBATCH --nodes=48",
        "#SBATCH --gres=gpu:8",
    ):
        assert words in text


@pytest.mark.parametrize("format_name", FORMATS)
def test_ranks_that_nodes_cannot_share_equally_are_refused(format_name: str) -> None:
    """A script with as many ranks on every node would start 14 of 15, and Megatron would train with another dp."""
    run = example(format_name)
    run = replace(run, topology=replace(run.topology, nodes=run.topology.nodes - 1))
    with pytest.raises(InputError, match="nodes cannot share"):
        exported(run, format_name)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_files_of_each_format_match_the_golden_files(format_name: str) -> None:
    """`TUNER_GOLDEN=1` rewrites the golden files."""
    for name, text in exported(example(format_name), format_name).items():
        path = GOLDEN / format_name / name
        if os.environ.get("TUNER_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), name


def flag_values(run: ProductionRun) -> dict[str, str]:
    return {name: " ".join(values) for name, *values in megatron_core_flags(run)}


@pytest.mark.parametrize(("pp", "vpp", "layers"), [(12, 1, None), (12, 2, "3"), (12, 3, "2"), (6, 4, "3"), (4, 9, "2")])
def test_a_virtual_stage_has_layers_over_pp_times_vpp(pp: int, vpp: int, layers: str | None) -> None:
    """The flag is 72 layers / (pp x vpp), and absent without virtual stages."""
    interleaved = f"-vpp{vpp}" if vpp > 1 else ""
    dp = 4 * 12 // pp
    flags = flag_values(bloom(f"tp8-pp{pp}{interleaved}-dp{dp}-mbs2-z1", model="bloom-14336x72"))
    assert flags.get("--num-layers-per-virtual-pipeline-stage") == layers
    assert flags["--pipeline-model-parallel-size"] == str(pp)


def test_every_megatron_golden_file_with_virtual_stages_sets_their_layers() -> None:
    documents = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("megatron-[cd]*/topology.json"))]
    interleaved = [document for document in documents if document["topology"]["vpp"] > 1]
    assert interleaved
    for document, folder in zip(documents, sorted(GOLDEN.glob("megatron-[cd]*")), strict=True):
        topology, layers = document["topology"], document["model"]["layers"]
        flag = f"--num-layers-per-virtual-pipeline-stage {layers // (topology['pp'] * topology['vpp'])}\n"
        assert (flag in (folder / "launch.sbatch").read_text()) == (topology["vpp"] > 1)


def test_a_llama_has_these_flags() -> None:
    """Llama has grouped-query attention, RMSNorm, SwiGLU, rotary positions, no biases, and an untied output layer."""
    run = bloom("tp8-pp4-dp4-mbs1-z1-sp-rsel", model="llama-3-70b", nodes=16, global_batch=512, precision="bf16")
    flags = flag_values(run)
    expected = {
        "--num-layers": "80",
        "--hidden-size": "8192",
        "--num-attention-heads": "64",
        "--num-query-groups": "8",
        "--ffn-hidden-size": "28672",
        "--seq-length": str(run.workload.model.seq),
        "--normalization": "RMSNorm",
        "--position-embedding-type": "rope",
        "--global-batch-size": "512",
        "--micro-batch-size": "1",
        "--train-samples": str(-(-366 * 10**9 // run.workload.model.seq)),
        "--lr-warmup-samples": str(round(0.005 * run.samples)),
        "--save-interval": "103",  # 3 h at 105 s
    }
    assert {name: flags[name] for name in expected} == expected
    for name in ("--swiglu", "--untie-embeddings-and-output-weights", "--disable-bias-linear", "--sequence-parallel"):
        assert flags[name] == ""
    assert flags["--recompute-modules"] == "core_attn"
    assert flags["--use-distributed-optimizer"] == flags["--bf16"] == ""
    assert not {"--fp16", "--qk-layernorm", "--add-qkv-bias", "--recompute-method"} & set(flags)


@pytest.mark.parametrize(
    ("make", "key", "given", "missing"),
    [
        (megatron_deepspeed_flags, "tp8-pp12-vpp2-dp4-mbs2-z1", {}, "interleaved pipeline stages"),
        (BLOOM_FLAGS, "tp8-pp12-dp4-mbs2-z1-sp", {}, "sequence parallelism"),
        (BLOOM_FLAGS, "tp8-pp12-dp4-mbs2-z1-rsel", {}, "selective recompute"),
        (megatron_core_flags, "tp8-pp1-dp48-mbs1-z2", {}, "ZeRO stage 2"),
        (megatron_core_flags, "tp4-pp12-dp8-mbs2-z1", {"model": "bloom-176b"}, "ALiBi"),
        (megatron_core_flags, "tp4-pp12-dp8-mbs2-z1", {"model": "bloom-176b"}, "embedding norm"),
    ],
)
def test_an_unsupported_property_is_refused_by_name(make: Any, key: str, given: dict[str, str], missing: str) -> None:
    with pytest.raises(InputError, match=missing):
        make(bloom(key, **({"model": "bloom-14336x72"} | given)))


@pytest.mark.parametrize("zero", range(4))
def test_the_config_of_each_zero_stage_matches_its_golden_file(zero: int) -> None:
    run = bloom(f"tp8-pp{1 if zero > 1 else 12}-dp4-mbs2-z{zero}", model="bloom-14336x72", precision="fp16")
    text = json.dumps(production_config(run, with_optimizer=True), indent=2) + "\n"
    path = GOLDEN / f"ds_config-zero{zero}.json"
    if os.environ.get("TUNER_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_flags_written_by_the_templates_are_known() -> None:
    for format_name, run in (
        ("megatron-deepspeed-bloom", bloom(ramp="192,16")),
        ("megatron-core", bloom("tp8-pp12-dp4-mbs2-z1", model="bloom-14336x72", ramp="32,32")),
    ):
        text = bundle(run, format_name.removesuffix("-bloom"))["launch.sbatch"]
        assert set(flags_in(text)) <= known(format_name)
        assert "--rampup-batch-size" in text


@given(drawn=runs())
@settings(max_examples=80)
def test_every_exported_config_passes_the_strict_schema(drawn: tuple[Workload, Cluster, Topology]) -> None:
    """The notes beside the config state the source of every value."""
    workload, cluster, topology = drawn
    run = any_run(workload, cluster, topology)
    for written in (True, False):
        try:
            config = production_config(run, with_optimizer=written)
        except InputError:
            with pytest.raises(InputError):
                ds_config(workload, topology)
            continue
        check(config, data_parallel=topology.dp)
        assert config["train_batch_size"] == run.workload.global_batch
        assert ("optimizer" in config) == ("scheduler" in config) == written
        lines = config_notes(run, config).splitlines()
        assert sum(line.startswith("| `") for line in lines) == len(_leaves(config))


def _leaves(config: dict[str, Any]) -> list[Any]:
    return [leaf for value in config.values() for leaf in (_leaves(value) if isinstance(value, dict) else [value])]


HOSTILE = 'it\'s; rm -rf $HOME `x` "y" \\'


@pytest.mark.parametrize("format_name", FORMATS)
def test_names_are_quoted_everywhere(format_name: str, tmp_path: Path) -> None:
    """Scripts, manifests and documents stay valid with a name that contains shell syntax."""
    ramp = {"ramp": "32,32"} if format_name in ("megatron-core", "megatron-deepspeed") else {}
    files = exported(example(format_name, name=HOSTILE, **ramp), format_name)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        if text.startswith("#!"):
            assert subprocess.run(["bash", "-n", name], cwd=tmp_path, check=False).returncode == 0  # noqa: S607
            if SHELLCHECK:
                checked = subprocess.run([SHELLCHECK, "-Swarning", name], cwd=tmp_path, capture_output=True, text=True)
                assert checked.returncode == 0, checked.stdout
        elif name.endswith(".yaml"):
            assert yaml.safe_load(text)
        elif name.endswith(".json"):
            assert json.loads(text)
    if "launch.yaml" in files:
        manifest = yaml.safe_load(files["launch.yaml"])
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", manifest["metadata"]["name"])


@pytest.mark.skipif(not SHELLCHECK, reason="apt-get install shellcheck")
@pytest.mark.parametrize("format_name", [name for name in FORMATS if "launch.yaml" not in FORMATS[name].launch_files])
def test_shellcheck_has_no_findings(format_name: str) -> None:
    script = next(path for path in (GOLDEN / format_name).iterdir() if path.name.startswith("launch."))
    checked = subprocess.run([SHELLCHECK, str(script)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_expected_performance_is_the_measurement() -> None:
    study = opened("bloom-48")
    best = study.ranking[0]
    run = production_run(study, best)
    assert run.expected.sec_per_iter == best.seconds
    assert run.expected.low < best.seconds < run.expected.high
    assert run.expected.source == "simulated"
    assert run.workload.global_batch == 2048
    assert run.samples == math.ceil(run.workload.training_tokens / 2048)
    assert run.iterations == math.ceil(run.samples / 2048)
    assert run.microbatches * run.topology.micro_batch * run.topology.dp == 2048
    assert run.expected.days == pytest.approx(run.iterations * best.seconds / 86400, rel=1e-3)
    # for one iteration: the deviations of the mean and of one run in quadrature, times 1.2816
    deviation = math.log(best.high / best.low) / (2 * 1.2816)
    both = math.hypot(1.2816 * deviation, 1.2816 * study.noise)
    assert run.expected.high / best.seconds == pytest.approx(math.exp(both), rel=1e-9)
    assert run.expected.low * run.expected.high == pytest.approx(best.seconds**2, rel=1e-9)


def test_export_writes_the_winner_or_the_named_topology(run: Run, tmp_path: Path) -> None:
    runs_in = str(study_in(tmp_path))
    second = opened("bloom-48").ranking[1].key
    said = run("export", "bloom-48", "--runs", runs_in, "-o", str(tmp_path / "a"))
    assert said.code == 0
    assert said.out.startswith("SIMULATED: ")
    assert "SIMULATED" in (tmp_path / "a" / "README.md").read_text()
    assert os.access(tmp_path / "a" / "launch.sbatch", os.X_OK)
    document = json.loads(run("export", "bloom-48", second, "--runs", runs_in, "-o", str(tmp_path / "b"), "--json").out)
    assert document["schema"] == "tuner/export/1"
    assert document["key"] == second
    kept = json.loads((tmp_path / "b" / "topology.json").read_text())
    assert kept["schema"] == "tuner/topology/1"
    assert kept["expected"] == document["expected"]
    assert kept["expected"]["simulated"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("bloom-48", "tp1-pp1-dp1-mbs1-z1"), 1, "has not measured tp1-pp1-dp1-mbs1-z1; it has measured tp"),
        (("bloom-48", "nokey"), 2, "invalid topology key 'nokey': unknown part 'nokey'; expected a key like tp8"),
        (("bloom-48", "--format", "slurmm"), 2, "there is no format called 'slurmm'; did you mean slurm"),
    ],
)
def test_an_unknown_topology_or_format_is_refused(
    arguments: tuple[str, ...], code: int, sentence: str, run: Run, tmp_path: Path
) -> None:
    said = run("export", *arguments, "--runs", str(study_in(tmp_path)))
    assert said.code == code
    assert sentence in said.err


def test_measure_compares_a_log_with_the_exported_expectation(run: Run, tmp_path: Path) -> None:
    """A log is as fast as expected within the interval, slower above it, or exceeds the tolerance of memory."""
    log, key = "docs/example.log", "tp8-pp12-dp4-mbs1-z1"
    made = bundle(bloom(key, model="bloom-14336x72"), "slurm")["topology.json"]
    document = json.loads(made)
    for seconds, said, kept in (
        (143.31, "As fast as expected", True),
        (120.0, "Slower than expected", False),
        (170.0, "Faster than expected", True),
    ):
        ends = {"sec_per_iter": seconds, "sec_per_iter_low": 0.99 * seconds, "sec_per_iter_high": 1.01 * seconds}
        (tmp_path / "t.json").write_text(json.dumps({**document, "expected": {**document["expected"], **ends}}))
        assert said in run("measure", log, key, "--expect", str(tmp_path / "t.json")).out
        measured = json.loads(run("measure", log, key, "--expect", str(tmp_path / "t.json"), "--json").out)
        assert measured["expected"]["delivered"] is kept
    expected = read_expected(tmp_path / "t.json")
    assert delivered(expected, 170.0, 63.0).delivered
    assert not delivered(expected, 170.0, 63.1).delivered
    assert delivered(expected, 171.7, None).delivered
    assert not delivered(expected, 171.8, None).delivered
    assert delivered(expected, 340.0, None).days == pytest.approx(2 * expected.days)
    assert delivered(expected, 340.0, 30.0).sec_ratio == pytest.approx(2.0)
    assert delivered(expected, 340.0, 30.0).memory_ratio == pytest.approx(0.5)
    assert not delivered(expected, 170.0, 70.0).delivered
    assert "above expectation" in delivered(expected, 170.0, 70.0).sentences[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "its schema must be"),
        ("{", "is not valid JSON"),
        ('{"schema": "tuner/topology/1"}', "lacks the expected performance"),
        ('{"schema": "tuner/topology/1", "expected": {"sec_per_iter": 0}}', "lacks the expected performance"),
    ],
)
def test_a_file_without_expected_performance_is_refused(text: str, sentence: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    said = run("measure", "docs/example.log", "--expect", str(tmp_path / "t.json"))
    assert said.code == 2
    assert sentence in said.err
