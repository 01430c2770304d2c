"""A small disk for a single test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of a size such as 64k at a new folder; skip the test if that is not permitted."""
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs here")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", str(folder)], check=True)  # fails if a process still uses it
