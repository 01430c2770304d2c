"""DeepSpeed exports run the bundled worker or the user's program, with the settings of the site."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.export.test_export import HOSTILE, SHELLCHECK, SITE, bloom, example, exported
from tests.workers import triads_by_deepspeed
from tuner.core.assignment import Assignment
from tuner.core.atomic_write import write_files
from tuner.core.domain import Framework, PrecisionRecipe
from tuner.core.errors import InputError
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.worker_refusals import refuse
from tuner.export.api import check_program, export_options, program_notes
from tuner.export.bundle import FORMATS, bundle
from tuner.export.production import production_config
from tuner.export.program import _of_command
from tuner.launch.slurm.site_profile import SiteProfile


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("python train.py", "does not support tensor parallelism 4 (--command has no {tp}) or pipeline parallelism 12"),
        ("python train.py --tp {tp}", "your program does not support pipeline parallelism 12 (--command has no {pp})"),
        ("python train.py --tp {tpp}", "unknown field {tpp}"),
        ("python train.py '", "not a valid shell command"),
        ("python train.py --tp {tp} --pp {pp}", ""),
        ("python train.py {key}", ""),
    ],
)
def test_a_program_refuses_topologies_with_degrees_that_it_does_not_take(command: str, sentence: str) -> None:
    if not sentence:
        assert "ds_config.json" not in exported(bloom(), "slurm", command=command)
        return
    with pytest.raises(InputError) as refused:
        exported(bloom(), "slurm", command=command)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("format_name", ["torchrun", "hostfile", "slurm", "kubernetes", "jobset"])
@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"attention_dropout": 0.1}, "attention dropout 0.1"),
        ({"embedding_dropout": 0.1}, "embedding"),
        ({"norm_placement": "after_residual"}, "norms after the residual additions"),
        ({"activation": "xielu"}, "xielu|activation|xIELU"),
        ({"rotary_scaling": RotaryScaling(kind="yarn", factor=4.0)}, "yarn rotary scaling by 4"),
    ],
)
def test_models_that_the_worker_lacks_are_refused(format_name: str, changes: dict[str, Any], label: str) -> None:
    run = bloom()
    model = replace(run.workload.model, **changes)
    with pytest.raises(InputError, match=label):
        exported(replace(run, workload=replace(run.workload, model=model)), format_name)


def test_the_worker_refuses_a_batch_ramp_up() -> None:
    with pytest.raises(InputError, match="batch ramp-up"):
        exported(bloom(ramp="32,32"), "slurm")


def test_the_assignment_has_the_whole_model_and_topology(tmp_path: Path) -> None:
    """The worker reads the exported assignment and refuses nothing in it."""
    run = bloom()
    for name, text in exported(run, "slurm").items():
        (tmp_path / name).write_text(text)
    assignment = Assignment.read(tmp_path / "assignment.json")
    assert assignment.topology == run.topology
    assert assignment.workload == replace(run.workload, attention="eager", plain_layers=False)
    refuse(assignment.workload, assignment.topology, json.loads((tmp_path / "ds_config.json").read_text()))


FULL_SITE = SiteProfile(
    account="physics",
    partition="gpu,large",
    time="1-00:00:00",
    constraint="a100&nvlink",
    qos="high",
    reservation="tuning",
    gres="gpu:a100:8",
    cpus_per_task=8,
    exclude=("n7", "n[20-21]"),
    lines=("--mem=0",),
    modules=("cuda/12.4",),
    before="ulimit -l unlimited",
    container=("apptainer", "exec", "a b.sif"),
    srun=("--cpu-bind=none",),
    python="/opt/my env/bin/python",
    environment=(("NCCL_SOCKET_IFNAME", "ib0"), ("HOSTILE", HOSTILE)),
)


@pytest.mark.parametrize("format_name", ["slurm", "megatron-core", "torchrun"])
def test_a_site_profile_fills_a_script(format_name: str, tmp_path: Path) -> None:
    key, model = ("tp8-pp12-dp4-mbs2-z1", "bloom-14336x72")
    files = exported(bloom(key, model=model, attention="eager"), format_name, site=FULL_SITE)
    name = next(name for name in files if name.startswith("launch."))
    text = files[name]
    wanted = ["module load cuda/12.4\n", "\nulimit -l unlimited\n", "export NCCL_SOCKET_IFNAME=ib0\n"]
    wanted += ["apptainer exec 'a b.sif'", "'/opt/my env/bin/python' -m torch.distributed.run"]
    if name.endswith(".sbatch"):
        options = {"account": "physics", "partition": "gpu,large", "time": "1-00:00:00", "qos": "high", "mem": "0"}
        options |= {"constraint": "a100&nvlink", "reservation": "tuning", "gres": "gpu:a100:8", "cpus-per-task": "64"}
        wanted += [f"#SBATCH --{option}={value}\n" for option, value in options.items()]
        wanted += [
            "#SBATCH --exclude=n7,n[20-21]\n",
            "srun --kill-on-bad-exit=1 --cpus-per-task=64 --cpu-bind=none apptainer",
        ]
        assert text.count("#SBATCH --gres=") == 1
    for words in wanted:
        assert words in text, words
    exports = [line for line in text.splitlines() if line.startswith("export HOSTILE")]
    shown = subprocess.run(["bash", "-c", f'{exports[0]}; printf %s "$HOSTILE"'], capture_output=True, text=True)  # noqa: S607
    assert shown.stdout == HOSTILE
    (tmp_path / name).write_text(text)
    assert not SHELLCHECK or subprocess.run([SHELLCHECK, "-Swarning", name], cwd=tmp_path).returncode == 0


def test_nothing_is_left_to_fill_in() -> None:
    """There is no literal IMAGE and no config of another program, and the hostfile has the hosts of the site."""
    for format_name in FORMATS:
        if format_name.startswith("megatron"):
            continue
        hosts = tuple(f"node{n}" for n in range(50))
        files = exported(example(format_name), format_name, site=replace(SITE, hosts=hosts))
        assert not any("IMAGE" in text for text in files.values())
        own_program = "TRAIN_SCRIPT" in files.get("launch.sh", "")
        assert ("accelerate.yaml" in files) == own_program == (format_name == "accelerate")
        assert ("ds_config.json" in files) == (FORMATS[format_name].framework == "deepspeed")
        if format_name == "hostfile":
            assert files["hostfile"].splitlines() == [f"node{n} slots=8" for n in range(48)]
    with pytest.raises(InputError, match="needs 48 nodes; the site profile has 1 host"):
        exported(bloom(), "hostfile", site=replace(SITE, hosts=("one",)))
    with pytest.raises(InputError, match="starts the ranks"):
        exported(bloom(), "hostfile", command="torchrun train.py {key}")


@pytest.mark.slow
def test_deepspeeds_own_class_accepts_exported_configs() -> None:
    cases = [
        (production_config(bloom(key, model="bloom-14336x72", precision=precision), with_optimizer=written), dp)
        for key, dp in (
            ("tp8-pp12-dp4-mbs2-z0", 4),
            ("tp8-pp12-dp4-mbs2-z1", 4),
            ("tp8-pp1-dp48-mbs1-z2", 48),
            ("tp8-pp1-dp32-mbs1-z3", 32),
        )
        for precision in ("fp16", "bf16")
        for written in (True, False)
        if 2048 % dp == 0
    ]
    assert [batch for batch, _, _ in triads_by_deepspeed(cases)] == [2048] * len(cases)


def test_a_command_accepts_only_the_models_own_value_of_an_axis_it_lacks() -> None:
    run = bloom()
    other = replace(run, topology=replace(run.topology, heads=56))
    every = " ".join(f"{{{name}}}" for name in ("tp", "pp", "cp", "vpp", "dp"))
    for command, accepted in ((f"python t.py {every}", False), (f"python t.py {every} {{heads}}", True)):
        heads = _of_command(command)["heads"]
        assert heads.accepts(run)
        assert heads.accepts(other) == accepted


def test_an_export_has_the_command_of_the_study_by_default() -> None:
    """The working directory is the current one."""
    study: Any = SimpleNamespace(settings={"command": "train.py"})
    for name in ("slurm", "accelerate"):
        options = export_options(study, FORMATS[name])
        assert (options.command, options.workdir) == ("train.py", str(Path.cwd()))
        assert export_options(study, FORMATS[name], command="other.py").command == "other.py"
    worker: Any = SimpleNamespace(settings={})
    options = export_options(worker, FORMATS["slurm"])
    assert (options.command, options.workdir) == (None, "")


@pytest.mark.parametrize("name", ["torchtitan", "megatron-core"])
def test_a_format_with_a_trainer_of_its_own_ignores_the_command_of_the_study(name: str) -> None:
    study: Any = SimpleNamespace(settings={"command": "train.py", "trainer": name})
    assert export_options(study, FORMATS[name]).command is None


RUNS_COMMAND = ("torchrun", "hostfile", "slurm", "kubernetes", "jobset", "accelerate")


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_format_ignores_a_command_or_a_fork(format_name: str) -> None:
    """A command of the study, which nobody repeated, is a note of the formats that start another program."""
    chosen, run = FORMATS[format_name], bloom()
    study: Any = SimpleNamespace(settings={"command": "python t.py {key}"}, name="s")
    check_program(study, run, chosen)
    given = nullcontext() if format_name in RUNS_COMMAND else pytest.raises(InputError, match=", not --command")
    with given:
        check_program(study, run, chosen, command="python t.py {key}")
    forked = format_name == "megatron-deepspeed"
    with nullcontext() if forked else pytest.raises(InputError, match="--fork applies only to Megatron-DeepSpeed"):
        check_program(study, run, chosen, fork="bloom")
    assert len(program_notes(study, run, chosen, "python t.py {key}")) == (format_name not in RUNS_COMMAND)
    assert program_notes(SimpleNamespace(settings={}), run, chosen, None) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("python t.py --tp {tp}", "micro_batch, zero and recompute"),
        ("python t.py --tp {tp} --batch {micro_batch} --zero {zero}", "recompute"),
        ("python t.py --config {ds_config} {recompute}", ""),
        ("python t.py {key}", ""),
        (None, ""),
    ],
)
def test_what_a_command_has_no_field_for_is_noted(command: str | None, missing: str) -> None:
    """The program may read it from its environment."""
    study: Any = SimpleNamespace(settings={}, name="s")
    notes = program_notes(study, bloom("tp8-pp1-dp48-mbs1-z1"), FORMATS["slurm"], command)
    assert [note.split(";")[0] for note in notes] == [f"--command has no field for {missing}"] * bool(missing)
    assert all("TUNER_RECOMPUTE" in note for note in notes)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_command_that_lacks_the_flags_of_its_trainer_is_not_exported(format_name: str) -> None:
    """The jobs had them appended."""
    run = bloom("tp1-pp1-dp8-mbs4-z2", model="tiny", nodes=1, global_batch=64, precision="bf16")
    command = "torchrun --nproc-per-node {gpus} hf.py --save_strategy steps"
    study: Any = SimpleNamespace(settings={"command": command, "trainer": "hf"}, name="s")
    if format_name not in RUNS_COMMAND:
        check_program(study, run, FORMATS[format_name])
        return
    with pytest.raises(InputError) as refused:
        check_program(study, run, FORMATS[format_name])
    start = "--command 'torchrun --nproc-per-node {gpus} hf.py --per_device_train_batch_size 4 "
    assert start + "--gradient_accumulation_steps 2 --deepspeed {ds_config} " in str(refused.value)
    check_program(study, run, FORMATS[format_name], command="torchrun hf.py")


@pytest.mark.parametrize(("nodes", "refused"), [(1, False), (2, True)])
def test_deepspeeds_launcher_passes_only_plain_values_to_other_machines(nodes: int, refused: bool) -> None:
    run = bloom("tp8-pp1-mbs2-z1", model="gpt-1.3b", nodes=nodes, global_batch=64)
    hosts = tuple(f"n{number}" for number in range(nodes))
    site = SiteProfile(hosts=hosts, environment=(("ODD", 'a "b"'),))
    with pytest.raises(InputError, match="cannot pass ODD=") if refused else nullcontext():
        assert (".deepspeed_env" in exported(run, "hostfile", site=site)) is False


@pytest.mark.parametrize(("nodes", "refused"), [(1, False), (2, True)])
@pytest.mark.parametrize("word", ["'$HOME'", "'a;b'", "'a(b)'", '"it\'s"', "''", "%n"])
def test_deepspeeds_launcher_passes_only_plain_words_to_other_machines(word: str, nodes: int, refused: bool) -> None:
    """pdsh joins the words of a command, and a shell on each machine expands them."""
    run = bloom("tp8-pp1-mbs2-z1", model="gpt-1.3b", nodes=nodes, global_batch=64)
    with pytest.raises(InputError, match="launcher cannot pass") if refused else nullcontext():
        exported(run, "hostfile", command=f"train.py {{key}} 'a b' {word}")


FAKE_SLURM = {
    "scontrol": """
