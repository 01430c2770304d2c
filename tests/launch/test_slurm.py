"""The Slurm launcher without a cluster: scripts, site profiles, and reading of Slurm's output."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.stages import TOPOLOGIES, job_in
from tuner.core.catalog import gpu, read_toml
from tuner.core.errors import InputError
from tuner.launch.contract import Job, JobState
from tuner.launch.program import ProcessSpec
from tuner.launch.slurm.parsing import (
    SEPARATOR,
    QueuedJob,
    accounting_rows,
    failed_nodes,
    largest_partition,
    partitions,
    queue_rows,
    refusal,
    unreachable,
    waiting_reason,
    why_never_starts,
)
from tuner.launch.slurm.script import batch_script, job_name, step_script
from tuner.launch.slurm.site_profile import SiteProfile

GOLDEN = ROOT / "tests/data/golden"
HOSTILE = '/scratch/it\'s "a" $(touch x) `y`;rm -rf *\n#SBATCH --uid=0/é 模型/-rf/back\\n%j'
FULL = SiteProfile(
    account="physics",
    partition="gpu,long",
    constraint="[rack1|rack2]&a100",
    qos="high",
    reservation="tuning",
    time="2:00:00",
    gres="gpu:a100:8",
    cpus_per_task=6,
    exclude=("n7",),
    nodelist="n[1-9]",
    lines=("--mem=0", "--hint=nomultithread"),
    modules=("cuda/12.4", "it's; odd"),
    before="export NCCL_DEBUG=WARN\nulimit -l unlimited",
    container=("apptainer", "exec", "--nv", "/images/my image.sif"),
    srun=("--cpu-bind=none", "--mpi=pmix"),
    python="/opt/python 3/bin/python",
)


def job(folder: str = "/scratch/study/0001", tag: str = "0f3c") -> Job:
    return job_in(Path(folder), number=1, tag=tag, topology=replace(TOPOLOGIES["good"], nodes=2, dp=8))


def start(folder: str = "/scratch/study/0001", *, ranks: bool = True) -> ProcessSpec:
    words = ("/opt/python", "-m", "tuner.worker", "--job", f"{folder}/assignment.json")
    return ProcessSpec(
        arguments=("torchrun", "train.py", "--name", HOSTILE),
        environment={"DS_ACCELERATOR": "cuda", "ODD": HOSTILE},
        cwd=Path(folder),
        result=None,
        each_rank=words if ranks else None,
    )


SCRIPTS = {
    "slurm-plain.sh": lambda: batch_script(job(), start(), SiteProfile(), accelerators=True),
    "slurm-full.sh": lambda: batch_script(job(), start(), FULL, accelerators=True, exclude=["n3", "n7"]),
    "slurm-hostile.sh": lambda: batch_script(
        job(HOSTILE, 'a "tag"\n$(x)'), start(HOSTILE), SiteProfile(gres=""), accelerators=True
    ),
    "slurm-nodes.sh": lambda: batch_script(
        job(), start(ranks=False), SiteProfile(tasks="nodes", cpus_per_task=6), accelerators=True
    ),
    "slurm-step.sh": lambda: step_script(job(), start(), FULL, accelerators=True),
    "slurm-step-hostile.sh": lambda: step_script(
        replace(job(HOSTILE, 'a "tag"\n$(x)'), environment={"MORE": HOSTILE}),
        start(HOSTILE),
        SiteProfile(tasks="nodes"),
        accelerators=True,
    ),
    "slurm-once.sh": lambda: batch_script(job(), start(ranks=False), SiteProfile(tasks="once"), accelerators=False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("topology", "nodes"),
    [
        ({"nodes": 16, "dp": 64}, 16),  # fits into a rack of 18 nodes
        ({"nodes": 36, "dp": 9, "tp": 16}, 4),
        ({"nodes": 36, "dp": 144, "ep": 16}, 4),
        ({"nodes": 36, "dp": 144, "ep": 32}, 9),  # the least part of 36 that holds 8 nodes
        ({"nodes": 38, "dp": 152, "ep": 8}, 2),
        ({"nodes": 34, "dp": 136, "ep": 8}, 2),
        ({"nodes": 22, "dp": 88, "ep": 32}, 11),
        ({"nodes": 26, "dp": 104, "ep": 64}, 0),  # neither 13 nor 26 nodes can hold 16 within 18
        ({"nodes": 36, "dp": 144}, 0),
    ],
)
def test_nodes_that_an_estimate_has_in_one_rack_are_requested_together(topology: dict[str, Any], nodes: int) -> None:
    """With `segment` in the site profile, and only in parts that divide the nodes of the job."""
    rack = replace(job().cluster, gpu=gpu("GB200-192GB"), nodes=38, gpus_per_node=4, nvlink_domain=72)
    given = replace(TOPOLOGIES["good"], **{"tp": 1, "pp": 1, "sequence_parallel": False, **topology})
    wide = replace(job(), topology=given, cluster=rack)
    script = batch_script(wide, start(), SiteProfile(segment=True), accelerators=True)
    assert re.findall(r"^#SBATCH --segment=(\d+)$", script, re.MULTILINE) == [str(nodes)] * bool(nodes)
    assert "--segment" not in batch_script(wide, start(), SiteProfile(), accelerators=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_matches_its_golden_file(name: str) -> None:
    """A script equals its golden file; `TUNER_GOLDEN=write` rewrites the files, for a review of the differences."""
    text = SCRIPTS[name]()
    if os.environ.get("TUNER_GOLDEN") == "write":
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (("torchrun", "train.py"), 2),
        (("/opt/python", "-m", "torch.distributed.run", "train.py"), 2),
        (("accelerate", "launch", "train.py"), 2),
        (("python", "train.py"), 16),
    ],
)
def test_a_command_that_starts_the_ranks_of_a_node_is_started_once_per_node(words: tuple[str, ...], tasks: int) -> None:
    """Once per rank, eight launchers on each node would compete for its port."""
    asked = replace(start(ranks=False), arguments=words)
    text = batch_script(job(), asked, SiteProfile(), accelerators=True)
    assert f"srun --nodes=2 --ntasks={tasks} --ntasks-per-node={tasks // 2} " in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_no_findings_in_a_script(name: str) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed; make test-cluster installs it")
    done = subprocess.run(
        ["shellcheck", "-x", "-"], input=SCRIPTS[name](), capture_output=True, text=True, check=False  # noqa: S607
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_the_words_of_a_script_are_passed_unchanged(tmp_path: Path) -> None:
    """Arguments and variables with special characters reach the program unchanged when bash runs the script."""
    folder = tmp_path / HOSTILE[1:]
    folder.mkdir(parents=True)
    asked = ProcessSpec(
        arguments=("bash", "-c", 'printf "%s\\0" "$@" "$ODD"', "x", HOSTILE, "two words", ""),
        environment={"ODD": HOSTILE},
        cwd=folder,
        result=None,
    )
    text = batch_script(job(str(folder), 'a "tag"\n$(x)'), asked, SiteProfile(tasks="once"), accelerators=False)
    environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost"}
    script = tmp_path / "script"
    script.write_text(text)
    done = subprocess.run(["/bin/bash", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert (folder / "stdout.log").read_text().split("\0") == [HOSTILE, "two words", "", HOSTILE, ""]
    ended = json.loads((folder / "ended.json").read_text())
    assert (ended["tag"], ended["job"], ended["restart"], ended["exit"]) == ('a "tag"\n$(x)', "7", 0, 0)
    assert ended["ended"] >= ended["began"] > 1e9
    assert sorted(path.name for path in folder.iterdir()) == ["began.json", "ended.json", "stderr.log", "stdout.log"]


def test_a_script_with_an_unwritable_folder_has_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = batch_script(job(str(tmp_path / "file/job")), start(), SiteProfile(), accelerators=False)
    environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost"}
    done = subprocess.run(["/bin/bash", "-c", text], env=environment, capture_output=True, check=False)
    assert done.returncode == 73


def test_the_name_of_a_job_is_a_single_unique_word() -> None:
    names = [job_name(tag) for tag in ("0f3c", "a b", "a  b", "x" * 300, 'a "tag"\n$(x)')]
    assert len(set(names)) == len(names)
    assert all(name.startswith("tuner-") and len(name) < 70 and name.replace("-", "").isalnum() for name in names)


# -- the site's file


def test_the_example_shows_every_field_and_is_valid(tmp_path: Path) -> None:
    """docs/slurm-site.toml shows every field; with its comment signs removed, it is a valid site profile."""
    text = (ROOT / "docs/slurm-site.toml").read_text()
    assert SiteProfile.of(read_toml(ROOT / "docs/slurm-site.toml"), origin="example") == SiteProfile()
    opened = "\n".join(line[1:] for line in text.splitlines() if line.startswith("#") and " = " in line)
    (tmp_path / "site.toml").write_text(opened)
    site = SiteProfile.read(tmp_path / "site.toml")
    assert all(getattr(site, name) not in ("", (), 0) for name in SiteProfile.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('acount = "x"', "unknown field acount"),
        ('account = "a b"', "cannot be part of an #SBATCH line"),
        ('partition = "x\\n#SBATCH --uid=0"', "cannot be part of an #SBATCH line"),
        ('lines = ["mem=0"]', "not an option of sbatch"),
        ('lines = "--mem=0"', "must be a list of strings"),
        ('exclusive = "yes"', "must be true or false"),
        ("account = 3", "must be a string"),
        ('tasks = "all"', "must be ranks, nodes or once"),
        ("cpus_per_task = -1", "must be an integer of at least 0"),
        ("account = ", "is not valid TOML"),
        ('environment = ["A=1"]', "must be a table"),
        ('environment = { "A B" = "1" }', "'A B' is not a valid name in environment"),
        ('environment = { A = "1\\n2" }', "one line of text or a number"),
        ("environment = { A = true }", "one line of text or a number"),
        ('resources = { "rdma/ib" = 0 }', "an integer of at least 1"),
        ('image = "a b"', "not a container image"),
        ('volumes = ["/data"]', "not CLAIM:/mount"),
        ('hosts = ["a slots=8"]', "not a host name"),
    ],
)
def test_an_invalid_site_is_refused_by_its_field(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(InputError, match=complaint):
        SiteProfile.read(tmp_path / "site.toml")


# -- Slurm's output


def row(
    state: str = "PENDING", reason: str = "None", nodes: str = "", name: str = "tuner-1", number: str = "12"
) -> QueuedJob:
    return QueuedJob(id=number, state=state, nodes=nodes, reason=reason, name=name)


def test_rows_are_read_with_any_content() -> None:
    lines = [
        SEPARATOR.join(("12", "PENDING", "", "Job's account not known, so it can't use this partition", "tuner-1")),
        SEPARATOR.join(("13", "RUNNING", "n[1-2,7]", "None", "somebody's | name, with (all)")),
        "slurm_load_jobs error: whatever",
        "",
    ]
    found = queue_rows("\n".join(lines))
    assert [(row.id, row.job_state) for row in found] == [("12", JobState.WAITING), ("13", JobState.RUNNING)]
    assert found[1].nodes == "n[1-2,7]"


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ("PENDING", JobState.WAITING),
        ("CONFIGURING", JobState.WAITING),
        ("REQUEUED", JobState.WAITING),
        ("SUSPENDED", JobState.WAITING),
        ("RUNNING", JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING),
        ("COMPLETED", JobState.ENDED),
        ("NODE_FAIL", JobState.ENDED),
        ("OUT_OF_MEMORY", JobState.ENDED),
        ("PREEMPTED", None),
        ("A_STATE_OF_THE_FUTURE", None),
    ],
)
def test_a_state_determines_the_phase_and_preempted_is_not_final(state: str, where: JobState | None) -> None:
    assert row(state).job_state is where


def test_accounting_is_read_with_words_after_a_state() -> None:
    text = "12|tuner-1|CANCELLED by 1000|n1\n13|a|b|COMPLETED|n2\n14|tuner-2|PENDING|None assigned\nnonsense\n"
    found = accounting_rows(text)
    assert [(each.id, each.name, each.state, each.nodes) for each in found] == [
        ("12", "tuner-1", "CANCELLED", "n1"),
        ("13", "a|b", "COMPLETED", "n2"),
        ("14", "tuner-2", "PENDING", ""),
    ]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("PartitionNodeLimit", "--nodes"),
        ("DependencyNeverSatisfied", "dependency"),
        ("Job's account not known, so it can't use this partition (closed allows physics)", "account"),
        ("QOSMaxNodePerJobLimit", "lower --nodes"),
    ],
)
def test_a_permanent_reason_has_a_remedy(reason: str, change: str) -> None:
    assert change in (why_never_starts(reason) or "")


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "BeginTime", "JobHeldUser", "QOSMaxJobsPerUserLimit", "None"]
)
def test_a_temporary_reason_is_waited_for(reason: str) -> None:
    assert why_never_starts(reason) is None


def test_a_held_job_says_how_to_release_it() -> None:
    assert "scontrol release 12" in waiting_reason(row(reason="JobHeldUser"))
    assert waiting_reason(row(reason="Priority")) == "Priority"
    assert waiting_reason(row("SUSPENDED")) == "suspended"


@pytest.mark.parametrize(
    ("said", "why", "change"),
    [
        ("sbatch: error: invalid partition: nope\nsbatch: error: Batch job submission failed: Invalid partition name"
         " specified", "Invalid partition name specified", "sinfo"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "Invalid account", "set another account"),
        ("sbatch: error: Invalid --time specification", "Invalid --time specification", "time ="),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "Invalid qos", "qos"),
        ("", "no reason given", ""),
    ],
)  # fmt: skip
def test_a_refusal_has_the_reason_and_a_remedy(said: str, why: str, change: str) -> None:
    assert why in refusal(said)
    assert change in refusal(said)


def test_an_unreachable_controller_is_no_refusal() -> None:
    assert unreachable("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert unreachable("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    assert not unreachable("sbatch: error: Batch job submission failed: Invalid qos specification")


def test_unusable_nodes_are_distinguished_from_others() -> None:
    text = "n1|idle|none\nn1|idle|none\nn2|down*|Not responding\nn3|drained|disk\nn4|mixed|none\n"
    assert failed_nodes(text) == {"n2": "down, not responding: Not responding", "n3": "drained: disk"}


def test_the_largest_partition_limits_a_job() -> None:
    found = partitions("debug|up|4\ngpu|up|40\ngpu|up|8\nold|down|100\n" + f"gpu|up|²\ngpu|up|{'9' * 5000}\n")
    assert found == {"debug": 4, "gpu": 48}
    assert largest_partition(found, ()) == 48
    assert largest_partition(found, ("debug",)) == 4
    assert largest_partition({}, ()) is None


TOO_MANY = """
import os, resource
from tuner.launch.slurm.commands import SlurmCommands, ControllerUnreachable
commands = SlurmCommands.__new__(SlurmCommands)  # whether this machine has Slurm is not what is asked
if os.getuid() == 0:
    os.setuid(65534)  # the limit is not root's
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    commands.run("true")
except ControllerUnreachable as silence:
    print(silence)
"""


def test_a_command_that_cannot_start_now_is_an_outage() -> None:
    said = subprocess.run([sys.executable, "-c", TOO_MANY], capture_output=True, text=True, check=False)
    assert said.stdout == "true cannot start: too many processes on this machine\n", said.stderr
