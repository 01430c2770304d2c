"""Modules and `before` of a site profile mean the same in every script: of a job, of a job step, of an export."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.test_export import SITE, example, exported
from tests.launch.test_slurm import job, start
from tuner.export.bundle import FORMATS
from tuner.launch.slurm.script import batch_script, step_script
from tuner.launch.slurm.site_profile import SiteProfile

SHELL_FORMATS = [name for name, one in FORMATS.items() if {"launch.sh", "launch.sbatch"} & set(one.launch_files)]
MADE = ("job", "step", *SHELL_FORMATS)
ENVIRONMENT = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-48]",
    "HEAD_NODE": "n1",
    "NODE_RANK": "0",
    **dict.fromkeys(("MEGATRON", "DATA_PATH", "DATASET", "CHECKPOINTS", "TOKENIZER", "TRAIN_SCRIPT"), "/x"),
    "BASH_FUNC_module%%": '() { test "$2" != missing; }',
}
COMMANDS = {"scontrol": "echo n1", "getent": "true", "srun": 'touch "$STARTED"', "python": 'touch "$STARTED"'}


def write(made: str, site: SiteProfile, folder: Path) -> str:
    """Write a script into a folder, and return its text."""
    if made in ("job", "step"):
        script = batch_script if made == "job" else step_script
        files = {"launch": script(job(str(folder)), start(str(folder)), site, accelerators=False)}
    else:
        hosts = tuple(f"n{number}" for number in range(48))
        files = exported(example(made), made, site=replace(site, hosts=hosts, image=SITE.image))
    for name, text in files.items():
        (folder / ("launch" if name.startswith("launch.") else name)).write_text(text)
    return (folder / "launch").read_text()


def run(made: str, site: SiteProfile, tmp_path: Path, *, without: str = "") -> tuple[int, bool]:
    """Run a script with commands that do nothing; return its exit code, and whether it started the ranks.

    `without` is a variable that is not set.
    """
    commands, folder, marker = tmp_path / "bin", tmp_path / "job", tmp_path / "started"
    for path in (commands, folder):
        path.mkdir()
    for name, line in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{line}\n")
        (commands / name).chmod(0o755)
    write(made, replace(site, python=str(commands / "python")), folder)
    paths = {"PATH": f"{commands}:{os.environ['PATH']}", "STARTED": str(marker), "SLURM_SUBMIT_DIR": str(folder)}
    env = {name: value for name, value in {**ENVIRONMENT, **paths}.items() if name != without}
    done = subprocess.run(["/bin/bash", str(folder / "launch")], env=env, check=False)
    return done.returncode, marker.exists()


@pytest.mark.parametrize("name", ["TOKENIZER", "CHECKPOINTS", "DATASET"])
def test_a_script_of_torchtitan_requires_its_paths_and_data(name: str, tmp_path: Path) -> None:
    """Without a name, it would train on c4."""
    assert run("torchtitan", SiteProfile(), tmp_path, without=name) == (1, False)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "site",
    [
        SiteProfile(before="false\nexport NCCL_DEBUG=WARN"),
        SiteProfile(before="source /missing/activate\ntrue"),
        SiteProfile(modules=("missing", "cuda")),
    ],
    ids=("command", "file", "module"),
)
def test_a_failing_line_ends_the_job_before_the_ranks_start(made: str, site: SiteProfile, tmp_path: Path) -> None:
    code, started = run(made, site, tmp_path)
    assert code != 0
    assert not started


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "before",
    ["", 'export OLD="$NEVER_SET"', "first=$(yes | head -n 1)", "false || true", "set +eu\nfalse"],
    ids=("none", "unset variable", "broken pipe", "accepted failure", "own options"),
)
def test_other_lines_do_not_end_the_job(made: str, before: str, tmp_path: Path) -> None:
    """Activation scripts of conda and others read variables that are not set."""
    assert run(made, SiteProfile(before=before, modules=("cuda",)), tmp_path) == (0, True)


@pytest.mark.parametrize("made", MADE)
def test_options_that_a_line_sets_do_not_outlive_it(made: str, tmp_path: Path) -> None:
    """The rest of a script runs with its own options, however the lines end."""
    site = SiteProfile(before="set +eu")
    text = write(made, site, tmp_path)
    own = next(line for line in text.splitlines() if line in ("set -u", "set -euo pipefail"))
    restored = text.split("\nset +eu\n")[1].splitlines()[0]
    assert restored == {"set -u": "set +e -u"}.get(own, own)