case "$*" in
  *hostnames*) seq -f 'nid%06g' 20000 ;;
  *"show job"*) echo "JobId=7 Command=$FOUND WorkDir=/ StdErr=x" ;;
  *) echo "NodeName=x NodeAddr=10.0.0.1 " ;;
esac""",
    "srun": 'printf "%s\n" "$@"',
    "getent": "true",
}


def started(folder: Path, submitted_from: Path, found: str) -> list[str]:
    """Run the script of a folder under a Slurm that reports this path of it; return the words of srun."""
    bin_folder, spool = folder.parent / "bin", folder.parent / "slurm_script"
    bin_folder.mkdir(exist_ok=True)
    for name, text in FAKE_SLURM.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_folder / name).chmod(0o755)
    shutil.copy(folder / "launch.sbatch", spool)
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "nid[1-20000]", "SLURM_SUBMIT_DIR": str(submitted_from)}
    done = subprocess.run(
        ["/bin/bash", str(spool)],
        env={"PATH": f"{bin_folder}:{os.environ['PATH']}", "FOUND": found, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_slurm_script_finds_its_own_folder_and_the_first_of_many_nodes(tmp_path: Path) -> None:
    """It is submitted from the folder of another export, whose model it must not train, or read from standard input."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        write_files(folder, exported(bloom("tp4-pp12-dp8-mbs2-z1", model="bloom-14336x72"), "slurm"))
    for submitted_from, found in ((other, str(mine / "launch.sbatch")), (mine, "(null)")):
        words = started(mine, submitted_from, found)
        assert str(mine / "assignment.json") in words
        assert any(word.startswith("--rdzv-endpoint=nid000001:") for word in words)


