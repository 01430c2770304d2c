"""The package's files are shipped and found after installation."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tuner
from tests.conftest import ROOT
from tuner.core.resources import catalog_files, ds_config, folder

LOOK = """
import json, sys
from tuner.core import catalog, resources
print(json.dumps({
    "configs": [str(resources.ds_config(zero)) for zero in range(4)],
    "templates": str(resources.folder("templates")),
    "gpus": len(catalog.catalog().gpu),
}))
"""


def test_the_shipped_folders_are_found_in_this_installation() -> None:
    assert all(ds_config(zero).is_file() for zero in range(4))
    assert folder("templates").is_dir()
    assert [path.name for path in catalog_files()] == ["clusters.toml", "gpus.toml", "models.toml"]
    with pytest.raises(FileNotFoundError, match="lacks its folder 'nothing'"):
        folder("nothing")


def test_a_wheel_holds_the_configs_the_templates_and_the_catalog_and_finds_them(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        names = set(archive.namelist())
    assert {f"tuner/ds_configs/zero{zero}.json" for zero in range(4)} <= names
    assert {"tuner/templates/README.md", "tuner/data/gpus.toml", "tuner/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "runs/"))]
    look = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n" + LOOK
    said = subprocess.run([sys.executable, "-I", "-c", look], cwd=tmp_path, check=True, capture_output=True, text=True)
    found = json.loads(said.stdout)
    assert all(path.startswith(str(unpacked)) for path in [*found["configs"], found["templates"]])
    assert found["gpus"] == 27


@pytest.mark.parametrize("zero", range(4))
def test_a_base_config_is_strict_json_of_its_own_stage(zero: int) -> None:
    config = json.loads(ds_config(zero).read_text())
    assert config["zero_optimization"]["stage"] == zero
    assert "train_micro_batch_size_per_gpu" in config


@pytest.mark.slow
def test_deepspeeds_own_config_class_accepts_every_base_config() -> None:
    """DeepSpeed's config class accepts the base configs, in a process of its own because importing it is slow."""
    pytest.importorskip("torch")
    program = """
import sys
from deepspeed.runtime.config import DeepSpeedConfig
for path in sys.argv[1:]:
    config = DeepSpeedConfig(path)
    print(config.zero_optimization_stage, config.train_batch_size)
"""
    paths = [str(ds_config(zero)) for zero in range(4)]
    said = subprocess.run([sys.executable, "-c", program, *paths], check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-4:] == ["0 1", "1 1", "2 1", "3 1"]


def test_the_public_names_are_these() -> None:
    """The public names of the package are exactly these, because users' notebooks depend on them."""
    assert tuner.__all__ == [
        *("Cluster", "Gpu", "Link", "Model", "RuleSet", "Shape", "Space", "Topology", "Workload"),
        *("audit_file", "calibrate", "compare", "evaluate", "explain", "flops", "list_studies", "max_batch", "measure"),
        *("memory", "open_study", "optimize", "parse_key", "plan", "plan_frameworks", "plot_batches", "read_table"),
        *("recover_study", "space_for"),
        *("stop_study", "write_comparison", "write_export", "write_report"),
    ]
    assert all(getattr(tuner, name).__name__ == name for name in tuner.__all__)
    assert set(tuner.__all__) <= set(dir(tuner))
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'fly'"):
        tuner.fly  # noqa: B018 - the look-up is the test


def test_the_python_api_plans_and_explains() -> None:
    space = tuner.space_for(model="llama-3-8b", nodes=4, gpu="H100-80GB-SXM", global_batch=512)
    made = tuner.plan(space, top=3)
    assert len(made.top) == 3
    assert tuner.explain(space, made.top[0].topology).legal
