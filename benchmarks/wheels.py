"""Collect the dependencies of tuner and its jobs, for a machine without a network, as wheels in one folder.

    python -m benchmarks.wheels FOLDER [--python 3.12] [--present torch numpy ...]

Run it on a machine with a network, in the environment of `make test`. It collects the packages that `tuner[jobs]` has
in that environment, in the same versions, for another Python on 64-bit Linux. `--present` names the packages that the
machine already has; they are left out, as are dependencies that only they need. DeepSpeed, which is published as
source, is built without its ops; they are compiled on the machine when a job needs them. On the machine:

    pip install --no-index --no-deps --target site FOLDER/*.whl
    export PYTHONPATH=$PWD/site
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BUILT: Final = ("deepspeed", "tuner")
"""Packages without a suitable wheel, which are built here; their wheels contain no machine code."""
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MAX_MIB: Final = 50.0
ROOT: Final = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect the wheels; fail if they are larger than `MAX_MIB`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wheels", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="of the machine [default: 3.12]")
    parser.add_argument("--present", nargs="*", default=["torch"], metavar="NAME", help="what the machine has")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME==VERSION", help="further wheels")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    found = needed(given.python, {canonicalize_name(name) for name in given.present})
    fetched = [f"{name}=={version}" for name, version in found.items() if name not in BUILT] + given.also
    tag = f"cp{given.python.replace('.', '')}"
    where = ["--python-version", given.python, "--implementation", "cp"]
    where += [word for abi in (tag, "abi3", "none") for word in ("--abi", abi)]
    where += [word for platform in PLATFORMS for word in ("--platform", platform)]
    _pip("download", "--no-deps", "--only-binary", ":all:", *where, "--dest", str(given.folder), *fetched)
    for name in BUILT:
        if name in found:
            source = str(ROOT) if name == "tuner" else f"{name}=={found[name]}"
            _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(given.folder), source)
    wheels = sorted(given.folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"{len(wheels)} wheels, {size:.1f} MiB, in {given.folder}")
    return int(size > MAX_MIB)


def needed(python: str, present: Collection[str]) -> dict[str, str]:
    """Return name and version of all dependencies of `tuner[jobs]` under a Python version, except those present."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    environment |= {"platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
    environment |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    found: dict[str, str] = {}
    waiting = [("tuner", "jobs")]
    while waiting:
        name, extra = waiting.pop()
        package = distribution(name)
        found[canonicalize_name(name)] = package.version
        for text in package.requires or ():
            requirement = Requirement(text)
            known = canonicalize_name(requirement.name)
            applies = requirement.marker is None or requirement.marker.evaluate({**environment, "extra": extra})
            if applies and known not in found and known not in present:
                waiting.append((known, ""))
    return found


def _pip(*words: str) -> None:
    environment = {**os.environ, "DS_BUILD_OPS": "0"}
    subprocess.run([sys.executable, "-m", "pip", *words, "--quiet"], check=True, env=environment)


if __name__ == "__main__":
    raise SystemExit(main())