@pytest.mark.parametrize(
    ("tasks", "command", "per_node", "cores"),
    [
        ("ranks", None, 1, 96),
        ("ranks", "python train.py {key}", 1, 96),
        ("nodes", "torchrun train.py {key}", 1, 96),
        ("once", None, 1, 96),
        ("once", "srun python train.py {key}", 8, 12),
    ],
)
def test_a_slurm_script_requests_the_cores_of_all_ranks(
    tasks: str, command: str | None, per_node: int, cores: int
) -> None:
    """Only a command that calls srun itself has a task per rank."""
    site = replace(SITE, tasks=tasks, cpus_per_task=12)
    text = exported(bloom(), "slurm", command=command, site=site)["launch.sbatch"]
    assert f"#SBATCH --ntasks-per-node={per_node}\n#" in text
    assert f"#SBATCH --cpus-per-task={cores}\n" in text
    assert ("\nsrun --kill-on-bad-exit=1 --cpus-per-task=96 " in text) == (per_node == 1)
    assert ("export WORLD_SIZE=384 LOCAL_WORLD_SIZE=8\n" in text) == (per_node == 8)  # as in the measured job


@pytest.mark.parametrize(("format_name", "words"), [("slurm", "--gres="), ("kubernetes", "nvidia.com/gpu")])
def test_an_export_for_cpus_requests_no_gpus(format_name: str, words: str) -> None:
    run = bloom("tp1-pp1-dp2-mbs4-z1-rnone", model="tiny", nodes=2, gpus_per_node=1, precision="bf16")
    site = SiteProfile(image="tuner:1")
    assert words in "".join(exported(run, format_name, site=site).values())
    host = replace(run.cluster, gpu=replace(run.cluster.gpu, name="CPU"))
    assert words not in "".join(exported(replace(run, cluster=host), format_name, site=site).values())


