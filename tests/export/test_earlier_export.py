"""A folder of an export has no scripts of an earlier one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.export.api import write_bundle
from tuner.export.bundle import FORMATS

GOLDEN = ROOT / "tests" / "data" / "golden" / "launch"


@pytest.mark.parametrize("earlier", [name for name in FORMATS if (GOLDEN / name).is_dir()])
@pytest.mark.parametrize("later", ["torchrun", "slurm", "torchtitan", "jobset"])
def test_an_export_leaves_no_script_of_an_earlier_one(earlier: str, later: str, tmp_path: Path) -> None:
    """It would start the earlier topology; files that tuner did not write stay."""
    folder = tmp_path / "production"
    shutil.copytree(GOLDEN / earlier, folder)
    own = {"train.py": "import torch  # by me\n", "run.sh": "#!/bin/bash\n# by tuner export\n", "notes.yaml": ""}
    for name, text in own.items():
        (folder / name).write_text(text)
    (folder / "pipe.sh").symlink_to("/dev/null")
    files = {path.name: path.read_text() for path in (GOLDEN / later).iterdir()}
    written, removed = write_bundle(folder, files)
    assert {path.name for path in written} == set(files)
    assert removed == [folder / name for name in sorted(scripts(GOLDEN / earlier) - set(files))]
    assert scripts(folder) == scripts(GOLDEN / later)
    assert all((folder / name).read_text() == text for name, text in own.items())


def scripts(folder: Path) -> set[str]:
    """Return the names of the scripts, manifests and recipes that tuner exported."""
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".json"}
    return {name for name, text in texts.items() if "GPUs, by tuner export" in text}