@pytest.mark.parametrize(
    ("format_name", "gpu", "recipe", "exports_mxfp8"),
    [
        ("megatron-core", "MI355X-288GB", "mxfp8", True),
        ("megatron-bridge", "MI355X-288GB", "mxfp8", True),
        ("megatron-core", "MI355X-288GB", "tensorwise", False),
        ("megatron-core", "MI300X-192GB", None, False),
        ("megatron-core", "B200-180GB-SXM", "mxfp8", False),
    ],
)
def test_an_export_for_amd_names_rocms_forks_and_enables_mxfp8(
    format_name: str, gpu: str, recipe: PrecisionRecipe | None, exports_mxfp8: bool
) -> None:
    """ROCm's Transformer Engine refuses mxfp8 without the variable."""
    precision: dict[str, Any] = {"precision": "fp8" if recipe else "bf16", "precision_recipe": recipe}
    described: dict[str, Any] = {"model": "llama-3-8b", "gpu": gpu, "nodes": 1, "global_batch": 32, **precision}
    files = bundle(bloom("tp1-pp1-dp8-mbs4-z1-rnone", **described), format_name)
    assert ("export NVTE_ROCM_ENABLE_MXFP8=1\n" in files["launch.sbatch"]) == exports_mxfp8
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in files["launch.sbatch"]
    note = "with ROCm's forks only: install ROCm/Megatron-LM and ROCm/TransformerEngine."
    assert (note in files["README.md"]) == gpu.startswith("MI")


@pytest.mark.parametrize("format_name", ["torchrun", "hostfile", "slurm", "kubernetes"])
def test_a_command_of_megatron_on_amd_enables_mxfp8(format_name: str) -> None:
    described = {"model": "llama-3-8b", "gpu": "MI355X-288GB", "precision": "fp8", "precision_recipe": "mxfp8"}
    run = bloom("tp1-pp1-dp8-mbs4-z1-rnone", nodes=1, global_batch=32, **described)
    text = "".join(exported(run, format_name, command="python pretrain_gpt.py {key}").values())
    assert "NVTE_ROCM_ENABLE_MXFP8" in text


def test_a_readme_counts_in_words_and_units() -> None:
    one = bloom("tp1-pp1-dp8-mbs4-z1", model="tiny", nodes=1, global_batch=32, precision="bf16")
    text = bundle(one, "slurm")["README.md"]
    assert "tiny, 236.9K parameters, on 1 node of 8 A100-80GB-SXM:" in text
    assert "micro-batch size 4, 1 gradient accumulation step, ZeRO 1" in text


@pytest.mark.parametrize("format_name", ["torchrun", "hostfile", "slurm", "kubernetes", "jobset"])
@pytest.mark.parametrize(
    ("framework", "command", "set_to_one"),
    [
        ("megatron-core", "python pretrain_gpt.py {key}", True),
        ("megatron-deepspeed", "python pretrain_gpt.py {key}", True),
        ("fsdp2", "python train.py {key}", False),
        ("deepspeed", "python train.py {key}", False),
        (None, "python train.py {key}", False),
        ("megatron-deepspeed", None, False),
    ],
)
def test_only_megatron_is_kept_to_one_connection(
    format_name: str, framework: Framework | None, command: str | None, set_to_one: bool
) -> None:
    """The bundled worker and other trainers are measured without it, and FSDP's gathers would wait for each other."""
    run = bloom("tp1-pp1-dp8-mbs4-z1-rnone", model="tiny", nodes=1, global_batch=32, precision="bf16")
    run = replace(run, workload=replace(run.workload, framework=framework))
    text = "".join(exported(run, format_name, command=command).values())
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in text) == set_to_one
